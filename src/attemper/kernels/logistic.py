"""Many small logistic regressions at once, each with one or two features: Newton's method, one class a row.

The objective of a class is the mean of log(1 + exp z) − t z with z = Σ_f θ_f x_f + c and targets t within [0, 1].
It is convex. Slopes θ_f may be kept from being negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.minimum import Minimum

__all__ = ["Minima", "evaluate", "minimise"]


MAX_STEPS = 200
# Below this the objective's own rounding hides whether a step helps: the step is trusted.
ROUNDING = 1e-14


@dataclass(frozen=True, eq=False, kw_only=True)
class Minima(Minimum):
    """What was found for each of C classes: ``at`` is C×(F+1), the intercept last."""

    gradient: Floats  # C×(F+1); zero where only the bound keeps a slope from falling


class _Point(NamedTuple):
    """Objective, gradient and curvature at θ, one row for each class."""

    theta: Floats
    loss: Floats
    gradient: Floats
    hessian: Floats

    def rows(self, some: NDArray[np.bool_]) -> _Point:
        return _Point(*(a[some] for a in self))


def evaluate(theta: Floats, x: Floats, t: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """Objective, gradient and Hessian; ``x`` is F×C×N, ``t`` and ``w`` are C×N, and weights sum to one."""
    n_features = len(x)
    z: Floats = theta[:, -1:] + sum(theta[:, f, None] * x[f] for f in range(n_features))
    e = np.exp(-np.abs(z))
    q = 1 / (1 + e)
    # Written from the near side, so that nothing cancels where σ(z) is close to a target of 0 or 1.
    missed = np.where(z < 0, t, 1 - t)
    loss = np.vecdot(w, missed * np.abs(z) + np.log1p(e))
    r = w * np.where(z < 0, e * q - missed, missed - e * q)
    v = w * (e * q * q)
    gradient = np.empty_like(theta)
    hessian = np.empty((*theta.shape, theta.shape[1]))
    gradient[:, -1], hessian[:, -1, -1] = r.sum(axis=1), v.sum(axis=1)
    for f in range(n_features):
        gradient[:, f] = np.vecdot(r, x[f])
        vx = v * x[f]
        hessian[:, f, -1] = hessian[:, -1, f] = vx.sum(axis=1)
        for g in range(f + 1):
            hessian[:, f, g] = hessian[:, g, f] = np.vecdot(vx, x[g])
    return loss, gradient, hessian


def minimise(x: Floats, t: Floats, w: Floats, *, start: float = 1.0, bounded: bool = False) -> Minima:
    """Minimise the objective of every class; ``bounded`` keeps the slopes from being negative.

    A feature that is the same for all samples of a class gets a slope of zero. There must be a minimum: where the
    targets are 0 and 1 and a class can be separated there is none. ``start`` is the slope to begin with, unless a
    constant is better.
    """
    mean = np.vecdot(w, x)
    z = (x - mean[..., None]) * (w > 0)
    spread = np.sqrt(np.vecdot(w, z * z))
    constant = spread <= 1e-13 * np.abs(mean) + 1e-25  # what is less is rounding, or would need an endless slope
    scale = np.where(constant, 1.0, spread)
    z = np.where(constant[..., None], 0.0, z / scale[..., None])

    base = np.vecdot(w, t).clip(1e-9, 1 - 1e-9)
    level = np.log(base / (1 - base))
    theta = np.vstack([np.where(constant, 0.0, start * scale), start * mean.sum(axis=0)]).T
    begin = _Point(theta, *evaluate(theta, z, t, w))
    # Worse than a constant; or where most samples are so far from 1/2 that the model promises more than all there is.
    far = begin.loss > np.logaddexp(0, level) - np.vecdot(w, t) * level
    far |= _newton_step(begin, bounded)[1] > begin.loss
    if far.any():
        theta[far] = 0.0
        theta[far, -1] = level[far]
        begin = _Point(theta, *evaluate(theta, z, t, w))

    found, error, steps = _descend(begin, z, t, w, bounded)
    theta = found.theta.copy()
    theta[:, :-1] /= scale.T
    theta[:, -1] -= (theta[:, :-1] * mean.T).sum(axis=1)
    gradient = found.gradient.copy()
    gradient[:, :-1] = gradient[:, :-1] * np.where(constant, 0.0, scale).T + gradient[:, -1:] * mean.T
    if bounded:
        held = (theta[:, :-1] <= 0) & (gradient[:, :-1] > 0)
        gradient[:, :-1][held] = 0.0
    # The objective is never negative: no more can be gained than there is.
    return Minima(at=theta, value=found.loss, error=np.minimum(error, found.loss), n_iter=steps, gradient=gradient)


def _descend(at: _Point, x: Floats, t: Floats, w: Floats, bounded: bool) -> tuple[_Point, Floats, int]:
    """Newton's method on the classes that have not arrived yet; a step that does not help is shortened."""
    n = len(t)
    result, error = _Point(*(a.copy() for a in at)), np.full(n, np.inf)
    active, length, trusted = np.arange(n), np.ones(n), np.zeros(n, dtype=int)
    delta, gain = _newton_step(at, bounded)
    for step in range(1, MAX_STEPS + 1):
        theta = at.theta + length[:, None] * delta
        trial = _Point(theta, *evaluate(theta, x, t, w))
        small = length * gain <= ROUNDING * (1 + np.abs(at.loss))
        moved = small | (trial.loss <= at.loss - 1e-4 * length * gain)
        at = _Point(*(np.where(moved.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(at, trial)))
        delta, gain = _newton_step(at, bounded)
        length = np.where(moved, np.minimum(1.0, 4 * length), length / 4)
        trusted += small
        arrived = moved & ((gain <= 1e-24) | (trusted >= 2))
        if step == MAX_STEPS:
            arrived[:] = True
        for whole, part in zip(result, at):
            whole[active[arrived]] = part[arrived]
        error[active[arrived]] = gain[arrived]
        if arrived.all():
            break
        if arrived.any():
            on = ~arrived
            at, active = at.rows(on), active[on]
            delta, gain, length, trusted = delta[on], gain[on], length[on], trusted[on]
            x, t, w = x[:, on], t[on], w[on]
    return result, error, step


def _newton_step(at: _Point, bounded: bool) -> tuple[Floats, Floats]:
    """Step to the minimum of the quadratic model, and by how much it lowers the model.

    With bounds the minimum lies on one of few faces, on each of which some slopes are zero: all are tried.
    """
    size = at.theta.shape[1]
    # A trace of the identity: slopes that the data leave open stay where they are.
    ridge = 1e-13 * np.trace(at.hessian, axis1=1, axis2=2) + 1e-300
    hessian = at.hessian + ridge[:, None, None] * np.eye(size)
    best, gain = np.zeros_like(at.theta), np.full(len(at.theta), -np.inf)
    for face in product([False, True], repeat=size - 1) if bounded else [(False,) * (size - 1)]:
        fixed = np.array([*face, False])
        step = np.where(fixed, -at.theta, 0.0)
        right = -at.gradient - (hessian @ step[..., None])[..., 0]
        reduced = np.where(fixed[:, None] | fixed, np.eye(size), hessian)
        step += np.where(fixed, 0.0, np.linalg.solve(reduced, np.where(fixed, 0.0, right)[..., None])[..., 0])
        lowered = -(np.vecdot(at.gradient, step) + 0.5 * np.vecdot(step, (hessian @ step[..., None])[..., 0]))
        better = lowered > gain
        if bounded:
            better &= (at.theta + step >= 0)[:, :-1].all(axis=1)
        best, gain = np.where(better[:, None], step, best), np.where(better, lowered, gain)
    return best, np.maximum(gain, 0.0)
