"""`Scores`: the outputs of a classifier and what is known of each row, checked once. The only type that fits see.

The array that was passed (NumPy, torch on any device, JAX) stays where it is; one chunk at a time is brought to NumPy,
so memory is bounded by the chunk. What a fit asks is answered by a backend: NumPy, or the GPU that holds the logits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import (
    CHUNK_ELEMENTS,
    MASKS_FROM,
    as_array,
    has_finite_masks,
    log_probs,
    masks_as_inf,
    on_gpu,
    prime_step,
    row_slices,
    sum_tolerance,
    take_rows,
    to_numpy,
)
from attemper.data.backend import NumpyRows
from attemper.data.inputs import (
    PlainRows,
    as_label_matrix,
    as_labels,
    as_names,
    as_plain,
    as_weights,
    counted_rows,
    ids_of_rows,
    image_rows,
    is_signed,
    soft_rows,
    two_columns,
)
from attemper.errors import InputError
from attemper.kernels.clusters import case_numbers

if TYPE_CHECKING:
    from attemper.torch.rows import DeviceRows

# One thread's portion. Its size is fixed, so that sums do not depend on the number of threads.
BLOCK_ELEMENTS = 1 << 20
# Squares and cubes of logits must stay finite; what is larger is a mask in disguise.
LARGEST = 1e30


class Chunk(NamedTuple):
    """Some rows, as NumPy arrays: logits, labels, and weights or None."""

    h: NDArray[Any]
    y: Labels
    w: Floats | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Scores:
    """Logits or probabilities of N samples over K classes, with labels or without. Make one with `Scores.of`.

    Examples
    --------
    >>> scores = Scores.of([[2.0, 1.0], [0.0, 3.0]], ["cat", "dog"], classes=["cat", "dog"])
    >>> len(scores), scores.n_classes, scores.labels
    (2, 2, array([0, 1]))
    """

    values: Any  # N₀×K, as they were passed
    labels: Any = None  # column numbers; with multi_label N×L of 0, 1 and NaN
    w: Floats | None = None  # see `weights`
    groups: NDArray[Any] | None = None  # ids, such as sites
    clusters: NDArray[Any] | None = None  # ids of cases, such as patients; of images and soft labels their number
    ids: NDArray[Any] | None = None  # names of the rows
    classes: tuple[Any, ...] | None = None
    index: NDArray[np.intp] | None = None  # rows of `values` that count, perhaps repeatedly; None: all of them
    input: InputKind = "logits"
    zeros_as: float | None = None  # what a probability of exactly 0 stands for
    multi_label: bool = False  # columns are labels that do not exclude each other
    one_column: bool = False  # what was passed was the second of two columns
    low: float = -np.inf  # no finite logit is below
    bound: float = 0.0  # no finite logit is larger in magnitude
    masked: bool = False  # some logits are −inf, or finite masks, which are read as −inf
    finite_masks: bool = False
    numbered: bool = False  # clusters are numbers of images or samples, not ids that were passed
    files: tuple[str, ...] = ()  # that they were read from
    device: Any = None  # `DeviceRows` of logits on a GPU

    @classmethod
    def of(
        cls,
        values: Any,
        labels: Any = None,
        *,
        input: InputKind = "logits",
        sample_weight: Any = None,
        groups: Any = None,
        clusters: Any = None,
        ids: Any = None,
        classes: Sequence[Any] | None = None,
        zeros_as: float | None = None,
        ignore_index: int | None = None,
        axis: int | None = None,
        max_pixels: int | None = None,
        multi_label: bool = False,
        files: Sequence[str] = (),
    ) -> Scores:
        """Check scores and labels, whatever array holds them.

        Parameters
        ----------
        values : array of shape (N, K), or (N,) for the second of two classes; with ``axis`` images or sequences
        labels : column numbers, or names if ``classes`` has them; shares of shape (N, K); with ``axis`` one a pixel
        input : "logits" or "probs"; never guessed
        sample_weight, groups, clusters, ids : one entry for each row; of images one for each image, or for each pixel
        classes : names of the columns
        zeros_as : what a probability of exactly 0 stands for; by default half of the smallest positive one
        ignore_index : rows with this label do not count; with ``multi_label`` entries
        axis : where the classes are in an array of three or more dimensions: 1 for (N, K, H, W), -1 for (B, L, V)
        max_pixels : use at most so many pixels of each image, drawn at random
        multi_label : columns do not exclude each other, and labels are N×L of 0, 1 and NaN
        files : what the values were read from
        """
        if input not in ("logits", "probs"):
            raise InputError(f"input={input!r}: expected 'logits' or 'probs'", "input")
        if zeros_as is not None and input == "logits":
            raise InputError("zeros_as: it belongs to input='probs'", "zeros_as")
        if type(values) is not np.ndarray or values.dtype.kind != "f":
            values = as_array(values, "data")
        if labels is not None and not isinstance(labels, np.ndarray):
            labels = as_plain(labels)
        values = values[:, None] if values.ndim == 1 else values
        rows = PlainRows(values, labels, sample_weight)
        if max_pixels is not None and values.ndim <= 2:
            raise InputError(f"max_pixels: expected images, got shape {tuple(values.shape)}", "max_pixels")
        if values.ndim > 2:
            rows = image_rows(rows, axis, ignore_index=ignore_index, max_pixels=max_pixels)
        elif values.ndim != 2 or 0 in values.shape:
            raise InputError(f"data: expected shape (N, K), got {tuple(values.shape)}", "data")
        elif ignore_index is not None and labels is not None and not multi_label:
            rows = counted_rows(rows, ignore_index)
        one_column = rows.values.shape[1] == 1
        if one_column and not multi_label:
            rows = replace(rows, values=two_columns(rows.values, input))
        k = int(rows.values.shape[1])
        names = None if classes is None else as_names(classes, k)
        y = rows.labels
        if k == 2 and not multi_label and names is None and y is not None and is_signed(y):
            names = (-1, 1)
        if y is not None and y.ndim == 2 and y.shape[1] > 1 and not multi_label:
            rows = soft_rows(rows)
            y = rows.labels
        n = int(rows.values.shape[0]) if rows.index is None else len(rows.index)
        if y is not None and multi_label:
            y = as_label_matrix(y, n, k, ignore_index)
        elif y is not None:
            y = as_labels(y, n, k, names, rows)
        given = {"groups": groups, "clusters": clusters, "ids": ids}
        own: dict[str, Any] = {"clusters": rows.case}
        for param, value in given.items():
            if value is not None:
                own[param] = ids_of_rows(value, rows, n, param)
        numbered = clusters is None and rows.case is not None
        scores = cls(
            values=rows.values, labels=y, w=None if rows.weights is None else as_weights(rows.weights, n),
            classes=names, index=rows.index, input=input, zeros_as=zeros_as, multi_label=multi_label,
            one_column=one_column, numbered=numbered, files=tuple(files), **own,
        )  # fmt: skip
        return scores._scanned()

    def _scanned(self) -> Scores:
        """Look at every number once: limits, masks, zeros; an error names the first row that cannot be used."""
        if self.input == "probs":
            return self._scanned_probs()
        numpy = isinstance(self.values, np.ndarray)
        if not numpy and on_gpu(self.values) and not self.multi_label:
            return self._scanned_on_gpu()
        low, high, masked = np.inf, -np.inf, False
        for raw in (self.values,) if numpy and self.index is None else self._raw_chunks():
            lowest, highest = float(raw.min()), float(raw.max())
            if not (np.isfinite(lowest) and np.isfinite(highest)):
                low, high, masked = *self._finite_limits(), True
                break
            low, high = min(low, lowest), max(high, highest)
        finite_masks = not self.multi_label and low <= MASKS_FROM and has_finite_masks(self._raw_chunks())
        scores = replace(
            self, low=low, bound=max(abs(low), abs(high)), masked=masked or finite_masks, finite_masks=finite_masks
        )
        if finite_masks:
            chunks = (scores._h(part) for part in row_slices(*self.shape))
            scores = replace(scores, bound=max(float(np.abs(h[np.isfinite(h)]).max()) for h in chunks))
        return scores if 1 / LARGEST <= scores.bound <= LARGEST and not scores.masked else scores._usable()

    def _finite_limits(self) -> tuple[float, float]:
        """Return the lowest and the highest logit that is finite; NaN and infinity are errors."""
        low, high = np.inf, -np.inf
        for part in row_slices(*self.shape):
            raw = to_numpy(self.raw(part))
            _check_logits(raw, part.start, self)
            finite = raw[np.isfinite(raw)]
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        return low, high

    def _scanned_probs(self) -> Scores:
        smallest = 1.0
        for part in row_slices(*self.shape):
            smallest = min(smallest, _check_probs(to_numpy(self.raw(part)), part.start, self))
        zeros_as = max(smallest / 2, 1e-38) if self.zeros_as is None else self.zeros_as
        if not 0 < zeros_as < 1:
            raise InputError(f"zeros_as={zeros_as!r}: expected a number between 0 and 1, such as 1e-8", "zeros_as")
        return replace(self, zeros_as=zeros_as, bound=-float(np.log(min(zeros_as, smallest))))

    def _scanned_on_gpu(self) -> Scores:
        from attemper.torch.rows import DeviceRows

        device = DeviceRows.of(self.values, self.labels, self.w, self.index)
        scores = self
        low = float(device.found.lowest.amin())
        if low <= MASKS_FROM and has_finite_masks(self._raw_chunks()):
            scores = replace(self, values=masks_as_inf(self.values))
            device = DeviceRows.of(scores.values, self.labels, self.w, self.index)
            low = float(device.found.lowest.amin())
        scores = replace(scores, low=low, bound=device.bound(), masked=device.has_nonfinite, device=device)
        if not device.usable():
            for part in row_slices(*self.shape):
                _check_logits(to_numpy(scores.raw(part)), part.start, scores)
        return scores._usable()

    def _usable(self) -> Scores:
        """Refuse logits that no temperature can correct, and labels that are masked."""
        if self.bound > LARGEST or 0 < self.bound < 1 / LARGEST:
            raise InputError(
                f"data: the largest logit is {self.bound:.3g} in magnitude; expected {1 / LARGEST:g} to {LARGEST:g}. "
                "For a class that is masked out use -inf.",
                "data",
            )
        if self.masked and self.labels is not None and not self.multi_label:
            for part in row_slices(*self.shape):
                h, y, _ = self.chunk(part)
                hit = np.flatnonzero(np.isneginf(h[np.arange(len(y)), y]))
                if hit.size:
                    row = part.start + hit[0]
                    raise InputError(f"labels: the class of row {row} is masked out (its logit is -inf)", "labels")
        return self

    def __len__(self) -> int:
        """Return the number of rows that count: samples, or with soft labels their classes with a share."""
        return self.shape[0]

    def __repr__(self) -> str:
        what = "without labels" if self.labels is None else "with labels"
        return f"Scores({len(self)} rows of {self.n_classes} {self.input}, {what})"

    @property
    def shape(self) -> tuple[int, int]:
        """Return how many rows count, and K."""
        return int(self.values.shape[0]) if self.index is None else len(self.index), int(self.values.shape[1])

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.values.shape[1])

    @property
    def n_samples(self) -> int:
        """How many samples there are; soft labels make several rows of one."""
        return len(self) if self.index is None else len(np.unique(self.index))

    @property
    def weights(self) -> Floats:
        """Weight of each row; ones where none were passed."""
        return np.ones(len(self)) if self.w is None else self.w

    @property
    def total_weight(self) -> float:
        """Sum of the weights; N when there are none."""
        return float(len(self)) if self.w is None else float(self.w.sum())

    @property
    def logits(self) -> Floats:
        """All logits as NumPy has them, in double precision; of probabilities their logarithms."""
        return self._h(slice(0, len(self))).astype(np.float64, copy=False)

    @cached_property
    def chance(self) -> float:
        """Share of the labels that a uniform guess gets right: 1/K, K without classes that are masked."""
        if not self.masked:
            return 1 / self.n_classes
        if self.device is not None:
            return float(self.device.add(1 / self.device.found.possible)) / self.total_weight
        possible = [np.isfinite(self._h(part)).sum(axis=1) for part in row_slices(*self.shape)]
        return float(np.average(1 / np.concatenate(possible), weights=self.w))

    @cached_property
    def cases(self) -> Labels | None:
        """Number of the cluster that each row is of, from 0; None where rows are cases of their own."""
        return None if self.clusters is None else case_numbers(self.clusters)

    @cached_property
    def sha256(self) -> dict[str, str]:
        """SHA-256 of each file that they were read from."""
        from attemper.data.files import sha256_of  # which imports this module

        return {path: sha256_of(path) for path in self.files}

    @cached_property
    def backend(self) -> NumpyRows | DeviceRows:
        """Where the sums of a fit are computed."""
        return NumpyRows(self) if self.device is None else self.device

    def chunk(self, part: slice | NDArray[np.intp], dtype: type[np.floating[Any]] | None = None) -> Chunk:
        """Bring some rows to NumPy, in single or double precision as they are, or in ``dtype``."""
        as_is = self.index is None and self.input == "logits" and not self.finite_masks
        if as_is and isinstance(self.values, np.ndarray) and self.values.dtype.itemsize >= 4:
            h = self.values[part]
        else:
            h = self._h(part)
        h = h if dtype is None else h.astype(dtype, copy=False)
        return Chunk(h, self.labels[part], None if self.w is None else self.w[part])

    def total(
        self,
        function: Callable[[Chunk], NDArray[Any]],
        dtype: type[np.floating[Any]] | None = None,
        *,
        large: float = 1,
    ) -> Floats:
        """Sum ``function(chunk)`` over all chunks, on several threads when it is worth it.

        The blocks and the order in which they are added do not depend on the number of threads, so the sum is the same
        to the last bit. Where there are many, chunks may be up to ``large`` times as large as usual; below 1, all are.
        """
        n, k = self.shape
        elements = int(CHUNK_ELEMENTS * min(max(n * k // (16 * CHUNK_ELEMENTS), 1), large))

        def add(block: slice) -> NDArray[Any]:
            parts = row_slices(block.stop, k, elements, first=block.start)
            total: Any = sum(function(self.chunk(part, dtype)) for part in parts)
            return np.asarray(total)

        blocks = list(row_slices(n, k, BLOCK_ELEMENTS))
        threads = 1 if len(blocks) == 1 else min(len(blocks), n_threads())
        if threads == 1:
            return np.asarray(sum(map(add, blocks)), dtype=np.float64)
        with ThreadPoolExecutor(threads) as pool:
            return np.asarray(sum(pool.map(add, blocks)), dtype=np.float64)

    def take(self, rows: slice | NDArray[Any]) -> Self:
        """Return some rows, by a slice, numbers or a mask; the scores are not copied."""
        index, values, device = self.index, self.values, None
        if isinstance(rows, slice) and index is None:
            values, device = values[rows, :], None if self.device is None else self.device[rows]
        else:
            index = (np.arange(len(self)) if index is None else index)[rows]
        entries = {name: getattr(self, name) for name in ("labels", "w", "groups", "clusters", "ids")}
        own: dict[str, Any] = {name: of if of is None else of[rows] for name, of in entries.items()}
        scores = replace(self, values=values, index=index, device=device, **own)
        if self.device is not None and device is None:
            from attemper.torch.rows import DeviceRows

            scores = replace(scores, device=DeviceRows.of(values, scores.labels, scores.w, index))
        return scores

    def sample(self, rows: int) -> Self:
        """Return at most ``rows`` rows, evenly spread; itself when it is no longer than that."""
        step = -(-len(self) // rows)
        return self if step <= 1 else self.take(slice(None, None, prime_step(step)))

    def samples(self) -> Self:
        """Return the first row of each sample: soft labels make several of one."""
        if self.index is None or (np.diff(self.index) > 0).all():
            return self
        return self.take(np.sort(np.unique(self.index, return_index=True)[1]))

    def of_rows(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Return for each row what was found of its sample."""
        if len(samples) == len(self):
            return samples
        _, first, sample = np.unique(np.asarray(self.index), return_index=True, return_inverse=True)
        return np.asarray(samples[np.argsort(np.argsort(first))[sample]])

    def with_weights(self, w: Floats) -> Self:
        """Give the rows other weights."""
        return replace(self, w=w, device=None if self.device is None else self.device.weighted(w))

    def raw(self, part: slice | NDArray[np.intp]) -> Any:
        """Return some rows as they were passed."""
        return take_rows(self.values, part if self.index is None else self.index[part])

    def _h(self, part: slice | NDArray[np.intp]) -> NDArray[Any]:
        """Logits of some rows as NumPy has them, in at least single precision."""
        raw = to_numpy(self.raw(part))
        if self.input == "probs":
            return np.asarray(_log_odds(raw, self.zeros_as) if self.multi_label else log_probs(raw, self.zeros_as))
        return np.asarray(masks_as_inf(raw)) if self.finite_masks else raw

    def _raw_chunks(self) -> Iterator[NDArray[Any]]:
        return (to_numpy(self.raw(part)) for part in row_slices(*self.shape))


