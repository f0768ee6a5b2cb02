"""Pixels near a boundary between labels, where networks are wrong most often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper.data.arrays import is_foreign, to_numpy
from attemper.errors import InputError

__all__ = ["boundary_mask"]


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
    y = to_numpy(labels) if is_foreign(labels) else np.asarray(labels)
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
    return np.asarray(near & counts)


def _neighbours(values: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return views of all pixels but the last along an axis, and of all but the first."""
    before: list[slice] = [slice(None)] * values.ndim
    after = list(before)
    before[axis], after[axis] = slice(None, -1), slice(1, None)
    return values[tuple(before)], values[tuple(after)]
