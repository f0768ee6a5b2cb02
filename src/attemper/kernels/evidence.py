"""Overall scale, biases, scales and matrix of an affine map, fitted together, each term shrunk to what data support.

With x the centred logits and φ features that all classes share (x itself and, for two classes, a curve),

    z = x + Θ [φ, 1],        P(label) = what `Channel` makes of softmax(z)

Θ is K×(F+1) with the bias last, or K×2 (scale, bias) for a diagonal matrix. Its diagonal is m + s_k: m, the change of
the overall scale, has a Student prior on its logarithm; s_k and the other terms have normal priors around zero whose
precisions are found by the evidence (MacKay 1992), with pseudo-counts where data are few. Single biases have heavier
tails: one class may be far off where the others are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, Labels
from attemper.kernels.annotators import Channel, State
from attemper.kernels.softmax import BOTTOM

TERMS = ("biases", "scales", "matrix", "curve")
FIXED = 1e9  # precision of what is not allowed to change
BLOCK_WORK = 5e8  # multiplications that blocks of the Hessian may take; above, its diagonal has to do
CLOSE = 0.03  # relative change of precisions that makes no difference any more

Operator = Callable[[Floats], Floats]


@cache
def members(shape: tuple[int, int]) -> dict[str, NDArray[np.bool_]]:
    """Return which parameters of Θ each term has."""
    k, size = shape
    column, row = np.arange(size), np.arange(k)[:, None]
    last, whole = np.broadcast_to(column == size - 1, shape), size > 2
    own = column == (row if whole else 0)
    inner = (column < k) & ~last & whole
    return {"biases": last, "scales": own & ~last, "matrix": inner & ~own, "curve": ~(last | inner) & whole}


@cache
def scale_index(shape: Any) -> tuple[NDArray[np.intp], ...]:
    """Return where the changes of scale are in Θ."""
    return np.nonzero(members(shape)["scales"])


class Term(NamedTuple):
    """What is expected of the parameters of one term before data are seen: a variance, worth so many parameters."""

    variance: float
    worth: float = 1.0

    def precision(self, squares: float, determined: float) -> float:
        """Return the one that explains parameters best, by the sum of their squares and how many data determine."""
        return float(np.clip((determined + self.worth) / (squares + self.worth * self.variance), 1e-6, 1e8))


class ScalePrior(NamedTuple):
    """Student law of log T, T being what the logits are divided by."""

    centre: float
    scale: float
    df: float

    def log_density(self, log_t: Any) -> Any:
        """Up to a constant; of a number or an array."""
        t = (log_t - self.centre) / self.scale
        return -0.5 * (self.df + 1) * np.log1p(t * t / self.df)

    def slope(self, log_t: float) -> tuple[float, float]:
        """Return the derivative of minus the log-density, and a curvature that is never negative."""
        t = (log_t - self.centre) / self.scale
        weight = (self.df + 1) / (self.df + t * t)
        return weight * t / self.scale, weight / self.scale**2


class Precisions(NamedTuple):
    """Of each term; ``local`` makes those of single biases smaller where they are far off."""

    biases: float
    scales: float
    matrix: float
    curve: float
    local: Floats

    def array(self, shape: tuple[int, int]) -> Floats:
        """One number for each parameter."""
        array = sum(getattr(self, name) * inside for name, inside in members(shape).items())
        array[:, -1] *= self.local
        return np.asarray(array)


class Prior(NamedTuple):
    """Of log T and of each term; ``tail`` are the degrees of freedom of single biases."""

    log_t: ScalePrior
    biases: Term
    scales: Term
    matrix: Term
    curve: Term
    tail: float

    def precisions(self, n_classes: int) -> Precisions:
        """Precisions to begin with."""
        b, s, m, c = (1 / getattr(self, name).variance for name in TERMS)
        return Precisions(b, s, m, c, np.ones(n_classes))


@dataclass(frozen=True, eq=False)
class Penalty:
    """Minus the log-prior of Θ, around logits at temperature ``log_t``."""

    array: Floats
    log_t: float
    prior: ScalePrior

    def _apart(self, theta: Floats) -> tuple[Floats, float]:
        """Θ with changes of scale around their mean, and that mean; else digits are lost where precisions are large."""
        at = scale_index(theta.shape)
        mean = float(theta[at].sum()) / len(theta)
        rest = theta.copy()
        rest[at] -= mean
        return rest, mean

    def __call__(self, theta: Floats) -> float:
        """Return the penalty; infinite where logits would change their sign."""
        rest, mean = self._apart(theta)
        if mean <= -1:
            return float("inf")
        return float(0.5 * np.vdot(self.array * rest, rest) - self.prior.log_density(self.log_t - np.log1p(mean)))

    def gradient(self, theta: Floats) -> Floats:
        """Return its gradient."""
        rest, mean = self._apart(theta)
        rest *= self.array
        slope, _ = self.prior.slope(self.log_t - np.log1p(mean))
        rest[scale_index(theta.shape)] -= slope / (1 + mean) / len(theta)
        return rest

    def curvature(self, theta: Floats) -> Operator:
        """Return the product of its curvature at Θ with a direction."""
        at, mean = scale_index(theta.shape), self._apart(theta)[1]
        of_mean = self.prior.slope(self.log_t - np.log1p(mean))[1] / (1 + mean) ** 2 / len(theta)

        def product(v: Floats) -> Floats:
            rest, step = self._apart(v)
            rest *= self.array
            rest[at] += of_mean * step
            return rest

        return product


@dataclass(frozen=True, eq=False)
class Rows:
    """The samples: centred logits at the current temperature, labels, weights, features shared by the classes.

    ``features`` is None for a diagonal matrix; otherwise its first K columns are x, and the last one is 1.
    """

    x: Floats
    y: Labels
    w: Floats
    masked: NDArray[np.bool_] | None = None
    features: Floats | None = None

    def only(self, rows: Any) -> Rows:
        """Return some of the samples."""
        masked, features = (None if a is None else a[rows] for a in (self.masked, self.features))
        return Rows(self.x[rows], self.y[rows], self.w[rows], masked, features)

    @cached_property
    def guess(self) -> Floats | float:
        """Probability of a class if any is as likely that is not masked."""
        k = self.x.shape[1]
        return 1 / k if self.masked is None else np.asarray(1 / (k - self.masked.sum(axis=1)))

    def change(self, v: Floats) -> Floats:
        """Return z − x, which is linear in Θ."""
        return self.x * v[:, 0] + v[:, 1] if self.features is None else self.features @ v.T

    def adjoint(self, d: Floats) -> Floats:
        """Its transpose."""
        if self.features is not None:
            return np.asarray(d.T @ self.features)
        return np.stack([np.einsum("nk,nk->k", d, self.x), np.ones(len(d)) @ d], axis=1)

    def logits(self, theta: Floats) -> Floats:
        """Return z; far down where a class is masked."""
        z = self.change(theta)
        z += self.x
        if self.masked is not None:
            z[self.masked] = BOTTOM
        return z

    def gradient(self, state: State) -> Floats:
        """Of the log-likelihood in Θ."""
        return self.adjoint(state.d * self.w[:, None])

    def curvature(self, p: Floats, r: Floats) -> Operator:
        """Return the product of the likelihood's curvature with a direction; ``r`` weighs the samples."""
        if self.features is None:
            return self._diagonal_curvature(p, r)

        def product(v: Floats) -> Floats:
            u = self.change(v)
            u -= np.einsum("nk,nk->n", p, u)[:, None]
            u *= p
            u *= r[:, None]
            return self.adjoint(u)

        return product

    def _diagonal_curvature(self, p: Floats, r: Floats) -> Operator:
        """Return two products with one matrix, instead of six passes over the samples."""
        k = p.shape[1]
        both = np.concatenate([p * self.x, p], axis=1)
        squares, mixed, ones = r @ (both[:, :k] * self.x), r @ both[:, :k], r @ p

        def product(v: Floats) -> Floats:
            scale, bias = v.T
            means = both @ np.concatenate([scale, bias])
            means *= r
            own = np.concatenate([scale * squares + bias * mixed, scale * mixed + bias * ones])
            return np.asarray((own - means @ both).reshape(2, k).T)

        return product

    def blocks(self, p: Floats, r: Floats) -> Floats:
        """Curvature class by class: K×D×D, or K×D if there is too much of it for more than the diagonal.

        The classes share one degree of freedom that the softmax does not see.
        """
        n, k = p.shape
        h = p * (1 - p)
        h *= (r * (k / (k - 1)))[:, None]
        if self.features is None:
            hx = h * self.x
            both = np.ones(n) @ hx
            rows = [[np.einsum("nk,nk->k", hx, self.x), both], [both, np.ones(n) @ h]]
            return np.moveaxis(np.array(rows), 2, 0)
        f = self.features
        if n * k * f.shape[1] ** 2 > BLOCK_WORK:
            return np.asarray(h.T @ f**2)
        np.sqrt(h, out=h)
        return np.array([(g := f * h[:, c : c + 1]).T @ g for c in range(k)])


