"""Files that hold whole arrays (npy, npz, safetensors), read some rows at a time.

A format only has to return what arrays there are (`Header`) and a stream that stands at an array's first byte. Shapes,
types and sizes are checked here, before anything is allocated: a header may claim anything.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BufferedIOBase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._limits import check_memory
from attemper._paths import InputFile, PathOrURL
from attemper.data.arrays import reshaping
from attemper.data.columns import may_be_labels
from attemper.data.layout import axis_that_fits
from attemper.data.sequences import position_name, zeros_and_ones
from attemper.errors import FileError, InputError
from attemper.io.reading import Block, Reader, listed, parsing, rows_per_block
from attemper.io.spec import InputSpec

__all__ = ["ArrayReader", "ArraySource", "Header", "read_names", "read_npy_header"]

NUMBERS = "fiu"
NUMBERS_OR_BOOLEANS = "fiub"
NUMBERS_OR_NAMES = "fiubUS"

OpenArray = Callable[[str], BufferedIOBase]


@dataclass(frozen=True)
class Header:
    """What the header of a file declares about one of its arrays."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    n_bytes: int  # what is really there for its data
    fortran: bool = False  # stored column after column
    bfloat16: bool = False  # then dtype is uint16: NumPy has no such type
    start: int = 0  # where the data begin in the file

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


class ArraySource(ABC):
    """A file with named arrays."""

    file: InputFile
    names: Collection[str]

    @abstractmethod
    def header(self, key: str) -> Header:
        """Return what the file declares about one of its arrays."""

    @contextmanager
    def reading(self) -> Iterator[OpenArray]:
        """Open the file; the function returned opens a stream that stands at the first byte of an array's data."""
        with ExitStack() as stack:

            def open_array(key: str) -> BufferedIOBase:
                stream = stack.enter_context(self.file.open())
                stream.seek(self.header(key).start)
                return stream

            yield open_array


@dataclass(frozen=True, eq=False)
class _Array:
    """One array of a source, checked: numbers or names, one entry per row."""

    source: ArraySource
    key: str
    header: Header

    def __str__(self) -> str:
        return f"{self.source.file.path}: {self.key!r}"

    def flattened(self) -> _Array:
        """See sequences of positions as rows: they lie one after the other."""
        if self.header.fortran:
            raise FileError(f"{self} is stored column after column; save it with numpy.ascontiguousarray")
        b, length, *more = self.header.shape
        return replace(self, header=replace(self.header, shape=(b * length, *more)))