def n_threads() -> int:
    """Two where there are two cores: beyond, Python gains little. ATTEMPER_THREADS sets another number."""
    asked = os.environ.get("ATTEMPER_THREADS", "")
    if asked:
        return max(1, int(asked))
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _place(row: int, column: int, scores: Scores) -> str:
    return f"row {row}, {f'column {column}' if scores.classes is None else f'class {scores.classes[column]!r}'}"


def _check_logits(h: NDArray[Any], first: int, scores: Scores) -> None:
    bad = np.argwhere(np.isnan(h) | (h == np.inf))
    if len(bad):
        row, column = bad[0]
        what = "NaN" if np.isnan(h[row, column]) else "infinity"
        raise InputError(f"data: {_place(first + row, column, scores)} is {what}. Fix or drop that row.", "data")
    dead = np.flatnonzero(np.isneginf(h).all(axis=1))
    if dead.size and not scores.multi_label:
        raise InputError(f"data: row {first + dead[0]} is -inf everywhere; some class must be possible", "data")


def _check_probs(p: NDArray[Any], first: int, scores: Scores) -> float:
    """Return the smallest positive probability."""
    bad = np.argwhere(~((p >= 0) & (p <= 1 + 1e-3)))
    if len(bad):
        row, column = bad[0]
        value = p[row, -1] if scores.one_column else p[row, column]  # as it was passed
        where = _place(first + row, column, scores)
        if np.isnan(value):
            raise InputError(f"data: {where} is NaN. Fix or drop that row.", "data")
        raise InputError(
            f"data: {where} is {value}; expected probabilities from 0 to 1. Divide percentages by 100; for logits use "
            "input='logits'.",
            "data",
        )
    sums = p.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(~(np.abs(sums - 1) <= sum_tolerance(p.shape[1])))
    if off.size and not scores.multi_label:
        raise InputError(
            f"data: row {first + off[0]} sums to {sums[off[0]]:.6g}; expected probabilities that sum to 1. Divide "
            "each row by its sum. For labels that do not exclude each other use multi_label=True.",
            "data",
        )
    least = np.finfo(p.dtype if p.dtype.kind == "f" else np.float64).smallest_normal
    positive = np.minimum(p, 1 - p)[(p >= least) & (p < 1)] if scores.multi_label else p[p >= least]
    return float(positive.min()) if positive.size else 1.0


def _log_odds(p: NDArray[Any], zeros_as: float | None) -> Floats:
    """Log-odds of single probabilities; zeros and ones are ``zeros_as`` away from the end."""
    low = zeros_as or 1e-38
    p = p.astype(np.float64)
    p, q = np.where(p <= 0, low, p), np.where(p >= 1, low, 1 - p)
    return np.asarray(np.log(p) - np.log(q))
