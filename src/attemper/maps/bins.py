"""One function of the probability for each class, given by its knots: binning and isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper.arrays import keep_first, one_line, to_numpy, widest
from attemper.errors import InputError
from attemper.maps.base import Map

__all__ = ["BinMap", "softmax"]

MAX_KNOTS = 50_000_000


def softmax(h: Any, xp: Any) -> Any:
    """Probabilities of logits; those of masked classes are 0."""
    e = xp.exp(h - xp.max(h, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


@dataclass(frozen=True, eq=False, repr=False)
class BinMap(Map):
    """f_k(p_k), p being the softmax, rows normalised; f_k is a step function or piecewise linear.

    For K > 2 there is a function for each class. For K = 2 there is one, for class 1, and class 0 has the rest. Where
    the functions of all classes are 0 the possible ones share equally, as in scikit-learn. The arg max may change;
    but where the classifier's own answer is among several that are equally probable, it stays.

    Steps and steep pieces magnify rounding, so the functions are evaluated in double precision whatever came in: where
    the library has it on that device; else (JAX in single precision, Apple's GPUs) by NumPy, and the result is
    brought back.

    Parameters
    ----------
    sizes : how many knots each class has
    knots : of all classes, one after the other; within a class they ascend, from 0 to 1
    values : at the knots; between them the function is linear, or keeps the value of the knot to the left
    linear : whether it is linear between knots; beyond the outermost ones it is constant in either case

    Examples
    --------
    >>> steps = BinMap(np.array([2]), np.array([0.0, 0.5]), np.array([0.2, 0.7]), linear=False)
    >>> steps.apply(np.array([[2.0, 0.0], [0.0, 0.5]]))
    array([[0.8, 0.2],
           [0.3, 0.7]])
    """

    __repr__ = one_line

    sizes: NDArray[np.int64]
    knots: NDArray[np.float64]
    values: NDArray[np.float64]
    linear: bool

    keeps_arg_max: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if np.ndim(self.sizes) != 1 or len(self.sizes) in (0, 2) or not (np.asarray(self.sizes) >= 1).all():
            raise InputError("sizes: expected one number of knots for two classes, or K of them for K > 2 classes")
        total = int(np.sum(self.sizes))
        if not total <= MAX_KNOTS or np.shape(self.knots) != (total,) or np.shape(self.values) != (total,):
            raise InputError(
                f"{total} knots told, but knots have shape {np.shape(self.knots)} and values {np.shape(self.values)}"
            )
        ascends = np.diff(self.knots) > 0
        ascends[np.cumsum(self.sizes)[:-1] - 1] = True  # from one class to the next
        if not (ascends.all() and (self.knots >= 0).all() and (self.knots <= 1).all()):
            raise InputError("knots must ascend within each class, from 0 to 1")
        if not ((self.values >= 0) & (self.values <= 1)).all():
            raise InputError("values must lie between 0 and 1")

    @property
    def n_classes(self) -> int:
        """K."""
        return max(2, len(self.sizes))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {
            "type": "bins",
            "linear": self.linear,
            "sizes": self.sizes.tolist(),
            "knots": self.knots.tolist(),
            "values": self.values.tolist(),
        }

    def _transform(self, logits: Any, xp: Any, dtype: Any, *, log: bool) -> Any:
        value = super()._transform(logits, xp, dtype, log=log)
        own, first = (xp.argmax(v, axis=1, keepdims=True) for v in (logits, value))
        column = xp.arange(value.shape[1], dtype=own.dtype, device=array_api_compat.device(value))
        tied = xp.any((column == own) & (value == xp.max(value, axis=1, keepdims=True)), axis=1, keepdims=True)
        return keep_first(value, xp.where(tied, own, first), xp)

    def _values(self, h: Any, xp: Any, *, log: bool) -> Any:
        if widest(h, xp) == xp.float64:
            return self._probabilities(xp.astype(h, xp.float64), xp, log=log)
        value = self._probabilities(to_numpy(h).astype(np.float64), np, log=log)
        return xp.asarray(value.astype(np.float32), device=array_api_compat.device(h))

    def _probabilities(self, h: Any, xp: Any, *, log: bool) -> Any:
        p = softmax(h, xp)
        possible = h > -xp.inf
        if self.n_classes == 2:
            q = self._functions(p[:, 1:], xp)
            q = xp.concat([1 - q, q], axis=1)
        else:
            q = self._functions(p, xp)
        q = xp.where(possible, q, xp.zeros_like(q))
        nothing = xp.all(q == 0, axis=1, keepdims=True)
        q = xp.where(nothing, xp.astype(possible, q.dtype), q)
        q = q / xp.sum(q, axis=1, keepdims=True)
        return xp.log(q) if log else q

    def _functions(self, p: Any, xp: Any) -> Any:
        """f_k(p_k) for each column; bisection for all of them at once, which every library can do."""
        device = array_api_compat.device(p)
        end = np.cumsum(self.sizes) - 1
        start, end = (xp.asarray(v, device=device) for v in (end - self.sizes + 1, end))
        knots, values = (xp.asarray(v, device=device) for v in (self.knots, self.values))

        def take(table: Any, index: Any) -> Any:
            return xp.reshape(xp.take(table, xp.reshape(index, (-1,)), axis=0), index.shape)

        low, high = (xp.broadcast_to(v, p.shape) for v in (start, end))
        for _ in range(int(np.max(self.sizes) - 1).bit_length()):
            middle = (low + high + 1) // 2
            right = p >= take(knots, middle)
            low, high = xp.where(right, middle, low), xp.where(right, high, middle - 1)
            high = xp.where(high < low, low, high)
        left_value = take(values, low)
        if not self.linear:
            return left_value
        after = xp.where(low < end, low + 1, low)
        left = take(knots, low)
        width = take(knots, after) - left
        share = (p - left) / xp.where(width > 0, width, xp.ones_like(width))
        share = xp.where(width > 0, xp.clip(share, 0.0, 1.0), xp.zeros_like(share))
        return left_value + share * (take(values, after) - left_value)
