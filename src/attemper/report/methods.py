"""Methods within a budget of time: which are compared, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attemper.calibrators import METHODS
from attemper.comparison import Comparison, Row, compare
from attemper.data.scores import LabelledScores
from attemper.metrics import Estimate, accuracy, brier, ece, nll, referral_area
from attemper.metrics.bootstrap import estimate_all
from attemper.metrics.predictions import Predictions

__all__ = ["compare_within_budget", "estimates", "is_large", "resamples"]

QUICK = 20_000, 250_000  # N and N·K of the test data up to which `compare` may resample all of its metrics
LARGE = 500_000  # N·K of the validation data beyond which some methods take minutes
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
    without intervals, for `estimates` adds those that the page is about.
    """
    if methods is None and is_large(val):
        methods = METHODS.from_sketch()
    quick = len(test) <= QUICK[0] and len(test) * test.n_classes <= QUICK[1]
    return compare(val, test, methods, confidence_level=confidence_level if quick else None, **settings)


def is_large(val: LabelledScores) -> bool:
    """Return whether only methods that a sketch is enough for are compared, unless others are named."""
    return len(val) * val.n_classes > LARGE


def resamples(n: int) -> int:
    """As many as time allows.

    >>> resamples(3205), resamples(50_000), resamples(1_000_000)
    (1000, 400, 200)
    """
    return int(min(1000, max(200, 20_000_000 // n)))


def estimates(row: Row, p: Predictions | None, confidence_level: float, seed: int) -> dict[str, float | Estimate]:
    """Accuracy, NLL, Brier score, ECE and referral area of a method.

    They come from `compare`; where that had no time for intervals, from here if there are predictions.
    """
    if row.metrics is None:
        return {}
    found: dict[str, Any] = {name: row.metrics[name] for name in SHOWN}
    if row.referral_area is not None:
        found["area"] = row.referral_area
    if p is None or isinstance(found["brier"], Estimate):
        return found
    known = SHOWN | ({"area": referral_area} if p.right.any() and not p.right.all() else {})
    statistics = {name: metric.statistic(p) for name, metric in known.items()}
    return dict(estimate_all(statistics, p.weights, confidence_level, resamples(len(p)), seed, p.clusters))
