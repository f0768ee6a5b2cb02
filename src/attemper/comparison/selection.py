"""Which method to use: a first choice, fixed before any data are seen, unless held-out samples show a better one.

The test set has no part in it, so what it shows of the selected method is not too good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper.calibrators import Calibrator
from attemper.comparison.held_out import HeldOut, effective_errors
from attemper.comparison.rows import Comparison, CrossValidated, Row
from attemper.data.scores import LabelledScores
from attemper.metrics import Estimate
from attemper.metrics.best import BestSet, compare_with_best, means_and_covariance
from attemper.metrics.bootstrap import estimate
from attemper.metrics.intervals import LEAST_ERRORS, too_few
from attemper.metrics.referral import area_difference

__all__ = ["FIRST_CHOICES", "Selection", "conclude", "first_choice", "select"]

# In this order, what is used where cross-validation shows nothing better.
FIRST_CHOICES = ("structured", "bayes", "ts")
LEVEL = 0.95  # of the set of methods that can be the best, which the first choice must leave to be replaced
NEGLIGIBLE = 1e-3  # nats: methods that differ by less are equally good; by reason, not benchmarked
BEHIND = 5e-4  # of the referral area, below which there is nothing to point out


class Selection(NamedTuple):
    """The method to use, and why."""

    method: str
    selected_by: str  # "first choice", "cross-validation", or "no errors", where VAL has none
    reason: str  # a sentence


def conclude(
    rows: Sequence[Row],
    calibrators: Mapping[str, Calibrator],
    held_out: HeldOut,
    test: LabelledScores,
    clusters: NDArray[Any] | None,
    confidence_level: float,
    seed: int,
) -> Comparison:
    """Select a method on validation data, and evaluate it on test data."""
    fitted = {row.method: calibrators[row.method] for row in rows if row.map is not None and row.method != "none"}
    chosen = select(held_out, fitted, seed)
    cv = _cross_validated(held_out, chosen.method)
    best = _on_test(rows, test, clusters, confidence_level, seed)
    above = {} if best is None else best.above
    reasons = [chosen.reason, _evaluation(rows, chosen.method, best, test, clusters is not None, confidence_level)]
    if best is not None and chosen.method not in best.members:
        reasons.append(
            "If you switch to another method for that, evaluate it on other samples."
            if held_out.reason
            else "VAL is too small to show that, or not drawn like TEST."
        )
    return Comparison(
        tuple(replace(row, cv=cv.get(row.method), above_best=above.get(row.method)) for row in rows),
        chosen.method,
        " ".join([*reasons, *_referral(rows, chosen.method, test, confidence_level, seed)]),
        chosen.selected_by,
        held_out.n_folds,
        None if best is None else best.members,
    )


def first_choice(calibrators: Mapping[str, Calibrator]) -> str:
    """Name the method that is used if nothing shows a better one: fixed before any data are seen.

    >>> from attemper import TemperatureScaling, VectorScaling
    >>> first_choice({"vector": VectorScaling(), "ts": TemperatureScaling()}), first_choice({})
    ('ts', 'none')
    """
    return min(calibrators, key=lambda name: _place(calibrators[name]), default="none")


def select(held_out: HeldOut, calibrators: Mapping[str, Calibrator], seed: int = 0) -> Selection:
    """Select by the losses of held-out samples.

    The method with the lowest mean replaces the first choice if another one is better than that by more than 0.001
    nats, with 95 % confidence (`compare_with_best`). Of methods that are above the selected one by less than that, by
    two standard errors, the simplest is selected: one that keeps predictions, then one whose map has fewer numbers.
    """
    first = first_choice(calibrators)
    use = f"Use {named([first])}, the first choice"
    if not calibrators:
        return Selection(first, "first choice", "Use no calibration: nothing else could be fitted.")
    if held_out.no_errors:
        why = "no prediction on VAL is wrong, so it cannot show how far the confidence is off"
        return Selection("none", "no errors", f"Use no calibration: {why}. Use validation samples with errors to fit.")
    if held_out.reason:
        return Selection(first, "first choice", f"{use}: {held_out.reason}.")
    finite = {name: values for name, values in held_out.losses.items() if np.isfinite(values).all()}
    names = list(finite)
    means, covariance = means_and_covariance(
        np.stack(list(finite.values()), axis=1), held_out.weights, held_out.clusters
    )

    def gap(one: str, other: str) -> tuple[float, float]:
        i, j = names.index(one), names.index(other)
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        return float(means[i] - means[j]), float(np.sqrt(max(0.0, variance)))

    def shown(one: str, other: str) -> str:
        difference, error = gap(one, other)
        return f"{difference:.4f} (standard error {error:.4f})"

    on = f"{held_out.n_folds}-fold cross-validation on VAL (n = {len(held_out.weights)})"
    chosen = lowest = names[int(means.argmin())]
    why = f"its NLL of {means.min():.4f} is the lowest"
    possible = compare_with_best(finite, held_out.weights, held_out.clusters, LEVEL, seed, NEGLIGIBLE).members
    is_first = first in possible
    if is_first:
        chosen = first
    elif first in finite:
        why = f"its NLL is {shown(first, lowest)} below that of {named([first])}, the first choice"
    for name in sorted(finite, key=lambda name: _complexity(calibrators.get(name))):
        if name == chosen:
            break
        difference, error = gap(name, chosen)
        if difference + 2 * error <= NEGLIGIBLE:
            why = f"its NLL is that of {named([chosen])} to within {NEGLIGIBLE:g}, and it is simpler"
            chosen, is_first = name, False
            break
    if not is_first:
        return Selection(chosen, "cross-validation", f"Use {named([chosen])}, selected by {on}: {why}.")
    other = "" if lowest == first else f"; that of {named([lowest])} is {shown(first, lowest)} lower"
    return Selection(chosen, "first choice", f"{use}: in {on} no method has an NLL that is lower beyond chance{other}.")


def named(methods: Sequence[str], last: str = "and") -> str:
    """Write names of methods for readers.

    >>> named(["none", "ts", "bayes"])
    'no calibration, ts and bayes'
    """
    names = ["no calibration" if m == "none" else m for m in methods]
    return f" {last} ".join(([", ".join(names[:-1])] if names[:-1] else []) + names[-1:])


def _place(calibrator: Calibrator) -> int:
    method = getattr(calibrator, "method", "")
    return FIRST_CHOICES.index(method) if method in FIRST_CHOICES else len(FIRST_CHOICES)


def _complexity(calibrator: Calibrator | None) -> tuple[int, int, int]:
    """Sort no calibration before maps that keep predictions, and those before others with few numbers."""
    if calibrator is None:
        return 0, 0, 0
    if calibrator.keeps_arg_max:
        return 1, 0, _place(calibrator)
    return 2, sum(a.size for a in calibrator.map_.arrays().values()), _place(calibrator)


def _cross_validated(held_out: HeldOut, recommended: str) -> dict[str, CrossValidated]:
    """Return the held-out NLL of each method, and the paired difference to the recommended one."""
    found = {}
    for name, losses in held_out.losses.items():
        found[name] = CrossValidated(np.inf, np.inf, np.nan)
        if np.isfinite(losses).all():
            pair = np.stack([losses, losses - held_out.losses[recommended]], axis=1)
            means, covariance = means_and_covariance(pair, held_out.weights, held_out.clusters)
            found[name] = CrossValidated(float(means[0]), float(means[1]), float(np.sqrt(covariance[1, 1])))
    return found


def _on_test(
    rows: Sequence[Row], test: LabelledScores, clusters: NDArray[Any] | None, confidence_level: float, seed: int
) -> BestSet | None:
    """Return which methods can have the lowest test NLL; None where there are too few errors to compare them."""
    if too_few(effective_errors(test, clusters)):
        return None
    w = np.ones(len(test)) if test.weights is None else test.weights
    counts = w > 0  # weight zero times an infinite loss would be NaN
    losses = {row.method: row.losses[counts] for row in rows if row.losses is not None}
    losses = {method: values for method, values in losses.items() if np.isfinite(values).all()}
    if not losses:
        return None
    cases = None if clusters is None else clusters[counts]
    return compare_with_best(losses, w[counts], cases, confidence_level, seed, NEGLIGIBLE)


def _evaluation(
    rows: Sequence[Row],
    recommended: str,
    best: BestSet | None,
    test: LabelledScores,
    by_case: bool,
    confidence_level: float,
) -> str:
    """Describe what the test set shows of the method that was selected without it."""
    metrics = next(row.metrics for row in rows if row.method == recommended)
    assert metrics is not None
    whose = "the NLL of the network" if recommended == "none" else "its NLL"
    found = f"On TEST (n = {len(test)}), which only evaluates, {whose} is {_value(metrics['nll']):.4f}"
    if best is None:
        what = "cases with errors" if by_case else "errors"
        return f"{found}. TEST has fewer than {LEAST_ERRORS} {what}, too few to distinguish the methods."
    level = f"With {100 * confidence_level:g} % confidence"
    if recommended in best.members:
        rest = [m for m in best.members if m != recommended]
        lowest = f"it can be the lowest, and so can that of {named(rest)}" if rest else "it is the lowest"
        return f"{found}. {level}, {lowest}, to within {NEGLIGIBLE:g}."
    lowest = f"the lowest is that of {named(best.members, 'or')}"
    if recommended not in best.above:
        return f"{found}, as the map gives some label the probability 0. {level}, {lowest}."
    return f"{found}. {level}, {lowest}, by up to {best.above[recommended].high:.4f}."


def _referral(
    rows: Sequence[Row], recommended: str, test: LabelledScores, confidence_level: float, seed: int
) -> list[str]:
    """Report how confidence ranks errors where the recommended map does so worse than one that keeps predictions."""
    found = {row.method: row for row in rows if row.referral_area is not None}
    keeps = next((m for m in (*FIRST_CHOICES, "none") if m in found and found[m].changed == 0), recommended)
    if keeps == recommended or recommended not in found:
        return []
    one, two = (found[m].predictions for m in (recommended, keeps))
    assert one is not None
    assert two is not None
    one, two = one.weighted(test.weights), two.weighted(test.weights)
    gap = estimate(area_difference(one, two), one.weights, confidence_level, seed=seed, clusters=one.clusters)
    if gap.value > -BEHIND:
        return []
    limits = f", {100 * confidence_level:g} % interval {gap.low:.4f} to {gap.high:.4f}" if gap.has_interval else ""
    return [
        f"For referral, look at the referral area too: it measures how well confidence ranks errors. On TEST it is "
        f"{_value(found[recommended].referral_area):.4f}, and that of {named([keeps])} is "
        f"{_value(found[keeps].referral_area):.4f} (difference {gap.value:.4f}{limits})."
    ]


def _value(found: Any) -> float:
    return float(found.value if isinstance(found, Estimate) else found)
