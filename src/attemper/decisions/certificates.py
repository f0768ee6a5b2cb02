"""Thresholds below which the risk stays with a stated confidence, whatever the distribution.

Counts alone are used: k errors among m samples are evidence against a risk above α when that few are unlikely,
P(Bin(m, α) ≤ k) ≤ δ. It is equivalent that the Clopper–Pearson upper bound is at most α.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from attemper._typing import Floats

# The first test lets three errors pass, as long as a third of the samples is enough for that: one wrong answer among
# the most confident does not end the walk, and risks are still tested where they are low.
ERRORS_AT_FIRST = 3
# It also takes this share of the samples. A test of few samples fails often even where the risk is well below the
# bound, and a larger validation set would not help if the first test always had the same size.
SHARE_AT_FIRST = 0.1
# A fine grid gains little. Each of these is one more error allowed, or several where there are more samples.
MOST_RANKS = 200


class Certificate(NamedTuple):
    """A threshold; where none is certified it is 1, and everybody is referred."""

    threshold: float
    reached: bool


NONE = Certificate(1.0, False)


def samples_needed(alpha: float, delta: float) -> int:
    """Right predictions in a row after which a risk above ``alpha`` is unlikely.

    >>> samples_needed(0.05, 0.05)
    59
    """
    n = max(1, math.floor(math.log(delta) / math.log1p(-alpha)) - 1)  # rounding may be off by one
    while bdtr(0, n, alpha) > delta:
        n += 1
    return n


def most_errors(n: int, alpha: float, delta: float) -> int:
    """Largest number of errors among n that is still evidence against a risk above ``alpha``; −1 where none does.

    >>> [most_errors(n, 0.05, 0.05) for n in (58, 59, 92, 93)]
    [-1, 0, 0, 1]
    """
    low, high = -1, n  # bdtr(n, n, α) = 1
    while high - low > 1:
        k = (low + high) // 2
        low, high = (k, high) if bdtr(k, n, alpha) <= delta else (low, k)
    return low


@lru_cache(maxsize=64)
def ranks_to_test(n: int, alpha: float, delta: float) -> NDArray[np.int64]:
    """Numbers of samples, most confident first, at which one more error becomes allowed, and n; in ascending order.

    The first is n/10 or more. They depend on n, α and δ alone, never on what the samples are. Empty where n are too
    few.
    """
    k_max = most_errors(n, alpha, delta)
    if k_max < 0:
        return np.empty(0, dtype=np.int64)
    errors = np.unique(np.linspace(0, k_max, min(k_max + 1, MOST_RANKS)).round())
    errors = np.union1d(errors, np.arange(min(k_max, ERRORS_AT_FIRST) + 1))
    low, high = errors, np.full(len(errors), float(n))  # bdtr(low) > δ ≥ bdtr(high)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        enough = bdtr(errors, middle.astype(np.int64), alpha) <= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # Once they have met, the halves lie on `low`, which is not enough, and nothing moves.
    first = np.flatnonzero((errors <= ERRORS_AT_FIRST) & (high <= n / 3))
    ranks = high[first[-1] if first.size else 0 :]
    return np.union1d(ranks[ranks >= SHARE_AT_FIRST * n].astype(np.int64), [n])


def start_of(confidence: Floats, counts: Floats, n: int, alpha: float, delta: float) -> float:
    """Confidence at which to start a walk over n other samples, such that about the first of `ranks_to_test` reach it.

    One standard error is added, since too few would end the walk at once. 0 where n are too few.
    """
    ranks = ranks_to_test(n, alpha, delta)
    if ranks.size == 0:
        return 0.0
    share, total = ranks[0] / n, counts.sum()
    value, reached, _ = _from_the_top(confidence, np.zeros(len(confidence), dtype=bool), counts)
    wanted = share * total + np.sqrt(share * (1 - share) * total)
    return float(value[min(int(np.searchsorted(reached, wanted)), len(value) - 1)])


def certify_decided(
    confidence: Floats,
    wrong: NDArray[np.bool_],
    counts: Floats,
    alpha: float,
    delta: float,
    *,
    start: float | None = None,
) -> Certificate:
    """Lowest threshold for which the error rate of the decided is certified; fixed-sequence testing.

    Walk from strict to lax and stop at the first threshold that fails. All before it hold at once with a confidence of
    1 − δ, since the first bad one must have passed a test of level δ. The risk need not be monotone.

    With ``start``, a confidence fixed without these samples (`start_of` others), the first test decides all that reach
    it, and each distinct confidence below it is a further test: valid for any distribution. Without, thresholds lie at
    fixed ranks of the same samples: valid where confidences are not tied.
    """
    n = int(counts.sum())
    value, decided, errors = _from_the_top(confidence, wrong, counts)
    needed = samples_needed(alpha, delta)
    if start is None:
        # At rank m the threshold is the confidence of sample m + 1; what is tied with that is referred too.
        ends = np.unique(np.searchsorted(decided, ranks_to_test(n, alpha, delta), side="right"))
        ends = ends[ends > 0]
        ends = ends[decided[ends - 1] >= needed]  # fewer could not pass, whatever their labels
    else:
        first = int((value >= start).sum())
        reached = int(decided[first - 1]) if first else 0
        if reached < needed:
            return NONE
        ends = np.arange(first, len(value) + 1)
    if n < needed or ends.size == 0:
        return NONE
    passes = bdtr(errors[ends - 1], decided[ends - 1].astype(np.int64), alpha) <= delta
    n_passed = len(ends) if passes.all() else int(passes.argmin())
    if n_passed == 0:
        return NONE
    end = ends[n_passed - 1]
    return Certificate(float(value[end]) if end < len(value) else 0.0, True)


def certify_all(
    confidence: Floats, wrong: NDArray[np.bool_], counts: Floats, alpha: float, delta: float
) -> Certificate:
    """Lowest threshold for which the share of *all* samples that is decided wrongly is certified.

    That share can only rise as the threshold falls, so every threshold can be tried (Bates et al. 2021). Where the most
    confident are wrong already, they are referred, and what is more confident is decided.
    """
    n = int(counts.sum())
    allowed = most_errors(n, alpha, delta)
    if allowed < 0:
        return NONE
    value, _, errors = _from_the_top(confidence, wrong, counts)
    end = int(np.searchsorted(errors, allowed, side="right"))  # groups until there is one error too many
    if end == 0 and value[0] >= 1:
        return NONE
    return Certificate(float(value[end]) if end < len(value) else 0.0, True)


def _from_the_top(confidence: Floats, wrong: NDArray[np.bool_], counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Distinct confidences, falling; how many are at least as confident, and how many of those are wrong."""
    value, group = np.unique(-confidence, return_inverse=True)
    decided = np.bincount(group, counts).cumsum()
    return -value, decided, np.bincount(group, counts * wrong, minlength=len(value)).cumsum()
