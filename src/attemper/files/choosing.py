"""Which rows and columns of a block count: a mask, a label to ignore, the tokens that are options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import Labels, RowName
from attemper.errors import InputError, option, setting
from attemper.files.reading import Block, Reader
from attemper.sequences import position_name
from attemper.tokens import LabelsAre, check_options, option_labels

__all__ = ["EVERYTHING", "Choice", "name_of"]


@dataclass(frozen=True)
class Choice:
    """What was told about rows and columns that count."""

    ignore_index: int | None = None
    columns: tuple[int, ...] | None = None
    labels_are: LabelsAre = "options"

    @classmethod
    def told(
        cls, ignore_index: int | None, columns: Sequence[int] | None, labels_are: LabelsAre | None, probs: bool
    ) -> Choice:
        """Check what was told."""
        if columns is None:
            if labels_are is not None:
                raise InputError(
                    f"{setting('labels_are', labels_are)}: needs {option('columns=[…]', '--columns ID,ID,…')}, the "
                    "tokens of the options"
                )
            return cls(ignore_index)
        if probs:
            raise InputError(
                f"{option('columns', '--columns')}: probabilities of some tokens do not sum to 1; pass logits, or the "
                f"logarithms of the probabilities, without {option('probs=True', '--probs')}"
            )
        try:
            options = check_options(columns)
        except InputError as error:
            raise InputError(f"{option('columns', '--columns')}: {error}") from None
        return cls(ignore_index, tuple(options.tolist()), labels_are or "options")

    @property
    def by_token(self) -> bool:
        """Whether labels are token ids among the columns chosen."""
        return self.columns is not None and self.labels_are == "tokens"

    def check(self, reader: Reader) -> None:
        """Refuse columns that a file does not have."""
        if self.columns is not None:
            try:
                check_options(self.columns, reader.n_classes)
            except InputError as error:
                raise InputError(f"{reader.path}: {option('columns', '--columns')}: {error}") from None

    def rows(self, block: Block, labels: NDArray[Any] | None) -> Labels | None:
        """Numbers of the rows of a block that count; None: all of them."""
        counts = block.counts
        if self.ignore_index is not None and labels is not None:
            ignored = str(self.ignore_index) if labels.dtype == object else self.ignore_index
            counts = np.asarray(labels != ignored) & (True if counts is None else counts)
        return None if counts is None or counts.all() else np.flatnonzero(counts)

    def values(self, values: NDArray[Any]) -> NDArray[Any]:
        """Choose the columns."""
        return values if self.columns is None else values[:, self.columns]

    def labels(self, labels: NDArray[Any] | None, name: RowName) -> NDArray[Any] | None:
        """Labels as numbers of the columns chosen; what is no whole number is left for `Scores` to complain of."""
        if self.columns is None or labels is None or labels.dtype.kind not in "iuf":
            return labels
        if not (np.isfinite(labels) & (labels == np.floor(labels))).all():
            return labels
        return option_labels(labels.astype(np.int64), np.array(self.columns), self.labels_are, name)


EVERYTHING = Choice()


def name_of(rows: Labels | None, first_row: int, length: int | None) -> RowName:
    """Name the rows of a block, of which only ``rows`` are left, by where they stand in the file."""
    return lambda i: position_name(None, length)(first_row + int(i if rows is None else rows[i]))
