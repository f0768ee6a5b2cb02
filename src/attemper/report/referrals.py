"""Which cases are referred at every position of the threshold slider: errors caught and missed, by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.metrics.predictions import Predictions

__all__ = ["LEAST_ERRORS", "THRESHOLDS", "counts", "first_threshold", "n_errors", "scale_of", "whole_curve"]

THRESHOLDS = np.arange(101) / 100
QUANTILES = 100  # of each set of confidences
DIGITS = 4
POINTS = 201  # of a curve, at even shares of the errors and of the right predictions
# Fewer validation errors suggest no threshold: of 20, the share that it refers has a standard error of 9 points.
LEAST_ERRORS = 20


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
    p: Predictions, w: Floats, group: NDArray[np.intp], n_groups: int, thresholds: Floats = THRESHOLDS
) -> dict[str, Any]:
    """Weight of the right and of the wrong predictions with confidence up to each threshold.

    A list for all samples, then one for each group of true classes. ``curve`` does not depend on the thresholds.
    """
    # c ≤ t is decided by comparing, as in `referral_curve`; the last place is beyond all thresholds, and stays empty.
    place = np.searchsorted(thresholds, p.confidence, side="left")
    size = len(thresholds) + 1
    result: dict[str, Any] = {"curve": whole_curve(p, w)}
    for name, rows in (("right", p.right), ("wrong", ~p.right)):
        by = np.bincount(group * size + place, w * rows, minlength=n_groups * size).reshape(n_groups, size)
        reached = by[:, :-1].cumsum(axis=1)
        result[name] = [_plain(row) for row in (reached.sum(axis=0), *reached)]
    return result


def whole_curve(p: Predictions, w: Floats) -> list[list[float]]:
    """Return shares of right predictions decided and of errors referred, as samples are referred one after the other.

    Thresholds may lie far from the confidences of a method, or all below them. Methods that rank the samples alike have
    the same curve, which only their order decides. Of many samples some points are left out.
    """
    rank = p.rank
    sums = [np.concatenate([[0.0], np.bincount(rank, w * rows).cumsum()]) for rows in (p.right, ~p.right)]
    even = np.linspace(0, 1, POINTS)
    at = [np.searchsorted(one, even * one[-1] * (1 - 1e-12)) for one in sums]
    places = np.unique(np.concatenate([*at, [0, len(sums[0]) - 1]]))
    decided, referred = (one / one[-1] if one[-1] > 0 else np.zeros(len(one)) for one in sums)
    points: list[list[float]] = np.stack([1 - decided, referred], axis=1)[places].round(6).tolist()
    return points


def first_threshold(p: Predictions, w: Floats, catch: float, thresholds: Floats = THRESHOLDS) -> int | None:
    """Place of the lowest threshold that refers this share of the errors; None where there are too few errors."""
    errors = w * ~p.right
    if n_errors(p) < LEAST_ERRORS or not errors.any():
        return None
    place = np.searchsorted(thresholds, p.confidence, side="left")
    caught = np.bincount(place, errors, minlength=len(thresholds) + 1)[:-1].cumsum()
    return int(np.argmax(caught >= catch * errors.sum() * (1 - 1e-12)))


def n_errors(p: Predictions) -> int:
    """Count the predictions that are wrong."""
    return int((~p.right).sum())


def _plain(values: Floats) -> list[float]:
    """Whole numbers without a point: they are many."""
    return [int(v) if float(v).is_integer() else float(v) for v in values]
