"""HAM10000: dermatoscopic images of skin lesions, several of some lesions, so that there are two ways to split them."""

from __future__ import annotations

import csv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._paths import opened
from attemper.errors import FileError, listed
from attemper.io.reading import parsing
from experiments.zoo.data.images import SPLIT_SEED, Dataset, ImageSet
from experiments.zoo.data.pictures import decode

METADATA = "HAM10000_metadata.csv"
IMAGES = "images_200x150_jpg.zip"
COLUMNS = ("image_id", "lesion_id", "dx")
TRAIN_SHARE = 6009, 10015  # the other 4006 images are the test set


def read_skin_lesions(folder: Path, split: str) -> Dataset:
    """One of two splits: "random" over images, or "lesion" (no lesion on both sides). No validation part."""
    rows = _read_metadata(folder / METADATA)
    class_names = sorted({row["dx"] for row in rows})
    labels = np.array([class_names.index(row["dx"]) for row in rows])
    checked = ImageSet.checked(_read_images(folder / IMAGES, rows), labels, str(folder / IMAGES))
    extra = {key: np.array([row[key] for row in rows]) for key in ("image_id", "lesion_id")}
    everything = ImageSet(checked.images, checked.labels, extra)
    in_training, in_test = split_rows(extra["lesion_id"], split)
    return Dataset(everything.take(in_training), None, everything.take(in_test), class_names)


def split_rows(lesion_id: NDArray[Any], split: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows for training and for test, three fifths and two."""
    n = len(lesion_id)
    cut = n * TRAIN_SHARE[0] // TRAIN_SHARE[1]
    random = np.random.RandomState(SPLIT_SEED)
    if split == "lesion":
        lesions, lesion = np.unique(lesion_id, return_inverse=True)
        rank = random.permutation(len(lesions))[lesion]  # images in random order of their lesions
        order = np.argsort(rank, kind="stable")
        while 0 < cut < n and rank[order[cut]] == rank[order[cut - 1]]:
            cut += 1
    else:
        order = random.permutation(n)
    if not 0 < cut < n:
        raise FileError(f"{METADATA}: {n} images of {len(set(lesion_id))} lesions cannot be split into two parts")
    return np.sort(order[:cut]), np.sort(order[cut:])


def _read_metadata(path: Path) -> list[dict[str, str]]:
    with parsing(path, "a csv file"), path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise FileError(f"{path}: no column {listed(missing)}; there are {listed(reader.fieldnames or ())}")
        rows = sorted(reader, key=lambda row: row["image_id"])
    if not rows:
        raise FileError(f"{path}: there are no rows")
    return rows


def _read_images(path: Path, rows: list[dict[str, str]]) -> NDArray[np.uint8]:
    with opened(path) as stream, parsing(path, "a zip file of jpegs"), zipfile.ZipFile(stream) as archive:
        missing = sorted({f"{row['image_id']}.jpg" for row in rows} - set(archive.namelist()))
        if missing:
            raise FileError(f"{path}: no {listed(missing)}, which {METADATA} names")
        jpegs = [archive.read(f"{row['image_id']}.jpg") for row in rows]
        with ThreadPoolExecutor() as pool:
            return np.stack(list(pool.map(decode, jpegs)))
