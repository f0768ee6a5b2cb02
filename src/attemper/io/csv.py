"""Comma-separated text with a line of column names; one column per class."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase
from operator import itemgetter
from pathlib import Path

import numpy as np

from attemper._json import atomic
from attemper._paths import InputFile
from attemper.data.columns import LABEL, PREDICTION, PROB, choose_columns
from attemper.data.numerals import check_digits, number_from
from attemper.errors import FileError, InputError
from attemper.io.reading import Block, Reader, objects, reject_arrays, rows_per_block
from attemper.io.spec import InputSpec
from attemper.io.writing import Layout, ProbRows

__all__ = ["CsvReader", "write_csv"]


class CsvReader(Reader):
    """A table in text, its header read."""

    def __init__(self, file: InputFile, spec: InputSpec, labels: InputFile | None) -> None:
        reject_arrays(file.path, labels)
        self._file, self.path, self.n_bytes = file, file.path, file.size
        self._query = query = spec.column_query
        with file.open() as stream:
            records = self._records(stream)
            self._names = self._header(records)
            self.columns, self.headers = choose_columns(self.path, self._names, query), tuple(self._names)
            self.n_classes = len(self.columns)
            _, first = next(records, (0, []))
            if query.label is not None and len(first) == len(self._names):
                self.first_label = first[self._names.index(query.label)].strip()

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        place = {name: i for i, name in enumerate(self._names)}
        label_name, weight_name = self._query.label, self._query.weight
        places = [place[name] for name in self.columns or ()]
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
                    if weight_name is not None:
                        weights.append(number_from(record[place[weight_name]]))
                except ValueError:
                    raise self._not_a_number(line, record, place) from None
                if label_name is not None:
                    label = record[place[label_name]].strip()
                    if not label:
                        raise self._no_label(line)
                    labels.append(label)
                lines.append(line)
                for entries, at in zip(ids, id_places):
                    if at is not None:
                        entries.append(record[at].strip())
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
            np.array(labels, dtype=object) if self._query.label is not None else None,
            np.frombuffer(weights) if self._query.weight is not None else None,
            groups=groups,
            clusters=clusters,
            lines=np.frombuffer(lines, np.int64),
        )

    def _no_label(self, line: int) -> InputError:
        return InputError(
            f"{self.path}: line {line}, column {self._query.label!r} is empty; expected a label. Fill it in or drop "
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
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise FileError(f"{self.path}: line {number} is not UTF-8 text; save it as UTF-8") from None
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
        if len(names) == 1 and re.search(r"[;\t|]", names[0]):
            raise FileError(
                f"{self.path}: the first line holds one column, {names[0][:60]!r}; separate columns by commas"
            )
        return names

    def _not_a_number(self, line: int, record: list[str], place: dict[str, int]) -> InputError:
        read = [*(self.columns or ()), *([self._query.weight] if self._query.weight is not None else [])]
        name = next(name for name in read if not _is_number(record[place[name]]))
        cell = record[place[name]][:60]
        return InputError(
            f"{self.path}: line {line}, column {name!r} is {cell!r}, not a number. Fix or drop that line; if the "
            "column holds no logits, use columns=[…] with the names of those that do.",
            param="columns",
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
        writer.writerow([*heads, *(f"{PROB}{k}" for k in classes)])
        for piece in rows:
            extras = layout.cells(piece)
            for i, row in enumerate(piece.probs.tolist()):
                writer.writerow([*(column[i] for column in extras), *map(text, row)])


def _is_number(text: str) -> bool:
    try:
        number_from(text)
    except ValueError:
        return False
    return True
