"""Input files, whatever their format, as one data set of validated `Scores`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import RowName, as_names
from attemper.errors import (
    AttemperWarning,
    FileError,
    InputError,
    collected_warnings,
    option,
    setting,
    unsupported_extension,
    warn,
)
from attemper.files.choosing import EVERYTHING, Choice, name_of
from attemper.files.csv import CsvReader
from attemper.files.npy import read_npy
from attemper.files.npz import read_npz
from attemper.files.parquet import ParquetReader
from attemper.files.reading import Block, Keys, Reader, listed, number_from
from attemper.files.safetensors import read_safetensors
from attemper.files.table import RowNumbers, column_order
from attemper.limits import check_classes
from attemper.places import Place, Remote, place
from attemper.scores import Scores
from attemper.tokens import LabelsAre

__all__ = ["ScoreFiles", "check_alike", "expanded", "open_scores", "paired"]

PathLike = str | os.PathLike[str]

_READERS: dict[str, Callable[[Place, Keys, Place | None], Reader]] = {
    ".csv": CsvReader,
    ".npy": read_npy,
    ".npz": read_npz,
    ".parquet": ParquetReader,
    ".safetensors": read_safetensors,
}


@dataclass(frozen=True)
class ScoreFiles:
    """Files that are one data set; iterate for validated pieces of bounded size."""

    readers: tuple[Reader, ...]
    probs: bool = False
    floor: float | None = None
    classes: tuple[str, ...] | None = None
    choice: Choice = EVERYTHING
    skip_empty: bool = False
    labels_are: Literal["names", "numbers"] | None = None  # with classes; None: names, or numbers if no name is one
    order: tuple[int, ...] | None = None  # of the columns, where they stand in another order than the classes
    named: bool = False  # columns were chosen by name, so that none of them can be a column of ids
    why: str = ""  # why the numbers are read as they are, for errors

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return self.readers[0].n_classes if self.choice.columns is None else len(self.choice.columns)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the class columns, where the format has them, in the order of the classes."""
        names = self.readers[0].columns
        chosen = self.choice.columns if self.order is None else self.order
        return names if names is None or chosen is None else tuple(names[k] for k in chosen)

    @property
    def n_rows(self) -> int | None:
        """N, with rows that do not count, or None when only reading to the end can tell (csv)."""
        counts = [reader.n_rows for reader in self.readers]
        return None if None in counts else sum(n for n in counts if n is not None)

    def __iter__(self) -> Iterator[Scores]:
        counted, weighty = 0, False
        for piece in self.pieces():
            counted += len(piece)
            weighty = weighty or piece.weights is None or bool(piece.weights.any())
            yield piece
        if not counted:
            raise InputError(f"{self.readers[0].path}: {self.nothing}")
        if not weighty:
            raise InputError(f"{self.readers[0].path}: all weights are zero, so there is nothing to fit")

    def pieces(self) -> Iterator[Scores]:
        """Read the same pieces, though these files may be a part of a data set in which nothing counts.

        Warnings about the numbers name the file, and each kind of warning is issued once.
        """
        warned: set[type[AttemperWarning]] = set()
        for reader in self.readers:
            first_row = 0
            numbers = RowNumbers(reader.path, () if self.named else reader.columns or ())
            for block in reader.blocks():
                numbers.look(block.values)
                with collected_warnings() as found:
                    piece = self._scores(reader, block, first_row)
                for warning in found:
                    if type(warning) not in warned:
                        warned.add(type(warning))
                        warn(f"{reader.path}: {warning}", type(warning))
                first_row += len(block.values)
                if piece is not None:
                    yield piece
            numbers.reject()
            if not first_row and not self.skip_empty:
                raise _empty(reader.path)

    @property
    def nothing(self) -> str:
        """Say why there is no piece."""
        if not self.n_rows:
            return "no rows, so there is nothing to read"
        return f"none of the {self.n_rows} rows counts, after the mask and the label to ignore; there is nothing to fit"

    def load(self) -> Scores:
        """Read everything into memory."""
        pieces = list(self)
        first = pieces[0]
        if len(pieces) == 1:
            return first
        return replace(
            first,
            values=np.concatenate([piece.logits if piece.finite_masks else piece.values for piece in pieces]),
            labels=_joined([piece.labels for piece in pieces]),
            weights=_joined([piece.weights for piece in pieces]),
            bound=max(piece.bound for piece in pieces),
            masked=any(piece.masked for piece in pieces),
            finite_masks=False,
        )

    # NaN and infinity are looked for and reported by Scores; numpy need not warn on the way.
    @np.errstate(all="ignore")
    def _scores(self, reader: Reader, block: Block, first_row: int) -> Scores | None:
        """Validate the rows of a block that count; None where none does."""
        try:
            labels = classes = None
            if block.labels is not None:
                labels, classes = self._labels(block.labels, name_of(None, first_row, reader.length))
            values, weights, rows = block.values, block.weights, self.choice.rows(block, labels)
            if rows is not None:
                if not len(rows):
                    return None
                values = values[rows]
                labels, weights = (None if a is None else a[rows] for a in (labels, weights))
            name = name_of(rows, first_row, reader.length)
            if labels is not None and classes is not None:
                self._reject_numbers(labels, name)
            # One piece may have weights that are all zero, though a data set may not.
            weightless = weights is not None and not weights.any()
            told: dict[str, Any] = {
                "sample_weight": None if weightless else weights,
                "classes": classes,
                "name": name,
            }
            labels = self.choice.labels(labels, name)
            if self.order is not None:
                values = values[:, self.order]
            if self.probs:
                scores = Scores.from_probs(values, labels, floor=self.floor, **told)
            else:
                scores = Scores.from_logits(self.choice.values(values), labels, **told)
        except InputError as error:
            raise InputError(f"{reader.path}: {error}{self.why}") from None
        return replace(scores, weights=np.zeros(len(scores))) if weightless else scores

    def _labels(self, labels: NDArray[Any], name: RowName) -> tuple[NDArray[Any], tuple[str, ...] | None]:
        """Labels as names, and the names to look them up in; or as column numbers, and None."""
        if self.classes is not None and not self.choice.by_token and self.labels_are != "numbers":
            names = [_name(label) for label in labels.tolist()]
            # Where no class is called by a number, a number can only be that of a column.
            either = self.labels_are is None and not any(map(_is_number, self.classes))
            if not (either and all(map(_is_number, names))):
                return np.array(names, dtype=object), self.classes
        if labels.dtype.kind not in "OU":
            return labels, None
        numbers = np.empty(len(labels))
        for i, label in enumerate(labels.tolist()):
            try:
                numbers[i] = number_from(label)
            except ValueError:
                raise InputError(
                    f"labels: {name(i)} is {label[:60]!r}, not a column number; for names use "
                    f"{option('classes=[…]', '--classes A,B,…')}, in column order"
                ) from None
        return numbers, None

    def _reject_numbers(self, labels: NDArray[Any], name: RowName) -> None:
        """Where classes are called by numbers, labels are these names; others might be numbers of columns."""
        known = set(self.classes or ())
        if self.labels_are is None and any(map(_is_number, known)):
            row = next((row for row, label in enumerate(labels.tolist()) if label not in known), None)
            if row is not None:
                raise InputError(
                    f"labels: {name(row)} is {labels[row][:60]!r}, which is not among the classes "
                    f"{listed(self.classes or ())}. Names that are numbers make labels names; if labels are column "
                    f"numbers, use {setting('labels_are', 'numbers')}."
                )


