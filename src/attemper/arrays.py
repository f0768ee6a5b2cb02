"""Arrays of any library, checked and brought to NumPy; errors name the row and how to fix it."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from attemper.errors import InputError, InputTypeError, option, setting

__all__ = [
    "CHUNK_ELEMENTS",
    "MASKS_FROM",
    "Floats",
    "Labels",
    "RowName",
    "SelectedRows",
    "as_labels",
    "as_matrix",
    "as_names",
    "as_numbers",
    "as_weights",
    "has_finite_masks",
    "keep_first",
    "log_probs",
    "masks_as_inf",
    "numbered",
    "on_gpu",
    "one_line",
    "reject_masked",
    "reshaping",
    "to_numpy",
    "widest",
]

# Numbers that are worked on at once: 1 MB, large enough that NumPy's overhead does not show, small enough that a chunk
# and its working copies stay in the cache.
CHUNK_ELEMENTS = 1 << 17

MAX_WEIGHT = 1e12


# Finite numbers that stand for −inf in other people's code are below this: −1e4 in bfloat16 is −9984, and z − 1e4 may
# be above −1e4. They are further below the logits than this many times the range of the logits, or of the masks.
MASKS_FROM = -9000.0
GAP = 10.0

DROP_ROWS = "Drop those rows: keep = ~np.ma.getmaskarray(labels); logits[keep], labels[keep]."

# Devices whose tensors stay where they are: those that `attemper.gpu` can work on, which needs float64.
GPUS = ("cuda",)

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

# How errors name a row.
RowName = Callable[[int], str]


def numbered(first_row: int = 0) -> RowName:
    """Name rows by their numbers, the first of which is this."""
    return lambda row: f"row {first_row + row}"


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Some rows of a larger array, left where they are until `to_numpy` or `gathered` reads them.

    A part of it, ``rows[start:stop, :]``, is another one; nothing is copied for that.

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

    @property
    def ndim(self) -> int:
        """Two dimensions, always."""
        return 2

    @property
    def dtype(self) -> Any:
        """Type of the numbers, as the array's library calls it."""
        return self.base.dtype

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: Any) -> SelectedRows:
        rows = part[0] if isinstance(part, tuple) else part
        if isinstance(part, tuple) and part[1:] != (slice(None),):
            raise InputTypeError(f"[{part!r}]: of selected rows only rows can be taken; use gathered() first")
        return SelectedRows(self.base, np.atleast_1d(self.index[rows]))

    def gathered(self) -> Any:
        """Copy these rows into an array of the base's library, on its device."""
        index = self.index
        if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
            return self.base[int(index[0]) : int(index[-1]) + 1, :]
        if not _is_foreign(self.base):
            return self.base[index]
        xp = array_api_compat.array_namespace(self.base)
        return xp.take(self.base, xp.asarray(index, device=array_api_compat.device(self.base)), axis=0)


def as_matrix(values: Any, what: str) -> Any:
    """Check that ``values`` is an N×K array of real numbers with K ≥ 2 columns."""
    values = as_numbers(values, what)
    if values.ndim != 2:
        raise InputError(
            f"{what}: Expected 2D array, one row per sample and one column per class; got shape "
            f"{tuple(values.shape)}. {_advice_on_shape(values, what)}"
        )
    n, n_classes = values.shape
    if n_classes == 0:
        raise InputError(f"{what}: 0 feature(s) (shape=({n}, 0)) while a minimum of 2 is required, one per class")
    if n == 0:
        raise InputError(f"{what}: 0 sample(s) (shape=(0, {n_classes})) while a minimum of 1 is required")
    if n_classes == 1:
        raise InputError(
            f"{what}: 1 feature(s) (shape=({n}, 1)) while a minimum of 2 is required: one column per class. "
            f"{_both_columns(what)}"
        )
    return values


def _both_columns(what: str) -> str:
    one, both = BOTH_COLUMNS.get(what, BOTH_COLUMNS["logits"])
    return f"For the {one} of the second class pass both columns, np.column_stack([{both}])."


BOTH_COLUMNS = {
    "logits": ("logit z", "np.zeros_like(z), z"),
    "probabilities": ("probability p", "1 - p, p"),
    "log-probabilities": ("log-probability z", "np.log(-np.expm1(z)), z"),
}


