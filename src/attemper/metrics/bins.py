"""Bins of probability: the table of sums that every calibration error in bins is a function of.

For each bin a table has the sums of the weights, of the probabilities, and of the outcomes, which are 1 where the class
is the label. Tables of parts add up. The functions of `attemper.metrics` and `RunningMetrics` fill such tables, and
`error_of` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attemper._checks import number, one_of, whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices
from attemper.errors import InputError
from attemper.metrics.intervals import effective
from attemper.metrics.predictions import Predictions

__all__ = [
    "BY_CLASS",
    "MAX_BINS",
    "Binned",
    "Bins",
    "Kind",
    "Norm",
    "Strategy",
    "bin_sums",
    "bins_of",
    "check_bins",
    "check_kind",
    "check_norm",
    "error_of",
    "gap_of",
    "n_tables",
    "uniform_edges",
]

MAX_BINS = 100_000
FEW_BINS = 40

Strategy = Literal["uniform", "quantile"]
Kind = Literal["top", "classwise", "full", "binary", "top_label"]
Bins = int | Literal["auto"]
Norm = float | Literal["max"]

KINDS: tuple[Kind, ...] = get_args(Kind)
BY_CLASS = ("classwise", "top_label")  # one table for each class


def check_kind(kind: Any, n_classes: int | None = None) -> None:
    """Reject what is no kind of calibration error, or is none for this number of classes.

    >>> check_kind("top-label")
    Traceback (most recent call last):
    attemper.errors.InputError: kind='top-label': expected one of 'top', 'classwise', 'full', 'binary', 'top_label'. \
