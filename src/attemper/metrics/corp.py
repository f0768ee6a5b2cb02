"""CORP reliability: confidence beside accuracy without bins, by isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from attemper._checks import fraction, one_of, whole
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions

__all__ = ["Band", "CorpReliability", "Recalibration", "corp_reliability"]

Band = Literal["consistency", "confidence"]

MOST_POINTS = 512  # of a band


class Recalibration(NamedTuple):
    """Samples in the order of their confidence, ready for isotonic regressions of any outcomes."""

    distinct: Floats  # confidences, ascending
    place: NDArray[np.intp]  # of each sample among them

    @classmethod
    def of(cls, confidence: Floats) -> Recalibration:
        """Sort."""
        return cls(*np.unique(confidence, return_inverse=True))

    def fit(self, right: Floats, w: Floats) -> Floats:
        """Isotonic regression of outcomes with positive weights, at each confidence."""
        weight = np.bincount(self.place, w, len(self.distinct))
        found = isotonic_regression(np.bincount(self.place, w * right, len(self.distinct)) / weight, weights=weight)
        return np.clip(found.x, 0.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class CorpReliability(Table):
    """Isotonic regression of accuracy on confidence, and a band: `corp_reliability` returns it.

    Between two confidences the curve is a straight line.
    """

    __repr__ = one_line

    confidence: Floats  # distinct, ascending
    weight: Floats  # of the samples that have it
    accuracy: Floats  # regression there
    band: Band
    band_confidence: Floats  # some of the confidences
    low: Floats  # of the band there
    high: Floats

    def _table_columns(self) -> Columns:
        ends = {name: np.interp(self.confidence, self.band_confidence, getattr(self, name)) for name in ("low", "high")}
        return {"confidence": self.confidence, "weight": self.weight, "accuracy": self.accuracy, **ends}

    @property
    def outside(self) -> float:
        """Share of the samples at whose confidence the curve leaves the band; for a consistency band."""
        low, high = (np.interp(self.confidence, self.band_confidence, end) for end in (self.low, self.high))
        out = (self.accuracy < low - 1e-12) | (self.accuracy > high + 1e-12)
        return float(self.weight @ out / self.weight.sum())


@of_predictions
def corp_reliability(
    p: Predictions,
    *,
    of_class: int | None = None,
    band: Band = "consistency",
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> CorpReliability:
    """Accuracy as a rising function of confidence, without bins: the numbers of a CORP reliability diagram.

    It is consistent, optimally binned and reproducible, and needs the pool-adjacent-violators algorithm alone (hence
    the name). The price: errors that fall while confidence rises are smoothed away.

    Parameters
    ----------
    labels, probs, input, sample_weight
        As in `nll`.
    of_class : int, optional
        The probability of this class against all others; 1 for class 1 of two. By default the confidence of
        the most probable class.
    band : {"consistency", "confidence"}
        Where the curve would lie, at each confidence, if the predictions were calibrated; or an interval around the
        curve itself. Labels are drawn from the predictions, or from the curve.
    confidence_level : float
        Level of the band, at each confidence for itself.
    n_resamples, seed : int
        How many draws make the band, and their random seed.

    References
    ----------
    T. Dimitriadis, T. Gneiting, A. I. Jordan, Stable reliability diagrams for probabilistic classifiers, 2021.
    https://doi.org/10.1073/pnas.2016191118

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> curve = corp_reliability([0, 1, 0, 1], probs, n_resamples=50)
    >>> curve.confidence, curve.accuracy
    (array([0.6, 0.7, 0.8, 0.9]), array([0.5, 0.5, 1. , 1. ]))
    """
    fraction("confidence_level", confidence_level)
    one_of("band", band, get_args(Band))
    whole("n_resamples", n_resamples, at_least=2)
    whole("seed", seed, at_least=0)
    if of_class is not None:
        whole("of_class", of_class, at_least=0)
        if of_class >= p.n_classes:
            raise InputError(f"of_class={of_class!r}: expected a class from 0 to {p.n_classes - 1}", param="of_class")
    confidence, right = p.top if of_class is None else p.of_class(int(of_class))
    samples = Recalibration.of(confidence)
    accuracy = samples.fit(right, p.weights)
    shown = np.unique(np.linspace(0, len(accuracy) - 1, MOST_POINTS).round().astype(np.intp))
    chance = confidence if band == "consistency" else accuracy[samples.place]
    rng = np.random.default_rng(seed)
    drawn = np.empty((n_resamples, len(shown)))
    for row in drawn:
        row[:] = samples.fit((rng.random(len(chance)) < chance).astype(np.float64), p.weights)[shown]
    low, high = np.quantile(drawn, [(1 - confidence_level) / 2, (1 + confidence_level) / 2], axis=0)
    if band == "confidence":
        low, high = np.minimum(low, accuracy[shown]), np.maximum(high, accuracy[shown])
    weight = np.bincount(samples.place, p.weights).astype(np.float64)
    return CorpReliability(samples.distinct, weight, accuracy, band, samples.distinct[shown], low, high)
