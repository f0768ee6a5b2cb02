"""Class priors of unlabelled data: the mixture of classes that explains the predictions best.

Row i of ``likelihoods`` is p(x_i | y = k) up to a factor of its own: calibrated probabilities divided by the priors
under which they are calibrated (Saerens et al. 2002), or shares of a table of counts. The mean log-likelihood of the
priors π is L(π) = Σ_i w_i log Σ_k l_ik π_k / Σ_i w_i, which is concave. ``pseudo`` adds Σ_k c_k log π_k: so many
samples of each class, as if seen (the mode of a Dirichlet posterior in logarithms of the odds).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from attemper._typing import Floats

GAP = 1e-10  # nats a sample that a solution may be below the best one
MOST_STEPS = 200
NEWTON_CLASSES = 2048  # beyond, second derivatives take longer than many steps of EM
HESSIAN_COST = 4e9  # multiplications; of more rows some are drawn
EXACT_COST = 1e10  # multiplications of all resamples, up to which each is solved anew
CONCENTRATIONS = (np.inf, 3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)


class MixtureFit(NamedTuple):
    """The priors, and the proof that no others are better.

    ``gap`` is an upper bound on how much higher the mean log-likelihood (with ``pseudo``, the penalised one) could be:
    by concavity L(π*) − L(π) ≤ Σ_k π*_k g_k − 1 ≤ max_k g_k − 1, g being the gradient.
    """

    priors: Floats
    gap: float
    n_iter: int


class Shrunk(NamedTuple):
    """Priors that stay near the old ones unless the data are against it."""

    priors: Floats
    concentration: float  # the most likely one: so many samples the old priors count as; inf: no shift


def most_likely_priors(
    likelihoods: Floats,
    weights: Floats | None = None,
    *,
    pseudo: Floats | None = None,
    start: Floats | None = None,
    tolerance: float = GAP,
) -> MixtureFit:
    """Maximise the log-likelihood of the priors by projected Newton steps, each followed by one of EM.

    The constraint Σπ = 1 is replaced by −W Σ_k π_k, which has the same solution and leaves π ≥ 0 alone. Classes at zero
    whose gradient does not pull them up stay there (Bertsekas 1982, two-metric projection); a step that is no gain is
    halved. An EM step never loses.

    >>> most_likely_priors(np.array([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8]])).priors.round(3)
    array([0.667, 0.333])
    """
    rows, w = _scaled(likelihoods, weights)
    k = rows.shape[1]
    pseudo = np.zeros(k) if pseudo is None else pseudo
    total = float(w.sum() + pseudo.sum())
    pi = np.full(k, 1 / k) if start is None else np.maximum(start / start.sum(), 1e-12 / k)
    fit = MixtureFit(pi, np.inf, 0)
    for step in range(1, MOST_STEPS + 1):
        mix = rows @ pi
        gradient = rows.T @ (w / mix)  # of the first part of `_value`; 1 at the solution, or less for a class at zero
        gradient[pseudo > 0] += (pseudo / np.maximum(pi, 1e-300))[pseudo > 0]
        gradient /= total
        fit = MixtureFit(pi / pi.sum(), float(max(gradient.max() - 1, 0.0)), step)
        if fit.gap <= tolerance:
            break
        if k <= NEWTON_CLASSES:
            pi = _newton(rows, mix, w, pi, pseudo, total, gradient)
        pi = em_step(rows, w, pi, pseudo)
    return fit


def em_step(likelihoods: Floats, weights: Floats, priors: Floats, pseudo: Floats | float = 0.0) -> Floats:
    """Replace the priors by the mean posterior probabilities under them (Saerens et al. 2002, Eq. 2.9)."""
    counts = priors * (likelihoods.T @ (weights / (likelihoods @ priors))) + pseudo
    return np.asarray(counts / counts.sum())


def evidence(
    likelihoods: Floats, weights: Floats, mean: Floats, concentration: float, start: Floats | None = None
) -> tuple[float, Floats]:
    """Logarithm of the likelihood averaged over priors drawn from Dirichlet(concentration · mean), and their mode.

    By Laplace's approximation in the logarithms of the odds, in which the posterior is close to normal. Infinite
    concentration is ``mean`` itself, exactly. ``mean`` has no zero.
    """
    rows, w = _scaled(likelihoods, weights)
    if np.isinf(concentration):
        return float(w @ np.log(rows @ mean)), mean
    pseudo = concentration * mean
    pi = most_likely_priors(rows, w, pseudo=pseudo, start=mean if start is None else start, tolerance=1e-7).priors
    mix = rows @ pi
    stride = max(1, int(len(rows) * len(pi) ** 2 / HESSIAN_COST))
    share = rows[::stride] * (pi / mix[::stride, None])
    total = w.sum() + concentration
    information = np.diag(total * pi - pi * (rows.T @ (w / mix))) - total * np.outer(pi, pi)
    information += share.T @ (share * w[::stride, None]) * (w.sum() / w[::stride].sum())
    log_det = float(np.linalg.slogdet(information[:-1, :-1])[1])  # the odds against the last class
    log_norm = float(gammaln(concentration) - gammaln(pseudo).sum())
    at_mode = float(w @ np.log(mix) + pseudo @ np.log(pi))
    return at_mode + log_norm + 0.5 * ((len(pi) - 1) * np.log(2 * np.pi) - log_det), pi


def shrunk_priors(likelihoods: Floats, weights: Floats, old: Floats) -> Shrunk:
    """Average the posterior modes under Dirichlet distributions around the old priors, weighted by their evidence.

    Infinite concentration, no shift at all, is among them. So few samples, or none of another mix, leave the priors
    where they are.
    """
    found, start = [], old
    for concentration in CONCENTRATIONS:
        found.append(evidence(likelihoods, weights, old, concentration, start))
        start = found[-1][1]
    values = np.array([value for value, _ in found])
    share = np.exp(values - values.max())
    priors = (share / share.sum()) @ np.array([mode for _, mode in found])
    return Shrunk(priors / priors.sum(), CONCENTRATIONS[int(values.argmax())])


def resampled_priors(
    likelihoods: Floats, priors: Floats, resamples: Iterable[tuple[Floats, Floats]], n_resamples: int
) -> Floats:
    """Return the most likely priors of resamples, one row each.

    A resample is a weight for each row, and a factor for each column of the likelihoods. Where solving all is too dear,
    each is one Newton step from ``priors``, the most likely ones of all samples.
    """
    n, k = likelihoods.shape
    if n_resamples * n * k * k <= EXACT_COST:
        exact = partial(most_likely_priors, start=priors, tolerance=1e-6)
        return np.array([exact(likelihoods * factors, weights).priors for weights, factors in resamples])
    rows = _scaled(likelihoods, None)[0]
    free = priors > 1e-9
    part = rows[:, free] / (rows @ priors)[:, None]
    inverse = np.linalg.pinv(part.T @ part / n)
    found = []
    for weights, factors in resamples:
        scaled, moved = rows[:, free] * factors[free], np.zeros(k)
        slope = scaled.T @ (weights / (scaled @ priors[free])) / weights.sum() - 1
        moved[free] = np.clip(priors[free] + inverse @ slope, 0, 1)
        found.append(moved / moved.sum())
    return np.array(found)


def _scaled(likelihoods: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Scale every row to a largest entry of 1, which changes no solution."""
    rows = likelihoods / likelihoods.max(axis=1, keepdims=True)
    return rows, np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)


