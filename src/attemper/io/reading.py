"""What every reader shares: the block that it returns, and how it fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._paths import InputFile, PathOrURL, checked_file, opened
from attemper.errors import AttemperError, FileError

__all__ = [
    "Block",
    "Reader",
    "objects",
    "parsing",
    "read_lines",
    "reject_arrays",
    "rows_per_block",
]

# Enough rows to keep several threads busy, small against any machine's memory.
BLOCK_BYTES = 32 << 20


class Block(NamedTuple):
    """Some consecutive rows of a file, as they stand there."""

    values: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[Any] | None
    groups: NDArray[Any] | None = None  # ids, not yet checked; of images one for each, or for each pixel
    clusters: NDArray[Any] | None = None
    lines: NDArray[np.int64] | None = None  # of the file, for errors, where it is text with a line for each row


class Reader(ABC):
    """One file, its header read and checked, its rows still on disk."""

    path: PathOrURL
    n_classes: int
    n_bytes: int  # about the memory that the logits take
    n_rows: int | None = None  # None where it takes reading to the end to know it
    columns: tuple[str, ...] | None = None  # names of the class columns, where the format has them
    headers: tuple[str, ...] | None = None  # names of all columns of a table
    first_label: Any = None  # of a table with names of columns, where labels are read and there are rows
    axis: int | None = None  # of the classes, where blocks hold images

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Read the rows in order, a bounded block at a time."""

    def names(self, key: str) -> list[Any] | None:
        """Read a whole list of names or whole numbers; None where the file has no such array."""
        return None


def rows_per_block(row_bytes: int) -> int:
    """How many rows of this size make one block; at least one."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


def objects(entries: list[Any]) -> NDArray[Any]:
    """Return entries of any kind as an array of objects, one for each."""
    found = np.empty(len(entries), dtype=object)
    found[:] = entries
    return found


def read_lines(path: PathOrURL) -> list[str]:
    """Read a text file with one name a line; blank lines count."""
    checked_file(path, one=True)
    with opened(path) as stream:
        text = stream.read()
    try:
        return text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None


@contextmanager
def parsing(path: PathOrURL, what: str) -> Iterator[None]:
    """Wrap one call of a parser that is not ours.

    On damaged bytes zipfile, numpy and pyarrow raise whatever their inside runs
    into (struct.error, KeyError, OSError, SyntaxError, …), and the list differs
    between versions; so the catch is broad and the wrapped call is small.
    """
    try:
        yield
    except (AttemperError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise FileError(
            f"{path}: cannot be read as {what}, perhaps damaged or truncated ({reason}); write it again"
        ) from None


def reject_arrays(path: PathOrURL, labels: InputFile | None) -> None:
    """Refuse labels in a file of their own, which belong to files of arrays."""
    if labels is not None:
        raise FileError(
            f"{path}: the labels of a table are one of its columns, not the file {labels.path}; add the column, "
            "or save the logits as .npy"
        )
