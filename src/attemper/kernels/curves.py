"""Many small logistic curves at once, one class or label a row: each by itself, or drawn from one normal law.

By itself, a curve has one or two slopes and an intercept, P(y = 1) = σ(Σ_f θ_f x_f + c). The mean of
log(1 + exp z) − t z with targets t within [0, 1] is convex, and slopes may be kept from being negative.

Pooled, by empirical Bayes::

    P(y_il = 1) = σ(exp(α_l) x_il + b_l),        θ_l = (α_l, b_l) ~ N(μ, Σ)

The common law pulls a label towards μ: much where it has few positives, hardly at all where it has many. μ and Σ
maximise the marginal likelihood in Laplace's approximation. Near its mode the likelihood of a label is a normal law;
two numbers and a 2×2 matrix of each label are then all that μ and Σ depend on (`common_law`), and the data are passed
over only to move the modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats

if TYPE_CHECKING:
    from attemper.kernels.evidence import ScalePrior

MAX_STEPS = 200
ROUNDING = 1e-14  # relative; below, the objective cannot show whether a step helps: the step is trusted

ELEMENTS = 1 << 17  # entries that are worked on at once, so that they stay in the cache
MAX_PASSES = 100  # over the data of a pooled fit
MAX_ROUNDS = 500  # of expectation and maximisation between two passes, over L 2×2 matrices
SETTLED = 1e-7  # relative change of Σ at which its rounds end
ARRIVED = 1e-13  # nats a known entry that a further step can gain
POOLED_ROUNDING = 1e-13
ENOUGH = 1 << 17  # entries to find a start
LEAST_SLOPE = 0.05  # to start with, of standardised scores
LARGEST = 20.0  # magnitude of α for standardised scores: beyond, a curve is flat or a step
LONGEST = np.array([1.0, 3.0])  # step of α and b: likelihoods are nearly normal only so far


class Point(NamedTuple):
    """Objective, gradient and curvature at θ, one row for each curve."""

    theta: Floats
    loss: Floats
    gradient: Floats
    hessian: Floats

    def rows(self, some: NDArray[np.bool_]) -> Point:
        """Keep some curves."""
        return Point(*(a[some] for a in self))

    def moved(self, trial: Point, where: NDArray[np.bool_]) -> Point:
        """Go on to the trial for some curves."""
        return Point(*(np.where(where.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(self, trial)))


# --- each by itself --------------------------------------------------------------------------------------------------


class FittedCurves(NamedTuple):
    """What was found for each of C curves: ``at`` is C×(F+1), the intercept last."""

    at: Floats
    error: Floats  # by how much each objective may exceed the least one
    n_iter: int


def evaluate(theta: Floats, x: Floats, t: Floats, w: Floats) -> Point:
    """Objective, gradient and Hessian; ``x`` is F×C×N, ``t`` and ``w`` are C×N."""
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
    return Point(theta, loss, gradient, hessian)


def fit(x: Floats, t: Floats, w: Floats, *, bounded: bool = False) -> FittedCurves:
    """Minimise the objective of every curve; ``bounded`` keeps the slopes from being negative.

    The weights of a curve sum to one. A feature that is the same for all samples gets a slope of zero. There must be a
    minimum: where targets are 0 and 1 and a threshold separates them there is none.

    >>> x = np.linspace(-4, 4, 9)
    >>> t = 1 / (1 + np.exp(-(0.5 * x - 1)))
    >>> fit(x[None, None], t[None], np.full((1, 9), 1 / 9)).at.round(6)
    array([[ 0.5, -1. ]])
    """
    mean = np.vecdot(w, x)
    z = (x - mean[..., None]) * (w > 0)
    spread = np.sqrt(np.vecdot(w, z * z))
    constant = spread <= 1e-13 * np.abs(mean) + 1e-25  # what is less is rounding, or would need an endless slope
    scale = np.where(constant, 1.0, spread)
    z = np.where(constant[..., None], 0.0, z / scale[..., None])

    base = np.vecdot(w, t).clip(1e-9, 1 - 1e-9)
    level = np.log(base / (1 - base))
    theta = np.vstack([np.where(constant, 0.0, scale), mean.sum(axis=0)]).T  # slopes of one
    begin = evaluate(theta, z, t, w)
    # Begin with a constant where the start is worse, or where a Newton step seems to remove more than all loss.
    far = begin.loss > np.logaddexp(0, level) - np.vecdot(w, t) * level
    far |= _newton_step(begin, bounded)[1] > begin.loss
    if far.any():
        theta[far] = 0.0
        theta[far, -1] = level[far]
        begin = evaluate(theta, z, t, w)

    found, error, steps = _descend(begin, z, t, w, bounded)
    theta = found.theta.copy()
    theta[:, :-1] /= scale.T
    theta[:, -1] -= (theta[:, :-1] * mean.T).sum(axis=1)
    # The objective is never negative: no more can be gained than there is.
    return FittedCurves(theta, np.minimum(error, found.loss), steps)


def _descend(at: Point, x: Floats, t: Floats, w: Floats, bounded: bool) -> tuple[Point, Floats, int]:
    """Newton's method on the curves that have not arrived yet; a step that does not help is shortened."""
    n = len(t)
    result, error = Point(*(a.copy() for a in at)), np.full(n, np.inf)
    active, length, trusted = np.arange(n), np.ones(n), np.zeros(n, dtype=int)
    delta, gain = _newton_step(at, bounded)
    for step in range(1, MAX_STEPS + 1):
        trial = evaluate(at.theta + length[:, None] * delta, x, t, w)
        small = length * gain <= ROUNDING * (1 + np.abs(at.loss))
        moved = small | (trial.loss <= at.loss - 1e-4 * length * gain)
        at = at.moved(trial, moved)
        delta, gain = _newton_step(at, bounded)
        length = np.where(moved, np.minimum(1.0, 4 * length), length / 4)
        trusted += small
        arrived = moved & ((gain <= 1e-24) | (trusted >= 2)) | (step == MAX_STEPS)
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


