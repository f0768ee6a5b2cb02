"""JSON, one value a line, read without trust: no line and no value takes more memory than a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

from attemper._limits import check_json
from attemper._paths import PathOrURL
from attemper.errors import FileError

__all__ = ["MAX_LINE_BYTES", "json_lines"]

# A line is read whole; even 500 000 classes with twenty digits each take less. Its values take some times as much.
MAX_LINE_BYTES = 16 << 20


def json_lines(path: PathOrURL, stream: BufferedIOBase) -> Iterator[tuple[int, Any]]:
    """Give the value of each line with its number, counted from 1; blank lines are left out."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES:
            raise FileError(
                f"{path}: line {number} is longer than {MAX_LINE_BYTES} bytes; expected one JSON value a line"
            )
        if line.isspace():
            continue
        check_json(line, f"{path}: line {number}")
        try:
            yield number, json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"), object_pairs_hook=_distinct)
        except UnicodeDecodeError as error:
            raise FileError(
                f"{path}: line {number} is not UTF-8 text ({error.reason}); save the file as UTF-8"
            ) from None
        except _TwiceError as error:
            raise FileError(f"{path}: line {number}: the key {str(error)!r:.60} stands there twice") from None
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
            raise FileError(f"{path}: line {number} is not JSON ({reason}); expected one JSON value a line") from None


class _TwiceError(Exception):
    """A key that stands in an object twice."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found
