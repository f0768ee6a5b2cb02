"""Sequences of positions seen as rows, without a copy; masks over them; how errors name a position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._typing import Labels
from attemper.data.arrays import RowName, SelectedRows, as_matrix, as_numbers, to_numpy
from attemper.errors import InputError, InputTypeError

__all__ = ["Rows", "as_mask", "one_for_each", "position_name", "zeros_and_ones"]


@dataclass(frozen=True)
class Rows:
    """Logits of shape (B, L, V) or (N, V), seen as rows of two dimensions."""

    base: Any
    shape: tuple[int, ...]  # (B, L), or (N,)
    row_of: Callable[[Labels], Labels]  # from the number of a position, b·L + t, to its row in base

    @property
    def width(self) -> int:
        """V, the number of columns."""
        return int(self.base.shape[1])

    @property
    def length(self) -> int | None:
        """L, where there are sequences."""
        return self.shape[1] if len(self.shape) == 2 else None

    @classmethod
    def of(cls, logits: Any) -> Rows:
        """See logits as rows; they are not copied."""
        values = as_numbers(logits, "logits")
        shape = tuple(map(int, values.shape))
        if len(shape) == 2:
            return cls(as_matrix(values, "logits"), shape[:1], lambda positions: positions)
        if len(shape) != 3:
            raise InputError(f"logits: expected shape (B, L, V), or (N, V), got {shape}")
        if 0 in shape or shape[2] < 2:
            raise InputError(f"logits: expected sequences, positions and two tokens or more, got shape {shape}")
        if isinstance(values, np.ndarray) or array_api_compat.is_torch_array(values):
            return cls(*_strided(values))
        return cls(_Folded(values), shape[:2], lambda positions: positions)

    def take(self, positions: Labels) -> Any:
        """Give the rows of these positions: a part of the base where they follow one another, else selected."""
        index = self.row_of(positions)
        if not isinstance(self.base, _Folded) and (np.diff(index) == 1).all():
            return self.base[int(index[0]) : int(index[-1]) + 1, :]
        return SelectedRows(self.base, index)


def position_name(rows: Labels | None, length: int | None) -> RowName:
    """Name row i, which is ``rows[i]`` of all, by its sequence and position if sequences have a ``length``."""

    def name(i: int) -> str:
        row = int(i if rows is None else rows[i])
        return f"row {row}" if length is None else f"sequence {row // length}, position {row % length} (row {row})"

    return name


def as_mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Check a mask of 0 and 1 of this shape; return true where it is 1."""
    values = one_for_each(mask, "mask", shape)
    if values.dtype.kind not in "biuf":
        raise InputTypeError(f"mask: expected 0 and 1, or booleans, got dtype {values.dtype}")
    name = position_name(None, shape[1] if len(shape) == 2 else None)
    return zeros_and_ones(values.reshape(-1), name).reshape(shape)


def zeros_and_ones(values: NDArray[Any], name: RowName) -> NDArray[np.bool_]:
    """Check that a list holds nothing but 0 and 1; return true where it is 1."""
    bad = np.flatnonzero(~((values == 0) | (values == 1)))
    if bad.size:
        raise InputError(
            f"mask: {name(bad[0])} is {values[bad[0]]}; expected 1 where a position counts and 0 elsewhere. A mask "
            "that is added to attention scores (0 and -inf) is another thing: use mask == 0."
        )
    return np.asarray(values == 1)


def one_for_each(values: Any, what: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Bring a small array to NumPy and check that it holds one entry for each position."""
    try:
        array = to_numpy(values) if hasattr(values, "shape") else np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what}: {error}; expected shape {shape}") from None
    if array.shape != shape:
        each = "position" if len(shape) == 2 else "row"
        raise InputError(f"{what}: expected shape {shape}, one for each {each} of the logits, got {array.shape}")
    return array


def _strided(values: Any) -> tuple[Any, tuple[int, ...], Callable[[Labels], Labels]]:
    """See (B, L, V) as rows of the memory it lies in, whatever its strides.

    Rows begin at multiples of one step, the greatest common divisor of the two strides. Rows that belong to no
    position, such as the last one of each sequence in ``logits[:, :-1]``, are there but never asked for.
    """
    torch = array_api_compat.is_torch_array(values)
    values = values.detach() if torch else values
    b, length, width = map(int, values.shape)
    strides = tuple(map(int, values.stride() if torch else values.strides))
    # An axis of one has any stride.
    of_b, of_t = (0 if n == 1 else stride for n, stride in zip((b, length), strides))
    if of_b < 0 or of_t < 0:
        raise InputError("logits: a reversed view cannot be read without a copy. Use np.ascontiguousarray(logits).")
    step = gcd(of_b, of_t) or 1
    n = (b - 1) * (of_b // step) + (length - 1) * (of_t // step) + 1
    if torch:
        base = values.as_strided((n, width), (step, strides[2]))
    else:
        base = np.lib.stride_tricks.as_strided(values, (n, width), (step, strides[2]), writeable=False)

    def row_of(positions: Labels) -> Labels:
        return np.asarray(positions // length * (of_b // step) + positions % length * (of_t // step), dtype=np.int64)

    return base, (b, length), row_of


@dataclass(frozen=True, eq=False)
class _Folded:
    """(B, L, V) as rows, for libraries whose arrays have no views: rows are taken as they are asked for."""

    values: Any

    @property
    def shape(self) -> tuple[int, int]:
        b, length, width = self.values.shape
        return int(b * length), int(width)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __getitem__(self, part: Any) -> Any:
        rows = np.arange(self.shape[0])[part[0]] if isinstance(part, tuple) else part
        xp, device = array_api_compat.array_namespace(self.values), array_api_compat.device(self.values)
        b, t = (xp.asarray(index, device=device) for index in np.divmod(rows, self.values.shape[1]))
        if array_api_compat.is_jax_array(self.values):
            return self.values[b, t]
        # The standard knows index arrays for all axes or for none.
        return self.values[b[:, None], t[:, None], xp.arange(self.shape[1], device=device)[None, :]]
