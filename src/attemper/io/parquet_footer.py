"""What the footer of a parquet file lists about the parts of its columns, read without Arrow.

Arrow ends the process where a part of a column lacks its description. The footer is a struct of Thrift's compact
protocol; only the numbers that are needed are taken from it, and damage is an exception.
"""

from __future__ import annotations

import struct
from io import BufferedIOBase
from typing import Any, NamedTuple

__all__ = ["ColumnChunk", "column_chunks"]

MAX_FOOTER = 4 << 20  # bytes; the footer of a larger file with honest columns may be longer, and is not looked at
MAX_DEPTH = 16
ROW_GROUPS, COLUMNS, META_DATA, PATH, NUM_VALUES, UNCOMPRESSED = 4, 1, 3, 3, 5, 6  # numbers of the fields
STOP, TRUE, FALSE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 7, 8, 9, 10, 11, 12


class ColumnChunk(NamedTuple):
    """A part of a column: the column's path, how many values it has, and their bytes before compression."""

    path: str
    num_values: int
    uncompressed: int


def column_chunks(stream: BufferedIOBase) -> list[ColumnChunk] | None:
    """Return the parts of all columns; None where the footer is too long to look at."""
    stream.seek(-8, 2)
    length = struct.unpack("<I4s", stream.read(8))[0]
    if length > MAX_FOOTER:
        return None
    stream.seek(-8 - length, 2)
    content = _Compact(stream.read(length)).struct()
    parts = (part[META_DATA] for group in content.get(ROW_GROUPS, ()) for part in group[COLUMNS])
    return [
        ColumnChunk(".".join(name.decode() for name in part[PATH]), int(part[NUM_VALUES]), int(part[UNCOMPRESSED]))
        for part in parts
    ]


class _Compact:
    """A reader of Thrift's compact protocol: structs as dicts of field numbers."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while (head := self.byte()) != STOP:
            number = number + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            found[number] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE, 3):  # within lists a truth value is a byte, as a byte is
            return self.byte()
        if kind in (4, 5, 6):
            return self.integer()
        if kind == DOUBLE:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, SET):
            head = self.byte()
            size = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 15, depth + 1) for _ in range(self.checked(size))]
        if kind == MAP:
            size = self.checked(self.varint())
            kinds = self.byte() if size else 0
            return [(self.value(kinds >> 4, depth + 1), self.value(kinds & 15, depth + 1)) for _ in range(size)]
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"a value of the unknown kind {kind}")

    def checked(self, size: int) -> int:
        if size > len(self.data) - self.at:
            raise ValueError("a list longer than the footer")
        return size

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, size: int) -> bytes:
        self.at += self.checked(size)
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)
