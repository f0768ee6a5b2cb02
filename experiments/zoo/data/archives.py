"""A data set in one npz file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attemper.errors import FileError, listed
from attemper.io.reading import parsing
from experiments.zoo.data.images import Dataset, ImageSet, hold_out

KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> Dataset:
    """Arrays ``x_train``, ``y_train``, ``x_test``, ``y_test`` and, where they have names, ``class_names``."""
    with parsing(path, "an npz file of images"), np.load(path, allow_pickle=False) as stored:
        missing = [key for key in KEYS if key not in stored]
        if missing:
            raise FileError(f"{path}: no {listed(missing)}; there are {listed(stored.files)}")
        arrays = {key: stored[key] for key in stored.files if key in (*KEYS, "class_names")}
    train, test = (
        ImageSet.checked(arrays[f"x_{part}"], arrays[f"y_{part}"], f"{path}: x_{part}, y_{part}")
        for part in ("train", "test")
    )
    names = [str(name) for name in arrays["class_names"]] if "class_names" in arrays else None
    return hold_out(train, test, names)
