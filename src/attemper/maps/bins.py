"""One function of the probability for each class, given by its knots: binning and isotonic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import columns, keep_first, one_line
from attemper.errors import InputError
from attemper.maps.base import Arrays, Map

__all__ = ["BinMap", "softmax"]


def softmax(h: Any, xp: Any) -> Any:
    """Probabilities of logits; those of masked classes are 0."""
    e = xp.exp(h - xp.max(h, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False, repr=False)
class BinMap(Map):
    """f_k(p_k), where p is the softmax, rows normalised; f_k is a step function or piecewise linear.

    For K > 2 there is a function for each class. For K = 2 there is one, for class 1, and class 0 has the rest. Where
    the functions of all classes are 0 the possible ones share equally, as in scikit-learn. The arg max may change;
    but where the classifier's own answer is among several that are equally probable, it stays.

    Steps and steep pieces magnify rounding, so the functions are evaluated in double precision for any input: where
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

    type = "bins"
    sizes: NDArray[np.int64]
    knots: NDArray[np.float64]
    values: NDArray[np.float64]
    linear: bool

    keeps_arg_max: ClassVar[bool] = False
    double: ClassVar[bool] = True
    _halvings: ClassVar[int]  # of the longest table, until one knot is left; set for each map

    def __post_init__(self) -> None:
        if np.ndim(self.sizes) != 1 or len(self.sizes) in (0, 2) or not (np.asarray(self.sizes) >= 1).all():
            raise InputError("sizes: expected one number of knots for two classes, or K of them for K > 2 classes")
        total = int(np.sum(self.sizes))
        if np.shape(self.knots) != (total,) or np.shape(self.values) != (total,):
            raise InputError(
                f"sizes: expected {total} knots and as many values, got shapes {np.shape(self.knots)} and "
                f"{np.shape(self.values)}"
            )
        ascends = np.diff(self.knots) > 0
        ascends[np.cumsum(self.sizes)[:-1] - 1] = True  # from one class to the next
        if not (ascends.all() and (self.knots >= 0).all() and (self.knots <= 1).all()):
            raise InputError("knots must ascend within each class, from 0 to 1")
        if not ((self.values >= 0) & (self.values <= 1)).all():
            raise InputError("values must lie between 0 and 1")
        object.__setattr__(self, "_halvings", int(np.max(self.sizes) - 1).bit_length())

    @property
    def n_classes(self) -> int:
        """K."""
        return max(2, len(self.sizes))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Knots and values, and where those of each class start and end."""
        end = np.cumsum(self.sizes) - 1
        return {"start": end - self.sizes + 1, "end": end, "knots": self.knots, "values": self.values}

    def _settled(self, value: Any, h: Any, xp: Any) -> Any:
        # Where the classifier's own answer is among several that are equally probable, it stays.
        own, first = (xp.argmax(v, axis=-1, keepdims=True) for v in (h, value))
        if array_api_compat.is_numpy_namespace(xp):  # a shortcut, with the same result
            rows = np.flatnonzero(own != first)
            if 0 < len(rows) < len(value):
                value[rows] = self._settled(value[rows], h[rows], xp)
            if len(rows) < len(value):
                return value
        best = (value == xp.max(value, axis=-1, keepdims=True)) & (columns(value, xp) == own)
        return keep_first(value, xp.where(xp.any(best, axis=-1, keepdims=True), own, first), xp)

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """f_k(p_k), rows normalised."""
        q = self.functions(h, arrays, xp)
        nothing = xp.all(q == 0, axis=-1, keepdims=True)
        q = xp.where(nothing, xp.astype(h > -xp.inf, q.dtype), q)
        q = q / xp.sum(q, axis=-1, keepdims=True)
        return xp.log(q) if log else q

    def functions(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """f_k(p_k) of all classes, before rows are normalised; 0 of masked ones."""
        p = softmax(h, xp)
        q = self._functions(p if self.n_classes > 2 else p[..., 1:], arrays, xp)
        if self.n_classes == 2:
            q = xp.concat([1 - q, q], axis=-1)
        return xp.where(h > -xp.inf, q, xp.zeros_like(q))

    def _functions(self, p: Any, arrays: Arrays, xp: Any) -> Any:
        """f_k(p_k) for each column."""
        start, end, knots, values = (arrays[name] for name in ("start", "end", "knots", "values"))
        if array_api_compat.is_numpy_namespace(xp):  # a shortcut, with the same result
            value = np.empty(p.shape[::-1])
            for k, (x, a, b) in enumerate(zip(np.ascontiguousarray(p.T), start.tolist(), end.tolist())):
                low = np.where(np.isnan(x), a, a + np.searchsorted(knots[a + 1 : b + 1], x, side="right"))
                value[k] = self._at(x, low, np.minimum(low + 1, b), knots, values, np)
            return np.ascontiguousarray(value.T)
        low, high = (xp.broadcast_to(v, p.shape) for v in (start, end))
        for _ in range(self._halvings):  # bisection for all columns at once, which every library can do
            middle = (low + high + 1) // 2
            right = p >= _take(knots, middle, xp)
            low, high = xp.where(right, middle, low), xp.where(right, high, middle - 1)
            high = xp.where(high < low, low, high)
        return self._at(p, low, xp.where(low < end, low + 1, low), knots, values, xp)

    def _at(self, p: Any, low: Any, after: Any, knots: Any, values: Any, xp: Any) -> Any:
        """Values of the functions between the knots ``low`` and ``after``."""
        left_value = _take(values, low, xp)
        if not self.linear:
            return left_value
        left = _take(knots, low, xp)
        width = _take(knots, after, xp) - left
        share = (p - left) / xp.where(width > 0, width, xp.ones_like(width))
        share = xp.where(width > 0, xp.clip(share, 0.0, 1.0), xp.zeros_like(share))
        return left_value + share * (_take(values, after, xp) - left_value)


def _take(table: Any, index: Any, xp: Any) -> Any:
    return xp.reshape(xp.take(table, xp.reshape(index, (-1,)), axis=0), index.shape)