class _ArrayStream:
    """One array being read from first row to last, ``offset`` rows further on than the others."""

    def __init__(self, array: _Array, stream: BufferedIOBase, offset: int = 0) -> None:
        self._array, self._stream, self._offset = array, stream, offset
        self._start = stream.tell()
        if offset:
            self._rows(0, min(offset, array.header.shape[0]))

    def read(self, first: int, rows: int) -> NDArray[Any]:
        """Read the next rows; what would lie beyond the end is zeros."""
        there = min(rows, self._array.header.shape[0] - first - self._offset)
        array = self._rows(first + self._offset, there)
        missing = np.zeros((rows - there, *array.shape[1:]), array.dtype)
        return np.concatenate([array, missing]) if len(missing) else array

    def _rows(self, first: int, rows: int) -> NDArray[Any]:
        """Read rows from ``first`` on, where the stream stands unless columns lie one after the other."""
        header = self._array.header
        dtype, shape = header.dtype, header.shape
        if not header.fortran:
            return self._native(self._bytes(rows * header.row_bytes).view(dtype).reshape(rows, *shape[1:]))
        columns = np.empty((shape[1], rows), dtype)
        for k in range(shape[1]):
            with parsing(self._array.source.file.path, "array data"):
                self._stream.seek(self._start + (k * shape[0] + first) * dtype.itemsize)
            columns[k] = self._bytes(rows * dtype.itemsize).view(dtype)
        return self._native(columns.T)

    def _bytes(self, n: int) -> NDArray[np.uint8]:
        raw = np.empty(n, dtype=np.uint8)
        with parsing(self._array.source.file.path, "array data"):
            got = self._stream.readinto(raw.data)
        if got != n:
            raise FileError(f"{self._array}: the file ends in the middle of the data; write it again")
        return raw

    def _native(self, array: NDArray[Any]) -> NDArray[Any]:
        if self._array.header.bfloat16:  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind == "S":
            try:
                return np.strings.decode(array, "utf-8")
            except UnicodeDecodeError:
                raise FileError(f"{self._array}: names that are not UTF-8 text") from None
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            with np.errstate(over="ignore", invalid="ignore"):
                return array.astype(np.float64)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class ArrayReader(Reader):
    """Logits, labels and weights from the arrays of a file."""

    one_image = False  # a file of one image, with the classes first

    def __init__(self, source: ArraySource, spec: InputSpec, labels: ArraySource | None = None) -> None:
        self.path = source.file.path
        self.source = source
        self._values = values = _array(source, spec.values_key, "logits_key", NUMBERS, _other_kind(source, spec))
        if len(values.header.shape) == 1:  # one score of two classes
            self._values = values = replace(values, header=replace(values.header, shape=(*values.header.shape, 1)))
        shape = values.header.shape
        self.axis = None
        if len(shape) > 2 and spec.axis is not None:
            values = self._values = self._as_images(values, spec.axis)
            shape = values.header.shape
        elif len(shape) != 2 and not (len(shape) == 3 and spec.has_sequences):
            counts = "ignore_index, mask_key, next_token or columns"
            hint = f" For logits of tokens, (B, L, V), specify which positions count, with {counts}."
            raise InputError(
                f"{values} has shape {shape}; expected two dimensions, one row per sample and one "
                f"column per class, or one dimension for one score of two classes. "
                f"{reshaping(len(shape), spec.values_key)}{hint if len(shape) == 3 else ''}"
            )
        self.length = shape[1] if len(shape) == 3 and self.axis is None else None
        self._next = spec.next_token
        if spec.next_token and self.length is None:
            raise InputError(
                f"{values} has shape {shape}; next_token needs (B, L, V), to know where a sequence ends",
                param="next_token",
            )
        self.n_classes = shape[-1 if self.axis is None else self.axis]
        self.n_rows = math.prod(
            n for k, n in enumerate(shape) if k != (len(shape) - 1 if self.axis is None else self.axis)
        )
        self.n_bytes = math.prod(shape) * values.header.dtype.itemsize
        self._labels = self._weights = self._mask = None
        if labels is not None:
            self._labels = _array(labels, "labels", "labels", NUMBERS_OR_NAMES)
        elif spec.reads_labels:
            by, likely = "labels_key", next(filter(may_be_labels, source.names), None)
            fix = "" if likely is None else f"Use labels_key={likely!r} if that array holds the labels."
            self._labels = _array(source, spec.labels_key or "labels", by, NUMBERS_OR_NAMES, fix)
        if spec.weights_key is not None:
            self._weights = _array(source, spec.weights_key, "weights_key", NUMBERS)
        if spec.mask_key is not None:
            self._mask = _array(source, spec.mask_key, "mask_key", NUMBERS_OR_BOOLEANS)
        query = spec.column_query
        self._ids = [
            None if key is None else self._checked_ids(_array(source, key, query.by(what), NUMBERS_OR_NAMES))
            for key, what in ((query.group, "groups"), (query.cluster, "clusters"))
        ]
        if self.axis is not None:
            self._labels, self._weights = (
                None if part is None else self._of_images(part) for part in (self._labels, self._weights)
            )
            return
        for part in (self._labels, self._weights, self._mask):
            if part is not None and not (part is self._labels and _are_soft(part, values)):
                _check_one_per_row(part, values)
        if self.length is not None:
            self._values = values.flattened()
            self._labels, self._weights, self._mask = (
                None if part is None else part.flattened() for part in (self._labels, self._weights, self._mask)
            )

    def _as_images(self, values: _Array, axis: int) -> _Array:
        """See an array as images along the first axis; a file of one image, with the classes first, too."""
        shape = values.header.shape
        if not -len(shape) <= axis < len(shape):
            raise InputError(
                f"{values} has shape {shape}; axis={axis!r} is no axis of it. Use "
                f"axis=1 for (N, K, …), axis=0 for one image, (K, …).",
                param="axis",
            )
        axis %= len(shape)
        self.one_image = axis == 0
        self.axis = 1 if self.one_image else axis
        return self._images_of(values)

    def _images_of(self, part: _Array) -> _Array:
        if part.header.fortran:
            raise FileError(f"{part} is stored column after column; save it with numpy.ascontiguousarray")
        shape = (1, *part.header.shape) if self.one_image else part.header.shape
        return replace(part, header=replace(part.header, shape=shape))

    def _of_images(self, part: _Array) -> _Array:
        """Check labels or weights of images: one for each position."""
        part, full = self._images_of(part), self._values.header.shape
        expected = tuple(n for k, n in enumerate(full) if k != self.axis)
        if part.header.shape != expected:
            drop = slice(1 if self.one_image else 0, None)
            axis = axis_that_fits(full[drop], part.header.shape[drop])
            hint = "" if axis is None else f". If the classes are along axis {axis}, use axis={axis!r}"
            raise InputError(
                f"{part} has shape {part.header.shape[drop]}; expected {expected[drop]}, that of the logits "
                f"{full[drop]} without the classes{hint}"
            )
        return part

    def _checked_ids(self, part: _Array) -> _Array:
        """Check ids: one for each row; of images and sequences also one for each of them."""
        shape = self._values.header.shape
        rows = tuple(n for k, n in enumerate(shape) if k != (len(shape) - 1 if self.axis is None else self.axis))
        part = self._images_of(part) if self.axis is not None else part
        shape = part.header.shape
        if shape in (rows, rows[:1]) or (len(rows) == 1 and shape == (*rows, 1)):
            return part
        if self.one_image and shape == (1, 1):
            return replace(part, header=replace(part.header, shape=(1,)))
        raise InputError(f"{part} has shape {shape}; expected one id per row of logits, shape {rows[:1]}")

    def names(self, key: str) -> list[Any] | None:  # noqa: D102 (as in `Reader`)
        return read_names(self.source, key) if key in self.source.names else None

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        assert self.n_rows is not None
        parts = [part for part in (self._labels, self._weights, self._mask) if part is not None]
        # Logits narrower than float64 may be widened on the way, so count them as such.
        row_bytes = 8 * self.n_classes
        n_rows = self.n_rows
        if self.axis is not None:  # whole images, which are not widened
            row_bytes, n_rows = self._values.header.row_bytes, self._values.header.shape[0]
        step = rows_per_block(row_bytes + sum(part.header.row_bytes for part in parts))
        with ExitStack() as stack:
            opened: dict[int, OpenArray] = {}

            def stream(array: _Array, offset: int = 0) -> _ArrayStream:
                source = array.source
                if id(source) not in opened:
                    opened[id(source)] = stack.enter_context(source.reading())
                return _ArrayStream(array, opened[id(source)](array.key), offset)

            def column(array: _Array | None, offset: int = 0) -> Callable[[int, int], NDArray[Any] | None]:
                if array is None:
                    return lambda first, rows: None
                entries = stream(array, offset)
                soft = array is self._labels and len(array.header.shape) == 2 and array.header.shape[1] > 1
                tail = array.header.shape[1:] if soft or self.axis is not None else ()
                return lambda first, rows: entries.read(first, rows).reshape(rows, *tail)

            def ids(array: _Array | None) -> Callable[[int, int], NDArray[Any] | None]:
                if array is None:
                    return lambda first, rows: None
                entries, shape = stream(array), array.header.shape
                if self.length is not None:  # of all positions, or one for each sequence
                    whole = entries.read(0, shape[0])
                    each = whole.reshape(-1) if len(shape) == 2 else np.repeat(whole, self.length)
                    return lambda first, rows: each[first : first + rows]
                tail = shape[1:] if self.axis is not None else ()
                return lambda first, rows: entries.read(first, rows).reshape(rows, *tail)

            values, labels = stream(self._values), column(self._labels, int(self._next))
            groups, clusters = (ids(part) for part in self._ids)
            weights, mask = column(self._weights), column(self._mask)
            next_mask = column(self._mask if self._next else None, 1)
            for first in range(0, n_rows, step):
                at = first, min(step, n_rows - first)
                counts = self._counts(*at, mask(*at), next_mask(*at))
                yield Block(values.read(*at), labels(*at), weights(*at), counts, groups(*at), clusters(*at))

    def _counts(
        self, first: int, rows: int, mask: NDArray[Any] | None, next_mask: NDArray[Any] | None
    ) -> NDArray[np.bool_] | None:
        """Return which rows count; a pair of this position and the next only if both do."""
        if mask is None and not self._next:
            return None
        numbers = np.arange(first, first + rows)
        counts = np.ones(rows, dtype=bool)
        if mask is not None:
            try:
                counts = zeros_and_ones(mask, position_name(numbers, self.length))
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from None
        if self._next:
            counts = counts & ((numbers + 1) % (self.length or 1) != 0)
        return counts if next_mask is None else counts & (next_mask == 1)


