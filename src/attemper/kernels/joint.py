"""Overall scale, biases, scales and matrix of an affine map, fitted together, each group shrunk to what data support.

With x the centred logits and φ features that all classes share (x itself and, for two classes, a curve),

    z = x + Θ [φ, 1],        P(label) = what `Channel` makes of softmax(z)

The diagonal of Θ is m + s_k. m, the change of the overall scale, has a Student prior on its logarithm; s_k and the
other groups have normal priors around zero whose precisions are found by the evidence (MacKay 1992), with pseudo-counts
where data are few. Single biases have heavier tails: one class may be far off where the others are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from attemper._typing import Floats
from attemper.kernels.channel import Channel, State
from attemper.kernels.shrinkage import FIXED, GROUPS, Expected, Group, Penalty, Precisions, ScalePrior, diagonal
from attemper.kernels.softmax import BOTTOM

__all__ = ["Fit", "Rows", "maximise_evidence", "polish", "rescaled"]

DENSE = 400  # parameters up to which the whole Hessian is solved with
BLOCK_WORK = 5e8  # multiplications that blocks of the Hessian may take; above, its diagonal has to do
CLOSE = 0.03  # relative change of precisions that makes no difference any more


def _column_sums(a: Floats) -> Floats:
    return np.asarray(np.ones(len(a)) @ a)


@dataclass(frozen=True, eq=False)
class Rows:
    """The samples: centred logits at the current temperature, labels, weights, features shared by the classes.

    ``features`` is None for a diagonal matrix: Θ is then K×2 (scale, bias), otherwise K×(F+1) with the bias last. The
    first K features are x.
    """

    x: Floats
    y: NDArray[np.int64]
    w: Floats
    masked: NDArray[np.bool_] | None
    features: Floats | None

    def logits(self, theta: Floats) -> Floats:
        """Return z; far down where a class is masked."""
        if self.features is None:
            z = self.x * (1 + theta[:, 0])
            z += theta[:, 1]
        else:
            z = self._change(theta)
            z += self.x
        if self.masked is not None:
            z[self.masked] = BOTTOM
        return z

    def _change(self, v: Floats) -> Floats:
        assert self.features is not None
        z = self.features @ v[:, :-1].T
        z += v[:, -1]
        return z

    def adjoint(self, d: Floats) -> Floats:
        """Transpose of the linear map from Θ to z."""
        if self.features is None:
            return np.stack([np.einsum("nk,nk->k", d, self.x), _column_sums(d)], axis=1)
        return np.concatenate([d.T @ self.features, _column_sums(d)[:, None]], axis=1)

    def curvature(self, p: Floats, r: Floats) -> Callable[[Floats], Floats]:
        """Return the product of the likelihood's curvature with a direction; ``r`` weighs the samples."""
        if self.features is None:
            return self._diagonal_curvature(p, r)

        def product(v: Floats) -> Floats:
            u = self._change(v)
            u -= np.einsum("nk,nk->n", p, u)[:, None]
            u *= p
            u *= r[:, None]
            return self.adjoint(u)

        return product

    def _diagonal_curvature(self, p: Floats, r: Floats) -> Callable[[Floats], Floats]:
        """Return two products with one matrix, instead of six passes over the samples."""
        k = p.shape[1]
        both = np.empty((len(p), 2 * k))
        px = np.multiply(p, self.x, out=both[:, :k])
        both[:, k:] = p
        squares, mixed, ones = r @ (px * self.x), r @ px, r @ p

        def product(v: Floats) -> Floats:
            scale, bias = v.T
            means = both @ np.concatenate([scale, bias])
            means *= r
            own = np.concatenate([scale * squares + bias * mixed, scale * mixed + bias * ones])
            return np.asarray((own - means @ both).reshape(2, k).T)

        return product

    def only(self, rows: Any) -> Rows:
        """Return some of the samples."""
        masked = None if self.masked is None else self.masked[rows]
        features = None if self.features is None else self.features[rows]
        return Rows(self.x[rows], self.y[rows], self.w[rows], masked, features)

    def blocks(self, p: Floats, r: Floats) -> Floats:
        """Curvature class by class: K×D×D, or K×D if there is too much of it for more than the diagonal.

        The classes share one degree of freedom that the softmax does not see.
        """
        n, k = p.shape
        h = p * (1 - p)
        h *= (r * (k / (k - 1)))[:, None]
        if self.features is None:
            hx = h * self.x
            both = _column_sums(hx)
            rows = [[np.einsum("nk,nk->k", hx, self.x), both], [both, _column_sums(h)]]
            return np.moveaxis(np.array(rows), 2, 0)
        f = np.concatenate([self.features, np.ones((n, 1))], axis=1)
        if n * k * f.shape[1] ** 2 > BLOCK_WORK:
            return np.asarray(h.T @ f**2)
        np.sqrt(h, out=h)
        return np.array([(g := f * h[:, c : c + 1]).T @ g for c in range(k)])

    def hessian(self, p: Floats, r: Floats) -> Floats:
        """Curvature of the likelihood as a matrix of all parameters, class by class."""
        n, k = p.shape
        pr = p * r[:, None]
        if self.features is None:
            own = np.stack([self.x, np.ones_like(self.x)], axis=2)
            within = np.einsum("nk,nki,nkj->kij", pr, own, own)
        else:
            f = np.concatenate([self.features, np.ones((n, 1))], axis=1)
            own = np.broadcast_to(f[:, None, :], (n, k, f.shape[1]))
            within = np.array([f.T @ (f * pr[:, c : c + 1]) for c in range(k)])
        size = own.shape[2]
        a = (p[:, :, None] * own).reshape(n, k * size)
        full = -(a.T @ (a * r[:, None])).reshape(k, size, k, size)
        index = np.arange(k)
        full[index, :, index, :] += within
        return full.reshape(k * size, k * size)


