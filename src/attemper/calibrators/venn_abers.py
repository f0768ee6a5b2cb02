"""Venn–Abers predictors: isotonic regression that allows for the label it does not know, as an interval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.calibrators.binning import TIE, BinCalibrator, Tally
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.one_vs_rest import OneVsRest, Problem
from attemper.calibrators.style import GREEN, Style
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import LabelledScores
from attemper.errors import InputError
from attemper.kernels.venn_abers import with_one_more_sample
from attemper.maps import BinMap
from attemper.maps.bins import softmax

__all__ = ["VennAbers"]

# A score this near to a validation score, in its logit, counts as equal to it: logits in single precision are rounded.
SAME_LOGIT = 2.0**-20

Steps = tuple[Floats, Floats, Floats]  # knots of one class, and both ends of the interval from there on


@recipe
class VennAbers(BinCalibrator):
    r"""Venn–Abers prediction: an interval for each class's probability, and one probability from it.

    The sample to be predicted is added to the validation samples once with either label. Isotonic regression then gives
    it :math:`p_0` with label 0 and :math:`p_1` with label 1. One of the two is calibrated, whatever
    the law of the data, as long as samples are exchangeable; so the interval :math:`[p_0, p_1]` shows
    how well the validation samples fix the probability. `predict_interval` returns it. `predict_proba` returns
    :math:`p_1 / (1 - p_0 + p_1)`, which has the least regret in log-loss.

    Unlike with `IsotonicCalibration`, a probability is never 0 or 1, so that the NLL of other data is finite.

    With two classes there is one regression, of class 1. With more, each class has one against the rest, and
    the rows of `predict_proba` are normalised (intervals are not). A class that is rare among few samples then gets too
    much: its probability is never below about 1/(n + 2). **The arg max may change**: in which share of the validation
    samples it did stands in ``fit_report_.changed``. Scores whose logits differ by less than 1e-6 count as equal, since
    single precision cannot distinguish them. A weight of 2 counts as the row twice, so the unit of weights
    matters: the added sample has weight 1.

    Parameters
    ----------
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : BinMap
        The merged probabilities: a step function for each class.
    lower_, upper_ : arrays
        p₀ and p₁ from each knot of the map on.
    fit_report_ : FitReport
    classes_, n_features_in_

    References
    ----------
    V. Vovk, I. Petej, Venn–Abers predictors, 2014. https://arxiv.org/abs/1211.0025
    V. Vovk, I. Petej, V. Fedorova, Large-scale probabilistic predictors with and without guarantees of validity, 2015.
    https://arxiv.org/abs/1511.00213

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import VennAbers
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> fitted = VennAbers(input="probs").fit(p, [0, 1, 0, 1, 1, 1])
    >>> low, high = fitted.predict_interval([0.75])
    >>> low[:, 1].round(3), high[:, 1].round(3), fitted.predict_positive([0.75]).round(3)
    (array([0.5]), array([1.]), array([0.667]))
    """

    method = "venn_abers"
    title = "Venn–Abers"
    style = Style(GREEN, (0, (2, 2, 6, 2)), "H")
    stored = ("lower_", "upper_")

    lower_: Floats = fitted()
    upper_: Floats = fitted()

    def predict_interval(self, X: Any) -> tuple[Floats, Floats]:
        """Return both ends of the interval of each class's probability, N×K each, as NumPy arrays.

        A wide one means that few validation samples had such a score. A class that is masked has [0, 0].
        """
        h = to_numpy(self._check_is_fitted()._scores_of(X).logits)
        if not isinstance(self.map_, BinMap):
            raise InputError(
                "predict_interval: intervals are those of the class priors of the fit; use the calibrator "
                "from before with_priors or adapt"
            )
        low, high = np.empty(h.shape), np.empty(h.shape)
        ends = [replace(self.map_, values=values) for values in (self.lower_, self.upper_)]
        for rows in row_slices(*h.shape):
            found = [end.functions(h[rows].astype(np.float64), end.arrays(), np) for end in ends]
            low[rows], high[rows] = np.minimum(*found), np.maximum(*found)  # class 0 of two has 1 − p₁ and 1 − p₀
        alone = (h > -np.inf).sum(axis=1) == 1
        low[alone] = high[alone] = h[alone] > -np.inf
        return low, high

    def _solve_scores(self, scores: LabelledScores) -> None:
        parts = [_steps(problem) for problem in OneVsRest.of(scores, softmax)]
        knots, self.lower_, self.upper_ = (np.concatenate(v) for v in zip(*parts))
        self.map_ = BinMap(np.array([len(x) for x, _, _ in parts]), knots, _merged(self.lower_, self.upper_), False)
        message = f"isotonic regression with either label: {np.mean(self.map_.sizes):.3g} steps for each class"
        self.fit_report_ = FitReport.of(self.map_, scores, objective_gap=0.0, message=message)


def _merged(lower: Floats, upper: Floats) -> Floats:
    """Return the one probability that has the least regret in log-loss (Vovk, Petej 2014)."""
    return np.asarray(upper / (1 - lower + upper))


def _steps(problem: Problem) -> Steps:
    """Both ends of the interval of one class, as step functions of its probability."""
    if len(problem.x) == 0:
        return np.zeros(1), np.zeros(1), np.ones(1)
    tally = Tally.of(problem)
    lower, upper = with_one_more_sample(tally.positive, tally.negative)
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