def _value(mix: Floats, w: Floats, pi: Floats, pseudo: Floats, total: float) -> float:
    """Mean penalised log-likelihood, less the sum of the priors."""
    seen = pseudo > 0
    return float(w @ np.log(mix) + pseudo[seen] @ np.log(pi[seen])) / total - float(pi.sum())


def _newton(rows: Floats, mix: Floats, w: Floats, pi: Floats, pseudo: Floats, total: float, gradient: Floats) -> Floats:
    """One projected Newton step, halved until it gains; ``pi`` itself where none does."""
    slope, value = gradient - 1, _value(mix, w, pi, pseudo, total)
    free = (pi > 1e-9) | (slope > 0)
    part = rows[:, free] / mix[:, None]
    hessian = part.T @ (part * w[:, None]) / total
    hessian += np.diag(pseudo[free] / np.maximum(pi[free], 1e-150) ** 2) / total
    hessian += 1e-12 * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    direction = np.zeros_like(pi)
    direction[free] = np.linalg.solve(hessian, slope[free])
    low = np.where(pseudo > 0, 1e-3 * pi, 0.0)  # the logarithm keeps away from zero
    size = 1.0
    for _ in range(30):
        moved = np.maximum(pi + size * direction, low)
        new = rows @ moved
        if (new > 0).all() and _value(new, w, moved, pseudo, total) > value + 1e-4 * float(slope @ (moved - pi)):
            return moved
        size /= 2
    return pi
