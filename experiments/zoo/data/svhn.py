"""Street View House Numbers as they are handed out: MATLAB files of cropped digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attemper._paths import checked_file
from attemper.errors import FileError, listed
from attemper.io.reading import parsing
from experiments.zoo.data.images import Dataset, ImageSet, hold_out


def read_svhn(folder: Path) -> Dataset:
    """``train_32x32.mat`` and ``test_32x32.mat``."""
    train, test = (_read_part(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    return hold_out(train, test, [str(digit) for digit in range(10)])


def _read_part(path: Path) -> ImageSet:
    from scipy.io import loadmat

    checked_file(path)
    with parsing(path, "a MATLAB file of SVHN"):
        stored = loadmat(path, variable_names=["X", "y"])
    for key in ("X", "y"):
        if key not in stored:
            raise FileError(f"{path}: no {key!r}; there are {listed(k for k in stored if k[:2] != '__')}")
    if stored["X"].ndim != 4:
        raise FileError(f"{path}: 'X' of shape {stored['X'].shape}; expected height × width × colours × N")
    part = ImageSet.checked(np.ascontiguousarray(stored["X"].transpose(3, 0, 1, 2)), stored["y"], str(path))
    labels = part.labels
    outside = np.flatnonzero((labels < 1) | (labels > 10))
    if outside.size:
        raise FileError(f"{path}: 'y', row {outside[0]} is {labels[outside[0]]}; expected 1 to 10, where 10 means 0")
    return ImageSet(part.images, labels % 10)
