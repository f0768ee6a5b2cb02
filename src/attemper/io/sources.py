"""Input files, whatever their format, as one data set of validated `Scores`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._paths import InputFile, PathOrURL, expand_paths
from attemper._typing import Labels
from attemper.data.arrays import RowName, RowView, to_numpy
from attemper.data.columns import check_order
from attemper.data.ids import join_ids
from attemper.data.labels import as_names
from attemper.data.named_labels import names_or_numbers
from attemper.data.numerals import is_number
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import (
    AttemperWarning,
    FileError,
    InputError,
    collected_warnings,
    listed,
    unsupported_extension,
    warn,
)
from attemper.io.arrays import ArrayReader
from attemper.io.classes import (
    check_alike,
    check_numbers,
    check_own_names,
    classes_of_arrays,
    classes_of_headers,
    n_taken,
)
from attemper.io.csv import CsvReader
from attemper.io.id_files import IdFiles
from attemper.io.jsonl import JsonlReader
from attemper.io.parquet import ParquetReader
from attemper.io.reading import Block, Reader
from attemper.io.spec import InputSpec

__all__ = ["ScoreFiles", "open_scores", "paired"]

PathLike = str | os.PathLike[str]

_READERS: dict[str, Callable[[InputFile, InputSpec, InputFile | None], Reader]] = {
    ".csv": CsvReader,
    ".jsonl": JsonlReader,
    ".ndjson": JsonlReader,
    ".npy": ArrayReader,
    ".npz": ArrayReader,
    ".parquet": ParquetReader,
    ".safetensors": ArrayReader,
}


class Taken(NamedTuple):
    """Rows of a file that count, not yet checked, and how errors name them."""

    values: NDArray[Any]
    labels: NDArray[Any] | None
    classes: Any  # names to look the labels up in; None: they are column numbers
    weights: NDArray[Any] | None
    name: RowName
    ids: dict[str, NDArray[Any] | None]  # groups and clusters


@dataclass(frozen=True)
class ScoreFiles:
    """Files that are one data set; iterate for validated pieces of bounded size."""

    readers: tuple[Reader, ...]
    spec: InputSpec
    files: tuple[InputFile, ...]  # of logits and labels
    why: str = ""  # why the numbers are read as they are, for errors

    @property
    def n_classes(self) -> int:
        """K, the number of classes; one column of scores has two."""
        return max(2, n_taken(self.readers[0], self.spec))

    @property
    def one_column(self) -> bool:
        """Whether there is one score for each row, of the second of two classes."""
        return self.readers[0].n_classes == 1

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the class columns, where the format has them, in the order of the classes."""
        return self.readers[0].columns

    @property
    def n_bytes(self) -> int:
        """About the memory that the logits take."""
        return sum(reader.n_bytes for reader in self.readers)

    @property
    def n_rows(self) -> int | None:
        """N, with rows that do not count, or None if it takes reading to the end to know it (csv)."""
        counts = [reader.n_rows for reader in self.readers]
        return None if None in counts else sum(n for n in counts if n is not None)

    def __iter__(self) -> Iterator[Scores]:
        counted, weighty = 0, False
        for piece in self.pieces():
            counted += len(piece)
            weighty = weighty or piece.weights is None or bool(piece.weights.any())
            yield piece
        if not counted:
            why = "no rows, so there is nothing to read"
            if self.n_rows:
                why = f"none of the {self.n_rows} rows counts, after the label to ignore; there is nothing to fit"
            raise InputError(f"{self.readers[0].path}: {why}")
        if not weighty:
            raise InputError(f"{self.readers[0].path}: all weights are zero, so there is nothing to fit")

    def pieces(self) -> Iterator[Scores]:
        """Read the same pieces, though these files may be a part of a data set in which nothing counts.

        Warnings about the numbers name the file, and each kind of warning is issued once.
        """
        warned: set[type[AttemperWarning]] = set()
        named: tuple[Any, ...] | None = None
        apart = IdFiles.of(self.spec)
        for reader in self.readers:
            first_row = 0
            for block in reader.blocks():
                block = apart.added(block, reader)
                with collected_warnings() as found:
                    piece = self._scores(reader, block, first_row)
                for warning in found:
                    if type(warning) not in warned:
                        warned.add(type(warning))
                        warn(f"{reader.path}: {warning}", type(warning))
                first_row += len(block.values)
                if piece is not None:
                    if named is not None and piece.classes not in (None, named):
                        raise InputError(
                            f"{reader.path}: expected labels of two classes, {listed(map(str, named))}, as before; got "
                            f"{listed(map(str, piece.classes or ()))}"
                        )
                    named = piece.classes or named
                    yield piece
            if not first_row:
                raise _empty(reader.path)
        apart.check_end()

    def watched(self, progress: Callable[[int, int | None], object] | None) -> Iterator[Scores]:
        """Read the pieces; ``progress`` is called with the number of rows read so far and of all, or None."""
        done = 0
        for piece in self:
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done, self.n_rows)

    def load(self, progress: Callable[[int, int | None], object] | None = None) -> Scores:
        """Read everything into memory."""
        pieces = list(self.watched(progress))
        first = pieces[0]
        if len(pieces) == 1 and not isinstance(first.values, RowView):
            return first
        labelled = [piece for piece in pieces if isinstance(piece, LabelledScores)]
        names = next((piece.classes for piece in pieces if piece.classes is not None), None)
        labels: dict[str, Any] = {"y": np.concatenate([piece.labels for piece in labelled])} if labelled else {}
        if any(piece.repeated is not None for piece in pieces):  # soft labels
            labels["repeated"] = sum(piece.n_samples for piece in pieces)
        return replace(
            first,
            values=np.concatenate([_matrix(piece) for piece in pieces]),
            image=_images_of(pieces),
            groups=_ids_of([piece.groups for piece in pieces]),
            cluster_ids=_ids_of([piece.cluster_ids for piece in pieces]),
            weights=_joined(pieces),
            bound=max(piece.bound for piece in pieces),
            masked=any(piece.masked for piece in pieces),
            finite_masks=False,
            classes=names,
            **labels,
        )

    def with_classes(self, classes: Iterable[Any]) -> ScoreFiles:
        """Check the names of the classes."""
        spec = self.spec.updated(classes=classes)
        names = spec.class_names or ()
        try:
            as_names(names, self.n_classes)
            if self.columns is not None and not self.one_column:
                check_order("columns", self.columns, names)
            check_own_names(self.readers, names)
        except InputError as error:
            raise InputError(f"{self.readers[0].path}: {error}", param="classes") from None
        return replace(self, spec=spec)

    # NaN and infinity are looked for and reported by Scores; numpy need not warn on the way.
    @np.errstate(all="ignore")
    def _scores(self, reader: Reader, block: Block, first_row: int) -> Scores | None:
        """Validate the rows of a block that count; None where none does."""
        spec = self.spec
        if reader.axis is not None:
            return self._images(reader, block, first_row)
        try:
            taken = self.taken(reader, block, first_row)
            if taken is None:
                return None
            # One piece may have weights that are all zero, though a data set may not.
            weightless = taken.weights is not None and not taken.weights.any()
            scores = spec.scores(
                taken.values,
                taken.labels,
                sample_weight=None if weightless else taken.weights,
                classes=taken.classes,
                name=taken.name,
                **taken.ids,
            )
        except InputError as error:
            raise InputError(f"{reader.path}: {error}{self.why}") from None
        named = scores.classes if spec.classes is None else spec.classes
        scores = replace(scores, columns=self.columns, classes=named)
        return replace(scores, weights=np.zeros(len(scores))) if weightless else scores

    def taken(self, reader: Reader, block: Block, first_row: int) -> Taken | None:
        """Return the rows of a block that count; None where none counts."""

        def name(i: int) -> str:
            row = int(i if rows is None else rows[i])
            return f"row {first_row + row}" if block.lines is None else f"line {block.lines[row]}"

        spec, rows = self.spec, None
        labels = classes = None
        if block.labels is not None and block.labels.ndim == 2:  # soft
            labels = block.labels
        elif block.labels is not None:
            labels, classes = names_or_numbers(block.labels, name, spec.class_names)
        values, weights, rows = block.values, block.weights, self._rows(labels)
        ids = {"groups": block.groups, "clusters": block.clusters}
        if rows is not None:
            if not len(rows):
                return None
            values = values[rows]
            labels, weights = (None if a is None else a[rows] for a in (labels, weights))
            ids = {what: None if a is None else a[rows] for what, a in ids.items()}
        if spec.columns is not None and reader.columns is None:  # a table has taken them
            values = values[:, [int(column) for column in spec.columns]]
        return Taken(values, labels, classes, weights, name, ids)

    def _images(self, reader: Reader, block: Block, first_image: int) -> Scores | None:
        """Validate the pixels of some images that count; None where none does."""
        spec, labels, classes = self.spec, block.labels, None
        try:
            if labels is not None:
                if spec.ignore_index is not None and (labels == spec.ignore_index).all():
                    return None
                # Numbers where no class is called by one are columns; names of millions of pixels are looked up.
                if labels.dtype.kind not in "iu" or any(map(is_number, spec.class_names or ())):
                    size = labels[0].size
                    flat, classes = names_or_numbers(
                        labels.reshape(-1),
                        lambda i: f"image {first_image + i // size}, pixel {i % size}",
                        spec.class_names,
                    )
                    labels = flat.reshape(labels.shape)
            weightless = block.weights is not None and not block.weights.any()
            scores = spec.scores(
                block.values,
                labels,
                sample_weight=None if weightless else block.weights,
                groups=block.groups,
                clusters=block.clusters,
                classes=classes,
                axis=reader.axis,
                ignore_index=None if labels is None else spec.ignore_index,
                max_pixels=spec.max_pixels,
                first_row=first_image,
            )
        except InputError as error:
            raise InputError(f"{reader.path}: {error}{self.why}") from None
        scores = scores if spec.classes is None else replace(scores, classes=spec.classes)
        return replace(scores, weights=np.zeros(len(scores))) if weightless else scores

    def _rows(self, labels: NDArray[Any] | None) -> Labels | None:
        """Numbers of the rows of a block that count; None: all of them."""
        ignored = self.spec.ignore_index
        if ignored is None or labels is None or labels.ndim != 1:
            return None
        counts = np.asarray(labels != (str(ignored) if labels.dtype == object else ignored))
        return None if counts.all() else np.flatnonzero(counts)


