"""The table of a sketch: sums over the rows of one chunk, at one β after the other.

Each block of columns is a kernel, a function of the `Node` that holds what is known at one β.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels import attended
from attemper.kernels.softmax import SHORT, powers, rest, split

MOST_FACTORS, LARGEST = 64, 290 * np.log(10)  # of a product whose logarithm is taken: how many, and of how many nats


class Node:
    """The rows of a chunk at one β, with R: the sum of exp(β d) over all classes but the largest.

    A kernel may use `noisy` and `attended`, which on a GPU are of all β, one row each.
    """

    beta: float
    total: Floats  # R

    def __init__(
        self, h: NDArray[Any], y: NDArray[np.int64], w: Floats | None, masked: bool, thetas: Floats, odds: Floats,
        unit: float,
    ) -> None:  # fmt: skip
        self.rows = split(h, masked)
        self.y, self.w, self.thetas, self.odds, self.unit = y, w, thetas, odds, unit
        self.gap = self.rows.gap(y)
        possible = h.shape[1] if self.rows.possible is None else self.rows.possible
        self.log_uniform = np.full(len(y), -np.log(possible))
        self.pairs: dict[bool, attended.Pairs] = {}
        self.narrow = h.shape[1] < SHORT  # few classes are added up faster one by one
        self.d = np.ascontiguousarray(self.rows.d.T) if self.narrow else self.rows.d
        self.buffer = np.empty_like(self.d)

    def add(self, values: Any) -> float:
        """Sum over the rows."""
        return float(np.sum(values) if self.w is None else self.w @ values)

    def at(self, beta: float) -> Node:
        """Go to another β."""
        e = powers(self.d, beta, self.rows.deepest, self.buffer)
        self.beta, self.total = beta, np.add.reduce(e, axis=0) if self.narrow else np.einsum("ik->i", e)
        return self

    def noisy(self) -> Floats:
        """Σ log(S_y + r / K) for each of the odds r, K without classes that are masked; one column each."""
        log_f = self.log_uniform
        if self.w is not None:
            return log_likelihood(self.beta * self.gap - np.log1p(self.total), log_f, self.w, self.odds)
        q = np.exp(np.maximum(self.beta * self.gap - log_f, -700.0)) / (1 + self.total)
        return np.asarray(log_f.sum() + sum_log_plus(q, self.odds))

    def attended(self, *, reference: bool = False) -> Floats:
        """Terms of Eq. (8), or those of the authors' code; one column for each θ-bin."""
        rows, y = self.rows, self.y
        if reference not in self.pairs:
            pairs = attended.pairs(rows, y, self.w, self.thetas, reference=reference, unit=self.unit)
            self.pairs[reference] = pairs
        return attended.terms(rows, y, self.pairs[reference], self.beta, self.total, reference=reference)


def tabulate(
    h: NDArray[Any], y: NDArray[np.int64], w: Floats | None, masked: bool, betas: Floats, thetas: Floats, odds: Floats,
    unit: float, kernels: Sequence[Callable[[Node], Any]],
) -> Floats:  # fmt: skip
    """Columns (correct weight, confidence at T = ``unit``, NLL, those of each kernel …), one row for each β."""
    chunk = Node(h, y, w, masked, thetas, odds, unit)
    confidence = chunk.add(1 / (1 + chunk.at(1 / unit).total))
    correct, gap_sum = chunk.add(chunk.gap == 0), chunk.add(chunk.gap)
    table = []
    for beta in betas.tolist():
        nll = chunk.add(np.log1p(chunk.at(beta).total)) - beta * gap_sum
        table.append(np.concatenate([[correct, confidence, nll], *(kernel(chunk) for kernel in kernels)]))
    return np.array(table)


def confidences(h: NDArray[Any], y: NDArray[np.int64], w: Floats | None, masked: bool, betas: Floats) -> Floats:
    """Weight of the correct rows, and the sum of the largest probabilities at each β."""
    rows = split(h, masked)
    buffer = np.empty_like(rows.d)
    columns = [rows.gap(y) == 0, *(1 / (1 + rest(rows, beta, buffer)[1]) for beta in betas)]
    return np.array([np.sum(column) if w is None else w @ column for column in columns], dtype=np.float64)


def log_likelihood(log_s: Floats, log_f: Floats, w: Floats | None, odds: Floats) -> Floats:
    """Σ_i log(S_i + r F_i) for each r of ``odds``; nothing underflows."""
    top = np.maximum(log_s, log_f)
    value = np.exp(log_s - top)[:, None] + np.exp(log_f - top)[:, None] * odds
    np.log(value, out=value)
    value += top[:, None]
    return np.asarray(value.sum(axis=0) if w is None else w @ value)


def sum_log_plus(q: Floats, odds: Floats) -> Floats:
    """Σ_i log(q_i + r) for each r > 0 of ``odds``, and q ≥ 0, as logarithms of a few products.

    The product of four factors is a polynomial in r with coefficients that are not negative. One product of matrices
    evaluates it for all r. All factors are positive, so that nothing cancels.

    >>> sum_log_plus(np.array([1.0, 3.0]), np.array([1.0]))
    array([2.07944154])
    """
    centre = np.sqrt(odds * (odds + q.max(initial=0.0)))  # factors (q + r) / centre lie around 1
    spread = float(np.log(centre / odds).max())
    quads = max(1, min(MOST_FACTORS, int(LARGEST / max(spread, 1e-300))) // 4)  # in one product
    missing = -len(q) % (4 * quads)
    a, b, c, d = (np.concatenate([q, np.zeros(missing)]) if missing else q).reshape(4, -1)
    s, p, t, u = a + b, a * b, c + d, c * d
    polynomials = np.stack([np.ones_like(s), s + t, p + u + s * t, s * u + p * t, p * u])
    powers_of_r = (odds / centre)[:, None] ** 4 * odds[:, None] ** -np.arange(5.0)
    value = (powers_of_r @ polynomials).reshape(len(odds), quads, -1)
    logs = np.log(np.multiply.reduce(value, axis=1)).sum(axis=1)
    return np.asarray(logs + len(q) * np.log(centre) - missing * np.log(odds / centre))
