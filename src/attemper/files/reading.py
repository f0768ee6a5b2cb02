"""What every reader shares: the keys told, the block it gives, and how it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from attemper.errors import AttemperError, FileError
from attemper.places import Place, checked_file

__all__ = [
    "Block",
    "Keys",
    "Reader",
    "check_digits",
    "checked_file",
    "listed",
    "number_from",
    "opened",
    "parsing",
    "read_lines",
    "rows_per_block",
]

# Enough rows to keep several threads busy, small against any machine's memory.
BLOCK_BYTES = 32 << 20
# Names, one a line: enough for a million classes or images.
MAX_TEXT_BYTES = 32 << 20


class Block(NamedTuple):
    """Some consecutive rows of a file, as they stand there."""

    values: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[Any] | None
    counts: NDArray[np.bool_] | None = None  # which rows count; None: all


@dataclass(frozen=True)
class Keys:
    """What the user told about where things are in a file; None: the default name."""

    logits: str | None = None
    labels: str | None = None
    weights: str | None = None
    probs: bool = False
    need_labels: bool = True
    mask: str | None = None
    next_token: bool = False  # the label of a position is what stands at the next one
    sequences: bool = False  # logits may be (B, L, V), everything else (B, L)

    @property
    def want_labels(self) -> bool:
        """Labels that are not needed are read only if told: those of new data are often no labels."""
        return self.need_labels or self.labels is not None or self.next_token

    @property
    def values(self) -> str:
        """Name of the N×K array."""
        return self.logits or ("probs" if self.probs else "logits")


class Reader(Protocol):
    """One file, its header read and checked, its rows still on disk."""

    @property
    def path(self) -> Place:
        """The file."""

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""

    @property
    def n_rows(self) -> int | None:
        """N, or None where only the end of the file tells."""

    @property
    def length(self) -> int | None:
        """L, where rows are the positions of sequences."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the class columns, where the format has them."""

    def blocks(self) -> Iterator[Block]:
        """Read the rows in order, a bounded block at a time."""


def rows_per_block(row_bytes: int) -> int:
    """How many rows of this size make one block; at least one."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


@contextmanager
def opened(path: Place) -> Iterator[BufferedReader]:
    """Open for reading; what the operating system refuses, now or later, is a `FileError`."""
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(path: Place) -> list[str]:
    """Read a text file with one name a line; blank lines count."""
    checked_file(path, one=True)
    with opened(path) as stream:
        text = stream.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        raise FileError(f"{path}: more than {MAX_TEXT_BYTES} bytes; expected a list of names, one a line")
    try:
        return text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None


@contextmanager
def parsing(path: Place, what: str) -> Iterator[None]:
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


def number_from(text: str) -> float:
    """Read a number as other programs do: Python alone takes 1_0 for 10, and the digits of every script.

    >>> number_from(" -1.5e3")
    -1500.0
    >>> number_from("1_0")
    Traceback (most recent call last):
    ValueError: not a number: '1_0'
    """
    check_digits(text)
    return float(text)


def check_digits(text: str) -> None:
    """Refuse what Python alone takes for a digit."""
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text[:60]!r}")


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Names for an error message; not more of them than a reader can use."""
    names = list(names)
    shown = ", ".join(repr(name[:60]) for name in names[:limit])
    return (shown + (f", … ({len(names)} in all)" if len(names) > limit else "")) or "nothing"
