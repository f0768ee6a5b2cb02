"""The negative log-likelihood as a function of β = 1/T, and its minimum.

NLL(β) = Σ_i log Σ_j exp(β h_ij) − β h_{i,y_i}      (Eq. 2 at temperature T, Eq. 4)

is convex in β. Its slope is Σ_i E_S[h_i] − h_{i,y_i}, whose zero is Eq. (5), and its curvature Σ_i Var_S[h_i].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.softmax import BOTTOM, row_max

# exp(β h) and its products with h² stay well inside the format below these |β h|.
SAFE = {np.dtype(np.float64): 300.0, np.dtype(np.float32): 60.0}
ROUNDING = 1e-15  # share of the NLL by which β times its slope may be off


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
    dot: Any = (lambda a, b: np.einsum("ki,ki->i", a, b)) if narrow else np.vecdot
    e = np.multiply(h, h.dtype.type(beta))
    np.exp(e, out=e)
    z = np.add.reduce(e, axis=0) if narrow else np.vecdot(e, np.ones(h.shape[1], dtype=h.dtype))
    hy = label.astype(np.float64, copy=False)
    m1 = dot(e, h).astype(np.float64, copy=False) / z
    np.multiply(e, h, out=e)
    m2 = dot(e, h).astype(np.float64, copy=False) / z
    return np.log(z.astype(np.float64, copy=False)) - beta * hy, m1 - hy, m2 - m1 * m1


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


@dataclass(frozen=True)
class BestBeta:
    """The β with the least NLL."""

    beta: float
    nll: float  # there
    curvature: float
    error: float  # bound on the relative error of β
    n_iter: int
    converged: bool

    @property
    def temperature(self) -> float:
        """1/β."""
        return 1 / self.beta

    def log_t_std(self, weight: float) -> float:
        """Return the standard deviation of log T that ``weight`` samples leave: 1 / √(Σ Var_S[β h])."""
        return float(1 / np.sqrt(max(weight * self.curvature * self.beta**2, 1e-12)))


def minimise(evaluate: Callable[[float], Floats], start: float = 1.0, *, tolerance: float = 1e-8) -> BestBeta:
    """Newton's method for the zero of the slope, in log β, safeguarded.

    ``evaluate(beta)`` returns the mean NLL, its slope and its curvature. In u = log β the derivatives are β·slope and
    β²·curvature + β·slope; with |slope| instead the step is never uphill. Points of known sign bracket the zero. A step
    of relative size s leaves an error of order s², with a factor that the last two steps show.
    """
    low, high, beta, before = 0.0, np.inf, start, np.inf
    for n_iter in range(1, 101):
        nll, slope, curvature = evaluate(beta).tolist()
        low, high = (low, beta) if slope > 0 else (beta, high)
        bend = beta * curvature + abs(slope)
        step = float(np.clip(-slope / bend, -2, 2)) if bend > 0 else -2.0 * np.sign(slope)
        new = beta * float(np.exp(step))
        if not low < new < high and new != beta:
            new = float(np.sqrt(low * high)) if low > 0 and high < np.inf else high / 8 if low == 0 else low * 8
            step = float(np.log(new / beta))
        factor = max(4.0, 2 * abs(step) / before**2)  # 4: generous for the third derivative of real networks
        error = min(factor * step**2, abs(step)) + ROUNDING * nll / max(beta * bend, 1e-300)
        if min(error, 4 * step**2) <= tolerance or slope == 0:
            return BestBeta(new, nll + slope * (new - beta) / 2, curvature, max(error, 1e-15), n_iter, True)
        if not 1e-30 < new < 1e30:
            break
        beta, before = new, abs(step)
    return BestBeta(beta, nll, curvature, error, n_iter, False)


def information(h: Floats, temperature: float, noise: float = 0.0) -> Floats:
    """Return the expected information of a label of each row, N×3: of log T, of log T and ε together, and of ε.

    Labels are drawn from p_y = (1 − ε) S_y + ε / K, ε being ``noise``. With a = h / T and u = log T,

        ∂p_y/∂u = −(1 − ε) S_y (a_y − E_S[a]),    ∂p_y/∂ε = 1/K − S_y.

    Without wrong labels the information of u is Var_S[a], and the last two are 0. A logit of −inf is a class that
    cannot be.

    >>> information(np.array([[0.0, 0.0], [2.0, 0.0]]), 1.0)[:, 0].round(3)
    array([0.  , 0.42])
    """
    a = h / temperature
    a = a - a.max(axis=1, keepdims=True)
    s = np.exp(a)
    s /= s.sum(axis=1, keepdims=True)
    possible = np.isfinite(a)
    a[~possible] = 0.0
    a -= np.einsum("ik,ik->i", s, a)[:, None]
    out = np.zeros((len(a), 3))
    if noise == 0:
        out[:, 0] = np.einsum("ik,ik,ik->i", s, a, a)
        return out
    uniform = possible / possible.sum(axis=1, keepdims=True)
    p = np.where(possible, (1 - noise) * s + noise * uniform, 1.0)
    by_u, by_noise = -(1 - noise) * s * a, uniform - s
    for column, (left, right) in enumerate(((by_u, by_u), (by_u, by_noise), (by_noise, by_noise))):
        out[:, column] = (left * right / p).sum(axis=1)
    return out


def information_of_t(mean: Floats) -> float:
    """Return what is left for log T of mean information (3,), where ε is estimated from the same labels.

    >>> information_of_t(np.array([0.5, 0.0, 0.0])), information_of_t(np.array([0.5, 0.3, 0.9]))
    (0.5, 0.4)
    """
    both, cross, of_noise = (float(v) for v in mean)
    return both if of_noise == 0 else max(both - cross**2 / of_noise, 0.0)
