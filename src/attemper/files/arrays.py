"""Files that hold whole arrays (npy, npz, safetensors), read some rows at a time.

A format only has to say what arrays there are (`Header`) and to give a stream
that stands at an array's first byte. Shapes, types and sizes are checked here,
before anything is allocated: a header may say whatever it likes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from io import BufferedIOBase
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import reshaping
from attemper.errors import FileError, InputError, option
from attemper.files.reading import Block, Keys, listed, parsing, rows_per_block
from attemper.limits import check_memory
from attemper.places import Place
from attemper.sequences import position_name, zeros_and_ones

__all__ = ["ArrayReader", "ArraySource", "Header", "read_names", "read_npy_header"]

NUMBERS = "fiu"
NUMBERS_OR_BOOLEANS = "fiub"
NUMBERS_OR_NAMES = "fiubUS"


@dataclass(frozen=True)
class Header:
    """What a file says about one of its arrays."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    n_bytes: int  # what is really there for its data
    fortran: bool = False  # stored column after column
    bfloat16: bool = False  # then dtype is uint16: NumPy has no such type

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


class ArraySource(Protocol):
    """A file with named arrays."""

    @property
    def path(self) -> Place:
        """The file."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def names(self) -> Collection[str]:
        """Names of the arrays in it."""

    def header(self, key: str) -> Header:
        """Read what the file says about one of its arrays."""

    def open(self, key: str) -> AbstractContextManager[BufferedIOBase]:
        """Give a stream that stands at the first byte of the array's data."""


@dataclass(frozen=True, eq=False)
class _Part:
    """One array of a source, checked: numbers or names, one entry per row."""

    source: ArraySource
    key: str
    header: Header

    def __str__(self) -> str:
        return f"{self.source.path}: {self.key!r}"

    def flattened(self) -> _Part:
        """See sequences of positions as rows: they lie one after the other."""
        if self.header.fortran:
            raise FileError(f"{self} is stored column after column; save it with numpy.ascontiguousarray")
        b, length, *more = self.header.shape
        return replace(self, header=replace(self.header, shape=(b * length, *more)))

    def read(self, stream: BufferedIOBase, start: int, first: int, rows: int) -> NDArray[Any]:
        """Read rows from ``first`` on; the data begin at ``start``, the stream stands at ``first``."""
        dtype, shape = self.header.dtype, self.header.shape
        if not self.header.fortran:
            raw = self._bytes(stream, rows * self.header.row_bytes)
            return self._native(raw.view(dtype).reshape(rows, *shape[1:]))
        columns = np.empty((shape[1], rows), dtype)
        for k in range(shape[1]):
            with parsing(self.source.path, "array data"):
                stream.seek(start + (k * shape[0] + first) * dtype.itemsize)
            columns[k] = self._bytes(stream, rows * dtype.itemsize).view(dtype)
        return self._native(columns.T)

    def _bytes(self, stream: BufferedIOBase, n: int) -> NDArray[np.uint8]:
        raw = np.empty(n, dtype=np.uint8)
        with parsing(self.source.path, "array data"):
            got = stream.readinto(raw.data)
        if got != n:
            raise FileError(f"{self}: the file ends in the middle of the data; write it again")
        return raw

    def _native(self, array: NDArray[Any]) -> NDArray[Any]:
        if self.header.bfloat16:  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind == "S":
            try:
                return np.strings.decode(array, "utf-8")
            except UnicodeDecodeError:
                raise FileError(f"{self}: names that are not UTF-8 text") from None
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            with np.errstate(over="ignore", invalid="ignore"):
                return array.astype(np.float64)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class ArrayReader:
    """Logits, labels and weights from the arrays of a file."""

    columns = None

    def __init__(self, source: ArraySource, keys: Keys, labels: ArraySource | None = None) -> None:
        self.path = source.path
        self._values = _part(source, keys.values, option("logits_key", "--logits-key"), NUMBERS)
        shape = self._values.header.shape
        if len(shape) != 2 and not (len(shape) == 3 and keys.sequences):
            counts = option("ignore_index, mask_key, next_token or columns", "--ignore-index, --mask-key, …")
            hint = f" For logits of tokens, (B, L, V), specify which positions count, with {counts}."
            raise InputError(
                f"{self._values} has shape {shape}; expected two dimensions, one row per sample and one "
                f"column per class. {reshaping(len(shape), keys.values)}{hint if len(shape) == 3 else ''}"
            )
        self.length = shape[1] if len(shape) == 3 else None
        self._next = keys.next_token
        if keys.next_token and self.length is None:
            raise InputError(
                f"{self._values} has shape {shape}; {option('next_token', '--next-token')} needs (B, L, V), to know "
                "where a sequence ends"
            )
        self.n_rows: int | None
        self.n_rows, self.n_classes = math.prod(shape[:-1]), shape[-1]
        self._labels = self._weights = self._mask = None
        if labels is not None:
            self._labels = _part(labels, "labels", option("labels", "--labels"), NUMBERS_OR_NAMES)
        elif keys.want_labels:
            self._labels = _part(
                source, keys.labels or "labels", option("labels_key", "--labels-key"), NUMBERS_OR_NAMES
            )
        if keys.weights is not None:
            self._weights = _part(source, keys.weights, option("weights_key", "--weights-key"), NUMBERS)
        if keys.mask is not None:
            self._mask = _part(source, keys.mask, option("mask_key", "--mask-key"), NUMBERS_OR_BOOLEANS)
        for part in (self._labels, self._weights, self._mask):
            if part is not None:
                _check_one_per_row(part, self._values)
        if self.length is not None:
            self._values = self._values.flattened()
            self._labels, self._weights, self._mask = (
                None if part is None else part.flattened() for part in (self._labels, self._weights, self._mask)
            )

    def blocks(self) -> Iterator[Block]:
        """Read the rows in order, a bounded block at a time."""
        assert self.n_rows is not None
        parts = [part for part in (self._values, self._labels, self._weights, self._mask) if part is not None]
        # Logits narrower than float64 may be widened on the way, so count them as such.
        step = rows_per_block(8 * self.n_classes + sum(part.header.row_bytes for part in parts[1:]))
        with ExitStack() as stack:
            values = _Lane(self._values, stack)
            labels, weights, mask, next_mask = (
                None if part is None else _Lane(part, stack, ahead)
                for part, ahead in (
                    (self._labels, int(self._next)),
                    (self._weights, 0),
                    (self._mask, 0),
                    (self._mask if self._next else None, 1),
                )
            )
            for first in range(0, self.n_rows, step):
                rows = min(step, self.n_rows - first)
                yield Block(
                    values.read(first, rows),
                    None if labels is None else labels.read(first, rows).reshape(rows),
                    None if weights is None else weights.read(first, rows).reshape(rows),
                    self._counts(
                        first,
                        rows,
                        None if mask is None else mask.read(first, rows).reshape(rows),
                        None if next_mask is None else next_mask.read(first, rows).reshape(rows),
                    ),
                )

    def _counts(
        self, first: int, rows: int, mask: NDArray[Any] | None, next_mask: NDArray[Any] | None
    ) -> NDArray[np.bool_] | None:
        """Say which rows count; a pair of this position and the next only if both do."""
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