class Fit(NamedTuple):
    """Where a fit ended; ``evidence`` is the log-likelihood less what the parameters cost."""

    theta: Floats
    log_t: float
    precisions: Precisions
    channel: Channel
    value: float
    evidence: float
    log_t_std: float
    gradient_norm: float
    rounds: int
    effective: float  # parameters that the data determine

    @classmethod
    def start(cls, n_classes: int, log_t: float, expected: Expected) -> Fit:
        """No change, for a diagonal matrix."""
        zero = np.zeros((n_classes, 2))
        return cls(zero, log_t, expected.start(n_classes), Channel(), 0.0, 0.0, 0.0, 0.0, 0, 0.0)


def _inverse(blocks: Floats, array: Floats) -> tuple[Callable[[Floats], Floats], Floats, float]:
    """Approximate inverse of the Hessian, its diagonal, and its log-determinant over that of the prior."""
    if blocks.ndim == 2:
        total = blocks + array
        return (lambda r: np.asarray(r / total)), np.asarray(1 / total), float(np.sum(np.log(total / array)))
    full = blocks.copy()
    index = np.arange(full.shape[1])
    full[:, index, index] += array + 1e-10 * np.trace(blocks, axis1=1, axis2=2)[:, None]
    inverse: Floats = np.linalg.inv(full).astype(np.float64, copy=False)
    volume = float(np.linalg.slogdet(full)[1].sum() - np.sum(np.log(array)))
    return (lambda r: np.asarray(np.einsum("kij,kj->ki", inverse, r))), inverse[:, index, index], volume


def _conjugate_gradients(
    product: Callable[[Floats], Floats], inverse: Callable[[Floats], Floats], g: Floats, rounds: int, tolerance: float
) -> Floats:
    """Solve product(v) = g, to a share of its error."""
    v, r = np.zeros_like(g), g.copy()
    d = s = inverse(r)
    error = first = float(np.vdot(r, s))
    for _ in range(rounds):
        if not error > tolerance**2 * first:
            break
        hd = product(d)
        step = error / float(np.vdot(d, hd))
        v += step * d
        r -= step * hd
        s = inverse(r)
        after = float(np.vdot(r, s))
        d = s + (after / error) * d
        error = after
    return v


