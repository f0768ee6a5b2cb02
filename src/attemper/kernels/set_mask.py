"""Prediction sets without draws, written once in the array API: for a torch module and for an ONNX graph."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["SetRule"]

ROOM = 1e-6  # single precision rounds sums of probabilities by less; it can only add classes


class SetRule(NamedTuple):
    """Which classes are in the set, of probabilities alone: the rule of `SetPolicy` for one group."""

    score: str
    limits: tuple[float, ...]  # one, or one for each class; infinite: always in the set
    penalty: float = 0.0
    k_reg: int = 0
    allow_empty: bool = False

    def mask(self, p: Any, xp: Any) -> Any:
        """Return N×K truth values for N×K probabilities.

        APS and RAPS need no inverse of the order: what is in the set is more probable than what is not, so that the
        least probable of those within the limit decides.

        >>> import array_api_compat.numpy as xp, numpy as np
        >>> p = np.array([[0.5, 0.3, 0.2], [0.9, 0.06, 0.04]])
        >>> SetRule("aps", (0.6,)).mask(p, xp)
        array([[ True,  True, False],
               [ True, False, False]])
        """
        if self.score == "lac":
            within = 1.0 - p <= self._constant([limit + ROOM for limit in self.limits], p, xp)
        elif math.isinf(self.limits[0]):
            return p > -1.0
        else:
            v = xp.sort(p, axis=-1, descending=True)
            scores = xp.cumulative_sum(v, axis=-1) - v
            if self.penalty:
                over = [self.penalty * max(place - self.k_reg, 0) for place in range(1, v.shape[-1] + 1)]
                scores = scores + self._constant(over, v, xp)
            beyond = xp.ones_like(v) * 2.0  # more than any probability
            within = p >= xp.min(xp.where(scores <= self.limits[0] + ROOM, v, beyond), axis=-1, keepdims=True)
        return within if self.allow_empty else within | (p >= xp.max(p, axis=-1, keepdims=True))

    @staticmethod
    def _constant(values: list[float], like: Any, xp: Any) -> Any:
        return xp.asarray(values, dtype=like.dtype, device=like.device)
