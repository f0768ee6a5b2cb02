"""One array in a file of NumPy's own format; labels lie in a second file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._paths import InputFile
from attemper.errors import FileError
from attemper.io.arrays import ArrayReader, ArraySource, Header, read_npy_header
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["labels_in", "read_npy", "stream_npy", "write_npy"]


class NpySource(ArraySource):
    """The one array of a file, under the name that the caller has for it."""

    def __init__(self, file: InputFile, name: str) -> None:
        self.file, self.names = file, (name,)
        with file.open() as stream:
            self._header = read_npy_header(stream, file.path, file.size)

    def header(self, key: str) -> Header:
        return self._header


def read_npy(file: InputFile, spec: InputSpec, labels: InputFile | None) -> ArrayReader:
    """Open logits, and the file with their labels."""
    source = NpySource(file, spec.values_key)
    query = spec.column_query
    arrays = {"weights": spec.weights_key, "mask": spec.mask_key, "groups": query.group, "clusters": query.cluster}
    for what, key in arrays.items():
        if key is not None:
            raise FileError(
                f"{file.path}: an .npy file holds one array, so no {what}; save logits, labels and {what} together as "
                f".npz{_or_file(what)}"
            )
    if labels is None and spec.reads_labels:
        raise FileError(f"{file.path}: has no labels; add labels={'labels.npy'!r}")
    return ArrayReader(source, spec, labels_in(labels))


def _or_file(what: str) -> str:
    if what not in ("groups", "clusters"):
        return ""
    named = f"{what}_key='{what}.txt'"
    return f", or name a file with one for each row: {named}"


def labels_in(file: InputFile | None) -> NpySource | None:
    """Open a file of labels."""
    return None if file is None else NpySource(file, "labels")


def write_npy(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the probabilities; there is no room for anything else."""
    layout.reject_ids(path)
    with atomic(path) as stream:
        stream_npy(stream, (piece.probs for piece in rows), layout)


def stream_npy(stream: IO[bytes], arrays: Iterable[NDArray[Any]], layout: Layout) -> None:
    """Write rows, or images, as they come, N being known at the end only."""

    def header(n: int) -> None:
        shape = (n,) if layout.positive else (n, *layout.shape)
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