def _solve(
    of_data: Callable[[Floats], Floats],
    theta: Floats,
    penalty: Penalty,
    inverse: Callable[[Floats], Floats],
    g: Floats,
    tolerance: float,
) -> Floats:
    """Hessian⁻¹ g; the overall scale, which all classes share, has a part of its own in the preconditioner."""

    def product(v: Floats) -> Floats:
        return of_data(v) + penalty.product(theta, v)

    together = penalty.together(theta.shape)
    curvature = float(np.vdot(together, product(together)))
    return _conjugate_gradients(
        product, lambda v: inverse(v) + together * (float(np.vdot(together, v)) / curvature), g, 30, tolerance
    )


def _step(
    rows: Rows, theta: Floats, channel: Channel, penalty: Penalty, state: State, step: Floats
) -> tuple[Floats, State, float, float]:
    """Go along a direction as far as F grows; return Θ, the state there, how much F grew, and F."""
    before = float(rows.w @ state.log_likelihood) - penalty(theta)
    size = 1.0
    for _ in range(25):
        new = theta + size * step
        there = channel.apply(rows.logits(new), rows.y)
        value = float(rows.w @ there.log_likelihood) - penalty(new)
        if value >= before - 1e-10 * abs(before):
            return new, there, value - before, value
        size *= 0.4
    return theta, state, 0.0, before


def _precision(group: Group, squares: float, determined: float) -> float:
    """Precision that explains the parameters of a group best."""
    found = (determined + group.worth) / (squares + group.worth * group.variance)
    return float(np.clip(found, 1e-6, 1e8))


def maximise_evidence(
    rows: Rows,
    expected: Expected,
    prior: ScalePrior,
    *,
    groups: frozenset[str],
    start: Fit,
    rounds: int = 40,
    tolerance: float = 1e-3,
) -> Fit:
    """Let parameters and precisions of their priors follow each other, for a given channel.

    ``groups`` are those that may differ from zero; ``start.theta`` has the shape of what is to be found.
    """
    theta, log_t, precisions, channel = start.theta, start.log_t, start.precisions, start.channel
    k, shape = len(theta), theta.shape
    scales = diagonal(shape)
    off = np.zeros(shape, dtype=bool)
    curve = np.zeros(shape, dtype=bool)
    if shape[1] > 2:
        off[:, :k] = ~np.eye(k, dtype=bool)
        curve[:, k:-1] = True
    closed: dict[str, Any] = {name: FIXED for name in GROUPS if name not in groups}
    precisions = precisions._replace(**closed)
    count, change, gained, value = 0, np.inf, np.inf, -np.inf
    after = channel.apply(rows.logits(theta), rows.y)
    while count < rounds:
        count += 1
        penalty = Penalty.of(shape, precisions, log_t, prior)
        state, r = after, rows.w * after.info
        inverse, variances, volume = _inverse(rows.blocks(state.p, r), penalty.array)
        curvature = rows.curvature(state.p, r)
        gradient = rows.adjoint(state.d * rows.w[:, None]) - penalty.gradient(theta)
        step = _solve(curvature, theta, penalty, inverse, gradient, 0.1)
        theta, after, gained, value = _step(rows, theta, channel, penalty, state, step)
        if gained < tolerance and change < CLOSE:
            break
        bias = theta[:, -1]
        local = (expected.tail + 1) / (expected.tail + precisions.biases * bias**2)
        array = penalty.array
        determined = np.clip(1 - array * variances, 0, 1)

        s = theta[scales]
        share = (k - 1) / k
        sums = {  # of squares, and how many parameters the data determine
            "biases": (np.sum(local * bias**2), determined[:, -1].sum()),
            "scales": (np.sum((s - s.mean()) ** 2), share * determined[scales].sum()),
            "matrix": (np.sum(theta[off] ** 2), share * determined[off].sum()),
            "curve": (np.sum(theta[curve] ** 2), determined[curve].sum()),
        }
        found: dict[str, Any] = {name: _precision(getattr(expected, name), *map(float, sums[name])) for name in groups}
        new = precisions._replace(local=local, **found)
        change = max(abs(np.log(a / b)) for a, b in zip(new[:4], precisions[:4]))
        precisions = new
    gradient = rows.adjoint(state.d * rows.w[:, None]) - penalty.gradient(theta)
    direction = penalty.together(shape)
    mean_scale = _solve(curvature, theta, penalty, inverse, direction / k, 0.05)
    log_t_std = float(np.sqrt(max(float(np.vdot(direction, mean_scale)) / k, 0.0))) / (1 + float(s.mean()))
    return Fit(
        theta,
        log_t,
        precisions,
        channel,
        value,
        value - 0.5 * volume * (k - 1) / k,
        log_t_std,
        float(np.sqrt(np.vdot(gradient, gradient))) / float(rows.w.sum()),
        count,
        float(np.clip(1 - penalty.array * variances, 0, 1).sum()) * (k - 1) / k,
    )