def _other_kind(source: ArraySource, spec: InputSpec) -> str:
    """Return what to do where a file has logits but not the probabilities that are asked for, or the reverse."""
    if spec.logits_key is not None:
        return ""
    if spec.probs and "logits" in source.names:
        leave_out = "Use input='logits'"
        return f"{leave_out} if these are logits. Use logits_key={'logits'!r} if they are probabilities."
    if not spec.probs and "probs" in source.names:
        by, probs = "logits_key", "input='probs'"
        return f"Use {by} to choose one. If the input is probabilities, use {probs}."
    return ""


def _array(source: ArraySource, key: str, by: str, kinds: str, fix: str = "") -> _Array:
    if key not in source.names:
        known = f"{source.file.path}: holds no array {key!r}; it holds {listed(source.names)}."
        raise FileError(f"{known} {fix or f'Use {by} to choose one.'}")
    header = source.header(key)
    part = _Array(source, key, header)
    if header.dtype.hasobject:
        raise FileError(
            f"{part} holds pickled Python objects, which could run code; not read. Save it again as an array "
            "of numbers (or of text, for names)."
        )
    if header.dtype.kind not in kinds or header.dtype.itemsize == 0:
        expected = "numbers or names" if kinds == NUMBERS_OR_NAMES else "numbers"
        raise InputError(f"{part} is of dtype {header.dtype}; expected {expected}, such as float32 or int64")
    declared = header.dtype.itemsize * math.prod(header.shape)
    if declared > header.n_bytes:
        raise FileError(
            f"{part} has shape {header.shape} by its header, which takes {declared} bytes, but there are "
            f"{header.n_bytes}: truncated or damaged; write it again"
        )
    if declared < header.n_bytes:
        raise FileError(
            f"{part} has shape {header.shape} by its header, which takes {declared} bytes, but there are "
            f"{header.n_bytes}: more than one array, or damaged; write one array"
        )
    # Narrower numbers are widened to float64.
    check_memory(max(declared, 8 * math.prod(header.shape)), source.file.size, str(part))
    return part


