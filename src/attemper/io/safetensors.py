"""Named tensors after a JSON header: the safetensors format.

The format is small enough to be read here: eight bytes with the length of the header, the header, the data. The
package of that name can neither return bfloat16 to NumPy nor read from an address, so this reader is needed anyway.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._limits import check_json
from attemper._paths import InputFile
from attemper.errors import FileError
from attemper.io.arrays import ArrayReader, ArraySource, Header
from attemper.io.npy import labels_in
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["read_safetensors", "write_safetensors"]

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip


class SafetensorsSource(ArraySource):
    """The tensors of a file."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        with file.open() as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, file.size - 8):
                raise self._damaged(f"its header would be {length} bytes long, the file has {file.size}")
            text = stream.read(length)
        check_json(text, f"{file.path}: its header")
        try:
            header = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"its header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise self._damaged("its header is not a JSON object")
        header.pop("__metadata__", None)
        self._tensors: dict[str, Any] = header
        self._data = 8 + length
        self.names = header.keys()

    def header(self, key: str) -> Header:
        match self._tensors[key]:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if (
                all(type(n) is int and n >= 0 for n in shape) and 0 <= start <= stop <= self.file.size - self._data
            ):
                if dtype not in DTYPES:
                    raise FileError(
                        f"{self.file.path}: {key!r} is of type {dtype}, which is not supported; save it as float32"
                    )
                start += self._data
                n_bytes, bfloat16 = stop + self._data - start, dtype == "BF16"
                return Header(np.dtype(DTYPES[dtype]), tuple(shape), n_bytes, bfloat16=bfloat16, start=start)
        raise self._damaged(f"its header for {key!r} does not fit the file's {self.file.size} bytes")

    def _damaged(self, why: str) -> FileError:
        return FileError(f"{self.file.path}: not a whole safetensors file, perhaps truncated: {why}. Write it again.")


def read_safetensors(file: InputFile, spec: InputSpec, labels: InputFile | None) -> ArrayReader:
    """Open a file of tensors; labels from the same file unless they have one of their own."""
    return ArrayReader(SafetensorsSource(file), spec, labels_in(labels))


def write_safetensors(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the tensors probs, labels and predictions; the names of the classes go to the metadata."""
    layout.reject_ids(path)
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
        ("probs", float_type, (n, 1) if layout.positive else (n, *layout.shape), layout.dtype.itemsize)
    ]
    tensors += [(name, "I64", (n, *layout.extra_shape), 8) for name in layout.extras]
    header: dict[str, Any] = {}
    if layout.classes is not None:
        header["__metadata__"] = {"classes": json.dumps(layout.classes)}
    start = 0
    for name, dtype, shape, itemsize in tensors:
        stop = start + math.prod(shape) * itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, stop)}
        start = stop
    return json.dumps(header).encode()