class Optimum(NamedTuple):
    """Where a fit ended; ``evidence`` is the log-likelihood less what the parameters cost."""

    theta: Floats
    log_t: float  # of the logits that Θ changes
    precisions: Precisions
    channel: Channel = Channel()
    value: float = 0.0
    evidence: float = 0.0
    log_t_std: float = 0.0
    gradient_norm: float = 0.0  # per sample
    rounds: int = 0
    effective: float = 0.0  # parameters that the data determine

    @classmethod
    def start(cls, n_classes: int, prior: Prior) -> Optimum:
        """No change, for a diagonal matrix."""
        return cls(np.zeros((n_classes, 2)), prior.log_t.centre, prior.precisions(n_classes))

    @property
    def scale_change(self) -> float:
        """1 + m."""
        return 1 + float(self.theta[scale_index(self.theta.shape)].mean())

    @property
    def total_log_t(self) -> float:
        """Temperature with the change of the overall scale that is in Θ."""
        return self.log_t - float(np.log(self.scale_change))


def maximise(
    rows: Rows, prior: Prior, start: Optimum, terms: set[str], *, rounds: int = 40, tolerance: float = 1e-3
) -> Optimum:
    """Let parameters and precisions of their priors follow each other, for a given channel.

    ``terms`` are those that may differ from zero; ``start.theta`` has the shape of what is to be found.
    """
    theta, channel, shape = start.theta, start.channel, start.theta.shape
    share = (shape[0] - 1) / shape[0]
    closed: dict[str, Any] = {name: FIXED for name in TERMS if name not in terms}
    precisions = start.precisions._replace(**closed)
    count, change, gained = 0, np.inf, np.inf
    state = channel.apply(rows.logits(theta), rows.y, rows.guess)
    while count < rounds:
        count += 1
        penalty = Penalty(precisions.array(shape), start.log_t, prior.log_t)
        p, r = state.p, rows.w * state.info
        inverse, variances, volume = _inverse(rows.blocks(p, r), penalty.array)
        curvature = rows.curvature(p, r)
        step = _solve(curvature, theta, penalty, inverse, rows.gradient(state) - penalty.gradient(theta), 0.1)
        theta, state, gained, value = _step(rows, theta, channel, penalty, state, step)
        determined = np.clip(1 - penalty.array * variances, 0, 1)
        if gained < tolerance and change < CLOSE:
            break
        new = _precisions(theta, precisions, determined, prior, terms)
        change = max(abs(np.log(a / b)) for a, b in zip(new[:4], precisions[:4]))
        precisions = new
    direction = np.zeros(shape)
    direction[scale_index(shape)] = 1.0
    mean_scale = _solve(curvature, theta, penalty, inverse, direction / shape[0], 0.05)
    variance = max(float(np.vdot(direction, mean_scale)) / shape[0], 0.0)
    norm = _norm(rows.gradient(state) - penalty.gradient(theta), rows)
    found = Optimum(theta, start.log_t, precisions, channel, value, value - 0.5 * volume * share, 0.0, norm, count)
    return found._replace(
        log_t_std=float(np.sqrt(variance)) / found.scale_change, effective=float(determined.sum()) * share
    )


