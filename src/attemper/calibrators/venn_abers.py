"""Venn–Abers predictors: isotonic regression that allows for the label it does not know, as an interval.

Vovk, Petej and Fedorova (2015) walk along the cumulative sum diagram; here all places that the new sample can have walk
at the same time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from attemper._typing import Floats
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.calibrators.one_vs_rest import TIE, Problem, Tally, problems, softmax
from attemper.data.arrays import row_slices
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.maps import Knots, Map

# A score this near to a validation score, in its logit, counts as equal to it: logits in single precision are rounded.
SAME_LOGIT = 2.0**-20

Steps = tuple[Floats, Floats, Floats]  # knots of one class, and both ends of the interval from there on


class VennAbers(Calibrator):
    r"""Venn–Abers prediction: an interval for each class's probability, and one probability from it.

    The sample to be predicted is added to the validation samples once with either label. Isotonic regression then gives
    it :math:`p_0` with label 0 and :math:`p_1` with label 1. One of the two is calibrated, whatever
    the law of the data, as long as samples are exchangeable; so the interval :math:`[p_0, p_1]` shows
    how well the validation samples fix the probability. `predict_interval` returns it. `predict_proba` returns
    :math:`p_1 / (1 - p_0 + p_1)`, which has the least regret in log-loss, and is never 0 or 1.

    With two classes there is one regression, of class 1. With more, each class has one against the rest, and
    the rows of `predict_proba` are normalised (intervals are not). A class that is rare among few samples then gets too
    much: its probability is never below about 1/(n + 2). The arg max may change. Scores whose logits differ by less
    than 1e-6 count as equal. A weight of 2 counts as the row twice; the added sample has weight 1.

    Attributes
    ----------
    lower_, upper_ : arrays
        p₀ and p₁ from each knot of the map on.

    References
    ----------
    V. Vovk, I. Petej, Venn–Abers predictors, 2014. https://arxiv.org/abs/1211.0025
    V. Vovk, I. Petej, V. Fedorova, Large-scale probabilistic predictors with and without guarantees of validity, 2015.
    https://arxiv.org/abs/1511.00213

    Examples
    --------
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> fitted = VennAbers(input="probs").fit(p, [0, 1, 0, 1, 1, 1])
    >>> low, high = fitted.predict_interval([0.75])
    >>> low[:, 1].round(3), high[:, 1].round(3), fitted.predict_risk([0.75]).round(3)
    (array([0.5]), array([1.]), array([0.667]))
    """

    method = "venn_abers"
    value_types: ClassVar[dict[str, Any]] = {"lower": Floats, "upper": Floats}
    title = "Venn–Abers"

    def _fit(self, scores: Scores) -> Fit:
        parts = [_steps(problem) for problem in problems(scores, softmax)]
        knots, lower, upper = (np.concatenate(v) for v in zip(*parts))
        merged = upper / (1 - lower + upper)  # the least regret in log-loss (Vovk, Petej 2014)
        fitted = Map((Knots(np.array([len(x) for x, _, _ in parts]), knots, merged, False),))
        return Fit(fitted, Report.of(fitted, scores, error=0.0), {"lower": lower, "upper": upper})

    def predict_interval(self, X: Any) -> tuple[Floats, Floats]:
        """Return both ends of the interval of each class's probability, N×K each, as NumPy arrays.

        A wide one means that few validation samples had such a score. A class that is masked has [0, 0].
        """
        self._check_fitted()
        knots = self.map_.stages[0]
        if len(self.map_.stages) > 1 or not isinstance(knots, Knots):
            raise InputError("X: intervals are those of the class priors of the fit, and this map has others", "X")
        scores = Scores.of(self._array_of(X), input=self.map_.input, zeros_as=self.map_.zeros_as, axis=self._axis(None))
        if scores.n_classes != self.n_features_in_:
            raise InputError(f"X: expected {self.n_features_in_} columns, got {scores.n_classes}", "X")
        ends = [replace(knots, values=np.asarray(values)) for values in (self.lower_, self.upper_)]
        low, high = np.empty(scores.shape), np.empty(scores.shape)
        for rows in row_slices(*scores.shape):
            h = scores._h(rows).astype(np.float64, copy=False)
            found = [end.unnormalised(h, end.arrays(), np) for end in ends]
            possible = h > -np.inf
            alone = possible & (possible.sum(axis=1, keepdims=True) == 1)  # has 1, whatever its functions are
            found = [np.where(alone, 1.0, q) for q in found]
            low[rows], high[rows] = np.minimum(*found), np.maximum(*found)  # class 0 of two has 1 − p₁ and 1 − p₀
        return low, high


def _steps(problem: Problem) -> Steps:
    """Both ends of the interval of one class, as step functions of its probability."""
    if len(problem.x) == 0:
        return np.zeros(1), np.zeros(1), np.ones(1)
    tally = Tally.of(problem)
    lower, upper = _with_one_more_sample(tally.positive, tally.negative)
    upper = np.maximum(lower, upper)  # rounding
    # Between two scores p₀ is that of the lower one and p₁ that of the higher one. At a score both are its own, and so
    # they are a little below and above it, where rounding would put it.
    gap = (tally.low[1:] - tally.high[:-1]) / 4
    at = tally.low - np.minimum(_rounding(tally.low), np.r_[np.inf, gap])
    above = np.maximum(tally.high + np.minimum(_rounding(tally.high), np.r_[gap, np.inf]), np.nextafter(tally.high, 2))
    knots = np.r_[0.0, np.column_stack([at, above]).ravel()]
    lower = np.r_[0.0, np.repeat(lower, 2)]
    upper = np.r_[np.repeat(upper, 2), 1.0]
    inside = np.r_[np.diff(knots) > 0, True] & (knots <= 1)
    knots, lower, upper = knots[inside], lower[inside], upper[inside]
    changes = np.r_[True, (np.diff(lower) != 0) | (np.diff(upper) != 0)]
    return knots[changes], lower[changes], upper[changes]


def _rounding(p: Floats) -> Floats:
    """How far a probability may lie from itself, if its logits or the softmax are rounded."""
    return np.maximum(SAME_LOGIT * p * (1 - p), TIE / 4 * p)


# --- isotonic regressions with one more sample, for every place that it can have, at once -----------------------


def _with_one_more_sample(positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
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
