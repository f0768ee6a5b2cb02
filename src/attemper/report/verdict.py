"""The findings in sentences, the most important first, and what to do next: the only place of the page's own prose."""

from __future__ import annotations

import inspect
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper._result import Estimate
from attemper.calibrators.registry import method_of
from attemper.comparison import IN_USE, LEVEL
from attemper.data.checking import flags_of
from attemper.data.reading import Read, ReadOptions
from attemper.decisions.words import missed, promised
from attemper.metrics import Reliability
from attemper.metrics.reliability import reliability_of
from attemper.report.summary import ClassRow, Summary

SMALL = 0.02  # a gap below this is not worth a sentence, however many samples show it
RARELY = 0.01  # how often a bin, or the ECE, may look wrong by chance; the gap's interval has its own 5 %
SAVED, RULE = "calibrator.attemper.json", "rule.attemper.json"
LEAST = 20  # samples of which a share is worth a sentence


@dataclass(frozen=True)
class Statement:
    """A sentence that is bold, and its figures; ``code`` is what to type."""

    lead: str
    text: str
    code: str = ""


def worst_bin(table: Reliability, wide: Reliability, sign: float = 0) -> int | None:
    """Return the bin whose confidence is furthest off; None where none is off by much, beyond chance.

    Of bins with a twentieth of the samples. The intervals of ``wide`` allow for the choice among them (Bonferroni).
    ``sign`` 1 looks only where confidence is too high, -1 where it is too low.
    """
    with np.errstate(invalid="ignore"):
        gap = table.confidence - table.accuracy
        beyond = (table.confidence < wide.low) | (table.confidence > wide.high)
        far = _large(table) & beyond & (np.abs(gap) >= SMALL) & (sign * gap >= 0)
    return int(np.argmax(np.where(far, np.abs(gap), 0.0))) if far.any() else None


def _large(table: Reliability) -> Any:
    return table.weight >= max(float(table.weight.sum()) / 20, LEAST)


def about(summary: Summary) -> tuple[str, int | None]:
    """Return a key of `LEADS`, and the bin that shows it best."""
    gap, table = summary.means[0].gap, summary.tables[0]
    if not gap.has_interval:
        return "unknown", None
    n_large = max(int(_large(table).sum()), 1)
    wide = reliability_of(summary.predictions[0], confidence_level=1 - RARELY / n_large)
    is_off = gap.low > 0 or gap.high < 0
    worst = worst_bin(table, wide, math.copysign(1, gap.value) if is_off else 0)
    if is_off and (worst is not None or abs(gap.value) >= SMALL):
        return "over" if gap.value > 0 else "under", worst
    p = summary.means[0].ece.p
    if worst is not None or (p is not None and p < RARELY):
        return "mixed", worst
    return "near" if is_off else "fine", None


LEADS = {  # of the confidence, and of one column, the probability of the positive class
    "over": ("The classifier is over-confident:", "The predicted probabilities are too high:"),
    "under": ("The classifier is under-confident:", "The predicted probabilities are too low:"),
    "mixed": (
        "The confidence is right on average, but not everywhere:",
        "The predicted probabilities are right on average, but not everywhere:",
    ),
    "near": ("The confidence is nearly right:", "The predicted probabilities are nearly right:"),
    "fine": ("No error of the confidence is detectable:", "No error of the probabilities is detectable:"),
    "unknown": ("There are too few independent cases for a verdict:",) * 2,
}


def findings(summary: Summary, describe: Mapping[str, str]) -> list[Statement]:
    """Return what the page shows first: the confidence, the calibration, a class, the rule, the groups."""
    found = [_confidence(summary), _calibration(summary), _class(summary, describe), _rule(summary)]
    return [finding for finding in [*found, _groups(summary)] if finding is not None]


