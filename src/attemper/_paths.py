"""Where files are: on this machine, or behind an address such as ``s3://bucket/val.npz``.

Remote files are read through fsspec, which knows the protocols; nothing is written to them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import Any, cast

from attemper.errors import AttemperError, FileError, require

__all__ = [
    "InputFile",
    "PathOrURL",
    "Remote",
    "as_path",
    "checked_file",
    "expand_paths",
    "is_remote",
    "local",
    "opened",
    "reaching",
    "sha256_of",
]

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
        """The extension, which decides the format."""
        return PurePosixPath(self.name).suffix

    def is_dir(self) -> bool:
        """Whether the address is that of a folder."""
        return self.url.endswith("/")

    def size(self) -> int:
        """Bytes of the file; an error if it is not there."""
        with reaching(self):
            fs, path = self._system()
            info: dict[str, Any] = fs.info(path)
        if info.get("type") == "directory":
            raise FileError(f"{self}: a directory; pass the files in it, such as '{self}/*.npz'")
        if info.get("size") is None:
            raise FileError(f"{self}: the server does not report the size of the file; copy it to this machine first")
        return int(info["size"])

    def open(self, mode: str = "rb") -> Any:
        """Open for reading; the stream can seek, and reads what is asked for."""
        if mode != "rb":
            raise FileError(f"{self}: remote files are only read; write to this machine and copy the file there")
        with reaching(self):
            fs, path = self._system()
            return fs.open(path, "rb")

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


PathOrURL = Path | Remote


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether this is an address rather than a path on this machine."""
    return "://" in os.fspath(path) and not os.fspath(path).startswith(HERE)


def as_path(path: str | os.PathLike[str]) -> PathOrURL:
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


def checked_file(path: PathOrURL, *, one: bool = False) -> int:
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
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if stat.S_ISDIR(status.st_mode):
        hint = "pass the name of a file in it" if one else f"pass the files in it, such as '{path}/*.npz'"
        raise FileError(f"{path}: a directory; {hint}")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{path}: not a regular file, but a pipe or a device; save the data to a file first")
    if status.st_size == 0:
        raise FileError(f"{path}: the file is empty (0 bytes); write it again")
    return status.st_size


@contextmanager
def opened(path: PathOrURL) -> Iterator[BufferedIOBase]:
    """Open for reading; what the operating system or a server refuses, now or later, is a `FileError`."""
    try:
        with reaching(path) if isinstance(path, Remote) else nullcontext(), path.open("rb") as stream:
            yield cast(BufferedIOBase, stream)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def sha256_of(path: PathOrURL) -> str:
    """Hash the content of a file."""
    with opened(path) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


class InputFile:
    """A file to be read, perhaps more than once."""

    def __init__(self, path: PathOrURL) -> None:
        self.path, self.size = path, checked_file(path)

    @property
    def on_disk(self) -> str | None:
        """The path, for a library that opens files itself; None for an address."""
        return None if isinstance(self.path, Remote) else str(self.path)

    @contextmanager
    def open(self) -> Iterator[BufferedIOBase]:
        """Open for reading."""
        with opened(self.path) as stream:
            yield stream

    def sha256(self) -> str:
        """Hash the content."""
        return sha256_of(self.path)


def expand_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[PathOrURL]:
    """Return files in the order given, those of a pattern sorted; none twice."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [file for path in given for file in _matches(as_path(path))]
    if not files:
        raise FileError("no file was given")
    seen: dict[str, PathOrURL] = {}
    for file in files:
        other = seen.setdefault(_identity(file), file)
        if other is not file:
            also = "" if str(other) == str(file) else f", also as {other}"
            raise FileError(f"{file}: given twice{also}; its rows would count double")
    return files


def _identity(file: PathOrURL) -> str:
    """Return what two names of the same file have in common; hard links count as files of their own."""
    return str(file) if isinstance(file, Remote) else os.path.realpath(file)


def _matches(path: PathOrURL) -> Sequence[PathOrURL]:
    # A question mark in a web address begins a query.
    signs = "*[" if isinstance(path, Remote) and path.url.startswith("http") else "*?["
    if not any(sign in str(path) for sign in signs) or (isinstance(path, Path) and path.is_file()):
        return [path]
    if isinstance(path, Remote):
        files: Sequence[PathOrURL] = path.matches()
    else:
        try:
            files = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        except (ValueError, OSError, NotImplementedError) as error:
            raise FileError(f"{path}: not a valid pattern: {error}") from None
    if not files:
        hint = "; for the character [ itself write [[]" if "[" in str(path) and isinstance(path, Path) else ""
        raise FileError(f"{path}: no file matches this pattern{hint}")
    return files


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
