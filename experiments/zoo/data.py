"""Images and labels: an npz file, a folder for each class, HAM10000, or the digits of scikit-learn."""

from __future__ import annotations

import csv
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

__all__ = ["Dataset", "Images", "load"]

VALIDATION = 5000  # images held out of training, at most a tenth; always the same ones
NO_VALIDATION = ("birds", "skin")  # have few images: split the test part instead
BIRD_SIZE = (200, 200)


class Images(NamedTuple):
    """N × height × width × channels bytes, the class of each image, and more columns to save with the logits."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    extra: dict[str, NDArray[Any]]

    def take(self, rows: Any) -> Images:
        """Return some of the images."""
        return Images(self.x[rows], self.y[rows], {key: value[rows] for key, value in self.extra.items()})


class Dataset(NamedTuple):
    """What a network is trained on, calibrated on and evaluated on."""

    train: Images
    val: Images | None
    test: Images
    class_names: list[str]


def load(name: str, folder: Path, split: str = "random") -> Dataset:
    """Read ``NAME.npz``, else ``NAME/train/<class>/*``; "skin" and "digits" have forms of their own."""
    if name == "skin":
        return _skin(folder, split)
    if name == "digits":
        small, y = load_digits(return_X_y=True)
        large = np.kron(np.rint(small.reshape(-1, 8, 8) * (255 / 16)), np.ones((1, 3, 3)))
        whole = _images(np.pad(large, ((0, 0), (2, 2), (2, 2))).astype(np.uint8), y)  # 28 × 28, as MNIST
        order = np.random.RandomState(0).permutation(len(y))
        train, test, names = whole.take(order[:-400]), whole.take(order[-400:]), None
    elif (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as stored:
            train, test = (_images(stored[f"x_{part}"], stored[f"y_{part}"]) for part in ("train", "test"))
            names = list(map(str, stored["class_names"])) if "class_names" in stored else None
    else:
        names = sorted(path.name for path in (folder / name / "train").iterdir() if path.is_dir())
        size = BIRD_SIZE if name == "birds" else None
        train, test = (_folder(folder / name / part, names, size) for part in ("train", "test"))
    names = names or list(map(str, range(int(train.y.max()) + 1)))
    n_val = 0 if name in NO_VALIDATION else min(VALIDATION, len(train.y) // 10)
    order = np.random.RandomState(0).permutation(len(train.y))
    val = train.take(np.sort(order[:n_val])) if n_val else None
    return Dataset(train.take(np.sort(order[n_val:])), val, test, names)


def _images(x: NDArray[np.uint8], y: NDArray[Any], **extra: NDArray[Any]) -> Images:
    return Images(x if x.ndim == 4 else x[..., None], np.asarray(y, dtype=np.int64).ravel(), extra)


def _folder(part: Path, names: list[str], size: tuple[int, int] | None) -> Images:
    """Read ``<class>/*.jpg`` or png; all of one size, or resized."""
    files = [file for name in names for file in sorted((part / name).iterdir())]
    with ThreadPoolExecutor() as pool:
        x = np.stack(list(pool.map(lambda file: _decoded(file.read_bytes(), size), files)))
    return _images(x, np.array([names.index(file.parent.name) for file in files]))


def _skin(folder: Path, split: str) -> Dataset:
    """HAM10000: 6009 images for training and 4006 for test, at random, or with all images of a lesion in one part."""
    with (folder / "HAM10000_metadata.csv").open(newline="", encoding="utf-8") as stream:
        rows = sorted(csv.DictReader(stream), key=lambda row: row["image_id"])
    with zipfile.ZipFile(folder / "images_200x150_jpg.zip") as archive:
        jpegs = [archive.read(f"{row['image_id']}.jpg") for row in rows]
    names = sorted({row["dx"] for row in rows})
    ids = {key: np.array([row[key] for row in rows]) for key in ("image_id", "lesion_id")}
    with ThreadPoolExecutor() as pool:
        x = np.stack(list(pool.map(_decoded, jpegs)))
    whole = _images(x, np.array([names.index(row["dx"]) for row in rows]), **ids)
    random, cut = np.random.RandomState(0), len(rows) * 6009 // 10015
    if split == "lesion":
        lesions, lesion = np.unique(ids["lesion_id"], return_inverse=True)
        rank = random.permutation(len(lesions))[lesion]
        order = np.argsort(rank, kind="stable")
        while rank[order[cut]] == rank[order[cut - 1]]:
            cut += 1
    else:
        order = random.permutation(len(rows))
    return Dataset(whole.take(np.sort(order[:cut])), None, whole.take(np.sort(order[cut:])), names)


def _decoded(content: bytes, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB") if size is None else image.convert("RGB").resize(size))
