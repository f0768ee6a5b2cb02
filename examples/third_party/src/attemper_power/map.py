"""The map: gaps between logits to a power, times a scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attemper.errors import InputError
from attemper.maps import Map

__all__ = ["PowerMap"]


@dataclass(frozen=True)
class PowerMap(Map):
    """softmax(−β (max h − h)^γ); it keeps the arg max. Files hold the annotated fields."""

    type: ClassVar[str] = "power"

    beta: float
    power: float

    def __post_init__(self) -> None:
        if not (0 < self.beta < np.inf and 0 < self.power < np.inf):
            raise InputError(f"beta={self.beta}, power={self.power}: expected positive numbers")

    def arrays(self):
        """Return the numbers of the map by name."""
        return {"beta": np.asarray(self.beta), "power": np.asarray(self.power)}

    @property
    def has_logits(self):
        """Whether there are logits whose softmax is the probabilities."""
        return True

    def logits(self, h: Any, arrays: Any, xp: Any) -> Any:
        """Calibrated logits."""
        gap = xp.max(h, axis=-1, keepdims=True) - h
        return -arrays["beta"] * gap ** arrays["power"]

    def evaluate(self, h: Any, arrays: Any, xp: Any, *, log: bool) -> Any:
        """Probabilities, or their logarithms."""
        z = self.logits(h, arrays, xp)
        total = xp.sum(xp.exp(z), axis=-1, keepdims=True)  # the largest z is 0
        return z - xp.log(total) if log else xp.exp(z) / total