def _advice_on_shape(values: Any, what: str) -> str:
    if values.ndim < 2:
        return f"Reshape your data: one sample needs a row of its own, [[…]]. {_both_columns(what)}"
    return reshaping(values.ndim, "logits" if what == "logits" else "probs", array_api_compat.is_torch_array(values))


def reshaping(ndim: int, name: str, torch: bool = False) -> str:
    """Advise how to make N×K of more dimensions, wherever the classes are."""
    if ndim < 3:
        return f"Save {name} as a table, one row per sample."
    move = f"{name}.movedim(1, -1)" if torch else f"np.moveaxis({name}, 1, -1)"
    return (
        f"Reshape your data, with the classes last: {name}.reshape(-1, {name}.shape[-1]), or if they are the second "
        f"dimension, (N, K, …), {move}.reshape(-1, {name}.shape[1]); then labels.ravel()."
    )


def as_numbers(values: Any, what: str) -> Any:
    """Check that ``values`` is an array of real numbers, of any shape and any library; lists become one."""
    if isinstance(values, SelectedRows):
        return values
    if hasattr(values, "tocsr"):
        raise InputTypeError(
            f"{what}: got a sparse matrix; sparse input is not supported, since softmax needs every "
            "class. Use .toarray()."
        )
    reject_masked(values, what, "For classes that are masked out use .filled(-np.inf).")
    if _is_foreign(values):
        _reject_foreign(values, what)
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
        _reject_narrow(values, what)
        if values.dtype.kind == "c":
            raise InputError(f"{what}: Complex data not supported; expected real numbers")
        if values.dtype.kind != "f" and "float" not in values.dtype.name:  # ml_dtypes' bfloat16 is of kind V
            raise InputError(f"{what}: expected floating-point numbers, got dtype {values.dtype}")
    return values


def as_labels(
    labels: Any,
    n: int,
    n_classes: int,
    classes: Sequence[Any] | None = None,
    name: RowName | None = None,
    *,
    takes_classes: bool = True,
) -> Labels:
    """Labels as column numbers; names are looked up in ``classes``.

    ``takes_classes`` is whether the caller could pass names of the columns, which errors then advise.
    """
    name = name or numbered()
    reject_masked(labels, "labels", DROP_ROWS)
    if _is_foreign(labels):
        _reject_foreign(labels, "labels")
    by_name = option(
        "pass their names in column order, classes=[…], to the calibrator or to Scores.from_logits",
        "use --classes A,B,…, their names in column order (a map has those of its fit)",
    )
    if not takes_classes:
        by_name = "pass [names.index(label) for label in labels], where names lists them in column order"
    try:
        y = to_numpy(labels) if _is_foreign(labels) else np.asarray(labels)
    except ValueError as error:
        raise InputError(f"labels: {error}; expected one label per row") from None
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; use labels.ravel()",
            DataConversionWarning,
            stacklevel=2,
        )
        y = y[:, 0]
    if y.ndim != 1:
        hint = f" {_rows_of_labels(y)}" if y.shape == (n, n_classes) else ""
        raise InputError(f"labels: expected one per row, shape ({n},); got shape {y.shape}.{hint}")
    if len(y) != n:
        raise InputError(f"labels: {len(y)} labels for {n} rows of logits: inconsistent; give one label per row")
    if classes is not None:
        return _look_up(y, as_names(classes, n_classes), name)
    if y.dtype.kind not in "biuf":
        try:
            if y.dtype.kind in "cmM":
                raise TypeError("complex numbers and dates are no column numbers")
            y = y.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            items = y.tolist()
            row = next((i for i, item in enumerate(items) if not _is_number(item)), 0)
            raise InputError(
                f"labels: {name(row)} is {items[row]!r:.60}. Labels are column numbers 0 … {n_classes - 1}; for "
                f"names {by_name} (Unknown label type for a classifier otherwise)"
            ) from None
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y))
        if bad.size:
            raise InputError(
                f"labels: Input y contains NaN or Input y contains infinity or a value too large: "
                f"{name(bad[0])} is {y[bad[0]]}"
            )
        bad = np.flatnonzero(y != np.floor(y))
        if bad.size:
            raise InputError(
                f"labels: {name(bad[0])} is {y[bad[0]]}. Unknown label type: continuous; labels are column numbers"
            )
    if y.size and not (y.min() >= 0 and y.max() < n_classes):
        row = int(np.flatnonzero((y < 0) | (y >= n_classes))[0])
        hint = ""
        if y.min() >= 1 and y.max() == n_classes:
            hint = f" Labels that start at 1 need {option('labels - 1', f'--classes {_counted(n_classes)}')}."
        raise InputError(
            f"labels: {name(row)} has label {y[row]:.0f}, but there are {n_classes} columns of "
            f"logits, so labels run from 0 to {n_classes - 1}.{hint} For labels that are not column "
            f"numbers {by_name}."
        )
    return y.astype(np.int64)