def polish(
    rows: Rows,
    fit: Fit,
    prior: ScalePrior,
    *,
    sample: Rows | None = None,
    tolerance: float = 1e-8,
    rounds: int = 30,
) -> Fit:
    """Go to the maximum for given precisions and channel; the curvature is that of a ``sample`` of the rows."""
    penalty = Penalty.of(fit.theta.shape, fit.precisions, fit.log_t, prior)
    theta, value, gained, norm, count = fit.theta, fit.value, np.inf, np.inf, 0
    few = rows if sample is None else sample
    share = float(rows.w.sum() / few.w.sum())
    solve: Callable[[Floats], Floats] | None = None
    state = fit.channel.apply(rows.logits(theta), rows.y)
    while count < rounds:
        count += 1
        gradient = rows.adjoint(state.d * rows.w[:, None]) - penalty.gradient(theta)
        before, norm = norm, float(np.sqrt(np.vdot(gradient, gradient))) / float(rows.w.sum())
        if norm < tolerance or (gained <= 1e-12 * abs(value) and norm > 0.5 * before):
            break
        if solve is None or norm > 0.2 * before:  # the curvature of before is not good enough any more
            here = state if few is rows else fit.channel.apply(few.logits(theta), few.y)
            solve = _curvature(few, here.p, few.w * here.info * share, theta, penalty)
        theta, state, gained, value = _step(rows, theta, fit.channel, penalty, state, solve(gradient))
    return fit._replace(theta=theta, value=value, gradient_norm=norm, rounds=fit.rounds + count)


def _curvature(rows: Rows, p: Floats, r: Floats, theta: Floats, penalty: Penalty) -> Callable[[Floats], Floats]:
    """Return a function that solves with the Hessian: whole, where there are few parameters, or step by step."""
    if theta.size > DENSE:
        inverse, *_ = _inverse(rows.blocks(p, r), penalty.array)
        of_data = rows.curvature(p, r)
        return lambda g: _solve(of_data, theta, penalty, inverse, g, 0.03)
    full = rows.hessian(p, r)
    full[np.diag_indices(theta.size)] += penalty.array.ravel() + 1e-12 * np.trace(full)
    together = penalty.together(theta.shape)
    rest = penalty.product(theta, together) - penalty.array * together
    full += np.outer(rest.ravel(), together.ravel()) / len(theta)
    factor = cho_factor(full, lower=True)
    return lambda g: np.asarray(cho_solve(factor, g.ravel())).reshape(g.shape)


def rescaled(rows: Rows, fit: Fit) -> tuple[Rows, Fit]:
    """Put the change of the overall scale into the logits, so that no change of it is left in Θ."""
    at = diagonal(fit.theta.shape)
    factor = 1 + float(fit.theta[at].mean())
    theta = fit.theta.copy()
    theta[:, :-1] /= factor
    theta[at] = (fit.theta[at] + 1) / factor - 1
    x = rows.x * factor
    features = None if rows.features is None else rows.features * factor
    return replace(rows, x=x, features=features), fit._replace(theta=theta, log_t=fit.log_t - float(np.log(factor)))
