"""Arrays whose classes lie along an inner axis, such as N×K×H×W of a segmentation: seen as rows, never moved as a whole.

Row i of an N×K×S array is position i of its N·S positions (pixels, voxels, tokens), image after image. A chunk of rows
is moved when it is read. Which positions count is one byte each, or nothing where all do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import (
    RowName,
    RowView,
    SelectedRows,
    as_numbers,
    is_foreign,
    on_gpu,
    to_numpy,
)
from attemper.data.binary import as_columns, binary_names
from attemper.errors import InputError, option, setting

__all__ = ["Chosen", "Entries", "Laid", "PixelRows", "as_rows", "boundary_mask", "entries_in_numpy", "pixel_rows"]

# Positions whose number of those that count is kept: so few that a search among the others is short.
BLOCK = 1 << 16
PART = 1 << 22  # entries that are looked at at once


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
        counts = [int(mask[first : first + BLOCK].sum()) for first in range(0, n, BLOCK)]
        ends = np.cumsum(counts, dtype=np.int64)
        return cls(n) if int(ends[-1]) == n else cls(n, mask, ends)

    def __len__(self) -> int:
        return self.n if self.ends is None else int(self.ends[-1])

    def positions(self, rows: range) -> Any:
        """Return the positions of some of those that count, in order, where the mask is."""
        if self.ends is None or not len(rows):
            return np.arange(rows.start, rows.stop, rows.step, dtype=np.int64)
        first, last = np.searchsorted(self.ends, (rows[0], rows[-1]), side="right")
        before = int(self.ends[first - 1]) if first else 0
        part = self.mask[int(first) * BLOCK : (int(last) + 1) * BLOCK]
        found = part.nonzero()[:, 0] if array_api_compat.is_torch_array(part) else np.flatnonzero(part)
        return found[rows.start - before : rows[-1] + 1 - before : rows.step] + int(first) * BLOCK


@dataclass(frozen=True, eq=False)
class Entries:
    """One whole number for each position that counts, in the type that it came in; parts of it become int64."""

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
        parts = (self[first : first + PART].raw() for first in range(0, len(self), PART))
        return all(int(part.min()) >= 0 and int(part.max()) < n_classes for part in parts)


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
        chosen = chosen or Chosen(math.prod(_without(base.shape, axis)))
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


class Laid(NamedTuple):
    """Scores, labels and weights, as rows."""

    values: Any
    labels: Any
    weights: Any
    name: RowName
    one_column: bool = False  # the scores were one column, of the second of two classes

    def names(self, classes: Sequence[Any] | None, pos_label: Any) -> Sequence[Any] | None:
        """Return the names of the classes, as `attemper.data.binary.binary_names` finds them."""
        labels = self.labels.raw() if isinstance(self.labels, Entries) and pos_label is not None else self.labels
        return binary_names(labels, classes, pos_label, self.values.shape[1], one_column=self.one_column)


def as_rows(
    values: Any,
    what: str,
    labels: Any,
    sample_weight: Any,
    name: RowName,
    *,
    axis: int | None = None,
    ignore_index: int | None = None,
    max_pixels: int | None = None,
    seed: int = 0,
) -> Laid:
    """See scores as rows, without those whose label is ``ignore_index``; labels and weights of the same rows."""
    values = as_numbers(values, what)
    if ignore_index is not None:
        whole("ignore_index", ignore_index, at_least=-(2**63))
        if labels is None:
            raise InputError(f"{setting('ignore_index', ignore_index)}: needs labels; pass one for each position")
    if values.ndim > 2 and axis is not None:
        rows = pixel_rows(values, what, axis)
        return _laid_pixels(rows, labels, sample_weight, ignore_index, max_pixels, seed)
    values, one_column = as_columns(values, what, name)
    if max_pixels is not None:
        raise InputError(
            f"{setting('max_pixels', max_pixels)}: is for images, arrays of three dimensions or more with "
            f"{option('axis=1', '--axis 1')}; got shape {tuple(values.shape)}"
        )
    if ignore_index is None:
        return Laid(values, labels, sample_weight, name, one_column)
    y = labels if on_gpu(labels) else _numpy(labels)
    if tuple(y.shape) != (values.shape[0],):
        return Laid(values, labels, sample_weight, name, one_column)  # an error that names the shape follows
    counts = to_numpy(y != ignore_index)
    if counts.all():
        return Laid(values, labels, sample_weight, name, one_column)
    index = np.flatnonzero(counts)
    _check_some(len(index), len(counts), ignore_index)
    w = sample_weight if sample_weight is None or np.ndim(_numpy(sample_weight)) != 1 else _numpy(sample_weight)[index]
    some = values.part(index) if isinstance(values, SelectedRows) else SelectedRows(values, index)
    return Laid(some, y[index], w, lambda row: name(int(index[row])), one_column)


def pixel_rows(values: Any, what: str, axis: int, chosen: Chosen | None = None) -> PixelRows:
    """See an array of three dimensions or more as rows; ``axis`` is checked."""
    ndim, shape = values.ndim, tuple(map(int, values.shape))
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise InputError(
            f"{setting('axis', axis)}: expected where the classes are in {what} of shape {shape}: "
            f"{option('axis=1', '--axis 1')} for (N, K, …), {option('axis=-1', '--axis -1')} if they are last"
        )
    axis = int(axis) % ndim
    if shape[axis] == 1:
        raise InputError(
            f"{what}: expected two classes or more along axis {axis}; got shape {shape}. For the log-odds z of the second "
            f"of two classes pass both, np.concatenate([np.zeros_like(z), z], axis={axis}); of its probability p, "
            f"np.concatenate([1 - p, p], axis={axis})."
        )
    if 0 in shape:
        raise InputError(
            f"{what}: expected two classes or more along axis {axis}, and at least one position; got shape {shape}"
        )
    return PixelRows.of(values, axis, chosen)


def _laid_pixels(
    rows: PixelRows, labels: Any, sample_weight: Any, ignore_index: int | None, max_pixels: int | None, seed: int
) -> Laid:
    shape, axis = _without(rows.base.shape, rows.axis), rows.axis
    images = 1 if axis == 0 else shape[0]
    flat = w = None
    if labels is not None:
        there = on_gpu(rows) and on_gpu(labels)
        flat = _one_for_each(labels if there else _numpy(labels), "labels", rows)
    if sample_weight is not None and np.ndim(weights := _numpy(sample_weight)):
        w = _one_for_each(weights, "sample_weight", rows)
    mask = None if ignore_index is None else flat != ignore_index
    shares = None
    if max_pixels is not None:
        mask, shares = _drawn(mask, images, rows.chosen.n // images, max_pixels, seed)
    if mask is not None:
        chosen = Chosen.of(mask)
        _check_some(len(chosen), chosen.n, ignore_index)
        rows = PixelRows.of(rows.base, axis, chosen)
    chosen = rows.chosen
    if flat is not None:
        flat = Entries(flat, chosen, rows.rows)
    if w is not None:
        w = w if chosen.ends is None else w[to_numpy(chosen.positions(rows.rows))]
    elif np.ndim(sample_weight) == 0:
        w = sample_weight
    if shares is not None:
        share = shares[rows.images()]
        w = share if w is None else w * share
    return Laid(rows, flat, w, position_of(rows))


def _numpy(values: Any) -> Any:
    return to_numpy(values) if is_foreign(values) else np.asarray(values)


def _one_for_each(values: Any, what: str, rows: PixelRows) -> Any:
    """Check that there is one entry for each position, and lay them in one line: without a copy where it can be."""
    full, expected = tuple(map(int, rows.base.shape)), _without(rows.base.shape, rows.axis)
    if tuple(values.shape) != expected:
        hint = ""
        if tuple(values.shape) == full or tuple(values.shape) == (*expected, full[rows.axis]):
            hint = f" If they are one-hot, use labels.argmax({rows.axis if tuple(values.shape) == full else -1})."
        elif tuple(values.shape) == (*full[:rows.axis], 1, *full[rows.axis + 1 :]):
            hint = f" Use {what}.squeeze({rows.axis})."
        raise InputError(
            f"{what}: expected shape {expected}, that of the logits {full} without axis {rows.axis}; got shape "
            f"{tuple(values.shape)}.{hint}"
        )
    return values.reshape(-1)


def _check_some(count: int, n: int, ignore_index: int | None) -> None:
    if count == 0:
        raise InputError(f"labels: all {n} are {ignore_index}, which is ignored, so there is nothing to fit")


def _drawn(mask: Any, images: int, size: int, max_pixels: int, seed: int) -> tuple[NDArray[np.bool_], Floats | None]:
    """Draw at most so many positions of each image, and return the weights that make up for those left out."""
    whole("max_pixels", max_pixels)
    whole("seed", seed, at_least=0)
    drawn, there, taken = np.zeros(images * size, dtype=bool), np.zeros(images), np.zeros(images)
    for image in range(images):
        part = slice(image * size, (image + 1) * size)
        counts = None if mask is None else to_numpy(mask[part])
        there[image] = n = size if counts is None else int(counts.sum())
        taken[image] = m = min(n, max_pixels)
        if m == n:
            drawn[part] = True if counts is None else counts
            continue
        # Of each image by itself, so that it does not matter which others there are.
        picked = np.random.default_rng([seed, image]).choice(n, m, replace=False, shuffle=False)
        drawn[part][picked if counts is None else np.flatnonzero(counts)[picked]] = True
    if not taken.any():
        return drawn, None
    weight = there / np.where(taken > 0, taken, 1) * (taken.sum() / there.sum())
    return drawn, None if np.ptp(weight[taken > 0]) <= 1e-12 else weight


def position_of(rows: PixelRows) -> RowName:
    """Name a row by its image and its place there."""
    shape = _without(rows.base.shape, rows.axis)

    def name(row: int) -> str:
        position = int(rows.chosen.positions(rows.rows[row : row + 1])[0])
        first, *place = (int(i) for i in np.unravel_index(position, shape))
        if rows.axis == 0:
            return f"pixel {(first, *place)}"
        if len(place) == 1:
            return f"sequence {first}, position {place[0]} (row {position})"
        return f"image {first}, pixel {tuple(place)}"

    return name


def boundary_mask(labels: Any, width: int = 1, *, ignore_index: int | None = None) -> NDArray[np.bool_]:
    """Which pixels are at most ``width`` steps, along rows or columns, from a pixel with another label.

    Networks are wrong most often there. Use it to select: as ``sample_weight``, or to set other labels to an
    ``ignore_index``.

    Parameters
    ----------
    labels : array of shape (N, H, W) or (N, D, H, W)
    width : int
        How far from a boundary a pixel may be.
    ignore_index : int, optional
        Pixels of this label have no boundary, and are none.

    Examples
    --------
    >>> boundary_mask(np.array([[[0, 0, 0, 1, 1, 1]]])).astype(int)
    array([[[0, 0, 1, 1, 0, 0]]])
    >>> boundary_mask(np.array([[[0, 0, 0, 1, 1, 1]]]), width=2).astype(int)
    array([[[0, 1, 1, 1, 1, 0]]])
    """
    whole("width", width)
    y = _numpy(labels)
    if y.ndim < 3:
        raise InputError(f"labels: expected images, (N, H, W) or (N, D, H, W); got shape {y.shape}. Use labels[None].")
    counts = np.ones(y.shape, bool) if ignore_index is None else y != ignore_index
    near = np.zeros(y.shape, dtype=bool)
    for axis in range(1, y.ndim):
        one, two = _neighbours(y, axis)
        a, b = _neighbours(counts, axis)
        differ = (one != two) & a & b
        first, second = _neighbours(near, axis)
        first |= differ
        second |= differ
    for _ in range(width - 1):
        wider = near.copy()
        for axis in range(1, y.ndim):
            (one, two), (first, second) = _neighbours(near, axis), _neighbours(wider, axis)
            first |= two
            second |= one
        near = wider
    return near & counts


def _neighbours(values: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Views of all pixels but the last along an axis, and of all but the first."""
    before: list[slice] = [slice(None)] * values.ndim
    after = list(before)
    before[axis], after[axis] = slice(None, -1), slice(1, None)
    return values[tuple(before)], values[tuple(after)]