def _counted(n_classes: int) -> str:
    return ",".join(map(str, range(1, n_classes + 1))) if n_classes <= 12 else f"1,2,…,{n_classes}"


def _rows_of_labels(y: NDArray[Any]) -> str:
    """Advise on labels that are N×K."""
    if y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all():
        if (y.sum(axis=1) == 1).all():
            return "They are one-hot: use labels.argmax(axis=1)."
        return (
            "Some rows have several classes or none, so classes do not exclude each other: calibrate each class k by "
            "itself, as two classes with labels[:, k] and, for the logit z of class k, "
            "np.column_stack([np.zeros_like(z), z])."
        )
    return (
        "For soft labels repeat each row once for each class, weighted: np.repeat(logits, K, axis=0), "
        "np.tile(np.arange(K), N), sample_weight=labels.ravel()."
    )


def as_weights(weights: Any, n: int, name: RowName | None = None) -> Floats:
    """Sample weights: one per row, finite, none negative, not all zero."""
    name = name or numbered()
    reject_masked(weights, "sample_weight", "To leave those rows out use .filled(0).")
    if _is_foreign(weights):
        _reject_foreign(weights, "sample_weight")
    try:
        w = np.asarray(to_numpy(weights) if _is_foreign(weights) else weights)
        if w.dtype.kind == "c":
            raise TypeError("got complex numbers")
        w = w.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"sample_weight: {error}; expected one number per row") from None
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise InputError(f"sample_weight.shape == {w.shape}, expected {(n,)}: one weight per row")
    bad = np.flatnonzero(~((w >= 0) & (w <= MAX_WEIGHT)))
    if bad.size:
        raise InputError(
            f"sample_weight: {name(bad[0])} is {w[bad[0]]}; a weight counts repeats of its row: not "
            f"negative, and at most {MAX_WEIGHT:g}"
        )
    if not (w > 1e-100).any():
        raise InputError("sample_weight: all weights are zero, so there is nothing to fit")
    return w


def to_numpy(array: Any) -> NDArray[Any]:
    """Bring an array to NumPy, in at least single precision, without a copy where possible."""
    if isinstance(array, SelectedRows):
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
    """Show a dataclass or named tuple in one line: of arrays and long lists the shape alone.

    Use it as ``__repr__``.
    """
    names = [f.name for f in fields(thing)] if is_dataclass(thing) else thing._fields
    shown = (f"{name}={_brief_value(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({', '.join(shown)})"


def _brief_value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and math.prod(shape) > 4:
        return f"<array of shape {tuple(int(n) for n in shape)}>"
    if isinstance(value, tuple | list | dict) and len(value) > 8 and not hasattr(value, "_fields"):
        return f"<{type(value).__name__} of {len(value)}>"
    return repr(value)


def on_gpu(array: Any) -> bool:
    """Whether this is a tensor, or some rows of one, that `attemper.gpu` works on where it is."""
    tensor = array.base if isinstance(array, SelectedRows) else array
    return bool(array_api_compat.is_torch_array(tensor)) and tensor.device.type in GPUS


def as_names(classes: Any, n_classes: int) -> list[Any]:
    """Names of the classes in column order: text or numbers, none twice."""
    try:
        names = list(classes)
        distinct = len(set(names))
    except TypeError:
        names, distinct = [], 0
    if not names or any(np.ndim(name) != 0 for name in names):
        raise InputError(
            f"{setting('classes', classes)}: expected a list of names, one for each column, text or numbers"
        )
    if len(names) != n_classes:
        raise InputError(f"classes: {len(names)} names for {n_classes} columns of logits")
    if distinct != n_classes:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"classes: {twice!r} stands there twice; every column needs a name of its own")
    return names


