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
from attemper.kernels.channel import Channel
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
        z = self._change(theta)
        z += self.x
        if self.masked is not None:
            z[self.masked] = BOTTOM
        return z

    def _change(self, v: Floats) -> Floats:
        z = self.x * v[:, 0] if self.features is None else self.features @ v[:, :-1].T
        z += v[:, -1]
        return z

    def adjoint(self, d: Floats) -> Floats:
        """Transpose of the linear map from Θ to z."""
        if self.features is None:
            return np.stack([np.einsum("nk,nk->k", d, self.x), _column_sums(d)], axis=1)
        return np.concatenate([d.T @ self.features, _column_sums(d)[:, None]], axis=1)

    def product(self, p: Floats, r: Floats, v: Floats) -> Floats:
        """Curvature of the likelihood times a direction; ``r`` weighs the samples."""
        u = self._change(v)
        u -= np.einsum("nk,nk->n", p, u)[:, None]
        u *= p
        u *= r[:, None]
        return self.adjoint(u)

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
    rows: Rows,
    theta: Floats,
    penalty: Penalty,
    inverse: Callable[[Floats], Floats],
    p: Floats,
    r: Floats,
    g: Floats,
    tolerance: float,
) -> Floats:
    """Hessian⁻¹ g; the overall scale, which all classes share, has a part of its own in the preconditioner."""

    def product(v: Floats) -> Floats:
        return rows.product(p, r, v) + penalty.product(theta, v)

    together = penalty.together(theta.shape)
    curvature = float(np.vdot(together, product(together)))
    return _conjugate_gradients(
        product, lambda v: inverse(v) + together * (float(np.vdot(together, v)) / curvature), g, 30, tolerance
    )


def _newton(
    rows: Rows,
    theta: Floats,
    channel: Channel,
    penalty: Penalty,
    inverse: Callable[[Floats], Floats],
    state: tuple[Floats, Floats, Floats, Floats],
    tolerance: float = 0.1,
) -> tuple[Floats, float, float]:
    """Take a step of Newton's method, shortened where F does not grow; return Θ, how much F grew, and F."""
    _, p, d, info = state
    gradient = rows.adjoint(d * rows.w[:, None]) - penalty.gradient(theta)
    step = _solve(rows, theta, penalty, inverse, p, rows.w * info, gradient, tolerance)
    return _step(rows, theta, channel, penalty, state, step)


def _step(
    rows: Rows,
    theta: Floats,
    channel: Channel,
    penalty: Penalty,
    state: tuple[Floats, Floats, Floats, Floats],
    step: Floats,
) -> tuple[Floats, float, float]:
    """Go along a direction as far as F grows; return Θ, how much F grew, and F."""
    before = float(rows.w @ state[0]) - penalty(theta)
    size = 1.0
    for _ in range(25):
        new = theta + size * step
        value = float(rows.w @ channel.log_likelihood(rows.logits(new), rows.y)) - penalty(new)
        if value >= before - 1e-10 * abs(before):
            return new, value - before, value
        size *= 0.4
    return theta, 0.0, before


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
    while count < rounds:
        count += 1
        penalty = Penalty.of(shape, precisions, log_t, prior)
        state = channel.apply(rows.logits(theta), rows.y)
        blocks = rows.blocks(state[1], rows.w * state[3])
        inverse, variances, volume = _inverse(blocks, penalty.array)
        theta, gained, value = _newton(rows, theta, channel, penalty, inverse, state)
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
    gradient = rows.adjoint(state[2] * rows.w[:, None]) - penalty.gradient(theta)
    direction = penalty.together(shape)
    mean_scale = _solve(rows, theta, penalty, inverse, state[1], rows.w * state[3], direction / k, 0.05)
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
    while count < rounds:
        count += 1
        state = fit.channel.apply(rows.logits(theta), rows.y)
        gradient = rows.adjoint(state[2] * rows.w[:, None]) - penalty.gradient(theta)
        before, norm = norm, float(np.sqrt(np.vdot(gradient, gradient))) / float(rows.w.sum())
        if norm < tolerance or (gained <= 1e-12 * abs(value) and norm > 0.5 * before):
            break
        if solve is None or norm > 0.2 * before:  # the curvature of before is not good enough any more
            _, p, _, info = state if few is rows else fit.channel.apply(few.logits(theta), few.y)
            solve = _curvature(few, p, few.w * info * share, theta, penalty)
        theta, gained, value = _step(rows, theta, fit.channel, penalty, state, solve(gradient))
    return fit._replace(theta=theta, value=value, gradient_norm=norm, rounds=fit.rounds + count)


def _curvature(rows: Rows, p: Floats, r: Floats, theta: Floats, penalty: Penalty) -> Callable[[Floats], Floats]:
    """Return a function that solves with the Hessian: whole, where there are few parameters, or step by step."""
    if theta.size > DENSE:
        inverse, *_ = _inverse(rows.blocks(p, r), penalty.array)
        return lambda g: _solve(rows, theta, penalty, inverse, p, r, g, 0.03)
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
