"""One function of each class's probability, rows normalised: Platt, beta, histograms, isotonic regression, BBQ.

There are K problems of two classes, one class against the others, or one where K = 2. A sample in which a class is
masked, or alone possible, carries no information about that class: it is left out of that class's problem, and
samples of weight zero out of all. As each class has a function of its own, the arg max may change (`Report.changed`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.isotonic import IsotonicRegression

from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.data.arrays import log_odds, row_slices
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, InputError, check_number, warn
from attemper.kernels import curves
from attemper.maps import Curves, Knots, Map, normalised

EPS = float(np.finfo(np.float64).eps)
MAX_BINS = 10_000
TIE = 1e-13  # probabilities closer than this, relatively, differ by the rounding of the softmax only
ALMOST_ONE = 1 - 2.0**-53
softmax = partial(normalised, log=False)

Function = tuple[Floats, Floats]  # knots and values of one class


class Problem(NamedTuple):
    """One class against the others."""

    x: Floats  # what the classifier said of the class, for each sample
    positive: NDArray[np.bool_]  # whether the sample is of the class
    w: Floats


class Sides(NamedTuple):
    """All problems, one row of ``x`` for each; NaN where a sample has no information about a class."""

    x: Floats
    labels: Labels
    w: Floats
    first: int  # class of the first row: 1 where K = 2

    @classmethod
    def of(cls, scores: Scores, function: Callable[[Any, Any], Any]) -> Sides:
        """Apply ``function(logits, namespace)`` to the rows, and turn them into columns; N×K doubles are held."""
        first = int(scores.n_classes == 2)
        x = np.empty((scores.n_classes - first, len(scores)))
        for part in row_slices(*scores.shape):
            h = scores.chunk(part, np.float64).h
            with np.errstate(divide="ignore"):
                value = function(h, np)
            if scores.masked:
                possible = h > -np.inf
                value[~(possible & (possible.sum(axis=1, keepdims=True) > 1))] = np.nan
            x[:, part] = value.T[first:]
        return cls(x, scores.labels, scores.weights, first)


def problems(scores: Scores, function: Callable[[Any, Any], Any]) -> Iterator[Problem]:
    """Give the problems one by one, each with its own samples only."""
    sides = Sides.of(scores, function)
    for k, x in enumerate(sides.x, sides.first):
        known = ~np.isnan(x)
        yield Problem(x[known], sides.labels[known] == k, sides.w[known])


# --- curves of the log-odds ------------------------------------------------------------------------------------------


class _OddsCalibrator(Calibrator):
    """One logistic regression for each class, all of them at once."""

    slopes: ClassVar[int]  # how many each class has; two are kept from being negative

    def _fit(self, scores: Scores) -> Fit:
        sides = Sides.of(scores, log_odds)
        theta = np.ones((len(sides.x), self.slopes + 1))
        theta[:, -1] = 0.0  # what no sample determines stays as it is
        error, steps, smoothed = 0.0, 0, 0
        for part in row_slices(*sides.x.shape):  # as many problems at once as stay in the cache
            rows = np.arange(part.start, part.stop)[~np.isnan(sides.x[part]).all(axis=1)]
            if not len(rows):
                continue
            known = ~np.isnan(sides.x[rows])
            x, w = np.where(known, sides.x[rows], 0.0), np.where(known, sides.w, 0.0)
            t, endless = self._targets(Problem(x, sides.labels == rows[:, None] + sides.first, w))
            found = curves.fit(self._features(x), t, w / w.sum(axis=1, keepdims=True), bounded=self.slopes == 2)
            theta[rows] = found.at
            error, steps, smoothed = error + float(found.error.sum()), max(steps, found.n_iter), smoothed + endless
        a, b, c = theta[:, 0], theta[:, -2], theta[:, -1]
        if scores.n_classes == 2:  # class 0 mirrors class 1, so that the two sum to one
            a, b, c = np.r_[b, a], np.r_[a, b], np.r_[-c, c]
        if error >= 1e-10:
            warn(f"{type(self).__name__}: not converged, {error:.0e} nats from the least objective", ConvergenceWarning)
        fitted = Map((Curves(a, b, c),))
        notes = [f"Platt's targets for {smoothed} of {len(theta)} classes, which are separable"] if smoothed else []
        facts = {"converged": error < 1e-10, "error": max(error, EPS), "n_iter": steps}
        return Fit(fitted, Report.of(fitted, scores, **facts, notes=tuple(notes)))

    def _facts(self) -> list[str]:
        """Return what a reader wants to know of the fit, line by line."""
        stage, lines = self.map_.stages[0], []
        for name in ("ac", "abc")[self.slopes - 1]:
            v = getattr(stage, name)[int(self.n_features_in_ == 2) :]
            lines.append(f"{name} = " + " to ".join(f"{x:.3g}" for x in np.unique([v.min(), v.max()])))
        return [*lines, *super()._facts()]

    def _features(self, s: Floats) -> Floats:
        if self.slopes == 1:
            return s[None]
        t = np.log1p(np.exp(-np.abs(s)))
        return np.stack([np.minimum(s, 0) - t, np.maximum(s, 0) + t])  # log p, −log(1 − p)

    def _targets(self, rows: Problem) -> tuple[Floats, int]:
        """Targets of each class and sample, and for how many classes the labels have no best curve.

        With two slopes the labels; Platt's targets for classes that a threshold separates, or that have no sample, or
        all.
        """
        if self.slopes == 1:
            return platt_targets(rows), 0
        yes, no = rows.positive & (rows.w > 0), ~rows.positive & (rows.w > 0)
        least_yes, least_no = (np.where(m, rows.x, np.inf).min(axis=1) for m in (yes, no))
        most_yes, most_no = (np.where(m, rows.x, -np.inf).max(axis=1) for m in (yes, no))
        endless = most_no <= least_yes
        endless &= ~((least_yes == most_no) & (least_no == most_yes))  # no slope separates what is all the same
        return np.where(endless[:, None], platt_targets(rows), rows.positive.astype(np.float64)), int(endless.sum())


def platt_targets(rows: Problem) -> Floats:
    """(N₊+1)/(N₊+2) for samples of the class and 1/(N₋+2) for the others, which always have a finite best curve."""
    plus, minus = ((rows.w * side).sum(axis=1, keepdims=True) for side in (rows.positive, ~rows.positive))
    return np.asarray(np.where(rows.positive, (plus + 1) / (plus + 2), 1 / (minus + 2)))


class PlattScaling(_OddsCalibrator):
    """A logistic curve of each class's log-odds, σ(a s + c), rows normalised.

    s_k = log p_k − log(1 − p_k) are the log-odds of class k against all others, p being the softmax. Fitted to Platt's
    targets. With two classes there is one curve, as in Platt's paper; scikit-learn's ``method="sigmoid"`` on
    that score finds the same one. ``map_.stages[0]`` has the slopes a = b and the intercepts c.

    J. Platt, Probabilistic outputs for support vector machines, 2000; H.-T. Lin et al., A note on these, 2007.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = 6 * rng.normal(size=2000)
    >>> labels = (s / 2 - 1 + rng.logistic(size=2000) > 0).astype(int)  # a slope of 1/2, an intercept of −1
    >>> curve = PlattScaling().fit(s, labels).map_.stages[0]
    >>> curve.a.round(1), curve.c.round(1)
    (array([0.5, 0.5]), array([ 1.1, -1.1]))
    """

    method = "platt"
    title = "Platt scaling"
    slopes = 1


class BetaCalibration(_OddsCalibrator):
    """A beta curve of each class's probability, σ(a log p − b log(1 − p) + c), rows normalised.

    p is the softmax, and a, b ≥ 0, so that the curve of a class never falls (the paper drops a negative slope and fits
    again, which is the same). Fitted to the labels; where a threshold separates the samples of a class from the others
    there is no finite best curve, and Platt's targets are taken, which the report notes. With two classes there is
    one curve. ``map_.stages[0]`` has a, b and c.

    M. Kull, T. de Menezes e Silva Filho, P. Flach, Beyond sigmoids, 2017. https://doi.org/10.1214/17-EJS1338SI

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.5, 0.5, size=5000)
    >>> labels = (np.log(p) - 0.3 * np.log1p(-p) + rng.logistic(size=5000) > 0).astype(int)  # a = 1, b = 0.3
    >>> curve = BetaCalibration(input="probs").fit(p, labels).map_.stages[0]
    >>> curve.a[1].round(1), curve.b[1].round(1)
    (np.float64(1.0), np.float64(0.3))
    """

    method = "beta"
    title = "beta calibration"
    slopes = 2


class _KnotsCalibrator(Calibrator):
    """A function of each class's probability by its knots."""

    linear: ClassVar[bool] = False  # between knots, or steps

    def _fit(self, scores: Scores) -> Fit:
        functions = [self._function(problem) for problem in problems(scores, softmax)]
        knots, values = (np.concatenate(v) for v in zip(*functions))
        fitted = Map((Knots(np.array([len(x) for x, _ in functions]), knots, values, self.linear),))
        return Fit(fitted, Report.of(fitted, scores, error=0.0))

    def _function(self, problem: Problem) -> Function:
        raise NotImplementedError


