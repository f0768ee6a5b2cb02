"""The findings first, in sentences that a clinician can use: each has a lead, which is bold, and the figures."""

from __future__ import annotations

import math
from typing import Any

from attemper.calibrators import method_title
from attemper.report.numbers import count, percent, share, signed
from attemper.report.referrals import LEAST_ERRORS

__all__ = ["about", "focus_of", "verdict"]

Finding = tuple[str, str]
SMALL = 0.02  # a gap below this is not worth a sentence, however many samples show it
LEAST = 20  # predictions of a group of which a share is worth a sentence


def verdict(summary: dict[str, Any]) -> list[Finding]:
    """Return a lead and its figures for: the confidence, calibration, the classes, referral.

    ``summary`` is what `summarise` has found so far.
    """
    findings = [_confidence(summary), _calibration(summary), *_classes(summary), _referral(summary)]
    groups = summary["groups"]
    return [*findings, *([] if groups is None else [_groups(groups)])]


def focus_of(classes: list[dict[str, Any]], others: int, given: int | None = None) -> int | None:
    """Return the class that a sentence is about: the one given, or the one with the most samples that are not found.

    >>> rows = [{"n": 100, "found": [0.9]}, {"n": 40, "found": [0.5]}, {"n": 0, "found": None}]
    >>> focus_of(rows, 0)
    1
    """
    if given is not None:
        return given
    own = range(len(classes) - (others > 0))
    missed = {k: row["n"] * (1 - row["found"][0]) for k in own if (row := classes[k])["found"] is not None}
    return max(missed, key=lambda k: missed[k]) if missed else None


def worst_bin(bins: list[list[float]], level: float, scale: float, sign: float = 0) -> int | None:
    """Return the group of predictions whose confidence is furthest off; None where none is off by much, beyond chance.

    Of groups with a twentieth of the predictions. Each is compared with an interval that allows for the choice among
    them (Bonferroni). ``sign`` 1 looks only where confidence is too high, -1 where it is too low.
    """
    enough = max(sum(b[0] for b in bins) / 20, LEAST)
    large = {i: b for i, b in enumerate(bins) if b[0] >= enough}
    far = {}
    for i, (weight, confidence, accuracy, *_) in large.items():
        found = share(accuracy * weight, weight, 1 - (1 - level) / len(large), scale)
        assert found is not None
        gap = confidence - accuracy
        if abs(gap) >= SMALL and sign * gap >= 0 and not found[1] <= confidence <= found[2]:
            far[i] = abs(gap)
    return max(far, key=lambda i: far[i]) if far else None


def about(summary: dict[str, Any]) -> tuple[str, int | None]:
    """Return a key of `LEADS`, and the group of predictions that shows it best."""
    gap = summary["overall"]["none"]["gap"]
    bins = summary["reliability"]["none"]["bins"]
    settings = summary["confidence_level"], summary["scale"]
    if len(gap) == 1:
        return "unknown", None
    is_off = gap[1] > 0 or gap[2] < 0
    worst = worst_bin(bins, *settings, sign=math.copysign(1, gap[0]) if is_off else 0)
    if is_off and (worst is not None or abs(gap[0]) >= SMALL):
        return "over" if gap[0] > 0 else "under", worst
    return ("near" if is_off else "fine", None) if worst is None else ("mixed", worst)


LEADS = {
    "over": "The network is over-confident:",
    "under": "The network is under-confident:",
    "mixed": "The network's confidence is right on average, but not everywhere:",
    "near": "The network's confidence is nearly right:",
    "fine": "No error of the network's confidence is detectable:",
    "unknown": "There are too few independent cases for a verdict on the confidence:",
}


def _confidence(summary: dict[str, Any]) -> Finding:
    kind, place = about(summary)
    overall = summary["overall"]["none"]
    digits = 1 if kind == "near" else 0
    mean, share_right = (f"{percent(v, digits)} %" for v in (overall["confidence"], overall["accuracy"][0]))
    level = f"{percent(summary['confidence_level'], 0)} % interval "
    limits = _limits(overall["accuracy"], level, digits)
    n = count(summary["n_test"])
    text = f"its mean confidence is {mean}, and of {n} predictions {share_right} are right{limits}."
    if place is not None:
        confidence, right = _group(summary["reliability"]["none"]["bins"][place])
        text += f" It is furthest off where it is {confidence} confident: there it is right {right}."
    return LEADS[kind], text


def _group(cell: list[float]) -> tuple[str, str]:
    """Return the mean confidence of a group of predictions, and how often they are right."""
    _, confidence, *right = cell
    return _whole(confidence), f"{_whole(right[0])} of the time{_limits(right)}"


