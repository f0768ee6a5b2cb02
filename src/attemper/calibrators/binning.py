"""Free functions of each class's probability: histogram binning and isotonic regression (Zadrozny, Elkan 2001 f.)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from attemper.arrays import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.one_vs_rest import OneVsRest, Problem
from attemper.calibrators.outcome import FitReport, judge
from attemper.errors import InputError
from attemper.maps import BinMap
from attemper.maps.bins import softmax
from attemper.scores import Scores

__all__ = ["BinCalibrator", "Function", "HistogramBinning", "IsotonicCalibration", "Tally", "bin_starts"]

MAX_BINS = 10_000
# Probabilities closer than this, relatively, differ by the rounding of the softmax only.
TIE = 1e-13

Function = tuple[Floats, Floats]  # knots and values of one class


class BinCalibrator(Calibrator):
    """What the recipes share that end in a `BinMap`."""

    map_: BinMap

    def _finish(self, scores: Scores, functions: Iterable[Function], linear: bool, message: Callable[[], str]) -> None:
        parts = [*functions]
        knots, values = (np.concatenate(v) for v in zip(*parts))
        self.map_ = BinMap(np.array([len(x) for x, _ in parts]), knots, values, linear)
        nll, changed = judge(self.map_, scores)
        self.fit_report_ = FitReport(True, 0.0, None, nll, len(scores), 1, message(), changed=changed)


class HistogramBinning(BinCalibrator):
    """The frequency of each class among the validation samples with about the same probability.

    The probabilities of a class are sorted into bins; what is predicted is the share of samples in the bin that are of
    the class, and rows are normalised. With two classes there is one histogram, of class 1.

    **The arg max may change**, and probabilities can be exactly 0: in a bin without samples of the class. A label there
    has an infinite NLL on other data. How many answers changed on the validation data stands in
    ``fit_report_.changed``. Where all classes have 0, the possible ones share equally.

    Parameters
    ----------
    bins : "mass" or "width"
        Bins of as nearly as possible the same weight of samples, or of the same width. Bins of equal mass end half-way
        between neighbouring samples; samples with the same probability are never parted, so there may be fewer bins.
        A bin of equal width that holds no sample predicts the middle of the bin; so do all bins of a class about which
        no sample says anything (it is masked in all of them).
    n_bins : int
    input, floor, classes
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
    >>> fitted = HistogramBinning(n_bins=2, input="probs").fit(np.column_stack([1 - p, p]), [0, 1, 0, 1, 1, 1])
    >>> fitted.map_.knots, fitted.map_.values.round(3)
    (array([0. , 0.5]), array([0.333, 1.   ]))
    """

    method = "histogram"

    def __init__(
        self,
        *,
        bins: Literal["mass", "width"] = "mass",
        n_bins: int = 15,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.bins = bins
        self.n_bins = n_bins
        self.input = input
        self.floor = floor
        self.classes = classes

    def _check_parameters(self) -> None:
        if self.bins not in ("mass", "width"):
            raise InputError(f"bins={self.bins!r}: expected 'mass' or 'width'")
        whole = isinstance(self.n_bins, Integral) and not isinstance(self.n_bins, bool)
        if not (whole and 1 <= self.n_bins <= MAX_BINS):
            raise InputError(f"n_bins={self.n_bins!r}: expected a whole number from 1 to {MAX_BINS}")

    def _solve_scores(self, scores: Scores) -> None:
        def message() -> str:
            kind = "equal mass" if self.bins == "mass" else "equal width"
            return f"counted: {np.mean(self.map_.sizes):.3g} bins of {kind} for each class"

        self._finish(scores, map(self._histogram, OneVsRest.of(scores, softmax)), False, message)

    def _histogram(self, problem: Problem) -> Function:
        if self.bins == "width" or len(problem.x) == 0:
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


class IsotonicCalibration(BinCalibrator):
    """The rising function of each class's probability that fits the labels best in squares, rows normalised.

    It is piecewise linear, and constant beyond the outermost samples. With two classes there is one, of class 1.
    scikit-learn's ``method="isotonic"`` gives the same for a classifier whose ``predict_proba`` is the softmax.

    **The arg max may change**, since each class has a function of its own, and probabilities can be exactly 0: a label
    there has an infinite NLL on other data. Where all classes have 0, the possible ones share equally. How many answers
    changed on the validation data stands in ``fit_report_.changed``. A class about which no sample says
    anything (it is masked in all of them) keeps its probability.

    Parameters
    ----------
    input, floor, classes
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
    >>> fitted = IsotonicCalibration(input="probs").fit(np.column_stack([1 - p, p]), [0, 1, 0, 1, 1, 1])
    >>> fitted.map_.knots, fitted.map_.values
    (array([0.1, 0.2, 0.3, 0.7, 0.9]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """

    method = "isotonic"

    def __init__(
        self,
        *,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.input = input
        self.floor = floor
        self.classes = classes

    def _solve_scores(self, scores: Scores) -> None:
        def message() -> str:
            return f"isotonic regression: {np.mean(self.map_.sizes):.3g} knots for each class"

        self._finish(scores, map(_isotonic, OneVsRest.of(scores, softmax)), True, message)


def _isotonic(problem: Problem) -> Function:
    if len(problem.x) == 0:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    fitted = IsotonicRegression(out_of_bounds="clip").fit(
        problem.x, problem.positive.astype(np.float64), problem.w / problem.w.max()
    )
    knots, values = (np.atleast_1d(v) for v in (fitted.X_thresholds_, fitted.y_thresholds_))
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

    low: Floats  # the least and the largest of those that rounding alone tells apart
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
