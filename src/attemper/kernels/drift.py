"""A wager against a map that says how likely labels are, in logarithms and row by row.

For a row of log-probabilities log p and a factor λ let q^λ = softmax(log p / λ): what the map would say if its
temperature were λ times as high. `log_ratios` gives log q^λ(y) − log q^e(y) for a grid of λ outside a band [1/τ, τ],
e being the edge of the band on the side of λ. `advance` multiplies such ratios up from every possible beginning at
once. Why that is a fair wager: docs/drift.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper.kernels.softmax import rest, split

__all__ = ["STEPS", "Wager", "advance", "best_factor", "log_factors", "log_prior", "log_ratios", "log_unspent"]

Floats = NDArray[np.float64]

# Distances of log λ from the edge of the band. The grid loses at most a tenth of the rate at which evidence grows.
STEPS: Floats = 0.04 * 1.7 ** np.arange(8, dtype=np.float64)
SCALE = 100.0  # samples within which a first change is about as likely at any of them


def log_factors(tolerance: float) -> Floats:
    """Return log λ of the alternatives: those above the band, then those below it."""
    above = np.log(tolerance) + STEPS
    return np.concatenate([above, -above])


def log_unspent(t: NDArray[np.int64] | int) -> Floats:
    """Log of the prior probability that no change comes within t samples: 1 / (1 + log(1 + t/100))."""
    return np.asarray(-np.log1p(np.log1p(np.asarray(t) / SCALE)))


def log_prior(first: int, n: int) -> Floats:
    """Log of the prior probability that the change comes just before sample t, for n of them from ``first`` on.

    Differences of what is unspent, without cancellation; so they add up to one.
    """
    t = np.arange(first, first + n)
    return np.asarray(log_unspent(t) + log_unspent(t + 1) + np.log(np.log1p(1 / (t + SCALE))))


def log_ratios(log_p: Floats, y: NDArray[np.int64], tolerance: float) -> Floats:
    """Log-likelihood ratios, one row for each sample, one column for each factor; every label must be possible."""
    rows = split(log_p, masked=bool(np.isneginf(log_p).any()))
    gap = rows.gap(y)
    buffer = np.empty_like(rows.d)

    def log_q(beta: float) -> Floats:
        return np.asarray(beta * gap - np.log1p(rest(rows, beta, buffer)[1]))

    below = log_q(tolerance)
    above = below if tolerance == 1 else log_q(1 / tolerance)
    factors = log_factors(tolerance)
    return np.stack([log_q(float(np.exp(-u))) - (above if u > 0 else below) for u in factors], axis=1)


class Wager(NamedTuple):
    """What is known after t samples, for each factor."""

    t: int
    log_stake: Floats  # log Σ_s w_s Π of the ratios since s: the mixture over all beginnings
    log_best: Floats  # the largest term of that sum
    start: NDArray[np.int64]  # and which it is

    @classmethod
    def new(cls) -> Wager:
        """Nothing is at stake yet."""
        none = np.full(2 * len(STEPS), -np.inf)
        return cls(0, none, none, np.zeros(len(none), dtype=np.int64))


def advance(wager: Wager, ratios: Floats) -> tuple[Wager, Floats]:
    """Take in n more samples; return the state after them, and the log of the wealth after each."""
    n, width = ratios.shape
    total = np.cumsum(ratios, axis=0)
    before = np.concatenate([np.zeros((1, width)), total[:-1]])
    begun = log_prior(wager.t, n)[:, None] - before
    mixed = np.logaddexp.accumulate(np.concatenate([wager.log_stake[None], begun]), axis=0)[1:] + total
    top = mixed.max(axis=1)
    won = top + np.log(np.exp(mixed - top[:, None]).mean(axis=1))  # three times as fast as np.logaddexp.reduce
    wealth = np.logaddexp(won, log_unspent(np.arange(wager.t + 1, wager.t + n + 1)))
    terms = np.concatenate([wager.log_best[None], begun])
    best = terms.argmax(axis=0)
    start = np.where(best == 0, wager.start, wager.t + best - 1)
    return Wager(wager.t + n, mixed[-1], terms.max(axis=0) + total[-1], start), wealth


def best_factor(wager: Wager, tolerance: float) -> float:
    """Return log λ where the stake is largest: the vertex of a parabola through the largest and its neighbours."""
    n = len(STEPS)
    if wager.t == 0:
        return 0.0
    side = slice(0, n) if wager.log_stake.argmax() < n else slice(n, 2 * n)
    # The edge of the band is a neighbour too: a wager on it against itself keeps what was put in.
    u = np.concatenate([[0.0], STEPS])
    f = np.concatenate([[np.log(-np.expm1(log_unspent(wager.t)))], wager.log_stake[side]])
    j = 1 + int(f[1:].argmax())
    at = u[j]
    if j < n:
        left, right = (f[j] - f[j - 1]) / (u[j] - u[j - 1]), (f[j + 1] - f[j]) / (u[j + 1] - u[j])
        bend = (right - left) / (u[j + 1] - u[j - 1])
        if bend < 0:
            at = np.clip((u[j] + u[j - 1]) / 2 - left / (2 * bend), u[j - 1], u[j + 1])
    return float((np.log(tolerance) + at) * (1 if side.start == 0 else -1))
