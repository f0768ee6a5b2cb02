"""Where files are: on this machine, or behind an address such as ``s3://bucket/val.npz``.

Remote files are read through fsspec, which knows the protocols; nothing is written to them.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from attemper.errors import AttemperError, FileError, require

__all__ = ["Place", "Remote", "checked_file", "is_remote", "local", "place", "reaching"]

# What is asked for beyond the bytes wanted, on top of what the protocol itself reads ahead.
BUFFER_BYTES = 1 << 16

HERE = "file://"


@dataclass(frozen=True)
class Remote(os.PathLike[str]):
    """An address, with what the readers use of a `Path`; ``str(remote)`` opens the same file again."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the address."""
        # Only web addresses have a query, and patterns may hold a question mark.
        address = self.url.partition("?")[0] if self.url.startswith("http") else self.url
        return PurePosixPath(address).name

    @property
    def suffix(self) -> str:
        """The ending, which says the format."""
        return PurePosixPath(self.name).suffix

    def is_dir(self) -> bool:
        """Whether the address itself says that it is a folder."""
        return self.url.endswith("/")

    def size(self) -> int:
        """Bytes of the file; an error if it is not there."""
        with reaching(self):
            fs, path = self._system()
            info: dict[str, Any] = fs.info(path)
        if info.get("type") == "directory":
            raise FileError(f"{self}: a directory; give the files in it, such as '{self}/*.npz'")
        if info.get("size") is None:
            raise FileError(f"{self}: the server does not tell how large the file is; copy it to this machine first")
        return int(info["size"])

    def version(self) -> str:
        """Return what changes when the file does, as far as the protocol tells: size, date, checksum."""
        with reaching(self):
            fs, path = self._system()
            return str(fs.ukey(path))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open for reading; the stream can seek, and reads what is asked for."""
        if mode != "rb":
            raise FileError(f"{self}: remote files are only read; write to this machine and copy the file there")
        with reaching(self):
            fs, path = self._system()
            file = fs.open(path, "rb")
        return io.BufferedReader(_Raw(self, file), BUFFER_BYTES)

    def matches(self) -> list[Remote]:
        """List the files that this pattern means, sorted."""
        with reaching(self):
            fs, path = self._system()
            found = sorted(fs.glob(path))
        # What the file system strips from addresses is put back, with user names and all.
        head = self.url.removesuffix(path) if self.url.endswith(path) else None
        return [Remote(fs.unstrip_protocol(file) if head is None else head + file) for file in found]

    def _system(self) -> tuple[Any, str]:
        fsspec = require("fsspec", extra="remote", why=f"to read {self.url.partition('://')[0]}:// addresses")
        fs, path = fsspec.url_to_fs(self.url)
        return fs, str(path)


Place = Path | Remote


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether this is an address rather than a path on this machine."""
    return "://" in os.fspath(path) and not os.fspath(path).startswith(HERE)


def place(path: str | os.PathLike[str]) -> Place:
    """Take a path or an address."""
    return Remote(os.fspath(path)) if is_remote(path) else _path(path)


def local(path: str | os.PathLike[str]) -> Path:
    """Take a path to write to, which must be on this machine."""
    if is_remote(path):
        raise FileError(f"{path}: remote files are only read; write to a file on this machine and copy it there")
    return _path(path)


def _path(path: str | os.PathLike[str]) -> Path:
    """Take a path on this machine; ``file:///tmp/a.npz`` is one too, and as with fsspec nothing in it is encoded."""
    return Path(path.removeprefix(HERE)) if isinstance(path, str) else Path(path)


def checked_file(path: Place, *, one: bool = False) -> int:
    """Return the size of a regular file with content; otherwise raise an error that names what is there instead.

    Call it before `open`, which would wait for ever at a pipe that nobody writes to. ``one``: it cannot be a pattern.
    """
    if isinstance(path, Remote):
        size = path.size()
        if size == 0:
            raise FileError(f"{path}: the file is empty (0 bytes); write it again")
        return size
    try:
        status = path.stat()
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(status.st_mode):
        hint = "pass the name of a file in it" if one else f"give the files in it, such as '{path}/*.npz'"
        raise FileError(f"{path}: a directory; {hint}")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{path}: not a regular file, but a pipe or a device; save the data to a file first")
    if status.st_size == 0:
        raise FileError(f"{path}: the file is empty (0 bytes); write it again")
    return status.st_size


@contextmanager
def reaching(remote: Remote) -> Iterator[None]:
    """Wrap a call of a file system that is not ours.

    Each protocol raises errors of its own (of botocore, aiohttp, paramiko, …), so the catch is broad.
    """
    try:
        yield
    except (AttemperError, MemoryError):
        raise
    except FileNotFoundError:
        raise FileError(f"{remote}: there is no such file") from None
    except PermissionError as error:
        raise FileError(f"{remote}: may not be read; check your credentials ({_reason(error)})") from None
    except ImportError as error:
        raise FileError(f"{remote}: a package for this protocol is missing: {_reason(error)}") from None
    except Exception as error:
        raise FileError(f"{remote}: cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return (text.splitlines() or [""])[0][:200] or type(error).__name__


class _Raw(io.RawIOBase):
    """A file of fsspec as a plain stream, whose failures name the file.

    It keeps its own place: a file system may give the same object to all who open a file, as fsspec's memory does.
    """

    def __init__(self, remote: Remote, file: Any) -> None:
        super().__init__()
        self._remote, self._file, self._at = remote, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with reaching(self._remote):
            self._file.seek(self._at)
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_END:
            with reaching(self._remote):
                self._at = int(self._file.seek(offset, whence))
        else:
            self._at = offset + (self._at if whence == io.SEEK_CUR else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