def _newton_step(at: Point, bounded: bool) -> tuple[Floats, Floats]:
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


# --- drawn from one law ----------------------------------------------------------------------------------------------


class Problems(NamedTuple):
    """One row for each label, one column for each sample; weight zero where a label is not known."""

    x: Floats  # scores
    t: Floats  # targets, from 0 to 1
    w: Floats

    def columns(self, some: Any) -> Problems:
        """Keep some samples."""
        return Problems(*(np.ascontiguousarray(a[:, some]) for a in self))


class Expected(NamedTuple):
    """What is expected before data are seen, of the common slope and bias, and of how labels differ from them."""

    log_t: ScalePrior  # of −μ_α
    bias: ScalePrior  # of μ_b
    covariance: Floats  # of θ_l around μ
    worth: float  # how many labels that counts as

    def shifted(self, log_scale: float) -> Expected:
        """Expect the same of scores that are divided by this scale."""
        centre = float(np.clip(self.log_t.centre - log_scale, -LARGEST, LARGEST))
        return self._replace(log_t=self.log_t._replace(centre=centre))

    def pull(self, mean: Floats) -> tuple[Floats, Floats]:
        """Return precisions that act on μ, and towards where: those of a normal law with the same slope at μ."""
        slopes, centre = (self.log_t.slope(-mean[0]), self.bias.slope(mean[1])), (-self.log_t.centre, self.bias.centre)
        return np.array([curvature for _, curvature in slopes]), np.array(centre)


class CommonLaw(NamedTuple):
    """The law that the labels share."""

    mean: Floats  # μ = (α, b)
    covariance: Floats  # Σ


@dataclass(frozen=True, eq=False)
class PooledFit:
    """``at`` is L×2: α and b of each label. ``error`` is the sum over the labels, in nats."""

    at: Floats
    error: float
    n_iter: int
    converged: bool
    law: CommonLaw
    own_share: Floats  # of each label: how far its curve depends on its own data; 0: it is the common one


