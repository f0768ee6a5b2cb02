"""Comma-separated text with a line of column names; one column per class."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from attemper._json import atomic
from attemper._jsonl import MAX_LINE_BYTES
from attemper._paths import InputFile
from attemper.data.columns import LABEL, PREDICTION, PROB, choose_columns, not_numbers, without_ids
from attemper.data.numerals import check_digits, number_from
from attemper.errors import FileError, InputError
from attemper.io.reading import Block, Reader, objects, reject_arrays, rows_per_block
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["CsvReader", "text_cell", "write_csv"]

# Spreadsheets run a cell that begins so as a formula; an apostrophe before it makes it text (OWASP, "CSV injection").
FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－−＠]")

FIRST = 50  # rows that are looked at beforehand: a column of text is no column of logits with an odd cell


class CsvReader(Reader):
    """A table in text, its header read."""

    def __init__(self, file: InputFile, spec: InputSpec, labels: InputFile | None) -> None:
        reject_arrays(file.path, spec, labels)
        self._file, self.path, self.n_bytes = file, file.path, file.size
        with file.open() as stream:
            records = self._records(stream)
            self._names = self._header(records)
            self._query = spec.column_query
            rows = [(line, record) for line, record in islice(records, FIRST) if len(record) == len(self._names)]
            first = {name: [record[i].strip() for _, record in rows] for i, name in enumerate(self._names)}
            self._chosen = chosen = choose_columns(self.path, self._names, self._query, lambda: first)
            self.columns, self.named, self.headers = chosen.logits, chosen.named, tuple(self._names)
            self.n_classes = len(self.columns)
            if chosen.label is not None and rows:
                self.first_label = _unquoted(first[chosen.label][0])
            self._check_text(first, rows[0][0] if rows else 0)

    def _check_text(self, first: dict[str, list[str]], line: int) -> None:
        """Refuse a column without any number in the first rows; another cell that is none is an error of its line."""
        if len(first[self._names[0]]) < 2:
            return
        columns = {name: [number_from(c) for c in first[name] if _is_number(c)] for name in self._chosen.logits}
        text = next((name for name, numbers in columns.items() if not numbers), None)
        if text is not None:
            numbers = {name: np.array(column) for name, column in columns.items() if column}
            shown = f"holds text, such as {first[text][0][:60]!r} in line {line}"
            raise not_numbers(self.path, text, shown, without_ids(numbers) or list(numbers), self._query)

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        place = {name: i for i, name in enumerate(self._names)}
        chosen = self._chosen
        places = [place[name] for name in chosen.logits]
        several: Callable[[list[str]], tuple[str, ...]] = itemgetter(*places)
        pick = several if len(places) > 1 else lambda record: (record[places[0]],)
        step = rows_per_block(8 * self.n_classes)
        id_places = [None if name is None else place[name] for name in (self._query.group, self._query.cluster)]
        with self._file.open() as stream:
            records = self._records(stream)
            if self._header(records) != self._names:
                raise FileError(f"{self.path}: the file changed while it was read")
            values, labels, weights, lines = array("d"), list[str](), array("d"), array("q")
            ids: tuple[list[str], ...] = ([], [])
            n = 0
            for line, record in records:
                if len(record) != len(self._names):
                    raise FileError(
                        f"{self.path}: line {line} has {len(record)} fields, but the header has "
                        f"{len(self._names)}; fix that line"
                    )
                try:
                    cells = pick(record)
                    check_digits("".join(cells))  # of all at once, which is faster than `number_from` for each
                    values.extend(map(float, cells))
                    if chosen.weight is not None:
                        weights.append(number_from(record[place[chosen.weight]]))
                except ValueError:
                    raise self._not_a_number(line, record, place) from None
                if chosen.label is not None:
                    label = record[place[chosen.label]].strip()
                    if not label:
                        raise self._no_label(line)
                    labels.append(_unquoted(label))
                lines.append(line)
                for entries, at in zip(ids, id_places):
                    if at is not None:
                        entries.append(_unquoted(record[at].strip()))
                n += 1
                if n == step:
                    yield self._block(lines, values, labels, weights, ids)
                    values, labels, weights, n, ids = array("d"), [], array("d"), 0, ([], [])
                    lines = array("q")
            if n:
                yield self._block(lines, values, labels, weights, ids)

    def _block(
        self,
        lines: array[int],
        values: array[float],
        labels: list[str],
        weights: array[float],
        ids: tuple[list[str], ...],
    ) -> Block:
        groups, clusters = (objects(entries) if entries else None for entries in ids)
        return Block(
            np.frombuffer(values).reshape(len(lines), self.n_classes),
            np.array(labels, dtype=object) if self._chosen.label is not None else None,
            np.frombuffer(weights) if self._chosen.weight is not None else None,
            groups=groups,
            clusters=clusters,
            lines=np.frombuffer(lines, np.int64),
        )

    def _no_label(self, line: int) -> InputError:
        return InputError(
            f"{self.path}: line {line}, column {self._chosen.label!r} is empty; expected a label. Fill it in or drop "
            f"that line. Use ignore_index=-100 with -100 as the label of lines that "
            "do not count."
        )

    def _records(self, stream: BufferedIOBase) -> Iterator[tuple[int, list[str]]]:
        """Give records with the line that each ends on; blank lines are left out."""
        reader = csv.reader(self._lines(stream), strict=True)
        try:
            for record in reader:
                if record:
                    yield reader.line_num, record
        except csv.Error as error:
            raise FileError(
                f"{self.path}: line {reader.line_num}: {error}; look for a quotation mark that is not closed"
            ) from None

    def _lines(self, stream: BufferedIOBase) -> Iterator[str]:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise FileError(f"{self.path}: line {number} is not UTF-8 text; save it as UTF-8") from None
            if "\0" in text:
                raise FileError(f"{self.path}: line {number} holds a NUL byte, so this is not text; save it as UTF-8")
            if len(line) == MAX_LINE_BYTES:
                raise FileError(f"{self.path}: line {number} is longer than {MAX_LINE_BYTES} bytes; not a table")
            yield text

    def _header(self, records: Iterator[tuple[int, list[str]]]) -> list[str]:
        _, names = next(records, (0, None))
        if names is None:
            raise FileError(f"{self.path}: holds nothing but blank lines; write it again")
        names = [name.strip() for name in names]
        if all(map(_is_number, names)):
            raise FileError(
                f"{self.path}: the first line holds numbers only; a line of column names must come first, "
                "such as label,logit_0,logit_1"
            )
        if len(names) == 1 and re.search(r"[;\t| ]", names[0]):
            raise FileError(
                f"{self.path}: the first line holds one column, {names[0][:60]!r}; separate columns by commas"
            )
        return names

    def _not_a_number(self, line: int, record: list[str], place: dict[str, int]) -> InputError:
        read = [*self._chosen.logits, *([self._chosen.weight] if self._chosen.weight is not None else [])]
        name = next(name for name in read if not _is_number(record[place[name]]))
        cell = record[place[name]][:60]
        return InputError(
            f"{self.path}: line {line}, column {name!r} is {cell!r}, not a number. Fix or drop that line; if the "
            f"column holds no logits, use columns=[…] with the names of those that do, "
            f"or logits_key with what these begin with."
        )


def write_csv(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write label, prediction and one column per class, prob_0, … or prob_<name>."""
    layout.check_table(path)
    heads = layout.heads({"labels": LABEL, "predictions": PREDICTION})
    classes = layout.names(np.array(layout.columns))
    # As many digits as it takes to read the same number again.
    text: Callable[[float], str] = repr if layout.dtype.itemsize == 8 else "{:.9g}".format
    with atomic(path, "w") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*map(text_cell, heads), *(f"{PROB}{k}" for k in classes)])
        for piece in rows:
            extras = [list(map(text_cell, column)) for column in layout.cells(piece)]
            for i, row in enumerate(piece.probs.tolist()):
                writer.writerow([*(column[i] for column in extras), *map(text, row)])


def text_cell(value: Any) -> Any:
    """Return a cell of a text column that no spreadsheet runs as a formula; numbers stay as they are.

    >>> [text_cell(value) for value in ("cat", "=1+1", "-1", -1, "'=1")]
    ['cat', "'=1+1", '-1', -1, "''=1"]
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not _is_number(value) else value


def _unquoted(text: str) -> str:
    """Take back what `text_cell` put before a name."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def _is_number(text: str) -> bool:
    try:
        number_from(text)
    except ValueError:
        return False
    return True
