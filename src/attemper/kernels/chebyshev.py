"""Functions known at Chebyshev nodes: interpolate, find the global minimum, bound the error; and Gauss rules.

An analytic function is known to full precision from a few dozen nodes, because
its Chebyshev coefficients fall off geometrically. How small the last ones
are shows how good the interpolant is: that is the certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal

from attemper._typing import Floats

EDGES: dict[int, Literal["low", "high"] | None] = {-1: "low", 0: None, 1: "high"}  # names of `Minima.edge`


class Interval(NamedTuple):
    """The interval on which a function is known."""

    low: float
    high: float

    def unit(self, u: ArrayLike) -> Floats:
        """Map to [−1, 1]."""
        return np.clip((2 * np.asarray(u, dtype=np.float64) - self.low - self.high) / self.length, -1, 1)

    @property
    def length(self) -> float:
        """Length of the interval."""
        return self.high - self.low


def nodes(count: int, interval: Interval) -> Floats:
    """Chebyshev nodes of the first kind, ascending."""
    x = np.cos(np.pi * (np.arange(count)[::-1] + 0.5) / count)
    return np.asarray(interval.low + interval.length * (x + 1) / 2)


def resolving_nodes(interval: Interval) -> int:
    """Nodes in an interval of log T whose coefficients end below 3e-9 of the first.

    Nothing may be singular within 0.8 of a real log T; of published networks that holds.
    """
    return int(np.ceil(20 / np.arcsinh(0.8 / max(interval.length / 2, 1e-9))))


def coefficients(values: Floats) -> Floats:
    """Chebyshev coefficients of the interpolant through ``values`` at the nodes (along axis 0)."""
    c = scipy.fft.dct(values[::-1], type=2, axis=0) / len(values)
    c[0] /= 2
    return np.asarray(c)


def evaluate(c: Floats, interval: Interval, u: ArrayLike) -> Floats:
    """Value of the interpolant at the points ``u`` (rows of the result)."""
    return np.polynomial.chebyshev.chebvander(interval.unit(u), len(c) - 1) @ c


def basis(count: int, interval: Interval, u: ArrayLike) -> Floats:
    """Matrix from values at ``count`` nodes to values of the interpolant at the points ``u``."""
    return evaluate(coefficients(np.eye(count)), interval, u)


@dataclass(frozen=True, eq=False)
class Minima:
    """The global minimum of each column."""

    at: Floats
    value: Floats
    error: Floats  # bound on the error of ``at`` from interpolation and rounding
    n_iter: int
    edge: NDArray[np.int8]  # −1, +1: the minimum lies on that edge of the interval; 0: inside


def minima(c: Floats, interval: Interval, rounding: float = 0.0) -> Minima:
    """Global minimum of each column of an interpolant, given its coefficients (nodes × columns).

    ``rounding`` is by how much the values at the nodes may be off, beyond what double precision rounds.
    """
    count, columns = c.shape
    first = np.polynomial.chebyshev.chebder(c, axis=0) * (2 / interval.length)
    second = np.polynomial.chebyshev.chebder(first, axis=0) * (2 / interval.length)
    # Eight points for each node are more than the interpolant can turn in between.
    grid = np.cos(np.linspace(np.pi, 0, 8 * count + 1))
    on_grid = np.polynomial.chebyshev.chebvander(grid, count - 1) @ c
    # On a floor that is flat to rounding (a loss that only falls as T → 0) the lowest point stands for it.
    noise = 8 * np.finfo(float).eps * count * np.abs(c).max(axis=0)
    best = (on_grid <= on_grid.min(axis=0) + noise).argmax(axis=0)
    at = grid[best]
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    column = np.arange(columns)
    n_iter, done = 0, np.zeros(columns, dtype=bool)
    while n_iter < 60 and not done.all():
        n_iter += 1
        basis = np.polynomial.chebyshev.chebvander(at, count - 1)
        slope = np.einsum("ck,kc->c", basis[:, :-1], first)
        bend = np.einsum("ck,kc->c", basis[:, :-2], second)
        low, high = np.where(slope < 0, at, low), np.where(slope > 0, at, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = at - np.where(bend > 0, slope / bend, np.nan) * (2 / interval.length)
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        done = np.abs(new - at) <= 4e-16
        at = new
    value = np.einsum("ck,kc->c", np.polynomial.chebyshev.chebvander(at, count - 1), c)
    worse = value > on_grid[best, column]  # rounding only: on a flat floor the grid point may be as good
    at = np.where(worse, grid[best], at)
    value = np.where(worse, on_grid[best, column], value)
    at = np.where(on_grid[0] <= value + noise, -1.0, at)
    edge = (at > 1 - 1e-9).astype(np.int8) - (at < -1 + 1e-9).astype(np.int8)
    return Minima(
        at=interval.low + interval.length * (at + 1) / 2,
        value=value,
        error=_error_bound(c, at, bend, interval.length, rounding),
        n_iter=n_iter,
        edge=edge,
    )


def _error_bound(c: Floats, at: Floats, bend: Floats, length: float, more: float) -> Floats:
    """Bound |Δu| = |error of the slope| / curvature at the minimum.

    What was cut off is estimated by `tail`; aliasing doubles it, and |T_k'(x)| ≤ k / √(1 − x²). Each
    coefficient and each sum over them is rounded.
    """
    count = len(c)
    beyond, rate = tail(c, more)
    beyond *= count / (1 - rate)
    rounding = (4 * np.finfo(float).eps * np.abs(c).max(axis=0) + more) * count
    steepness = 1 / np.sqrt(np.maximum(1 - at**2, 1 / count**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = (2 / length) * steepness * (2 * beyond + rounding) / bend
    return np.asarray(np.where(bend > 0, np.minimum(error, length), length))


def tail(c: Floats, rounding: float = 0.0) -> tuple[Floats, Floats]:
    """Estimate, for each column, the sum of the coefficients beyond the last, and their rate of decay.

    They are taken to go on falling at the rate seen over the second half of those that are there, from
    the largest of the last eighth; what is no larger than ``rounding`` is none.
    """
    count = len(c)
    size = np.abs(c)
    some = max(2, count // 8)
    last = size[-some:].max(axis=0)
    last = np.where(last <= rounding, 0.0, last)
    middle = size[max(count // 2 - some, 0) : count // 2].max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.clip((last / middle) ** (2 / count), 0.0, 0.98)
    rate = np.where(np.isfinite(rate), rate, 0.0)
    return last * rate / (1 - rate), rate


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
