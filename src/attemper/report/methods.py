"""Methods within a budget of time: which are compared, which are shown one by one, and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.calibrators import METHODS
from attemper.comparison import Comparison, Row, compare
from attemper.data.scores import LabelledScores
from attemper.metrics import Estimate, accuracy, brier, ece, nll, referral_area
from attemper.metrics.bootstrap import Limits, Statistic, estimate, estimate_all
from attemper.metrics.predictions import Predictions

__all__ = ["MOST_RESAMPLED", "compare_within_budget", "estimates", "is_large", "resamples", "shown"]

QUICK = 20_000, 250_000  # N and N·K of the test data up to which `compare` may resample all of its metrics
LARGE = 500_000  # N·K of the validation data beyond which some methods take minutes
MOST_RESAMPLED = 100_000  # samples that intervals are made from
ONE_BY_ONE = ("ts", "ats", "bayes")  # the paper's methods and the default, which the page has sliders for
SHOWN = {"accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece}


def compare_within_budget(
    val: LabelledScores,
    test: LabelledScores,
    methods: Sequence[str] | None = None,
    *,
    confidence_level: float = 0.95,
    **settings: Any,
) -> Comparison:
    """`compare`, with what time allows.

    Of large validation data only the methods that a sketch is enough for, unless others are named. Of large test data
    without intervals, for `estimates` finds those that are shown faster.
    """
    if methods is None and is_large(val):
        methods = METHODS.from_sketch()
    quick = len(test) <= QUICK[0] and len(test) * test.n_classes <= QUICK[1]
    return compare(val, test, methods, confidence_level=confidence_level if quick else None, **settings)


def is_large(val: LabelledScores) -> bool:
    """Return whether only methods that a sketch is enough for are compared, unless others are named."""
    return len(val) * val.n_classes > LARGE


def shown(comparison: Comparison) -> list[str]:
    """Methods that are looked at one by one: none, the paper's, the Bayesian, the one recommended."""
    there = [row.method for row in comparison.rows if row.metrics is not None]
    chosen = [m for m in dict.fromkeys(["none", *ONE_BY_ONE, comparison.recommended]) if m in there]
    others = [m for m in there if m not in chosen]
    return chosen + others[: max(0, 1 + len(ONE_BY_ONE) - len(chosen))]


def resamples(n: int) -> int:
    """As many as time allows.

    >>> resamples(3205), resamples(50_000), resamples(1_000_000)
    (1000, 400, 200)
    """
    return int(min(1000, max(200, 20_000_000 // n)))


def estimates(row: Row, p: Predictions | None, confidence_level: float, seed: int) -> dict[str, float | Estimate]:
    """Accuracy, NLL, Brier score, ECE and referral area of a method.

    They come from `compare`; where that had no time for intervals, from here for predictions that are shown.
    """
    if row.metrics is None:
        return {}
    found: dict[str, Any] = {name: row.metrics[name] for name in SHOWN}
    if row.referral_area is not None:
        found["area"] = row.referral_area
    if p is None or isinstance(found["brier"], Estimate):
        return found
    known = SHOWN | ({"area": referral_area} if p.right.any() and not p.right.all() else {})
    return dict(_resampled(p, {name: metric.statistic for name, metric in known.items()}, confidence_level, seed))


def _resampled(
    p: Predictions, metrics: Mapping[str, Callable[[Predictions], Statistic]], confidence_level: float, seed: int
) -> dict[str, Estimate]:
    """Value of each metric, with its interval.

    Where an interval needs resamples, of more than 100 000 samples as many are drawn and resampled, and the interval is
    as much narrower as more samples make it.
    """
    whole = {name: metric(p) for name, metric in metrics.items()}
    if len(p) > MOST_RESAMPLED and p.clusters is None:
        part = p.rows(np.sort(np.random.default_rng(seed).choice(len(p), MOST_RESAMPLED, replace=False)))
        narrower = (MOST_RESAMPLED / len(p)) ** 0.5
        for name, metric in metrics.items():
            if whole[name].limits is None and not whole[name].reason:
                limits = _narrowed(Statistic(metric(part).value), part.weights, narrower, seed)
                whole[name] = whole[name]._replace(limits=limits)
    return estimate_all(whole, p.weights, confidence_level, resamples(len(p)), seed, p.clusters)


def _narrowed(statistic: Statistic, w: Floats, narrower: float, seed: int) -> Limits:
    """Return limits that lie around a value as those of a part of the samples do, but closer."""

    def limits(value: float, _: Floats, confidence_level: float) -> Estimate:
        middle, low, high = estimate(statistic, w, confidence_level, resamples(len(w)), seed)
        return Estimate(value, max(0.0, value - narrower * (middle - low)), value + narrower * (high - middle))

    return limits
