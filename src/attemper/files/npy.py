"""One array in a file of NumPy's own format; labels lie in a second file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attemper.documents import atomic
from attemper.errors import FileError, setting
from attemper.files.arrays import ArrayReader, Header, read_npy_header
from attemper.files.reading import Keys, checked_file, opened
from attemper.files.writing import Layout, ProbRows
from attemper.places import Place

__all__ = ["NpySource", "read_npy", "stream_npy", "write_npy"]


class NpySource:
    """The one array of a file, under the name that the caller has for it."""

    def __init__(self, path: Place, name: str) -> None:
        self.path = path
        self.names = (name,)
        self.size = checked_file(path)

    def header(self, key: str) -> Header:
        """Read what the file says about its array."""
        with opened(self.path) as stream:
            return read_npy_header(stream, self.path, self.size)

    @contextmanager
    def open(self, key: str) -> Iterator[BufferedIOBase]:
        """Give a stream that stands at the first byte of the array's data."""
        with opened(self.path) as stream:
            read_npy_header(stream, self.path, self.size)
            yield stream


def read_npy(path: Place, keys: Keys, labels: Place | None) -> ArrayReader:
    """Open logits, and the file with their labels."""
    source = NpySource(path, keys.values)
    for key, what in ((keys.weights, "weights"), (keys.mask, "mask")):
        if key is not None:
            raise FileError(
                f"{path}: an .npy file holds one array, so no {what}; save logits, labels and {what} together as .npz"
            )
    if labels is None and keys.want_labels:
        raise FileError(f"{path}: has no labels; add {setting('labels', 'labels.npy')}")
    return ArrayReader(source, keys, None if labels is None else NpySource(labels, "labels"))


def write_npy(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the probabilities; there is no room for anything else."""
    with atomic(path) as stream:
        stream_npy(stream, (piece.probs for piece in rows), layout)


def stream_npy(stream: IO[bytes], arrays: Iterable[NDArray[Any]], layout: Layout) -> None:
    """Write N×K rows as they come, N being known at the end only."""

    def header(n: int) -> None:
        shape = (n, layout.n_classes)
        descr = np.lib.format.dtype_to_descr(layout.dtype)
        np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})

    header(0)
    n, start = 0, stream.tell()
    for array in arrays:
        stream.write(np.ascontiguousarray(array).data)
        n += len(array)
    stream.seek(0)
    header(n)
    # NumPy leaves room in the header for the first axis to grow.
    if stream.tell() != start:
        raise FileError(f"the header for {n} rows does not fit; write .npz or .parquet instead")