def open_scores(paths: PathLike | Iterable[PathLike], spec: InputSpec | None = None, **options: Any) -> ScoreFiles:
    """Open files, or what a pattern matches, as one data set; only headers are read.

    Parameters
    ----------
    paths
        Files ending in .npz, .npy, .csv, .jsonl, .safetensors or .parquet, or patterns such as ``shards/*.parquet``,
        whose files are taken in sorted order; on this machine, or at an address such as ``s3://bucket/*.npz`` (with
        fsspec).
    spec, **options
        How to read them: an `InputSpec`, or its fields as keywords.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "val.npz"), logits=[[2.0, 1.0], [0.0, 3.0]], labels=[0, 1])
    ...     files = open_scores(Path(folder, "val.npz"))
    ...     print(files.n_rows, files.n_classes, files.load().labels)
    2 2 [0 1]
    """
    spec = (spec or InputSpec()).updated(**options)
    if spec.zeros_as is not None and not spec.probs:
        raise InputError(
            f"zeros_as={spec.zeros_as!r}: only probabilities take zeros_as; "
            f"""add input='probs'""",
            param="input",
        )
    pairs = [
        (_input_file(path, _READERS), None if label is None else _input_file(label, (".npy",)))
        for path, label in paired(paths, spec)
    ]
    files = [file for pair in pairs for file in pair if file is not None]
    readers = [_reader(file, spec, label) for file, label in pairs]
    empty = [reader for reader in readers if reader.n_rows == 0]
    if empty:
        raise _empty(empty[0].path)
    check_alike(readers, spec)
    for reader in readers if spec.columns is not None else ():
        check_numbers(reader, spec)
    found = ScoreFiles(tuple(readers), spec, tuple(files))
    if spec.classes is not None:
        return found.with_classes(spec.classes)
    classes = classes_of_headers(readers[0]) or classes_of_arrays(readers, spec)
    return found if classes is None else found.with_classes(classes)


