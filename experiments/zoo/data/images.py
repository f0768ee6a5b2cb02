"""Labelled images, checked; and which of them are held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import InputError

SPLIT_SEED = 0  # which images are held out never depends on a run's own seed
VALIDATION_SIZE = 5000  # and never more than a tenth of the training images


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as bytes, N × height × width × channels, and the class number of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)  # columns that are saved beside the logits

    @classmethod
    def checked(cls, images: Any, labels: Any, where: str) -> ImageSet:
        """Take arrays that came from outside; ``where`` names them in errors."""
        images, labels = np.asarray(images), np.asarray(labels)
        if images.dtype != np.uint8:
            raise InputError(f"{where}: images of dtype {images.dtype}; expected uint8, values from 0 to 255")
        if images.ndim == 3:
            images = images[..., None]
        if images.ndim != 4 or images.shape[-1] not in (1, 3) or 0 in images.shape[1:]:
            raise InputError(
                f"{where}: images of shape {images.shape}; expected N × height × width, or that × 1 or 3 channels"
            )
        if labels.dtype.kind not in "iu":
            raise InputError(f"{where}: labels of dtype {labels.dtype}; expected class numbers, 0, 1, 2, …")
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.shape != (len(images),):
            raise InputError(f"{where}: labels of shape {labels.shape} for {len(images)} images; expected one for each")
        if not len(images):
            raise InputError(f"{where}: there are no images")
        return cls(images, labels.astype(np.int64))

    def take(self, rows: Any) -> ImageSet:
        """Take these images alone."""
        return ImageSet(self.images[rows], self.labels[rows], {k: v[rows] for k, v in self.extra.items()})


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a network learns from, what is held out to calibrate on, and what it is judged by."""

    train: ImageSet
    validation: ImageSet | None
    test: ImageSet
    class_names: list[str]

    def __post_init__(self) -> None:
        K, shape = len(self.class_names), self.train.images.shape[1:]
        for name, part in self.parts.items():
            if part.images.shape[1:] != shape:
                raise InputError(
                    f"{name} images are {_size(part.images.shape[1:])}, training images {_size(shape)}; "
                    "expected one size"
                )
            outside = np.flatnonzero((part.labels < 0) | (part.labels >= K))
            if outside.size:
                row = outside[0]
                raise InputError(
                    f"{name} labels: row {row} is {part.labels[row]}; expected 0 to {K - 1}, for there are {K} classes"
                )

    @property
    def parts(self) -> dict[str, ImageSet]:
        """Those parts that there are, by name."""
        return {
            name: part
            for name, part in (("training", self.train), ("validation", self.validation), ("test", self.test))
            if part is not None
        }

    @cached_property
    def sha256(self) -> str:
        """Tells other images, labels or splits apart: a run must not go on with data it was not begun with."""
        digest = hashlib.sha256()
        for name, part in self.parts.items():
            digest.update(f"{name} {part.images.shape} {self.class_names}".encode())
            digest.update(np.ascontiguousarray(part.images).data)
            digest.update(np.ascontiguousarray(part.labels).data)
        return digest.hexdigest()

    def limited(self, n: int) -> Dataset:
        """Take the first n images of each part, to try things out."""
        first = slice(n)
        validation = None if self.validation is None else self.validation.take(first)
        return replace(self, train=self.train.take(first), validation=validation, test=self.test.take(first))


def hold_out(train: ImageSet, test: ImageSet, class_names: list[str] | None = None) -> Dataset:
    """Set 5000 training images aside for validation (a tenth, where there are fewer than 50000)."""
    if class_names is None:
        class_names = [str(k) for k in range(int(train.labels.max()) + 1)]
    n_held_out = min(VALIDATION_SIZE, len(train.labels) // 10)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(train.labels))
    validation = train.take(np.sort(order[:n_held_out])) if n_held_out else None
    return Dataset(train.take(np.sort(order[n_held_out:])), validation, test, class_names)


def _size(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