class _Lane:
    """One array being read from first row to last; ``ahead`` rows further on than the others."""

    def __init__(self, part: _Part, stack: ExitStack, ahead: int = 0) -> None:
        self.part, self.ahead = part, ahead
        self._stream = stack.enter_context(part.source.open(part.key))
        self._start = self._stream.tell()
        if ahead:
            part.read(self._stream, self._start, 0, min(ahead, part.header.shape[0]))

    def read(self, first: int, rows: int) -> NDArray[Any]:
        """Read the next rows; what would lie beyond the end is zeros."""
        there = min(rows, self.part.header.shape[0] - first - self.ahead)
        array = self.part.read(self._stream, self._start, first + self.ahead, there)
        missing = np.zeros((rows - there, *array.shape[1:]), array.dtype)
        return np.concatenate([array, missing]) if len(missing) else array


def _part(source: ArraySource, key: str, by: str, kinds: str) -> _Part:
    if key not in source.names:
        raise FileError(
            f"{source.path}: holds no array {key!r}; it holds {listed(source.names)}. Use {by} to choose one."
        )
    header = source.header(key)
    part = _Part(source, key, header)
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
    check_memory(max(declared, 8 * math.prod(header.shape)), source.size, str(part))
    return part


def read_names(source: ArraySource, key: str, option: str) -> NDArray[Any]:
    """Read a whole list of names or whole numbers, checked before anything is allocated."""
    part = _part(source, key, option, NUMBERS_OR_NAMES)
    shape, dtype = part.header.shape, part.header.dtype
    if len(shape) != 1 or dtype.kind not in "iuUS":
        raise InputError(f"{part} has shape {shape} and dtype {dtype}; expected a list of names or whole numbers")
    with source.open(key) as stream:
        return part.read(stream, stream.tell(), 0, shape[0])


def _check_one_per_row(part: _Part, values: _Part) -> None:
    *rows, _ = values.header.shape
    n, shape = rows[0], part.header.shape
    if shape == tuple(rows) or (len(rows) == 1 and shape == (n, 1)):
        return
    hint = " If each row has a single 1 and else 0, save labels.argmax(axis=1)." if shape == values.header.shape else ""
    each = "row" if len(rows) == 1 else "position"
    raise InputError(f"{part} has shape {shape}; expected one entry per {each} of logits, shape {tuple(rows)}.{hint}")


def read_npy_header(stream: BufferedIOBase, path: Place, size: int) -> Header:
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
        raise FileError(f"{path}: damaged: its header says the shape is {shape}")
    return Header(dtype, tuple(map(int, shape)), size - stream.tell(), fortran and len(shape) > 1)