def log_slopes(theta: Floats, data: Problems) -> Point:
    """Minus the log-likelihood of each label, its gradient in (α, b) and curvature, or Fisher's information if more."""
    loss, gradient, information = np.empty(len(theta)), np.empty((len(theta), 2)), np.empty((len(theta), 2, 2))
    step = max(1, ELEMENTS // max(1, data.x.shape[1]))
    for first in range(0, len(theta), step):
        rows = slice(first, first + step)
        slope = np.exp(theta[rows, 0])
        part = evaluate(np.stack([slope, theta[rows, 1]], axis=1), data.x[None, rows], data.t[rows], data.w[rows])
        chain = np.stack([slope, np.ones_like(slope)], axis=1)
        loss[rows], gradient[rows] = part.loss, part.gradient * chain
        information[rows] = part.hessian * chain[:, :, None] * chain[:, None, :]
        information[rows, 0, 0] += np.maximum(gradient[rows, 0], 0.0)  # exp(α) is curved itself
    return Point(theta, loss, gradient, information)


def common_law(at: Point, expected: Expected, start: CommonLaw, *, fixed_covariance: bool = False) -> CommonLaw:
    """Return μ and Σ of labels whose likelihoods are normal.

    μ is the best one for each Σ; Σ is found by expectation and maximisation, with what is unknown of μ counted in.
    """
    information = at.hessian
    pulled = (information @ at.theta[..., None])[..., 0] - at.gradient  # H times the mode
    mean, covariance = start
    for rounds in range(1, MAX_ROUNDS + 1):
        precision = np.linalg.inv(covariance)
        posterior = np.linalg.inv(information + precision)
        shrunk = posterior @ information  # share of a label's own estimate in its posterior mean
        weights = precision @ shrunk  # precision of what each label shows of μ
        of_prior, centre = expected.pull(mean)
        total = weights.sum(axis=0) + np.diag(of_prior)
        shown = (precision @ posterior @ pulled[..., None])[..., 0].sum(axis=0)
        mean = np.linalg.solve(total, shown + of_prior * centre)
        if fixed_covariance:
            if rounds >= 3:  # for the prior of μ, which is no normal law
                break
            continue
        deviation = (posterior @ (pulled - information @ mean)[..., None])[..., 0]
        spread = posterior + shrunk @ np.linalg.inv(total) @ shrunk.transpose(0, 2, 1)
        scatter = np.einsum("li,lj->ij", deviation, deviation) + spread.sum(axis=0)
        new = (scatter + expected.worth * expected.covariance) / (len(information) + expected.worth)
        change = np.abs(new - covariance).max() / np.abs(new).max()
        covariance = (new + new.T) / 2
        if change < SETTLED:
            break
    return CommonLaw(mean, covariance)


def fit_pooled(data: Problems, expected: Expected, start: CommonLaw | None = None) -> PooledFit:
    """Fit all labels and the law that they share; with ``start`` the covariance stays as it is there.

    The modes of the labels move by Newton's steps, and the common law with them.
    """
    data, log_scale = _standardised(data)
    expected, back = expected.shifted(log_scale), np.array([-log_scale, 0.0])
    if start is None:
        law = CommonLaw(_one_curve(data), expected.covariance)
    else:
        law = CommonLaw(start.mean - back, start.covariance)
    known = float(data.w.sum())
    at = log_slopes(np.tile(law.mean, (len(data.x), 1)), data)
    length, error = np.ones(len(data.x)), np.inf
    for n_iter in range(1, MAX_PASSES + 1):  # noqa: B007 (the result has it)
        new = common_law(at, expected, law, fixed_covariance=start is not None)
        law = new._replace(mean=law.mean + (new.mean - law.mean).clip(-LONGEST, LONGEST))
        precision: Floats = np.linalg.inv(law.covariance).astype(np.float64, copy=False)
        delta, gain = _step_to_mode(at, law.mean, precision)
        error = float(gain.sum())
        if error <= ARRIVED * known:
            break
        before = _penalised(at, law.mean, precision)
        trial = log_slopes(at.theta + length[:, None] * delta.clip(-LONGEST, LONGEST), data)
        small = gain <= POOLED_ROUNDING * (1 + np.abs(before))
        moved = small | (_penalised(trial, law.mean, precision) <= before - 1e-4 * length * gain)
        length = np.where(moved, np.minimum(1.0, 2 * length), length / 4)
        at = at.moved(trial, moved)
        if small.all():
            break
    shrunk = np.linalg.inv(at.hessian + precision) @ at.hessian
    return PooledFit(
        at=np.where(data.w.any(axis=1, keepdims=True), at.theta, law.mean) + back,
        error=error,
        n_iter=n_iter,
        converged=error <= 1e-9 * known,
        law=law._replace(mean=law.mean + back),
        own_share=np.trace(shrunk, axis1=1, axis2=2) / 2,
    )


def _standardised(data: Problems) -> tuple[Problems, float]:
    """Divide the scores by their root mean square, so that nothing over- or underflows."""
    largest = float(np.abs(data.x[data.w > 0]).max(initial=0.0))
    if largest == 0:
        return data, 0.0
    x = data.x / largest
    scale = largest * float(np.sqrt((data.w * x**2).sum() / data.w.sum()))
    return data._replace(x=data.x / scale), float(np.log(scale))


def _one_curve(data: Problems) -> Floats:
    """(α, b) of one curve for all labels, to start from; Platt's targets keep it finite."""
    known = np.flatnonzero(data.w > 0)
    some = known[:: max(1, len(known) // ENOUGH)]
    x, t, w = (np.ascontiguousarray(a.reshape(-1)[some]) for a in data)
    plus, minus = float(w @ t), float(w @ (1 - t))
    smooth = t * (plus + 1) / (plus + 2) + (1 - t) / (minus + 2)
    [(slope, bias)] = fit(x[None, None], smooth[None], (w / w.sum())[None], bounded=True).at
    return np.array([np.log(max(float(slope), LEAST_SLOPE)), float(bias)])


def _step_to_mode(at: Point, mean: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """Step of each label to the mode of its posterior, and what it gains if likelihoods are normal."""
    gradient = at.gradient + (at.theta - mean) @ precision
    delta = -np.linalg.solve(at.hessian + precision, gradient[..., None])[..., 0]
    return np.asarray(delta), np.asarray(-0.5 * np.vecdot(gradient, delta))


def _penalised(at: Point, mean: Floats, precision: Floats) -> Floats:
    """Minus the logarithm of each label's posterior, up to a constant."""
    apart = at.theta - mean
    return np.asarray(at.loss + 0.5 * np.vecdot(apart, apart @ precision))
