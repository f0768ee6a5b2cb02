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
from attemper.kernels.ladder import Rung, ladder
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


class _Climber:
    """R, the sum of exp(β d) over all classes but the largest, at one β after the other.

    Once R was asked for at β / s, s being a whole number, the exponentials are those of β / s, whose s-th powers are
    those of β.
    """

    def __init__(self, rows: Rows) -> None:
        # Few classes are added up faster one by one.
        self.narrow = rows.d.shape[1] < SHORT
        self.d = np.ascontiguousarray(rows.d.T) if self.narrow else rows.d
        self.e, self.other = np.empty_like(self.d), np.empty_like(self.d)
        self.powers: list[Floats] = []  # exp(step · d), its square, the square of that …
        self.s, self.climbed_with = 1, 0
        self.beta = 0.0

    def rest(self, beta: float) -> Floats:
        """R at any β."""
        return self._add(self._exp(beta, self.other))

    def climb(self, rung: Rung) -> Floats:
        """R at the next β."""
        self.beta = rung.beta
        if rung.jump == 0 or self.climbed_with != self.s:
            self._exp(rung.beta / self.s, self.e)
            self.powers, self.climbed_with = [], self.s
        else:
            for bit in range(rung.jump.bit_length()):
                if len(self.powers) <= bit:
                    power = np.empty_like(self.d)
                    self.powers.append(
                        self._exp(rung.step / self.s, power) if bit == 0 else np.square(self.powers[bit - 1], out=power)
                    )
                if rung.jump >> bit & 1:
                    self.e *= self.powers[bit]
        if self.s == 1:
            return self._add(self.e)
        whole = np.multiply(self.e, self.e, out=self.other)
        for _ in range(self.s - 2):
            whole *= self.e
        return self._add(whole)

    def softer(self, softening: float) -> Floats:
        """R at the last β, divided by ``softening``."""
        if softening == self.s:
            return self._add(self.e)
        if softening in (2, 3, 4) and self.s == 1:
            self.s = int(softening)
        return self.rest(self.beta / softening)

    def _exp(self, beta: float, out: Floats) -> Floats:
        np.multiply(self.d, beta, out=out)
        return np.exp(out, out=out)

    def _add(self, e: Floats) -> Floats:
        return np.asarray(np.add.reduce(e, axis=0) if self.narrow else np.einsum("ik->i", e))


class _Node:
    def __init__(self, chunk: _Chunk, climber: _Climber, rung: Rung) -> None:
        self.chunk, self.climber, self.beta = chunk, climber, rung.beta
        self.log_uniform = chunk.log_uniform
        self.total = climber.climb(rung)

    def log_label(self, softening: float) -> Floats:
        return np.asarray(self.beta / softening * self.chunk.gap - np.log(1 + self.climber.softer(softening)))

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
    chunk, climber = _Chunk(rows, y, w, thetas, odds, unit, rows.gap(y)), _Climber(rows)
    confidence = chunk.add(1 / (1 + climber.rest(1 / unit)))
    correct, gap_sum = chunk.add(chunk.gap == 0), chunk.add(chunk.gap)
    rungs, back = ladder(betas)
    table = []
    for rung in rungs:
        node = _Node(chunk, climber, rung)
        nll = chunk.add_log1p(node.total) - rung.beta * gap_sum
        table.append(np.concatenate([[nll], *(kernel(node) for kernel in kernels)]))
    columns = np.array(table[::-1]) if back is None else back @ np.array(table)
    return np.hstack([np.tile([correct, confidence], (len(betas), 1)), columns])


def confidences(h: NDArray[Any], y: NDArray[np.int64], w: Floats | None, masked: bool, betas: Floats) -> Floats:
    """Weight of the correct rows, and the sum of the largest probabilities at each β."""
    rows = split(h, masked)
    buffer = np.empty_like(rows.d)
    columns = [rows.gap(y) == 0, *(1 / (1 + rest(rows, beta, buffer)[1]) for beta in betas)]
    return np.array([np.sum(column) if w is None else w @ column for column in columns], dtype=np.float64)
