"""Files that hold whole arrays: .npy by memory map, .npz and .safetensors one array at a time. Nothing is unpickled."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attemper._paths import InputFile
from attemper.data.arrays import reshaping
from attemper.errors import FileError, InputError, listed, require
from attemper.io.reading import Block, Reader, parsing, rows_per_block
from attemper.io.spec import InputSpec

__all__ = ["ArrayReader", "ArraySource", "read_array", "read_names", "source_of"]

NUMBERS = "fiuV"  # bfloat16 of ml_dtypes is of kind V
NUMBERS_OR_NAMES = "fiubU"
LABELS = "labels"
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2}  # of safetensors


class ArraySource(ABC):
    """A file of named arrays."""

    file: InputFile
    names: Sequence[str]

    @abstractmethod
    def header(self, key: str) -> tuple[tuple[int, ...], int]:
        """Read the shape of an array, and how many bytes a number has."""

    @abstractmethod
    def load(self, key: str) -> NDArray[Any]:
        """Read an array."""


class NpySource(ArraySource):
    """The one array of a file, under the name that the caller has for it."""

    def __init__(self, file: InputFile, name: str) -> None:
        self.file, self.names = file, (name,)
        if file.on_disk is not None:
            with parsing(file.path, "a NumPy array"):
                self._array: NDArray[Any] = np.load(file.on_disk, mmap_mode="r", allow_pickle=False)
        else:
            with file.open() as stream, parsing(file.path, "a NumPy array"):
                self._array = np.load(stream, allow_pickle=False)

    def header(self, key: str) -> tuple[tuple[int, ...], int]:
        return tuple(self._array.shape), self._array.dtype.itemsize

    def load(self, key: str) -> NDArray[Any]:
        return self._array


class NpzSource(ArraySource):
    """The arrays of an archive, as ``numpy.savez`` writes it."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        with file.open() as stream, parsing(file.path, "an .npz archive"), np.load(stream) as archive:
            self.names = tuple(archive.files)

    def header(self, key: str) -> tuple[tuple[int, ...], int]:
        readers: Any = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        with (
            self.file.open() as stream,
            parsing(self.file.path, "an .npz archive"),
            zipfile.ZipFile(stream) as archive,
            archive.open(f"{key}.npy") as member,
        ):
            shape, _, dtype = readers[np.lib.format.read_magic(member)[0]](member)
        return tuple(shape), dtype.itemsize

    def load(self, key: str) -> NDArray[Any]:
        with (
            self.file.open() as stream,
            parsing(self.file.path, f"an .npz archive with {key!r}"),
            np.load(stream, allow_pickle=False) as archive,
        ):
            return cast("NDArray[Any]", archive[key])


class SafetensorsSource(ArraySource):
    """The tensors of a file."""

    def __init__(self, file: InputFile) -> None:
        self.file = file
        safe_open = require("safetensors", why="to read .safetensors files").safe_open
        with parsing(file.path, "a safetensors file"):
            if file.on_disk is not None:
                self._open = safe_open(file.on_disk, framework="numpy")
            else:
                self._copy = tempfile.NamedTemporaryFile()  # noqa: SIM115 (kept as long as the source)
                with file.open() as stream:
                    shutil.copyfileobj(stream, self._copy)
                self._copy.flush()
                self._open = safe_open(self._copy.name, framework="numpy")
            self.names = tuple(self._open.keys())

    def header(self, key: str) -> tuple[tuple[int, ...], int]:
        found = self._open.get_slice(key)
        return tuple(found.get_shape()), BYTES.get(found.get_dtype(), 1)

    def load(self, key: str) -> NDArray[Any]:
        if self._open.get_slice(key).get_dtype() == "BF16":
            require("ml_dtypes", why="to read bfloat16")  # NumPy knows it then
        with parsing(self.file.path, "a safetensors file"):
            return cast("NDArray[Any]", self._open.get_tensor(key))


def source_of(file: InputFile, name: str) -> ArraySource:
    """Open a file of arrays; ``name`` is that of the array of an .npy file."""
    suffix = file.path.suffix.lower()
    if suffix == ".npy":
        return NpySource(file, name)
    return NpzSource(file) if suffix == ".npz" else SafetensorsSource(file)


