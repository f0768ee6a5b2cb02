"""Named tensors after a JSON header: the safetensors format.

The format is small enough to be read here: eight bytes that say how long the
header is, the header, the data. The package of that name would have to load
whole tensors, and cannot give bfloat16 to NumPy at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.documents import atomic
from attemper.errors import FileError
from attemper.files.arrays import ArrayReader, Header
from attemper.files.npy import NpySource
from attemper.files.reading import Keys, checked_file, opened
from attemper.files.writing import Layout, ProbRows
from attemper.limits import check_json
from attemper.places import Place

__all__ = ["read_safetensors", "write_safetensors"]

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip


class SafetensorsSource:
    """The tensors of a file."""

    def __init__(self, path: Place) -> None:
        self.path = path
        size = checked_file(path)
        with opened(path) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise self._damaged(f"its header would be {length} bytes long, the file has {size}")
            text = stream.read(length)
        check_json(text, f"{path}: its header")
        try:
            header = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"its header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise self._damaged("its header is not a JSON object")
        header.pop("__metadata__", None)
        self._tensors: dict[str, Any] = header
        self._data, self.size = 8 + length, size
        self.names = header.keys()

    def header(self, key: str) -> Header:
        """Read what the file says about one of its tensors."""
        dtype, shape, start, stop = self._entry(key)
        if dtype not in DTYPES:
            raise FileError(f"{self.path}: {key!r} is of type {dtype}, which is not supported; save it as float32")
        return Header(np.dtype(DTYPES[dtype]), shape, stop - start, bfloat16=dtype == "BF16")

    @contextmanager
    def open(self, key: str) -> Iterator[BufferedIOBase]:
        """Give a stream that stands at the first byte of the tensor's data."""
        with opened(self.path) as stream:
            stream.seek(self._data + self._entry(key)[2])
            yield stream

    def _entry(self, key: str) -> tuple[str, tuple[int, ...], int, int]:
        match self._tensors[key]:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if all(
                type(n) is int and n >= 0 for n in shape
            ):
                if 0 <= start <= stop <= self.size - self._data:
                    return dtype, tuple(shape), start, stop
        raise self._damaged(f"its header for {key!r} does not fit the file's {self.size} bytes")

    def _damaged(self, why: str) -> FileError:
        return FileError(f"{self.path}: not a whole safetensors file, perhaps truncated: {why}. Write it again.")


def read_safetensors(path: Place, keys: Keys, labels: Place | None) -> ArrayReader:
    """Open a file of tensors; labels from the same file unless they have one of their own."""
    return ArrayReader(SafetensorsSource(path), keys, None if labels is None else NpySource(labels, "labels"))


def write_safetensors(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the tensors probs, labels and predictions; the names of the classes go to the metadata."""
    # The header stands first but holds N: leave room, and fill it with spaces, as the format allows.
    room = -(-len(_header(10**15, layout)) // 8) * 8
    extras: dict[str, list[NDArray[Any]]] = {name: [] for name in layout.extras}
    n = 0
    with atomic(path) as stream:
        stream.write(room.to_bytes(8, "little") + b" " * room)
        for piece in rows:
            stream.write(np.ascontiguousarray(piece.probs, layout.dtype.newbyteorder("<")).data)
            n += len(piece.probs)
            for name, column in extras.items():
                column.append(getattr(piece, name))
        for column in extras.values():
            stream.write(np.concatenate(column).astype("<i8").data)
        stream.seek(8)
        stream.write(_header(n, layout).ljust(room))


def _header(n: int, layout: Layout) -> bytes:
    float_type = "F32" if layout.dtype.itemsize == 4 else "F64"
    tensors: list[tuple[str, str, tuple[int, ...], int]] = [
        ("probs", float_type, (n, layout.n_classes), layout.dtype.itemsize)
    ]
    tensors += [(name, "I64", (n,), 8) for name in layout.extras]
    header: dict[str, Any] = {}
    if layout.classes is not None:
        header["__metadata__"] = {"classes": json.dumps(layout.classes)}
    start = 0
    for name, dtype, shape, itemsize in tensors:
        stop = start + math.prod(shape) * itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, stop)}
        start = stop
    return json.dumps(header).encode()
