"""Maps: what a calibration does to logits at inference time.

A calibrator is a recipe; a map is its result, and all that production needs.
Maps take any array (NumPy, torch on its device, JAX, …) and give back the same kind,
device and precision. Neither map here changes the arg max, in any float type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from attemper.arrays import CHUNK_ELEMENTS
from attemper.documents import Fields
from attemper.errors import FileError, InputError

__all__ = ["Map", "MixtureMap", "ScaleMap", "map_from_fields"]

MAX_COMPONENTS = 10_000


class Map:
    """Turns logits into calibrated probabilities."""

    def apply(self, logits: Any) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``logits``."""
        return self._by_chunks(logits, log=False)

    def log_apply(self, logits: Any) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._by_chunks(logits, log=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        raise NotImplementedError

    def _probs(self, d: Any, xp: Any) -> Any:
        """Probabilities of logits whose row maximum is 0."""
        raise NotImplementedError

    def _log_probs(self, d: Any, xp: Any) -> Any:
        """Log-probabilities of logits whose row maximum is 0."""
        raise NotImplementedError

    def _by_chunks(self, logits: Any, *, log: bool) -> Any:
        xp = array_api_compat.array_namespace(logits)
        if not array_api_compat.is_numpy_array(logits):
            return self._transform(logits, xp, log=log)
        rows = max(1, CHUNK_ELEMENTS // max(1, logits.shape[1]))
        out = np.empty(logits.shape, dtype=_result_dtype(logits, np))
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            out[part] = self._transform(logits[part], xp, log=log)
        return out

    def _transform(self, logits: Any, xp: Any, *, log: bool) -> Any:
        dtype = _result_dtype(logits, xp)
        # float16 and bfloat16 are computed in single precision and rounded once, at the end.
        wide = xp.float32 if "16" in str(dtype) else dtype if dtype == xp.float32 else xp.float64
        h = xp.astype(logits, wide)
        top = xp.argmax(h, axis=1, keepdims=True)
        d = h - xp.max(h, axis=1, keepdims=True)
        # In half precision a log-probability may be too small to be told from −inf.
        with np.errstate(over="ignore", divide="ignore"):
            value = xp.astype(self._log_probs(d, xp) if log else self._probs(d, xp), dtype)
        return _keep_first(value, top, xp)


@dataclass(frozen=True)
class ScaleMap(Map):
    """softmax(β · logits): one temperature T = 1/β.

    >>> ScaleMap(beta=0.5).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.731, 0.269]])
    """

    beta: float

    def __post_init__(self) -> None:
        if not 1e-30 <= self.beta <= 1e30:
            raise InputError(f"beta={self.beta}: must be a positive number, between 1e-30 and 1e30")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {"type": "scale", "beta": self.beta}

    def _probs(self, d: Any, xp: Any) -> Any:
        e = xp.exp(d * self.beta)
        return e / xp.sum(e, axis=1, keepdims=True)

    def _log_probs(self, d: Any, xp: Any) -> Any:
        x = d * self.beta
        return x - xp.log(xp.sum(xp.exp(x), axis=1, keepdims=True))


@dataclass(frozen=True)
class MixtureMap(Map):
    """Σ_m weight_m · softmax(β_m · logits) + floor/K: an average over temperatures.

    Weights and floor add up to one. Masked classes (−inf) get nothing of the floor.

    >>> MixtureMap(weights=(0.6, 0.3), betas=(1.0, 0.5), floor=0.1).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.798, 0.202]])
    """

    weights: tuple[float, ...]
    betas: tuple[float, ...]
    floor: float

    def __post_init__(self) -> None:
        w, b = np.asarray(self.weights, dtype=float), np.asarray(self.betas, dtype=float)
        if not (1 <= len(w) <= MAX_COMPONENTS and w.shape == b.shape):
            raise InputError(f"a mixture of {w.shape} weights and {b.shape} betas: expected one for each")
        if not ((b >= 1e-30) & (b <= 1e30)).all():
            raise InputError("betas must be positive numbers, between 1e-30 and 1e30")
        if not (np.isfinite(w).all() and (w >= 0).all() and 0 <= self.floor <= 1):
            raise InputError("weights and floor must not be negative")
        if abs(w.sum() + self.floor - 1) > 1e-6:
            raise InputError(f"weights and floor add up to {w.sum() + self.floor}, not to 1")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {
            "type": "mixture",
            "weights": list(self.weights),
            "betas": list(self.betas),
            "floor": self.floor,
        }

    def _probs(self, d: Any, xp: Any) -> Any:
        total = self._floor(d, xp)
        for weight, beta in zip(self.weights, self.betas):
            e = xp.exp(d * beta)
            total = total + e * (weight / xp.sum(e, axis=1, keepdims=True))
        return total

    def _log_probs(self, d: Any, xp: Any) -> Any:
        # The flattest component outlasts the others in the tail: taken out as a factor, it leaves a sum
        # that cannot underflow.
        flattest = min(beta for beta, weight in zip(self.betas, self.weights) if weight > 0 or self.floor == 1)
        possible = xp.isfinite(d)
        d = xp.where(possible, d, xp.zeros_like(d))
        if self.floor > 0:
            flattest = 0.0  # the floor has the same height everywhere
        total = self._floor(xp.where(possible, d, -xp.inf), xp)
        for weight, beta in zip(self.weights, self.betas):
            z = xp.sum(xp.where(possible, xp.exp(d * beta), xp.zeros_like(d)), axis=1, keepdims=True)
            total = total + xp.exp(d * (beta - flattest)) * (weight / z)
        return xp.where(possible, d * flattest + xp.log(total), -xp.inf)

    def _floor(self, d: Any, xp: Any) -> Any:
        possible = xp.astype(xp.isfinite(d), d.dtype)
        return possible * (self.floor / xp.sum(possible, axis=1, keepdims=True))


def map_from_fields(content: Fields) -> Map:
    """Read back what `Map.to_dict` gave; everything is checked."""
    kind = content.text("type")
    try:
        if kind == "scale":
            return ScaleMap(content.number("beta"))
        if kind == "mixture":
            weights, betas = content.array("weights", (-1,)), content.array("betas", (-1,))
            return MixtureMap(tuple(weights.tolist()), tuple(betas.tolist()), content.number("floor"))
    except InputError as error:
        raise FileError(f"{content.where}: {error}") from None
    raise FileError(f"{content.where}: a map of type {kind!r} is unknown to this version of attemper")


def _result_dtype(logits: Any, xp: Any) -> Any:
    if "bfloat16" in str(logits.dtype):  # of ml_dtypes in NumPy, which isdtype does not know
        return logits.dtype
    return logits.dtype if xp.isdtype(logits.dtype, "real floating") else xp.float64


def _keep_first(value: Any, top: Any, xp: Any) -> Any:
    """Lower by the least possible amount what rounding made equal to the arg max, and stands before it."""
    wrong = xp.argmax(value, axis=1, keepdims=True) != top
    if not bool(xp.any(wrong)):
        return value
    best = xp.max(value, axis=1, keepdims=True)
    column = xp.reshape(xp.arange(value.shape[1], dtype=top.dtype, device=array_api_compat.device(value)), (1, -1))
    eps, least = _steps(value.dtype, xp)
    wide = xp.astype(best, xp.float32) if value.dtype not in (xp.float32, xp.float64) else best
    step = xp.abs(wide) * eps  # one or two steps of the format; among its smallest numbers steps are all the same
    lower = xp.astype(wide - xp.where(step < least, xp.full_like(step, least), step), value.dtype)
    return xp.where(wrong & (value == best) & (column < top), lower, value)


def _steps(dtype: Any, xp: Any) -> tuple[float, float]:
    """Relative distance of neighbours at 1, and the smallest number of all."""
    if "bfloat16" in str(dtype):
        return 2.0**-7, 2.0**-133
    info = xp.finfo(dtype)
    return float(info.eps), float(info.smallest_normal) * float(info.eps)
