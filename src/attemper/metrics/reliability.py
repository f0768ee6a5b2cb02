"""Confidence beside accuracy: in bins, by isotonic regression, and what a proper score is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import xlog1py, xlogy

from attemper._result import Columns, Table
from attemper._typing import Floats, InputKind
from attemper.errors import check_share
from attemper.metrics.bins import BY_CLASS, Binned, Kind, Strategy, checked_kind, one_of
from attemper.metrics.intervals import N_RESAMPLES, batches, wilson
from attemper.metrics.predictions import Predictions

Band = Literal["consistency", "confidence"]
PairKind = Literal["top", "binary"]
Score = Literal["brier", "log"]

MOST_POINTS = 512  # of a band
MOST_DRAWN = 10_000_000  # outcomes, for the p-value of a decomposition


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Table):
    """Bins (lo, hi] of confidence; arrays have one entry per bin, one row per class if class-wise or of top labels.

    An empty bin has weight 0 and NaN for the rest.
    """

    edges: Floats  # one more than bins
    weight: Floats  # of the samples in the bin
    confidence: Floats  # their mean
    accuracy: Floats  # how often they were right
    low: Floats  # Wilson interval of the accuracy
    high: Floats

    def columns(self) -> Columns:
        """Return a row for each bin."""
        found = {"bin_low": self.edges[..., :-1], "bin_high": self.edges[..., 1:]}
        found |= {name: getattr(self, name) for name in ("weight", "confidence", "accuracy", "low", "high")}
        n_bins = self.edges.shape[-1] - 1
        by_class = {"class": np.repeat(np.arange(len(self.weight)), n_bins)} if self.weight.ndim > 1 else {}
        return by_class | {name: np.ravel(values) for name, values in found.items()}

    def mean(self, values: Floats) -> float:
        """Mean over the samples of values that the bins have: ``mean(abs(accuracy - confidence))`` is the ECE."""
        return float(np.nansum(self.weight * values) / self.weight.sum())


def reliability(
    labels: Any, probs: Any, *, kind: Kind | None = None, n_bins: int = 15, strategy: Strategy = "uniform",
    confidence_level: float = 0.95, clusters: Any = None, sample_weight: Any = None, input: InputKind = "probs",
    classes: Any = None,
) -> Reliability:  # fmt: skip
    """Confidence and accuracy in bins of confidence: the numbers of a reliability diagram.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    kind, n_bins, strategy
        As in `ece`. With "classwise" and "top_label" every array has one row for each class. "binary", the default for
        one column, is the curve of `sklearn.calibration.calibration_curve`.
    confidence_level : float
        Level of the Wilson interval of each bin's accuracy. Samples with weights count as their effective number
        (Kish).
    clusters : array of shape (N,), optional
        Samples of one cluster count as one sample of their weight: the interval is that of labels that are the same
        throughout a cluster's part of a bin, which is the widest.

    Examples
    --------
    >>> table = reliability([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], n_bins=2)
    >>> table.edges, table.weight, table.accuracy.round(3)
    (array([0. , 0.5, 1. ]), array([0., 3.]), array([  nan, 0.667]))
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes, clusters)
    return reliability_of(p, kind, n_bins, strategy, confidence_level)


def reliability_of(
    p: Predictions, kind: Kind | None = None, n_bins: int = 15, strategy: Strategy = "uniform",
    confidence_level: float = 0.95,
) -> Reliability:  # fmt: skip
    """`reliability` of checked predictions."""
    check_share(confidence_level, "confidence_level")
    binned = Binned(p, kind, n_bins, strategy)
    shape, edges = binned.edges[:, 1:].shape, binned.edges
    if binned.kind not in BY_CLASS:
        shape, edges = shape[1:], edges[0]
    cells = [*binned.sums(p.weights[:, None])[..., 0], _squares(binned)]
    weight, confidence, right, squares = (sums.reshape(shape) for sums in cells)
    n = np.where(weight > 0, weight, np.nan)
    low, high = wilson(right / n, n * n / np.where(weight > 0, squares, np.nan), confidence_level)
    return Reliability(edges, weight, confidence / n, right / n, low, high)


def _squares(binned: Binned) -> Floats:
    """Sum, in each cell, the squares of the weights that cases have there."""
    w, case, size = binned.p.weights, binned.p.clusters, binned.n_cells
    if case is None:
        return np.asarray(sum(np.bincount(cells, w**2, size) for _, _, cells in binned.blocks()))
    n_cases = int(case.max()) + 1
    weight: Any = sum(np.bincount(cells * n_cases + case, w, size * n_cases) for _, _, cells in binned.blocks())
    return np.asarray((weight.reshape(size, n_cases) ** 2).sum(axis=1))


