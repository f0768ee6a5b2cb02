"""Sketches of finished shards, stored as they arrive, so that a run that failed goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attemper.documents import read_document, write_document
from attemper.engines.shards import Shard, Sketched
from attemper.errors import AttemperError, FileError, InputError
from attemper.places import Remote, place
from attemper.sketch import Sketch

__all__ = ["Kept", "forget"]

NAME = re.compile(r"\d{6,}-([0-9a-f]{32})\.sketch\.json")


class Kept:
    """A folder with one sketch for each finished shard; each is also a sketch that `attemper merge` reads."""

    def __init__(self, folder: str | os.PathLike[str], shards: Sequence[Shard], *, resume: bool) -> None:
        if any(shard.item is not None for shard in shards):
            raise InputError("keep: only sketches of files can be kept; what lies in memory has no name to find it by")
        self.folder = Path(folder)
        self.shards = shards
        self.count = 0
        self._prints: dict[int, str] = {}
        self._found: dict[str, Path] = {}
        if resume:
            self._found = {match[1]: path for path, match in _own(self.folder)}

    def load(self, number: int) -> Sketched | None:
        """Give what was kept of this very shard, read and sketched in this very way; None if there is none."""
        path = self._found.get(self._print(number)) if self._found else None
        if path is None:
            return None
        try:
            content = read_document(path, "sketch")
            about = content.fields("shard")
            columns = tuple(map(str, about.items("columns"))) if "columns" in about else None
            found = Sketched(about.text("path"), columns, Sketch.from_fields(content))
        except AttemperError:
            return None  # damaged: made again
        self.count += 1
        return found

    def save(self, number: int, made: Sketched) -> None:
        """Store a finished one, whole or not at all."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.folder}: cannot be made: {error.strerror or error}") from None
        about = {"path": made.path} | ({} if made.columns is None else {"columns": list(made.columns)})
        path = self.folder / f"{number:06d}-{self._print(number)}.sketch.json"
        try:
            write_document(path, "sketch", made.sketch.to_dict() | {"shard": about})
        except FileError as error:
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # where it is the first
            raise FileError(f"{made.path}: its sketch cannot be kept: {error}") from None
        self.count += 1

    def _print(self, number: int) -> str:
        """Fingerprint of a shard, taken when it is first asked for: a cluster's files may be many and far away."""
        if number not in self._prints:
            self._prints[number] = _fingerprint(self.shards[number])
        return self._prints[number]


def forget(folder: str | os.PathLike[str]) -> None:
    """Remove what was kept, and the folder if there was nothing else in it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()  # what keep=folder of `fit_sharded` wrote to
    >>> forget(folder)
    >>> Path(folder).exists()
    False
    """
    for path, _ in _own(Path(folder)):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        Path(folder).rmdir()


def _own(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    try:
        return [(path, match) for path in sorted(folder.iterdir()) if (match := NAME.fullmatch(path.name))]
    except OSError:  # no folder, or one that cannot be read, such as a link to itself
        return []


def _fingerprint(shard: Shard) -> str:
    files = [path for path in (shard.path, shard.labels) if path is not None]
    content = {"files": [_state(path) for path in files], "reading": shard.reading, "settings": shard.settings}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()[:32]


def _state(path: str) -> list[Any]:
    """Path, size and time of change; the path alone where the file system tells no more."""
    file = place(path)
    try:
        if isinstance(file, Remote):
            return [path, file.version()]
        status = file.stat()
    except (AttemperError, OSError, ValueError):
        return [path]
    return [os.path.abspath(file), status.st_size, status.st_mtime_ns]  # noqa: PTH100 (links are not followed)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()
