"""Free functions of each class's probability: histogram binning and isotonic regression (Zadrozny, Elkan 2001 f.)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from attemper._checks import one_of, whole
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.one_vs_rest import OneVsRest, Problem
from attemper.calibrators.style import SKY, Style
from attemper.data.scores import LabelledScores
from attemper.maps import BinMap
from attemper.maps.bins import softmax

__all__ = ["BinCalibrator", "Function", "HistogramBinning", "IsotonicCalibration", "Tally", "bin_starts"]

MAX_BINS = 10_000
# Probabilities closer than this, relatively, differ by the rounding of the softmax only.
TIE = 1e-13

Function = tuple[Floats, Floats]  # knots and values of one class


class BinCalibrator(Calibrator):
    """What the recipes share that end in a `BinMap`."""

    ranks_only = True
    linear: ClassVar[bool] = False  # between knots, or steps
    map_: BinMap

    def _solve_scores(self, scores: LabelledScores) -> None:
        functions = [self._function(problem) for problem in OneVsRest.of(scores, softmax)]
        knots, values = (np.concatenate(v) for v in zip(*functions))
        self.map_ = BinMap(np.array([len(x) for x, _ in functions]), knots, values, self.linear)
        message = self._message(f"{np.mean(self.map_.sizes):.3g}")
        self.fit_report_ = FitReport.of(self.map_, scores, objective_gap=0.0, message=message)

    def _function(self, problem: Problem) -> Function:
        raise NotImplementedError

    def _message(self, count: str) -> str:
        raise NotImplementedError


@recipe
class HistogramBinning(BinCalibrator):
    """The frequency of each class among the validation samples with about the same probability.

    The probabilities of a class are sorted into bins; what is predicted is the share of samples in the bin that are of
    the class, and rows are normalised. With two classes there is one histogram, of class 1.

    **The arg max may change**, and probabilities can be exactly 0: in a bin without samples of the class. A label there
    has an infinite NLL on other data. How many answers changed on the validation data stands in
    ``fit_report_.changed``. Where all classes have 0, the possible ones share equally.

    Parameters
    ----------
    strategy : "quantile" or "uniform"
        Bins of as nearly as possible the same weight of samples, or of the same width. Bins of equal mass end half-way
        between neighbouring samples; samples with the same probability are never parted, so there may be fewer bins.
        A bin of equal width that holds no sample predicts the middle of the bin; so do all bins of a class about which
        no sample has information (it is masked in all of them).
    n_bins : int
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : BinMap
    fit_report_ : FitReport
    classes_, n_features_in_

    References
    ----------
    B. Zadrozny, C. Elkan, Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import HistogramBinning
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> fitted = HistogramBinning(n_bins=2, input="probs").fit(p, [0, 1, 0, 1, 1, 1])
    >>> fitted.map_.knots, fitted.map_.values.round(3)
    (array([0. , 0.5]), array([0.333, 1.   ]))
    """

    method = "histogram"
    title = "histogram binning"
    style = Style(SKY, (0, (1, 1)), "*")

    strategy: Literal["quantile", "uniform"] = "quantile"
    n_bins: int = 15

    def _check_parameters(self) -> None:
        one_of("strategy", self.strategy, ("quantile", "uniform"))
        whole("n_bins", self.n_bins, at_most=MAX_BINS)

    def _message(self, count: str) -> str:
        kind = "equal mass" if self.strategy == "quantile" else "equal width"
        return f"counted: {count} bins of {kind} for each class"

    def _function(self, problem: Problem) -> Function:
        if self.strategy == "uniform" or len(problem.x) == 0:
            left = np.arange(self.n_bins) / self.n_bins
            bin_of = np.searchsorted(left, problem.x, side="right") - 1
            positive, negative = (
                np.bincount(bin_of, problem.w * of_class, self.n_bins)
                for of_class in (problem.positive, ~problem.positive)
            )
            values = left + 0.5 / self.n_bins
            some = positive + negative > 0
            values[some] = _share(positive[some], negative[some])
            return left, values
        tally = Tally.of(problem)
        starts = np.unique(bin_starts(tally.middle, np.arange(self.n_bins), self.n_bins))
        starts = starts[starts < len(tally.low)]
        positive, negative = (np.add.reduceat(v, starts) for v in (tally.positive, tally.negative))
        return tally.edges[starts], _share(positive, negative)


@recipe
class IsotonicCalibration(BinCalibrator):
    """Isotonic (least-squares) regression on each class's probability, rows normalised.

    It is piecewise linear, and constant beyond the outermost samples. With two classes there is one, of class 1.
    scikit-learn's ``method="isotonic"`` gives the same for a classifier whose ``predict_proba`` is the softmax.

    **The arg max may change**, since each class has a function of its own, and probabilities can be exactly 0: a label
    there has an infinite NLL on other data. Where all classes have 0, the possible ones share equally. How many answers
    changed on the validation data stands in ``fit_report_.changed``. A class about which no sample shows
    anything (it is masked in all of them) keeps its probability.

    Parameters
    ----------
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : BinMap
    fit_report_ : FitReport
    classes_, n_features_in_

    References
    ----------
    B. Zadrozny, C. Elkan, Transforming classifier scores into accurate multiclass probability estimates, 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import IsotonicCalibration
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> fitted = IsotonicCalibration(input="probs").fit(p, [0, 1, 0, 1, 1, 1])
    >>> fitted.map_.knots, fitted.map_.values
    (array([0.1, 0.2, 0.3, 0.7, 0.9]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """

    method = "isotonic"
    title = "isotonic regression"
    style = Style(SKY, (0, (5, 1, 1, 1)), "h")

    linear = True

    def _message(self, count: str) -> str:
        return f"isotonic regression: {count} knots for each class"

    def _function(self, problem: Problem) -> Function:
        if len(problem.x) == 0:
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        even = problem.w.min() == problem.w.max()
        found = IsotonicRegression().fit(problem.x, problem.positive, None if even else problem.w / problem.w.max())
        knots, values = found.X_thresholds_, found.y_thresholds_
        certain = values >= 1.0
        if certain.any() and (~problem.positive & (problem.x >= knots[certain][0])).any():
            values = np.minimum(values, ALMOST_ONE)  # of a weight so small that rounding took it for none
        return knots, values


ALMOST_ONE = 1 - 2.0**-53


def _share(positive: NDArray[Any], negative: NDArray[Any]) -> Floats:
    """Part of the positive; below one unless it is all, also where rounding would make it one."""
    share = positive / (positive + negative)
    return np.asarray(np.where(negative > 0, np.minimum(share, ALMOST_ONE), share))


class Tally(NamedTuple):
    """Distinct probabilities of a class in ascending order, and the weight of the samples that have them."""

    low: Floats  # the least and the largest of those that differ by rounding alone
    high: Floats
    positive: Floats  # weight of the samples of the class, and of the others
    negative: Floats

    @classmethod
    def of(cls, problem: Problem) -> Tally:
        """Sort, and put together what is tied."""
        order = np.argsort(problem.x, kind="stable")
        x, w, positive = problem.x[order], problem.w[order], problem.positive[order]
        first = np.flatnonzero(np.r_[True, np.diff(x) > TIE * x[1:]])
        last = np.r_[first[1:] - 1, len(x) - 1]
        return cls(x[first], x[last], np.add.reduceat(w * positive, first), np.add.reduceat(w * ~positive, first))

    @property
    def middle(self) -> Floats:
        """Where the middle of each value's weight lies in the whole, from 0 to 1."""
        weight = self.positive + self.negative
        total = np.cumsum(weight)
        return np.asarray((total - weight / 2) / total[-1])

    @property
    def edges(self) -> Floats:
        """0, what lies half-way between neighbouring values, 1: value i is at home from edge i up to edge i + 1."""
        below, above = self.high[:-1], self.low[1:]
        half = below + (above - below) / 2
        return np.concatenate([[0.0], np.where(half > below, half, above), [1.0]])


def bin_starts(middle: Floats, bin_number: NDArray[Any], n_bins: NDArray[Any] | int) -> NDArray[np.intp]:
    """Value with which each bin of equal mass begins: the first whose weight has its middle in the bin or above it."""
    # A middle on the border belongs above, also when rounding puts it a little below.
    return np.asarray(np.searchsorted(middle, (bin_number - 1e-9) / n_bins))
