"""Files that appear whole or not at all, and errors of parsers that name the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attemper.errors import AttemperError, FileError

__all__ = ["atomic", "listed", "opened", "parsing"]


@contextmanager
def atomic(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that appears whole under its name at the end, or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open(mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open for reading; what the operating system refuses is a `FileError`."""
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def parsing(path: Path, what: str) -> Iterator[None]:
    """Wrap one call of a parser: whatever it raises on damaged bytes is a `FileError`."""
    try:
        yield
    except (AttemperError, MemoryError):
        raise
    except Exception as error:
        raise FileError(f"{path}: cannot be read as {what} ({error})") from None


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return names for an error message, at most so many."""
    names = list(names)
    return ", ".join(map(repr, names[:limit])) + (", …" if len(names) > limit else "")
