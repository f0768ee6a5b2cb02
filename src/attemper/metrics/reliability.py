"""Reliability tables: confidence beside accuracy, bin by bin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attemper._checks import fraction, one_of, whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import one_line, row_slices
from attemper.errors import InputError, setting
from attemper.metrics.intervals import effective, wilson
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions

__all__ = [
    "MAX_BINS",
    "Binned",
    "Bins",
    "Kind",
    "Reliability",
    "Strategy",
    "bin_sums",
    "bins_of",
    "check_bins",
    "reliability",
]

MAX_BINS = 100_000
FEW_BINS = 40

Strategy = Literal["uniform", "quantile"]
Kind = Literal["top", "classwise", "full"]
Bins = int | Literal["auto"]


@dataclass(frozen=True, eq=False, repr=False)
class Reliability:
    """Bins (lo, hi] of confidence; arrays have one entry per bin, one row per class if class-wise.

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
    def of_sums(cls, edges: Floats, sums: Floats, confidence_level: float) -> Reliability:
        """Make the table of `bin_sums`, (classes×) 3×bins×2, for the weights and for their squares."""
        weight, confidence, right = np.moveaxis(sums[..., 0], -2, 0)
        n = np.where(weight > 0, weight, np.nan)
        worth = n / sums[..., 0, :, 1]  # samples that a unit of weight is worth in the bin
        low, high = wilson(right * worth, n * worth, confidence_level)
        return cls(edges, weight, confidence / n, right / n, low, high)

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
    kind : {"top", "classwise", "full"}
        Which (probability, right or wrong) pairs are binned: of the most probable class;
        of each class for itself; of all classes together.
    n_bins : int or "auto"
        Number of bins; "auto" as in `ece`.
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal weight. Equal confidences are never divided between
        bins, so with ties the weights are only nearly equal and some bins may be empty.
    confidence_level : float
        Level of the Wilson interval of each bin's accuracy. Samples with weights count as their effective number
        (Kish): weights that differ widen it.

    Examples
    --------
    >>> table = reliability([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], n_bins=2)
    >>> table.edges, table.weight, table.accuracy.round(3)
    (array([0. , 0.5, 1. ]), array([0., 3.]), array([  nan, 0.667]))
    """
    fraction("confidence_level", confidence_level)
    binned = Binned(p, kind, n_bins, strategy)
    sums = np.array(list(binned.sums(np.stack([p.weights, p.weights**2], axis=1))))  # groups × 3 × bins × 2
    edges = binned.edges
    if kind != "classwise":
        sums, edges = sums[0], edges[0]
    return Reliability.of_sums(edges, sums, confidence_level)


class Binned:
    """The (probability, right or wrong) pairs of some predictions, put into bins of probability.

    Where the bins lie depends on the predictions' own weights; the sums are of any others, so that
    resampling leaves the bins in place.
    """

    def __init__(self, p: Predictions, kind: Kind, n_bins: Bins, strategy: Strategy) -> None:
        n_bins = _count_bins(n_bins, p.weights)
        one_of("strategy", strategy, get_args(Strategy))
        one_of("kind", kind, get_args(Kind))
        self.p: Predictions = p
        self.kind: Kind = kind
        edges: list[Floats]
        if strategy == "uniform":
            edges = [np.arange(n_bins + 1) / n_bins] * (p.n_classes if kind == "classwise" else 1)
        elif kind == "full":
            pooled = np.minimum(p.probs.ravel().astype(np.float64), 1.0)
            edges = [_quantile_edges(pooled, np.repeat(p.weights, p.n_classes), n_bins)]
        else:
            edges = [_quantile_edges(confidence, p.weights, n_bins) for confidence, _ in self.pairs()]
        self.edges: Floats = np.array(edges)  # a row for each table of `sums`

    def sums(self, w: Floats) -> Iterator[Floats]:
        """Per bin the sums of weight, confidence and right answers, 3×bins×B for weights N×B.

        One table; with class-wise pairs one for each class.
        """
        if self.kind == "full":
            yield np.sum([bin_sums(c, r, self.edges[0], w) for c, r in self.pairs()], axis=0)
        else:
            for (confidence, right), edges in zip(self.pairs(), self.edges):
                yield bin_sums(confidence, right, edges, w)

    def drawn(self, rng: np.random.Generator, count: int, w: Floats, tables: Sequence[Floats]) -> Iterator[Floats]:
        """Return the sums of weights N, ``tables``, with labels drawn from the predictions, ``count`` times."""
        n_bins = self.edges.shape[1] - 1
        if self.kind == "top":
            confidence = self.p.top[0]
            place = bins_of(confidence, self.edges[0])
            adding = csr_array((w, (place, np.arange(len(w)))), (n_bins, len(w)))
            right = np.asarray(adding @ (rng.random((count, len(w))) < confidence).T)[None]
        else:
            # A drawn label is right in the cell of its class, and there alone.
            size = len(tables) * n_bins
            found = [np.bincount(self._cells(y), w, minlength=size) for y in self.p.draw_labels(rng, count)]
            right = np.stack(found, axis=1).reshape(len(tables), n_bins, count).astype(np.float64)
        for (weight, confidence, _), hits in zip(tables, right):
            yield np.stack(np.broadcast_arrays(weight[:, None], confidence[:, None], hits))

    def _cells(self, labels: Labels) -> NDArray[np.intp]:
        """Cell of each sample with this label: the bin of the label's probability, in the table of its class."""
        c = np.minimum(self.p.probs[np.arange(len(labels)), labels].astype(np.float64), 1.0)
        n_bins = self.edges.shape[1] - 1
        table = labels if len(self.edges) > 1 else np.zeros_like(labels)
        if (self.edges == self.edges[0]).all():
            return np.asarray(table * n_bins + bins_of(c, self.edges[0]))
        cells: NDArray[np.intp] = table * n_bins
        for rows in row_slices(len(c), n_bins):
            cells[rows] += (self.edges[labels[rows], 1:-1] < c[rows, None]).sum(axis=1)
        return cells

    def pairs(self) -> Iterator[tuple[Floats, Floats]]:
        """Return the probabilities and outcomes of all samples; with class-wise or pooled pairs one for each class."""
        if self.kind == "top":
            return iter([self.p.top])
        return (self.p.of_class(k) for k in range(self.p.n_classes))


