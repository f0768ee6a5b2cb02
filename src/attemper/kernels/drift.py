"""Bets against "nothing has changed", in logarithms and case by case.

A bet has a factor for each case, with a mean of at most 1 while nothing has changed. `advance` multiplies such
factors up from every possible beginning at once; `log_bets` gives them for conformal p-values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats

BLOCK = 512  # samples whose ranks are counted at once
WIDTH = 16  # bets side by side: half of them on a change upwards
SCALE = 100.0  # samples within which a first change is about as likely at any of them


def log_unspent(t: NDArray[np.int64] | int) -> Floats:
    """Log of the prior probability that no change comes within t samples: 1 / (1 + log(1 + t/100))."""
    return np.asarray(-np.log1p(np.log1p(np.asarray(t) / SCALE)))


def log_prior(first: int, n: int) -> Floats:
    """Log of the prior probability that the change comes just before sample t, for n of them from ``first`` on.

    Differences of what is unspent, without cancellation; so they add up to one.
    """
    t = np.arange(first, first + n)
    return np.asarray(log_unspent(t) + log_unspent(t + 1) + np.log(np.log1p(1 / (t + SCALE))))


def average_by_cluster(values: Floats, clusters: NDArray[np.generic]) -> tuple[Floats, NDArray[np.int64]]:
    """Average over the rows of each cluster; return the means, and the number of the cluster of each row.

    Clusters are in the order of one row of each, drawn at random: that of their first rows would put large clusters
    first, which are not like the others.
    """
    drawn = np.random.Generator(np.random.PCG64(len(clusters))).permutation(len(clusters))
    _, first, inverse, count = np.unique(clusters[drawn], return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(drawn[first])
    rank = np.empty(len(first), dtype=np.int64)
    rank[order] = np.arange(len(first))
    case = np.empty(len(clusters), dtype=np.int64)
    case[drawn] = rank[inverse.ravel()]
    total = np.zeros((len(first), values.shape[1]))
    np.add.at(total, case, values)
    return total / count[order][:, None], case


# Exponents of the power bets ε p^(ε−1), which grow with single surprises, and slopes of the tilts, which grow with
# many small ones. Each is a density on [0, 1].
POWERS: Floats = 1 - np.array([0.1, 0.25, 0.45, 0.65])
TILTS: Floats = np.array([0.2, 0.7, 1.5, 4.0])


def log_bets(p: Floats) -> Floats:
    """Log-densities of bets on p-values, one row for each: half on small ones, half on large ones."""
    p = np.clip(p, 1e-300, 1.0)[:, None]

    def side(q: Floats) -> Floats:
        q = np.maximum(q, 1e-300)
        power = np.log(POWERS) + (POWERS - 1) * np.log(q)
        tilt = np.log(TILTS / -np.expm1(-TILTS)) - TILTS * q
        return np.concatenate([power, tilt], axis=1)

    return np.concatenate([side(p), side(1 - p)], axis=1)


def conformal_p_values(scores: NDArray[np.int64], counts: NDArray[np.int64], u: Floats) -> Floats:
    """Smoothed conformal p-values of samples that come one after the other; a low score is a strange one.

    ``counts[s]`` is how many samples before the first had score s; ``u`` are uniform numbers that break ties. Under
    exchangeability the p-values are independent and uniform.
    """
    found = np.empty(len(scores))
    counts = counts.copy()
    for first in range(0, len(scores), BLOCK):
        s = scores[first : first + BLOCK]
        m = np.arange(len(s))
        below, equal = np.concatenate([[0], np.cumsum(counts)])[s], counts[s]
        earlier = m[None, :] < m[:, None]
        below = below + ((s[None, :] < s[:, None]) & earlier).sum(axis=1)
        equal = equal + ((s[None, :] == s[:, None]) & earlier).sum(axis=1)
        found[first : first + BLOCK] = (below + u[first : first + BLOCK] * (equal + 1)) / (counts.sum() + m + 1)
        counts += np.bincount(s, minlength=len(counts))
    return found


def advance(t: int, log_stake: Floats, ratios: Floats) -> tuple[Floats, Floats]:
    """Take in n more samples after t; return what is at stake after them, and the log of the wealth after each.

    ``log_stake`` is log Σ_s w_s Π of the ratios since s, for each bet: the mixture over all beginnings s ≤ t.
    """
    n = len(ratios)
    total = np.cumsum(ratios, axis=0)
    before = np.concatenate([np.zeros((1, ratios.shape[1])), total[:-1]])
    begun = log_prior(t, n)[:, None] - before
    mixed = np.logaddexp.accumulate(np.concatenate([log_stake[None], begun]), axis=0)[1:] + total
    top = mixed.max(axis=1)
    won = top + np.log(np.exp(mixed - top[:, None]).mean(axis=1))  # three times as fast as np.logaddexp.reduce
    return mixed[-1], np.logaddexp(won, log_unspent(np.arange(t + 1, t + n + 1)))
