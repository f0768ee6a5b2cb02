"""Bins of probability: the table of sums that every calibration error in bins is a function of.

For each bin a table has the sums of the weights, of the probabilities, and of the outcomes, which are 1 where the class
is the label. `error_of` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attemper._typing import Floats
from attemper.data.arrays import row_slices
from attemper.errors import InputError, check_number
from attemper.metrics.predictions import Predictions

MAX_BINS = 100_000
FEW_BINS = 40

Strategy = Literal["uniform", "quantile"]
Kind = Literal["top", "classwise", "full", "binary", "top_label"]
Norm = float | Literal["max"]

BY_CLASS = ("classwise", "top_label")  # one table for each class
ALL_CLASSES = ("classwise", "full")  # a sample is one pair for each class


def one_of(name: str, value: Any, options: Any) -> None:
    """Reject what is none of the options."""
    if value not in options:
        raise InputError(f"{name}={value!r}: expected one of {', '.join(map(repr, options))}", name)


def checked_kind(p: Predictions, kind: str | None, kinds: Any) -> Any:
    """Return which pairs a calibration error is of; by default one column is the positive class."""
    if kind is None:
        return "binary" if p.one_column else "top"
    one_of("kind", kind, kinds)
    if kind == "binary" and p.n_classes != 2:
        raise InputError(f"kind='binary': expected two classes, got {p.n_classes}.", "kind")
    return kind


class Binned:
    """The (probability, right or wrong) pairs of some predictions, put into bins of probability.

    Where the bins lie depends on the predictions' own weights; the sums are of any others, so that
    resampling leaves the bins in place. A cell is a bin of a table; there is one table, or one for each class.
    """

    def __init__(self, p: Predictions, kind: Kind | None, n_bins: int, strategy: Strategy) -> None:
        one_of("strategy", strategy, get_args(Strategy))
        check_number(n_bins, "n_bins", 1, MAX_BINS, whole=True)
        self.p, self.n_bins = p, int(n_bins)
        self.kind: Kind = checked_kind(p, kind, get_args(Kind))
        n_tables = p.n_classes if self.kind in BY_CLASS else 1
        self.n_cells = n_tables * self.n_bins
        if strategy == "uniform":
            width = np.arange(self.n_bins + 1) / self.n_bins  # `numpy.linspace` misses some by a rounding
            self.edges: Floats = np.tile(width, (n_tables, 1))  # a row for each table
        else:
            self.edges = np.array([_quantile_edges(*self._of_table(k), self.n_bins) for k in range(n_tables)])

    def _of_table(self, k: int) -> tuple[Floats, Floats]:
        """Return the probabilities in a table, and their weights."""
        p = self.p
        if self.kind == "full":
            return np.minimum(p.probs.ravel().astype(np.float64), 1.0), np.repeat(p.weights, p.n_classes)
        if self.kind == "top_label":
            return p.confidence[p.prediction == k], p.weights[p.prediction == k]
        confidence, _ = p.top if self.kind == "top" else p.of_class(1 if self.kind == "binary" else k)
        return confidence, p.weights

    def blocks(self) -> Iterator[tuple[Floats, Floats, NDArray[np.intp]]]:
        """Return probability, outcome and cell of every sample; with pairs of all classes for each class in turn."""
        p = self.p
        if self.kind in ALL_CLASSES:
            for k in range(p.n_classes):
                confidence, right = p.of_class(k)
                yield confidence, right, self._cells(confidence, k if self.kind == "classwise" else 0)
        else:
            confidence, right = p.of_class(1) if self.kind == "binary" else p.top
            yield confidence, right, self._cells(confidence, p.prediction if self.kind == "top_label" else 0)

    def _cells(self, confidence: Floats, table: Any) -> NDArray[np.intp]:
        """Cell of each probability: its bin (lo, hi] in a table, or in one for each. The first bin takes 0 too."""
        inner = self.edges[0 if np.ndim(table) else table, 1:-1]
        if np.ndim(table) and not (self.edges == self.edges[0]).all():
            found = np.empty(len(confidence), dtype=np.intp)
            for rows in row_slices(len(confidence), self.n_bins):
                found[rows] = (self.edges[table[rows], 1:-1] < confidence[rows, None]).sum(axis=1)
        elif len(inner) > FEW_BINS:
            found = np.searchsorted(inner, confidence, side="left")
        else:
            few = np.zeros(len(confidence), dtype=np.uint8)
            for edge in inner:  # faster than a search, which jumps
                few += confidence > edge
            found = few.astype(np.intp)
        return np.asarray(table * self.n_bins + found)

    def sums(self, w: Floats) -> Floats:
        """Per cell the sums of weight, confidence and right answers, 3×cells×B for weights N×B."""
        return np.asarray(sum(self._sums(*block, w) for block in self.blocks()))

    def _sums(self, confidence: Floats, right: Floats, cells: NDArray[np.intp], w: Floats) -> Floats:
        if w.shape[1] == 1:
            columns = (w[:, 0], confidence * w[:, 0], right * w[:, 0])
            return np.stack([np.bincount(cells, column, self.n_cells) for column in columns])[..., None].astype(float)
        order = np.argsort(cells.astype(np.min_scalar_type(self.n_cells)), kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=self.n_cells))])
        columns = (np.ones_like(confidence), confidence[order], right[order])
        shape = (self.n_cells, len(confidence))
        return np.stack([csr_array((column, order, starts), shape) @ w for column in columns])

    def drawn(self, rng: np.random.Generator, count: int, w: Floats) -> Floats:
        """Return the sums of weights N if predictions were calibrated, ``count`` times: 3×cells×count."""
        weight, sum_confidence, _ = self.sums(w[:, None])
        if self.kind in ALL_CLASSES and self.p.clusters is None:  # a drawn label is right in one cell alone
            found = []
            for y in self.p.draw_labels(rng, count):
                c = np.minimum(self.p.probs[np.arange(len(y)), y].astype(np.float64), 1.0)
                found.append(np.bincount(self._cells(c, y if self.kind == "classwise" else 0), w, self.n_cells))
            right = np.stack(found, axis=1)
        else:
            outcomes, shape, rows = self.p.drawing(rng, count), (self.n_cells, len(w)), np.arange(len(w))
            blocks = self.blocks()
            right = sum(csr_array((w, (cells, rows)), shape) @ outcomes(c, is_right) for c, is_right, cells in blocks)
        return np.stack(np.broadcast_arrays(weight, sum_confidence, right))


def error_of(sums: Floats, norm: Norm = 1, *, debiased: bool = False) -> Floats:
    """Error of each column of the sums of weight, confidence and right predictions, 3×cells×B."""
    weight, confidence, right = sums
    gap = np.abs(right - confidence) / np.where(weight > 0, weight, 1.0)  # 0 in an empty bin
    if norm == "max":
        return np.asarray(gap.max(axis=0))
    power = gap**norm
    if debiased:
        n = np.where(weight > 1, weight, 2.0)
        power = np.where(weight > 1, power - right / n * (1 - right / n) / (n - 1), 0.0)
    total = weight.sum(axis=0)
    mean = (weight * power).sum(axis=0) / np.where(total > 0, total, 1.0)
    return np.asarray(np.maximum(mean, 0.0) ** (1 / norm))


def _quantile_edges(confidence: Floats, weights: Floats, n_bins: int) -> Floats:
    """Upper edges are the largest confidence of each bin; equal confidences share one.

    They go, together, where the middle of their mass lies: neither their order nor a
    weight written as repeats makes a difference.
    """
    if not len(confidence):  # no sample is predicted to be of this class
        return np.arange(n_bins + 1) / n_bins
    order = np.lexsort((weights, confidence))
    distinct, first = np.unique(confidence[order], return_index=True)
    reached = np.cumsum(weights[order])
    after = reached[np.append(first[1:], len(order)) - 1]
    before = np.append(0.0, after[:-1])
    bins = np.floor((before + after) * n_bins / (2 * after[-1]))
    count = np.searchsorted(bins, np.arange(1, n_bins), side="left")  # distinct values below each edge
    return np.concatenate([[0.0], np.append(0.0, distinct)[count], [1.0]])
