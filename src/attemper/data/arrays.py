"""Arrays of any library, checked and brought to NumPy; errors name the row and how to fix it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._typing import Labels
from attemper.errors import InputError, InputTypeError

__all__ = [
    "CHUNK_ELEMENTS",
    "RowName",
    "RowView",
    "SelectedRows",
    "as_matrix",
    "as_numbers",
    "columns",
    "is_foreign",
    "keep_first",
    "log_probs",
    "log_probs_above",
    "numbered",
    "on_gpu",
    "one_line",
    "reject_masked",
    "reshaping",
    "row_slices",
    "to_numpy",
    "widest",
]

# Numbers that are worked on at once: 1 MB, large enough that NumPy's overhead does not show, small enough that a chunk
# and its working copies stay in the cache.
CHUNK_ELEMENTS = 1 << 17


# Devices whose tensors stay where they are: those that `attemper.torch` can work on, which needs float64.
GPUS = ("cuda",)


# How errors name a row.
RowName = Callable[[int], str]


def row_slices(
    n: int, width: int, elements: int | None = None, *, first: int = 0, most_rows: int | None = None
) -> Iterator[slice]:
    """Cut the rows of an n×width array into parts of about ``elements`` numbers, from row ``first`` on.

    >>> list(row_slices(5, 3, elements=6))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    rows = max(1, (elements or CHUNK_ELEMENTS) // width)
    rows = rows if most_rows is None else min(rows, most_rows)
    return (slice(start, min(start + rows, n)) for start in range(first, n, rows))


def numbered(first_row: int = 0) -> RowName:
    """Name rows by their numbers, the first of which is this."""
    return lambda row: f"row {first_row + row}"


class RowView(ABC):
    """Rows of an array, left where they are until `to_numpy` or `gathered` reads them.

    A part, ``rows[start:stop, :]``, is another view; nothing is copied for that.
    """

    base: Any  # the array, of any library

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """As of an array: how many rows and columns."""

    @abstractmethod
    def gathered(self) -> Any:
        """Copy these rows into an array of the base's library, on its device."""

    @abstractmethod
    def part(self, rows: Any) -> RowView:
        """Take some rows."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Two dimensions, always."""
        return 2

    @property
    def dtype(self) -> Any:
        """Type of the numbers, as the array's library calls it."""
        return self.base.dtype

    def __getitem__(self, part: Any) -> RowView:
        rows = part[0] if isinstance(part, tuple) else part
        if isinstance(part, tuple) and part[1:] != (slice(None),):
            raise InputTypeError(f"[{part!r}]: of selected rows only rows can be taken; use gathered() first")
        return self.part(rows)


@dataclass(frozen=True, eq=False)
class SelectedRows(RowView):
    """Some rows of a larger array, by their numbers.

    Examples
    --------
    >>> rows = SelectedRows(np.arange(12.0).reshape(4, 3), np.array([0, 3]))
    >>> rows.shape, to_numpy(rows[1:, :])
    ((2, 3), array([[ 9., 10., 11.]]))
    """

    base: Any  # an array of two dimensions, of any library
    index: Labels  # numbers of the rows, as a NumPy array

    @property
    def shape(self) -> tuple[int, int]:
        """As of an array: how many rows and columns."""
        return len(self.index), int(self.base.shape[1])

    def part(self, rows: Any) -> SelectedRows:
        """Take some of them."""
        return SelectedRows(self.base, np.atleast_1d(self.index[rows]))

    def gathered(self) -> Any:
        """Copy these rows into an array of the base's library, on its device."""
        index = self.index
        if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
            return self.base[int(index[0]) : int(index[-1]) + 1, :]
        if not is_foreign(self.base):
            return self.base[index]
        xp = array_api_compat.array_namespace(self.base)
        return xp.take(self.base, xp.asarray(index, device=array_api_compat.device(self.base)), axis=0)


def as_matrix(values: Any, what: str) -> Any:
    """Check that ``values`` is an N×K array of real numbers with K ≥ 2 columns."""
    values = as_numbers(values, what)
    if values.ndim != 2:
        raise InputError(
            f"{what}: Expected 2D array, one row per sample and one column per class; got shape "
            f"{tuple(values.shape)}. Reshape your data. {reshaping(values.ndim, what)}"
        )
    n, n_classes = values.shape
    if n_classes == 0:
        raise InputError(f"{what}: 0 feature(s) (shape=({n}, 0)) while a minimum of 2 is required, one per class")
    if n == 0:
        raise InputError(f"{what}: 0 sample(s) (shape=(0, {n_classes})) while a minimum of 1 is required")
    if n_classes == 1:
        raise InputError(
            f"{what}: 1 feature(s) (shape=({n}, 1)) while a minimum of 2 is required: one column per class"
        )
    return values


def reshaping(ndim: int, name: str) -> str:
    """Advise how to pass more dimensions than two, wherever the classes are."""
    if ndim < 3:
        return f"Pass {name} as a table, [[…]], one row per sample."
    return (
        "Use axis=1 if the classes are the second dimension, (N, K, …), as of images; "
        "axis=-1 if they are the last one. Labels have the same shape without that dimension."
    )


def as_numbers(values: Any, what: str) -> Any:
    """Check that ``values`` is an array of real numbers, of any shape and any library; lists become one."""
    if isinstance(values, RowView):
        return values
    if hasattr(values, "tocsr"):
        raise InputTypeError(
            f"{what}: got a sparse matrix; sparse input is not supported, since softmax needs every "
            "class. Use .toarray()."
        )
    reject_masked(values, what, "For classes that are masked out use .filled(-np.inf).")
    if is_foreign(values):
        if "complex" in str(values.dtype):
            raise InputError(f"{what}: Complex data not supported; expected real numbers")
        if "bool" in str(values.dtype):
            raise InputError(f"{what}: expected floating-point numbers, got dtype {values.dtype}")
    else:
        try:
            values = np.asarray(values)
            if values.dtype.kind in "OUS" or values.dtype.kind in "biu":
                values = values.astype(np.float64)
        except TypeError as error:
            raise InputTypeError(f"{what}: {error}; expected an N×K array of numbers") from None
        except (ValueError, OverflowError) as error:
            raise InputError(f"{what}: {error}; expected an N×K array of numbers") from None
        if values.dtype.kind == "c":
            raise InputError(f"{what}: Complex data not supported; expected real numbers")
        if values.dtype.kind != "f" and "float" not in values.dtype.name:  # ml_dtypes' bfloat16 is of kind V
            raise InputError(f"{what}: expected floating-point numbers, got dtype {values.dtype}")
    return values


def to_numpy(array: Any) -> NDArray[Any]:
    """Bring an array to NumPy, in at least single precision, without a copy where possible."""
    if isinstance(array, RowView):
        array = array.gathered()
    if isinstance(array, np.ndarray):
        result = array
    elif array_api_compat.is_torch_array(array):
        try:
            array = array.detach().cpu()
        except NotImplementedError as error:  # on the meta device
            raise InputTypeError(f"got a tensor that holds no numbers: {error}") from None
        result = (array.float() if "bfloat16" in str(array.dtype) else array).numpy()
    elif array_api_compat.is_cupy_array(array):
        result = array.get()
    else:
        try:
            result = np.asarray(array)
        except (RuntimeError, TypeError):  # on a device of its own
            result = np.from_dlpack(array, device="cpu")
    if result.dtype.kind in "fV" and result.dtype.itemsize < 4:  # float16; bfloat16 of ml_dtypes is kind V
        return result.astype(np.float32)
    return result


def one_line(thing: Any) -> str:
    """Show a dataclass or named tuple in one line: of arrays and long lists the shape alone, and no defaults.

    Use it as ``__repr__``.
    """
    if is_dataclass(thing):
        names = [f.name for f in fields(thing) if f.default is MISSING or getattr(thing, f.name) is not f.default]
    else:
        names = thing._fields
    shown = (f"{name}={_brief_value(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({', '.join(shown)})"


def _brief_value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and math.prod(shape) > 4:
        return f"<array of shape {tuple(int(n) for n in shape)}>"
    if isinstance(value, dict) and len(value) <= 8:
        return "{" + ", ".join(f"{key!r}: {_brief_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list | dict) and len(value) > 8 and not hasattr(value, "_fields"):
        return f"<{type(value).__name__} of {len(value)}>"
    return repr(value)


def on_gpu(array: Any) -> bool:
    """Whether this is a tensor, or some rows of one, that `attemper.torch` works on where it is."""
    tensor = array.base if isinstance(array, RowView) else array
    return bool(array_api_compat.is_torch_array(tensor)) and tensor.device.type in GPUS


def log_probs(p: Any, zeros_as: float | None) -> Any:
    """Logarithms of probabilities, with zeros read as ``zeros_as``, or as impossible when None; the arg max stays.

    They are in double precision where the library has it, so that they do not depend on the type of ``p``. Where
    ``zeros_as`` is set, numbers below the smallest normal one of that type are zeros: some CPU settings make them so.
    """
    low = None if zeros_as is None else math.log(zeros_as)  # in Python: it may be too small for the type of p
    with np.errstate(divide="ignore"):
        return log_probs_above(p, low, array_api_compat.array_namespace(p))


def log_probs_above(p: Any, low: Any, xp: Any) -> Any:
    """`log_probs`, with the logarithm of ``zeros_as``."""
    # Half precision in single, where none of its numbers is too small to be a normal one.
    if "16" in str(p.dtype):
        p = xp.astype(p, xp.float32)
    elif not xp.isdtype(p.dtype, "real floating"):
        p = xp.astype(p, widest(p, xp))
    h = xp.astype(p, widest(p, xp))
    if low is None:
        h = xp.log(h)
    else:
        none = p < float(xp.finfo(p.dtype).smallest_normal)
        h = xp.log(xp.where(none, xp.ones_like(h), h))  # whose gradient is finite
        h = xp.where(none | (h < low), low, h)
    # Neighbours may have the same logarithm, or rounding may turn their order.
    top = xp.argmax(p, axis=-1, keepdims=True)
    if array_api_compat.is_numpy_namespace(xp) and (xp.argmax(h, axis=-1, keepdims=True) == top).all():
        return h
    h = xp.where(columns(h, xp) == top, xp.max(h, axis=-1, keepdims=True), h)
    return keep_first(h, top, xp)


def widest(array: Any, xp: Any) -> Any:
    """Double precision; single where the library has no other on that device (JAX by default, Apple's GPUs)."""
    device = array_api_compat.device(array)
    has = xp.__array_namespace_info__().dtypes(device=device, kind="real floating")
    return xp.float64 if "float64" in has else xp.float32


def keep_first(value: Any, top: Any, xp: Any) -> Any:
    """Lower by the least possible amount what rounding made equal to the arg max, and stands before it."""
    # Half precision is compared in single, which more libraries can.
    wide = xp.astype(value, xp.float32) if "16" in str(value.dtype) else value
    if array_api_compat.is_numpy_namespace(xp) and (xp.argmax(wide, axis=-1, keepdims=True) == top).all():
        return value  # a shortcut, with the same result
    best = xp.max(wide, axis=-1, keepdims=True)
    eps, least = _steps(value.dtype, xp)
    step = xp.abs(best) * eps  # one or two steps of the format; among its smallest numbers steps are all the same
    lower = best - xp.where(step < least, xp.full_like(step, least), step)
    return xp.astype(xp.where((wide == best) & (columns(value, xp) < top), lower, wide), value.dtype)


def columns(value: Any, xp: Any) -> Any:
    """Return 0 … K−1 along the last axis."""
    if array_api_compat.is_torch_namespace(xp):  # arange would fix the device of a traced model
        return xp.cumulative_sum(xp.ones_like(value[:1], dtype=xp.int64), axis=-1) - 1
    return xp.arange(value.shape[-1], device=array_api_compat.device(value))


def _steps(dtype: Any, xp: Any) -> tuple[float, float]:
    """Relative distance of neighbours at 1, and the smallest number of all."""
    if "bfloat16" in str(dtype):
        return 2.0**-7, 2.0**-133
    info = xp.finfo(dtype)
    return float(info.eps), float(info.smallest_normal) * float(info.eps)


def is_foreign(array: Any) -> bool:
    """Whether this is an array of another library than NumPy."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_array_api_obj(array)


def reject_masked(values: Any, what: str, advice: str) -> None:
    """Refuse a masked array of NumPy in which something is masked: its meaning is not defined."""
    if np.ma.is_masked(values):
        where = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        place = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), where))
        raise InputError(f"{what}: expected a number everywhere, got a masked array with {place} masked. {advice}")
