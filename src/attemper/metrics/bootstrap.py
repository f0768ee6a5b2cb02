"""Intervals for metrics: in closed form where there is one, else by resampling samples.

A metric is a function of the sample weights. A resample is a set of weights
too (how often each sample was drawn), so the code of the weighted metric serves
for both, a batch of resamples at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from attemper._checks import fraction, whole
from attemper._typing import Floats, Labels
from attemper.metrics.intervals import Estimate, too_few

__all__ = ["Statistic", "enclosed", "estimate", "estimate_all", "student_level"]

# Weights of one batch of resamples, 8 MB: memory stays bounded, and BLAS has something to do.
BATCH_ELEMENTS = 1 << 20

# Fewer cases do not show how far they vary.
LEAST_CLUSTERS = 5

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

    def at(self, weights: Floats) -> float:
        """Return its value for weights N."""
        return float(self.value(weights[:, None])[0])


def estimate(
    statistic: Statistic,
    weights: Floats,
    confidence_level: float,
    n_resamples: int = 1000,
    seed: int = 0,
    clusters: Labels | None = None,
) -> Estimate:
    """Value of a statistic with its interval; see `estimate_all`."""
    return estimate_all({"it": statistic}, weights, confidence_level, n_resamples, seed, clusters)["it"]


def estimate_all(
    statistics: Mapping[str, Statistic],
    weights: Floats,
    confidence_level: float,
    n_resamples: int,
    seed: int,
    clusters: Labels | None = None,
) -> dict[str, Estimate]:
    r"""Value of each statistic, with its interval.

    Means, shares and areas have intervals in closed form (`attemper.metrics.intervals`). Calibration errors are
    resampled: samples are drawn with replacement, N of N, the same draws for every statistic; a sample keeps its
    weight.

    Calibration errors are norms, so noise adds to them: the error :math:`\hat e` is
    too large, and the resampled :math:`e^*` are too large once more. To the *square* of a
    norm noise adds about as much whatever the error is, so squares are corrected: with
    the bias :math:`b = \operatorname{mean}(e^{*2}) - \hat e^2`, the limits are
    the percentiles of :math:`e^{*2} - 2b`, cut at 0, and their roots. The interval is
    widened to hold the value where the correction would leave it outside.

    With ``clusters``, the numbers 0, 1, … of the cases that samples are of, whole cases are drawn, and every interval
    is resampled: closed forms take samples to be independent. The limits of means, shares and areas are percentiles.
    All percentiles are those of a Student distribution, which allows for few cases (Hesterberg 2015). ``chance``
    and ``p_value`` are left out, as labels of one case are not drawn independently.
    """
    fraction("confidence_level", confidence_level)
    whole("n_resamples", n_resamples, at_least=2)
    whole("seed", seed, at_least=0)
    if clusters is not None:
        return _by_cluster(statistics, weights, confidence_level, n_resamples, seed, clusters)
    noisy = {name: s for name, s in statistics.items() if s.limits is None and not s.reason}
    batches = [[s.value(w) for s in noisy.values()] for w in _resamples(weights, n_resamples, seed)] if noisy else []
    resampled = {name: np.concatenate(parts) for name, parts in zip(noisy, zip(*batches))}
    result = {}
    for name, s in statistics.items():
        value = s.at(weights)
        if s.reason:
            found = Estimate.without(value, s.reason)
        elif s.limits is not None:
            found = s.limits(value, weights, confidence_level)
        else:
            found = enclosed(value, resampled[name], confidence_level)
        if s.drawn is not None:
            found = found.with_chance(s.drawn(np.random.default_rng(seed), n_resamples, weights))
        result[name] = found
    return result


def _by_cluster(
    statistics: Mapping[str, Statistic],
    weights: Floats,
    confidence_level: float,
    n_resamples: int,
    seed: int,
    clusters: Labels,
) -> dict[str, Estimate]:
    n = len(np.unique(clusters))
    few = too_few(n, "clusters", LEAST_CLUSTERS)
    noisy = {} if few else {name: s for name, s in statistics.items() if not s.reason}
    batches = [[s.value(w) for s in noisy.values()] for w in _resamples(weights, n_resamples, seed, clusters)]
    resampled = {name: np.concatenate(parts) for name, parts in zip(noisy, zip(*batches))}
    result = {}
    for name, s in statistics.items():
        value = s.at(weights)
        if few or s.reason:
            result[name] = Estimate.without(value, s.reason or few)
            continue
        level = student_level(confidence_level, n)
        if s.limits is None:
            result[name] = enclosed(value, resampled[name], level)
        else:
            low, high = _percentiles(resampled[name], level)
            result[name] = Estimate(value, min(low, value), max(high, value))
    return result


def student_level(confidence_level: float, n: int) -> float:
    """Level whose normal quantile is that of Student's distribution, for the variance of n cases.

    T. C. Hesterberg, What teachers should know about the bootstrap, 2015: percentiles of few cases lie too close.
    """
    wider = math.sqrt(n / (n - 1)) * float(stdtrit(n - 1, (1 + confidence_level) / 2))
    return 2 * float(ndtr(wider)) - 1


def enclosed(value: float, resampled: Floats, confidence_level: float) -> Estimate:
    """Put the interval of the resampled values around a calibration error; see `estimate_all`."""
    squares = resampled**2
    # Noise adds; less than nothing means that resamples missed a small bin.
    bias = max(0.0, float(squares.mean()) - value**2)
    low, high = (math.sqrt(max(0.0, q - 2 * bias)) for q in _percentiles(squares, confidence_level))
    return Estimate(value, min(low, value), max(high, value))


def _resamples(weights: Floats, n_resamples: int, seed: int, clusters: Labels | None = None) -> Iterator[Floats]:
    """Weights of the resamples, N×B, batch by batch; the draws do not depend on the batches."""
    rng = np.random.default_rng(seed)
    n = len(weights) if clusters is None else int(clusters.max()) + 1
    batch = max(1, BATCH_ELEMENTS // len(weights))
    for first in range(0, n_resamples, batch):
        drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(min(batch, n_resamples - first))]
        counts = np.stack(drawn, axis=1)
        yield np.multiply(counts if clusters is None else counts[clusters], weights[:, None], order="C")


def _percentiles(values: Floats, confidence_level: float) -> tuple[float, float]:
    """Order statistics, not interpolated: values can be infinite."""
    tail = (1 - confidence_level) / 2 * (len(values) - 1)
    ordered = np.sort(values)
    return float(ordered[math.floor(tail)]), float(ordered[-1 - math.floor(tail)])
