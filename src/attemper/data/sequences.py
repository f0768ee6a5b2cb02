"""Sequences of positions seen as rows; masks over them; how errors name a position."""

from __future__ import annotations

from dataclasses import dataclass
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
    """Logits of shape (B, L, V) or (N, V) as rows of two dimensions."""

    base: Any
    shape: tuple[int, ...]  # (B, L), or (N,)

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
        """See logits as rows; they are copied only where their strides ask for it."""
        values = as_numbers(logits, "logits")
        shape = tuple(map(int, values.shape))
        if len(shape) == 2:
            return cls(as_matrix(values, "logits"), shape[:1])
        if len(shape) != 3 or 0 in shape or shape[2] < 2:
            raise InputError(f"logits: expected shape (B, L, V), or (N, V), with two tokens or more, got {shape}")
        values = values.detach() if array_api_compat.is_torch_array(values) else values
        return cls(array_api_compat.array_namespace(values).reshape(values, (-1, shape[2])), shape[:2])

    def take(self, positions: Labels) -> Any:
        """Give the rows of these positions: a part of the base where they follow one another, else selected."""
        if (np.diff(positions) == 1).all():
            return self.base[int(positions[0]) : int(positions[-1]) + 1, :]
        return SelectedRows(self.base, positions)


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