def _confidence(summary: Summary) -> Statement:
    kind, place = about(summary)
    means, table = summary.means[0], summary.tables[0]
    if summary.is_risk:
        lead, of = LEADS[kind][1], f"of {summary.n:.0f} samples {means.right:.1%} are positive"
        text = f"the mean probability is {means.confidence:.1%}, and {of}."
        there = "It is furthest off where the probability is about {:.0%}: there {} are positive."
    else:
        lead, of = LEADS[kind][0], f"of {summary.n:.0f} predictions {means.right:.1%} are right"
        text = f"the mean confidence is {means.confidence:.1%}, and {of}."
        there = "It is furthest off where it is {:.0%} confident: there {} are right."
    if place is not None:
        text += " " + there.format(table.confidence[place], _at(table, place))
    elif kind == "mixed":
        text += f" The ECE is {means.ece:.3f}, and by chance it would be {means.ece.chance:.3f}."
    return Statement(lead, text)


def _at(table: Reliability, place: int) -> str:
    return f"{Estimate(float(table.accuracy[place]), float(table.low[place]), float(table.high[place])):.0%}"


def _calibration(summary: Summary) -> Statement:
    if not summary.is_calibrated:
        return Statement("No calibration is recommended:", f"{summary.comparison.why}.")
    before, after = summary.means
    report = summary.calibrator.report_ if summary.calibrator is not None else None
    on = "" if report is None else f", fitted on {report.n_samples:.0f} samples"
    what = "predicted probability minus the share of positives" if summary.is_risk else "confidence minus the accuracy"
    lead = "With the calibrator in use" if summary.described == IN_USE else "After calibration"
    sentences = [
        f"({summary.method}{on}) the mean {what} is {points(after.gap)}, instead of {100 * before.gap.value:+.1f}; "
        f"the ECE is {after.ece.value:.3f}, instead of {before.ece.value:.3f}."
    ]
    _, place = about(summary)
    table = summary.tables[1]
    if place is not None and table.weight[place] >= LEAST:
        what = "the probability is about" if summary.is_risk else "it is"
        end = "are positive" if summary.is_risk else "are right"
        confident = "" if summary.is_risk else " confident"
        sentences.append(f"Where {what} {table.confidence[place]:.0%}{confident}, {_at(table, place)} {end}.")
    if abs(after.gap.value) > abs(before.gap.value) + SMALL:
        sentences.append("On these samples that is worse than without calibration.")
    if summary.changed:
        sentences.append(f"It changes {summary.changed:.1%} of the predictions.")
    elif not summary.is_risk:
        sentences.append("No prediction changes.")
    return Statement(lead, " ".join(sentences))


def focus(summary: Summary) -> ClassRow | None:
    """Return the class that a sentence is about: one with a bound of its own, or the one with the most missed."""
    promise = getattr(summary.rule, "promise", None)
    if promise is not None and promise.kind == "miss" and promise.by == "class":
        bounded = [row for row, bound in zip(summary.classes, promise.bounds) if bound < 1]
        if bounded and not summary.n_other_classes:
            return bounded[0]
    own = summary.classes[: len(summary.classes) - (summary.n_other_classes > 0)]
    missed = {row.name: row.n * (1 - row.found.value) for row in own if row.found is not None}
    return max((row for row in own if row.name in missed), key=lambda row: missed[row.name], default=None)


def _class(summary: Summary, describe: Mapping[str, str]) -> Statement | None:
    row = focus(summary)
    if row is None or row.found is None:
        return None
    if summary.n_errors == 0:
        return Statement(f"All {summary.n:.0f} predictions are right:", "there is no error to learn from.")
    name = _named(row.name, describe)
    text = f"({row.found.low:.0%} to {row.found.high:.0%}, of {row.n:.0f} samples)"
    if row.taken_for is not None and row.taken_for[1] > 1:
        text += f"; {row.taken_for[1]:.0f} are predicted as {_named(row.taken_for[0], describe)}"
    text += "."
    if row.found_before is not None and f"{row.found_before:.0%}" != f"{row.found.value:.0%}":
        text += f" Before calibration it is {row.found_before:.0%}."
    if row.right is not None:
        text += f" When {row.name} is predicted, that is right in {row.right:.0%}."
    return Statement(f"Of class {name}, {row.found.value:.0%} are found", text)


