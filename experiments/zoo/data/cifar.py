"""CIFAR-10 and CIFAR-100 as they are handed out: pickles with one image a row, its three colours one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attemper.errors import FileError, listed
from attemper.io.reading import parsing
from experiments.zoo.data.images import Dataset, ImageSet, hold_out
from experiments.zoo.data.pickles import read_pickled_dict

SIDE = 32


def read_cifar10(folder: Path) -> Dataset:
    """``data_batch_1`` to ``data_batch_5``, ``test_batch``, ``batches.meta``."""
    train = [_read_images(folder / f"data_batch_{i}", "labels") for i in range(1, 6)]
    together = ImageSet(np.concatenate([b.images for b in train]), np.concatenate([b.labels for b in train]))
    names = _read_names(folder / "batches.meta", "label_names")
    return hold_out(together, _read_images(folder / "test_batch", "labels"), names)


def read_cifar100(folder: Path) -> Dataset:
    """``train``, ``test``, ``meta``; the hundred fine classes."""
    train, test = (_read_images(folder / part, "fine_labels") for part in ("train", "test"))
    return hold_out(train, test, _read_names(folder / "meta", "fine_label_names"))


def _read_images(path: Path, labels_key: str) -> ImageSet:
    content = read_pickled_dict(path)
    rows = np.asarray(_entry(content, "data", path))
    if rows.ndim != 2 or rows.shape[1] != 3 * SIDE * SIDE:
        raise FileError(f"{path}: 'data' of shape {rows.shape}; expected N × {3 * SIDE * SIDE}")
    images = np.ascontiguousarray(rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    with parsing(path, f"class numbers in {labels_key!r}"):
        labels = np.asarray(_entry(content, labels_key, path))
    return ImageSet.checked(images, labels, str(path))


def _read_names(path: Path, key: str) -> list[str]:
    return [str(name) for name in _entry(read_pickled_dict(path), key, path)]


def _entry(content: dict[str, Any], key: str, path: Path) -> Any:
    if content.get(key) is None:
        raise FileError(f"{path}: no {key!r}; there are {listed(content)}")
    return content[key]