def _precisions(theta: Floats, before: Precisions, determined: Floats, prior: Prior, terms: set[str]) -> Precisions:
    """Precisions that explain the parameters best; ``determined`` is how far data determine each of these."""
    inside = members(theta.shape)
    bias, scales = theta[:, -1], theta[inside["scales"]]
    local = (prior.tail + 1) / (prior.tail + before.biases * bias**2)
    squares = {name: float(np.sum(theta[inside[name]] ** 2)) for name in ("matrix", "curve")}
    squares |= {"biases": float(local @ bias**2), "scales": float(np.sum((scales - scales.mean()) ** 2))}
    share = (len(theta) - 1) / len(theta)  # of K parameters that the softmax sees
    counts = {name: float(determined[inside[name]].sum()) for name in terms}
    counts |= {name: share * counts[name] for name in terms & {"scales", "matrix"}}
    found: dict[str, Any] = {name: getattr(prior, name).precision(squares[name], counts[name]) for name in terms}
    return before._replace(local=local, **found)


def polish(
    rows: Rows, fit: Optimum, prior: Prior, *, sample: Rows | None = None, tolerance: float = 1e-8, rounds: int = 30
) -> Optimum:
    """Go to the maximum for given precisions and channel; the curvature is that of a ``sample`` of the rows."""
    penalty = Penalty(fit.precisions.array(fit.theta.shape), fit.log_t, prior.log_t)
    theta, value, gained, norm, count = fit.theta, fit.value, np.inf, np.inf, 0
    few = rows if sample is None else sample
    share = float(rows.w.sum() / few.w.sum())
    hessian: tuple[Operator, Floats, Penalty, Operator] | None = None
    state = fit.channel.apply(rows.logits(theta), rows.y, rows.guess)
    while True:
        gradient = rows.gradient(state) - penalty.gradient(theta)
        before, norm = norm, _norm(gradient, rows)
        if count == rounds or norm < tolerance or (gained <= 1e-12 * abs(value) and norm > 0.5 * before):
            break
        count += 1
        if hessian is None or norm > 0.2 * before:  # the curvature of before is not good enough any more
            here = state if few is rows else fit.channel.apply(few.logits(theta), few.y, few.guess)
            r = few.w * here.info * share
            hessian = few.curvature(here.p, r), theta, penalty, _inverse(few.blocks(here.p, r), penalty.array)[0]
        theta, state, gained, value = _step(rows, theta, fit.channel, penalty, state, _solve(*hessian, gradient, 1e-2))
    return fit._replace(theta=theta, value=value, gradient_norm=norm, rounds=fit.rounds + count)