def _rule(summary: Summary) -> Statement | None:
    if summary.outcome is None:
        step = summary.steps[summary.start]
        if summary.n_errors == 0 or step.caught is None or step.error_rate is None:
            return None
        lead = f"The {step.referred.value:.0%} least confident cases hold {step.caught.value:.0%} of the errors:"
        text = f"if they are referred to a person, {step.error_rate:.1%} of the other predictions are wrong."
        return Statement(lead, text)
    part, promise = summary.outcome.all, summary.rule.promise
    threshold = getattr(summary.rule, "threshold", None)
    if part.coverage is not None:
        lead = f"The sets hold {part.mean_size:.2g} classes on average:"
        text = f"{part.coverage:.1%} hold the true class, and {_shown(part.referred_share)} are referred."
    else:
        lead = "With the rule in use" if threshold is None else f"At the threshold in use, {threshold:.3f},"
        rest = "nothing is decided" if part.miss_rate is None else f"{part.miss_rate:.1%} of the others are wrong"
        text = f"{_shown(part.referred_share)} of the cases are referred, and {rest}."
    if promise is not None:
        beyond = missed(summary.outcome.parts, promise) or ["These samples do not contradict it."]
        text += f" Guarantee: {' '.join([*promised(promise, summary.names), *beyond[:3]])}"
    return Statement(lead, text)


