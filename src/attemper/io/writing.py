"""What every writer takes: pieces of rows, and what is common to all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper.data.layout import Images
from attemper.errors import InputError

__all__ = ["Layout", "ProbRows", "laid_out"]


class ProbRows(NamedTuple):
    """Some rows of results: probabilities, and labels and predictions as column numbers."""

    probs: NDArray[Any]
    labels: NDArray[Any] | None = None
    predictions: NDArray[Any] | None = None
    axis: int | None = None  # of the classes, where rows are images, N×K×H×W
    ids: NDArray[Any] | None = None  # names or numbers of the samples, of the user's own

    def as_images(self, images: Images) -> ProbRows:
        """Lay rows out as the images are that they are all the pixels of."""
        labels, predictions = (None if a is None else images.restored(a) for a in (self.labels, self.predictions))
        return ProbRows(images.restored(self.probs), labels, predictions, images.axis)


@dataclass(frozen=True)
class Layout:
    """What all pieces of one file share."""

    n_classes: int
    dtype: np.dtype[Any]
    extras: tuple[str, ...]  # which of labels and predictions there are
    classes: tuple[str, ...] | None
    shape: tuple[int, ...]  # of the probabilities of one row, or image
    axis: int = 1  # of the classes, in the array of all
    positive: bool = False  # of two classes the probability of the second alone is written
    id_name: str | None = None  # of the column of ids
    ids_are_numbers: bool = False

    @property
    def columns(self) -> list[int]:
        """The classes whose probabilities are written."""
        return [1] if self.positive else list(range(self.n_classes))

    @property
    def extra_shape(self) -> tuple[int, ...]:
        """Shape of the labels of one row, or image."""
        return tuple(n for k, n in enumerate(self.shape, start=1) if k != self.axis)

    def heads(self, names: dict[str, str]) -> list[str]:
        """Return the names of the columns before the probabilities: of ids, labels and predictions."""
        found = [] if self.id_name is None else [self.id_name]
        return found + [names[name] for name in self.extras]

    def cells(self, piece: ProbRows) -> list[list[Any]]:
        """Return the columns of a piece before its probabilities, in the order of `heads`."""
        found = [] if piece.ids is None else [piece.ids.tolist()]
        return found + [self.names(getattr(piece, name)) for name in self.extras]

    def reject_ids(self, path: Path) -> None:
        """Refuse ids where a format holds arrays of numbers alone."""
        if self.id_name is not None:
            raise InputError(f"{path}: expected a format that holds ids. Use .csv, .jsonl, .parquet or .npz.")

    def check_table(self, path: Path) -> None:
        """Refuse images where there is room for rows alone."""
        if len(self.shape) > 1:
            raise InputError(f"{path}: a table holds no images, of shape {self.shape}; write them to .npz or .npy")

    def names(self, columns: NDArray[Any]) -> list[Any]:
        """Names of these columns, or their numbers when there are no names."""
        numbers: list[int] = columns.tolist()
        return numbers if self.classes is None else [self.classes[k] for k in numbers]


def laid_out(
    rows: Iterable[ProbRows], classes: Sequence[Any] | None, positive: bool = False, id_name: str | None = None
) -> tuple[Iterator[ProbRows], Layout]:
    """Take the layout from the first piece, and check each later one against it as it comes."""
    pieces = iter(rows)
    first = next(pieces, None)
    if first is None:
        raise InputError("there are no rows to write")
    probs = np.asarray(first.probs)
    if probs.ndim != 2 and first.axis is None:
        raise InputError(f"probabilities: expected N×K, got shape {probs.shape}")
    axis = first.axis or 1
    n_classes = probs.shape[axis]
    names = None if classes is None else tuple(map(str, classes))
    if names is not None and len(names) != n_classes:
        raise InputError(f"classes: {len(names)} names for {n_classes} columns of probabilities")
    dtype = np.dtype(np.float32 if probs.dtype.kind == "f" and probs.dtype.itemsize <= 4 else np.float64)
    if positive and probs.shape[1:] != (2,):
        raise InputError(f"positive: expected probabilities of two classes, got shape {probs.shape}")
    written = ["label", "labels", "prediction", "predictions", "probs", "classes"]
    written += [f"prob_{k}" for k in (names or range(n_classes))]
    if id_name in written:
        raise InputError(f"ids: {id_name!r} is the name of another column of the output. Rename the column of ids.")
    layout = Layout(
        n_classes, dtype, _extras(first), names, probs.shape[1:], axis, positive, id_name, _are_numbers(first)
    )
    return (_checked(piece, layout) for piece in chain([first], pieces)), layout


def _extras(piece: ProbRows) -> tuple[str, ...]:
    return tuple(name for name in ("labels", "predictions") if getattr(piece, name) is not None)


def _are_numbers(piece: ProbRows) -> bool:
    return piece.ids is not None and piece.ids.dtype.kind in "iu"


def _checked(piece: ProbRows, layout: Layout) -> ProbRows:
    probs = np.asarray(piece.probs, dtype=layout.dtype)
    if probs.shape[1:] != layout.shape:
        what = f"{layout.n_classes} columns" if len(layout.shape) == 1 else f"images of shape {layout.shape}"
        raise InputError(f"probabilities: a piece of shape {probs.shape} after one with {what}")
    if _extras(piece) != layout.extras:
        raise InputError("labels and predictions must come with every piece or with none")
    extras = {name: np.asarray(getattr(piece, name)) for name in layout.extras}
    for name, column in extras.items():
        if column.shape != (len(probs), *layout.extra_shape) or column.dtype.kind not in "iu":
            raise InputError(
                f"{name}: shape {column.shape}, dtype {column.dtype}; expected {(len(probs), *layout.extra_shape)} "
                "column numbers"
            )
        if column.size and not (column.min() >= 0 and column.max() < layout.n_classes):
            raise InputError(f"{name}: column numbers run from 0 to {layout.n_classes - 1}")
    if (piece.ids is None) != (layout.id_name is None) or (piece.ids is not None and len(piece.ids) != len(probs)):
        raise InputError("ids: expected one for each row of every piece, and a name for them")
    if _are_numbers(piece) != layout.ids_are_numbers:
        raise InputError("ids: expected text or whole numbers throughout, got both")
    probs = probs[:, 1:] if layout.positive else probs
    return ProbRows(
        probs, axis=piece.axis, ids=piece.ids, **{name: column.astype(np.int64) for name, column in extras.items()}
    )