def open_scores(
    paths: PathLike | Iterable[PathLike],
    *,
    labels: PathLike | Iterable[PathLike] | None = None,
    logits_key: str | None = None,
    labels_key: str | None = None,
    weights_key: str | None = None,
    probs: bool = False,
    floor: float | None = None,
    classes: Sequence[Any] | None = None,
    need_labels: bool = True,
    mask_key: str | None = None,
    ignore_index: int | None = None,
    next_token: bool = False,
    columns: Sequence[int] | None = None,
    labels_are: LabelsAre | Literal["names", "numbers"] | None = None,
    skip_empty: bool = False,
) -> ScoreFiles:
    """Open files, or what a pattern matches, as one data set; only headers are read.

    Parameters
    ----------
    paths
        Files ending in .npz, .npy, .csv, .safetensors or .parquet, or patterns
        such as ``shards/*.parquet``, whose files are taken in sorted order; on this
        machine, or at an address such as ``s3://bucket/*.npz`` (with fsspec).
    labels
        For logits in .npy: the .npy files of labels, one per file of logits, in
        the same order.
    logits_key, labels_key, weights_key
        Names of arrays (default ``logits``, or ``probs`` for probabilities, and
        ``labels``) or columns (default ``label``). In a table with one column
        per class ``logits_key`` is how the names of those columns begin; the
        default is all columns that are nothing else, in the file's order. A
        parquet column of lists goes by its name. Weights are read only if told.
    probs, floor
        Whether the numbers are probabilities, and what zeros stand for; see
        `Scores.from_probs`.
    classes
        Names of the columns. Labels are then these names, or column numbers if none of the names is a number. In a
        table, columns that have these names, such as ``prob_cat``, may stand in any order.
    need_labels
        If False, labels are read only where ``labels`` or ``labels_key`` tells them.
    mask_key, ignore_index, next_token
        Which rows count, as in `attemper.tokens.token_scores`: an array of 0 and 1; the label of rows that do not
        count; whether the labels are input ids, so that each position is judged by the next one. If one of these
        or ``columns`` is told, arrays of logits may be (B, L, V), and the others (B, L).
    columns, labels_are
        Tokens that are options, as in `attemper.tokens.option_scores`; only their logits are kept. With ``classes``,
        ``labels_are`` "names" or "numbers" decides what labels are.
    skip_empty
        Pass over files without rows; otherwise one is an error, since it often
        tells of something that went wrong before.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "val.npz"), logits=[[2.0, 1.0], [0.0, 3.0]], labels=[0, 1])
    ...     files = open_scores(Path(folder, "val.npz"))
    ...     print(files.n_rows, files.n_classes, files.load().labels)
    2 2 [0 1]
    """
    if floor is not None and not probs:
        raise InputError(
            f"{setting('floor', floor)}: only probabilities have a floor; add {option('probs=True', '--probs')}"
        )
    by_name: Literal["names", "numbers"] | None = None
    if labels_are == "names" or labels_are == "numbers":
        by_name, labels_are = labels_are, None
        if by_name == "names" and classes is None:
            raise InputError(
                f"{setting('labels_are', 'names')}: pass the names in column order with "
                f"{option('classes=[…]', '--classes')}"
            )
    choice = Choice.told(ignore_index, columns, labels_are, probs)
    tokens = mask_key is not None or ignore_index is not None or next_token or columns is not None
    keys = Keys(logits_key, labels_key, weights_key, probs, need_labels, mask_key, next_token, tokens)
    if ignore_index is not None and not (keys.want_labels or labels is not None):
        raise InputError(
            f"{setting('ignore_index', ignore_index)}: needs labels; add {option('labels_key=…', '--labels-key NAME')}"
        )
    readers = [_reader(path, keys, label) for path, label in paired(paths, labels)]
    empty = [reader for reader in readers if reader.n_rows == 0]
    if empty and not skip_empty:
        raise _empty(empty[0].path)
    # Where all are empty, reading says so; the columns of an empty file need not be those of the others.
    readers = [reader for reader in readers if reader.n_rows != 0] or empty[:1]
    check_alike(readers)
    for reader in readers:
        choice.check(reader)
    files = ScoreFiles(tuple(readers), probs, floor, None, choice, skip_empty, by_name, named=logits_key is not None)
    return files if classes is None else _with_classes(files, tuple(map(str, classes)))