def _shown(value: Estimate | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def _groups(summary: Summary) -> Statement | None:
    if summary.groups is None:
        return None
    after = summary.groups[1]
    off = groups_off(summary)
    alike = after.alike
    text = ""
    if alike is not None and alike.p is not None:
        text = f"The test of whether all groups are alike has p = {max(alike.p, 0.001):.3f}."
    if not off:
        return Statement(f"No group of {len(after.parts)} has a gap beyond chance.", text)
    name, gap = off[0]
    where = f"group {name}" if len(off) == 1 else f"{len(off)} of {len(after.parts)} groups, most in {name}"
    return Statement(f"The confidence is off in {where}:", f"its gap is {points(gap)}. {text}".strip())


def groups_off(summary: Summary) -> list[tuple[str, Estimate]]:
    """Return the groups with a gap beyond chance, the largest first."""
    parts = {} if summary.groups is None else summary.groups[1].parts
    gaps = [(str(name), part["gap"]) for name, part in parts.items()]
    off = [(name, gap) for name, gap in gaps if gap.has_interval and (gap.low > 0 or gap.high < 0)]
    return sorted(off, key=lambda pair: -abs(pair[1].value))


def next_steps(summary: Summary) -> list[Statement]:
    """Return what to do next, the most important first."""
    found, comparison = [], summary.comparison
    after, files = summary.means[1], [*summary.comparison.files]
    files = files if len(files) == 1 + summary.on_test else []  # of several a command would need the pattern
    read = getattr(comparison.calibrator, "read_", ReadOptions()).known()
    usual = {"input": "logits", "classes": read.get("columns")}
    read = {name: value for name, value in read.items() if value != usual.get(name)}
    read.pop("groups", None)
    grouping = {"groups": comparison.named.get("groups", "NAME")}
    noise = {} if comparison.noise == 0 else {"noise": comparison.noise}

    own = "".join(f", {name}={value!r}" for name, value in (read | noise).items())  # what Python must repeat

    def code(python: str, command: str, n_files: int, *words: str) -> str:  # who read files may have no Python
        paths = map(shlex.quote, [*files, "test.csv"][:n_files])
        return " ".join(["attemper", command, *paths, *filter(None, words)]) if files else python

    def fit(calibrator: Any, path: str, python: str = "") -> str:
        call, flags = _again(calibrator)
        flags = f"{flags} {flags_of(grouping | read if 'groups' in calibrator.needs else read)}".rstrip()
        return code(python or f"attemper.fit(…, {call})", "fit", 1, flags, f"-o {path}")

    if summary.outcome is not None and any(part.verdict == "broken" for part in summary.outcome.parts):
        text = "The samples here do not come from where the rule was chosen, or its cases were not independent."
        typed = code("attemper.decide(val, test, …)", "decide", 2, flags_of(read | noise), f"-o {RULE}")
        found.append(Statement("Do not use the rule on data like these.", text, typed))
    if not summary.on_test:
        text = "The figures are of validation samples that each fit left out. A test set checks the final calibrator."
        typed = code(f"attemper.compare(val, test{own})", "compare", 2, flags_of(read | noise))
        found.append(Statement("Pass a test set.", text, typed))
    off = after.gap.has_interval and (after.gap.low > SMALL or after.gap.high < -SMALL)
    if summary.is_calibrated and off:
        text = f"The gap after calibration is {points(after.gap)}, beyond chance."
        text += "" if summary.rule is None else " The new calibrator has no rule: use decide to choose one."
        found.append(Statement("Fit on more samples, or on samples like these.", text, fit(summary.calibrator, SAVED)))
    alike = None if summary.groups is None else summary.groups[1].alike
    if (groups := groups_off(summary)) and alike is not None and alike.p is not None and alike.p < 1 - LEVEL:
        text = f"Group {groups[0][0]} is off by {points(groups[0][1])} with one calibration for all."
        typed = code(f"attemper.fit(data, groups=…{own})", "fit", 1, flags_of(grouping | read | noise), f"-o {SAVED}")
        found.append(Statement("Fit a calibration for each group.", text, typed))
    if summary.is_calibrated and summary.described != IN_USE:
        text = "Its file is all that new data need."
        typed = fit(summary.calibrator, SAVED, f'comparison.calibrator.save("{SAVED}")')
        found.append(Statement("Save the calibrator and apply it.", text, typed))
    if summary.rule is None and summary.n_errors > 0:
        text = "A rule decides which cases to refer, and bounds the errors of the others."
        flags = flags_of({"max_miss": 0.05} | read | noise)
        typed = code(f"attemper.decide(val, test, max_miss=0.05{own})", "decide", 2, flags, f"-o {RULE}")
        found.append(Statement("Choose a rule, if wrong predictions cost much.", text, typed))
    better = [name for name in comparison.alternatives if comparison[name].gain.low > 0]
    if not summary.is_calibrated:
        found.append(
            Statement("Label more validation samples.", "Those at hand cannot show how far the confidence is off.")
        )
    elif better:
        other = comparison[better[0]].calibrator
        typed = fit(other, shlex.quote(f"{other.method}.attemper.json"))
        found.append(Statement(f"Consider {better[0]}.", f"It {comparison.price_of(better[0])}.", typed))
    rare = [row.name for row in summary.classes if 0 < row.n < LEAST]
    if rare:
        text = f"Fewer than {LEAST} samples show little of {', '.join(rare[:5])}{', …' if len(rare) > 5 else ''}."
        found.append(Statement("Label more samples of the rare classes.", text))
    if summary.is_calibrated:
        text = (
            "It raises an alarm when confidence and accuracy drift apart. Frequent checks raise no more false alarms."
        )
        net = shlex.quote(comparison.named.get("calibrator", "NET")) if summary.described == IN_USE else SAVED
        typed = code("attemper.monitor(calibrator, data)", "monitor", 0, net, "new.csv --state monitor.json")
        found.append(Statement("Monitor new labelled data.", text, typed))
    return found


def _again(calibrator: Any) -> tuple[str, str]:
    """Return arguments of `fit`, and flags, that give a method its parameters again; of groups those of its base.

    >>> from attemper import METHODS
    >>> _again(METHODS["ats"](theta=0.01))
    ("method='ats', theta=0.01", '--method ats -p theta=0.01')
    """
    made: Any = method_of(calibrator)
    made = getattr(made, "base", made)
    usual = inspect.signature(type(made)).parameters
    own = {n: v for n, v in made.get_params(deep=False).items() if repr(v) != repr(usual[n].default)}
    own = {"method": made.method} | {n: v for n, v in own.items() if n not in Read.__annotations__}
    words = [[f"--{n}", str(v)] if n in ("method", "noise") else ["-p", f"{n}={v}"] for n, v in own.items()]
    return ", ".join(f"{n}={v!r}" for n, v in own.items()), " ".join(shlex.quote(w) for pair in words for w in pair)


def points(value: Estimate) -> str:
    """Write a difference of shares in percentage points.

    >>> points(Estimate(0.071, 0.05, 0.0923))
    '+7.1 points (+5.0 to +9.2)'
    """
    limits = f" ({100 * value.low:+.1f} to {100 * value.high:+.1f})" if value.has_interval else ""
    return f"{100 * value.value:+.1f} points{limits}"


def _named(name: str, describe: Mapping[str, str]) -> str:
    return f"{name} ({describe[name]})" if name in describe else name
