"""Named arrays in a zip archive, as ``numpy.savez`` and ``savez_compressed`` write them.

The members are unpacked as they are read, so not even a compressed file has to
fit into memory.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from attemper.documents import atomic
from attemper.errors import FileError
from attemper.files.arrays import ArrayReader, Header, read_npy_header
from attemper.files.npy import NpySource, stream_npy
from attemper.files.reading import Keys, checked_file, opened, parsing
from attemper.files.writing import Layout, ProbRows
from attemper.limits import check_memory
from attemper.places import Place

__all__ = ["NpzSource", "read_npz", "write_npz"]

# Deflate cannot do better than 1032 to 1; a member that declares more is damaged, or a bomb.
DEFLATE_LIMIT = 1032


class NpzSource:
    """The arrays of an archive."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self.size = checked_file(path)
        with self._archive() as archive:
            self._members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
        self.names = self._members.keys()

    def header(self, key: str) -> Header:
        """Read what the file says about one of its arrays."""
        with self._member(key) as (_, header):
            return header

    @contextmanager
    def open(self, key: str) -> Iterator[BufferedIOBase]:
        """Give a stream that stands at the first byte of the array's data."""
        with self._member(key) as (stream, _):
            yield stream

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with opened(self.path) as stream:
            with parsing(self.path, "an .npz archive"):
                archive = zipfile.ZipFile(stream)
            with archive:
                yield archive

    @contextmanager
    def _member(self, key: str) -> Iterator[tuple[BufferedIOBase, Header]]:
        member = self._members[key]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(
                f"{self.path}: {key!r} is compressed in a way that numpy does not write; save it with "
                "numpy.savez_compressed"
            )
        packed = min(member.compress_size, self.size)
        deflated = member.compress_type == zipfile.ZIP_DEFLATED
        if member.file_size > (DEFLATE_LIMIT * packed + 1024 if deflated else packed):
            raise FileError(
                f"{self.path}: {key!r} claims to unpack from {packed} bytes to {member.file_size}, which cannot be: "
                "damaged, or made to fill the memory; not read"
            )
        check_memory(member.file_size, self.size, f"{self.path}: {key!r}")
        with self._archive() as archive:
            with parsing(self.path, "an .npz archive"):
                stream = cast(BufferedIOBase, archive.open(member))
            with stream:
                yield stream, read_npy_header(stream, self.path, member.file_size)


def read_npz(path: Place, keys: Keys, labels: Place | None) -> ArrayReader:
    """Open an archive; labels from the same archive unless they have a file of their own."""
    return ArrayReader(NpzSource(path), keys, None if labels is None else NpySource(labels, "labels"))


def write_npz(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the arrays probs, labels, predictions and classes, as many as there are."""
    extras: dict[str, list[NDArray[Any]]] = {name: [] for name in layout.extras}

    def probs() -> Iterator[NDArray[Any]]:
        for piece in rows:
            for name, column in extras.items():
                column.append(getattr(piece, name))
            yield piece.probs

    # A member's checksum covers its header, which holds N; so the rows first go to a nameless file beside.
    with (
        atomic(path) as stream,
        tempfile.TemporaryFile(dir=path.parent) as spool,
        zipfile.ZipFile(stream, "w") as archive,
    ):
        stream_npy(spool, probs(), layout)
        spool.seek(0)
        with _new_member(archive, "probs") as member:
            shutil.copyfileobj(spool, member, 1 << 20)
        arrays = {name: np.concatenate(column) for name, column in extras.items()}
        if layout.classes is not None:
            arrays["classes"] = np.array(layout.classes, dtype=np.str_)
        for name, array in arrays.items():
            with _new_member(archive, name) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _new_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    # ZipInfo without a date: the same data give the same file.
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
