"""Few points that stand for many: Gauss rules and quantiles of weighted points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh_tridiagonal

from attemper._typing import Floats

__all__ = ["gauss", "quantiles"]


def gauss(x: Floats, w: Floats, count: int) -> tuple[Floats, Floats]:
    """Gauss quadrature of a discrete measure: ``count`` nodes that stand for all its points (Golub and Welsch 1969)."""
    keep = w > 1e-14 * w.max()
    x, w = x[keep], w[keep]
    centre, scale = (x[0] + x[-1]) / 2, max((x[-1] - x[0]) / 2, 1e-12)
    t = (x - centre) / scale
    q = [np.sqrt(w / w.sum())]
    diagonal, beside = [], []
    for _ in range(min(count, len(x))):  # Lanczos, made orthogonal twice at every step
        r = t * q[-1]
        diagonal.append(float(r @ q[-1]))
        for _ in range(2):
            r = r - np.array(q).T @ (np.array(q) @ r)
        norm = float(np.linalg.norm(r))
        if norm < 1e-10:
            break
        beside.append(norm)
        q.append(r / norm)
    values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside[: len(diagonal) - 1]))
    return centre + scale * values, w.sum() * vectors[0] ** 2


def quantiles(x: Floats, w: Floats, p: Sequence[float]) -> Floats:
    """Quantiles of the points ``x``, ascending, with weights ``w``."""
    return np.asarray(np.interp(p, (np.cumsum(w) - w / 2) / w.sum(), x))
