"""Intervals for metrics: in closed form where there is one, else by resampling samples.

A metric is a function of the sample weights. A resample is a set of weights
too (how often each sample was drawn), so the code of the weighted metric serves
for both, a batch of resamples at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from attemper.arrays import Floats
from attemper.errors import InputError, setting
from attemper.metrics.intervals import Estimate

__all__ = ["Statistic", "check_level", "check_resampling", "enclosed", "estimate", "estimate_all"]

# Weights of one batch of resamples, 8 MB: memory stays bounded, and BLAS has something to do.
BATCH_ELEMENTS = 1 << 20

# From weights, N×B, one column for each resample, to B values.
Weighted = Callable[[Floats], Floats]


# From a generator, a number of draws and weights, N, to as many values, with labels drawn from the predictions.
Drawn = Callable[[np.random.Generator, int, Floats], Floats]
# From the value, weights, N, and a level to the value with its interval.
Limits = Callable[[float, Floats, float], Estimate]


class Statistic(NamedTuple):
    """A metric of fixed predictions, as a function of the sample weights."""

    value: Weighted
    limits: Limits | None = None  # its interval in closed form; None: resampled, as an error that noise can only raise
    reason: str = ""  # why it has no interval
    drawn: Drawn | None = None  # its values if the predictions were calibrated


def estimate(
    statistic: Statistic, weights: Floats, interval: float | None, n_resamples: int, seed: int
) -> float | Estimate:
    """Value of a statistic, with its interval where one is wanted; see `estimate_all`."""
    return estimate_all({"it": statistic}, weights, interval, n_resamples, seed)["it"]


def estimate_all(
    statistics: Mapping[str, Statistic],
    weights: Floats,
    interval: float | None,
    n_resamples: int,
    seed: int,
) -> dict[str, float | Estimate]:
    r"""Value of each statistic, with its interval where one is wanted.

    Means, shares and areas have intervals in closed form (`attemper.metrics.intervals`). Calibration errors are
    resampled: samples are drawn with replacement, N of N, the same draws for every statistic; a sample keeps its
    weight.

    Calibration errors are norms, so noise adds to them: the error :math:`\hat e` is
    too large, and the resampled :math:`e^*` are too large once more. To the *square* of a
    norm noise adds about as much whatever the error is, so squares are corrected: with
    the bias :math:`b = \operatorname{mean}(e^{*2}) - \hat e^2`, the limits are
    the percentiles of :math:`e^{*2} - 2b`, cut at 0, and their roots. The interval is
    widened to hold the value where the correction would leave it outside.
    """
    if interval is not None:
        check_level(interval)
        check_resampling(n_resamples, seed)
    points = {name: float(s.value(weights[:, None])[0]) for name, s in statistics.items()}
    if interval is None:
        return dict(points)
    noisy = {name: s for name, s in statistics.items() if s.limits is None and not s.reason}
    batches = [[s.value(w) for s in noisy.values()] for w in _resamples(weights, n_resamples, seed)] if noisy else []
    resampled = {name: np.concatenate(parts) for name, parts in zip(noisy, zip(*batches))}
    result: dict[str, float | Estimate] = {}
    for name, s in statistics.items():
        if s.reason:
            found = Estimate.without(points[name], s.reason)
        elif s.limits is not None:
            found = s.limits(points[name], weights, interval)
        else:
            found = enclosed(points[name], resampled[name], interval)
        if s.drawn is not None:
            found = found.with_chance(s.drawn(np.random.default_rng(seed), n_resamples, weights))
        result[name] = found
    return result


def enclosed(value: float, resampled: Floats, interval: float) -> Estimate:
    """Put the interval of the resampled values around a calibration error; see `estimate_all`."""
    squares = resampled**2
    # Noise adds; less than nothing means that resamples missed a small bin.
    bias = max(0.0, float(squares.mean()) - value**2)
    low, high = (math.sqrt(max(0.0, q - 2 * bias)) for q in _percentiles(squares, interval))
    return Estimate(value, min(low, value), max(high, value))


def check_level(interval: float) -> None:
    """Reject what is no level of an interval."""
    if not (isinstance(interval, Real) and 0 < interval < 1):
        raise InputError(f"{setting('interval', interval)}: must lie between 0 and 1, such as 0.95")


def check_resampling(n_resamples: int, seed: int) -> None:
    """Reject what is no number of resamples, and no seed."""
    if not (isinstance(n_resamples, Integral) and n_resamples >= 2):
        raise InputError(f"n_resamples={n_resamples!r}: must be a whole number of at least 2")
    if not (isinstance(seed, Integral) and seed >= 0):
        raise InputError(f"{setting('seed', seed)}: must be a whole number, not negative")


def _resamples(weights: Floats, n_resamples: int, seed: int) -> Iterator[Floats]:
    """Weights of the resamples, N×B, batch by batch; the draws do not depend on the batches."""
    rng = np.random.default_rng(seed)
    n = len(weights)
    batch = max(1, BATCH_ELEMENTS // n)
    for first in range(0, n_resamples, batch):
        counts = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(min(batch, n_resamples - first))]
        yield np.multiply(np.stack(counts, axis=1), weights[:, None], order="C")


def _percentiles(values: Floats, interval: float) -> tuple[float, float]:
    """Order statistics, not interpolated: values can be infinite."""
    tail = (1 - interval) / 2 * (len(values) - 1)
    ordered = np.sort(values)
    return float(ordered[math.floor(tail)]), float(ordered[-1 - math.floor(tail)])
