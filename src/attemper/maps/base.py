"""What every map is: a function from logits to probabilities, in the arrays that came in."""

from __future__ import annotations

from typing import Any, ClassVar

import array_api_compat
import numpy as np

from attemper.arrays import CHUNK_ELEMENTS, keep_first

__all__ = ["Map"]


class Map:
    """Turns logits into calibrated probabilities; `ScaleMap` is the simplest one."""

    keeps_arg_max: ClassVar[bool] = True  # in any float type

    def apply(self, logits: Any, *, dtype: Any = None) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``logits``, or in ``dtype``."""
        return self._by_chunks(logits, dtype, log=False)

    def log_apply(self, logits: Any, *, dtype: Any = None) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._by_chunks(logits, dtype, log=True)

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

    def _by_chunks(self, logits: Any, dtype: Any, *, log: bool) -> Any:
        xp = array_api_compat.array_namespace(logits)
        dtype = _float_dtype(logits, xp) if dtype is None else dtype
        if not array_api_compat.is_numpy_array(logits):
            return self._transform(logits, xp, dtype, log=log)
        dtype = np.dtype(dtype).newbyteorder("=")
        rows = max(1, CHUNK_ELEMENTS // max(1, logits.shape[1]))
        out = np.empty(logits.shape, dtype=dtype)
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            # Sums over a row are the same to the last bit, however the rows lie in memory.
            out[part] = self._transform(np.ascontiguousarray(logits[part]), xp, dtype, log=log)
        return out

    def _transform(self, logits: Any, xp: Any, dtype: Any, *, log: bool) -> Any:
        came = _float_dtype(logits, xp)
        # float16 and bfloat16 are computed in single precision and rounded once, at the end.
        wide = xp.float32 if "16" in str(came) or came == xp.float32 else xp.float64
        h = xp.astype(logits, wide)
        # In half precision a log-probability may be too small to be told from −inf.
        with np.errstate(over="ignore", divide="ignore"):
            value = xp.astype(self._values(h, xp, log=log), dtype)
        return keep_first(value, xp.argmax(h, axis=1, keepdims=True), xp) if self.keeps_arg_max else value

    def _values(self, h: Any, xp: Any, *, log: bool) -> Any:
        d = h - xp.max(h, axis=1, keepdims=True)
        return self._log_probs(d, xp) if log else self._probs(d, xp)


def _float_dtype(logits: Any, xp: Any) -> Any:
    if "bfloat16" in str(logits.dtype):  # of ml_dtypes in NumPy, which isdtype does not know
        return logits.dtype
    return logits.dtype if xp.isdtype(logits.dtype, "real floating") else xp.float64
