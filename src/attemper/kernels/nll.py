"""The negative log-likelihood as a function of β = 1/T, and its minimum.

NLL(β) = Σ_i log Σ_j exp(β h_ij) − β h_{i,y_i}      (Eq. 2 at temperature T, Eq. 4)

is convex in β. Its slope is Σ_i E_S[h_i] − h_{i,y_i}, whose zero is Eq. (5),
and its curvature Σ_i Var_S[h_i].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.minimum import Minimum
from attemper.kernels.softmax import BOTTOM, row_max

__all__ = ["BestBeta", "limits", "minimise", "row_terms", "sums"]


MAX_PASSES = 100

# exp(β h) and its products with h² stay well inside the format below these |β h|.
SAFE = {np.dtype(np.float64): 300.0, np.dtype(np.float32): 60.0}


def sums(
    h: NDArray[Any],
    y: NDArray[np.int64],
    w: Floats | None,
    beta: float,
    *,
    bound: float = np.inf,
    masked: bool = False,
) -> Floats:
    """NLL, its slope and its curvature in β, summed over the rows; parameters as in `row_terms`."""
    terms = row_terms(h, y, beta, bound=bound, masked=masked)
    return np.array([t.sum() if w is None else w @ t for t in terms])


def row_terms(
    h: NDArray[Any], y: NDArray[np.int64], beta: float, *, bound: float = np.inf, masked: bool = False
) -> tuple[Floats, Floats, Floats]:
    """NLL, its slope and its curvature in β, of each row.

    Parameters
    ----------
    h : float64 or float32 array; the arithmetic is done in that precision
    bound : no finite |h| is larger; spares the shift by the row maximum where it is not needed
    masked : whether some h are −inf
    """
    label = h[np.arange(len(h)), y]
    if masked or bound * beta > SAFE[h.dtype]:
        top = row_max(h)
        h = h - top[:, None]
        if masked:
            np.maximum(h, h.dtype.type(BOTTOM if h.itemsize == 8 else -1e10), out=h)
        label = label - top
    # Rows of few classes are added up faster class by class. Neither way starts threads of BLAS, as a product of
    # matrices would: those of `Scores.total` would fight them for the cores.
    narrow = h.shape[1] < 32
    h = np.ascontiguousarray(h.T) if narrow else h
    dot = _dot_by_class if narrow else np.vecdot
    e = np.multiply(h, h.dtype.type(beta))
    np.exp(e, out=e)
    z = np.add.reduce(e, axis=0) if narrow else np.vecdot(e, np.ones(h.shape[1], dtype=h.dtype))
    hy = label.astype(np.float64, copy=False)
    m1 = dot(e, h).astype(np.float64, copy=False) / z
    np.multiply(e, h, out=e)
    m2 = dot(e, h).astype(np.float64, copy=False) / z
    return np.log(z.astype(np.float64, copy=False)) - beta * hy, m1 - hy, m2 - m1 * m1


def _dot_by_class(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.einsum("ki,ki->i", a, b))


def limits(h: NDArray[Any], y: NDArray[np.int64], w: Floats | None) -> Floats:
    """Slope of the NLL as β → 0 and as β → ∞.

    The first is Σ mean(h_i) − h_{i,y_i}: not negative if no positive β beats a
    uniform answer. The second is Σ max(h_i) − h_{i,y_i}: zero if every label is the
    arg max, and then no β is large enough.
    """
    h = h.astype(np.float64, copy=False)
    label = h[np.arange(len(h)), y]
    mean = h.mean(axis=1)
    if not np.isfinite(mean).all():  # masked classes do not count
        possible = np.isfinite(h)
        mean = np.where(possible, h, 0.0).sum(axis=1) / possible.sum(axis=1)
    terms = [mean - label, h.max(axis=1) - label]
    return np.array([t.sum() if w is None else w @ t for t in terms])


@dataclass(frozen=True, eq=False, kw_only=True)
class BestBeta(Minimum):
    """The β with the least NLL; ``error`` is relative. The rest is for a search that starts here."""

    slope: float
    third: float  # third derivative near the minimum
    stale: float  # how far, relatively, from the minimum it was taken
    last: float  # the last β that was looked at, and the curvature there
    curvature: float

    @property
    def temperature(self) -> float:
        """1/β."""
        return float(1 / self.at)

    def log_t_std(self, weight: float) -> float:
        """Return the standard deviation of log T = −log β that ``weight`` samples leave: 1 / √(Σ Var_S[β h])."""
        return float(1 / np.sqrt(max(weight * self.curvature * self.at**2, 1e-12)))

    def __str__(self) -> str:
        """Describe in a sentence how the search ended."""
        state = "converged" if self.converged else "did NOT converge"
        return f"{state} after {self.n_iter} passes over the data; T is known to {self.error:.0e} relative"


def minimise(
    evaluate: Callable[[float], Floats],
    start: BestBeta | float = 1.0,
    *,
    same_data: bool = True,
    tolerance: float = 1e-8,
) -> BestBeta:
    """Safeguarded Halley iteration for the zero of the slope.

    ``evaluate(beta)`` returns the NLL, its slope and its curvature. The third derivative is the
    difference of the curvatures of two passes, so that after the first, a step of relative
    size s leaves an error of order s² times the step before it.

    ``start`` may be the minimum of a rougher version of the same mean, whose curvature then serves as that
    of the pass before; or, without ``same_data``, of a sample, whose third derivative alone is near
    enough. Points of known slope sign bracket the zero; a step that leaves the bracket, or moves β by more
    than a factor of eight, is cut back.
    """
    low, high = 0.0, np.inf
    third, stale, last, before = 0.0, 1.0, 0.0, 0.0
    if isinstance(start, BestBeta):
        beta, third, stale = start.at, start.third, max(start.stale, 0.1)
        if same_data:
            last, before = start.last, start.curvature
    else:
        beta = start
    first, converged, n_iter = beta, False, 0
    while n_iter < MAX_PASSES:
        n_iter += 1
        nll, slope, curvature = (float(v) for v in evaluate(beta))
        if last > 0 and beta != last:
            third, stale = (curvature - before) / (beta - last), abs(beta / last - 1)
        last, before = beta, curvature
        if slope > 0:
            high = beta
        else:
            low = beta
        new = min(max(beta + _halley(slope, curvature, third), beta / 8), beta * 8)
        # Nor may it end in a point that was looked at before: two such points would follow each other for ever.
        if not low < new < high and new != beta:
            new = float(np.sqrt(low * high)) if low > 0 else high / 8
        step = new - beta
        size = abs(step) / beta
        error = 32 * size**2 * (size + stale)  # 32: generous for the fourth derivative of real networks
        if error <= tolerance or slope == 0:
            # The derivatives at beta carry the value and the slope over to the new point.
            nll += step * (slope + step * (curvature / 2 + step * third / 6))
            slope += step * (curvature + step * third / 2)
            error = max(error, 4 * np.finfo(float).eps)
            beta, size, stale, converged = new, error, stale + size, True
            break
        stale += size
        beta = new
        if not 1e-12 < beta / first < 1e12:
            break  # there seems to be no minimum
    return BestBeta(
        at=beta,
        value=nll,
        error=size,
        n_iter=n_iter,
        converged=converged,
        slope=slope,
        third=third,
        stale=stale,
        last=last,
        curvature=before,
    )


def _halley(slope: float, curvature: float, third: float) -> float:
    if not curvature > 0:
        return float(-np.sign(slope) * np.inf)
    newton = -slope / curvature
    correction = 1 + newton * third / (2 * curvature)
    return float(newton / correction) if correction > 0.5 else float(newton)
