"""Input files, whatever their format, as one data set of validated `Scores`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._limits import check_classes
from attemper._paths import InputFile, PathOrURL, expand_paths
from attemper._typing import Labels
from attemper.data.arrays import RowName, RowView
from attemper.data.columns import RowNumbers, column_order
from attemper.data.ids import join_ids
from attemper.data.labels import as_names
from attemper.data.named_labels import by_positive, names_or_numbers, reject_numbers
from attemper.data.numerals import is_number
from attemper.data.scores import LabelledScores, Scores
from attemper.data.sequences import position_name
from attemper.data.suspects import reject_extra_probs, warn_of_suspects
from attemper.errors import (
    AttemperWarning,
    FileError,
    InputError,
    collected_warnings,
    unsupported_extension,
    warn,
)
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
from attemper.io.npy import read_npy
from attemper.io.npz import read_npz
from attemper.io.parquet import ParquetReader
from attemper.io.reading import Block, Reader, listed
from attemper.io.safetensors import read_safetensors
from attemper.io.spec import InputSpec
from attemper.tokens import option_labels

__all__ = ["ScoreFiles", "open_scores", "paired"]

PathLike = str | os.PathLike[str]

# Files that take no more together, about one block, are opened once, and kept in memory as long as their readers are.
KEEP_BYTES = 32 << 20

_READERS: dict[str, Callable[[InputFile, InputSpec, InputFile | None], Reader]] = {
    ".csv": CsvReader,
    ".jsonl": JsonlReader,
    ".ndjson": JsonlReader,
    ".npy": read_npy,
    ".npz": read_npz,
    ".parquet": ParquetReader,
    ".safetensors": read_safetensors,
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
    order: tuple[int, ...] | None = None  # of the columns, where they stand in another order than the classes
    named: bool = False  # columns have the names of classes, so that none of them can be a column of ids
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
        names = self.readers[0].columns
        return names if names is None or self.order is None else tuple(names[k] for k in self.order)

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
                why = (
                    f"none of the {self.n_rows} rows counts, after the mask and the label to ignore; there is nothing "
                    "to fit"
                )
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
            first_row, numbers = 0, None
            if reader.columns is not None and not (self.named or reader.named):
                numbers = RowNumbers(reader.path, reader.columns, self.spec.column_query)
            for block in reader.blocks():
                if numbers is not None:
                    numbers.check(block.values)
                block = apart.added(block, reader)
                with collected_warnings() as found:
                    if numbers is not None and not first_row:
                        self.check_suspects(reader, block)
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
            if not first_row and not self.spec.skip_empty:
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
        """Check the names of the classes, and find the columns of a table that have them."""
        spec = self.spec.updated(classes=classes)
        path, names, order = self.readers[0].path, spec.class_names or (), None
        try:
            if len(names) != self.n_classes and self.columns is not None and not self.one_column:
                raise InputError(
                    f"classes: {len(names)} names for {self.n_classes} columns of logits, {listed(self.columns)}. Use "
                    f"logits_key={'PREFIX'!r} to take the columns whose names begin with PREFIX, "
                    f"labels_key and weights_key for labels "
                    "and weights.",
                    param="weights_key",
                )
            as_names(names, self.n_classes)
            if self.columns is not None and not self.one_column:
                order = column_order(self.columns, names)
            check_own_names(self.readers, names)
            if order is not None and spec.columns is not None:
                if order != sorted(order):
                    raise InputError(
                        f"columns takes {listed(self.columns or ())}, but the classes are "
                        f"{listed(names)}; expected the same order",
                        param="columns",
                    )
                order = None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        in_order = order is None or order == sorted(order)
        named = self.named or order is not None
        return replace(self, spec=spec, order=None if in_order else tuple(order or ()), named=named)

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

    def check_suspects(self, reader: Reader, block: Block) -> None:
        """Warn of columns that are hardly classes; of probabilities, refuse one more than sum to 1."""
        columns, query = reader.columns or (), self.spec.column_query
        if not self.spec.probs:
            warn_of_suspects(columns, block.values, query, self.labelled_columns(reader, block))
        else:
            reject_extra_probs(reader.path, columns, block.values, query)

    def labelled_columns(self, reader: Reader, block: Block) -> list[bool] | None:
        """Return whether some label of a block names each column; None where labels are no names of columns."""
        names = self.spec.class_names
        if names is None or block.labels is None or block.labels.ndim != 1 or self.spec.labels_are == "numbers":
            return None
        classes = dict(zip(self.columns or (), names))
        there = set(map(str, block.labels.tolist()))
        return [classes.get(column) in there for column in reader.columns or ()]

    def taken(self, reader: Reader, block: Block, first_row: int) -> Taken | None:
        """Return the rows of a block that count, the columns in the order of the classes; None where none counts."""

        def name(i: int) -> str:
            row = int(i if rows is None else rows[i])
            return row_name(row) if block.lines is None else f"line {block.lines[row]}"

        def row_name(row: int) -> str:
            return position_name(None, reader.length)(first_row + row)

        spec, rows = self.spec, None
        labels = classes = None
        if block.labels is not None and block.labels.ndim == 2:  # soft
            labels = block.labels
        elif block.labels is not None:
            labels, classes = names_or_numbers(
                block.labels,
                name,
                classes=spec.class_names,
                labels_are=spec.labels_are,
                pos_label=spec.pos_label,
                columns=reader.columns,
                one_column=self.one_column,
            )
        values, weights, rows = block.values, block.weights, self._rows(block, labels)
        ids = {"groups": block.groups, "clusters": block.clusters}
        if spec.pos_label is not None and labels is not None and labels.ndim == 1 and classes is None:
            labels, classes = by_positive(labels, spec.pos_label)
        if rows is not None:
            if not len(rows):
                return None
            values = values[rows]
            labels, weights = (None if a is None else a[rows] for a in (labels, weights))
            ids = {what: None if a is None else a[rows] for what, a in ids.items()}
        if labels is not None and classes is not None:
            reject_numbers(labels, name, classes, spec.labels_are)
        if self.order is not None and reader.columns is not None:
            values = np.ascontiguousarray(values[:, self.order])  # sums are then rounded as those of an array
        if spec.columns is not None:
            if reader.columns is None:  # a table has taken them
                values = values[:, [int(column) for column in spec.columns]]
            labels = self._among_options(labels, name) if len(spec.columns) > 1 else labels
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
                        classes=spec.class_names,
                        labels_are=spec.labels_are,
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
                seed=spec.pixel_seed,
                first_row=first_image,
            )
        except InputError as error:
            raise InputError(f"{reader.path}: {error}{self.why}") from None
        scores = scores if spec.classes is None else replace(scores, classes=spec.classes)
        return replace(scores, weights=np.zeros(len(scores))) if weightless else scores

    def _rows(self, block: Block, labels: NDArray[Any] | None) -> Labels | None:
        """Numbers of the rows of a block that count; None: all of them."""
        counts, ignored = block.counts, self.spec.ignore_index
        if ignored is not None and labels is not None and labels.ndim == 1:
            same = labels == (str(ignored) if labels.dtype == object else ignored)
            counts = ~np.asarray(same) & (True if counts is None else counts)
        return None if counts is None or counts.all() else np.flatnonzero(counts)

    def _among_options(self, labels: NDArray[Any] | None, name: RowName) -> NDArray[Any] | None:
        """Labels as numbers of the columns chosen; what is no whole number is left for `Scores` to reject."""
        if labels is None or labels.dtype.kind not in "iuf" or labels.ndim == 2:
            return labels
        if not (np.isfinite(labels) & (labels == np.floor(labels))).all():
            return labels
        are: Literal["options", "tokens"] = "tokens" if self.spec.labels_are == "tokens" else "options"
        columns = [int(column) if are == "tokens" else k for k, column in enumerate(self.spec.columns or ())]
        return option_labels(labels.astype(np.int64), np.array(columns), are, name)


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
    for file in files:
        file.keep = isinstance(file.path, Path) and sum(file.size for file in files) <= KEEP_BYTES
    readers = [_reader(file, spec, label) for file, label in pairs]
    empty = [reader for reader in readers if reader.n_rows == 0]
    if empty and not spec.skip_empty:
        raise _empty(empty[0].path)
    # Where all are empty, reading raises the error; the columns of an empty file need not be those of the others.
    readers = [reader for reader in readers if reader.n_rows != 0] or empty[:1]
    check_alike(readers, spec)
    for reader in readers if spec.columns is not None else ():
        check_numbers(reader, spec)
    found = ScoreFiles(tuple(readers), spec, tuple(files))
    if spec.classes is not None:
        return found.with_classes(spec.classes)
    if (classes := classes_of_headers(readers[0], spec)) is not None:
        # Headers agree with themselves, which does not show that each is a class: one may number the rows.
        return replace(found.with_classes(classes), named=False)
    classes = classes_of_arrays(readers, spec)
    return found if classes is None else found.with_classes(classes)


def _empty(path: PathOrURL) -> InputError:
    return InputError(
        f"{path}: no rows, so there is nothing to read; write it again or leave it out, or skip all empty files with "
        f"skip_empty=True"
    )


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
    check_classes(reader.n_classes, path)
    return reader


def _matrix(piece: Scores) -> NDArray[Any]:
    values: NDArray[Any] = piece.values.gathered() if isinstance(piece.values, RowView) else piece.values
    return piece.logits if piece.finite_masks else values


def _images_of(pieces: Sequence[Scores]) -> Labels | None:
    """Return the number of each row's image, or sample with a soft label, among all; None where rows are samples."""
    if all(piece.images is None for piece in pieces):
        return None
    found, count = [], 0
    for piece in pieces:
        image = np.arange(len(piece)) if piece.images is None else piece.images
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
