"""When and on what a map was fitted: kept in its file by those who ask for it.

The same data give the same bytes, so nothing of this is written unasked: a date would break that. The command line
asks. Where ``SOURCE_DATE_EPOCH`` is set the date is that one, and the bytes are the same again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from attemper._paths import InputFile, expand_paths, sha256_of
from attemper._version import __version__
from attemper.errors import InputError

__all__ = ["DataFile", "Provenance"]

MAX_HASHED = 1 << 30  # bytes of all files together, which are read once more for their hashes


class DataFile(NamedTuple):
    """A file that a map was fitted on. Its folder is left out: a map may travel."""

    name: str
    bytes: int | None = None
    sha256: str | None = None  # None: too large, or too far away, to be read once more

    def words(self) -> str:
        """Return a readable summary."""
        size = "" if self.bytes is None else f", {self.bytes} bytes"
        return f"{self.name}{size}, " + ("not hashed" if self.sha256 is None else f"sha256 {self.sha256}")


@dataclass(frozen=True)
class Provenance:
    """Where a fitted calibrator comes from; ``calibrator.save(path, provenance=Provenance.now("val.npz"))``.

    >>> Provenance("2025-01-31T09:00:00Z", "1.0.0")
    Provenance(fitted_at='2025-01-31T09:00:00Z', attemper='1.0.0', files=())
    """

    fitted_at: str  # UTC, such as 2025-01-31T09:00:00Z
    attemper: str  # version
    files: tuple[DataFile, ...] = ()

    @classmethod
    def now(cls, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | InputFile] = ()) -> Provenance:
        """Return the date of this moment, and the names and hashes of these files.

        A file that is not on this machine has a name alone; after 1 GiB, a name and a size.
        """
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        known = {file.path: file for file in given if isinstance(file, InputFile)}  # read already, perhaps
        files, left = [], MAX_HASHED
        for path in expand_paths([p.path if isinstance(p, InputFile) else p for p in given]) if given else ():
            if not isinstance(path, Path) or not path.is_file():
                files.append(DataFile(path.name))
                continue
            file = known.get(path) or InputFile(path)
            hashed = file.size <= left
            left -= file.size if hashed else 0
            files.append(DataFile(path.name, file.size, file.sha256() if hashed else None))
        return cls(_date(), __version__, tuple(files))

    def among(self, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
        """Names of those of these files that the map was fitted on, by size and hash."""
        known = {(file.bytes, file.sha256) for file in self.files if file.sha256 is not None}
        sizes = {size for size, _ in known}
        found = []
        for file in expand_paths(paths):
            size = file.stat().st_size if isinstance(file, Path) and file.is_file() else None
            if size in sizes and (size, sha256_of(file)) in known:
                found.append(str(file))
        return found


def _date() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        moment = datetime.now(UTC)
    else:
        try:
            moment = datetime.fromtimestamp(int(given), UTC)
        except (ValueError, OverflowError, OSError):
            raise InputError(f"SOURCE_DATE_EPOCH is {given!r}; expected seconds since 1970") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
