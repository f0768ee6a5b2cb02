"""Affine maps of the logits: vector, matrix and Dirichlet scaling, Eq. (9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.maps.base import Arrays, Map
from attemper.maps.scale import MixtureMap, ScaleMap

__all__ = ["CENTRINGS", "AffineMap", "Centring", "bend", "centred"]

Centring = Literal["mean", "none", "log_probs"]
CENTRINGS: tuple[Centring, ...] = get_args(Centring)


def centred(h: Any, centring: Centring, xp: Any) -> Any:
    """Pin down the part of the logits that softmax does not see; the result is what an affine map multiplies.

    ``mean``: the mean of the row is taken away, so that adding a constant to a row changes nothing.
    ``log_probs``: the logarithms of the probabilities. ``none``: the logits as they are.
    A masked class (−inf) carries no information about the others: it counts as the mean of its row.
    """
    possible, zero = xp.isfinite(h), xp.zeros_like(h)
    count = xp.sum(xp.astype(possible, h.dtype), axis=-1, keepdims=True)
    mean = xp.sum(xp.where(possible, h, zero), axis=-1, keepdims=True) / count
    x = xp.where(possible, h - mean, zero)
    if centring == "mean":
        return x
    if centring == "none":
        return x + mean
    top = xp.max(x, axis=-1, keepdims=True)
    e = xp.where(possible, xp.exp(x - top), zero)
    x = x - (top + xp.log(xp.sum(e, axis=-1, keepdims=True)))
    mean = xp.sum(xp.where(possible, x, zero), axis=-1, keepdims=True) / count
    return xp.where(possible, x, mean)


def bend(margin: Any, xp: Any) -> Any:
    """2 log cosh(margin / 2): an absolute value without its kink, 0 at 0."""
    size = xp.abs(margin)
    return size + 2 * xp.log1p(xp.exp(-size)) - 2 * math.log(2)


PLAIN = ScaleMap(1.0)

MAX_LOOP = 128  # classes; beyond, a loop takes several times as long as BLAS


@dataclass(frozen=True, eq=False, repr=False)
class AffineMap(Map):
    """softmax(W x + b), where x are the centred logits; it may change the arg max.

    ``weight`` is W: K×K, or K numbers for a diagonal one. For two classes ``curve`` adds a bend: c_k times
    2 log cosh(m/2), m being ``curve_scale`` times the margin of the logits, as in beta calibration. ``then`` is applied
    to W x + b in the place of the softmax: a temperature, or a mixture of them. For NumPy arrays of up to 128 classes
    the prediction for a row is the same to the last bit whatever rows are predicted with it.

    >>> AffineMap(np.array([1.0, 0.5]), np.array([0.0, 1.0])).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.622, 0.378]])
    """

    __repr__ = one_line

    type = "affine"
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    centring: Centring = "mean"
    then: Map = PLAIN
    curve: NDArray[np.float64] | None = None
    curve_scale: float = 1.0

    keeps_arg_max: ClassVar[bool] = False

    def __post_init__(self) -> None:
        k = len(self.bias)
        if self.bias.shape != (k,) or self.weight.shape not in ((k,), (k, k)) or k < 2:
            raise InputError(f"an affine map with weight {self.weight.shape} and bias {self.bias.shape}: they disagree")
        largest = max(np.abs(self.weight).max(), np.abs(self.bias).max())
        if not largest <= 1e30:
            raise InputError("weight and bias must be numbers, at most 1e30 in magnitude")
        if self.centring not in CENTRINGS:
            raise InputError(f"centring={self.centring!r}: expected one of {', '.join(map(repr, CENTRINGS))}")
        if not isinstance(self.then, ScaleMap | MixtureMap):
            raise InputError("an affine map ends in a temperature or a mixture of them")
        if self.curve is not None and not (
            self.curve.shape == self.bias.shape == (2,) and np.abs(self.curve).max() <= 1e30
        ):
            raise InputError(f"curve={self.curve!r}: expected two numbers, for two classes")
        if not 0 < self.curve_scale <= 1e30:
            raise InputError(f"curve_scale={self.curve_scale}: expected a positive number")

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.bias)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """W, b and what follows."""
        own = {"weight": self.weight, "bias": self.bias}
        if self.curve is not None:
            own |= {"curve": self.curve, "curve_scale": np.asarray(self.curve_scale)}
        return {**own, **self.then.arrays()}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Apply ``then`` to W x + b."""
        return self.then.evaluate(self._affine(h, arrays, xp), arrays, xp, log=log)

    @property
    def has_logits(self) -> bool:
        """Where it ends in one temperature."""
        return self.then.has_logits

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """W x + b, times β."""
        return self.then.logits(self._affine(h, arrays, xp), arrays, xp)

    def _affine(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """W x + b, with masked classes unchanged."""
        numpy = array_api_compat.is_numpy_namespace(xp)
        # In single precision the mean of large logits loses less this way; NumPy's bits are those of 0.1.
        near = h if numpy or self.centring == "none" else h - xp.max(h, axis=-1, keepdims=True)
        x, weight = centred(near, self.centring, xp), arrays["weight"]
        if self.weight.ndim == 1:
            z = x * weight
        elif numpy and len(weight) <= MAX_LOOP:
            # BLAS adds in an order that depends on the number of rows; NumPy's own loop does not.
            z = np.einsum("nk,jk->nj", x, weight)
        else:
            z = xp.matmul(x, weight.T)
        if self.curve is not None:
            margin = (x[..., 1:] - x[..., :1]) * arrays["curve_scale"]
            z = z + bend(margin, xp) * arrays["curve"]
        return xp.where(h == -xp.inf, h, z + arrays["bias"])