class Recalibration(NamedTuple):
    """Samples in the order of their confidence, ready for isotonic regressions of any outcomes."""

    distinct: Floats  # confidences, ascending
    place: NDArray[np.intp]  # of each sample among them

    def fit(self, right: Floats, w: Floats) -> Floats:
        """Isotonic regression of outcomes with positive weights, at each confidence."""
        weight = np.bincount(self.place, w, len(self.distinct))
        found = isotonic_regression(np.bincount(self.place, w * right, len(self.distinct)) / weight, weights=weight)
        return np.clip(found.x, 0.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class CorpReliability(Table):
    """Isotonic regression of accuracy on confidence, and a band. Between two confidences it is a straight line."""

    confidence: Floats  # distinct, ascending
    weight: Floats  # of the samples that have it
    accuracy: Floats  # regression there
    band: Band
    band_confidence: Floats  # some of the confidences
    low: Floats  # of the band there
    high: Floats

    def columns(self) -> Columns:
        """Return a row for each confidence."""
        ends = {name: np.interp(self.confidence, self.band_confidence, getattr(self, name)) for name in ("low", "high")}
        return {"confidence": self.confidence, "weight": self.weight, "accuracy": self.accuracy, **ends}


def corp_reliability(
    labels: Any, probs: Any, *, kind: PairKind | None = None, band: Band = "consistency",
    confidence_level: float = 0.95, clusters: Any = None, seed: int = 0, sample_weight: Any = None,
    input: InputKind = "probs", classes: Any = None,
) -> CorpReliability:  # fmt: skip
    """Accuracy as a rising function of confidence, without bins: the numbers of a CORP reliability diagram.

    It is consistent, optimally binned and reproducible, and needs the pool-adjacent-violators algorithm alone (hence
    the name; Dimitriadis, Gneiting and Jordan, 2021, https://doi.org/10.1073/pnas.2016191118). The price: errors that
    fall while confidence rises are smoothed away.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    kind : {"top", "binary"}, optional
        The confidence of the most probable class; or, the default for one column, the probability of the second of two.
    band : {"consistency", "confidence"}
        Where the curve would lie, at each confidence, if the predictions were calibrated; or an interval around the
        curve itself. Labels are drawn from the predictions, or from the curve, 1000 times with this ``seed``.
    confidence_level : float
        Level of the band, at each confidence for itself.
    clusters : array of shape (N,), optional
        Labels of one cluster depend on each other: what they differ from the predictions, or from the curve, gets a
        random sign for each cluster instead.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> curve = corp_reliability([0, 1, 0, 1], probs)
    >>> curve.confidence, curve.accuracy
    (array([0.6, 0.7, 0.8, 0.9]), array([0.5, 0.5, 1. , 1. ]))
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes, clusters)
    check_share(confidence_level, "confidence_level")
    one_of("band", band, get_args(Band))
    confidence, right = p.of_class(1) if checked_kind(p, kind, get_args(PairKind)) == "binary" else p.top
    samples = Recalibration(*np.unique(confidence, return_inverse=True))
    accuracy = samples.fit(right, p.weights)
    shown = np.unique(np.linspace(0, len(accuracy) - 1, MOST_POINTS).round().astype(np.intp))
    chance = confidence if band == "consistency" else accuracy[samples.place]
    rng = np.random.default_rng(seed)
    draws = (p.drawing(rng, size)(chance, right).T for size in batches(N_RESAMPLES, len(p)))
    drawn = [samples.fit(outcomes, p.weights)[shown] for several in draws for outcomes in several]
    low, high = np.quantile(drawn, [(1 - confidence_level) / 2, (1 + confidence_level) / 2], axis=0)
    if band == "confidence":
        low, high = np.minimum(low, accuracy[shown]), np.maximum(high, accuracy[shown])
    weight = np.bincount(samples.place, p.weights).astype(np.float64)
    return CorpReliability(samples.distinct, weight, accuracy, band, samples.distinct[shown], low, high)


@dataclass(frozen=True, repr=False)
class Decomposition(Table):
    """A mean score as miscalibration − discrimination + uncertainty: `decompose` returns it."""

    score: float
    miscalibration: float  # what isotonic recalibration would gain; 0 is best
    discrimination: float  # what recalibrated predictions gain over always predicting the frequencies
    uncertainty: float  # the score of always predicting the frequencies: of the labels alone
    chance: float | None = None  # mean miscalibration of calibrated predictions; `decompose` has where there is none
    p: float | None = None  # share of calibrated predictions whose miscalibration is as large

    def columns(self) -> Columns:
        """Return a row for each part, and for chance and p where there are."""
        parts = {name: value for name, value in vars(self).items() if value is not None}
        return {"part": list(parts), "value": list(parts.values())}

    def to_dict(self) -> dict[str, Any]:
        """Return the parts by name."""
        return dict(vars(self))


def decompose(
    labels: Any, probs: Any, *, score: Score = "brier", kind: Literal["top", "classwise"] = "classwise",
    clusters: Any = None, seed: int = 0, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None,
) -> Decomposition:  # fmt: skip
    r"""Decompose the Brier score or the log score: how much is due to calibration, how much to the classifier.

    With :math:`\bar S` the mean score of the predictions, :math:`\bar S_C` that of the predictions after isotonic
    recalibration on the same data, and :math:`\bar S_R` that of always predicting the frequencies,

    .. math:: \bar S = (\bar S - \bar S_C) - (\bar S_R - \bar S_C) + \bar S_R
        = \mathrm{MCB} - \mathrm{DSC} + \mathrm{UNC}.

    None of the three is negative. A calibrator can lower the miscalibration only; where that is small, more
    calibration does not help. Recalibration fits noise too, so that miscalibration and discrimination are too large
    when samples are few: compare with ``chance``. Reference: that of `corp_reliability`.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    score : {"brier", "log"}
    kind : {"classwise", "top"}
        Each class against the others, summed; or the confidence of the most probable class against whether it is right.
        Class-wise, the score is `brier`, and `nll` with two classes. With more classes the class-wise log score is the
        sum of one log score for each class, which is not the NLL.
    clusters : array of shape (N,), optional
        As in `corp_reliability`. The log score has no ``chance`` and ``p`` then.
    seed : int
        Of the labels that are drawn for ``chance`` and ``p``, where there is one isotonic regression: with
        ``kind="top"`` or two classes.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> parts = decompose([0, 1, 0, 1], probs)
    >>> [round(v, 3) for v in (parts.score, parts.miscalibration, parts.discrimination, parts.uncertainty)]
    [0.35, 0.1, 0.25, 0.5]
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes, clusters)
    one_of("score", score, get_args(Score))
    one_of("kind", kind, ("top", "classwise"))
    problems = list(_problems(p, score, kind))
    score_given, recalibrated, constant = np.sum([each.scores(each.right, each.given) for each in problems], axis=0)
    parts = Decomposition(*map(float, (score_given, score_given - recalibrated, constant - recalibrated, constant)))
    no_log = score == "log" and p.clusters is not None  # by random signs outcomes may lie outside of 0 to 1
    if len(problems) > 1 or np.isinf(score_given) or no_log:
        return parts
    rng, count = np.random.default_rng(seed), int(np.clip(MOST_DRAWN // len(p), 100, N_RESAMPLES))
    [it] = problems
    draws = (p.drawing(rng, size)(it.confidence, it.right).T for size in batches(count, len(p)))
    drawn = np.array([it.miscalibration(outcomes) for several in draws for outcomes in several])
    reach = int((drawn >= parts.miscalibration * (1 - 1e-12)).sum())
    return replace(parts, chance=float(drawn.mean()), p=(1 + reach) / (1 + count))


class _Problem(NamedTuple):
    """One class against the others, or right against wrong."""

    losses: Callable[[Floats, Floats], Floats]  # of probabilities and outcomes
    confidence: Floats
    right: Floats
    given: Floats  # losses of the predictions as they are
    w: Floats
    samples: Recalibration

    def scores(self, right: Floats, given: Floats) -> Floats:
        """Return the mean loss as it is, recalibrated, and of always predicting the frequency."""
        fit = self.samples.fit(right, self.w)[self.samples.place]
        frequency = np.full(len(right), self.w @ right / self.w.sum())
        each = np.stack([given, self.losses(fit, right), self.losses(frequency, right)])
        return np.asarray(each @ self.w / self.w.sum())

    def miscalibration(self, right: Floats) -> float:
        """Miscalibration with other outcomes."""
        given, recalibrated, _ = self.scores(right, self.losses(self.confidence, right))
        return float(given - recalibrated)


def _problems(p: Predictions, score: Score, kind: str) -> Iterator[_Problem]:
    two = kind == "classwise" and p.n_classes == 2  # both classes have the same problem
    scale = 2.0 if two and score == "brier" and not p.one_column else 1.0

    def losses(q: Floats, right: Floats) -> Floats:
        if score == "brier":
            return np.asarray(scale * (q - right) ** 2)
        return np.asarray(-xlogy(right, q) - xlog1py(1 - right, -q))

    for k in [1] if two else [None] if kind == "top" else range(p.n_classes):
        confidence, right = p.top if k is None else p.of_class(k)
        given = losses(confidence, right)
        if two and score == "log":
            given = -p.log_likelihood
        elif k is None and score == "log" and p.log_confidence is not None:  # which tells confidences near 1 apart
            with np.errstate(divide="ignore"):
                given = -np.where(p.right, p.log_confidence, np.log(-np.expm1(p.log_confidence)))
        samples = Recalibration(*np.unique(confidence, return_inverse=True))
        yield _Problem(losses, confidence, right, given, p.weights, samples)