def _with_classes(files: ScoreFiles, names: tuple[str, ...]) -> ScoreFiles:
    """Check the names of the classes, and find the columns of a table that have them."""
    path, order = files.readers[0].path, None
    try:
        if len(names) != files.n_classes and files.columns is not None:
            raise InputError(
                f"classes: {len(names)} names for {files.n_classes} columns of logits, {listed(files.columns)}. Use "
                f"{setting('logits_key', 'PREFIX')} to take the columns whose names begin with PREFIX, "
                f"{option('labels_key', '--labels-key')} and {option('weights_key', '--weights-key')} for labels and "
                "weights."
            )
        as_names(names, files.n_classes)
        if files.columns is not None:
            order = column_order(files.columns, names)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if order is not None and files.choice.columns is not None:
        if order != sorted(order):
            raise InputError(
                f"{path}: {option('columns', '--columns')} takes {listed(files.columns or ())}, but the classes are "
                f"{listed(names)}; expected the same order"
            )
        order = None
    return replace(
        files,
        classes=names,
        order=None if order is None or order == sorted(order) else tuple(order),
        named=files.named or order is not None,
    )


def _empty(path: Place) -> InputError:
    return InputError(
        f"{path}: no rows, so there is nothing to read; write it again or leave it out, or pass over all empty files "
        f"with {option('skip_empty=True', '--skip-empty')}"
    )


