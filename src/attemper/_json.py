"""JSON documents with a schema version, written atomically, and checked when they are read.

Maps, sketches and fitted calibrators travel as such documents. They hold
numbers and names, never code. What is read is checked before it is used:
schema version, kind, types, and that every number is finite.

`to_fields` and `from_fields` are the one codec: the annotations of a class define what its fields hold.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from attemper._paths import PathOrURL, as_path, checked_file, local
from attemper.errors import FileError, InputError, InputTypeError

__all__ = [
    "Dims",
    "Fields",
    "atomic",
    "from_fields",
    "json_lines",
    "read_document",
    "to_fields",
    "values_of",
    "write_document",
]

T = TypeVar("T")

SCHEMA = 1


@contextmanager
def atomic(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that appears whole under its name at the end, or not at all.

    An error or interrupt half-way leaves what was there before.
    """
    path = local(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        if path.is_dir():
            raise FileError(f"{path}: a folder; give the name of a file in it")
        path = path.resolve() if path.is_symlink() else path  # a link stays, what it points to is written
        permissions = path.stat().st_mode & 0o777 if path.exists() else None
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise FileError(f"{path}: cannot be written there: {error.strerror or error}") from None
    try:
        with os.fdopen(descriptor, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if permissions is None:  # mkstemp makes files private; give the mode that a plain open() would have given
            mask = os.umask(0)
            os.umask(mask)
            permissions = 0o666 & ~mask
        Path(name).chmod(permissions)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
    except UnicodeEncodeError as error:
        Path(name).unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written as UTF-8: {error}") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_document(path: str | os.PathLike[str], kind: str, content: dict[str, Any]) -> None:
    """Write ``content`` as a document of this kind."""
    document = {"attemper": kind, "schema": SCHEMA, **content}
    with atomic(path, "w") as stream:
        json.dump(document, stream, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        stream.write("\n")


def read_document(path: str | os.PathLike[str], *kinds: str) -> Fields:
    """Read a document of one of these kinds; a clear `FileError` for anything else."""
    path = as_path(path)
    if isinstance(path, Path):  # a server need not know the size
        checked_file(path, one=True)
    try:
        with path.open("rb") as stream:
            document = json.loads(stream.read().decode("utf-8"), parse_constant=_reject_constant)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: not a JSON document, but binary data") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON, perhaps truncated: {error}") from None
    if not isinstance(document, dict) or "attemper" not in document:
        raise FileError(f"{path}: JSON, but not a document of attemper")
    fields = Fields(document, str(path))
    kind, schema = fields.text("attemper"), fields.integer("schema")
    if schema > SCHEMA:
        raise FileError(
            f"{path}: schema version {schema}, but this attemper knows versions up to {SCHEMA}; install a newer "
            "one: pip install -U attemper"
        )
    if schema < 1:
        raise FileError(f"{path}: schema version {schema} never existed")
    if kind not in kinds:
        raise FileError(f"{path}: holds a {kind}; expected a {' or a '.join(kinds)}")
    return fields


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed")


def json_lines(path: PathOrURL, stream: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    """Give the value of each line of a file with its number, counted from 1; blank lines are left out."""
    for number, line in enumerate(stream, 1):
        if line.isspace():
            continue
        try:
            yield number, json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path}: line {number} is not JSON ({error}); expected one JSON value a line") from None


class Fields:
    """Typed access to the fields of a document; whatever does not fit is a `FileError`."""

    def __init__(self, content: dict[str, Any], where: str) -> None:
        self.content = content
        self.where = where

    def __contains__(self, key: str) -> bool:
        """Return whether the field is there."""
        return key in self.content

    def _get(self, key: str, kind: type | tuple[type, ...], name: str) -> Any:
        if key not in self.content:
            raise FileError(f"{self.where}: the field {key!r} is missing")
        value = self.content[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise FileError(f"{self.where}: the field {key!r} is {_short(value)}; expected {name}")
        return value

    def text(self, key: str) -> str:
        """Return a string."""
        return str(self._get(key, str, "text"))

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        return bool(self._get(key, bool, "true or false"))

    def integer(self, key: str) -> int:
        """Return a whole number."""
        value: int = self._get(key, int, "a whole number")
        if abs(value) > 2**53:
            raise FileError(f"{self.where}: the field {key!r} is {_short(value)}; expected a whole number up to 2^53")
        return value

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self._get(key, (int, float), "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise FileError(f"{self.where}: the field {key!r} is {_short(value)}; expected a finite number")
        return number

    def fields(self, key: str) -> Fields:
        """Return the fields of a nested object."""
        return Fields(self._get(key, dict, "an object"), f"{self.where}: {key}")

    def items(self, key: str) -> list[Any]:
        """Return a list, unchecked."""
        return list(self._get(key, list, "a list"))

    def array(self, key: str, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Return an array of finite numbers, of this shape (−1: any length)."""
        value = self._get(key, list, "a list of numbers")
        try:
            result = np.array(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise FileError(f"{self.where}: the field {key!r} is not an array of numbers") from None
        if not _all_numbers(value) or not np.isfinite(result).all():
            raise FileError(f"{self.where}: the field {key!r} holds something that is not a finite number")
        if shape is not None and (
            result.ndim != len(shape) or any(s not in (-1, n) for s, n in zip(shape, result.shape))
        ):
            raise FileError(f"{self.where}: the field {key!r} has shape {result.shape}; expected {shape}")
        return result

    def read(self, key: str, kind: Any) -> Any:
        """Return a field of the type that an annotation names."""
        kind = resolved(kind)
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            value = self.read(key, args[0])
            dims = next((note.n for note in args[1:] if isinstance(note, Dims)), None)
            if dims is not None and value is not None and value.ndim != dims:
                raise FileError(f"{self.where}: the field {key!r} has shape {value.shape}; expected {dims} dimensions")
            return value
        if origin in (Union, UnionType):
            if self.content.get(key) is None and NoneType in args:
                return None
            kinds = [one for one in args if one is not NoneType]
            return self.read(key, next((one for one in kinds if _may_be(self.content.get(key), one)), kinds[0]))
        if origin is Literal:
            if self._get(key, object, "") not in args:
                expected = " or ".join(map(repr, args))
                raise FileError(f"{self.where}: the field {key!r} is {_short(self.content[key])}; expected {expected}")
            return self.content[key]
        if np.ndarray in (origin, kind):
            of = get_args(args[1])[0] if args else None
            return self._whole_array(key) if isinstance(of, type) and issubclass(of, np.integer) else self.array(key)
        if origin is tuple:
            return self._tuple(key, args)
        if origin is dict:
            inner = self.fields(key)
            return {name: inner.read(name, args[1]) for name in inner.content}
        if kind in SCALARS:
            return getattr(self, SCALARS[kind])(key)
        own = getattr(kind, "from_fields", None)
        if own is None and not (is_dataclass(kind) or hasattr(kind, "_fields")):
            raise InputTypeError(
                f"the field {key!r}: files expected an annotation such as float, str, NDArray[np.float64], "
                f"tuple[float, ...] or a dataclass, got {kind}"
            )
        return from_fields(kind, self.fields(key)) if own is None else own(self.fields(key))

    def _whole_array(self, key: str) -> NDArray[np.int64]:
        values = self.array(key)
        if (np.abs(values) > 2**53).any() or (values != np.floor(values)).any():
            raise FileError(f"{self.where}: the field {key!r} holds something that is not a whole number")
        return values.astype(np.int64)

    def _tuple(self, key: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        n = -1 if kinds[-1] is Ellipsis else len(kinds)
        if set(kinds) <= {float, Ellipsis}:
            return tuple(self.array(key, (n,)).tolist())
        items = self.items(key)
        if n not in (-1, len(items)):
            raise FileError(f"{self.where}: the field {key!r} has {len(items)} items; expected {n}")
        each = Fields({f"{key}[{i}]": item for i, item in enumerate(items)}, self.where)
        return tuple(each.read(name, kinds[0 if n == -1 else i]) for i, name in enumerate(each.content))


SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "text"}


class Dims(NamedTuple):
    """The number of dimensions of an array: ``rates: Annotated[Floats, Dims(1)]``."""

    n: int


def to_fields(thing: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass or NamedTuple, or attributes by name, as plain numbers, text, lists and objects.

    >>> to_fields(Dims(2))
    {'n': 2}
    """
    cls: type = type(thing)
    names = _schema(cls) if names is None else names
    return {name.strip("_"): _plain(getattr(thing, name)) for name in names}


def resolved(kind: Any) -> Any:
    """Return the type that an alias stands for; `NDArray` is one from numpy 2.5 on.

    >>> resolved(float)
    <class 'float'>
    """
    alias = get_origin(kind)
    return alias.__value__[get_args(kind)] if hasattr(alias, "__value__") else kind


def from_fields(cls: type[T], content: Fields) -> T:
    """Make a dataclass or NamedTuple of what `to_fields` gave; whatever does not fit is a `FileError`.

    A field that is missing has its default. What ``__post_init__`` refuses is an error of the file.

    >>> from_fields(Dims, Fields({"n": 2}, "a.json"))
    Dims(n=2)
    """
    try:
        return cls(**values_of(cls, content))
    except InputError as error:
        raise FileError(f"{content.where}: {error}") from None


def values_of(cls: type, content: Fields, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return what `to_fields` gave as values of the types in the annotations of the class."""
    schema, values = _schema(cls, names is None), {}
    for name in schema if names is None else names:
        kind, optional = schema[name]
        key = name.strip("_")
        if key in content or not optional:
            values[name] = content.read(key, kind)
    return values


@cache
def _schema(cls: type, parameters: bool = True) -> dict[str, tuple[Any, bool]]:
    """Return of each field its type, and whether it has a default.

    Of a dataclass these are its parameters, or else all that is annotated.
    """
    if parameters and is_dataclass(cls):
        optional = {f.name: f.default is not MISSING or f.default_factory is not MISSING for f in fields(cls) if f.init}
    else:
        defaults = getattr(cls, "_field_defaults", None)
        optional = {name: hasattr(cls, name) if defaults is None else name in defaults for name in get_type_hints(cls)}
    return {
        name: (kind, optional[name])
        for name, kind in get_type_hints(cls, include_extras=True).items()
        if name in optional
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value) or hasattr(value, "_fields"):
        return value.to_dict() if hasattr(value, "to_dict") else to_fields(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def _may_be(value: Any, kind: Any) -> bool:
    """Return whether this is the member of a union that a value of JSON is of."""
    if get_origin(resolved(kind)) in (tuple, np.ndarray):
        return isinstance(value, list)
    if kind in SCALARS:
        return isinstance(value, bool) == (kind is bool) and isinstance(value, (int, float) if kind is float else kind)
    return isinstance(value, dict) or get_origin(kind) is Literal


def _all_numbers(values: list[Any]) -> bool:
    kinds = set(map(type, values))
    if kinds == {list}:
        return all(map(_all_numbers, values))
    return kinds <= {int, float}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