class HistogramBinning(_KnotsCalibrator):
    """The frequency of each class among the validation samples with about the same probability, rows normalised.

    Probabilities can be exactly 0, in a bin without samples of the class: a label there has an infinite NLL on other
    data. With two classes there is one histogram, of class 1.

    Parameters
    ----------
    strategy : "quantile" or "uniform"
        Bins of as nearly as possible the same weight of samples, or of the same width. Bins of equal mass end half-way
        between neighbouring samples; samples with the same probability are never parted, so there may be fewer bins.
        A bin of equal width that holds no sample predicts its middle.
    n_bins : int
    input, classes, zeros_as
        As for `TemperatureScaling`.

    B. Zadrozny, C. Elkan, Obtaining calibrated probability estimates from decision trees …, 2001.

    Examples
    --------
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> steps = HistogramBinning(n_bins=2, input="probs").fit(p, [0, 1, 0, 1, 1, 1]).map_.stages[0]
    >>> steps.knots, steps.values.round(3)
    (array([0. , 0.5]), array([0.333, 1.   ]))
    """

    method = "histogram"
    title = "histogram binning"

    def __init__(self, *, strategy: Literal["quantile", "uniform"] = "quantile", n_bins: int = 15,
                 input: InputKind = "logits", classes: Any = None, zeros_as: float | None = None) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.strategy, self.n_bins = strategy, n_bins

    def _fit(self, scores: Scores) -> Fit:
        if self.strategy not in ("quantile", "uniform"):
            raise InputError(f"strategy={self.strategy!r}: expected 'quantile' or 'uniform'", "strategy")
        check_number(self.n_bins, "n_bins", 1, MAX_BINS, whole=True)
        return super()._fit(scores)

    def _function(self, problem: Problem) -> Function:
        if self.strategy == "uniform" or len(problem.x) == 0:
            left = np.arange(self.n_bins) / self.n_bins
            bin_of = np.searchsorted(left, problem.x, side="right") - 1
            sides = (problem.positive, ~problem.positive)
            positive, negative = (np.bincount(bin_of, problem.w * side, self.n_bins) for side in sides)
            values = left + 0.5 / self.n_bins
            some = positive + negative > 0
            values[some] = _share(positive[some], negative[some])
            return left, values
        tally = Tally.of(problem)
        starts = np.unique(_bin_starts(tally.middle, np.arange(self.n_bins), self.n_bins))
        starts = starts[starts < len(tally.low)]
        positive, negative = (np.add.reduceat(v, starts) for v in (tally.positive, tally.negative))
        return tally.edges[starts], _share(positive, negative)


