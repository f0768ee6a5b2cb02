"""One curve of the log-odds for each class, rows normalised: Platt scaling and beta calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import columns, one_line
from attemper.errors import InputError
from attemper.maps.base import Arrays, Map

__all__ = ["OddsMap", "log_odds"]


def log_odds(h: Any, xp: Any) -> Any:
    """Log-odds of each class against all others: log p_k − log(1 − p_k) = h_k − log Σ_{j≠k} exp(h_j).

    No probability is subtracted from one. A masked class has −inf, and the only possible class of a row +inf.
    """
    is_top = columns(h, xp) == xp.argmax(h, axis=-1, keepdims=True)
    d = h - xp.max(h, axis=-1, keepdims=True)
    others = xp.where(is_top, -xp.inf, d)
    second = xp.max(others, axis=-1, keepdims=True)
    alone = second == -xp.inf
    second = xp.where(alone, xp.zeros_like(second), second)
    # Relative to the second largest, the rest cannot underflow; and it is exact for two classes.
    e = xp.exp(others - second)
    rest = xp.sum(e, axis=-1, keepdims=True)
    of_top = xp.where(alone, xp.inf, -second - xp.log1p(_not_negative(rest - 1, xp)))
    of_others = d - xp.log1p(_not_negative((rest - e) * xp.exp(second), xp))
    return xp.where(is_top, of_top, of_others)


@dataclass(frozen=True, eq=False, repr=False)
class OddsMap(Map):
    """Log-odds_k = a_k log p_k − b_k log(1 − p_k) + c_k, where p is the softmax; σ of it, rows normalised.

    Platt scaling is a = b. With a, b ≥ 0 the probability of a class before the rows are normalised grows with p_k,
    but curves differ from class to class: the arg max may change.

    >>> OddsMap(np.array([0.5, 0.5]), np.array([0.5, 0.5]), np.zeros(2)).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.731, 0.269]])
    """

    __repr__ = one_line

    type = "odds"
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    c: NDArray[np.float64]

    keeps_arg_max: ClassVar[bool] = False

    def __post_init__(self) -> None:
        shapes = {np.shape(v) for v in (self.a, self.b, self.c)}
        if len(shapes) != 1 or np.ndim(self.c) != 1 or len(self.c) < 2:
            raise InputError(f"a, b and c have shapes {sorted(shapes)}; expected one number for each of the classes")
        if not max(np.abs(v).max() for v in (self.a, self.b, self.c)) <= 1e30:
            raise InputError("a, b and c must be numbers, at most 1e30 in magnitude")

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a, b, b − a and c."""
        return {"a": self.a, "b": self.b, "b_less_a": self.b - self.a, "c": self.c}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """σ of the curves, rows normalised."""
        x = self._log_sigmoid(h, arrays, xp)
        is_top = columns(h, xp) == xp.argmax(x, axis=-1, keepdims=True)
        x = x - xp.max(x, axis=-1, keepdims=True)
        e = xp.where(is_top, xp.zeros_like(x), xp.exp(x))
        rest = xp.sum(e, axis=-1, keepdims=True)
        return x - xp.log1p(rest) if log else xp.where(is_top, xp.ones_like(e), e) / (1 + rest)

    def _log_sigmoid(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """Logarithm of each class's probability before the rows are normalised."""
        s = log_odds(h, xp)
        s = xp.where(xp.isfinite(s), s, xp.zeros_like(s))  # decided by the mask alone, whatever a and b are
        # log p = min(s, 0) − t and −log(1 − p) = max(s, 0) + t; with a = b the line a·s + c is left, to the last bit.
        t = xp.log1p(xp.exp(-xp.abs(s)))
        z = xp.where(s < 0, arrays["a"] * s, arrays["b"] * s) + arrays["b_less_a"] * t + arrays["c"]
        largest = float(xp.finfo(h.dtype).max) / 4
        z = xp.clip(z, -largest, largest)  # −inf for all classes of a row would be no distribution
        log_sigmoid = xp.where(z < 0, z, xp.zeros_like(z)) - xp.log1p(xp.exp(-xp.abs(z)))
        return xp.where(h == -xp.inf, -xp.inf, log_sigmoid)


def _not_negative(x: Any, xp: Any) -> Any:
    """Lift to zero what rounding left slightly below."""
    return xp.where(x > 0, x, xp.zeros_like(x))