def _empty(path: PathOrURL) -> InputError:
    return InputError(f"{path}: no rows, so there is nothing to read; write it again or leave it out")


def paired(paths: PathLike | Iterable[PathLike], spec: InputSpec) -> list[tuple[PathOrURL, PathOrURL | None]]:
    """Return every file of logits with its file of labels, if these are separate."""
    files = expand_paths(paths)
    if spec.labels is None:
        return [(path, None) for path in files]
    label_files = expand_paths(spec.labels)
    if len(label_files) != len(files):
        raise InputError(
            f"{len(files)} files of logits, but {len(label_files)} files of labels; pass one for each, "
            "in the same order"
        )
    return list(zip(files, label_files))


def _input_file(path: PathOrURL, extensions: Iterable[str]) -> InputFile:
    if path.suffix.lower() not in extensions:
        if path.is_dir():
            raise FileError(f"{path}: a directory; pass the files in it, {', '.join(extensions)}")
        raise unsupported_extension(path, path.suffix, extensions)
    return InputFile(path)


def _reader(file: InputFile, spec: InputSpec, labels: InputFile | None) -> Reader:
    path = file.path
    reader = _READERS[path.suffix.lower()](file, spec, labels)
    if reader.n_classes < 1 and reader.n_rows != 0:
        what = "probabilities" if spec.probs else "logits"
        raise InputError(f"{path}: 0 columns of {what}; expected one per class, or one of the second of two classes")
    return reader


def _matrix(piece: Scores) -> NDArray[Any]:
    return np.asarray(piece.logits if piece.finite_masks else to_numpy(piece.values))


def _images_of(pieces: Sequence[Scores]) -> Labels | None:
    """Return the number of each row's image, or sample with a soft label, among all; None where rows are samples."""
    if all(piece.image is None for piece in pieces):
        return None
    found, count = [], 0
    for piece in pieces:
        image = np.arange(len(piece)) if piece.image is None else piece.image
        found.append(image + count)
        count += int(image.max()) + 1
    return np.concatenate(found)


def _ids_of(parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Ids of all pieces, which all have them or none."""
    found = [part for part in parts if part is not None]
    return join_ids(found) if found else None


def _joined(pieces: list[Scores]) -> NDArray[Any] | None:
    """Weights of all pieces; None if none has any. Soft labels may give them to some alone."""
    if all(piece.weights is None for piece in pieces):
        return None
    return np.concatenate([np.ones(len(piece)) if piece.weights is None else piece.weights for piece in pieces])