class IsotonicCalibration(_KnotsCalibrator):
    """Isotonic (least-squares) regression on each class's probability, rows normalised.

    It is scikit-learn's: piecewise linear, and constant beyond the outermost samples. With two classes there is one,
    of class 1. Probabilities can be exactly 0: a label there has an infinite NLL on other data.

    B. Zadrozny, C. Elkan, Transforming classifier scores into accurate multiclass probability estimates, 2002.

    Examples
    --------
    >>> p = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    >>> line = IsotonicCalibration(input="probs").fit(p, [0, 1, 0, 1, 1, 1]).map_.stages[0]
    >>> line.knots, line.values
    (array([0.1, 0.2, 0.3, 0.7, 0.9]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """

    method = "isotonic"
    title = "isotonic regression"
    linear = True

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


def _share(positive: NDArray[Any], negative: NDArray[Any]) -> Floats:
    """Part of the positive; below one unless it is all, also where rounding would make it one."""
    return np.asarray(np.minimum(positive / (positive + negative), np.where(negative > 0, ALMOST_ONE, 1.0)))


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
        x, positive, w = problem.x[order], problem.positive[order], problem.w[order]
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


def _bin_starts(middle: Floats, bin_number: NDArray[Any], n_bins: NDArray[Any] | int) -> NDArray[np.intp]:
    """Value with which each bin of equal mass begins: the first whose weight has its middle in the bin or above it."""
    # A middle on the border belongs above, also when rounding puts it a little below.
    return np.asarray(np.searchsorted(middle, (bin_number - 1e-9) / n_bins))


# --- Bayesian binning ------------------------------------------------------------------------------------------------

PRIOR_SAMPLES = 2.0  # N' of the paper
SPREAD = 10.0  # C of the paper
NEGLIGIBLE = 1e-13  # share of a histogram below which it is left out, so that it leaves no knots behind


