"""Pickles that hold plain containers and arrays of integers, read without running anything they name.

A pickle is a program that may call whatever it names. CIFAR is handed out as such, so its pickles are read by an
Unpickler to which a handful of names exist, none of them the real thing: each stands for an inert stand-in of
this file, which checks its arguments and makes an array from bytes. NumPy's own functions are not offered, for its
arrays trust what a pickle tells them about memory.
"""

from __future__ import annotations

import pickle
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import FileError
from experiments.files import opened, parsing


class _StoredType:
    """Stands for ``numpy.dtype``: an integer type, and its byte order."""

    def __init__(self, code: str, *_: Any) -> None:
        dtype = np.dtype(str(code)) if str(code)[:1] in ("u", "i", "b") else None
        if dtype is None or dtype.kind not in "iub":
            raise FileError(f"an array of type {code!r}; expected integers")
        self.dtype = dtype

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _StoredArray:
    """Stands for ``numpy.ndarray``: made empty, then told its content."""

    array: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, content = state
        self.array = _array(content, kind, shape, "F" if columns_first else "C")


def _reconstruct(*_: Any) -> _StoredArray:
    return _StoredArray()


def _from_buffer(content: Any, kind: Any, shape: Any, order: str) -> _StoredArray:
    stored = _StoredArray()
    stored.array = _array(content, kind, shape, order)
    return stored


def _array(content: Any, kind: Any, shape: Any, order: str) -> NDArray[Any]:
    if isinstance(content, str):  # Python 2 kept bytes in strings, which come back as Latin-1
        content = content.encode("latin1")
    if not isinstance(kind, _StoredType) or not isinstance(content, bytes | bytearray) or order not in ("C", "F"):
        raise FileError("an array that is not made of plain bytes")
    if not all(isinstance(n, int) and n >= 0 for n in shape) or prod(shape) * kind.dtype.itemsize != len(content):
        raise FileError(f"an array of shape {shape} and {kind.dtype} in {len(content)} bytes")
    return np.frombuffer(content, kind.dtype).reshape(shape, order="C" if order == "C" else "F")


def _encode(text: str, *_: Any) -> bytes:
    """Stands for ``_codecs.encode``, by which Python 3 writes bytes into old pickles."""
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _StoredArray,
    ("numpy", "dtype"): _StoredType,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise FileError(f"it asks for {module}.{name}; only arrays, numbers, strings, lists and dicts are read")
        return STAND_INS[module, name]


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """Read a dict of arrays of integers, numbers, strings and lists of them."""
    with opened(path) as stream, parsing(path, "a pickled dict of arrays"):
        try:
            content = _RestrictedUnpickler(stream, encoding="latin1").load()
        except FileError as error:
            raise FileError(f"{path}: {error}") from None
        except MemoryError:
            raise FileError(f"{path}: asks for more memory than there is, perhaps damaged") from None
    if not isinstance(content, dict):
        raise FileError(f"{path}: holds a {type(content).__name__}; expected a dict")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): _plain(value) for key, value in content.items()
    }


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _StoredArray) else value