def read_names(source: ArraySource, key: str) -> list[Any]:
    """Read a whole list of names or whole numbers, checked before anything is allocated."""
    part = _array(source, key, "logits_key", NUMBERS_OR_NAMES)
    shape, dtype = part.header.shape, part.header.dtype
    if len(shape) != 1 or dtype.kind not in "iuUS":
        raise InputError(f"{part} has shape {shape} and dtype {dtype}; expected a list of names or whole numbers")
    with source.reading() as open_array:
        return list(_ArrayStream(part, open_array(key)).read(0, shape[0]).tolist())


def _are_soft(labels: _Array, values: _Array) -> bool:
    """Whether labels have the shape of soft ones, or of votes, which reading refuses in words."""
    shape = labels.header.shape
    return len(values.header.shape) == 2 and len(shape) == 2 and shape[0] == values.header.shape[0] and shape[1] > 1


def _check_one_per_row(part: _Array, values: _Array) -> None:
    *rows, _ = values.header.shape
    n, shape = rows[0], part.header.shape
    if shape == tuple(rows) or (len(rows) == 1 and shape == (n, 1)):
        return
    each = "row" if len(rows) == 1 else "position"
    raise InputError(f"{part} has shape {shape}; expected one entry per {each} of logits, shape {tuple(rows)}")


def read_npy_header(stream: BufferedIOBase, path: PathOrURL, size: int) -> Header:
    """Read the header of an array in NumPy's format, of which ``size`` bytes are there in all."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    # Warnings: about the age of the file or of its type's name; what counts is the header that comes out.
    with parsing(path, "a NumPy array"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version = np.lib.format.read_magic(stream)
        if version not in readers:  # (3, 0) is for fields with names beyond Latin-1; scores have no fields
            raise FileError(f"{path}: a NumPy array of format version {version}; expected plain numbers")
        shape, fortran, dtype = readers[version](stream)
    if any(length < 0 for length in shape):
        raise FileError(f"{path}: damaged: its header claims the shape {shape}")
    start = stream.tell()
    return Header(dtype, tuple(map(int, shape)), size - start, fortran and len(shape) > 1, start=start)
