"""Isotonic regression: the rising function that fits outcomes best in weighted squares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from attemper._typing import Floats

__all__ = ["Isotonic", "isotonic"]

# Values closer than this are one, as in scikit-learn.
SAME = 1e-15


class Isotonic(NamedTuple):
    """A function that rises, linear between its knots, and constant beyond the outermost."""

    knots: Floats
    values: Floats  # at the knots
    fitted: Floats  # at each sample


def isotonic(x: Floats, positive: NDArray[np.bool_], w: Floats | None) -> Isotonic:
    """Fit the function of ``x`` that rises.

    It is that of scikit-learn's ``IsotonicRegression``: samples with the same ``x`` count as one with their mean, and
    of samples with the same value the first and the last are knots.

    >>> isotonic(np.array([0.3, 0.1, 0.2, 0.4]), np.array([False, False, True, True]), None).values
    array([0. , 0.5, 0.5, 1. ])
    """
    order = np.argsort(x)
    x, outcome = x[order], positive[order].astype(np.float64)
    weight = None if w is None else w[order]
    starts = _distinct(x)
    tied = len(starts) < len(x)
    if tied:
        of_class = np.add.reduceat(outcome if weight is None else outcome * weight, starts)
        count = np.diff(starts, append=len(x))
        weight = count.astype(np.float64) if weight is None else np.add.reduceat(weight, starts)
        x, outcome = x[starts], of_class / weight
    value = np.asarray(isotonic_regression(outcome, weights=weight).x)
    turns = value[1:] != value[:-1]
    knot = np.ones(len(x), dtype=bool)
    knot[1:-1] = turns[1:] | turns[:-1]
    fitted = np.empty(len(order))
    fitted[order] = np.repeat(value, count) if tied else value
    return Isotonic(x[knot], value[knot], fitted)


def _distinct(x: Floats) -> NDArray[np.intp]:
    """Where each distinct value of sorted ``x`` starts: a value is distinct if it is ``SAME`` above the one before."""
    apart = np.flatnonzero(np.diff(x) >= SAME) + 1
    first, last = np.append(0, apart), np.append(apart, len(x))
    wide = x[last - 1] - x[first] >= SAME  # many small steps, as of probabilities that are nearly 0
    if not wide.any():
        return first
    starts = [first[~wide]]
    for a, b in zip(first[wide].tolist(), last[wide].tolist()):
        found, run = [a], x[a:b]
        while run[-1] - x[found[-1]] >= SAME:
            start = a + int(run.searchsorted(x[found[-1]] + SAME))
            while x[start] - x[found[-1]] < SAME:  # the sum above was rounded
                start += 1
            while x[start - 1] - x[found[-1]] >= SAME:
                start -= 1
            found.append(start)
        starts.append(np.array(found, dtype=np.intp))
    return np.sort(np.concatenate(starts))
