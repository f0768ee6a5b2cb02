"""Reliability tables: confidence beside accuracy, bin by bin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attemper._checks import fraction
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.metrics.bins import BY_CLASS, Binned, Bins, Kind, Strategy
from attemper.metrics.intervals import wilson
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions

__all__ = ["Reliability", "reliability"]


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Table):
    """Bins (lo, hi] of confidence; arrays have one entry per bin, one row per class if class-wise or of top labels.

    `reliability` gives it. An empty bin has weight 0 and NaN for the rest.
    """

    __repr__ = one_line

    edges: Floats  # one more than bins
    weight: Floats  # of the samples in the bin
    confidence: Floats  # their mean
    accuracy: Floats  # how often they were right
    low: Floats  # Wilson interval of the accuracy
    high: Floats

    @classmethod
    def of_sums(cls, edges: Floats, sums: Floats, confidence_level: float, design_effect: float = 1.0) -> Reliability:
        """Make the table of `bin_sums`, (classes×) 3×bins×2, for the weights and for their squares.

        ``design_effect`` widens the intervals: so many samples of clusters are worth one that is independent.
        """
        weight, confidence, right = np.moveaxis(sums[..., 0], -2, 0)
        n = np.where(weight > 0, weight, np.nan)
        worth = n / sums[..., 0, :, 1] / design_effect  # samples that a unit of weight is worth in the bin
        low, high = wilson(right * worth, n * worth, confidence_level)
        return cls(edges, weight, confidence / n, right / n, low, high)

    def _table_columns(self) -> Columns:
        n_bins = self.edges.shape[-1] - 1
        found = {
            "bin_low": self.edges[..., :-1],
            "bin_high": self.edges[..., 1:],
            **{name: getattr(self, name) for name in ("weight", "confidence", "accuracy", "low", "high")},
        }
        by_class = {"class": np.repeat(np.arange(len(self.weight)), n_bins)} if self.weight.ndim > 1 else {}
        return by_class | {name: np.ravel(values) for name, values in found.items()}

    def mean(self, values: Floats) -> float:
        """Mean over the samples of values that the bins have: ``mean(abs(accuracy - confidence))`` is the ECE."""
        return float(np.nansum(self.weight * values) / self.weight.sum())


@of_predictions
def reliability(
    p: Predictions,
    *,
    kind: Kind = "top",
    n_bins: Bins = 15,
    strategy: Strategy = "uniform",
    confidence_level: float = 0.95,
) -> Reliability:
    """Confidence and accuracy in bins of confidence: the numbers of a reliability diagram.

    Parameters
    ----------
    labels, probs, input, sample_weight
        As in `nll`.
    kind : {"top", "classwise", "full", "binary", "top_label"}
        Which (probability, right or wrong) pairs are binned, as in `ece`. With "classwise" and "top_label" every array
        has one row for each class. "binary" is the curve of `sklearn.calibration.calibration_curve`.
    n_bins : int or "auto"
        Number of bins; "auto" as in `ece`.
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal weight. Equal confidences are never divided between
        bins, so with ties the weights are only nearly equal and some bins may be empty.
    confidence_level : float
        Level of the Wilson interval of each bin's accuracy. Samples with weights count as their effective number
        (Kish): weights that differ widen it. Samples of one cluster count as one sample of their weight: the interval
        is that of labels that are the same throughout a cluster's part of a bin, which is the widest.

    Examples
    --------
    >>> table = reliability([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], n_bins=2)
    >>> table.edges, table.weight, table.accuracy.round(3)
    (array([0. , 0.5, 1. ]), array([0., 3.]), array([  nan, 0.667]))
    """
    fraction("confidence_level", confidence_level)
    binned = Binned(p, kind, n_bins, strategy)
    sums = np.array(list(binned.sums(np.stack([p.weights, p.weights**2], axis=1))))  # groups × 3 × bins × 2
    if p.clusters is not None:
        sums[:, 0, :, 1] = binned.squares_of_cases()
    edges = binned.edges
    if kind not in BY_CLASS:
        sums, edges = sums[0], edges[0]
    return Reliability.of_sums(edges, sums, confidence_level)
