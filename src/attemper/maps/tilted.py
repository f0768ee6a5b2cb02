"""A correction on top of a map: its log-probabilities times a number, plus biases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.maps.affine import AffineMap
from attemper.maps.base import Arrays, Map
from attemper.maps.labels import SigmoidMap
from attemper.maps.scale import ScaleMap

__all__ = ["TiltedMap", "tilted"]


@dataclass(frozen=True, eq=False, repr=False)
class TiltedMap(Map):
    """softmax(scale · log p + bias), where p are the probabilities of ``base``; without a bias the arg max stays.

    Make one with `tilted`, which returns a simpler map where there is one.

    >>> from attemper import MixtureMap
    >>> base = MixtureMap(weights=(0.6, 0.3), betas=(1.0, 0.5), uniform_mass=0.1)
    >>> TiltedMap(base, 0.5).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.665, 0.335]])
    """

    __repr__ = one_line

    type = "tilted"
    base: Map
    scale: float = 1.0
    bias: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.base, SigmoidMap):
            raise InputError(f"base: expected a map of classes that exclude each other, got {type(self.base).__name__}")
        if not 1e-30 <= self.scale <= 1e30:
            raise InputError(f"scale={self.scale}: must be a positive number, between 1e-30 and 1e30")
        if self.bias is not None:
            if self.bias.ndim != 1 or len(self.bias) < 2 or self.base.n_classes not in (None, len(self.bias)):
                raise InputError(f"bias: expected one number for each class of the base, got shape {self.bias.shape}")
            if not np.abs(self.bias).max() <= 1e30:
                raise InputError("bias must hold numbers, at most 1e30 in magnitude")

    @property
    def keeps_arg_max(self) -> bool:  # type: ignore[override]
        """Where its base does and there is no bias."""
        return self.bias is None and self.base.keeps_arg_max

    @property
    def double(self) -> bool:  # type: ignore[override]
        """If its base asks for it."""
        return self.base.double

    @property
    def n_classes(self) -> int | None:
        """K, if the bias or the base fixes it."""
        return self.base.n_classes if self.bias is None else len(self.bias)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return scale and bias, and the numbers of the base."""
        own: dict[str, NDArray[Any]] = {"scale": np.asarray(self.scale)}
        if self.bias is not None:
            own["bias"] = self.bias
        return own | {f"base_{name}": a for name, a in self.base.arrays().items()}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Softmax of the corrected log-probabilities."""
        z = self.logits(h, arrays, xp)
        x = z - xp.max(z, axis=-1, keepdims=True)
        e = xp.exp(x)
        total = xp.sum(e, axis=-1, keepdims=True)
        return x - xp.log(total) if log else e / total

    @property
    def has_logits(self) -> bool:
        """Where its base has."""
        return self.base.has_logits

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """Scale · log p + bias; a class that is impossible stays so."""
        of_base = {name: arrays[f"base_{name}"] for name in self.base.arrays()}
        z = self.base.evaluate(h, of_base, xp, log=True) * arrays["scale"]
        return z if self.bias is None else z + arrays["bias"]


def tilted(base: Map, scale: float = 1.0, bias: NDArray[np.float64] | None = None) -> Map:
    """Return the simplest map with log p ∝ scale · log p_base + bias.

    >>> tilted(ScaleMap(0.5), 1.2)
    ScaleMap(beta=0.6)
    """
    bias = None if bias is None or not np.any(bias) else np.asarray(bias, dtype=np.float64)
    if scale == 1 and bias is None:
        return base
    if isinstance(base, ScaleMap):
        if bias is None:
            return ScaleMap(base.beta * scale)
        return AffineMap(np.full(len(bias), base.beta * scale), bias)
    if isinstance(base, AffineMap) and isinstance(base.then, ScaleMap):
        times = scale * base.then.beta
        return replace(
            base,
            weight=times * base.weight,
            bias=times * base.bias + (0.0 if bias is None else bias),
            curve=None if base.curve is None else times * base.curve,
            then=ScaleMap(1.0),
        )
    if isinstance(base, TiltedMap):
        own = base.bias if base.bias is None or scale == 1 else scale * base.bias
        both = own if bias is None else bias if own is None else own + bias
        return tilted(base.base, scale * base.scale, both)
    return TiltedMap(base, float(scale), bias)
