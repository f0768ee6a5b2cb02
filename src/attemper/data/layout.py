"""Scores of any layout as rows: N×K, one column of two classes, or arrays with the classes along an axis.

Images are copied once: the classes are moved last, and every pixel that counts is a row. Labels and weights are laid
out alike. Rows whose label is to be ignored are left out, and of each image at most so many pixels as asked for are
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import RowName, SelectedRows, as_numbers, is_foreign, on_gpu, to_numpy
from attemper.data.binary import as_columns, binary_names
from attemper.data.label_matrix import check_classes, check_columns
from attemper.data.labels import is_matrix
from attemper.errors import InputError

__all__ = ["Images", "Laid", "as_rows", "check_independent", "image_rows"]


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


class Images(NamedTuple):
    """Where rows lie in an array of three dimensions or more."""

    shape: tuple[int, ...]  # of the array
    axis: int  # of the classes, not negative
    rows: Labels | None = None  # positions that are rows, in the order of images; None: all

    @property
    def positions(self) -> tuple[int, ...]:
        """Shape of the array without the classes: that of labels and predictions."""
        return tuple(n for k, n in enumerate(self.shape) if k != self.axis)

    @property
    def n_images(self) -> int:
        """How many images there are."""
        return 1 if self.axis == 0 else self.shape[0]

    def image(self) -> Labels:
        """Return the number of the image that each row is of."""
        n = math.prod(self.positions)
        return np.asarray((np.arange(n) if self.rows is None else self.rows) // (n // self.n_images))

    def restored(self, rows: Any) -> Any:
        """Lay rows of all positions out as the array was; numbers, one for each row, without the classes."""
        if rows.ndim == 1:
            return rows.reshape(self.positions)
        xp = array_api_compat.array_namespace(rows)
        return xp.moveaxis(xp.reshape(rows, (*self.positions, rows.shape[-1])), -1, self.axis)

    def name(self, row: int, first_image: int) -> str:
        """Name a row by its image and its place there."""
        position = row if self.rows is None else int(self.rows[row])
        first, *place = (int(i) for i in np.unravel_index(position, self.positions))
        return f"pixel {(first, *place)}" if self.axis == 0 else f"image {first_image + first}, pixel {tuple(place)}"


class Laid(NamedTuple):
    """Scores, labels and weights, as rows."""

    values: Any
    labels: Any
    weights: Any
    name: RowName
    one_column: bool = False  # the scores were one column, of the second of two classes
    images: Images | None = None

    def names(self, classes: Sequence[Any] | None) -> Sequence[Any] | None:
        """Return the names of the classes, as `attemper.data.binary.binary_names` finds them."""
        if is_matrix(self.labels):  # labels of a matrix are its columns
            check_classes(self.labels, classes, "labels")
            return classes
        return binary_names(self.labels, classes, self.values.shape[1], one_column=self.one_column)


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
        return _laid_images(values, what, axis, labels, sample_weight, ignore_index, max_pixels, seed, first)
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


def image_rows(values: Any, what: str, axis: int) -> tuple[Any, Images]:
    """Copy an array of three dimensions or more into rows; ``axis`` is checked."""
    ndim, shape = values.ndim, tuple(map(int, values.shape))
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise InputError(
            f"axis={axis!r}: expected where the classes are in {what} of shape {shape}: "
            f"axis=1 for (N, K, …), axis=-1 if they are last",
            param="axis",
        )
    axis = int(axis) % ndim
    if shape[axis] == 1 or 0 in shape:
        raise InputError(
            f"{what}: expected two classes or more along axis {axis}, and at least one position; got shape {shape}"
        )
    xp = array_api_compat.array_namespace(values)
    values = values.detach() if array_api_compat.is_torch_array(values) else values
    return xp.reshape(xp.moveaxis(values, axis, -1), (-1, shape[axis])), Images(shape, axis)


def _laid_images(
    values: Any,
    what: str,
    axis: int,
    labels: Any,
    sample_weight: Any,
    ignore_index: int | None,
    max_pixels: int | None,
    seed: int,
    first: int,
) -> Laid:
    rows, images = image_rows(values, what, axis)
    n = int(rows.shape[0])
    flat: Any = None
    w: Any = None
    shares = None
    if labels is not None:
        there = on_gpu(rows) and on_gpu(labels)
        flat = _one_for_each(labels if there else _numpy(labels), "labels", images)
    if sample_weight is not None:
        weights = _numpy(sample_weight)
        w = _one_for_each(weights, "sample_weight", images) if np.ndim(weights) else sample_weight
    counts = None if ignore_index is None else to_numpy(flat != ignore_index)
    if max_pixels is not None:
        counts, shares = _drawn(counts, images.n_images, n // images.n_images, max_pixels, seed, first)
    if counts is not None and not counts.all():
        index = np.flatnonzero(counts)
        _check_some(len(index), n, ignore_index)
        images = images._replace(rows=index)
        rows, flat = _taken(rows, index), None if flat is None else _taken(flat, index)
        w = w if np.ndim(w) == 0 else w[index]
    if shares is not None:
        share = shares[images.image()]
        w = share if w is None else w * share
    return Laid(rows, flat, w, lambda row: images.name(row, first), images=images)


def _taken(array: Any, index: Labels) -> Any:
    if isinstance(array, np.ndarray):
        return array[index]
    xp = array_api_compat.array_namespace(array)
    return xp.take(array, xp.asarray(index, device=array_api_compat.device(array)), axis=0)


def _numpy(values: Any) -> Any:
    return to_numpy(values) if is_foreign(values) else np.asarray(values)


def _one_for_each(values: Any, what: str, images: Images) -> Any:
    """Check that there is one entry for each position, and lay them in one line."""
    shape = tuple(values.shape)
    if shape != images.positions:
        fits = [k for k in range(len(images.shape)) if shape == images._replace(axis=k).positions]
        hint = f" If the classes are along axis {fits[0]}, use axis={fits[0]}." if fits else ""
        raise InputError(
            f"{what}: expected shape {images.positions}, that of the logits {images.shape} without axis {images.axis}; "
            f"got shape {shape}.{hint}"
        )
    return values.reshape(-1)


def _check_some(count: int, n: int, ignore_index: int | None) -> None:
    if count == 0:
        raise InputError(f"labels: all {n} are {ignore_index}, which is ignored, so there is nothing to fit")


def _drawn(
    mask: NDArray[np.bool_] | None, images: int, size: int, max_pixels: int, seed: int, first: int
) -> tuple[NDArray[np.bool_], Floats | None]:
    """Draw at most so many positions of each image; return the weights of each image's too, if they differ from 1.

    Each image counts by the share of its pixels that count, which does not depend on the other images.
    """
    whole("max_pixels", max_pixels)
    whole("seed", seed, at_least=0)
    drawn, weight = np.zeros(images * size, dtype=bool), np.ones(images)
    for image in range(images):
        part = slice(image * size, (image + 1) * size)
        counts = None if mask is None else mask[part]
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