Use kind='top_label'.
    """
    plain = "".join(filter(str.isalpha, kind.lower())) if isinstance(kind, str) else ""
    meant = next((name for name in KINDS if name.replace("_", "") == plain), kind)
    try:
        one_of("kind", kind, KINDS)
    except InputError as error:
        raise (error if meant == kind else InputError(f"{error}. Use kind={meant!r}.")) from None
    if kind == "binary" and n_classes not in (None, 2):
        raise InputError(
            f"kind='binary': expected two classes, got {n_classes}. Use kind='classwise' for each class against the "
            "others, or kind='top' for the most probable one."
        )


def check_bins(n_bins: Any) -> int:
    """Return a number of bins, and reject what is none."""
    return whole("n_bins", n_bins, at_most=MAX_BINS)


def check_norm(norm: Any) -> None:
    """Reject what is no power; a higher one of a small gap underflows."""
    if norm in ("l1", "l2"):
        raise InputError(f"norm={norm!r}: expected the power itself. Use norm={norm[1]}.", param="norm")
    if norm != "max":
        number("norm", norm, 1, 64, expected="a number from 1 to 64, or 'max'")


def n_tables(kind: Kind, n_classes: int) -> int:
    """How many tables a kind has."""
    return n_classes if kind in BY_CLASS else 1


def uniform_edges(n_bins: int) -> Floats:
    """Return edges of bins of equal width, each the float next to k / n_bins; `numpy.linspace` misses some."""
    return np.arange(n_bins + 1) / n_bins


class Binned:
    """The (probability, right or wrong) pairs of some predictions, put into bins of probability.

    Where the bins lie depends on the predictions' own weights; the sums are of any others, so that
    resampling leaves the bins in place. A sample is one pair, or one for each class (class-wise and full).
    """

    def __init__(self, p: Predictions, kind: Kind, n_bins: Bins, strategy: Strategy) -> None:
        n_bins = _count_bins(n_bins, p.weights)
        one_of("strategy", strategy, get_args(Strategy))
        check_kind(kind, p.n_classes)
        self.p: Predictions = p
        self.kind: Kind = kind
        self.n_bins = n_bins
        edges: Sequence[Floats]
        if strategy == "uniform":
            edges = [uniform_edges(n_bins)] * n_tables(kind, p.n_classes)
        elif kind == "full":
            pooled = np.minimum(p.probs.ravel().astype(np.float64), 1.0)
            edges = [_quantile_edges(pooled, np.repeat(p.weights, p.n_classes), n_bins)]
        elif kind == "classwise":
            edges = [_quantile_edges(confidence, p.weights, n_bins) for confidence, _ in self.pairs()]
        else:
            [(confidence, _)] = self.pairs()
            edges = [_quantile_edges(confidence[rows], p.weights[rows], n_bins) for rows in self._groups()]
        self.edges: Floats = np.array(edges)  # a row for each table of `sums`

    def sums(self, w: Floats) -> Iterator[Floats]:
        """Per bin the sums of weight, confidence and right answers, 3×bins×B for weights N×B.

        One table; with class-wise pairs, or top labels, one for each class.
        """
        if self.kind == "full":
            yield np.sum([bin_sums(c, r, self.edges[0], w) for c, r in self.pairs()], axis=0)
        elif self.kind == "classwise":
            for (confidence, right), edges in zip(self.pairs(), self.edges):
                yield bin_sums(confidence, right, edges, w)
        else:
            [(confidence, right)] = self.pairs()
            sums = _cell_sums(confidence, right, self._cells, self.n_bins * len(self.edges), w)
            yield from sums.reshape(3, len(self.edges), self.n_bins, -1).swapaxes(0, 1)

    def squares_of_cases(self) -> Floats:
        """Sum the squares of the weight that each case has in a bin: one row for each table of `sums`."""
        case, w = self.p.clusters, self.p.weights
        assert case is not None
        n_cases = int(case.max()) + 1
        weight = np.zeros(len(self.edges) * self.n_bins * n_cases)
        if self.kind in ("classwise", "full"):
            for k, (confidence, _) in enumerate(self.pairs()):
                table = min(k, len(self.edges) - 1)
                cells = table * self.n_bins + bins_of(confidence, self.edges[table])
                weight += np.bincount(cells * n_cases + case, w, len(weight))
        else:
            weight += np.bincount(self._cells * n_cases + case, w, len(weight))
        return np.asarray((weight.reshape(len(self.edges), self.n_bins, n_cases) ** 2).sum(axis=-1))

    def drawn(self, rng: np.random.Generator, count: int, w: Floats, tables: Sequence[Floats]) -> Iterator[Floats]:
        """Return the sums of weights N, ``tables``, with labels drawn from the predictions, ``count`` times."""
        size = len(tables) * self.n_bins
        if self.kind in ("classwise", "full"):
            # A drawn label is right in the cell of its class, and there alone.
            found = [np.bincount(self._cells_of(y), w, minlength=size) for y in self.p.draw_labels(rng, count)]
            right = np.stack(found, axis=1).astype(np.float64)
        else:
            [(confidence, _)] = self.pairs()
            adding = csr_array((w, (self._cells, np.arange(len(w)))), (size, len(w)))
            right = np.asarray(adding @ (rng.random((count, len(w))) < confidence).T)
        for (weight, confidence, _), hits in zip(tables, right.reshape(len(tables), self.n_bins, count)):
            yield np.stack(np.broadcast_arrays(weight[:, None], confidence[:, None], hits))

    @cached_property
    def _cells(self) -> NDArray[np.intp]:
        """Cell of each sample that is one pair: its bin, in the table of its predicted class if there are several."""
        [(confidence, _)] = self.pairs()
        if (self.edges == self.edges[0]).all():
            place = bins_of(confidence, self.edges[0])
        else:
            place = np.empty(len(confidence), dtype=np.intp)
            for rows, edges in zip(self._groups(), self.edges):
                place[rows] = bins_of(confidence[rows], edges)
        return place if len(self.edges) == 1 else self.p.prediction * self.n_bins + place

    def _cells_of(self, labels: Labels) -> NDArray[np.intp]:
        """Cell of each sample with this label: the bin of the label's probability, in the table of its class."""
        c = np.minimum(self.p.probs[np.arange(len(labels)), labels].astype(np.float64), 1.0)
        table = labels if len(self.edges) > 1 else np.zeros_like(labels)
        if (self.edges == self.edges[0]).all():
            return np.asarray(table * self.n_bins + bins_of(c, self.edges[0]))
        cells: NDArray[np.intp] = table * self.n_bins
        for rows in row_slices(len(c), self.n_bins):
            cells[rows] += (self.edges[labels[rows], 1:-1] < c[rows, None]).sum(axis=1)
        return cells

    def _groups(self) -> Iterator[NDArray[np.intp]]:
        """Rows of each table, where a sample is one pair."""
        if self.kind != "top_label":
            return iter([np.arange(len(self.p))])
        order = np.argsort(self.p.prediction, kind="stable")
        return iter(np.split(order, np.searchsorted(self.p.prediction[order], np.arange(1, self.p.n_classes))))

    def pairs(self) -> Iterator[tuple[Floats, Floats]]:
        """Return the probabilities and outcomes of all samples; with class-wise or pooled pairs one for each class."""
        if self.kind in ("top", "top_label"):
            return iter([self.p.top])
        return (self.p.of_class(k) for k in ([1] if self.kind == "binary" else range(self.p.n_classes)))


