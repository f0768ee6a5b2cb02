"""When and on what a map was fitted: kept in its file by those who ask for it.

The same data give the same bytes, so nothing of this is written unasked: a date would break that. The command line
asks. Where ``SOURCE_DATE_EPOCH`` is set the date is that one, and the bytes are the same again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from attemper.documents import Fields
from attemper.errors import FileError, InputError

__all__ = ["DataFile", "Provenance"]

MAX_FILES = 100_000
MAX_HASHED = 1 << 30  # bytes of all files together, which are read once more for their hashes


class DataFile(NamedTuple):
    """A file that a map was fitted on. Its folder is not told: a map may travel."""

    name: str
    bytes: int | None = None
    sha256: str | None = None  # None: too large, or too far away, to be read once more

    def words(self) -> str:
        """Return the same in words."""
        size = "" if self.bytes is None else f", {self.bytes} bytes"
        return f"{self.name}{size}, " + ("not hashed" if self.sha256 is None else f"sha256 {self.sha256}")


@dataclass(frozen=True)
class Provenance:
    """Where a fitted calibrator comes from; ``calibrator.save(path, provenance=Provenance.now("val.npz"))``.

    >>> Provenance("2025-01-31T09:00:00Z", "0.1.0").to_dict()
    {'fitted_at': '2025-01-31T09:00:00Z', 'attemper': '0.1.0', 'files': []}
    """

    fitted_at: str  # UTC, such as 2025-01-31T09:00:00Z
    attemper: str  # version
    files: tuple[DataFile, ...] = ()

    @classmethod
    def now(cls, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ()) -> Provenance:
        """Return the date of this moment, and the names and hashes of these files.

        A file that is not on this machine is told by its name alone; after 1 GiB, by name and size.
        """
        from attemper.files import expanded  # `import attemper` does without the readers
        from attemper.files.reading import opened

        given = list(expanded(paths)) if paths != () else []
        files = []
        left = MAX_HASHED
        for file in given:
            if not isinstance(file, Path) or not file.is_file():
                files.append(DataFile(file.name))
                continue
            size = file.stat().st_size
            if size > left:
                files.append(DataFile(file.name, size))
                continue
            left -= size
            with opened(file) as stream:
                files.append(DataFile(file.name, size, hashlib.file_digest(stream, "sha256").hexdigest()))
        version = sys.modules["attemper"].__version__  # the package imports this module, never the reverse
        return cls(_date(), version, tuple(files))

    def among(self, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
        """Names of those of these files that the map was fitted on, by size and hash."""
        from attemper.files import expanded
        from attemper.files.reading import opened

        known = {(file.bytes, file.sha256) for file in self.files if file.sha256 is not None}
        sizes = {size for size, _ in known}
        found = []
        for file in expanded(paths):
            if isinstance(file, Path) and file.is_file() and file.stat().st_size in sizes:
                with opened(file) as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                    if (stream.tell(), digest) in known:
                        found.append(str(file))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain text and numbers."""
        return {
            "fitted_at": self.fitted_at,
            "attemper": self.attemper,
            "files": [file._asdict() for file in self.files],
        }

    @classmethod
    def from_fields(cls, content: Fields) -> Provenance:
        """Read back what `to_dict` gave."""
        items = content.items("files")
        if len(items) > MAX_FILES or not all(isinstance(item, dict) for item in items):
            raise FileError(f"{content.where}: the field 'files' must hold at most {MAX_FILES} objects")
        each = [Fields(item, f"{content.where}: files") for item in items]
        files = tuple(
            DataFile(
                f.text("name"),
                None if f.content.get("bytes") is None else f.integer("bytes"),
                None if f.content.get("sha256") is None else f.text("sha256"),
            )
            for f in each
        )
        return cls(content.text("fitted_at"), content.text("attemper"), files)


def _date() -> str:
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is None:
        moment = datetime.now(UTC)
    else:
        try:
            moment = datetime.fromtimestamp(int(told), UTC)
        except (ValueError, OverflowError, OSError):
            raise InputError(f"SOURCE_DATE_EPOCH is {told!r}; expected seconds since 1970") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
