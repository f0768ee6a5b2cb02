r"""The one rule of intervals.

A metric is a function of the sample weights. One that has an influence function, the derivative of its value in the
weight of a sample, sums it within cases (a row alone is a case of one): the sums are independent, and give a standard
error and a skewness. Others draw whole cases again and again; a resample is a set of weights too.

A weight of 2 is the sample twice, in the same case: the value is that of repeated rows, and the interval counts the
case once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri, stdtrit

from attemper._result import Estimate
from attemper._typing import Floats, Labels
from attemper.kernels.clusters import case_numbers
from attemper.metrics.predictions import Predictions

N_RESAMPLES = 1000
BATCH_ELEMENTS = 1 << 20  # weights of one batch of resamples, 8 MB
# Below, the losses of the few errors that were drawn decide everything, and no interval covers as often as it should.
LEAST_ERRORS = 20
LEAST_CLUSTERS = 5  # fewer cases do not show how far they vary
MOST_GAIN = 4  # times the cases: where confidence separates right from wrong, their difference hardly varies
NO_SPREAD = "no interval: the samples do not differ"


@dataclass(frozen=True)
class Spread:
    """How far a value varies: its standard error and skewness, from sums of influences within cases."""

    error: float
    skewness: float
    n_cases: float  # effective number (Kish)
    n_rows: float  # the same of rows, as if each were a case

    @classmethod
    def of(cls, influence: Floats, weights: Floats, case: Labels | None) -> Spread:
        """Sum the influences, of mean 0 or made so, within cases."""
        a = weights / weights.sum()
        sums, share = a * (influence - a @ influence), a
        if case is not None:
            sums, share = np.bincount(case, sums), np.bincount(case, a)
        m, variance = effective(share), float(sums @ sums)
        if m <= 1 + 1e-9 or variance <= (1e-14 * np.abs(influence).max()) ** 2 / len(a):
            return cls(0.0, 0.0, m, effective(a))  # of samples that do not differ rounding is left
        skewness = float(np.sum(sums**3)) / variance**1.5
        return cls(math.sqrt(variance * m / (m - 1)), skewness, m, effective(a))

    def quantile(self, level: float) -> float:
        """How many standard errors to each side an interval reaches: Student's quantile, which allows for few cases."""
        return float(stdtrit(max(self.n_cases - 1, 1.0), (1 + level) / 2))


@dataclass(frozen=True)
class Statistic:
    """A metric of fixed predictions, as a function of the sample weights."""

    value: Callable[[Floats], Floats]  # from weights, N×B, one column for each resample, to B values
    influence: Callable[[Floats], Floats] | None = None  # from weights N to the influence of each sample
    around: Callable[[float, Spread, float], Estimate] | None = None  # interval by influence; None: `around_mean`
    drawn: Callable[[np.random.Generator, int, Floats], Floats] | None = None  # values if it were calibrated
    reason: str = ""  # why it has no interval
    power: float = 2.0  # of a norm, to which noise adds about as much whatever the norm is

    def at(self, weights: Floats) -> float:
        """Return its value for weights N."""
        return float(self.value(weights[:, None])[0])


def value_of(of: Callable[..., Statistic], labels: Any, probs: Any, *given: Any, **options: Any) -> float:
    """Return the value of a metric: check the predictions, and take their own weights."""
    p = Predictions.of(labels, probs, *given)
    return of(p, **options).at(p.weights)


