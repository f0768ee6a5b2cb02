"""Scales of many groups around a common one: partial pooling whose spread is estimated.

    P_g(y) = softmax(exp(a_g) ℓ)_y,   a_g ~ N(0, s²),   s ~ half-Student(3)

ℓ are the log-probabilities of the common map, so a_g = 0 is that map. Everything is integrated, nothing is maximised:
a_g for each s by Gauss–Hermite quadrature around its mode (Liu and Pierce 1994), s on a grid. With few groups s is
hardly known, and its prior counts; a maximum would hide that. The log-likelihood of a group is known at Chebyshev
nodes in a, as the sums of a sketch are, so a sketch of each group is enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev as polynomial
from scipy.special import logsumexp

from attemper._typing import Floats
from attemper.kernels import chebyshev
from attemper.kernels.chebyshev import Interval

RANGE = Interval(-3.0, 3.0)  # of a: a group's temperature is at most 20 times that of the common map, or a 20th
SPREADS: Floats = np.geomspace(0.01, 2.0, 28)  # of s; 0.01 changes no probability that anybody would notice
N_NODES = 25  # of Gauss–Hermite
START = np.linspace(-1, 1, 121)  # of the unit interval, to find a mode from
STEPS, ARRIVED = 40, 1e-9
BLOCK = 1000  # groups at a time
PRIOR_SCALE = 0.2  # √3 times the scale of the Student law


class PooledScales(NamedTuple):
    """Posterior of the scales, one number for each group; and of their spread."""

    mean: Floats  # of a
    std: Floats
    own_share: Floats  # how far it depends on the group's own data: 0 is the common map, 1 its own optimum
    spreads: Floats  # the grid of s
    weights: Floats  # posterior probabilities of the grid
    error: Floats  # bound on the error of the mean that the nodes of the table leave

    @property
    def spread(self) -> float:
        """Posterior mean of s."""
        return float(self.weights @ self.spreads)

    @property
    def spread_interval(self) -> tuple[float, float]:
        """95 % credible interval of s."""
        below = np.cumsum(self.weights) - self.weights / 2
        low, high = np.exp(np.interp([0.025, 0.975], below, np.log(self.spreads)))
        return float(low), float(high)


def spread_prior(spreads: Floats) -> Floats:
    """Prior probabilities of a grid of spreads, even in log s: of a half-Student law with 3 degrees of freedom."""
    density = spreads / (1 + (spreads / PRIOR_SCALE) ** 2) ** 2
    return np.asarray(density / density.sum())


def pool(log_likelihood: Floats, interval: Interval = RANGE, *, spreads: Floats = SPREADS) -> PooledScales:
    """Return the posterior of the scales, by log-likelihoods (nodes × groups) at the Chebyshev nodes of a."""
    c = chebyshev.coefficients(log_likelihood - log_likelihood.max(axis=0))
    blocks = (c[:, first : first + BLOCK] for first in range(0, c.shape[1], BLOCK))
    found = [_given(block, interval, spreads[:, None]) for block in blocks]
    evidence, mean, variance = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
    log_weights = np.log(spread_prior(spreads)) + evidence.sum(axis=1)
    weights = np.exp(log_weights - logsumexp(log_weights))
    overall, within = weights @ mean, weights @ variance
    beyond = chebyshev.tail(c)[0]
    return PooledScales(
        mean=overall,
        std=np.sqrt(within + weights @ (mean - overall) ** 2),
        own_share=np.clip(1 - weights @ (variance / spreads[:, None] ** 2), 0.0, 1.0),
        spreads=spreads,
        weights=weights,
        # A log-likelihood that is off by δ everywhere moves a posterior mean by at most 2 δ standard deviations.
        error=2 * beyond * np.sqrt(within),
    )


def _given(c: Floats, interval: Interval, spread: Floats) -> tuple[Floats, Floats, Floats]:
    """Log-evidence, mean and variance of a, for each s (rows) and group (columns)."""
    mode, width = _modes(c, interval, spread)
    t, w = (values[:, None, None] for values in np.polynomial.hermite.hermgauss(N_NODES))
    a = mode + np.sqrt(2) * width * t
    value = _evaluate(c, interval, a) - 0.5 * (a / spread) ** 2 + (t**2 + np.log(w))
    total = logsumexp(value, axis=0)
    share = np.exp(value - total)
    log_evidence = total + np.log(width / spread) - 0.5 * np.log(np.pi)
    mean = (share * a).sum(axis=0)
    return np.asarray(log_evidence), mean, (share * (a - mean) ** 2).sum(axis=0)


def _modes(c: Floats, interval: Interval, spread: Floats) -> tuple[Floats, Floats]:
    """Mode of each group's posterior, and the standard deviation of the normal law that fits there."""
    half = interval.length / 2
    first, second = (np.asarray(polynomial.chebder(c, m=m, axis=0) / half**m, dtype=np.float64) for m in (1, 2))
    start = interval.low + half * (START + 1)
    value = polynomial.chebvander(START, len(c) - 1) @ c
    a = np.array([start[(value - 0.5 * (start[:, None] / s) ** 2).argmax(axis=0)] for s in spread[:, 0]])
    cell = start[1] - start[0]
    low, high = a - cell, a + cell
    for _ in range(STEPS):
        slope = _evaluate(first, interval, a) - a / spread**2
        bend = np.maximum(1 / spread**2 - _evaluate(second, interval, a), 0.25 / spread**2)
        low, high = np.where(slope > 0, a, low), np.where(slope < 0, a, high)
        new = a + slope / bend
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        done, a = np.abs(new - a).max() <= ARRIVED, new
        if done:
            break
    return a, 1 / np.sqrt(bend)


def _evaluate(c: Floats, interval: Interval, a: Floats) -> Floats:
    """Each group's function at points of its own; beyond the interval as at its end."""
    return np.asarray(polynomial.chebval(interval.unit(a), c, tensor=False))
