"""Arrays of any library: brought to NumPy chunk by chunk, and what must be said in the array API."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper.errors import InputError

# Numbers that are worked on at once: 1 MB, large enough that NumPy's overhead does not show, small enough that a chunk
# and its working copies stay in the cache.
CHUNK_ELEMENTS = 1 << 17

# Finite numbers that stand for −inf in other people's code are below this: −1e4 in bfloat16 is −9984, and z − 1e4 may
# be above −1e4. They are further below the logits than this many times the range of the logits, or of the masks.
MASKS_FROM, GAP = -9000.0, 10.0


def row_slices(n: int, width: int, elements: int = CHUNK_ELEMENTS, *, first: int = 0) -> Iterator[slice]:
    """Cut the rows of an n×width array into parts of about ``elements`` numbers, from row ``first`` on.

    >>> list(row_slices(5, 3, elements=6))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    rows = max(1, elements // width)
    return (slice(start, min(start + rows, n)) for start in range(first, n, rows))


def prime_step(step: int) -> int:
    """Return the next prime: rows so far apart meet every class also where labels repeat in a cycle.

    >>> [prime_step(step) for step in (1, 2, 8)]
    [1, 2, 11]
    """
    while (step % np.arange(2, int(step**0.5) + 1) == 0).any():
        step += 1
    return step


def as_array(values: Any, param: str) -> Any:
    """Return an array of real numbers, of any shape; arrays of other libraries stay what they are."""
    if is_foreign(values):
        if "complex" in str(values.dtype) or "bool" in str(values.dtype):
            raise InputError(f"{param}: expected real numbers, got dtype {values.dtype}", param)
        return values
    if hasattr(values, "tocsr"):
        raise InputError(f"{param}: expected a dense array, got a sparse matrix. Use .toarray()", param)
    try:
        array = np.asarray(values.filled(-np.inf) if np.ma.is_masked(values) else values)
        if array.dtype.kind in "OUSbiu":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        fix = "Frames and files go to attemper.read or attemper.fit, sketches to attemper.fit."
        raise InputError(f"{param}: expected an array of numbers ({error}). {fix}", param) from None
    if array.dtype.kind != "f" and "float" not in array.dtype.name:  # bfloat16 of ml_dtypes is of kind V
        raise InputError(f"{param}: expected real numbers, got dtype {array.dtype}", param)
    return array


def is_foreign(array: Any) -> bool:
    """Whether this is an array of another library than NumPy."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_array_api_obj(array)


def on_gpu(array: Any) -> bool:
    """Whether this is a tensor that `attemper.torch` works on where it is, which needs float64."""
    return bool(array_api_compat.is_torch_array(array)) and array.device.type == "cuda"


def to_numpy(array: Any) -> NDArray[Any]:
    """Bring an array to NumPy, in at least single precision, without a copy where possible."""
    if isinstance(array, np.ndarray):
        result = array
    elif array_api_compat.is_torch_array(array):
        array = array.detach().cpu()
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


def take_rows(values: Any, rows: slice | NDArray[np.intp]) -> Any:
    """Return some rows, in the library and on the device of the array."""
    if isinstance(rows, slice) or not is_foreign(values):
        return values[rows, :]
    xp = array_api_compat.array_namespace(values)
    return xp.take(values, xp.asarray(rows, device=array_api_compat.device(values)), axis=0)


def log_probs(p: Any, zeros_as: float | None) -> Any:
    """Return logarithms of probabilities in double precision; exact zeros are read as ``zeros_as``.

    Without ``zeros_as`` a zero is an impossible class, −inf. Numbers below the smallest normal one of the type of ``p``
    are zeros: some CPU settings make them so.
    """
    with np.errstate(divide="ignore"):
        return log_probs_above(p, None if zeros_as is None else math.log(zeros_as), array_api_compat.array_namespace(p))


def log_probs_above(p: Any, low: float | None, xp: Any) -> Any:
    """`log_probs`, with the logarithm of ``zeros_as``."""
    if "16" in str(p.dtype):  # in single precision all numbers of half precision are normal ones
        p = xp.astype(p, xp.float32)
    elif not xp.isdtype(p.dtype, "real floating"):
        p = xp.astype(p, widest(p, xp))
    h = xp.astype(p, widest(p, xp))
    if low is None:
        h = xp.log(h)
    else:
        none = p < float(xp.finfo(p.dtype).smallest_normal)
        h = xp.where(none, low, xp.log(xp.where(none, xp.ones_like(h), h)))  # whose gradient is finite
    # Neighbours may have the same logarithm, or rounding may turn their order.
    top = xp.argmax(p, axis=-1, keepdims=True)
    if array_api_compat.is_numpy_namespace(xp) and (xp.argmax(h, axis=-1, keepdims=True) == top).all():
        return h
    return keep_first(xp.where(columns(h, xp) == top, xp.max(h, axis=-1, keepdims=True), h), top, xp)


def keep_first(value: Any, top: Any, xp: Any) -> Any:
    """Lower numbers that are as large as the one at ``top`` and stand before it, so that the arg max is ``top``."""
    # Half precision is compared in single, which more libraries can.
    wide = xp.astype(value, xp.float32) if "16" in str(value.dtype) else value
    if array_api_compat.is_numpy_namespace(xp) and (xp.argmax(wide, axis=-1, keepdims=True) == top).all():
        return value  # a shortcut, with the same result
    best = xp.max(wide, axis=-1, keepdims=True)
    eps, least = _steps(value.dtype, xp)
    step = xp.abs(best) * eps  # one or two steps of the format; among its smallest numbers steps are all the same
    lower = best - xp.where(step < least, xp.full_like(step, least), step)
    return xp.astype(xp.where((wide == best) & (columns(value, xp) < top), lower, wide), value.dtype)


def settled(value: Any, like: Any, xp: Any) -> Any:
    """Let the classifier's own prediction, the arg max of ``like``, stay where it is among the most probable."""
    wide, like = (xp.astype(v, xp.float32) if "16" in str(v.dtype) else v for v in (value, like))
    first, own = (xp.argmax(v, axis=-1, keepdims=True) for v in (wide, like))
    if array_api_compat.is_numpy_namespace(xp) and not np.count_nonzero(first != own):
        return value  # a shortcut, with the same result
    among = (wide == xp.max(wide, axis=-1, keepdims=True)) & (columns(value, xp) == own)
    return keep_first(value, xp.where(xp.any(among, axis=-1, keepdims=True), own, first), xp)


def log_odds(h: Any, xp: Any) -> Any:
    """Log-odds of each class against all others: log p_k − log(1 − p_k) = h_k − log Σ_{j≠k} exp(h_j).

    No probability is subtracted from one. A masked class has −inf, and the only possible class of a row +inf.
    """
    is_top = columns(h, xp) == xp.argmax(h, axis=-1, keepdims=True)
    d = h - xp.max(h, axis=-1, keepdims=True)
    others = xp.where(is_top, -xp.inf, d)
    second = xp.max(others, axis=-1, keepdims=True)
    alone = second == -xp.inf
    second = xp.where(alone, xp.zeros_like(second), second)
    # Relative to the second largest, the rest cannot underflow; and it is exact for two classes.
    e = xp.exp(others - second)
    rest = xp.sum(e, axis=-1, keepdims=True)
    more, less = (xp.where(v > 0, v, xp.zeros_like(v)) for v in (rest - 1, (rest - e) * xp.exp(second)))  # rounding
    return xp.where(is_top, xp.where(alone, xp.inf, -second - xp.log1p(more)), d - xp.log1p(less))


def columns(value: Any, xp: Any) -> Any:
    """Return 0 … K−1 along the last axis."""
    if array_api_compat.is_torch_namespace(xp):  # arange would fix the device of a traced model
        return xp.cumulative_sum(xp.ones_like(value[:1], dtype=xp.int64), axis=-1) - 1
    return xp.arange(value.shape[-1], device=array_api_compat.device(value))


def widest(array: Any, xp: Any) -> Any:
    """Return double precision; single where the library has no other on that device (JAX by default)."""
    has = xp.__array_namespace_info__().dtypes(device=array_api_compat.device(array), kind="real floating")
    return xp.float64 if "float64" in has else xp.float32


def _steps(dtype: Any, xp: Any) -> tuple[float, float]:
    """Relative distance of neighbours at 1, and the smallest number of all."""
    if "bfloat16" in str(dtype):
        return 2.0**-7, 2.0**-133
    info = xp.finfo(dtype)
    return float(info.eps), float(info.smallest_normal) * float(info.eps)


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
        h = to_numpy(part).astype(np.float64)
        found, logit = _below(h, np), h > MASKS_FROM
        highest_mask = np.where(found, h, -np.inf).max(axis=1)
        gap = min(gap, float((h.max(axis=1).clip(MASKS_FROM) - highest_mask).min()))
        masks = min(masks[0], float(np.where(found, h, np.inf).min())), max(masks[1], float(highest_mask.max()))
        low, high = np.where(logit, h, np.inf).min(), np.where(logit, h, -np.inf).max()
        logits = min(logits[0], float(low)), max(logits[1], float(high))
    return masks[0] <= masks[1] and gap > GAP * max(logits[1] - logits[0], masks[1] - masks[0], 1.0)


def masks_as_inf(h: Any) -> Any:
    """Return logits with −inf for finite masks: numbers ≤ −9000 that lie far below the largest logit of their row.

    >>> masks_as_inf(np.array([[2.0, 1.0, -1e9], [-1e4, -1e4, -1e4]])).tolist()
    [[2.0, 1.0, -inf], [-10000.0, -10000.0, -10000.0]]
    """
    xp = array_api_compat.array_namespace(h)
    far = xp.max(h, axis=-1, keepdims=True) - h > -MASKS_FROM / 2
    return xp.where(_below(h, xp) & far, xp.full_like(h, -math.inf), h)


def _below(h: Any, xp: Any) -> Any:
    """Which numbers may be finite masks."""
    return (h <= MASKS_FROM) & (h > -math.inf) & (xp.max(h, axis=-1, keepdims=True) > MASKS_FROM)


def sum_tolerance(n_classes: int) -> float:
    """Return how far the sum of a row of probabilities may be from 1, by rounding."""
    return 0.01 + 1e-3 * math.sqrt(n_classes)
