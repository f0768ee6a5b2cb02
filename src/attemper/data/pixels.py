"""Arrays whose classes lie along an inner axis, such as N×K×H×W of a segmentation: seen as rows, never moved at once.

Row i of an N×K×S array is position i of its N·S positions (pixels, voxels, tokens), image after image. A chunk of rows
is moved when it is read. Which positions count is one byte each, or nothing where all do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import array_api_compat
import numpy as np

from attemper._typing import Labels
from attemper.data.arrays import (
    RowView,
    to_numpy,
)

__all__ = ["Chosen", "Entries", "PixelRows", "entries_in_numpy"]

# Positions whose number of those that count is kept: so few that a search among the others is short.
BLOCK = 1 << 16
BLOCKS = 64  # that are searched at once
PART = 1 << 24  # entries that are looked at at once


def entries_in_numpy(y: Any) -> Labels:
    """Return labels as a NumPy array: those of pixels in int64, others as they are."""
    return to_numpy(y.gathered() if isinstance(y, Entries) else y)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Which of n positions count; make one with `of`."""

    n: int
    mask: Any = None  # one byte a position, of NumPy, or a tensor on a GPU; None: all count
    ends: Labels | None = None  # how many count up to the end of each block

    @classmethod
    def of(cls, mask: Any) -> Chosen:
        """Count what counts, block by block."""
        n = int(mask.shape[0])
        counts: list[int] = []
        for first in range(0, n, BLOCK * BLOCKS):  # as libraries count in copies of eight bytes each
            part = mask[first : first + BLOCK * BLOCKS]
            whole = len(part) - len(part) % BLOCK
            counts += to_numpy(part[:whole].reshape(-1, BLOCK).sum(1)).tolist()
            counts += [int(part[whole:].sum())] if whole < len(part) else []
        ends = np.cumsum(counts, dtype=np.int64)
        return cls(n) if int(ends[-1]) == n else cls(n, mask, ends)

    def __len__(self) -> int:
        return self.n if self.ends is None else int(self.ends[-1])

    def positions(self, rows: range) -> Any:
        """Return the positions of some of those that count, in order, where the mask is."""
        if self.ends is None or not len(rows):
            return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64)
        first, last = np.searchsorted(self.ends, (rows[0], rows[-1]), side="right")
        if last - first > BLOCKS and len(rows) > 1:  # some at a time, as a number for each position takes memory
            middle = len(rows) // 2
            parts = [self.positions(rows[:middle]), self.positions(rows[middle:])]
            return array_api_compat.array_namespace(parts[0]).concat(parts)
        before = int(self.ends[first - 1]) if first else 0
        part = self.mask[int(first) * BLOCK : (int(last) + 1) * BLOCK]
        found = part.nonzero()[:, 0] if array_api_compat.is_torch_array(part) else np.flatnonzero(part)
        return found[rows.start - before : rows[-1] + 1 - before : rows.step] + int(first) * BLOCK


@dataclass(frozen=True, eq=False)
class Entries:
    """One whole number for each position that counts, in the type of the input; parts of it become int64."""

    flat: Any  # of all positions: NumPy, or a tensor on a GPU
    chosen: Chosen
    rows: range

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int]:
        """As of an array."""
        return (len(self.rows),)

    def __getitem__(self, part: slice) -> Entries:
        return replace(self, rows=self.rows[part])

    def raw(self) -> Any:
        """Return them as they are, where they are."""
        rows = self.rows
        if self.chosen.ends is None:
            return self.flat[rows.start : rows.stop : rows.step]
        return self.flat[self.chosen.positions(rows)]

    def gathered(self) -> Any:
        """Return them as int64, where they are."""
        found = self.raw()
        return found.long() if array_api_compat.is_torch_array(found) else found.astype(np.int64, copy=False)

    def are_columns(self, n_classes: int) -> bool:
        """Whether all are whole numbers from 0 to K − 1; some at a time, so that no copy is large."""
        torch = array_api_compat.is_torch_array(self.flat)
        if (self.flat.is_floating_point() or self.flat.is_complex()) if torch else self.flat.dtype.kind not in "iu":
            return False
        for first in range(0, self.chosen.n, PART):
            part, mask = self.flat[first : first + PART], self.chosen.mask
            if mask is not None:
                counts = mask[first : first + PART]
                part = part.where(counts, part.new_zeros(())) if torch else part[counts]
            if len(part) and not (int(part.min()) >= 0 and int(part.max()) < n_classes):
                return False
        return True