class BBQ(_KnotsCalibrator):
    r"""Bayesian binning into quantiles: an average over histograms with few and with many bins, rows normalised.

    For each class there is a histogram of equal mass for every number of bins B from :math:`N^{1/3}/10` to
    :math:`10 N^{1/3}`. Bin b, with m_b samples of the class and n_b others, has a Beta prior with
    :math:`\alpha_b = \frac{2}{B} p_b` and :math:`\beta_b = \frac{2}{B} (1 - p_b)`, p_b being its middle. A histogram's
    share in the average is proportional to its marginal likelihood

    .. math::

        \prod_b \frac{\Gamma(2/B)}{\Gamma(m_b + n_b + 2/B)} \frac{\Gamma(m_b + \alpha_b)}{\Gamma(\alpha_b)}
        \frac{\Gamma(n_b + \beta_b)}{\Gamma(\beta_b)}

    and what it predicts is the posterior mean, :math:`(m_b + \alpha_b) / (m_b + n_b + 2/B)`. Weights count repeats, so
    N is their sum. Histograms that ties make the same count once. Only masked classes have a probability of 0.

    M. P. Naeini, G. F. Cooper, M. Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(3000)
    >>> bbq = BBQ(input="probs").fit(p, (rng.random(3000) < p**2).astype(int))
    >>> bbq.predict_risk([0.8]).round(1)
    array([0.6])
    """

    method = "bbq"
    title = "Bayesian binning"

    def _function(self, problem: Problem) -> Function:
        if len(problem.x) == 0:
            return np.array([0.0]), np.array([0.5])  # the mean of the prior, of one bin
        tally = Tally.of(problem)
        edges = tally.edges
        model, start, stop = _binnings(tally, float(problem.w.sum()))
        first = np.flatnonzero(np.r_[True, np.diff(model) > 0])
        prior = (PRIOR_SAMPLES / np.diff(np.r_[first, len(model)]))[model]  # N'/B of each bin
        between = np.column_stack([start, stop]).ravel()
        m, n = (np.add.reduceat(np.r_[v, 0.0], between)[::2] for v in (tally.positive, tally.negative))
        # A bin whose middle is 0 or 1 to rounding would have a prior without width.
        alpha = prior * np.maximum((edges[start] + edges[stop]) / 2, 1e-300)
        beta = prior * np.maximum(((1 - edges[start]) + (1 - edges[stop])) / 2, 1e-300)
        evidence = gammaln(prior) - gammaln(m + n + prior)
        evidence += gammaln(m + alpha) - gammaln(alpha)
        evidence += gammaln(n + beta) - gammaln(beta)
        score = np.add.reduceat(evidence, first)
        share = np.exp(score - score.max()) / np.exp(score - score.max()).sum()
        kept = share[model] > NEGLIGIBLE
        model, start, mean = model[kept], start[kept], ((m + alpha) / (m + n + prior))[kept]
        knots = np.unique(start)
        total = np.zeros(len(knots))  # the histograms times their shares, as one step function
        for a, b in itertools.pairwise(np.flatnonzero(np.r_[True, np.diff(model) > 0, True])):
            at = np.searchsorted(knots, start[a:b])
            total += share[model[a]] * np.repeat(mean[a:b], np.diff(np.r_[at, len(knots)]))
        return edges[knots], np.minimum(total / share[share > NEGLIGIBLE].sum(), 1.0)


def _binnings(tally: Tally, total: float) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """All bins of all histograms: which histogram, and the first and the last (exclusive) of its values."""
    values = len(tally.low)
    root = total ** (1 / 3)
    fewest = min(max(1, math.floor(root / SPREAD)), values)
    most = max(min(math.ceil(root * SPREAD), values), fewest)
    sizes = np.arange(fewest, most + 1)
    size = np.repeat(sizes, sizes)
    number = np.arange(len(size)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    start = _bin_starts(tally.middle, number, size)
    filled = (start < values) & ((number == 0) | np.r_[True, np.diff(start) != 0])
    size, start = size[filled], start[filled]
    if not filled.all():  # ties: some histograms may be the same
        seen: set[bytes] = set()
        new = np.zeros(most + 1, dtype=bool)
        for n_bins in sizes:
            key = start[size == n_bins].tobytes()
            new[n_bins] = key not in seen
            seen.add(key)
        size, start = size[new[size]], start[new[size]]
    model = np.cumsum(np.r_[0, np.diff(size) > 0])
    return model, start, np.where(np.r_[np.diff(model) > 0, True], values, np.r_[start[1:], values])