def log_probs(p: Any, floor: float | None) -> Any:
    """Logarithms of probabilities, with zeros read as ``floor``, or as impossible when None; the arg max stays.

    They are in double precision where the library has it, so that they do not depend on the type of ``p``. Where
    there is a floor, numbers below the smallest normal one of that type are zeros: some settings of a CPU make them so.
    """
    xp = array_api_compat.array_namespace(p)
    # Half precision in single, where none of its numbers is too small to be a normal one.
    if "16" in str(p.dtype):
        p = xp.astype(p, xp.float32)
    elif not xp.isdtype(p.dtype, "real floating"):
        p = xp.astype(p, widest(p, xp))
    with np.errstate(divide="ignore"):
        h = xp.log(xp.astype(p, widest(p, xp)))
    if floor is not None:
        low = math.log(floor)  # in Python: the floor may be too small for the type of p
        h = xp.where((p < float(xp.finfo(p.dtype).smallest_normal)) | (h < low), xp.full_like(h, low), h)
    # Neighbours may have the same logarithm, or rounding may turn their order.
    top = xp.argmax(p, axis=1, keepdims=True)
    if bool(xp.all(xp.argmax(h, axis=1, keepdims=True) == top)):
        return h
    h = xp.where(_columns(h, top, xp) == top, xp.max(h, axis=1, keepdims=True), h)
    return keep_first(h, top, xp)


def has_finite_masks(parts: Iterable[Any]) -> bool:
    """Whether the numbers ≤ −9000 of these logits are masks, such as −1e4, −65504, −1e9 or z − 1e9.

    They are if a wide gap lies between them and the logits, so that naive Bayes, whose logits are of every size, has
    none: from the largest logit of a row down to a mask it is more than ten times the range of all logits, and of all
    masks, and 10 at least. Parts of an array are counted as one. Rows with nothing above −9000 have no masks.

    >>> has_finite_masks([np.array([[2.0, 1.0, -1e9], [5.0, -3.0 - 1e9, 2.0 - 1e9]])])
    True
    >>> has_finite_masks([1e4 * np.array([[2.0, 1.0, -1.0], [0.0, -3.0, 0.0]])])
    False
    """
    logits, masks, gap = (math.inf, -math.inf), (math.inf, -math.inf), math.inf
    for part in parts:
        xp = array_api_compat.array_namespace(part)
        h = _floating(part, xp)
        found = _below(h, xp)
        infinite = xp.full_like(h, math.inf)
        highest_mask = xp.max(xp.where(found, h, -infinite), axis=1)
        top = xp.max(xp.where(h > MASKS_FROM, h, xp.full_like(h, MASKS_FROM)), axis=1)
        distance = xp.astype(top, widest(h, xp)) - xp.astype(highest_mask, widest(h, xp))
        gap = min(gap, float(xp.min(distance)))
        masks = _range(masks, xp.where(found, h, infinite), highest_mask, xp)
        logit = h > MASKS_FROM
        logits = _range(logits, xp.where(logit, h, infinite), xp.where(logit, h, -infinite), xp)
    return masks[0] <= masks[1] and gap > GAP * max(logits[1] - logits[0], masks[1] - masks[0], 1.0)


def masks_as_inf(h: Any) -> Any:
    """Logits with −inf for finite masks, where `has_finite_masks` found some.

    >>> masks_as_inf(np.array([[2.0, 1.0, -1e9], [-1e4, -1e4, -1e4]])).tolist()
    [[2.0, 1.0, -inf], [-10000.0, -10000.0, -10000.0]]
    """
    xp = array_api_compat.array_namespace(h)
    h = _floating(h, xp)
    return xp.where(_below(h, xp), xp.full_like(h, -math.inf), h)


