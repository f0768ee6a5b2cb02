"""Scores: the outputs of a classifier, and with labels what was true; validated once, never guessed.

You specify whether the numbers are logits or probabilities. Whatever array holds them (NumPy, torch on any device, JAX)
stays where it is; only one chunk at a time is brought to NumPy, so memory is bounded by the chunk. What a fit asks of
labelled scores is answered by a backend: NumPy, or the GPU that holds the logits.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from attemper._checks import one_of
from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import (
    CHUNK_ELEMENTS,
    RowName,
    RowView,
    log_probs,
    numbered,
    on_gpu,
    one_line,
    row_slices,
    to_numpy,
)
from attemper.data.backend import Backend, NumpyRows
from attemper.data.frames import arrays_of
from attemper.data.ids import GivenIds
from attemper.data.label_matrix import check_classes
from attemper.data.labels import as_labels, as_names, as_weights
from attemper.data.layout import Images, as_rows
from attemper.data.masks import masks_as_inf
from attemper.data.plausibility import warn_of_chance, warn_of_probs, warn_of_single_probs
from attemper.data.scan import scan, scan_tensor
from attemper.data.soft import spread_labels
from attemper.errors import InputError, InputTypeError
from attemper.kernels.clusters import cluster_sums
from attemper.kernels.nll import row_terms

if TYPE_CHECKING:
    from attemper.torch.rows import DeviceRows

__all__ = ["Chunk", "LabelledScores", "Scores", "labelled"]

# One thread's portion. Its size is fixed, so that sums do not depend on the number of threads.
BLOCK_ELEMENTS = 1 << 20

# Rows whose predictions are compared with their labels: so many show whether there is any agreement.
LEAST_ROWS, MOST_ROWS, MOST_ELEMENTS = 256, 4096, 1 << 22


class Chunk(NamedTuple):
    """Some rows of labelled scores, as NumPy arrays."""

    h: NDArray[Any]
    y: Labels
    w: Floats | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Scores:
    """Validated scores of N samples over K classes; with labels they are `LabelledScores`.

    Make one with `from_logits` or `from_probs`; the constructor checks nothing.

    Examples
    --------
    >>> scores = Scores.from_logits([[2.0, 1.0], [0.0, 3.0]], [0, 1])
    >>> type(scores).__name__, len(scores), scores.n_classes
    ('LabelledScores', 2, 2)
    >>> Scores.from_logits([[2.0, 1.0], [0.0, float("nan")]], [0, 1])
    Traceback (most recent call last):
    attemper.errors.InputError: logits: row 1, column 1 is NaN; every logit must be a number \