def _calibration(summary: dict[str, Any]) -> Finding:
    method = summary["recommended"]
    if method == "none":
        return "No calibration is recommended,", "so the confidence stays as it is."
    row = next(row for row in summary["rows"] if row["method"] == method)
    on = f"({method_title(method)}, fitted on {count(summary['n_val'])} validation samples)"
    before, after = (summary["overall"][m]["gap"] for m in ("none", method))
    was, now, *limits = (signed(100 * gap, 1) for gap in (before[0], *after))
    now += f" points ({' to '.join(limits)})" if limits else " points"
    sentences = [f"{on} the mean confidence minus the accuracy is {now}, instead of {was}."]
    if abs(after[0]) > abs(before[0]) + SMALL:
        sentences.append("On these samples that is worse than without calibration.")
    _, place = about(summary)
    cell = summary["reliability"][method]["bins"][place or 0]
    if place is not None and cell[0] >= LEAST:
        sentences.append("Where it is {} confident, it is right {}.".format(*_group(cell)))
    if row["changed"]:
        sentences.append(f"This changes {percent(row['changed'])} % of the predictions.")
    return "After calibration", " ".join(sentences)


def _classes(summary: dict[str, Any]) -> list[Finding]:
    place = summary["focus"]
    if place is None:
        return []
    if all(row["found"] is None or row["found"][0] == 1 for row in summary["classes"]):
        return [(f"All {count(summary['n_test'])} predictions are right:", "there is no error to learn from.")]
    focus = summary["classes"][place]
    if focus["found"] is None:
        return []
    name = _named(summary, focus["name"])
    lead = f"It finds {_whole(focus['found'][0])} of {name}:"
    text = _found(focus)
    if focus["taken_for"] and focus["taken_for"][1] > 1:
        other, n = focus["taken_for"]
        text += f"; {count(n)} are taken for {_named(summary, other)}"
    sentences = [f"{text}."]
    now = summary["referral"]["right"][1 + place][-1] / focus["n"]
    if _whole(now) != _whole(focus["found"][0]):
        sentences.append(f"After calibration it finds {_whole(now)}.")
    if summary["n_classes"] == 2 and (other := summary["classes"][1 - place])["found"] is not None:
        found = f"{_whole(other['found'][0])}, {_found(other)}"
        sentences.append(f"Of {_named(summary, other['name'])} it finds {found}.")
    return [(lead, " ".join(sentences))]


def _found(row: dict[str, Any]) -> str:
    return f"{count(round(row['found'][0] * row['n'], 6))} of {count(row['n'])} samples{_limits(row['found'])}"


def _referral(summary: dict[str, Any]) -> Finding:
    referral = summary["referral"]
    right, wrong, start = referral["right"], referral["wrong"], referral["start"]
    total, errors = right[0][-1] + wrong[0][-1], wrong[0][-1]
    if errors == 0:
        return "No referral is needed on these samples:", "no prediction on the test set is wrong."
    if start is None:
        n = referral["n_val_errors"]
        some = "no validation prediction is" if n == 0 else f"only {n} validation predictions are"
        why = f"{some} wrong, and at least {LEAST_ERRORS} are needed to choose one."
        return "There is no suggested threshold for referral:", why
    referred, missed = right[0][start] + wrong[0][start], errors - wrong[0][start]

    def shown(part: float, of: float) -> tuple[str, str]:
        found = share(part, of, summary["confidence_level"], summary["scale"])
        assert found is not None
        return _whole(found[0]), _limits(found)

    value, limits = shown(referred, total)
    lead = f"At the suggested threshold of {referral['labels'][start]}, {value} of cases are referred"
    caught = f"{count(wrong[0][start])} of the {count(errors)} errors are among them"
    if referred >= total:
        return f"{lead},", "so nothing is decided without a specialist."
    value, of = shown(missed, total - referred)
    text = f"{limits.strip()}, and {caught}. Of the predictions that are not referred, {value} are wrong{of}"
    place = summary["focus"]
    if place is not None and (n := summary["classes"][place]["n"]) > 0:
        still = wrong[1 + place][-1] - wrong[1 + place][start]
        name = _named(summary, summary["classes"][place]["name"])
        text += f"; {count(still)} of {count(n)} samples of {name} are still missed"
    return lead, f"{text}. This is no guarantee: see “Which cases to refer”."


def _groups(groups: dict[str, Any]) -> Finding:
    """Return the first two sentences: whether all are alike, and the clearest gap."""
    lead = "By group, after calibration:" if groups["calibrated"] else "By group:"
    return lead, " ".join(groups["after"][:2])


def _named(summary: dict[str, Any], name: str) -> str:
    described = summary["descriptions"].get(name)
    return f"{name} ({described})" if described else name


def _whole(value: float) -> str:
    """Write a share in whole percent, with a decimal where that would be 0 or 100 and is not.

    >>> _whole(0.586), _whole(0.997), _whole(1.0)
    ('59 %', '99.7 %', '100 %')
    """
    plain = percent(value, 0)
    return f"{plain} %" if plain not in ("0", "100") or value in (0, 1) else f"{percent(value)} %"


def _limits(values: list[float], before: str = "", digits: int = 0) -> str:
    if len(values) == 1:
        return ""
    return f" ({before}{' to '.join(percent(v, digits) for v in values[1:])})"
