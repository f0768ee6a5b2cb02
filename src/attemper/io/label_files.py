"""Files of labels that do not exclude each other: N×L scores, N×L labels, unknown where a cell is empty.

They are read whole. In a table (csv, parquet) the columns of a label are ``logit_NAME`` (``prob_NAME`` for
probabilities) and ``label_NAME``; other arrays have their names in ``label_names`` or ``class_names``, if at all.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import PurePath
from typing import Any

import numpy as np

from attemper._paths import InputFile, PathOrURL, as_path, expand_paths
from attemper._typing import Floats
from attemper.data.numerals import number_from
from attemper.errors import FileError, InputError, listed, require, unsupported_extension
from attemper.io.arrays import ArraySource, NpzSource, SafetensorsSource, read_array, read_names
from attemper.io.reading import parsing
from attemper.io.spec import InputSpec

__all__ = ["LabelData", "read_labels"]

UNKNOWN = {"", "nan", "na", "n/a", "none", "null"}  # a cell that holds no label
NAMES = ("label_names", "class_names")
ARRAYS = {".npz": NpzSource, ".safetensors": SafetensorsSource}
TABLES = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class LabelData:
    """What was read: scores, labels and weights as they stand there, and names of the labels where there are some."""

    scores: Floats
    labels: Floats | None
    weights: Floats | None
    names: list[str] | None
    files: tuple[InputFile, ...]


def read_labels(
    paths: str | PathOrURL | Sequence[str | PathOrURL], spec: InputSpec, names: Sequence[str] | None = None
) -> LabelData:
    """Read files that are one data set; ``names`` are those of a fitted map, in its order."""
    for what, key in (("groups", spec.groups_key), ("clusters", spec.clusters_key)):
        if key is not None:
            raise InputError(f"{what}_key: is for classes that exclude each other; leave it out for labels that do not")
    found = expand_paths(paths)
    names = spec.class_names if spec.class_names is not None else names
    own = [None] * len(found) if spec.labels is None else [as_path(path) for path in spec.labels]
    if len(own) != len(found):
        raise InputError(f"{len(own)} files of labels for {len(found)} files of scores; expected one for each")
    parts = [_read(path, labels, spec, names) for path, labels in zip(found, own)]
    first = parts[0]
    for path, part in zip(found, parts):
        if part.scores.shape[1] != first.scores.shape[1] or part.names != first.names:
            raise InputError(f"{path}: expected the labels of {found[0]}, in the same order")

    def together(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    files = tuple(file for part in parts for file in part.files)
    return LabelData(together("scores"), together("labels"), together("weights"), first.names, files)


def _read(path: PathOrURL, labels: PathOrURL | None, spec: InputSpec, names: Sequence[str] | None) -> LabelData:
    suffix, file = PurePath(str(path)).suffix.lower(), InputFile(path)
    files = (file,) if labels is None else (file, InputFile(labels))
    wanted = spec.reads_labels or labels is not None
    if suffix in ARRAYS:
        source = ARRAYS[suffix](file)
        scores = _array(source, spec.values_key, 2)
        y = _array(source, spec.labels_key or "labels", 2) if wanted and labels is None else None
        weights = None if spec.weights_key is None else _array(source, spec.weights_key, 1)
        if names is None:
            key = next((key for key in NAMES if key in source.names), None)
            names = None if key is None else [str(name) for name in read_names(source, key) or ()]
    elif suffix in TABLES:
        table = _table(file, suffix)
        names, scores = _by_prefix(path, table, spec.logits_key or ("prob_" if spec.probs else "logit_"), names)
        y = _of_labels(path, table, spec, names) if wanted and labels is None else None
        weights = None if spec.weights_key is None else _column(path, table, spec.weights_key)
    else:
        raise unsupported_extension(path, suffix, [*ARRAYS, *TABLES])
    if labels is not None:
        y = _own_labels(labels, files[-1], spec, names)
    for what, array in (("labels", y), ("weights", weights)):
        if array is not None and len(array) != len(scores):
            raise FileError(f"{path}: {len(scores)} rows of scores and {len(array)} of {what}; expected as many")
    return LabelData(scores, y, weights, None if names is None else list(names), files)


def _own_labels(path: PathOrURL, file: InputFile, spec: InputSpec, names: Sequence[str] | None) -> Floats:
    """Read labels from a file of their own."""
    suffix = PurePath(str(path)).suffix.lower()
    if suffix in TABLES:
        if names is None:
            raise InputError(
                f"{path}: the scores have no names of labels, so columns cannot be chosen. Use classes=[…].",
                param="classes",
            )
        return _of_labels(path, _table(file, suffix), spec, names)
    if suffix in ARRAYS:
        return _array(ARRAYS[suffix](file), spec.labels_key or "labels", 2)
    if suffix == ".npy":
        with parsing(path, "an .npy file"), file.open() as stream:
            return np.asarray(np.load(stream, allow_pickle=False), dtype=np.float64)
    raise unsupported_extension(path, suffix, [".npy", *ARRAYS, *TABLES])


def _array(source: ArraySource, key: str, ndim: int) -> Floats:
    found = read_array(source, key)
    if found.ndim != ndim or found.dtype.kind == "U":
        expected = "N×L, one column for each label" if ndim == 2 else "N"
        raise InputError(
            f"{source.file.path}: {key!r}: expected numbers of shape {expected}, got shape {found.shape}, dtype "
            f"{found.dtype}"
        )
    return found.astype(np.float64)


Columns = dict[str, Any]  # by name: text cells of a csv file, numbers of a parquet file


def _table(file: InputFile, suffix: str) -> Columns:
    path = file.path
    if suffix == ".parquet":
        pq = require("pyarrow.parquet", extra="parquet", why="to read parquet files")
        with parsing(path, "parquet"), file.open() as stream:
            table = pq.read_table(stream)
            return {name: table.column(name) for name in table.column_names}
    with parsing(path, "csv"), file.open() as stream:
        text = stream.read().decode("utf-8-sig")
        records = list(csv.reader(StringIO(text, newline=""), strict=True))
    rows = [record for record in records if record]
    if not rows:
        raise FileError(f"{path}: holds nothing but blank lines; write it again")
    width = len(rows[0])
    for line, row in enumerate(rows):
        if len(row) != width:
            raise FileError(f"{path}: record {line + 1} has {len(row)} fields, but the header has {width}")
    return {name.strip(): tuple(row[k] for row in rows[1:]) for k, name in enumerate(rows[0])}


def _by_prefix(path: PathOrURL, table: Columns, prefix: str, names: Sequence[str] | None) -> tuple[list[str], Floats]:
    """Return the names of the labels, and the columns of scores."""
    if names is None:
        names = [name.removeprefix(prefix) for name in table if name.startswith(prefix)]
        if not names:
            raise InputError(
                f"{path}: no column begins with {prefix!r}; there are {listed(table)}. Use "
                f"logits_key={'PREFIX'!r}, what the names of the columns of scores begin with",
                param="logits_key",
            )
    missing = [name for name in names if prefix + name not in table]
    if missing:
        raise InputError(
            f"{path}: there is no column {prefix + missing[0]!r} for the label {missing[0]!r}; there are "
            f"{listed(table)}. Use logits_key with what the names of the columns begin "
            "with.",
            param="logits_key",
        )
    return list(names), np.column_stack([_column(path, table, prefix + name) for name in names])


def _of_labels(path: PathOrURL, table: Columns, spec: InputSpec, names: Sequence[str]) -> Floats:
    """Return the columns of labels, ``label_NAME`` or NAME; an empty cell is unknown."""
    prefix, columns = spec.labels_key or "label_", []
    for name in names:
        found = next((column for column in (prefix + name, name) if column in table), None)
        if found is None:
            raise InputError(
                f"{path}: there is no column {prefix + name!r} or {name!r} with the label {name!r}; there are "
                f"{listed(table)}. Use labels_key with what the names of the columns begin "
                "with.",
                param="labels_key",
            )
        columns.append(_column(path, table, found, may_be_unknown=True))
    return np.column_stack(columns)


def _column(path: PathOrURL, table: Columns, name: str, *, may_be_unknown: bool = False) -> Floats:
    if name not in table:
        raise InputError(f"{path}: there is no column {name!r}; there are {listed(table)}")
    cells = table[name]
    if isinstance(cells, tuple):
        return np.array([_number(path, name, row, text, may_be_unknown) for row, text in enumerate(cells)])
    with parsing(path, "parquet"):
        found = cells.cast("float64").to_numpy()
    if not may_be_unknown and np.isnan(found).any():
        row = int(np.flatnonzero(np.isnan(found))[0])
        raise InputError(f"{path}: row {row}, column {name!r}: expected a number, got none")
    return np.asarray(found, dtype=np.float64)


def _number(path: PathOrURL, name: str, row: int, text: str, may_be_unknown: bool) -> float:
    text = text.strip()
    if may_be_unknown and text.lower() in UNKNOWN:
        return np.nan
    if may_be_unknown and text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return number_from(text)
    except ValueError:
        wanted = "0, 1 or an empty cell" if may_be_unknown else "a number"
        raise InputError(f"{path}: row {row}, column {name!r}: expected {wanted}, got {text[:60]!r}") from None
