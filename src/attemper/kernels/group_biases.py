"""Scales and class biases of many groups around a common map, as far as the evidence supports them.

    z = exp(a_g) ℓ + b_g,   a_g ~ N(0, s²),   b_gk ~ N(0, σ²)

Each group is fitted by `attemper.kernels.joint` for some values of σ, of which zero is one. The evidence of all groups
together, in Laplace's approximation, weighs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attemper._typing import Floats
from attemper.kernels import joint
from attemper.kernels.channel import Channel
from attemper.kernels.joint import Fit, Rows
from attemper.kernels.shrinkage import Expected, Group, ScalePrior

__all__ = ["SIGMAS", "PooledBiases", "pool_biases"]

SIGMAS: Floats = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
NO_BIASES = 0.5  # prior probability of σ = 0; the others share the rest
NORMAL = 1e9  # degrees of freedom, or worth, that leave nothing to find
LEAST_SPREAD = 0.005
NEGLIGIBLE = 0.1  # posterior probability of a σ that is left out
DECIDING = 64  # groups, the largest ones, that show which σ it is
ROUNDS, TOLERANCE = 30, 1e-3  # nats


class PooledBiases(NamedTuple):
    """Posterior means for each group, and the posterior of σ."""

    scale: Floats  # a
    bias: Floats  # groups × K, with mean zero
    sigmas: Floats
    weights: Floats
    effective: Floats  # biases of each group that its labels determine
    gradient_norm: float  # the largest of all groups, for each sample

    @property
    def sigma(self) -> float:
        """Posterior mean of σ."""
        return float(self.weights @ self.sigmas)


def pool_biases(groups: Sequence[Rows], spread: float, channel: Channel, sigmas: Floats = SIGMAS) -> PooledBiases:
    """Fit scale and biases of each group, for each σ, and average over σ.

    ``groups`` hold centred log-probabilities of the common map; ``spread`` is s.
    """
    prior = np.full(len(sigmas), (1 - NO_BIASES) / max(len(sigmas) - 1, 1))
    prior[0] = NO_BIASES if len(sigmas) > 1 else 1.0
    deciding = np.argsort([-rows.w.sum() for rows in groups], kind="stable")[:DECIDING]
    found = {int(g): _all_sigmas(groups[g], spread, channel, sigmas) for g in deciding if len(groups[g].y)}
    evidence = np.sum([[fit.evidence for fit in fits] for fits in found.values()], axis=0) + np.log(prior)
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    weights = np.where(weights < NEGLIGIBLE, 0.0, weights)
    weights /= weights.sum()
    some = np.flatnonzero(weights)
    scale, bias, effective, norm = [], [], [], 0.0
    for g, rows in enumerate(groups):
        if not len(rows.y):
            scale.append(0.0)
            effective.append(0.0)
            bias.append(np.zeros(rows.x.shape[1]))
            continue
        fits = found[g] if g in found else _all_sigmas(rows, spread, channel, sigmas[some])
        chosen = [fits[j] for j in some] if g in found else fits
        scale.append(sum(w * np.log1p(fit.theta[:, 0].mean()) for w, fit in zip(weights[some], chosen)))
        own = np.sum([w * fit.theta[:, 1] for w, fit in zip(weights[some], chosen)], axis=0)
        bias.append(own - own.mean())
        effective.append(sum(w * fit.effective for w, fit in zip(weights[some], chosen)))
        norm = max([norm, *(fit.gradient_norm for fit in chosen)])
    return PooledBiases(np.array(scale), np.array(bias), sigmas, weights, np.array(effective), norm)


def _all_sigmas(rows: Rows, spread: float, channel: Channel, sigmas: Floats) -> list[Fit]:
    """Fits of one group, each from the one before."""
    k = rows.x.shape[1]
    prior, fits = ScalePrior(0.0, max(spread, LEAST_SPREAD), NORMAL), []
    shut = Group(1.0, NORMAL)
    start = None
    for sigma in sigmas:
        biases = Group(float(sigma) ** 2 or 1.0, NORMAL)
        expected = Expected(biases, shut, shut, shut, NORMAL)
        first = Fit.start(k, 0.0, expected)._replace(channel=channel)
        begin = first if start is None else first._replace(theta=start.theta)
        start = joint.maximise_evidence(
            rows,
            expected,
            prior,
            groups=frozenset({"biases"} if sigma > 0 else ()),
            start=begin,
            rounds=ROUNDS,
            tolerance=TOLERANCE,
        )
        fits.append(start)
    return fits
