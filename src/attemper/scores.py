"""Scores: what a classifier said, and what was true; validated once, never guessed.

The caller says whether the numbers are logits or probabilities. Whatever array
holds them (NumPy, torch on any device, JAX, …) stays where it is; only one
chunk at a time is brought to NumPy, so memory is bounded by the chunk. Logits on a
GPU are scanned there, and the temperature family is fitted there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import (
    CHUNK_ELEMENTS,
    MASKS_FROM,
    Floats,
    Labels,
    RowName,
    SelectedRows,
    as_labels,
    as_matrix,
    as_weights,
    has_finite_masks,
    log_probs,
    masks_as_inf,
    numbered,
    on_gpu,
    one_line,
    to_numpy,
)
from attemper.errors import InputError, option, setting
from attemper.plausibility import SUMS, room_of_sums, warn_of_chance, warn_of_probs

__all__ = ["Chunk", "Kind", "Scores"]

# One thread's portion. Its size is fixed, so that sums do not depend on the number of threads.
BLOCK_ELEMENTS = 1 << 20

# Squares and cubes of logits must stay finite; what is larger is a mask in disguise.
LARGEST = 1e30

# Rows whose predictions are compared with their labels: so many show whether there is any agreement.
LEAST_ROWS, MOST_ROWS, MOST_ELEMENTS = 256, 4096, 1 << 22

Kind = Literal["logits", "probs"]

LOGITS = 'use input="logits" or Scores.from_logits'


class Chunk(NamedTuple):
    """Some rows of a `Scores`, as NumPy arrays."""

    h: NDArray[Any]
    y: Labels
    w: Floats | None


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Validated scores of N samples over K classes, with labels and weights.

    Make one with `from_logits` or `from_probs`; the constructor checks nothing.

    Examples
    --------
    >>> scores = Scores.from_logits([[2.0, 1.0], [0.0, 3.0]], [0, 1])
    >>> len(scores), scores.n_classes
    (2, 2)
    >>> Scores.from_logits([[2.0, 1.0], [0.0, float("nan")]], [0, 1])
    Traceback (most recent call last):
    attemper.errors.InputError: logits: row 1, column 1 is NaN; every logit must be a number \
(-inf marks a class that is masked out). Fix or drop that row.
    """

    __repr__ = one_line

    values: Any
    kind: Kind
    labels: Labels | None
    weights: Floats | None
    bound: float  # no finite logit is larger in magnitude
    masked: bool  # some logits are −inf, or finite masks, which are read as −inf
    floor: float | None = None  # what probabilities of exactly zero stand for
    finite_masks: bool = False  # some of `values` are, and are read as −inf
    device: Any = None  # logits on a GPU: an `attemper.gpu.DeviceRows` of them

    @classmethod
    def from_logits(
        cls,
        logits: ArrayLike | Any,
        labels: ArrayLike | Any | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        first_row: int = 0,
        name: RowName | None = None,
    ) -> Scores:
        """Take logits (or any scores whose softmax is the prediction) as they are.

        Errors call a row by its number, counted from ``first_row``, or as ``name(number)`` says.
        """
        values = as_matrix(logits, "logits")
        return cls._checked(values, "logits", labels, sample_weight, classes, None, name or numbered(first_row))

    @classmethod
    def from_probs(
        cls,
        probs: ArrayLike | Any,
        labels: ArrayLike | Any | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        floor: float | None = None,
        first_row: int = 0,
        name: RowName | None = None,
    ) -> Scores:
        """Take probabilities; their logarithms are the logits.

        A probability of exactly 0 means that the class is impossible at every
        temperature. If the zeros only come from rounding, say what they stand
        for with ``floor`` (half of the smallest number the format can hold is a
        fair choice, such as 3e-8 for float16). A floor means the same in every float type; numbers
        below the smallest normal one of the type (1.2e-38 in float32) count as zeros. There is no
        default: four libraries that each chose one in silence found four temperatures for the same data.
        """
        if floor is not None and not (isinstance(floor, Real) and sys.float_info.min <= floor < 1):
            raise InputError(f"{setting('floor', floor)}: must lie between 0 and 1, such as 1e-8")
        values = as_matrix(probs, "probabilities")
        return cls._checked(values, "probs", labels, sample_weight, classes, floor, name or numbered(first_row))

    @classmethod
    def _checked(
        cls,
        values: Any,
        kind: Kind,
        labels: Any,
        sample_weight: Any,
        classes: Sequence[Any] | None,
        floor: float | None,
        name: RowName,
    ) -> Scores:
        n, n_classes = values.shape
        y = None if labels is None else as_labels(labels, n, n_classes, classes, name)
        w = None if sample_weight is None else as_weights(sample_weight, n, name)
        scores = cls(values, kind, y, w, bound=0.0, masked=False, floor=floor)
        if kind == "logits" and on_gpu(values):
            scores = scores._scan_on_gpu(name)
        else:
            bound, masked, finite_masks = scores._scan(name)
            scores = replace(scores, bound=bound, masked=masked, finite_masks=finite_masks)
        if kind == "logits":
            warn_of_probs(values)
        if y is not None:
            scores.sample(max(LEAST_ROWS, min(MOST_ROWS, MOST_ELEMENTS // n_classes)))._warn_of_chance()
        return scores

    def __len__(self) -> int:
        """Return N, the number of samples."""
        return int(self.values.shape[0])

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.values.shape[1])

    @property
    def total_weight(self) -> float:
        """Sum of the weights; N when there are none."""
        return float(len(self)) if self.weights is None else float(self.weights.sum())

    @property
    def logits(self) -> Any:
        """The logits, in the array that was passed; of probabilities the logarithms, in double precision."""
        values = self.values.gathered() if isinstance(self.values, SelectedRows) else self.values
        if self.kind == "probs":
            return log_probs(values, self.floor)
        return masks_as_inf(values) if self.finite_masks else values

    @property
    def dtype(self) -> Any:
        """Type of predictions: that of the array that was passed; None where it holds whole numbers."""
        dtype = self.values.dtype
        return dtype if "float" in str(dtype) else None

    def total(
        self,
        function: Callable[[Chunk], NDArray[Any]],
        dtype: type[np.floating[Any]] | None = None,
        *,
        large: int = 1,
    ) -> Floats:
        """Sum ``function(chunk)`` over all chunks, on several threads when it is worth it.

        The blocks and the order in which they are added do not depend on the
        number of threads, so the sum is the same to the last bit. ``dtype`` is what chunks are brought
        to; None leaves them in single or double precision, as they are. Where there are many, chunks may be up
        to ``large`` times as large as usual.
        """
        elements = CHUNK_ELEMENTS * min(max(len(self) * self.n_classes // (16 * CHUNK_ELEMENTS), 1), large)

        def block(start: int) -> NDArray[Any]:
            parts = (function(c) for c in self._chunks(start, start + rows, dtype, elements))
            total: Any = sum(parts)
            return np.asarray(total)

        rows = max(1, BLOCK_ELEMENTS // self.n_classes)
        starts = range(0, len(self), rows)
        threads = min(len(starts), _threads())
        if threads == 1:
            blocks = [block(s) for s in starts]
        else:
            with ThreadPoolExecutor(threads) as pool:
                blocks = list(pool.map(block, starts))
        return np.asarray(sum(blocks), dtype=np.float64)

    def weighted(self, weights: Floats) -> Scores:
        """Give the samples other weights, wherever they lie."""
        return replace(self, weights=weights, device=None if self.device is None else self.device.weighted(weights))

    def sample(self, rows: int) -> Scores:
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
            labels=None if self.labels is None else self.labels[part],
            weights=None if self.weights is None else self.weights[part],
            device=None if self.device is None else self.device.every(step),
        )

    def rows(self, part: slice) -> NDArray[Any]:
        """Logits of some rows as NumPy has them, in at least single precision."""
        values = to_numpy(self.values[part, :])
        if self.kind == "probs":
            return np.asarray(log_probs(values, self.floor))
        return np.asarray(masks_as_inf(values)) if self.finite_masks else values

    def _chunks(self, start: int, stop: int, dtype: type[np.floating[Any]] | None, elements: int) -> Iterator[Chunk]:
        assert self.labels is not None
        rows = max(1, elements // self.n_classes)
        stop = min(stop, len(self))
        for first in range(start, stop, rows):
            part = slice(first, min(first + rows, stop))
            h = self.rows(part)
            weights = None if self.weights is None else self.weights[part]
            yield Chunk(h.astype(dtype or h.dtype, copy=False), self.labels[part], weights)

    def _warn_of_chance(self) -> None:
        """Warn where labels and predictions seem to have nothing to do with each other."""
        assert self.labels is not None
        y, w = self.labels, np.ones(len(self)) if self.weights is None else self.weights
        top = self._tops()
        weight = float(w.sum())
        if weight > 0:
            _, seen = np.unique(np.concatenate([y, top]), return_inverse=True)  # few of many classes
            labels, predictions = (
                np.bincount(part, w, int(seen.max()) + 1).astype(np.float64)
                for part in (seen[: len(y)], seen[len(y) :])
            )
            warn_of_chance(
                float((w * (top == y)).sum()) / weight, labels, predictions, weight**2 / float((w * w).sum())
            )

    def _tops(self) -> Labels:
        """Return the class with the largest logit of each row: the label, where it is one of several."""
        assert self.labels is not None
        if self.device is not None:  # where the logits are; only the classes travel
            h = self.values.gathered() if isinstance(self.values, SelectedRows) else self.values
            y = array_api_compat.array_namespace(h).asarray(self.labels, device=h.device)
            is_label = h.gather(1, y[:, None])[:, 0] == h.amax(dim=1)
            return np.asarray(y.where(is_label, h.argmax(dim=1)).cpu().numpy())
        found = []
        for chunk in self._chunks(0, len(self), None, CHUNK_ELEMENTS):
            is_label = chunk.h[np.arange(len(chunk.y)), chunk.y] == chunk.h.max(axis=1)
            found.append(np.where(is_label, chunk.y, chunk.h.argmax(axis=1)))
        return np.concatenate(found)

    def _scan_on_gpu(self, name: RowName) -> Scores:
        from attemper.gpu import DeviceRows

        values = self.values
        some = values if isinstance(values, SelectedRows) else None
        logits, index = (values, None) if some is None else (some.base, some.index)
        rows = DeviceRows.of(logits, self.labels, self.weights, index)
        if float(rows.found.lowest.amin()) <= MASKS_FROM and self._has_finite_masks():
            logits = masks_as_inf(logits)
            values = logits if some is None else SelectedRows(logits, some.index)
            rows = DeviceRows.of(logits, self.labels, self.weights, index)
        bound = rows.bound()
        if not rows.usable() or bound > LARGEST or 0 < bound < 1 / LARGEST:
            self._scan(name)  # says what is wrong
        return replace(self, values=values, bound=bound, masked=rows.odd, device=rows)

    def _has_finite_masks(self) -> bool:
        """Look at all rows, as chunks alone might differ."""
        on_device = on_gpu(self.values)
        rows = max(1, (BLOCK_ELEMENTS if on_device else CHUNK_ELEMENTS) // self.n_classes)
        parts = (self.values[first : min(first + rows, len(self)), :] for first in range(0, len(self), rows))
        if on_device:
            return has_finite_masks(part.gathered() if isinstance(part, SelectedRows) else part for part in parts)
        return has_finite_masks(to_numpy(part) for part in parts)

    def _scan(self, name: RowName) -> tuple[float, bool, bool]:
        """Largest finite |logit|, whether any is −inf, and by a finite mask; an error for what cannot be used."""
        bound, masked = 0.0, False
        finite_masks: bool | None = None  # not looked for yet
        rows = max(1, CHUNK_ELEMENTS // self.n_classes)
        for first in range(0, len(self), rows):
            part = slice(first, min(first + rows, len(self)))
            values = to_numpy(self.values[part, :])
            labels = None if self.labels is None else self.labels[part]
            called = _shifted(name, first)
            h = values
            low, high = float(values.min()), float(values.max())
            if self.kind == "probs":
                h = _checked_log_probs(values, self.floor, called)
                low, high = float(h.min()), float(h.max())
            elif not np.isfinite(low) or not np.isfinite(high):
                _reject_bad_logits(h, called)
            if self.kind == "logits" and low <= MASKS_FROM:
                finite_masks = self._has_finite_masks() if finite_masks is None else finite_masks
                h = masks_as_inf(values) if finite_masks else values
                low = float(h.min())
            if low == -np.inf:
                masked = True
                _reject_masked_rows(h, values, labels, self.kind, called)
                low = float(h[np.isfinite(h)].min())
                high = float(h[np.isfinite(h)].max())
            bound = max(bound, abs(low), abs(high))
            if bound > LARGEST:
                row, column = np.argwhere(np.abs(np.where(np.isfinite(h), h, 0), dtype=np.float64) > LARGEST)[0]
                raise InputError(
                    f"logits: {called(row)}, column {column} is {h[row, column]:.3g}; expected at most {LARGEST:g} in "
                    "magnitude. For a class that is masked out use -inf: logits[logits < -1e29] = -np.inf."
                )
        if 0 < bound < 1 / LARGEST:
            raise InputError(
                f"logits: none is larger than {bound:.3g} in magnitude, so all classes are as likely in every row; "
                "multiply them by a constant first"
            )
        return bound, masked, bool(finite_masks)


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


def _shifted(name: RowName, first: int) -> RowName:
    """Name the rows of a part that begins at row ``first``."""
    return lambda row: name(first + row)


def _reject_bad_logits(h: NDArray[Any], name: RowName) -> None:
    bad = np.argwhere(np.isnan(h) | (h == np.inf))
    if len(bad):
        row, column = bad[0]
        what = "NaN" if np.isnan(h[row, column]) else "infinity"
        raise InputError(
            f"logits: {name(row)}, column {column} is {what}; every logit must be a number "
            "(-inf marks a class that is masked out). Fix or drop that row."
        )


def _reject_masked_rows(
    h: NDArray[Any], values: NDArray[Any], labels: Labels | None, kind: Kind, name: RowName
) -> None:
    dead = np.flatnonzero(np.isneginf(h).all(axis=1))
    if dead.size:
        raise InputError(f"logits: {name(dead[0])} is -inf everywhere; some class must be possible")
    if labels is None:
        return
    hit = np.flatnonzero(np.isneginf(h[np.arange(len(h)), labels]))
    if hit.size:
        row, label = name(hit[0]), labels[hit[0]]
        if kind == "probs":
            raise InputError(
                f"probabilities: {row} gives its own label {label} a probability of exactly 0, so the loss "
                "is infinite at every temperature. If the zero comes from rounding, set what it stands for: "
                f"{option('floor=1e-8', '--floor 1e-8')}."
            )
        value = values[hit[0], label]
        raise InputError(
            f"logits: {row}, column {label} is {value:g} (a masked class), but that is the row's own label. "
            "Fix the mask or drop that row."
        )


def _checked_log_probs(p: NDArray[Any], floor: float | None, name: RowName) -> NDArray[Any]:
    bad = np.argwhere(~((p >= 0) & (p <= 1 + 1e-3)))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"probabilities: {name(row)}, column {column} is {p[row, column]}; probabilities lie between "
            f"0 and 1. If these are logits, {option(LOGITS, 'leave out --probs')}."
        )
    sums = p.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(~(np.abs(sums - 1) <= room_of_sums(p.shape[1])))
    if off.size:
        row = off[0]
        raise InputError(f"probabilities: {name(row)} sums to {sums[row]:.6g}; expected 1. {SUMS}")
    return np.asarray(log_probs(p, floor))