def batches(count: int, n: int) -> Iterator[int]:
    """Cut draws of n numbers each into batches that memory holds."""
    batch = max(1, BATCH_ELEMENTS // n)
    return (min(batch, count - first) for first in range(0, count, batch))


def effective(weights: Floats) -> float:
    """How many samples of equal weight are worth as much (Kish); their number where weights are equal.

    >>> effective(np.ones(5)), effective(np.array([2.0, 1.0, 1.0]))
    (5.0, 2.6666666666666665)
    """
    return float(weights.sum() ** 2 / (weights @ weights)) if len(weights) else 0.0


def too_few(count: float, least: int = LEAST_ERRORS) -> bool:
    """Whether there are fewer, errors by default, than an interval needs."""
    return count < least - 1e-9


def no_interval(count: float, what: str, least: int = LEAST_ERRORS) -> str:
    """Give the reason for no interval; empty where there are enough."""
    return (
        f"too few {what} for an interval: {int(count + 1e-9)}, and {least} are needed" if too_few(count, least) else ""
    )


def few_errors(p: Predictions) -> str:
    """Give the reason for no interval; empty where there are enough errors."""
    return no_interval(p.errors, "errors" if p.clusters is None else "clusters with errors")


def mean_of(losses: Floats, reason: str = "") -> Statistic:
    """Mean of the losses as a function of the weights; ``reason``: why it has no interval."""
    infinite = np.isinf(losses)
    finite = np.where(infinite, 0.0, losses)

    def value(w: Floats) -> Floats:
        mean: Floats = finite @ w / w.sum(axis=0)
        # Not 0 · inf, which is NaN: a sample that was not drawn does not count.
        return np.where(w[infinite].any(axis=0), np.inf, mean)

    if infinite.any():
        reason = "no interval for an infinite mean: a label has probability 0"
    return Statistic(value, lambda w: finite, reason=reason)


def around_mean(value: float, spread: Spread, level: float) -> Estimate:
    """Put an interval around a mean, or what acts as one; losses are skewed, and `skewed` allows for that."""
    if spread.error == 0:
        return Estimate(value, note=NO_SPREAD)
    return skewed(value, spread.error, spread.skewness, spread.quantile(level))


def skewed(value: float, error: float, skewness: float, z: float) -> Estimate:
    """Put an interval around a value with this standard error, and this skewness of its own.

    P. Hall, On the removal of skewness by transformation, 1992: a monotone cubic of the Student statistic is nearly
    normal.
    """

    def student(u: float) -> float:
        if abs(skewness) < 1e-6:
            return u
        return 3 / skewness * (float(np.cbrt(1 + skewness * (u - skewness / 6))) - 1)

    return _holding(value, value - error * student(z), value - error * student(-z))


def around_share(value: float, spread: Spread, level: float) -> Estimate:
    """Put Wilson's interval around a share, for as many independent samples as its variance is worth."""
    return _holding(value, *map(float, wilson(value, worth(value, spread, level), level)))


def share_of(
    held: NDArray[np.bool_], rows: NDArray[np.bool_], weights: Floats, case: Labels | None, level: float
) -> Estimate | None:
    """Return which share of some rows has a property, with its interval by case; None where there are none."""
    if not rows.any():
        return None
    values, w = held[rows].astype(np.float64), weights[rows]
    spread = Spread.of(values, w, None if case is None else case_numbers(case[rows]))
    return around_share(float(w @ values / w.sum()), spread, level)


def worth(share: float, spread: Spread, level: float) -> float:
    """Return how many independent samples have a share that varies as much (Korn and Graubard 1998).

    Without errors, or without right predictions, a case counts as one sample.
    """
    if spread.n_cases <= 1 + 1e-9:
        return spread.n_cases
    n = spread.n_cases
    if 1e-12 < share < 1 - 1e-12 and spread.error > 0:  # what is nearer is a rounding
        variance = spread.error**2 * (spread.n_cases - 1) / spread.n_cases
        n = min(share * (1 - share) / variance, MOST_GAIN * spread.n_cases)
    few = Spread(0, 0, spread.n_rows, 0).quantile(level) / spread.quantile(level)  # 1 without clusters
    return n * few**2


def wilson(share: Any, n: Any, level: float) -> tuple[Floats, Floats]:
    """Wilson intervals of shares of n samples; NaN where n is.

    >>> [round(float(end), 3) for end in wilson(0.59, 100, 0.95)]
    [0.492, 0.681]
    """
    z = float(ndtri((1 + level) / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def around_area(value: float, spread: Spread, level: float) -> Estimate:
    """Put an interval around an area between 0 and 1, normal on the scale of log-odds, so that limits stay inside."""
    if not 0 < value < 1:
        return Estimate(value, note="no interval for an area of 0 or 1")
    if spread.error == 0:
        return Estimate(value, note=NO_SPREAD)
    half = spread.quantile(level) * spread.error / (value * (1 - value))
    return Estimate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def _holding(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, min(low, value), max(high, value))


def estimate(statistic: Statistic, weights: Floats, level: float | None, case: Any = None, seed: int = 0) -> Estimate:
    """Value of a statistic with its interval; see `estimate_all`."""
    return estimate_all({"it": statistic}, weights, level, case, seed)["it"]


def estimate_all(
    statistics: Mapping[str, Statistic], weights: Floats, level: float | None, case: Labels | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """Value of each statistic with its interval; without a level alone."""
    values = {name: s.at(weights) for name, s in statistics.items()}
    if level is None:
        return {name: Estimate(value) for name, value in values.items()}
    n_cases = len(weights) if case is None else len(np.unique(case))
    few = "" if case is None else no_interval(n_cases, "clusters", LEAST_CLUSTERS)
    drawn = {name: s for name, s in statistics.items() if s.influence is None and not (s.reason or few)}
    resampled = _resampled(drawn, weights, case, seed) if drawn else {}
    found = {}
    for name, s in statistics.items():
        if s.reason or few:
            found[name] = Estimate(values[name], note=s.reason or few)
        elif s.influence is not None:
            spread = Spread.of(s.influence(weights), weights, case)
            found[name] = (s.around or around_mean)(values[name], spread, level)
        else:
            wider = level if case is None else _student_level(level, n_cases)
            found[name] = enclosed(values[name], resampled[name], wider, s.power)
        if s.drawn is not None and not few:
            chance = s.drawn(np.random.default_rng(seed), N_RESAMPLES, weights)
            reach = int((chance >= values[name] * (1 - 1e-12)).sum())
            found[name] = replace(found[name], chance=float(chance.mean()), p=(1 + reach) / (1 + N_RESAMPLES))
    return found


def enclosed(value: float, resampled: Floats, level: float, power: float = 2.0) -> Estimate:
    r"""Put the interval of the resampled values around a calibration error.

    Calibration errors are norms, so noise adds to them: the error :math:`\hat e` is too large, and the resampled
    :math:`e^*` are too large once more. To the *square* of a norm noise adds about as much whatever the error is, so
    squares are corrected: with the bias :math:`b = \operatorname{mean}(e^{*2}) - \hat e^2`, the limits are the
    percentiles of :math:`e^{*2} - 2b`, cut at 0, and their roots. The interval is widened to hold the value.
    """
    squares = np.sort(resampled**power)
    bias = max(0.0, float(squares.mean()) - value**power)  # less than nothing means that resamples missed a small bin
    tail = math.floor((1 - level) / 2 * (len(squares) - 1))
    ends = (max(0.0, float(q) - 2 * bias) ** (1 / power) for q in (squares[tail], squares[-1 - tail]))
    return _holding(value, *ends)


def _student_level(level: float, n: int) -> float:
    """Level whose normal quantile is Student's, for the variance of n cases (T. C. Hesterberg 2015)."""
    return 2 * float(ndtr(math.sqrt(n / (n - 1)) * float(stdtrit(n - 1, (1 + level) / 2)))) - 1


def _resampled(statistics: Mapping[str, Statistic], weights: Floats, case: Any, seed: int) -> dict[str, Floats]:
    """Values of each statistic with cases drawn with replacement; the same draws for all, whatever the batches."""
    rng, parts = np.random.default_rng(seed), []
    n = len(weights) if case is None else int(case.max()) + 1
    for size in batches(N_RESAMPLES, len(weights)):
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)], axis=1)
        w = np.multiply(counts if case is None else counts[case], weights[:, None], order="C")
        parts.append([s.value(w) for s in statistics.values()])
    return {name: np.concatenate(values) for name, values in zip(statistics, zip(*parts))}