class ArrayReader(Reader):
    """Logits, labels and weights from the arrays of a file."""

    one_image = False  # a file of one image, with the classes first

    def __init__(self, file: InputFile, spec: InputSpec, labels: InputFile | None = None) -> None:
        self.path = file.path
        self.source = source = source_of(file, spec.values_key)
        query, own = spec.column_query, None
        if labels is None and spec.reads_labels:
            if isinstance(source, NpySource):
                raise FileError(f"{file.path}: has no labels; add labels={'labels.npy'!r}")
            own = spec.labels_key or LABELS
        self._values_key = spec.values_key
        self._keys = {
            "labels": own, "weights": spec.weights_key, "groups": query.group, "clusters": query.cluster
        }  # fmt: skip
        for key in (spec.values_key, *self._keys.values()):
            if key is not None:
                _check_name(source, key)
        self._labels = None if labels is None else NpySource(labels, LABELS)
        self.axis = None
        shape, itemsize = source.header(spec.values_key)
        if len(shape) > 2 and spec.axis is not None:
            if not -len(shape) <= spec.axis < len(shape):
                raise InputError(
                    f"{file.path}: {spec.values_key!r} has shape {shape}; axis={spec.axis!r} is no axis of it. Use "
                    f"axis=1 for (N, K, …), axis=0 for one image, (K, …).",
                    param="axis",
                )
            axis = spec.axis % len(shape)
            self.one_image = axis == 0
            self.axis, shape = (1, (1, *shape)) if self.one_image else (axis, shape)
        elif len(shape) not in (1, 2):
            raise InputError(
                f"{file.path}: {spec.values_key!r} has shape {shape}; expected two dimensions, one row per sample and "
                f"one column per class. {reshaping(len(shape), spec.values_key)}",
                param="axis",
            )
        self._shape = shape
        self.n_classes = 1 if len(shape) == 1 else shape[1 if self.axis is None else self.axis]
        size = int(np.prod(shape))
        self.n_rows, self.n_bytes = size // self.n_classes if self.n_classes else 0, itemsize * size

    def names(self, key: str) -> list[Any] | None:  # noqa: D102 (as in `Reader`)
        return read_names(self.source, key) if key in self.source.names else None

    def blocks(self) -> Iterator[Block]:  # noqa: D102
        values = read_array(self.source, self._values_key, NUMBERS)
        parts = {what: None if key is None else read_array(self.source, key) for what, key in self._keys.items()}
        if self._labels is not None:
            parts["labels"] = read_array(self._labels, LABELS)
        if self.one_image:
            values = values[None]
            parts = {what: None if part is None else _of_one_image(part) for what, part in parts.items()}
        values = values if values.ndim > 1 else values[:, None]  # one score of two classes
        axis = 1 if self.axis is None else self.axis
        positions = tuple(n for k, n in enumerate(values.shape) if k != axis)
        for what, part in parts.items():
            if part is not None:
                parts[what] = self._checked(part, what, positions)
        # Logits narrower than float64 may be widened on the way, so count them as such; images are not.
        size = values[:1].nbytes if self.axis is not None else 8 * self.n_classes
        step = rows_per_block(size + sum(part[:1].nbytes for part in parts.values() if part is not None))
        for first in range(0, len(values), step):
            rows = slice(first, first + step)
            some = {what: None if part is None else _native(part[rows]) for what, part in parts.items()}
            yield Block(_native(values[rows]), **some)

    def _checked(self, part: NDArray[Any], what: str, positions: tuple[int, ...]) -> NDArray[Any]:
        """Check that there is one entry for each row or pixel; ids may be one for each image, labels soft."""
        n = positions[0]
        if part.shape == (n, 1) and len(positions) == 1:
            return part[:, 0]
        soft = what == "labels" and self.axis is None and part.ndim == 2 and len(part) == n
        each = what in ("groups", "clusters") and part.shape == (n,)
        if part.shape != positions and not soft and not each:
            raise InputError(f"{self.path}: its {what} have shape {part.shape}; expected {positions}, as the logits")
        return part


def _of_one_image(part: NDArray[Any]) -> NDArray[Any]:
    return part if part.shape == (1,) else part[None]


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in memory, in a type that can be computed with."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(np.float64)
    array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _check_name(source: ArraySource, key: str) -> None:
    if key not in source.names:
        raise FileError(
            f"{source.file.path}: holds no array {key!r}; it holds {listed(source.names)}. Use logits_key, labels_key, "
            "weights_key, groups_key or clusters_key to choose one, and input for probabilities."
        )


def read_array(source: ArraySource, key: str, kinds: str = NUMBERS_OR_NAMES) -> NDArray[Any]:
    """Read an array of numbers or names."""
    _check_name(source, key)
    found = source.load(key)
    if found.dtype.kind not in kinds or found.dtype.names:
        expected = "numbers or names" if kinds == NUMBERS_OR_NAMES else "numbers"
        raise InputError(f"{source.file.path}: {key!r} is of dtype {found.dtype}; expected {expected}")
    return found


def read_names(source: ArraySource, key: str) -> list[Any]:
    """Read a whole list of names or whole numbers."""
    found = read_array(source, key)
    if found.ndim != 1 or found.dtype.kind not in "iuU":
        raise InputError(f"{source.file.path}: {key!r}: expected a list of names or whole numbers, got {found.dtype}")
    return list(found.tolist())
