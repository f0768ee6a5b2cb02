"""What every map is: a function from logits to probabilities, written once in the array API."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, get_args

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._json import Fields, from_fields, to_fields
from attemper.data.arrays import keep_first, row_slices, to_numpy, widest
from attemper.errors import FileError

__all__ = ["OUTPUT_KINDS", "Arrays", "Map", "OutputKind", "map_from_fields"]

Arrays = dict[str, Any]
OutputKind = Literal["logits", "probs", "log_probs"]
OUTPUT_KINDS: tuple[OutputKind, ...] = get_args(OutputKind)


class Map:
    """Turns logits into calibrated probabilities; `ScaleMap` is the simplest one.

    A subclass is a frozen dataclass with a ``type``, under which files refer to it. `arrays` returns its numbers and
    `evaluate` the probabilities, by functions of the array API and without a branch on values. That is enough for
    NumPy, torch, JAX and CuPy, for a torch module and for an ONNX graph. Files hold the fields of the dataclass.
    """

    type: ClassVar[str]
    keeps_arg_max: ClassVar[bool] = True  # in any float type
    independent: ClassVar[bool] = False  # columns are labels that do not exclude each other: σ instead of softmax
    double: ClassVar[bool] = False  # whether to evaluate in double precision, whatever the type of the logits

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "type" in vars(cls):
            REGISTRY[cls.type] = cls

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of the map by name: what a torch module keeps in its buffers."""
        raise NotImplementedError

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Probabilities of N×K logits, or their logarithms; ``arrays`` are those of `arrays`, in the type of ``h``."""
        raise NotImplementedError

    @property
    def has_logits(self) -> bool:
        """Whether `logits` works: there are logits whose softmax is the probabilities."""
        return False

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """Calibrated logits."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the type and the fields as plain lists and numbers."""
        return {"type": self.type, **to_fields(self)}

    @classmethod
    def from_fields(cls, content: Fields) -> Self:
        """Read back what `to_dict` gave; the annotations define what the fields hold."""
        return map_from_fields(content) if cls is Map else from_fields(cls, content)  # type: ignore[return-value]

    def apply(self, logits: Any, *, dtype: Any = None) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``logits``, or in ``dtype``."""
        return self._applied(logits, dtype, "probs")

    def log_apply(self, logits: Any, *, dtype: Any = None) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._applied(logits, dtype, "log_probs")

    @property
    def n_classes(self) -> int | None:
        """K, if the map is for one number of classes only."""
        return None

    def transform(self, logits: Any, arrays: Arrays, xp: Any, *, dtype: Any, wide: Any, output: OutputKind) -> Any:
        """Compute in the type ``wide`` and round once, to ``dtype``: the way of every target."""
        h = xp.astype(logits, wide)
        cast = {k: xp.astype(a, wide) if "float" in str(a.dtype) else a for k, a in arrays.items()}
        made = self.logits(h, cast, xp) if output == "logits" else self.evaluate(h, cast, xp, log=output != "probs")
        return self._settled(xp.astype(made, dtype), h, xp)

    def _settled(self, value: Any, h: Any, xp: Any) -> Any:
        """Let the column that must be the arg max be it, after rounding too."""
        return keep_first(value, xp.argmax(h, axis=-1, keepdims=True), xp) if self.keeps_arg_max else value

    def _applied(self, logits: Any, dtype: Any, output: OutputKind) -> Any:
        # In half precision a log-probability may be too small to differ from −inf.
        with np.errstate(over="ignore", divide="ignore"):
            return self._on_device(logits, dtype, output)

    def _on_device(self, logits: Any, dtype: Any, output: OutputKind) -> Any:
        xp = array_api_compat.array_namespace(logits)
        dtype = float_dtype(logits, xp) if dtype is None else dtype
        wide = wide_dtype(logits, xp)
        if array_api_compat.is_numpy_array(logits):
            return self._in_numpy(logits, dtype, np.float64 if self.double else wide, output)
        device = array_api_compat.device(logits)
        if self.double:
            wide = widest(logits, xp)
        if self.double and wide != xp.float64:  # JAX in single precision, Apple's GPUs
            value = self._in_numpy(to_numpy(logits), np.float64, np.float64, output)
            return self._settled(xp.astype(xp.asarray(value.astype(np.float32), device=device), dtype), logits, xp)
        arrays = {
            name: xp.asarray(a, dtype=wide, device=device) if a.dtype.kind == "f" else xp.asarray(a, device=device)
            for name, a in self.arrays().items()
        }
        return self.transform(logits, arrays, xp, dtype=dtype, wide=wide, output=output)

    def _in_numpy(self, logits: NDArray[Any], dtype: Any, wide: Any, output: OutputKind) -> NDArray[Any]:
        dtype, arrays = np.dtype(dtype).newbyteorder("="), self.arrays()
        xp = array_api_compat.array_namespace(logits)
        out = np.empty(logits.shape, dtype=dtype)
        for part in row_slices(len(logits), max(1, logits.shape[1])):
            # Sums over a row are the same to the last bit, however the rows lie in memory.
            rows = np.ascontiguousarray(logits[part])
            out[part] = self.transform(rows, arrays, xp, dtype=dtype, wide=wide, output=output)
        return out


REGISTRY: dict[str, type[Map]] = {}  # by the type that files refer to


def map_from_fields(content: Fields) -> Map:
    """Read a map from the result of `Map.to_dict`; everything is checked."""
    kind = content.text("type")
    if kind not in REGISTRY:
        raise FileError(
            f"{content.where}: expected a map of a known type ({', '.join(sorted(REGISTRY))}), got {kind!r}. "
            "Import the module that defines it."
        )
    return REGISTRY[kind].from_fields(content)


def float_dtype(logits: Any, xp: Any) -> Any:
    """Type of the result: that of the logits, or double precision for whole numbers."""
    if "bfloat16" in str(logits.dtype):  # of ml_dtypes in NumPy, which isdtype does not know
        return logits.dtype
    return logits.dtype if xp.isdtype(logits.dtype, "real floating") else xp.float64


def wide_dtype(logits: Any, xp: Any) -> Any:
    """Type to compute in: float16 and bfloat16 in single precision, which is rounded once, at the end."""
    given = float_dtype(logits, xp)
    return xp.float32 if "16" in str(given) or given == xp.float32 else xp.float64
