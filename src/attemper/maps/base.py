"""What every map is: a function from logits to probabilities, in the arrays that came in."""

from __future__ import annotations

from typing import Any, ClassVar

import array_api_compat
import numpy as np

from attemper.arrays import CHUNK_ELEMENTS

__all__ = ["Map"]


class Map:
    """Turns logits into calibrated probabilities; `ScaleMap` is the simplest one."""

    keeps_arg_max: ClassVar[bool] = True  # in any float type

    def apply(self, logits: Any) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``logits``."""
        return self._by_chunks(logits, log=False)

    def log_apply(self, logits: Any) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._by_chunks(logits, log=True)

    @property
    def n_classes(self) -> int | None:
        """K, if the map is for one number of classes only."""
        return None

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
        # In half precision a log-probability may be too small to be told from −inf.
        with np.errstate(over="ignore", divide="ignore"):
            value = xp.astype(self._values(h, xp, log=log), dtype)
        return _keep_first(value, xp.argmax(h, axis=1, keepdims=True), xp) if self.keeps_arg_max else value

    def _values(self, h: Any, xp: Any, *, log: bool) -> Any:
        d = h - xp.max(h, axis=1, keepdims=True)
        return self._log_probs(d, xp) if log else self._probs(d, xp)


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