def bins_of(confidence: Floats, edges: Floats) -> NDArray[np.intp]:
    """Bin (lo, hi] of each confidence. The first bin takes 0 too, the last all that is left."""
    inner = edges[1:-1]
    if len(inner) > FEW_BINS:
        return np.searchsorted(inner, confidence, side="left")
    found = np.zeros(len(confidence), dtype=np.uint8)
    for edge in inner:  # faster than a search, which jumps
        found += confidence > edge
    return found.astype(np.intp)


def bin_sums(confidence: Floats, right: Floats, edges: Floats, w: Floats) -> Floats:
    """Per bin the sums of weight, confidence and right answers, 3×bins×B for weights N×B."""
    return _cell_sums(confidence, right, bins_of(confidence, edges), len(edges) - 1, w)


def _cell_sums(confidence: Floats, right: Floats, cells: NDArray[np.intp], n_cells: int, w: Floats) -> Floats:
    if w.shape[1] == 1:
        columns = (w[:, 0], confidence * w[:, 0], right * w[:, 0])
        sums = np.stack([np.bincount(cells, column, n_cells) for column in columns])
        return sums.astype(np.float64, copy=False)[..., None]
    order = np.argsort(cells.astype(np.min_scalar_type(n_cells)), kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_cells))])
    shape = (n_cells, len(confidence))
    columns = (np.ones_like(confidence), confidence[order], right[order])
    return np.stack([csr_array((column, order, starts), shape) @ w for column in columns])


def error_of(tables: Iterable[Any], norm: Norm = 1, *, debiased: bool = False) -> Any:
    """Error of each column of the tables of weight, confidence and right predictions, 3×bins×B, of any library."""
    total: Any = 0.0
    total_weight: Any = 0.0
    largest: list[Any] = []
    for weight, confidence, right in tables:
        xp = array_api_compat.array_namespace(weight)
        gap = gap_of(weight, confidence, right)
        if norm == "max":
            largest.append(xp.max(gap, axis=0))
            continue
        power = gap**norm
        if debiased:
            many = weight > 1
            n = xp.where(many, weight, 2.0)
            power = xp.where(many, power - right / n * (1 - right / n) / (n - 1), 0.0)
        total = total + xp.sum(weight * power, axis=0)
        total_weight = total_weight + xp.sum(weight, axis=0)
    if norm == "max":
        return xp.max(xp.stack(largest), axis=0)
    mean = total / xp.where(total_weight > 0, total_weight, 1.0)
    return xp.where(mean > 0, mean, 0.0) ** (1 / norm)


def gap_of(weight: Any, confidence: Any, right: Any) -> Any:
    """Accuracy against mean confidence of each bin, from the sums; 0 in an empty bin."""
    xp = array_api_compat.array_namespace(weight)
    return xp.abs(right - confidence) / xp.where(weight > 0, weight, 1.0)


def _count_bins(n_bins: Bins, weights: Floats) -> int:
    """Return the number of bins; "auto" is the cube root of the number of samples, and depends on no label."""
    if isinstance(n_bins, str):
        if n_bins != "auto":
            raise InputError(f"n_bins={n_bins!r}: expected a whole number or 'auto'", param="n_bins")
        return min(max(1, round(math.cbrt(effective(weights)))), MAX_BINS)
    return check_bins(n_bins)


def _quantile_edges(confidence: Floats, weights: Floats, n_bins: int) -> Floats:
    """Upper edges are the largest confidence of each bin; equal confidences share one.

    They go, together, where the middle of their mass lies: neither their order nor a
    weight written as repeats makes a difference.
    """
    if not len(confidence):  # no sample is predicted to be of this class
        return uniform_edges(n_bins)
    order = np.lexsort((weights, confidence))
    distinct, first = np.unique(confidence[order], return_index=True)
    reached = np.cumsum(weights[order])
    after = reached[np.append(first[1:], len(order)) - 1]
    before = np.append(0.0, after[:-1])
    bins = np.floor((before + after) * n_bins / (2 * after[-1]))
    count = np.searchsorted(bins, np.arange(1, n_bins), side="left")  # distinct values below each edge
    inner = np.append(0.0, distinct)[count]
    return np.concatenate([[0.0], inner, [1.0]])
