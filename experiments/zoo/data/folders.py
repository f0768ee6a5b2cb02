"""Image files in one folder for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attemper.errors import FileError, InputError, listed
from attemper.io.reading import parsing
from experiments.zoo.data import pictures
from experiments.zoo.data.images import Dataset, ImageSet, hold_out

SUFFIXES = (".png", ".jpg", ".jpeg")


def read_folder(folder: Path, size: tuple[int, int] | None) -> Dataset:
    """``train/<class>/*.png`` (or jpg) and ``test/<class>/*``; classes and files in alphabetical order."""
    class_names = [path.name for path in _class_folders(folder / "train")]
    unknown = [path.name for path in _class_folders(folder / "test") if path.name not in class_names]
    if unknown:
        raise FileError(f"{folder / 'test'}: classes {listed(unknown)} are not in {folder / 'train'}")
    gray = all(pictures_are_gray(files) for files in (_files(folder / "train"), _files(folder / "test")))
    train, test = (_read_part(folder / part, class_names, gray, size) for part in ("train", "test"))
    return hold_out(train, test, class_names)


def pictures_are_gray(files: list[Path]) -> bool:
    """Whether all of these have one channel; a single coloured one makes all be read in colour."""
    for path in files:
        with parsing(path, "an image"):
            if not pictures.is_gray(path.read_bytes()):
                return False
    return True


def _class_folders(part: Path) -> list[Path]:
    if not part.is_dir():
        raise FileError(f"{part}: there is no such folder; expected {part}/<class>/*.png")
    found = sorted(path for path in part.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise FileError(f"{part}: there are no folders in it; expected one for each class")
    return found


def _files(part: Path) -> list[Path]:
    found = [f for c in _class_folders(part) for f in sorted(c.iterdir()) if f.suffix.lower() in SUFFIXES]
    if not found:
        raise FileError(f"{part}: no image files in {part}/<class>; expected {', '.join(SUFFIXES)}")
    return found


def _read_part(part: Path, class_names: list[str], gray: bool, size: tuple[int, int] | None) -> ImageSet:
    images = []
    files = _files(part)
    for path in files:
        with parsing(path, "an image"):
            images.append(pictures.decode(path.read_bytes(), gray=gray, size=size))
        if images[-1].shape != images[0].shape:
            height, width, _ = images[-1].shape
            raise InputError(
                f"{path} is {height} × {width}, {files[0].name} {images[0].shape[0]} × {images[0].shape[1]} pixels "
                f"(height × width); --image-size {images[0].shape[0]}x{images[0].shape[1]} makes all of them alike"
            )
    labels = np.array([class_names.index(path.parent.name) for path in files])
    return ImageSet.checked(np.stack(images), labels, str(part))
