"""Which cases are referred at some thresholds: errors caught and missed, in total and by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.metrics.predictions import Predictions
from attemper.report.numbers import percent

__all__ = ["LEAST_ERRORS", "counts", "first_threshold", "referral_of", "scale_of"]

EVEN = np.arange(101) / 100
QUANTILES = 100  # of each set of confidences
SHOWN = np.arange(1, 12) / 12  # quantiles of the confidence that the table has a row for
DIGITS = 4
# Fewer validation errors suggest no threshold: of 20, the share that it refers has a standard error of 9 points.
LEAST_ERRORS = 20


def scale_of(*confidences: Floats) -> Floats:
    """Return thresholds to choose from: even ones, and quantiles of each of these confidences.

    >>> t = scale_of(np.array([0.9991, 0.9992, 0.9993]))
    >>> t[-5:].tolist(), 0.5 in t
    ([0.99, 0.9991, 0.9992, 0.9993, 1.0], True)
    """
    # Quantiles that are there, not between two, so that few distinct confidences give few thresholds.
    even = np.linspace(0, 1, QUANTILES)
    between = [np.quantile(one, even, method="higher").round(DIGITS) for one in confidences]
    return np.unique(np.concatenate([EVEN, *between]).clip(0, 1))


def referral_of(
    on_val: Predictions, before: Predictions, p: Predictions, w: Floats, group: NDArray[np.intp], n_groups: int,
    catch: float,
) -> dict[str, Any]:  # fmt: skip
    """Return the table of thresholds. The validation set alone decides which they are, and which one is suggested.

    ``on_val`` and ``before`` are of the validation samples, calibrated and not, ``p`` and ``group`` of the test
    samples.
    """
    thresholds = scale_of(on_val.confidence, before.confidence)
    start = first_threshold(on_val, catch, thresholds)
    shown = np.searchsorted(thresholds, np.quantile(on_val.confidence, SHOWN, method="higher").round(DIGITS).clip(0, 1))
    return {
        "catch": catch,
        "thresholds": thresholds.tolist(),
        "labels": [f"{percent(t, 0 if t in EVEN else DIGITS - 2)} %" for t in thresholds],
        "shown": sorted({*shown.tolist(), *([] if start is None else [start])}),
        "start": start,
        "n_val_errors": int((~on_val.right).sum()),
        **counts(p, w, group, n_groups, thresholds),
    }


def counts(
    p: Predictions, w: Floats, group: NDArray[np.intp], n_groups: int, thresholds: Floats = EVEN
) -> dict[str, list[list[float]]]:
    """Weight of the right and of the wrong predictions with confidence up to each threshold.

    A list for all samples, then one for each group of true classes.
    """
    # c ≤ t is decided by comparing, as in `referral_curve`; the last place is beyond all thresholds, and stays empty.
    place = np.searchsorted(thresholds, p.confidence, side="left")
    size = len(thresholds) + 1
    result = {}
    for name, rows in (("right", p.right), ("wrong", ~p.right)):
        by = np.bincount(group * size + place, w * rows, minlength=n_groups * size).reshape(n_groups, size)
        reached = by[:, :-1].cumsum(axis=1)
        result[name] = [reached.sum(axis=0).tolist(), *reached.tolist()]
    return result


def first_threshold(p: Predictions, catch: float, thresholds: Floats = EVEN) -> int | None:
    """Place of the lowest threshold that refers this share of the errors; None where there are too few errors."""
    errors = p.weights * ~p.right
    if (~p.right).sum() < LEAST_ERRORS or not errors.any():
        return None
    place = np.searchsorted(thresholds, p.confidence, side="left")
    caught = np.bincount(place, errors, minlength=len(thresholds) + 1)[:-1].cumsum()
    return int(np.argmax(caught >= catch * errors.sum() * (1 - 1e-12)))