def paired(
    paths: PathLike | Iterable[PathLike], labels: PathLike | Iterable[PathLike] | None
) -> list[tuple[Place, Place | None]]:
    """Return every file of logits with its file of labels, where those lie apart."""
    files = expanded(paths)
    if labels is None:
        return [(path, None) for path in files]
    label_files = expanded(labels)
    if len(label_files) != len(files):
        raise InputError(
            f"{len(files)} files of logits, but {len(label_files)} files of labels; give one for each, "
            "in the same order"
        )
    return list(zip(files, label_files))


def _reader(path: Place, keys: Keys, labels: Place | None) -> Reader:
    for file, endings in ((path, _READERS), (labels, (".npy",))):
        if file is not None and file.suffix.lower() not in endings:
            if file.is_dir():
                raise FileError(f"{file}: a directory; give the files in it, {', '.join(endings)}")
            raise unsupported_extension(file, file.suffix, endings)
    reader = _READERS[path.suffix.lower()](path, keys, labels)
    if reader.n_classes < 2 and reader.n_rows != 0:
        what, both = ("probabilities", "1 - p and p") if keys.probs else ("logits", "0 and z")
        raise InputError(
            f"{path}: {reader.n_classes} column of {what}; expected at least 2, one per class. For one score save "
            f"both columns, {both}."
        )
    check_classes(reader.n_classes, path)
    return reader


def expanded(paths: PathLike | Iterable[PathLike]) -> list[Place]:
    """Files in the order given, those of a pattern sorted; none twice."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [file for path in given for file in _matches(place(path))]
    if not files:
        raise FileError("no file was given")
    seen: dict[str, Place] = {}
    for file in files:
        other = seen.setdefault(_identity(file), file)
        if other is not file:
            also = "" if str(other) == str(file) else f", also as {other}"
            raise FileError(f"{file}: given twice{also}; its rows would count double")
    return files


def _identity(file: Place) -> str:
    """Return what two names of the same file have in common; hard links count as files of their own."""
    try:
        return str(file) if isinstance(file, Remote) else os.path.realpath(file)
    except ValueError:  # a NUL in the name: reading says so
        return str(file)


def _matches(path: Place) -> Sequence[Place]:
    if isinstance(path, Remote):
        # A question mark in a web address begins a query.
        if not any(sign in str(path) for sign in ("*[" if path.url.startswith("http") else "*?[")):
            return [path]
        found = path.matches()
        if not found:
            raise FileError(f"{path}: no file matches this pattern")
        return found
    if not any(sign in str(path) for sign in "*?[") or path.is_file():
        return [path]
    try:
        files = sorted(file for file in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (ValueError, OSError, NotImplementedError) as error:
        raise FileError(f"{path}: not a pattern that can be followed: {error}") from None
    if not files:
        hint = "; for the character [ itself write [[]" if "[" in str(path) else ""
        raise FileError(f"{path}: no file matches this pattern{hint}")
    return files


class _Headed(Protocol):
    """What is known of a file when its header has been read."""

    @property
    def path(self) -> Any: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...] | None: ...


def check_alike(readers: Sequence[_Headed]) -> None:
    """Refuse files that cannot be parts of one data set."""
    first = readers[0]
    for reader in readers[1:]:
        if reader.n_classes != first.n_classes:
            raise InputError(
                f"{reader.path}: {reader.n_classes} classes, but {first.path} has {first.n_classes}; the "
                "files of one data set must have the same classes"
            )
    tables = [reader for reader in readers if reader.columns is not None]
    for reader in tables[1:]:
        pairs = zip(tables[0].columns or (), reader.columns or ())
        for k, (expected, came) in enumerate(pairs):
            if expected != came:
                raise InputError(
                    f"{reader.path}: class {k} is column {came!r}, but in {tables[0].path} it is "
                    f"{expected!r}; the files of one data set must have the same columns in the same order"
                )


def _joined(parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    return None if parts[0] is None else np.concatenate([part for part in parts if part is not None])


def _name(label: Any) -> str:
    """Labels as the names that they are told as: 3 and 3.0 are '3'."""
    if isinstance(label, str):
        return label
    return str(int(label)) if float(label).is_integer() else str(label)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
