"""Documents: dataclasses as JSON, checked by their types when read; versioned, and written whole or not at all."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, get_args, get_origin

import msgspec
import numpy as np

from attemper.errors import FileError

VERSION = 1
T = TypeVar("T")


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that appears whole under its name at the end, or not at all."""
    target = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # mkstemp makes files private
        Path(name).replace(target)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def save(path: str | os.PathLike[str], kind: str, content: Any) -> None:
    """Write a dataclass, or a mapping, as a document of this kind."""
    document = {"attemper": kind, "version": VERSION, **plain(content)}
    with atomic(path) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(document), indent=1))


def load(path: str | os.PathLike[str], kinds: Mapping[str, type[T]]) -> T:
    """Read a document of one of these kinds as the type of its kind; anything else is a `FileError`."""
    try:
        document = msgspec.json.decode(Path(path).read_bytes())
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file") from None
    except (OSError, msgspec.DecodeError) as error:
        raise FileError(f"{path}: expected a {' or '.join(kinds)} as JSON; it cannot be read ({error})") from None
    kind = document.pop("attemper", None) if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        what = f"a {kind!s:.40}" if isinstance(kind, str) else "no file of attemper"
        raise FileError(f"{path}: expected a file with a {' or '.join(kinds)}, as save writes it; this is {what}")
    if document.pop("version", None) != VERSION:
        raise FileError(f"{path}: written by another version of attemper. Write it again.")
    found: T = typed(document, kinds[kind], str(path))
    return found


def typed(content: Any, kind: Any, where: str) -> Any:
    """Return plain content as a type; a wrong type is a `FileError` that names its place."""
    try:
        return msgspec.convert(content, kind, strict=False, dec_hook=_decoded)
    except (msgspec.ValidationError, ValueError) as error:
        raise FileError(f"{where}: {error}") from None


def plain(value: Any) -> Any:
    """Return dataclasses, arrays and tuples as JSON has them; infinities and NaN as text.

    >>> plain({"a": np.array([1.0, np.inf]), "b": (np.int64(2), None)})
    {'a': [1.0, 'inf'], 'b': [2, None]}
    """
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _decoded(kind: Any, value: Any) -> Any:
    """Read arrays, of the numbers of their type."""
    if (get_origin(kind) or kind) is not np.ndarray:
        raise NotImplementedError(f"{kind} in a document")
    scalar = next((get_args(dtype)[0] for dtype in get_args(kind)[1:] if get_args(dtype)), None)
    numeric = isinstance(scalar, type) and not getattr(scalar, "__abstractmethods__", None) and scalar is not np.generic
    return np.array(value, dtype=scalar if numeric else None)