def _norm(gradient: Floats, rows: Rows) -> float:
    return float(np.sqrt(np.vdot(gradient, gradient))) / float(rows.w.sum())


def _step(
    rows: Rows, theta: Floats, channel: Channel, penalty: Penalty, state: State, step: Floats
) -> tuple[Floats, State, float, float]:
    """Go along a direction as far as F grows; return Θ, the state there, how much F grew, and F."""
    before = float(rows.w @ state.log_likelihood) - penalty(theta)
    size = 1.0
    for _ in range(25):
        new = theta + size * step
        there = channel.apply(rows.logits(new), rows.y, rows.guess)
        value = float(rows.w @ there.log_likelihood) - penalty(new)
        if value >= before - 1e-10 * abs(before):
            return new, there, value - before, value
        size *= 0.4
    return theta, state, 0.0, before


def _inverse(blocks: Floats, array: Floats) -> tuple[Operator, Floats, float]:
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


def _solve(
    of_data: Operator, theta: Floats, penalty: Penalty, inverse: Operator, g: Floats, tolerance: float
) -> Floats:
    """Hessian⁻¹ g by conjugate gradients, to a share of its error.

    The overall scale, which all classes share, has a part of its own in the preconditioner.
    """
    of_prior = penalty.curvature(theta)

    def product(v: Floats) -> Floats:
        return of_data(v) + of_prior(v)

    scale = np.zeros(theta.shape)
    scale[scale_index(theta.shape)] = 1.0
    curvature = float(np.vdot(scale, product(scale)))

    def preconditioned(r: Floats) -> Floats:
        return inverse(r) + scale * (float(np.vdot(scale, r)) / curvature)

    v, r = np.zeros_like(g), g.copy()
    d = s = preconditioned(r)
    error = first = float(np.vdot(r, s))
    for _ in range(30):
        if not error > tolerance**2 * first:
            break
        hd = product(d)
        step = error / float(np.vdot(d, hd))
        v += step * d
        r -= step * hd
        s = preconditioned(r)
        after = float(np.vdot(r, s))
        d = s + (after / error) * d
        error = after
    return v
