"""Held-out logits of 35 networks, nearly all of which were trained for this project.

One small set comes with the package; the others lie in the repository's ``data/`` folder,
whose README is their data card.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.files import reading
from attemper.errors import FileError, InputError

__all__ = ["Dataset", "load", "names", "path_of", "stored"]

BUNDLED = Path(__file__).parent / "bundled"
DEMO = "resnet200-skin-lesionsplit-s0"
# What the names of the classes of skin lesions stand for (HAM10000).
SKIN_LESIONS = {
    "akiec": "actinic keratosis or Bowen's disease",
    "bcc": "basal cell carcinoma",
    "bkl": "benign keratosis",
    "df": "dermatofibroma",
    "mel": "melanoma",
    "nv": "melanocytic nevus",
    "vasc": "vascular lesion",
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Logits and labels of one network, by `load`: a validation part to fit on, a test part to evaluate on."""

    name: str
    val_logits: NDArray[np.float32]
    val_labels: NDArray[np.int64]
    test_logits: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    config: dict[str, Any]  # how it was trained, and its measured figures
    extra: dict[str, NDArray[Any]]  # mean MC-dropout probabilities, image and lesion numbers, where there are any

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.val_labels)} validation and {len(self.test_labels)} test samples, "
            f"{len(self.class_names)} classes)"
        )


def names() -> list[str]:
    """Names of the data sets that can be loaded here.

    >>> "resnet200-skin-lesionsplit-s0" in names()
    True
    """
    return sorted({path.stem for folder in _folders() for path in folder.glob("*.npz")})


def load(name: str = DEMO, *, seed: int = 0) -> Dataset:
    """Load one data set.

    Networks for skin lesions, birds and ImageNet have no validation part of their own: as in the paper, a fifth of
    their test images, drawn at random with ``seed``, serves as one. It has a fifth of each class, and all images of a
    lesion are in the same part, so that no test image shows a lesion that the map was fitted on.

    >>> skin = load("resnet200-skin-lesionsplit-s0")
    >>> skin
    Dataset('resnet200-skin-lesionsplit-s0': 801 validation and 3205 test samples, 7 classes)
    >>> skin.val_logits.shape, skin.class_names[4]
    ((801, 7), 'mel')
    """
    arrays = stored(name)
    logits, labels = arrays.pop("logits").astype(np.float32, copy=False), arrays.pop("labels")
    class_names = tuple(str(c) for c in arrays.pop("class_names", range(logits.shape[1])))
    config = json.loads(str(arrays.pop("config")))
    if "val_logits" in arrays:
        val_logits, val_labels = arrays.pop("val_logits"), arrays.pop("val_labels")
        return Dataset(name, val_logits, val_labels, logits, labels, class_names, config, arrays)
    val, test = _divided(arrays.get("lesion_id", np.arange(len(labels))), labels, len(labels) // 5, seed)
    extra = {key: np.concatenate([value[val], value[test]]) for key, value in arrays.items()}
    return Dataset(name, logits[val], labels[val], logits[test], labels[test], class_names, config, extra)


def stored(name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of ``data/`` as they are; the data card describes them.

    >>> sorted(stored("resnet200-skin-lesionsplit-s0"))
    ['class_names', 'config', 'image_id', 'labels', 'lesion_id', 'logits']
    """
    path = path_of(name)
    with reading(str(path)), np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
        return arrays | {key: arrays[key].astype(np.int64) for key in ("labels", "val_labels") if key in arrays}


def _divided(
    groups: NDArray[Any], labels: NDArray[np.int64], size: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide rows into a first part of ``size`` and the rest, both in random order: no group in both, classes alike."""
    rng = np.random.default_rng(seed)
    _, start, group, count = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    exact = np.bincount(labels) * size / len(labels)
    left = np.floor(exact).astype(np.int64)  # rows that a class still has to give
    left[np.argsort(left - exact)[: size - left.sum()]] += 1
    first = np.zeros(len(count), dtype=bool)
    for g in rng.permutation(len(count)):  # groups of one row fill what larger ones leave
        k = labels[start[g]]
        if count[g] <= left[k]:
            first[g], left[k] = True, left[k] - count[g]
    rows = rng.permutation(len(groups))
    chosen = first[group[rows]]
    return rows[chosen], rows[~chosen]


def path_of(name: str) -> Path:
    """Return the path of a data set.

    >>> path_of("resnet200-skin-lesionsplit-s0").name
    'resnet200-skin-lesionsplit-s0.npz'
    """
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise InputError(f"data set {name!r}: expected a name such as {DEMO!r}; names() lists them")
    found = [folder / f"{name}.npz" for folder in _folders() if (folder / f"{name}.npz").is_file()]
    if not found:
        raise FileError(
            f"data set {name!r} is not here; there are {', '.join(names())}. The sets that do not come with the "
            "package are in the data/ folder of the repository: set ATTEMPER_DATA to that folder."
        )
    return found[0]


def _folders() -> list[Path]:
    folder = os.environ.get("ATTEMPER_DATA")
    beside = Path(__file__).parents[2] / "data"  # a checkout of the repository
    return [f for f in (BUNDLED, Path(folder) if folder else beside) if f.is_dir()]
