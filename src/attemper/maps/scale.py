"""The temperature family: one temperature, or an average over several. Neither changes the arg max."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import InputError
from attemper.maps.base import Arrays, Map

__all__ = ["MixtureMap", "ScaleMap"]


@dataclass(frozen=True)
class ScaleMap(Map):
    """softmax(β · logits): one temperature T = 1/β.

    >>> ScaleMap(beta=0.5).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.731, 0.269]])
    """

    type = "scale"
    beta: float

    def __post_init__(self) -> None:
        if not 1e-30 <= self.beta <= 1e30:
            raise InputError(f"beta={self.beta}: must be a positive number, between 1e-30 and 1e30")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """β."""
        return {"beta": np.asarray(self.beta)}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """softmax(β h)."""
        x = (h - xp.max(h, axis=-1, keepdims=True)) * arrays["beta"]
        e = xp.exp(x)
        total = xp.sum(e, axis=-1, keepdims=True)
        return x - xp.log(total) if log else e / total

    @property
    def has_logits(self) -> bool:
        """Yes."""
        return True

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """β h."""
        return h * arrays["beta"]


@dataclass(frozen=True)
class MixtureMap(Map):
    """Σ_m weight_m · softmax(β_m · logits) + uniform_mass/K: an average over temperatures.

    Weights and uniform mass add up to one. Masked classes (−inf) get nothing of the uniform mass.

    >>> MixtureMap(weights=(0.6, 0.3), betas=(1.0, 0.5), uniform_mass=0.1).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.798, 0.202]])
    """

    type = "mixture"
    weights: tuple[float, ...]
    betas: tuple[float, ...]
    uniform_mass: float

    def __post_init__(self) -> None:
        w, b = np.asarray(self.weights, dtype=float), np.asarray(self.betas, dtype=float)
        if not (len(w) and w.shape == b.shape):
            raise InputError(f"a mixture of {w.shape} weights and {b.shape} betas: expected one for each")
        if not ((b >= 1e-30) & (b <= 1e30)).all():
            raise InputError("betas must be positive numbers, between 1e-30 and 1e30")
        if not (np.isfinite(w).all() and (w >= 0).all() and 0 <= self.uniform_mass <= 1):
            raise InputError("weights and uniform_mass must not be negative")
        if abs(w.sum() + self.uniform_mass - 1) > 1e-6:
            raise InputError(f"weights and uniform_mass add up to {w.sum() + self.uniform_mass}, not to 1")

    @property
    def parts(self) -> list[tuple[float, float]]:
        """Weight and β of the components that count: one of weight 0 may be the flattest, and 0 · exp(…) be NaN."""
        return [(weight, beta) for weight, beta in zip(self.weights, self.betas) if weight > 0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and βs of the components that count, how far each β is above the flattest, and the uniform mass."""
        weights, betas = (np.array([part[i] for part in self.parts]) for i in range(2))
        # The uniform mass is flatter than any component.
        flattest = np.asarray(0.0 if self.uniform_mass > 0 else betas.min())
        share = np.asarray(self.uniform_mass, dtype=float)
        return {"weights": weights, "betas": betas, "share": share, "flattest": flattest, "above": betas - flattest}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Add up the components."""
        d = h - xp.max(h, axis=-1, keepdims=True)
        possible = xp.isfinite(d)
        ones = xp.astype(possible, d.dtype)
        total = ones * (arrays["share"] / xp.sum(ones, axis=-1, keepdims=True))
        weights, betas, above = (arrays[name] for name in ("weights", "betas", "above"))
        if not log:
            for m in range(len(self.parts)):
                e = xp.exp(d * betas[m])
                total = total + e * (weights[m] / xp.sum(e, axis=-1, keepdims=True))
            return total
        # The flattest component outlasts the others in the tail: taken out as a factor, it leaves a sum
        # that cannot underflow.
        zero = xp.zeros_like(d)
        d = xp.where(possible, d, zero)
        for m in range(len(self.parts)):
            e = xp.exp(d * betas[m])
            normaliser = xp.sum(xp.where(possible, e, zero), axis=-1, keepdims=True)
            # With a uniform mass nothing is taken out, and both exponentials are the same.
            lifted = e if self.uniform_mass > 0 else xp.exp(d * above[m])
            total = total + lifted * (weights[m] / normaliser)
        return xp.where(possible, d * arrays["flattest"] + xp.log(total), -xp.inf)
