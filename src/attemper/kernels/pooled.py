"""Logistic curves of many labels, whose slopes and biases come from one normal law: empirical Bayes.

    P(y_il = 1) = σ(exp(α_l) x_il + b_l),        θ_l = (α_l, b_l) ~ N(μ, Σ)

Each label has a likelihood of its own, which the common law pulls towards μ: much where the label has few positives,
hardly at all where it has many. μ and Σ maximise the marginal likelihood in Laplace's approximation. Near its mode the
likelihood of a label is a normal law, with a curvature H_l; two numbers and a 2×2 matrix of each label are
then all that μ and Σ depend on (`common_law`), and the data are passed over only to move the modes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from attemper._typing import Floats
from attemper.kernels import logistic
from attemper.kernels.minimum import Minimum
from attemper.kernels.shrinkage import ScalePrior

__all__ = ["CommonLaw", "Expected", "PooledFit", "Problems", "common_law", "evaluate", "fit"]

ELEMENTS = 1 << 17  # entries that are worked on at once, so that they stay in the cache
MAX_STEPS = 100  # passes over the data
MAX_ROUNDS = 500  # of expectation and maximisation between two passes, over L 2×2 matrices
SETTLED = 1e-7  # relative change of Σ at which its rounds end
ARRIVED = 1e-13  # nats a known entry that a further step can gain
ROUNDING = 1e-13  # relative; below, the objective cannot show whether a step helps
ENOUGH = 1 << 17  # entries to find a start
LEAST_SLOPE = 0.05  # to start with, of standardised scores
LARGEST = 20.0  # magnitude of α for standardised scores: beyond, a curve is flat or a step
LONGEST = np.array([1.0, 3.0])  # step of α and b: likelihoods are nearly normal only so far


class Problems(NamedTuple):
    """One row for each label, one column for each sample; weight zero where a label is not known."""

    x: Floats  # scores
    t: Floats  # targets, from 0 to 1
    w: Floats

    def columns(self, some: Floats) -> Problems:
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
        return self._replace(
            log_t=self.log_t._replace(centre=float(np.clip(self.log_t.centre - log_scale, -LARGEST, LARGEST)))
        )

    def pull(self, mean: Floats) -> tuple[Floats, Floats]:
        """Return precisions that act on μ, and towards where: those of a normal law with the same slope at μ."""
        slopes, centre = (self.log_t.slope(-mean[0]), self.bias.slope(mean[1])), (-self.log_t.centre, self.bias.centre)
        return np.array([curvature for _, curvature in slopes]), np.array(centre)


class CommonLaw(NamedTuple):
    """The law that the labels share."""

    mean: Floats  # μ = (α, b)
    covariance: Floats  # Σ


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledFit(Minimum):
    """``at`` is L×2: α and b of each label. ``value`` and ``error`` are sums over the labels, in nats."""

    law: CommonLaw
    own_share: Floats  # of each label: how far its curve depends on its own data; 0: it is the common one


class _Point(NamedTuple):
    """Likelihoods at θ: minus their logarithms, gradients and curvatures, one row for each label."""

    theta: Floats
    loss: Floats
    gradient: Floats
    information: Floats


def evaluate(theta: Floats, data: Problems) -> _Point:
    """Minus the log-likelihood of each label, its gradient in (α, b) and curvature, or Fisher's information if more."""
    loss, gradient, information = np.empty(len(theta)), np.empty((len(theta), 2)), np.empty((len(theta), 2, 2))
    step = max(1, ELEMENTS // max(1, data.x.shape[1]))
    for first in range(0, len(theta), step):
        rows = slice(first, first + step)
        slope = np.exp(theta[rows, 0])
        linear = np.stack([slope, theta[rows, 1]], axis=1)
        parts = logistic.evaluate(linear, data.x[None, rows], data.t[rows], data.w[rows])
        chain = np.stack([slope, np.ones_like(slope)], axis=1)
        loss[rows], gradient[rows] = parts[0], parts[1] * chain
        information[rows] = parts[2] * chain[:, :, None] * chain[:, None, :]
        information[rows, 0, 0] += np.maximum(gradient[rows, 0], 0.0)  # exp(α) is curved itself
    return _Point(theta, loss, gradient, information)


def common_law(
    at: _Point, expected: Expected, start: CommonLaw, *, fixed_covariance: bool = False
) -> tuple[CommonLaw, int]:
    """Return μ and Σ of labels whose likelihoods are normal, with how many rounds it took.

    μ is the best one for each Σ; Σ is found by expectation and maximisation, with what is unknown of μ counted in.
    """
    information = at.information
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
    return CommonLaw(mean, covariance), rounds


def fit(data: Problems, expected: Expected, start: CommonLaw | None = None) -> PooledFit:
    """Fit all labels and the law that they share; with ``start`` the covariance stays as it is there."""
    data, log_scale = _standardised(data)
    expected, back = expected.shifted(log_scale), np.array([-log_scale, 0.0])
    if start is None:
        law = CommonLaw(_one_curve(data), expected.covariance)
    else:
        law = CommonLaw(start.mean - back, start.covariance)
    found = _descend(data, expected, law, fixed_covariance=start is not None)
    return replace(found, at=found.at + back, law=found.law._replace(mean=found.law.mean + back))


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
    [(slope, bias)] = logistic.minimise(x[None, None], smooth[None], (w / w.sum())[None], bounded=True).at
    return np.array([np.log(max(float(slope), LEAST_SLOPE)), float(bias)])


def _descend(data: Problems, expected: Expected, law: CommonLaw, *, fixed_covariance: bool) -> PooledFit:
    """Move the modes by Newton's steps, and the common law with them; a step that does not help is shortened."""
    known = float(data.w.sum())
    at = evaluate(np.tile(law.mean, (len(data.x), 1)), data)
    length, error = np.ones(len(data.x)), np.inf
    for n_iter in range(1, MAX_STEPS + 1):  # noqa: B007 (the report has it)
        law = _limited(common_law(at, expected, law, fixed_covariance=fixed_covariance)[0], law)
        delta, gain = _step(at, law)
        error = float(gain.sum())
        if error <= ARRIVED * known:
            break
        before = _penalised(at, law)
        theta = at.theta + length[:, None] * delta.clip(-LONGEST, LONGEST)
        trial = evaluate(theta, data)
        small = gain <= ROUNDING * (1 + np.abs(before))
        moved = small | (_penalised(trial, law) <= before - 1e-4 * length * gain)
        length = np.where(moved, np.minimum(1.0, 2 * length), length / 4)
        at = _Point(*(np.where(moved.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(at, trial)))
        if small.all():
            break
    precision = np.linalg.inv(law.covariance)
    shrunk = np.linalg.inv(at.information + precision) @ at.information
    return PooledFit(
        at=np.where(data.w.any(axis=1, keepdims=True), at.theta, law.mean),
        value=float(_penalised(at, law).sum()),
        error=error,
        n_iter=n_iter,
        converged=error <= 1e-9 * known,
        law=law,
        own_share=np.trace(shrunk, axis1=1, axis2=2) / 2,
    )


def _limited(law: CommonLaw, before: CommonLaw) -> CommonLaw:
    """Let the common curve go no further in one step than likelihoods are nearly normal."""
    return law._replace(mean=before.mean + (law.mean - before.mean).clip(-LONGEST, LONGEST))


def _step(at: _Point, law: CommonLaw) -> tuple[Floats, Floats]:
    """Step of each label to the mode of its posterior, and what it gains if likelihoods are normal."""
    precision = np.linalg.inv(law.covariance)
    gradient = at.gradient + (at.theta - law.mean) @ precision
    delta = -np.linalg.solve(at.information + precision, gradient[..., None])[..., 0]
    return np.asarray(delta), np.asarray(-0.5 * np.vecdot(gradient, delta))


def _penalised(at: _Point, law: CommonLaw) -> Floats:
    """Minus the logarithm of each label's posterior, up to a constant."""
    apart = at.theta - law.mean
    return np.asarray(at.loss + 0.5 * np.vecdot(apart, apart @ np.linalg.inv(law.covariance)))
