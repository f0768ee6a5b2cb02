"""Venn–Abers: isotonic regressions with one more sample, for every place that the sample can have, at once.

V. Vovk, I. Petej, V. Fedorova, Large-scale probabilistic predictors with and without guarantees of validity, 2015. They
walk along the cumulative sum diagram; here all places walk at the same time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from attemper._typing import Floats

__all__ = ["with_one_more_sample"]


def with_one_more_sample(positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
    """Isotonic regression at each distinct score, if a sample of weight 1 is added there: of label 0, and of label 1.

    ``positive`` and ``negative`` are the weights of both labels at the distinct scores, in ascending order. A sample
    between two scores has the value of the lower one with label 0 and of the higher one with label 1, to
    the last digit; below the lowest it has 0 with label 0, above the highest 1 with label 1.
    """
    return 1 - _with_a_positive(negative[::-1], positive[::-1])[::-1], _with_a_positive(positive, negative)


def _with_a_positive(positive: Floats, negative: Floats) -> Floats:
    r"""Isotonic regression at each score i with a positive sample added there.

    It is :math:`\min_{u \ge i} \max_{l \le i}` of the mean of l to u, the new sample included. It lifts the regression
    without it, which consists of blocks: so no l lies before the block of i, and no u within a block. For each u the
    maximum over l is a running one, and as a function of u it falls and then rises: the walk to the next block
    ends where it no longer falls.
    """
    weight = positive + negative
    start = isotonic_regression(positive / weight, weights=weight).blocks[:-1]
    block_of = np.repeat(np.arange(len(start)), np.diff(np.r_[start, len(weight)]))
    before_y, before_w = (np.cumsum(v) - v for v in (positive, weight))
    after_y, after_w = (np.cumsum(np.add.reduceat(v, start)) for v in (positive, weight))
    best = np.full(len(weight), np.inf)
    block = np.arange(len(start))  # of i, those that still walk
    step = 0
    while len(block):
        here = np.flatnonzero(np.isin(block_of, block)) if step else np.arange(len(weight))
        u = block_of[here] + step
        mean = (after_y[u] - before_y[here] + 1) / (after_w[u] - before_w[here] + 1)
        mean = _running_maximum(mean, block_of[here])
        falls = mean < best[here]
        best[here] = np.where(falls, mean, best[here])
        step += 1
        block = np.unique(block_of[here][falls])
        block = block[block + step < len(start)]
    return best


def _running_maximum(values: Floats, group: NDArray[np.intp]) -> Floats:
    """Largest so far within each group of neighbours; values lie between 0 and 1."""
    # What a group adds is rounded off; so it is the place of the maximum that is looked for.
    order = np.lexsort((values, group))
    rank = np.empty(len(values), dtype=np.intp)
    rank[order] = np.arange(len(values))
    return values[order[np.maximum.accumulate(rank)]]
