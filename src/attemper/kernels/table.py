"""The table of a sketch: sums over the rows of one chunk, at one β after the other.

Each block of columns is a kernel, a function of the `Node` that holds what is known at one β.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels import attended, noisy
from attemper.kernels.products import sum_log1p, sum_log_plus
from attemper.kernels.softmax import SHORT, Rows, rest, split

__all__ = ["Node", "confidences", "tabulate"]


class Node(Protocol):
    """What a kernel may use: the rows of a chunk at one β (NumPy), or at all of them (a GPU, one row each)."""

    @property
    def log_uniform(self) -> Any:
        """Log of 1/K, or of 1 over the number of classes that are not masked."""

    def log_label(self, softening: float) -> Any:
        """Log of the label's probability at ``softening`` times the temperature."""

    def noisy(self, log_f: Any) -> Any:
        """Σ log(S_y + r F) for each of the odds r; one column each."""

    def attended(self, *, reference: bool = False) -> Any:
        """Terms of Eq. (8), or those of the authors' code; one column for each θ-bin."""


@dataclass(eq=False)
class _Chunk:
    rows: Rows
    y: NDArray[np.int64]
    w: Floats | None
    thetas: Floats
    odds: Floats
    unit: float
    gap: Floats
    pairs: dict[bool, attended.Pairs] = field(default_factory=dict)

    def add(self, values: Any) -> float:
        return float(np.sum(values) if self.w is None else self.w @ values)

    def add_log1p(self, values: Floats) -> float:
        return sum_log1p(values) if self.w is None else self.add(np.log1p(values))

    @cached_property
    def log_uniform(self) -> Floats:
        rows = self.rows
        possible = rows.d.shape[1] if rows.possible is None else rows.possible
        return np.full(len(self.y), -np.log(possible))


class _Rest:
    """R, the sum of exp(β d) over all classes but the largest, at any β."""

    def __init__(self, rows: Rows) -> None:
        # Few classes are added up faster one by one.
        self.narrow = rows.d.shape[1] < SHORT
        self.d = np.ascontiguousarray(rows.d.T) if self.narrow else rows.d
        self.e = np.empty_like(self.d)

    def __call__(self, beta: float) -> Floats:
        np.multiply(self.d, beta, out=self.e)
        np.exp(self.e, out=self.e)
        return np.asarray(np.add.reduce(self.e, axis=0) if self.narrow else np.einsum("ik->i", self.e))


class _Node:
    def __init__(self, chunk: _Chunk, rest_at: _Rest, beta: float) -> None:
        self.chunk, self.rest_at, self.beta = chunk, rest_at, beta
        self.log_uniform = chunk.log_uniform
        self.total = rest_at(beta)

    def log_label(self, softening: float) -> Floats:
        beta = self.beta / softening
        return np.asarray(beta * self.chunk.gap - np.log(1 + self.rest_at(beta)))

    def noisy(self, log_f: Floats) -> Floats:
        c = self.chunk
        if c.w is not None:
            return noisy.log_likelihood(self.beta * c.gap - np.log1p(self.total), log_f, c.w, c.odds)
        q = np.exp(self.beta * c.gap - log_f) / (1 + self.total)
        return np.asarray(log_f.sum() + sum_log_plus(q, c.odds))

    def attended(self, *, reference: bool = False) -> Floats:
        c = self.chunk
        if reference not in c.pairs:
            c.pairs[reference] = attended.pairs(c.rows, c.y, c.w, c.thetas, reference=reference, unit=c.unit)
        return attended.terms(c.rows, c.y, c.w, c.pairs[reference], self.beta, self.total, reference=reference)


def tabulate(
    h: NDArray[Any],
    y: NDArray[np.int64],
    w: Floats | None,
    masked: bool,
    betas: Floats,
    thetas: Floats,
    odds: Floats,
    unit: float,
    kernels: Sequence[Callable[[Node], Any]],
) -> Floats:
    """Columns (correct weight, confidence at T = ``unit``, NLL, those of each kernel …), one row for each β."""
    rows = split(h, masked)
    chunk, rest_at = _Chunk(rows, y, w, thetas, odds, unit, rows.gap(y)), _Rest(rows)
    confidence = chunk.add(1 / (1 + rest_at(1 / unit)))
    correct, gap_sum = chunk.add(chunk.gap == 0), chunk.add(chunk.gap)
    table = []
    for beta in betas.tolist():
        node = _Node(chunk, rest_at, beta)
        nll = chunk.add_log1p(node.total) - beta * gap_sum
        table.append(np.concatenate([[correct, confidence, nll], *(kernel(node) for kernel in kernels)]))
    return np.array(table)


def confidences(h: NDArray[Any], y: NDArray[np.int64], w: Floats | None, masked: bool, betas: Floats) -> Floats:
    """Weight of the correct rows, and the sum of the largest probabilities at each β."""
    rows = split(h, masked)
    buffer = np.empty_like(rows.d)
    columns = [rows.gap(y) == 0, *(1 / (1 + rest(rows, beta, buffer)[1]) for beta in betas)]
    return np.array([np.sum(column) if w is None else w @ column for column in columns], dtype=np.float64)
