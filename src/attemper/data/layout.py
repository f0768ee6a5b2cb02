"""Scores of any layout as rows: N×K, one column of two classes, or arrays with the classes along an axis.

Labels and weights are laid out alike. Rows whose label is to be ignored are left out, and of each image at most so many
pixels as asked for are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._typing import Floats
from attemper.data.arrays import RowName, SelectedRows, as_numbers, is_foreign, on_gpu, to_numpy
from attemper.data.binary import as_columns, binary_names
from attemper.data.label_matrix import check_classes, check_columns
from attemper.data.labels import is_matrix
from attemper.data.pixels import Chosen, Entries, PixelRows
from attemper.errors import InputError

__all__ = ["Laid", "as_rows", "axis_that_fits", "check_independent", "pixel_rows"]


def check_independent(what: str, values: Any, image: Any = None, *, soft: bool = False) -> None:
    """Refuse pixels, in an array of more than two dimensions or by their ``image``, unless each is of its own image.

    Rows of ``soft`` labels are refused too: what counts cases needs one label for each.

    What counts independent samples, such as a guarantee, would be far too certain.
    """
    ndim = getattr(values, "ndim", 2)
    if ndim <= 2 and (image is None or len(np.unique(image)) == len(image)):
        return
    if soft:
        raise InputError(
            f"{what}: expected one label for each sample, got soft labels: this counts cases that are right or wrong. "
            f"Use labels.argmax(axis=1)."
        )
    one = "Scores.from_logits(logits, labels, axis=1, max_pixels=1)"
    got = f"an array of {ndim} dimensions" if ndim > 2 else f"{len(image)} pixels of {len(np.unique(image))} images"
    raise InputError(
        f"{what}: expected independent samples, got {got}; pixels of one image are not independent, so the result "
        f"would be far too certain. Draw one pixel of each image: {one}; what is shown then holds for a pixel that is "
        "drawn from an image drawn alike. Or let clusters be the unit, such as images or their patients: "
        f"clusters=….",
        param="clusters",
    )


class Laid(NamedTuple):
    """Scores, labels and weights, as rows."""

    values: Any
    labels: Any
    weights: Any
    name: RowName
    one_column: bool = False  # the scores were one column, of the second of two classes

    def names(self, classes: Sequence[Any] | None, pos_label: Any) -> Sequence[Any] | None:
        """Return the names of the classes, as `attemper.data.binary.binary_names` finds them."""
        if is_matrix(self.labels):  # labels of a matrix are its columns
            check_classes(self.labels, classes, "labels")
            return binary_names(None, classes, pos_label, self.values.shape[1], one_column=self.one_column)
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
    first: int = 0,
) -> Laid:
    """See scores as rows, without those whose label is ``ignore_index``; labels and weights of the same rows.

    Of images, ``first`` is the number of the first one.
    """
    if is_matrix(labels):
        check_columns(labels, values, "labels", f"the {what}")
    values = as_numbers(values, what)
    if ignore_index is not None:
        whole("ignore_index", ignore_index, at_least=-(2**63))
        if labels is None:
            raise InputError(
                f"ignore_index={ignore_index!r}: needs labels; pass one for each position", param="ignore_index"
            )
    if values.ndim > 2 and axis is not None:
        rows = pixel_rows(values, what, axis)
        return _laid_pixels(rows, labels, sample_weight, ignore_index, max_pixels, seed, first)
    values, one_column = as_columns(values, what, name)
    if max_pixels is not None:
        raise InputError(
            f"max_pixels={max_pixels!r}: is for images, arrays of three dimensions or more with "
            f"axis=1; got shape {tuple(values.shape)}",
            param="axis",
        )
    if ignore_index is None:
        return Laid(values, labels, sample_weight, name, one_column)
    if is_matrix(labels):
        raise InputError(
            f"ignore_index={ignore_index!r}: soft labels, of shape (N, K), have no such label. Give samples "
            f"that do not count the weight 0, sample_weight=.",
            param="sample_weight",
        )
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
            f"axis={axis!r}: expected where the classes are in {what} of shape {shape}: "
            f"axis=1 for (N, K, …), axis=-1 if they are last",
            param="axis",
        )
    axis = int(axis) % ndim
    if shape[axis] == 1:
        raise InputError(
            f"{what}: expected two classes or more along axis {axis}; got shape {shape}. For the log-odds z of the "
            f"second of two classes pass both, np.concatenate([np.zeros_like(z), z], axis={axis}); of its probability "
            f"p, np.concatenate([1 - p, p], axis={axis})."
        )
    if 0 in shape:
        raise InputError(
            f"{what}: expected two classes or more along axis {axis}, and at least one position; got shape {shape}"
        )
    return PixelRows.of(values, axis, chosen)


def _laid_pixels(
    rows: PixelRows,
    labels: Any,
    sample_weight: Any,
    ignore_index: int | None,
    max_pixels: int | None,
    seed: int,
    first: int,
) -> Laid:
    shape, axis = rows.positions, rows.axis
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
        mask, shares = _drawn(mask, images, rows.chosen.n // images, max_pixels, seed, first)
        if flat is not None and on_gpu(flat):
            mask = array_api_compat.array_namespace(flat).asarray(mask, device=flat.device)
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
    return Laid(rows, flat, w, position_of(rows, first))


def _numpy(values: Any) -> Any:
    return to_numpy(values) if is_foreign(values) else np.asarray(values)


def _one_for_each(values: Any, what: str, rows: PixelRows) -> Any:
    """Check that there is one entry for each position, and lay them in one line: without a copy where it can be."""
    full, expected = tuple(map(int, rows.base.shape)), rows.positions
    if tuple(values.shape) != expected:
        hint = ""
        if tuple(values.shape) == full or tuple(values.shape) == (*expected, full[rows.axis]):
            hint = f" If they are one-hot, use labels.argmax({rows.axis if tuple(values.shape) == full else -1})."
        elif tuple(values.shape) == (*full[: rows.axis], 1, *full[rows.axis + 1 :]):
            hint = f" Use {what}.squeeze({rows.axis})."
        else:
            axis = axis_that_fits(full, tuple(values.shape))
            hint = "" if axis is None else f" If the classes are along axis {axis}, use axis={axis!r}."
        raise InputError(
            f"{what}: expected shape {expected}, that of the logits {full} without axis {rows.axis}; got shape "
            f"{tuple(values.shape)}.{hint}"
        )
    return values.reshape(-1)


def axis_that_fits(full: tuple[int, ...], labels: tuple[int, ...]) -> int | None:
    """Return the axis of the classes with which labels of this shape belong to an array of that one; else None.

    >>> axis_that_fits((10, 8, 9, 4), (10, 8, 9)), axis_that_fits((10, 8, 9, 4), (10, 7, 9))
    (3, None)
    """
    return next((k for k in range(len(full)) if labels == (*full[:k], *full[k + 1 :])), None)


def _check_some(count: int, n: int, ignore_index: int | None) -> None:
    if count == 0:
        raise InputError(f"labels: all {n} are {ignore_index}, which is ignored, so there is nothing to fit")


def _drawn(
    mask: Any, images: int, size: int, max_pixels: int, seed: int, first: int
) -> tuple[NDArray[np.bool_], Floats | None]:
    """Draw at most so many positions of each image; return the weights of each image's too, if they differ from 1.

    Each image counts by the share of its pixels that count, which does not depend on the other images.
    """
    whole("max_pixels", max_pixels)
    whole("seed", seed, at_least=0)
    drawn, weight = np.zeros(images * size, dtype=bool), np.ones(images)
    for image in range(images):
        part = slice(image * size, (image + 1) * size)
        counts = None if mask is None else to_numpy(mask[part])
        n = size if counts is None else int(counts.sum())
        m = min(n, max_pixels)
        if n:
            weight[image] = n / m * min(max_pixels, size) / size
        if m == n:
            drawn[part] = True if counts is None else counts
            continue
        picked = np.random.default_rng([seed, first + image]).choice(n, m, replace=False, shuffle=False)
        drawn[part][picked if counts is None else np.flatnonzero(counts)[picked]] = True
    return drawn, None if max_pixels == 1 or (weight == 1).all() else weight  # one of each: images count alike


def position_of(rows: PixelRows, first_image: int) -> RowName:
    """Name a row by its image and its place there."""
    shape = rows.positions

    def name(row: int) -> str:
        position = int(rows.chosen.positions(rows.rows[row : row + 1])[0])
        first, *place = (int(i) for i in np.unravel_index(position, shape))
        if rows.axis == 0:
            return f"pixel {(first, *place)}"
        if len(place) == 1:
            return f"sequence {first_image + first}, position {place[0]} (row {position})"
        return f"image {first_image + first}, pixel {tuple(place)}"

    return name