def _below(h: Any, xp: Any) -> Any:
    """Which numbers may be finite masks."""
    return (h <= MASKS_FROM) & (h > -math.inf) & (xp.max(h, axis=1, keepdims=True) > MASKS_FROM)


def _range(so_far: tuple[float, float], low: Any, high: Any, xp: Any) -> tuple[float, float]:
    return min(so_far[0], float(xp.min(low))), max(so_far[1], float(xp.max(high)))


def _floating(h: Any, xp: Any) -> Any:
    return h if "float" in str(h.dtype) else xp.astype(h, widest(h, xp))


def widest(array: Any, xp: Any) -> Any:
    """Double precision; single where the library has no other on that device (JAX by default, Apple's GPUs)."""
    device = array_api_compat.device(array)
    has = xp.__array_namespace_info__().dtypes(device=device, kind="real floating")
    return xp.float64 if "float64" in has else xp.float32


def keep_first(value: Any, top: Any, xp: Any) -> Any:
    """Lower by the least possible amount what rounding made equal to the arg max, and stands before it."""
    wrong = xp.argmax(value, axis=1, keepdims=True) != top
    if not bool(xp.any(wrong)):
        return value
    best = xp.max(value, axis=1, keepdims=True)
    eps, least = _steps(value.dtype, xp)
    wide = xp.astype(best, xp.float32) if value.dtype not in (xp.float32, xp.float64) else best
    step = xp.abs(wide) * eps  # one or two steps of the format; among its smallest numbers steps are all the same
    lower = xp.astype(wide - xp.where(step < least, xp.full_like(step, least), step), value.dtype)
    return xp.where(wrong & (value == best) & (_columns(value, top, xp) < top), lower, value)


def _columns(value: Any, top: Any, xp: Any) -> Any:
    column = xp.arange(value.shape[1], dtype=top.dtype, device=array_api_compat.device(value))
    return xp.reshape(column, (1, -1))


def _steps(dtype: Any, xp: Any) -> tuple[float, float]:
    """Relative distance of neighbours at 1, and the smallest number of all."""
    if "bfloat16" in str(dtype):
        return 2.0**-7, 2.0**-133
    info = xp.finfo(dtype)
    return float(info.eps), float(info.smallest_normal) * float(info.eps)


def _is_foreign(array: Any) -> bool:
    return not isinstance(array, np.ndarray) and array_api_compat.is_array_api_obj(array)


def reject_masked(values: Any, what: str, advice: str) -> None:
    """Refuse a masked array of NumPy in which something is masked: nothing says what that stands for."""
    if np.ma.is_masked(values):
        where = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        place = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), where))
        raise InputError(f"{what}: expected a number everywhere, got a masked array with {place} masked. {advice}")


def _reject_foreign(values: Any, what: str) -> None:
    if getattr(values, "is_nested", False):
        raise InputTypeError(f"{what}: expected a dense tensor, got a nested one. Use torch.cat(list(x.unbind())).")
    if "sparse" in str(getattr(values, "layout", "")):
        raise InputTypeError(f"{what}: expected a dense tensor, got a sparse one. Use .to_dense().")
    if getattr(values, "is_quantized", False):
        raise InputTypeError(f"{what}: expected floating-point numbers, got a quantized tensor. Use .dequantize().")
    _reject_narrow(values, what)


def _reject_narrow(values: Any, what: str) -> None:
    """Refuse float8 and narrower: libraries compute nothing in them."""
    if any(name in str(values.dtype) for name in ("float8_", "float6_", "float4_")):
        raise InputTypeError(
            f"{what}: expected float16, bfloat16 or wider, got {values.dtype}. Convert it to single precision first."
        )


def _look_up(y: NDArray[Any], classes: list[Any], name: RowName) -> Labels:
    column = {label: k for k, label in enumerate(classes)}
    out = np.empty(len(y), dtype=np.int64)
    for row, label in enumerate(y.tolist()):
        if np.ndim(label) != 0 or label not in column:
            raise InputError(
                f"labels: {name(row)} is {label!r}, which is not among the {len(classes)} classes: {_brief(classes)}"
            )
        out[row] = column[label]
    return out


def _is_number(item: Any) -> bool:
    try:
        float(item)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _brief(names: list[Any]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (", …" if len(names) > 8 else "")
