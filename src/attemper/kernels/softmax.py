"""Softmax without overflow, underflow or cancellation.

Every row is split into its largest logit and the others. With d = h − max(h),
the largest contributes exp(0) = 1 exactly, and with R = Σ exp(β d) over the
others::

    log Σ exp(β d) = log1p(R)
    log S_max      = −log1p(R)
    log(1 − S_max) = log R − log1p(R)

so a probability is never subtracted from one. Every other class has S ≤ 1/2,
where log1p(−S) is accurate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats

# Stands for −inf: exp() of it is 0 at every temperature, and 0 · BOTTOM is 0 where 0 · −inf is NaN.
BOTTOM = -1e100

SHORT = 32  # rows of which the largest element is found faster column by column
LOWEST = -700.0  # exponents below it count as it: their exponentials are nothing beside 1, but denormals are slow


class Split(NamedTuple):
    """Rows of logits, split into the largest and the others."""

    d: Floats  # h − max(h); BOTTOM in the column of the maximum and where a class is masked
    top: NDArray[np.intp]  # column of the maximum (the first, if several tie)
    possible: NDArray[np.intp] | None  # number of classes not masked in each row; None: all are possible
    deepest: float  # the least d that is not BOTTOM

    def gap(self, y: NDArray[np.int64]) -> Floats:
        """h_y − max(h), which is 0 where the label is the maximum."""
        return np.where(y == self.top, 0.0, self.d[np.arange(len(y)), y])


def split(h: NDArray[Any], masked: bool) -> Split:
    """Split rows of logits into the largest and the others."""
    n = np.arange(len(h))
    top = h.argmax(axis=1)
    d = h.astype(np.float64)
    d -= d[n, top][:, None]
    possible = None
    if masked:
        possible = np.isfinite(d).sum(axis=1)
        np.maximum(d, BOTTOM, out=d)
    deepest = float(d.min() if possible is None else d.min(where=d > BOTTOM, initial=0.0))
    d[n, top] = BOTTOM
    return Split(d, top, possible, deepest)


def rest(rows: Split, beta: float, out: Floats | None = None) -> tuple[Floats, Floats]:
    """exp(β d) and R, its sum over all classes but the largest."""
    e = powers(rows.d, beta, rows.deepest, out)
    return e, np.einsum("ik->i", e)  # faster than `sum` where rows are short, and no threads of BLAS beside our own


def powers(d: Floats, beta: float, deepest: float, out: Floats | None = None) -> Floats:
    """exp(β d), never a denormal number; ``deepest`` is the least d that is not BOTTOM."""
    e = np.multiply(d, beta, out=out)
    if beta * deepest < LOWEST:
        np.maximum(e, LOWEST, out=e)
    return np.asarray(np.exp(e, out=e))


def log_rest(rows: Split, beta: float, total: Floats) -> Floats:
    """Log R, also where R itself underflows; −inf only where no other class is possible."""
    small = total < 1e-280
    if not small.any():
        return np.asarray(np.log(total))
    d = rows.d[small]
    second = d.max(axis=1)
    out = np.log(np.where(small, 1.0, total))
    with np.errstate(divide="ignore"):
        scaled = np.exp(beta * (d - second[:, None])) * (d > BOTTOM)
        out[small] = beta * second + np.log(scaled.sum(axis=1))
    return np.asarray(out)


def row_max(z: Floats) -> Floats:
    """Largest of each row. NumPy takes rows one by one, which is slow where they are short."""
    return np.asarray(z.max(axis=1) if z.shape[1] > SHORT else np.ascontiguousarray(z.T).max(axis=0))
