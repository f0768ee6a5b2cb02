"""The temperature family: one temperature, or an average over several. Neither changes the arg max."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper.errors import InputError
from attemper.maps.base import Map

__all__ = ["MixtureMap", "ScaleMap"]

MAX_COMPONENTS = 10_000


@dataclass(frozen=True)
class ScaleMap(Map):
    """softmax(β · logits): one temperature T = 1/β.

    >>> ScaleMap(beta=0.5).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.731, 0.269]])
    """

    beta: float

    def __post_init__(self) -> None:
        if not 1e-30 <= self.beta <= 1e30:
            raise InputError(f"beta={self.beta}: must be a positive number, between 1e-30 and 1e30")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {"type": "scale", "beta": self.beta}

    def _probs(self, d: Any, xp: Any) -> Any:
        e = xp.exp(d * self.beta)
        return e / xp.sum(e, axis=1, keepdims=True)

    def _log_probs(self, d: Any, xp: Any) -> Any:
        x = d * self.beta
        return x - xp.log(xp.sum(xp.exp(x), axis=1, keepdims=True))


@dataclass(frozen=True)
class MixtureMap(Map):
    """Σ_m weight_m · softmax(β_m · logits) + floor/K: an average over temperatures.

    Weights and floor add up to one. Masked classes (−inf) get nothing of the floor.

    >>> MixtureMap(weights=(0.6, 0.3), betas=(1.0, 0.5), floor=0.1).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.798, 0.202]])
    """

    weights: tuple[float, ...]
    betas: tuple[float, ...]
    floor: float

    def __post_init__(self) -> None:
        w, b = np.asarray(self.weights, dtype=float), np.asarray(self.betas, dtype=float)
        if not (1 <= len(w) <= MAX_COMPONENTS and w.shape == b.shape):
            raise InputError(f"a mixture of {w.shape} weights and {b.shape} betas: expected one for each")
        if not ((b >= 1e-30) & (b <= 1e30)).all():
            raise InputError("betas must be positive numbers, between 1e-30 and 1e30")
        if not (np.isfinite(w).all() and (w >= 0).all() and 0 <= self.floor <= 1):
            raise InputError("weights and floor must not be negative")
        if abs(w.sum() + self.floor - 1) > 1e-6:
            raise InputError(f"weights and floor add up to {w.sum() + self.floor}, not to 1")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {
            "type": "mixture",
            "weights": list(self.weights),
            "betas": list(self.betas),
            "floor": self.floor,
        }

    def _probs(self, d: Any, xp: Any) -> Any:
        total = self._floor(d, xp)
        for weight, beta in self.parts:
            e = xp.exp(d * beta)
            total = total + e * (weight / xp.sum(e, axis=1, keepdims=True))
        return total

    def _log_probs(self, d: Any, xp: Any) -> Any:
        # The flattest component outlasts the others in the tail: taken out as a factor, it leaves a sum
        # that cannot underflow. A floor is flatter than all.
        flattest = 0.0 if self.floor > 0 else min(beta for _, beta in self.parts)
        possible = xp.isfinite(d)
        d = xp.where(possible, d, xp.zeros_like(d))
        total = self._floor(xp.where(possible, d, -xp.inf), xp)
        for weight, beta in self.parts:
            z = xp.sum(xp.where(possible, xp.exp(d * beta), xp.zeros_like(d)), axis=1, keepdims=True)
            total = total + xp.exp(d * (beta - flattest)) * (weight / z)
        return xp.where(possible, d * flattest + xp.log(total), -xp.inf)

    @property
    def parts(self) -> list[tuple[float, float]]:
        """Weight and β of the components that count: one of weight 0 may be the flattest, and 0 · exp(…) be NaN."""
        return [(weight, beta) for weight, beta in zip(self.weights, self.betas) if weight > 0]

    def _floor(self, d: Any, xp: Any) -> Any:
        possible = xp.astype(xp.isfinite(d), d.dtype)
        return possible * (self.floor / xp.sum(possible, axis=1, keepdims=True))
