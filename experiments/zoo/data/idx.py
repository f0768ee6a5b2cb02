"""MNIST and Fashion-MNIST as they are handed out: idx files, packed with gzip or not."""

from __future__ import annotations

import gzip
import struct
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attemper.errors import FileError
from experiments.files import parsing
from experiments.zoo.data.images import Dataset, ImageSet, hold_out

UNSIGNED_BYTES = 0x08  # code of the only element type that these files have


def read_idx(folder: Path) -> Dataset:
    """``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, the same with ``t10k``; plain or ``.gz``."""
    train, test = (
        ImageSet.checked(
            _read_array(folder / f"{part}-images-idx3-ubyte", 3),
            _read_array(folder / f"{part}-labels-idx1-ubyte", 1),
            f"{folder}: {part}",
        )
        for part in ("train", "t10k")
    )
    return hold_out(train, test)


def _read_array(plain: Path, n_axes: int) -> NDArray[np.uint8]:
    packed = plain.with_name(plain.name + ".gz")
    path = plain if plain.exists() else packed
    if not path.exists():
        raise FileError(f"neither {plain} nor {packed} is there")
    with parsing(path, "an idx file"):
        content = gzip.decompress(path.read_bytes()) if path is packed else path.read_bytes()
        zeros, kind, found_axes = struct.unpack_from(">HBB", content)
        if (zeros, kind, found_axes) != (0, UNSIGNED_BYTES, n_axes):
            raise FileError(f"{path}: begins with {content[:4].hex()}; expected 00000{UNSIGNED_BYTES}0{n_axes}")
        shape = struct.unpack_from(f">{n_axes}I", content, 4)
        start = 4 + 4 * n_axes
        if len(content) - start != prod(shape):
            raise FileError(f"{path}: {len(content) - start} values, where shape {shape} asks for {prod(shape)}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
