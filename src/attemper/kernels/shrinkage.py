"""What is expected of the groups of parameters of `attemper.kernels.joint`, and what a deviation from it costs.

Θ is K×2 (scale, bias) for a diagonal matrix, otherwise K×(F+1) with the bias last. Its diagonal is m + s_k: m, the
change of the overall scale, has a Student prior on its logarithm, and the groups have normal priors around zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attemper._typing import Floats

__all__ = ["FIXED", "GROUPS", "Expected", "Group", "Penalty", "Precisions", "ScalePrior", "diagonal"]

GROUPS = ("biases", "scales", "matrix", "curve")
FIXED = 1e9  # precision of what is not allowed to change


class Group(NamedTuple):
    """What is expected of the parameters of one group before data are seen: a variance, worth so many parameters."""

    variance: float
    worth: float


class Expected(NamedTuple):
    """Of each group; and how heavy the tails of single biases are."""

    biases: Group
    scales: Group
    matrix: Group
    curve: Group
    tail: float

    def start(self, n_classes: int) -> Precisions:
        """Precisions to begin with."""
        return Precisions(
            1 / self.biases.variance,
            1 / self.scales.variance,
            1 / self.matrix.variance,
            1 / self.curve.variance,
            np.ones(n_classes),
        )


class ScalePrior(NamedTuple):
    """Student law of log T, T being what the logits are divided by."""

    centre: float
    scale: float
    df: float

    def log_density(self, log_t: float) -> float:
        """Up to a constant."""
        t = (log_t - self.centre) / self.scale
        return -0.5 * (self.df + 1) * float(np.log1p(t * t / self.df))

    def slope(self, log_t: float) -> tuple[float, float]:
        """Return the derivative of minus the log-density, and a curvature that is never negative."""
        t = (log_t - self.centre) / self.scale
        weight = (self.df + 1) / (self.df + t * t)
        return weight * t / self.scale, weight / self.scale**2


class Precisions(NamedTuple):
    """Of each group; ``local`` makes those of single biases smaller where they are far off."""

    biases: float
    scales: float
    matrix: float
    curve: float
    local: Floats

    def array(self, shape: tuple[int, int]) -> Floats:
        """One number for each parameter."""
        k, size = shape
        if size == 2:
            return np.stack([np.full(k, self.scales), self.biases * self.local], axis=1)
        array = np.full(shape, self.matrix)
        array[:, k:] = self.curve
        array[np.diag_indices(k)] = self.scales
        array[:, -1] = self.biases * self.local
        return array


def diagonal(shape: tuple[int, int]) -> Any:
    """Return the index of the scales in Θ."""
    k, size = shape
    return (np.arange(k), np.zeros(k, dtype=int)) if size == 2 else np.diag_indices(k)


@dataclass(frozen=True, eq=False)
class Penalty:
    """Minus the log-prior of Θ, around logits at temperature ``log_t``."""

    array: Floats
    at: Any
    log_t: float
    prior: ScalePrior

    @staticmethod
    def of(shape: tuple[int, int], precisions: Precisions, log_t: float, prior: ScalePrior) -> Penalty:
        """Take the precision of each group for its parameters."""
        return Penalty(precisions.array(shape), diagonal(shape), log_t, prior)

    def _apart(self, theta: Floats) -> tuple[Floats, float]:
        """Θ with changes of scale around their mean, and that mean; else digits are lost where precisions are large."""
        mean = float(theta[self.at].mean())
        rest = theta.copy()
        rest[self.at] -= mean
        return rest, mean

    def __call__(self, theta: Floats) -> float:
        """Return the penalty; infinite where logits would change their sign."""
        rest, mean = self._apart(theta)
        if mean <= -1:
            return float("inf")
        return 0.5 * float(np.sum(self.array * rest**2)) - self.prior.log_density(self.log_t - np.log1p(mean))

    def together(self, shape: tuple[int, int]) -> Floats:
        """Return the direction in which the scales of all classes change alike."""
        direction = np.zeros(shape)
        direction[self.at] = 1.0
        return direction

    def gradient(self, theta: Floats) -> Floats:
        """Return its gradient."""
        rest, mean = self._apart(theta)
        rest *= self.array
        slope, _ = self.prior.slope(self.log_t - np.log1p(mean))
        rest[self.at] -= slope / (1 + mean) / len(theta)
        return rest

    def product(self, theta: Floats, v: Floats) -> Floats:
        """Return its curvature times a direction."""
        rest, step = self._apart(v)
        rest *= self.array
        mean = float(theta[self.at].mean())
        _, curvature = self.prior.slope(self.log_t - np.log1p(mean))
        rest[self.at] += curvature / (1 + mean) ** 2 / len(theta) * step
        return rest
