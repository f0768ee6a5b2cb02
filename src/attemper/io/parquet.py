"""Parquet tables: one column per class, or one column of lists; by batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._paths import InputFile
from attemper.data.columns import LABEL, PREDICTION, check_columns, choose_columns, not_numbers
from attemper.errors import InputError, require
from attemper.io.reading import Block, Reader, parsing, reject_arrays, rows_per_block
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["ParquetReader", "write_parquet"]


class ParquetReader(Reader):
    """A table, its schema read."""

    def __init__(self, file: InputFile, spec: InputSpec, labels: InputFile | None) -> None:
        path = file.path
        reject_arrays(path, labels)
        self._pa = require("pyarrow", extra="parquet", why="to read parquet files")
        self._pq = require("pyarrow.parquet", extra="parquet", why="to read parquet files")
        self.path, self._file = path, file
        self._query = query = spec.column_query
        self._label, self._weight = query.label, query.weight
        self._ids = [name for name in (query.group, query.cluster) if name is not None]
        with self._open() as table:
            with parsing(path, "parquet"):
                names, types = list(table.schema_arrow.names), list(table.schema_arrow.types)
                self.n_rows = max(0, table.metadata.num_rows)
            self._types = dict(zip(names, types))
            by_name = spec.columns is not None and all(str(column) in self._types for column in spec.columns)
            is_list = not by_name and self._is_list(self._types.get(spec.values_key))
            self._list = spec.values_key if is_list else None
            if self._list is None:
                self.columns, self.headers = choose_columns(path, names, query), tuple(names)
                self.n_classes = len(self.columns)
            else:
                self.columns = None
                check_columns(path, names, query)
                self.n_classes = self._list_length(table)
            self._check_types()
            if self._list is None and self._label is not None:
                self.first_label = self._first(table, self._label)
        self.n_bytes = 8 * self.n_rows * self.n_classes

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        names = [self._list] if self._list is not None else list(self.columns or ())
        beside = [name for name in (self._label, self._weight) if name is not None]
        names += [name for name in dict.fromkeys([*beside, *self._ids]) if name not in names]
        first = 0
        with self._open() as file:
            # Decoding takes about as much again as the batch.
            for batch in self._batches(file, names, rows_per_block(16 * self.n_classes)):
                labels, weights, groups, clusters = (
                    None if name is None else self._column(batch, name, first)
                    for name in (self._label, self._weight, self._query.group, self._query.cluster)
                )
                yield Block(self._matrix(batch, first), labels, weights, groups=groups, clusters=clusters)
                first += len(batch)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with nullcontext(self._file.on_disk) if self._file.on_disk else self._file.open() as source:
            with parsing(self.path, "parquet"):
                file = self._pq.ParquetFile(source, pre_buffer=False)  # else every row group is kept
            try:
                yield file
            finally:
                file.close()

    def _is_text(self, kind: Any) -> bool:
        return bool(self._pa.types.is_string(kind) or self._pa.types.is_large_string(kind))

    def _batches(self, file: Any, names: list[str], rows: int) -> Iterator[Any]:
        with parsing(self.path, "parquet"):
            batches = file.iter_batches(batch_size=rows, columns=names)
        while True:
            with parsing(self.path, "parquet"):
                batch = next(batches, None)
            if batch is None:
                return
            if len(batch):
                yield batch

    def _is_list(self, kind: Any) -> bool:
        t = self._pa.types
        return kind is not None and (t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))

    def _first(self, file: Any, name: str) -> Any:
        """Read the first entry of a column; None where there are no rows."""
        for batch in self._batches(file, [name], 1):
            with parsing(self.path, "parquet"):
                return batch.column(0)[0].as_py()
        return None

    def _list_length(self, file: Any) -> int:
        """K: from the type where it is part of it, else the length of the first row."""
        kind = self._types[self._list or ""]
        if self._pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for batch in self._batches(file, [self._list or ""], 1):
            with parsing(self.path, "parquet"):
                first = batch.column(0)[0]
            if not first.is_valid:
                raise self._null(self._list or "", 0)
            return len(first)
        return 0

    def _check_types(self) -> None:
        for name in (*(self.columns or ()), *([self._weight] if self._weight is not None else [])):
            if not self._is_number(self._types[name]):
                raise not_numbers(self.path, name, f"is of type {self._types[name]}")
        if self._list is not None and not self._is_number(self._types[self._list].value_type):
            kind = self._types[self._list]
            raise InputError(f"{self.path}: column {self._list!r} is of type {kind}, not lists of numbers")
        expected = {} if self._label is None else {self._label: "labels, which are column numbers or names"}
        for name, what in {**dict.fromkeys(self._ids, "ids, text or whole numbers"), **expected}.items():
            t, kind = self._pa.types, self._types[name]
            kind = kind.value_type if t.is_dictionary(kind) else kind
            is_name = t.is_boolean(kind) or self._is_text(kind)
            if not (is_name or self._is_number(kind)):
                raise InputError(f"{self.path}: column {name!r} is of type {kind}; expected {what}")

    def _is_number(self, kind: Any) -> bool:
        return bool(self._pa.types.is_integer(kind) or self._pa.types.is_floating(kind))

    def _matrix(self, batch: Any, first: int) -> NDArray[Any]:
        if self._list is None:
            columns = [self._column(batch, name, first) for name in self.columns or ()]
            with np.errstate(invalid="ignore"):  # widening some kinds of NaN; Scores reports them
                return np.column_stack(columns)
        column = batch.column(self._list)
        self._reject_null(column, self._list, first)
        with parsing(self.path, "parquet"):
            if not self._pa.types.is_fixed_size_list(column.type):
                lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
                wrong = np.flatnonzero(lengths != self.n_classes)
                if wrong.size:
                    raise InputError(
                        f"{self.path}: column {self._list!r}: row {first + wrong[0]} holds "
                        f"{lengths[wrong[0]]} numbers, but row 0 holds {self.n_classes}; "
                        "every row needs one number per class"
                    )
            values = column.flatten()
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // self.n_classes
            raise self._null(self._list, first + row)
        with parsing(self.path, "parquet"):
            flat = np.asarray(values.to_numpy(zero_copy_only=False))
        return flat.reshape(len(batch), self.n_classes)

    def _column(self, batch: Any, name: str, first: int) -> NDArray[Any]:
        column = batch.column(name)
        self._reject_null(column, name, first)
        with parsing(self.path, "parquet"):
            if self._pa.types.is_dictionary(column.type):
                # Rows share the names instead of holding one each.
                names, indices = (
                    np.asarray(a.to_numpy(zero_copy_only=False)) for a in (column.dictionary, column.indices)
                )
                absent = column.dictionary.is_null().to_numpy(zero_copy_only=False)[indices]
                if absent.any():
                    raise self._null(name, first + int(np.argmax(absent)))
                return np.asarray(names[indices])
            return np.asarray(column.to_numpy(zero_copy_only=False))

    def _reject_null(self, column: Any, name: str, first: int) -> None:
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            raise self._null(name, first + int(np.flatnonzero(nulls)[0]))

    def _null(self, name: str, row: int) -> InputError:
        return InputError(f"{self.path}: column {name!r}: row {row} is null; fill in or drop that row")


def write_parquet(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the columns label, prediction and probs, a list of K numbers in each row."""
    layout.check_table(path)
    pa = require("pyarrow", extra="parquet", why="to write parquet files")
    pq = require("pyarrow.parquet", extra="parquet", why="to write parquet files")
    pieces = iter(rows)
    first = next(pieces)
    name_type = pa.int64() if layout.classes is None else pa.string()
    types = [name_type] * len(layout.extras)
    if first.ids is not None:
        types = [pa.int64() if layout.ids_are_numbers else pa.string(), *types]
    heads = layout.heads({"labels": LABEL, "predictions": PREDICTION})
    fields = [pa.field(head, kind) for head, kind in zip(heads, types, strict=True)]
    fields.append(pa.field("probs", pa.list_(pa.from_numpy_dtype(layout.dtype), len(layout.columns))))
    metadata = None if layout.classes is None else {"classes": json.dumps(layout.classes)}
    schema = pa.schema(fields, metadata)
    with atomic(path) as stream, pq.ParquetWriter(stream, schema) as writer:
        for piece in chain([first], pieces):
            columns = [pa.array(cells, kind) for cells, kind in zip(layout.cells(piece), types, strict=True)]
            flat = pa.array(np.ascontiguousarray(piece.probs).reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, len(layout.columns)))
            writer.write_batch(pa.record_batch(columns, schema=schema))
