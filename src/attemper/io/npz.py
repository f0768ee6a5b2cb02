"""Named arrays in a zip archive, as ``numpy.savez`` and ``savez_compressed`` write them.

The members are unpacked as they are read, so not even a compressed file has to
fit into memory.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._limits import check_memory
from attemper._paths import InputFile
from attemper.data.ids import join_ids
from attemper.errors import FileError
from attemper.io.arrays import ArrayReader, ArraySource, Header, OpenArray, read_npy_header
from attemper.io.npy import labels_in, stream_npy
from attemper.io.reading import parsing
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["NpzSource", "read_npz", "write_npz"]

# Deflate cannot do better than 1032 to 1; a member that declares more is damaged, or a bomb.
DEFLATE_LIMIT = 1032


class NpzSource(ArraySource):
    """The arrays of an archive."""

    def __init__(self, file: InputFile, wanted: Sequence[str] = ()) -> None:
        self.file = file
        with self._archive() as archive:
            self._members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
            self.names = self._members.keys()
            # The headers that will be asked for, while the archive is open.
            self._headers = {key: self._open(archive, key)[1] for key in wanted if key in self._members}

    def header(self, key: str) -> Header:  # noqa: D102
        if key not in self._headers:
            with self._archive() as archive:
                self._headers[key] = self._open(archive, key)[1]
        return self._headers[key]

    @contextmanager
    def reading(self) -> Iterator[OpenArray]:
        """Open the archive once, for all of its arrays."""
        with self._archive() as archive:
            yield lambda key: self._open(archive, key)[0]

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with self.file.open() as stream:
            with parsing(self.file.path, "an .npz archive"):
                archive = zipfile.ZipFile(stream)
            with archive:
                yield archive

    def _open(self, archive: zipfile.ZipFile, key: str) -> tuple[BufferedIOBase, Header]:
        """Open a member; the stream stands after its header."""
        member, path = self._members[key], self.file.path
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(
                f"{path}: {key!r} is compressed in a way that numpy does not write; save it with numpy.savez_compressed"
            )
        packed = min(member.compress_size, self.file.size)
        deflated = member.compress_type == zipfile.ZIP_DEFLATED
        if member.file_size > (DEFLATE_LIMIT * packed + 1024 if deflated else packed):
            raise FileError(
                f"{path}: {key!r} claims to unpack from {packed} bytes to {member.file_size}, which cannot be: "
                "damaged, or made to fill the memory; not read"
            )
        check_memory(member.file_size, self.file.size, f"{path}: {key!r}")
        with parsing(path, "an .npz archive"):
            stream = cast(BufferedIOBase, archive.open(member))
        return stream, read_npy_header(stream, path, member.file_size)


def read_npz(file: InputFile, spec: InputSpec, labels: InputFile | None) -> ArrayReader:
    """Open an archive; labels from the same archive unless they have a file of their own."""
    own_labels = (spec.labels_key or "labels") if spec.reads_labels and labels is None else None
    query = spec.column_query
    wanted = (spec.values_key, own_labels, spec.weights_key, spec.mask_key, query.group, query.cluster)
    return ArrayReader(NpzSource(file, [key for key in wanted if key is not None]), spec, labels_in(labels))


def write_npz(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the arrays probs, labels, predictions, classes and ids, as many as there are."""
    extras: dict[str, list[NDArray[Any]]] = {name: [] for name in layout.extras}
    ids: list[NDArray[Any]] = []

    def probs() -> Iterator[NDArray[Any]]:
        for piece in rows:
            for name, column in extras.items():
                column.append(getattr(piece, name))
            ids.extend([] if piece.ids is None else [piece.ids])
            yield piece.probs

    # A member's checksum covers its header, which holds N; so the rows first go to a temporary file.
    with (
        atomic(path) as stream,
        tempfile.TemporaryFile(dir=path.parent) as spool,
        zipfile.ZipFile(stream, "w") as archive,
    ):
        stream_npy(spool, probs(), layout)
        spool.seek(0)
        with new_member(archive, "probs") as member:
            shutil.copyfileobj(spool, member, 1 << 20)
        arrays = {name: np.concatenate(column) for name, column in extras.items()}
        if layout.classes is not None:
            arrays["classes"] = np.array(layout.classes, dtype=np.str_)
        if layout.id_name is not None:
            joined = join_ids(ids)
            arrays[layout.id_name] = joined if joined.dtype.kind in "iu" else joined.astype(np.str_)
        for name, array in arrays.items():
            with new_member(archive, name) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def new_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    # ZipInfo without a date: the same data give the same file.
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
