"""Who is referred at every position of the threshold slider: errors caught, errors that slip through, by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import Floats
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import Statistic
from attemper.metrics.referral import Answers, referral_area_of
from attemper.report.methods import Said, resampled

__all__ = ["THRESHOLDS", "area", "counts", "first_threshold", "scale_of"]

THRESHOLDS = np.arange(101) / 100
QUANTILES = 100  # of each confidence that `scale_of` is told
DIGITS = 4


def scale_of(*confidences: Floats) -> Floats:
    """Thresholds of the slider: even ones, and quantiles of each of these confidences, so that some lie between them.

    >>> t = scale_of(np.array([0.9991, 0.9992, 0.9993]))
    >>> t[-5:].tolist(), 0.5 in t
    ([0.99, 0.9991, 0.9992, 0.9993, 1.0], True)
    """
    even = np.linspace(0, 1, QUANTILES)
    # Quantiles that are there, not between two, so that few distinct confidences give few thresholds.
    between = [np.quantile(one, even, method="higher").round(DIGITS) for one in confidences]
    return np.unique(np.concatenate([THRESHOLDS, *between]).clip(0, 1))


def counts(
    one: Said, w: Floats, group: NDArray[np.intp], n_groups: int, thresholds: Floats = THRESHOLDS
) -> dict[str, Any]:
    """Weight of the right and of the wrong answers with confidence up to each threshold.

    A list for all samples, then one for each group of true classes.
    """
    # c ≤ t is decided by comparing, as in `referral_curve`; the last place is beyond all thresholds, and stays empty.
    place = np.searchsorted(thresholds, one.confidence, side="left")
    size = len(thresholds) + 1
    result = {}
    for name, rows in (("right", one.right), ("wrong", ~one.right)):
        by = np.bincount(group * size + place, w * rows, minlength=n_groups * size).reshape(n_groups, size)
        reached = by[:, :-1].cumsum(axis=1)
        result[name] = [_plain(row) for row in (reached.sum(axis=0), *reached)]
    return result


def first_threshold(one: Said, w: Floats, catch: float, thresholds: Floats = THRESHOLDS) -> int | None:
    """Place of the lowest threshold that refers this share of the errors; None where there is no error."""
    errors = w * ~one.right
    if not errors.any():
        return None
    place = np.searchsorted(thresholds, one.confidence, side="left")
    caught = np.bincount(place, errors, minlength=len(thresholds) + 1)[:-1].cumsum()
    return int(np.argmax(caught >= catch * errors.sum() * (1 - 1e-12)))


def area(one: Said, w: Floats, interval: float, seed: int) -> Estimate | None:
    """Area under the referral curve over all thresholds; None where all answers are right, or all are wrong."""
    right = one.right[w > 0]
    if right.all() or not right.any():
        return None

    def statistics(rows: NDArray[np.intp]) -> dict[str, Statistic]:
        rank = np.unique(one.log_confidence[rows], return_inverse=True)[1]
        return {"area": referral_area_of(Answers(one.confidence[rows], rank, one.right[rows], w[rows]))}

    return resampled(statistics, w, interval, seed)["area"]


def _plain(values: Floats) -> list[float]:
    """Whole numbers without a point: they are many."""
    return [int(v) if float(v).is_integer() else float(v) for v in values]
