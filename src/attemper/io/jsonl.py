"""JSON lines, one object a row: one key per class, or one key whose value is a list."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic, json_lines
from attemper._paths import InputFile
from attemper.data.columns import LABEL, PREDICTION, check_columns, choose_columns
from attemper.errors import FileError, InputError
from attemper.io.reading import Block, Reader, objects, reject_arrays, rows_per_block
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["JsonlReader", "write_jsonl"]

NUMBERS = {int, float}


class JsonlReader(Reader):
    """Rows in text, the first of them read."""

    def __init__(self, file: InputFile, spec: InputSpec, labels: InputFile | None) -> None:
        reject_arrays(file.path, labels)
        self._file, self.path, self.n_bytes = file, file.path, file.size
        with file.open() as stream:
            number, first = next(self._rows(stream), (0, {}))
        if not number:
            raise FileError(f"{self.path}: holds nothing but blank lines; write it again")
        by_name = spec.columns is not None and all(str(column) in first for column in spec.columns)
        values = None if by_name else first.get(spec.values_key)
        self._query = query = spec.column_query
        self._label, self._weight = query.label, query.weight
        self._list = spec.values_key if isinstance(values, list) else None
        if self._list is None:
            self.columns, self.headers = choose_columns(self.path, list(first), query), tuple(first)
            self.n_classes = len(self.columns)
            self.first_label = None if self._label is None else first[self._label]
        else:
            check_columns(self.path, list(first), query)
            self.n_classes = len(values or ())

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        step = rows_per_block(8 * self.n_classes)
        values, labels, weights, n = array("d"), list[Any](), array("d"), 0
        id_columns = (self._query.group, self._query.cluster)
        ids: tuple[list[Any], ...] = ([], [])
        with self._file.open() as stream:
            for number, row in self._rows(stream):
                self._extend(values, self._logits(row, number), number)
                if self._label is not None:
                    labels.append(self._read_label(row, number))
                if self._weight is not None:
                    self._extend(weights, [self._entry(row, self._weight, number)], number)
                for entries, column in zip(ids, id_columns):
                    if column is not None:
                        entries.append(self._entry(row, column, number))
                n += 1
                if n == step:
                    yield self._block(n, values, labels, weights, ids)
                    values, labels, weights, n, ids = array("d"), [], array("d"), 0, ([], [])
        if n:
            yield self._block(n, values, labels, weights, ids)

    def _rows(self, stream: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in json_lines(self.path, stream):
            if not isinstance(row, dict):
                raise FileError(
                    f"{self.path}: line {number} is {_kind(row)}; expected an object for each row, such as "
                    '{"logits": [0.5, 1.5], "label": 1}'
                )
            yield number, row

    def _logits(self, row: dict[str, Any], number: int) -> list[Any]:
        if self._list is None:
            names = self.columns or ()
            try:
                found = itemgetter(*names)(row)
            except KeyError as error:
                raise self._missing(error.args[0], number) from None
            return list(found) if len(names) > 1 else [found]
        found = self._entry(row, self._list, number)
        if not isinstance(found, list) or len(found) != self.n_classes:
            held = f"{len(found)} numbers" if isinstance(found, list) else _kind(found)
            raise InputError(
                f"{self.path}: line {number}: {self._list!r} holds {held}, but in the first row there are "
                f"{self.n_classes} numbers; every row needs one number per class"
            )
        return found

    def _extend(self, numbers: array[float], more: list[Any], line: int) -> None:
        """Add numbers; true is none, though Python would take it for 1."""
        if set(map(type, more)) <= NUMBERS:
            try:
                numbers.extend(more)
                return
            except OverflowError:
                raise InputError(f"{self.path}: line {line} has a number that is too large for a float") from None
        odd = next(item for item in more if type(item) not in NUMBERS)
        raise InputError(
            f"{self.path}: line {line}: expected numbers, got {_kind(odd)}, {json.dumps(odd)[:60]}. Fix or drop that "
            "line."
        )

    def _read_label(self, row: dict[str, Any], number: int) -> Any:
        label = self._entry(row, self._label or "", number)
        if not isinstance(label, str | int | float):
            raise InputError(f"{self.path}: line {number}: {self._label!r} is {_kind(label)}; expected a label")
        return label

    def _entry(self, row: dict[str, Any], name: str, number: int) -> Any:
        if name not in row:
            raise self._missing(name, number)
        return row[name]

    def _missing(self, name: str, number: int) -> InputError:
        return InputError(f"{self.path}: line {number} has no {name!r}, which the first row has; fix or drop that line")

    def _block(
        self, n: int, values: array[float], labels: list[Any], weights: array[float], ids: tuple[list[Any], ...]
    ) -> Block:
        groups, clusters = (objects(entries) if entries else None for entries in ids)
        return Block(
            np.frombuffer(values).reshape(n, self.n_classes),
            None if self._label is None else _label_array(labels),
            None if self._weight is None else np.frombuffer(weights),
            groups=groups,
            clusters=clusters,
        )


def _label_array(labels: list[Any]) -> NDArray[Any]:
    """Labels as numbers, if all are."""
    if not any(isinstance(label, str) for label in labels):
        try:
            return np.array(labels, dtype=np.int64 if all(type(label) is not float for label in labels) else np.float64)
        except OverflowError:
            pass
    return objects(labels)


def _kind(value: Any) -> str:
    """Name a JSON value as its standard does."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    kinds: dict[type, str] = {str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")


def write_jsonl(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write label, prediction and probs, a list of K numbers in each row."""
    heads = layout.heads({"labels": LABEL, "predictions": PREDICTION})
    with atomic(path, "w") as stream:
        for piece in rows:
            extras = list(zip(heads, layout.cells(piece), strict=True))
            # The shortest digits of a double are read back as the same single.
            for i, row in enumerate(piece.probs.tolist()):
                line = {name: column[i] for name, column in extras} | {"probs": row}
                stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
