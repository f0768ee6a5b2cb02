"""Maps of labels that do not exclude each other: each column has a probability of its own, rows do not sum to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.maps.base import Arrays, Map

__all__ = ["SigmoidMap"]


@dataclass(frozen=True, eq=False, repr=False)
class SigmoidMap(Map):
    """σ(a_l log p_l − b_l log(1 − p_l) + c_l) of each label l, where p_l is σ of its log-odds.

    With a = b that is σ(a_l s_l + c_l), s_l being the log-odds: temperature and bias of each label, or Platt scaling.
    ``of_probs``: the map takes log-probabilities of the labels; ``zeros_as`` is what 0, and 1 − p of 1, are read as.

    >>> SigmoidMap(np.array([0.5, 1.0]), np.array([0.5, 1.0]), np.array([0.0, -1.0])).apply(np.array([[2.0, 1.0]]))
    array([[0.73105858, 0.5       ]])
    """

    __repr__ = one_line

    type = "sigmoid"
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    c: NDArray[np.float64]
    of_probs: bool = False
    zeros_as: float | None = None

    keeps_arg_max: ClassVar[bool] = False
    independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shapes = {np.shape(v) for v in (self.a, self.b, self.c)}
        if len(shapes) != 1 or np.ndim(self.c) != 1 or len(self.c) < 1:
            raise InputError(f"a, b and c have shapes {sorted(shapes)}; expected one number for each of the labels")
        if not max(np.abs(v).max() for v in (self.a, self.b, self.c)) <= 1e30:
            raise InputError("a, b and c must be numbers, at most 1e30 in magnitude")
        if self.zeros_as is not None and not (self.of_probs and 0 < self.zeros_as < 0.5):
            raise InputError(f"zeros_as={self.zeros_as}: expected a number between 0 and 0.5, of probabilities")

    @property
    def double(self) -> bool:  # type: ignore[override]
        """In double precision where 1 − p has to be computed of log p."""
        return self.of_probs

    def log_odds(self, h: Any, xp: Any) -> Any:
        """Log-odds of each label, of what the map takes; a probability of 1 is read as 1 − zeros_as."""
        if not self.of_probs:
            return h
        least = 1e-300 if self.zeros_as is None else self.zeros_as
        rest = 1 - xp.exp(h)
        return h - xp.log(xp.where(rest > least, rest, xp.full_like(rest, least)))

    @property
    def n_classes(self) -> int:
        """L, the number of labels."""
        return len(self.c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a, b, b − a and c."""
        return {"a": self.a, "b": self.b, "b_less_a": self.b - self.a, "c": self.c}

    @property
    def has_logits(self) -> bool:
        """Calibrated log-odds, whose sigmoid is the probability."""
        return True

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """Calibrated log-odds."""
        s = self.log_odds(h, xp)
        # As in `OddsMap`: with a = b the line a·s + c is left, to the last bit.
        t = xp.log1p(xp.exp(-xp.abs(s)))
        z = xp.where(s < 0, arrays["a"] * s, arrays["b"] * s) + arrays["b_less_a"] * t + arrays["c"]
        largest = float(xp.finfo(h.dtype).max) / 4
        return xp.clip(z, -largest, largest)

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """σ of the calibrated log-odds."""
        z = self.logits(h, arrays, xp)
        e = xp.exp(-xp.abs(z))
        if log:
            return xp.where(z < 0, z, xp.zeros_like(z)) - xp.log1p(e)
        return xp.where(z < 0, e, xp.ones_like(e)) / (1 + e)