def check_bins(n_bins: int) -> None:
    """Reject what is no number of bins."""
    whole("n_bins", n_bins, at_most=MAX_BINS)


def bins_of(confidence: Floats, edges: Floats) -> NDArray[np.intp]:
    """Bin (lo, hi] of each confidence. The first bin takes 0 too, the last all that is left."""
    inner = edges[1:-1]
    if len(inner) > FEW_BINS:
        return np.searchsorted(inner, confidence, side="left")
    found = np.zeros(len(confidence), dtype=np.uint8)
    for edge in inner:  # faster than a search, which jumps
        found += confidence > edge
    return found.astype(np.intp)


def _count_bins(n_bins: Bins, weights: Floats) -> int:
    """Return the number of bins; "auto" is the cube root of the number of samples, and depends on no label."""
    if isinstance(n_bins, str):
        if n_bins != "auto":
            raise InputError(f"{setting('n_bins', n_bins)}: expected a whole number or 'auto'")
        return min(max(1, round(math.cbrt(effective(weights)))), MAX_BINS)
    check_bins(n_bins)
    return n_bins


def bin_sums(confidence: Floats, right: Floats, edges: Floats, w: Floats) -> Floats:
    """Per bin the sums of weight, confidence and right answers, 3×bins×B for weights N×B."""
    n_bins, bins = len(edges) - 1, bins_of(confidence, edges)
    if w.shape[1] == 1:
        columns = (w[:, 0], confidence * w[:, 0], right * w[:, 0])
        sums = np.stack([np.bincount(bins, column, n_bins) for column in columns])
        return sums.astype(np.float64, copy=False)[..., None]
    order = np.argsort(bins.astype(np.min_scalar_type(n_bins)), kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(bins, minlength=n_bins))])
    shape = (n_bins, len(confidence))
    columns = (np.ones_like(confidence), confidence[order], right[order])
    return np.stack([csr_array((column, order, starts), shape) @ w for column in columns])


def _quantile_edges(confidence: Floats, weights: Floats, n_bins: int) -> Floats:
    """Upper edges are the largest confidence of each bin; equal confidences share one.

    They go, together, where the middle of their mass lies: neither their order nor a
    weight written as repeats makes a difference.
    """
    order = np.lexsort((weights, confidence))
    distinct, first = np.unique(confidence[order], return_index=True)
    reached = np.cumsum(weights[order])
    after = reached[np.append(first[1:], len(order)) - 1]
    before = np.append(0.0, after[:-1])
    bins = np.floor((before + after) * n_bins / (2 * after[-1]))
    count = np.searchsorted(bins, np.arange(1, n_bins), side="left")  # distinct values below each edge
    inner = np.append(0.0, distinct)[count]
    return np.concatenate([[0.0], inner, [1.0]])
