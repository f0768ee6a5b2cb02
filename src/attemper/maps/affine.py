"""Affine maps of the logits: vector, matrix and Dirichlet scaling, Eq. (9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper.arrays import one_line
from attemper.errors import InputError
from attemper.maps.base import Map
from attemper.maps.scale import MixtureMap, ScaleMap

__all__ = ["CENTRINGS", "AffineMap", "Centring", "centred"]

Centring = Literal["mean", "none", "log_probs"]
CENTRINGS: tuple[Centring, ...] = get_args(Centring)


def centred(h: Any, centring: Centring, xp: Any) -> Any:
    """Pin down the part of the logits that softmax does not see; the result is what an affine map multiplies.

    ``mean``: the mean of the row is taken away, so that adding a constant to a row changes nothing.
    ``log_probs``: the logarithms of the probabilities. ``none``: the logits as they are.
    A masked class (−inf) says nothing about the others: it counts as the mean of its row.
    """
    possible = xp.isfinite(h)
    masked = not bool(xp.all(possible))
    x = xp.where(possible, h, xp.zeros_like(h)) if masked else h
    count = xp.sum(xp.astype(possible, h.dtype), axis=1, keepdims=True) if masked else h.shape[1]
    mean = xp.sum(x, axis=1, keepdims=True) / count
    x = xp.where(possible, h - mean, xp.zeros_like(h)) if masked else h - mean
    if centring == "mean":
        return x
    if centring == "none":
        return x + mean
    top = xp.max(x, axis=1, keepdims=True)
    e = xp.exp(x - top)
    if masked:
        e = xp.where(possible, e, xp.zeros_like(e))
    x = x - (top + xp.log(xp.sum(e, axis=1, keepdims=True)))
    if not masked:
        return x
    mean = xp.sum(xp.where(possible, x, xp.zeros_like(x)), axis=1, keepdims=True) / count
    return xp.where(possible, x, mean)


PLAIN = ScaleMap(1.0)

MAX_LOOP = 128  # classes; beyond, a loop takes several times as long as BLAS


@dataclass(frozen=True, eq=False, repr=False)
class AffineMap(Map):
    """softmax(W x + b), x being the centred logits; it may change the arg max.

    ``weight`` is W: K×K, or K numbers for a diagonal one. ``then`` is applied to W x + b in the place of the
    softmax: a temperature, or a mixture of them. For NumPy arrays of up to 128 classes the prediction for a row is the
    same to the last bit whatever rows are predicted with it.

    >>> AffineMap(np.array([1.0, 0.5]), np.array([0.0, 1.0])).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.622, 0.378]])
    """

    __repr__ = one_line

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    centring: Centring = "mean"
    then: Map = PLAIN

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

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.bias)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {
            "type": "affine",
            "diagonal": self.weight.ndim == 1,
            "weight": self.weight.tolist(),
            "bias": self.bias.tolist(),
            "centring": self.centring,
            "then": self.then.to_dict(),
        }

    def logits(self, h: Any, xp: Any) -> Any:
        """W x + b, with masked classes as they came."""
        device = array_api_compat.device(h)
        weight, bias = (xp.asarray(a, dtype=h.dtype, device=device) for a in (self.weight, self.bias))
        x = centred(h, self.centring, xp)
        z = (x * weight if self.weight.ndim == 1 else _by_matrix(x, weight, xp)) + bias
        return xp.where(h == -xp.inf, h, z)

    def _values(self, h: Any, xp: Any, *, log: bool) -> Any:
        return self.then._values(self.logits(h, xp), xp, log=log)


def _by_matrix(x: Any, weight: Any, xp: Any) -> Any:
    """W x, row by row. BLAS adds in an order that depends on the number of rows; NumPy's own loop does not."""
    if array_api_compat.is_numpy_namespace(xp) and len(weight) <= MAX_LOOP:
        return np.einsum("nk,jk->nj", x, weight)
    return xp.matmul(x, weight.T)
