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

from attemper._json import read_document, write_document
from attemper._paths import Remote, as_path, local
from attemper.errors import AttemperError, FileError, InputError
from attemper.sharded.shards import Shard, Sketched
from attemper.sketch import Sketch

__all__ = ["ShardCache", "cache_dir_for", "clear_cache"]

NAME = re.compile(r"\d{6,}-([0-9a-f]{32})\.sketch\.json")


class ShardCache:
    """A folder with one sketch for each finished shard; each is also a sketch that `attemper merge` reads."""

    def __init__(self, folder: str | os.PathLike[str], shards: Sequence[Shard], *, resume: bool) -> None:
        if any(shard.item is not None for shard in shards):
            raise InputError("cache_dir: expected shards in files; shards in memory have no name to find them by")
        self.folder = Path(folder)
        self.shards = shards
        self.count = 0
        self._fingerprints: dict[int, str] = {}
        self._cached = {match[1]: path for path, match in _sketches_in(self.folder)} if resume else {}

    def load(self, number: int) -> Sketched | None:
        """Return what was stored of this very shard, read and sketched in this very way; None if nothing was."""
        path = self._cached.get(self._fingerprint(number)) if self._cached else None
        if path is None:
            return None
        try:
            content = read_document(path, "sketch")
            columns = content.fields("shard").read("columns", tuple[str, ...] | None)
            cached = Sketched(self.shards[number].path, columns, Sketch.from_fields(content))
        except AttemperError:
            return None  # damaged: made again
        self.count += 1
        return cached

    def save(self, number: int, made: Sketched) -> None:
        """Store a finished one, whole or not at all."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.folder}: cannot be created: {error.strerror or error}") from None
        about = {"path": made.path} | ({} if made.columns is None else {"columns": list(made.columns)})
        path = self.folder / f"{number:06d}-{self._fingerprint(number)}.sketch.json"
        try:
            write_document(path, "sketch", made.sketch.to_dict() | {"shard": about})
        except FileError as error:
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # where it is the first
            raise FileError(f"{made.path}: its sketch cannot be cached: {error}") from None
        self.count += 1

    def _fingerprint(self, number: int) -> str:
        """Return the fingerprint of a shard, taken when it is first asked for: files may be many and far away."""
        if number not in self._fingerprints:
            shard = self.shards[number]
            files = [_state(path) for path in (shard.path, shard.labels) if path is not None]
            content = {"files": files, "reading": shard.spec.to_dict(), "settings": shard.settings}
            text = json.dumps(content, sort_keys=True, default=lambda value: np.asarray(value).tolist())
            self._fingerprints[number] = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self._fingerprints[number]


def cache_dir_for(output: str) -> str:
    """Return the folder that the command line caches the sketches of finished files in.

    >>> cache_dir_for("net.attemper.json")
    'net.attemper.json.shards'
    """
    return f"{local(output)}.shards"


def clear_cache(folder: str | os.PathLike[str]) -> None:
    """Remove the sketches of finished shards, and the folder if there was nothing else in it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()  # what cache_dir=folder of `fit_sharded` wrote to
    >>> clear_cache(folder)
    >>> Path(folder).exists()
    False
    """
    for path, _ in _sketches_in(Path(folder)):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        Path(folder).rmdir()


def _sketches_in(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    try:
        return [(path, match) for path in sorted(folder.iterdir()) if (match := NAME.fullmatch(path.name))]
    except OSError:  # no folder, or one that cannot be read, such as a link to itself
        return []


def _state(path: str) -> list[Any]:
    """Path, size and time of change; the path alone where the file system does not know them."""
    file = as_path(path)
    try:
        if isinstance(file, Remote):
            return [path, file.version()]
        status = file.stat()
    except (AttemperError, OSError, ValueError):
        return [path]
    return [os.path.abspath(file), status.st_size, status.st_mtime_ns]  # noqa: PTH100 (links are not followed)
