"""The results as sentences, for readers without a course in calibration."""

from __future__ import annotations

from typing import Any

from attemper.calibrators import method_title
from attemper.report.notes import p_value
from attemper.report.numbers import count, fixed, percent, percent_interval, share
from attemper.report.verdict import about, too_few_errors

__all__ = ["in_sentences"]


def in_sentences(summary: dict[str, Any]) -> dict[str, list[str]]:
    """Return sentences for each part of the story."""
    rows = {row["method"]: row for row in summary["rows"]}
    level = f"{percent(summary['confidence_level'], 0)} % interval"
    return {
        "verdict": [f"{lead} {text}" for lead, text in summary["verdict"]],
        "confidence": _confidence(summary, rows["none"], level),
        "changed": _changed(summary, rows["none"], rows[summary["recommended"]], level),
        "referral": _referral(summary, rows[summary["recommended"]], level),
        **({} if summary["groups"] is None else {"groups": summary["groups"]["after"]}),
        **({} if summary["sets"] is None else {"sets": summary["sets"]["sentences"]}),
    }


def _confidence(summary: dict[str, Any], before: dict[str, Any], level: str) -> list[str]:
    temperature = summary["temperature"]
    start = temperature["states"][temperature["marks"]["none"]]
    accuracy, ece = before["metrics"]["accuracy"], before["metrics"]["ece"]
    confidence = start["confidence"]
    gap, *limits = summary["overall"]["none"]["gap"]
    chance = ", which may be chance" if limits and limits[0] <= 0 <= limits[1] else ""
    off = f"{percent(abs(gap))} points {'above' if gap > 0 else 'below'} the accuracy{chance}"
    sentences = [
        f"The network was right in {percent(accuracy[0])} % of {count(summary['n_test'])} test samples"
        + (f" ({level} {percent(accuracy[1])} to {percent(accuracy[2])})." if len(accuracy) > 1 else "."),
        f"Its mean confidence was {percent(confidence)} %"
        + (f", {off}." if abs(gap) >= 0.0005 else ", as often as it was right."),
        f"Averaged over groups of predictions, its confidence is off by {percent(ece[0])} points (ECE"
        + (f", {level} {percent(ece[1])} to {percent(ece[2])})" if len(ece) > 1 else ")")
        + (f"; {_by_chance(before, summary['resamples'])}." if before["chance"] else "."),
    ]
    _, worst = about(summary)
    if worst is not None:
        sentences.append(_bin_sentence(worst, start["bins"], level))
    return sentences


def _bin_sentence(place: int, bins: list[list[float]], level: str) -> str:
    _, confidence, accuracy, low, high = bins[place]
    edges = [percent(i / len(bins), 0) for i in (place, place + 1)]
    mean, right, *limits = [percent(v, 0) for v in (confidence, accuracy, low, high)]
    return (
        f"It is furthest off in predictions with {edges[0]} to {edges[1]} % confidence (mean {mean} %): {right} % of "
        f"them were right ({level} {' to '.join(limits)})."
    )


def _changed(summary: dict[str, Any], before: dict[str, Any], after: dict[str, Any], level: str) -> list[str]:
    if after is before:
        return [summary["reason"], "No calibration is recommended, so nothing changes."]
    name = method_title(after["method"])
    place = summary["temperature"]["marks"].get(after["method"])
    warmth = "" if place is None else f" (T = {summary['temperature']['labels'][place]})"
    b, a = before["metrics"], after["metrics"]
    changed = after["changed"]
    return [
        summary["reason"],
        f"With {name}{warmth}, fitted on {count(summary['n_val'])} validation samples, confidence is off by "
        f"{_points(a['ece'])} points instead of {_points(b['ece'])}"
        + (f"; brackets hold the {level}" if len(a["ece"]) > 1 or len(b["ece"]) > 1 else "")
        + (f"; {_by_chance(after, summary['resamples'])}." if after["chance"] else "."),
        f"The loss that penalises confident errors (NLL) goes from {fixed(b['nll'][0], 4)} to {fixed(a['nll'][0], 4)}.",
        "No prediction changes, only its confidence."
        if changed == 0
        else f"It changes {percent(changed)} % of the predictions; accuracy goes from "
        f"{percent_interval(b['accuracy'])} to {percent_interval(a['accuracy'])}.",
    ]


def _by_chance(row: dict[str, Any], resamples: int) -> str:
    """Return what perfect calibration would show on these samples."""
    chance, p = row["chance"]
    return f"perfect calibration would show {percent(chance)} by chance ({p_value(p, resamples)})"


def _points(values: list[float]) -> str:
    return percent_interval(values).replace(" %", "")


def _referral(summary: dict[str, Any], row: dict[str, Any], level: str) -> list[str]:
    """Describe the predictions of the method that the slider starts with; they may differ from the network's."""
    referral = summary["referral"]
    start, label = referral["start"], referral["labels"][referral["start"]]
    counts = referral["counts"][referral["first_method"]]
    right, wrong = counts["right"][0], counts["wrong"][0]
    total, errors = right[-1] + wrong[-1], wrong[-1]
    whose = _whose(row)
    if errors == 0:
        return [
            f"{whose}, none of the {count(total)} predictions on the test set is wrong, so there is no error to catch "
            "by referring."
        ]
    referred, missed = right[start] + wrong[start], errors - wrong[start]
    rule = (
        f"The threshold slider starts at {label}, the lowest on its scale that refers "
        f"{percent(referral['catch'], 0)} % of the errors on the validation set"
        if referral["chosen"]
        else f"The threshold slider starts at {label}, which is no suggestion: {too_few_errors(referral)}"
    )

    def in_percent(part: float, of: float) -> str:
        found = share(part, of, summary["confidence_level"], referral["scale"])
        assert found is not None
        return percent_interval(found)

    decided = total - referred
    return [
        f"{whose}, {count(errors)} of {count(total)} predictions on the test set are wrong.",
        f"{rule}{', by the confidence of these predictions' if referral['chosen'] else ''}.",
        f"On the test set it refers {count(referred)} of {count(total)} samples, {in_percent(referred, total)}, and "
        f"with them {count(wrong[start])} of the {count(errors)} errors, {in_percent(wrong[start], errors)}; brackets "
        f"hold the {level}.",
        f"{count(missed)} errors are missed: {in_percent(missed, decided)} of the {count(decided)} decided."
        if decided > 0
        else "Nothing is decided without a specialist.",
    ]


def _whose(row: dict[str, Any]) -> str:
    if row["method"] == "none":
        return "Without calibration"
    changes = f"changes {percent(row['changed'])} % of the predictions" if row["changed"] else "changes no prediction"
    return f"After {method_title(row['method'])}, which {changes}"