(-inf marks a class that is masked out). Fix or drop that row.
    """

    __repr__ = one_line

    values: Any
    input: InputKind
    weights: Floats | None = None
    bound: float  # no finite logit is larger in magnitude
    masked: bool  # some logits are −inf, or finite masks, which are read as −inf
    zeros_as: float | None = None  # what probabilities of exactly zero stand for
    finite_masks: bool = False  # some of `values` are, and are read as −inf
    columns: tuple[str, ...] | None = None  # of a table, those that were taken as logits
    classes: tuple[Any, ...] | None = None  # names of the columns, where they are known
    image: Labels | None = None  # or sample, with a soft label, that each row is of; None: rows are samples
    layout: Images | None = None  # where rows lie in the array of images that was passed
    repeated: int | None = None  # the number of samples, where soft labels made several rows of them
    groups: NDArray[Any] | None = None  # id of the group that each row is of, such as a site
    cluster_ids: NDArray[Any] | None = None  # of the case that each row is of, such as a patient; see `clusters`

    @overload
    @staticmethod
    def from_logits(logits: Any, labels: None = None, **settings: Any) -> Scores: ...
    @overload
    @staticmethod
    def from_logits(logits: Any, labels: Any, **settings: Any) -> LabelledScores: ...
    @staticmethod  # type: ignore[misc]  # overloads leave the settings out
    def from_logits(
        logits: Any,
        labels: Any = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        clusters: Any = None,
        classes: Sequence[Any] | None = None,
        axis: int | None = None,
        ignore_index: int | None = None,
        max_pixels: int | None = None,
        seed: int = 0,
        first_row: int = 0,
        name: RowName | None = None,
    ) -> Scores:
        """Take logits (or any scores whose softmax is the prediction) as they are.

        One column, of shape (N,) or (N, 1), is the log-odds z of the second of two classes; it becomes [0, z]. Labels
        are then 0 and 1, -1 and 1 or booleans, or the two names in ``classes``, the negative one first.

        Parameters
        ----------
        logits : array of shape (N, K), or with ``axis`` of three dimensions or more
        labels : array of shape (N,), optional; with ``axis`` the shape of the logits without that axis
            Soft labels, of shape (N, K), are the probabilities of the classes, such as shares of annotators' votes
            (`attemper.label_shares`). A sample is then one row for each class with a share, weighted by it.
        sample_weight : array of the shape of the labels, optional
        groups : array of shape (N,), optional
            The group that each sample is of, such as a site: text or whole numbers. Of images, one for each image, or
            one for each pixel.
        clusters : array of shape (N,), optional
            The case that each sample is of, such as a patient: samples of one case are not independent. As ``groups``.
        classes : names of the columns, if labels are names
        axis : int, optional
            Where the classes are in an array of three or more dimensions: 1 for images, (N, K, H, W) or
            (N, K, D, H, W), −1 for (B, L, V). Each pixel is a sample. The array is copied once. An array of two
            dimensions is always (N, K).
        ignore_index : int, optional
            Samples with this label do not count.
        max_pixels, seed : int, optional
            With ``axis``: use at most so many pixels of each image, drawn with this seed from those that count. They
            are weighted by the share of their image's pixels that count.
        first_row, name
            Errors call a row by its number, counted from ``first_row``, or by ``name(number)``.

        Examples
        --------
        >>> Scores.from_logits([1.5, -2.0], ["yes", "no"], classes=["no", "yes"]).labels
        array([1, 0])
        >>> images = np.arange(24.0).reshape(2, 3, 2, 2)
        >>> len(Scores.from_logits(images, [[[2, 2], [2, 255]], [[2, 1], [2, 2]]], axis=1, ignore_index=255))
        7
        """
        ids = GivenIds(groups, clusters, name or numbered(first_row))
        more = {"axis": axis, "ignore_index": ignore_index, "max_pixels": max_pixels, "seed": seed, "first": first_row}
        return _checked(logits, labels, "logits", sample_weight, classes, None, ids, more)

    @overload
    @staticmethod
    def from_probs(probs: Any, labels: None = None, **settings: Any) -> Scores: ...
    @overload
    @staticmethod
    def from_probs(probs: Any, labels: Any, **settings: Any) -> LabelledScores: ...
    @staticmethod  # type: ignore[misc]  # overloads leave the settings out
    def from_probs(
        probs: Any,
        labels: Any = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        clusters: Any = None,
        classes: Sequence[Any] | None = None,
        axis: int | None = None,
        ignore_index: int | None = None,
        max_pixels: int | None = None,
        seed: int = 0,
        zeros_as: float | None = None,
        first_row: int = 0,
        name: RowName | None = None,
    ) -> Scores:
        """Take probabilities; their logarithms are the logits. Parameters as in `from_logits`.

        One column, of shape (N,) or (N, 1), is the probability p of the second of two classes; it becomes [1 − p, p].
        Labels as in `from_logits`.

        A probability of exactly 0 means that the class is impossible at every temperature. If the zeros only come
        from rounding, set what they stand for with ``zeros_as`` (half of the smallest number the format can hold is a
        fair choice, such as 3e-8 for float16). It means the same in every float type; numbers below the smallest
        normal one of the type (1.2e-38 in float32) count as zeros. There is no default: four libraries that each chose
        one in silence found four temperatures for the same data.
        """
        if zeros_as is not None and not (isinstance(zeros_as, Real) and sys.float_info.min <= zeros_as < 1):
            raise InputError(f"zeros_as={zeros_as!r}: must lie between 0 and 1, such as 1e-8", param="zeros_as")
        ids = GivenIds(groups, clusters, name or numbered(first_row))
        more = {"axis": axis, "ignore_index": ignore_index, "max_pixels": max_pixels, "seed": seed, "first": first_row}
        return _checked(probs, labels, "probs", sample_weight, classes, zeros_as, ids, more)

    @staticmethod
    def from_table(
        frame: Any,
        labels: Any = None,
        *,
        columns: str | Sequence[Any] | None = None,
        input: InputKind = "logits",
        sample_weight: Any = None,
        groups: Any = None,
        clusters: Any = None,
        classes: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Scores:
        """Take logits or probabilities out of a table: one column per class, or one column of lists.

        Parameters
        ----------
        frame
            A DataFrame of pandas or polars, an Arrow table or record batch, a dataset of Hugging Face, a dict of
            columns, or anything that exports an Arrow stream.
        labels : name of a column, optional
            Labels are column numbers, or names: those in ``classes``, or the headers of the columns of logits.
        columns : list of names, or text, optional
            The columns of logits, in this order. Text is what their names begin with, or the name of a column of
            lists. By default a column of lists called ``logits`` (``probs``), else columns that begin ``logit_``
            (``prob_``), else those that have the names of ``classes``. `Scores.columns` has those that were taken.
        input : "logits" or "probs"
        sample_weight, groups, clusters : names of columns, optional
        classes : names of the classes, optional
            Columns with these names, such as ``logit_cat``, may stand in any order.
        **settings
            As for `from_logits` or `from_probs`.

        Examples
        --------
        >>> table = {"question": ["2 + 2?", "3 · 3?"], "A": [2.5, 0.5], "B": [0.1, 1.5], "answer": ["A", "B"]}
        >>> scores = Scores.from_table(table, "answer", columns=["A", "B"])
        >>> scores.columns, scores.classes, scores.labels
        (('A', 'B'), ('A', 'B'), array([0, 1]))
        """
        one_of("input", input, ("logits", "probs"))
        found = arrays_of(
            frame,
            labels,
            sample_weight,
            groups,
            clusters,
            columns=columns,
            classes=classes,
            input=input,
        )
        make: Any = Scores.from_probs if input == "probs" else Scores.from_logits
        ids = {"groups": found.groups, "clusters": found.clusters}
        scores: Scores = make(
            found.values, found.labels, sample_weight=found.weights, classes=found.classes, **ids, **settings
        )
        names = scores.classes if classes is None else tuple(classes)
        return replace(scores, columns=found.columns, classes=names)

    def __len__(self) -> int:
        """Return the number of rows: samples, or with soft labels their classes with a share."""
        return int(self.values.shape[0])

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.values.shape[1])

    @property
    def n_samples(self) -> int:
        """How many samples there are: the number of rows, unless soft labels made several rows of one."""
        return len(self) if self.repeated is None else self.repeated

    @property
    def total_weight(self) -> float:
        """Sum of the weights; N when there are none."""
        return float(len(self)) if self.weights is None else float(self.weights.sum())

    @property
    def logits(self) -> Any:
        """The logits, in the array that was passed; of probabilities the logarithms, in double precision."""
        values = self.values.gathered() if isinstance(self.values, RowView) else self.values
        if self.input == "probs":
            return log_probs(values, self.zeros_as)
        return masks_as_inf(values) if self.finite_masks else values

    @property
    def clusters(self) -> NDArray[Any] | None:
        """Which case each row is of: the ids passed, else its image, or sample with a soft label.

        None where rows are samples of their own.
        """
        return self.image if self.cluster_ids is None else self.cluster_ids

    def image_rows(self) -> list[slice] | None:
        """Rows of each image, which lie side by side; None where rows are samples of their own."""
        if self.image is None:
            return None
        ends = [0, *(np.flatnonzero(np.diff(self.image)) + 1).tolist(), len(self.image)]
        return [slice(a, b) for a, b in pairwise(ends)]

    @property
    def dtype(self) -> Any:
        """Type of predictions: that of the array that was passed; None where it holds whole numbers."""
        dtype = self.values.dtype
        return dtype if "float" in str(dtype) else None

    def rows(self, part: slice) -> NDArray[Any]:
        """Logits of some rows as NumPy has them, in at least single precision."""
        values = to_numpy(self.values[part, :])
        if self.input == "probs":
            return np.asarray(log_probs(values, self.zeros_as))
        return np.asarray(masks_as_inf(values)) if self.finite_masks else values

    def chunks(self, *, most_rows: int | None = None) -> Iterator[tuple[slice, Floats]]:
        """Go through the logits in double precision, some rows at a time."""
        for part in row_slices(len(self), self.n_classes, most_rows=most_rows):
            yield part, self.rows(part).astype(np.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelledScores(Scores):
    """Scores with one label per sample: what a fit or a metric takes.

    `Scores.from_logits` and `Scores.from_probs` make them if labels are passed.

    >>> Scores.from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 1]).labels
    array([0, 1])
    """

    y: Any  # column numbers: NumPy, or a tensor where labels are on the GPU that holds the logits
    device: DeviceRows | None = None  # logits on a GPU

    @property
    def labels(self) -> Labels:
        """Column numbers, as a NumPy array."""
        return to_numpy(self.y)

    @property
    def backend(self) -> Backend:
        """Where the sums of a fit are computed."""
        return NumpyRows(self) if self.device is None else self.device

    def total(
        self,
        function: Callable[[Chunk], NDArray[Any]],
        dtype: type[np.floating[Any]] | None = None,
        *,
        large: float = 1,
    ) -> Floats:
        """Sum ``function(chunk)`` over all chunks, on several threads when it is worth it.

        The blocks and the order in which they are added do not depend on the number of threads, so the sum is the same
        to the last bit. ``dtype`` is what chunks are brought to; None leaves them in single or double precision, as
        they are. Where there are many, chunks may be up to ``large`` times as large as usual; below 1, all of them are.
        """
        elements = int(CHUNK_ELEMENTS * min(max(len(self) * self.n_classes // (16 * CHUNK_ELEMENTS), 1), large))

        def add(block: slice) -> NDArray[Any]:
            parts = row_slices(block.stop, self.n_classes, elements, first=block.start)
            total: Any = sum(function(self.chunk(part, dtype)) for part in parts)
            return np.asarray(total)

        blocks = list(row_slices(len(self), self.n_classes, BLOCK_ELEMENTS))
        threads = min(len(blocks), _threads())
        if threads == 1:
            return np.asarray(sum(map(add, blocks)), dtype=np.float64)
        with ThreadPoolExecutor(threads) as pool:
            return np.asarray(sum(pool.map(add, blocks)), dtype=np.float64)

    def chunk(self, part: slice, dtype: type[np.floating[Any]] | None = None) -> Chunk:
        """Bring some rows to NumPy."""
        h = self.rows(part)
        return Chunk(h.astype(dtype or h.dtype, copy=False), to_numpy(self.y[part]), _part(self.weights, part))

    @cached_property
    def cases(self) -> Labels | None:
        """Number of the case that each row is of, from 0, by the ids passed; None without ids."""
        return None if self.cluster_ids is None else np.unique(self.cluster_ids, return_inverse=True)[1]

    def slopes(self, beta: float) -> Floats:
        """Slope of the NLL in β, of each row."""
        found = np.empty(len(self))
        for part, h in self.chunks():
            found[part] = row_terms(h, to_numpy(self.y[part]), beta, bound=self.bound, masked=self.masked)[1]
        return found

    def slopes_by_cluster(self, beta: float) -> Floats | None:
        """Slope of the NLL in β, summed over the rows of each case; None where rows are samples of their own.

        Of ids that were passed it is less the case's share of the whole, which is 0 at the best T.
        """
        if self.cases is None:
            return self.slopes_by_image(beta)
        slopes, w = self.slopes(beta), np.ones(len(self)) if self.weights is None else self.weights
        return cluster_sums(w * (slopes - w @ slopes / w.sum()), self.cases)

    def slopes_by_image(self, beta: float) -> Floats | None:
        """Slope of the NLL in β, summed over the pixels of each image; None where rows are samples of their own."""
        parts = self.image_rows()
        return None if parts is None else np.array([self._some(part).backend.nll(beta)[1] for part in parts])

    def _some(self, part: slice) -> Self:
        """Take some rows that lie side by side."""
        return replace(
            self,
            values=self.values[part, :],
            y=self.y[part],
            **self.entries(part),
            device=None if self.device is None else self.device[part],
        )

    def at(self, rows: NDArray[np.intp]) -> Self:
        """Copy some rows, in this order, as logits of NumPy."""
        image = None if self.image is None else np.unique(self.image[rows], return_inverse=True)[1].reshape(-1)
        more = self.entries(rows) | {"zeros_as": None, "finite_masks": False, "device": None, "image": image}
        if self.repeated is not None and image is not None:
            more["repeated"] = int(image.max()) + 1
        return replace(self, values=to_numpy(self.logits)[rows], y=self.labels[rows], input="logits", **more)

    def entries(self, part: Any) -> dict[str, Any]:
        """Return, for some rows, the fields that have one entry for each row beside the scores and the labels."""
        arrays = {name: getattr(self, name) for name in ("weights", "image", "groups", "cluster_ids")}
        return {name: None if array is None else array[part] for name, array in arrays.items()}

    def weighted(self, weights: Floats) -> Self:
        """Give the samples other weights, wherever they lie."""
        return replace(self, weights=weights, device=None if self.device is None else self.device.weighted(weights))

    def sample(self, rows: int) -> Self:
        """At most ``rows`` rows, evenly spread; itself when it is no longer than that."""
        step = -(-len(self) // rows)
        if step <= 1:
            return self
        # A prime step meets every class also where labels repeat in a cycle.
        while any(step % d == 0 for d in range(2, int(step**0.5) + 1)):
            step += 1
        part = slice(None, None, step)
        return replace(
            self,
            values=self.values[part, :],
            y=self.y[part],
            **self.entries(part),
            device=None if self.device is None else self.device.strided(step),
        )

    def _warn_of_chance(self) -> None:
        """Warn where labels and predictions seem to have nothing to do with each other."""
        y, w = self.labels, np.ones(len(self)) if self.weights is None else self.weights
        top = self.backend.tops()
        weight = float(w.sum())
        if weight > 0 and self.bound > 0:  # of logits that are all 0 none is the largest
            _, code = np.unique(np.concatenate([y, top]), return_inverse=True)  # few of many classes
            labels, predictions = (
                np.bincount(part, w, int(code.max()) + 1).astype(np.float64)
                for part in (code[: len(y)], code[len(y) :])
            )
            n = weight**2 / float((w * w).sum())
            warn_of_chance(float((w * (top == y)).sum()) / weight, labels, predictions, n)


def labelled(scores: Scores, what: str = "scores") -> LabelledScores:
    """Refuse scores without labels."""
    if not isinstance(scores, Scores):
        raise InputTypeError(
            f"{what}: expected a Scores with labels, got {type(scores).__name__}. Use Scores.from_logits(logits, "
            "labels), or Scores.from_probs(probs, labels)."
        )
    if not isinstance(scores, LabelledScores):
        raise InputError(f"{what}: expected labels, got none; pass one label per row")
    return scores


def _checked(
    given: Any,
    labels: Any,
    kind: InputKind,
    sample_weight: Any,
    classes: Sequence[Any] | None,
    zeros_as: float | None,
    ids: GivenIds,
    layout: dict[str, Any],
) -> Scores:
    """Look at every number once; an error names the first that cannot be used."""
    check_classes(given, classes, kind)
    what = "probabilities" if kind == "probs" else kind
    laid = as_rows(given, what, labels, sample_weight, ids.name, **layout)
    n_samples = laid.values.shape[0]
    classes = laid.names(classes)
    laid, sample, is_matrix = spread_labels(laid)
    values, labels, sample_weight, name, one_column, images = laid
    n, n_classes = values.shape
    known = None if is_matrix else classes
    gpu = kind == "logits" and on_gpu(values)
    y = None if labels is None else as_labels(labels, n, n_classes, known, name, on_device=gpu, one_column=one_column)
    w = None if sample_weight is None else as_weights(sample_weight, n, name)
    device = None
    if gpu:
        limits, values, device = scan_tensor(values, y, w, name)
    else:
        limits = scan(values, kind, y, zeros_as, name)
    names = None if classes is None else tuple(as_names(classes, n_classes))
    more: dict[str, Any] = {"input": kind, "weights": w, "zeros_as": zeros_as, "classes": names, **limits._asdict()}
    more |= ids.of_rows(laid, sample)
    if images is not None:
        more |= {"image": images.image(), "layout": images}
    if kind == "logits" and one_column:
        warn_of_single_probs(values, "all numbers")  # beside zeros
    elif kind == "logits":
        warn_of_probs(values)
    if y is None:
        return Scores(values=values, **more)
    repeated = {} if sample is None else {"image": sample, "repeated": n_samples}
    scores = LabelledScores(values=values, y=y, device=device, **more | repeated)
    scores.sample(max(LEAST_ROWS, min(MOST_ROWS, MOST_ELEMENTS // n_classes)))._warn_of_chance()
    return scores


def _part(weights: Floats | None, part: slice) -> Floats | None:
    return None if weights is None else weights[part]


def _threads() -> int:
    """Two where there are two cores: beyond, Python gains little and each thread holds chunks of its own."""
    asked = os.environ.get("ATTEMPER_THREADS", "")
    if asked:
        if re.fullmatch("0*[1-9][0-9]{0,5}", asked):
            return int(asked)
        raise InputError(
            f"ATTEMPER_THREADS={asked[:20]!r}: expected a whole number, 1 or more. Use ATTEMPER_THREADS=2."
        )
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