@dataclass(frozen=True, eq=False)
class PixelRows(RowView):
    """An array with the classes along any axis, seen as rows; parts of it too. Nothing is copied until it is read.

    Examples
    --------
    >>> images = np.arange(24.0).reshape(2, 3, 2, 2)  # two images of 2×2 pixels, three classes
    >>> rows = PixelRows.of(images, axis=1)
    >>> rows.shape, to_numpy(rows[3:5, :])
    ((8, 3), array([[ 3.,  7., 11.],
           [12., 16., 20.]]))
    """

    base: Any  # of three dimensions or more, of any library
    axis: int  # of the classes, not negative
    view: Any  # the same memory as images × classes × positions; None where strides do not allow it
    chosen: Chosen
    rows: range  # of those that count

    @classmethod
    def of(cls, base: Any, axis: int, chosen: Chosen | None = None) -> PixelRows:
        """See an array as rows, all of them or those that are chosen."""
        chosen = Chosen(math.prod(_without(base.shape, axis))) if chosen is None else chosen
        return cls(base, axis, _as_three(base, axis), chosen, range(len(chosen)))

    @property
    def shape(self) -> tuple[int, int]:
        """As of an array: how many rows and columns."""
        return len(self.rows), int(self.base.shape[self.axis])

    @property
    def positions(self) -> tuple[int, ...]:
        """Shape of the array without the classes: that of labels and predictions."""
        return _without(self.base.shape, self.axis)

    def part(self, rows: Any) -> PixelRows:
        """Take some rows, by a slice."""
        return replace(self, rows=self.rows[rows])

    def images(self) -> Labels:
        """Return which image, along the first axis, each row is of."""
        size = self.chosen.n // (1 if self.axis == 0 else int(self.base.shape[0]))
        return np.asarray(to_numpy(self.chosen.positions(self.rows)) // size)

    def image_rows(self) -> list[slice]:
        """Return the rows of each image; images without any are left out."""
        n = 1 if self.axis == 0 else int(self.base.shape[0])
        size = self.chosen.n // n
        mask = self.chosen.mask
        counts = [size if mask is None else int(mask[i * size : (i + 1) * size].sum()) for i in range(n)]
        ends = np.cumsum([0, *counts])
        return [slice(int(a), int(b)) for a, b in pairwise(ends) if b > a]

    def map_images(self, predict: Callable[[Any], Any]) -> Any:
        """Apply a function of rows to the array, and return the result in its shape; in NumPy an image at a time.

        The function returns a row for each row, or a number for each.
        """
        xp, base, axis = array_api_compat.array_namespace(self.base), self.base, self.axis
        if not isinstance(base, np.ndarray) or axis == 0:
            moved = xp.moveaxis(base, axis, -1)
            found = predict(xp.reshape(moved, (-1, moved.shape[-1])))
            found = found.reshape(self.positions if found.ndim == 1 else moved.shape)
            return found if found.ndim < base.ndim else xp.moveaxis(found, -1, axis)
        out: Any = None
        for image in range(base.shape[0]):
            rows = np.moveaxis(base[image], axis - 1, -1)
            found = predict(rows.reshape(-1, rows.shape[-1]))
            one = found.reshape(rows.shape[:-1] if found.ndim == 1 else rows.shape)
            if out is None:
                out = np.empty(self.positions if found.ndim == 1 else base.shape, found.dtype)
            out[image] = one if found.ndim == 1 else np.moveaxis(one, -1, axis - 1)
        return out

    def gathered(self) -> Any:
        """Copy these rows into an array of two dimensions, of the base's library, on its device."""
        positions = self.chosen.positions(self.rows)
        if self.view is None or not len(positions):
            return self._entries(to_numpy(positions))
        first, last = int(positions[0]), int(positions[-1]) + 1
        if last - first == len(positions):
            return self._between(first, last)
        if last - first <= 2 * len(positions):  # to move all and drop some takes less time than to look each one up
            return self._between(first, last)[positions - first]
        if not isinstance(positions, np.ndarray) or not isinstance(self.view, np.ndarray):
            positions = array_api_compat.array_namespace(self.view).asarray(positions, device=self.view.device)
        size = int(self.view.shape[2])
        found = self.view[positions // size, :, positions % size]
        return np.ascontiguousarray(found) if isinstance(found, np.ndarray) else found.contiguous()

    def _between(self, first: int, last: int) -> Any:
        """Move the positions from ``first`` to ``last`` into rows."""
        v = self.view
        _, k, size = map(int, v.shape)
        if size == 1:  # the classes are last: a table as it is
            return v[first:last, :, 0]
        out = np.empty((last - first, k), v.dtype) if isinstance(v, np.ndarray) else v.new_empty((last - first, k))
        at = first
        while at < last:
            image, start = divmod(at, size)
            here = out[at - first :]
            many = (last - at) // size if start == 0 else 0
            if many:
                here[: many * size].reshape(many, size, k)[...] = v[image : image + many].swapaxes(1, 2)
                at += many * size
            else:
                stop = min(size, start + last - at)
                here[: stop - start] = v[image, :, start:stop].T
                at += stop - start
        return out

    def _entries(self, positions: Labels) -> Any:
        """Look up single entries: for libraries without views, and strides that no view fits."""
        xp, ndim = array_api_compat.array_namespace(self.base), len(self.base.shape)
        where = list(np.unravel_index(positions, _without(self.base.shape, self.axis)))
        index = [i[:, None] for i in where]
        index.insert(self.axis, np.arange(self.shape[1])[None, :])
        assert len(index) == ndim
        if isinstance(self.base, np.ndarray):
            return self.base[tuple(index)]
        device = array_api_compat.device(self.base)
        return self.base[tuple(xp.asarray(i, device=device) for i in index)]


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(int(n) for k, n in enumerate(shape) if k != axis)


def _as_three(base: Any, axis: int) -> Any:
    """See an array as images × classes × positions of the same memory; None where that takes a copy."""
    shape = tuple(map(int, base.shape))
    three = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    try:
        if isinstance(base, np.ndarray):
            return base.reshape(three, copy=False)
        return base.detach().view(three) if array_api_compat.is_torch_array(base) else None
    except (RuntimeError, ValueError):
        return None
