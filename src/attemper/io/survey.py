"""What files of scores hold, looked at as it stands there, in one pass.

Nothing is refused here: a `Survey` counts what `Scores` would reject.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from attemper._typing import Floats, Labels
from attemper.data.arrays import RowName, numbered, row_slices
from attemper.data.plausibility import room_of_sums
from attemper.data.soft import checked_shares
from attemper.errors import InputError
from attemper.io.reading import Block
from attemper.io.sources import ScoreFiles, Taken

__all__ = ["Survey"]


def unchecked(files: ScoreFiles) -> Iterator[tuple[NDArray[Any], NDArray[Any] | InputError | None, RowName]]:
    """Read the rows that count as they are, with their labels as numbers of columns, or why they are none.

    A label that is none of the names of the classes is -1. The last entry names a row, for errors.
    """
    for reader in files.readers:
        first_row = 0
        for block in reader.blocks():
            if reader.axis is not None:
                block = pixels(block, reader.axis)
            problem: InputError | None = None
            try:
                taken = files.taken(reader, block, first_row)
            except InputError as error:
                problem, taken = error, files.taken(reader, block._replace(labels=None), first_row)
            first_row += len(block.values)
            if taken is not None:
                labels = problem or column_numbers(taken, files.one_column)
                name = taken.name if len(files.readers) == 1 else in_file(taken.name, reader.path)
                yield both_columns(taken.values, files.spec.probs), labels, name


def in_file(name: RowName, path: object) -> RowName:
    """Name rows with their file."""
    return lambda i: f"{name(i)} of {path}"


def pixels(block: Block, axis: int) -> Block:
    """Return the pixels of images as rows."""
    values = np.moveaxis(block.values, axis, -1)
    labels = None if block.labels is None else block.labels.reshape(-1)
    return Block(values.reshape(-1, values.shape[-1]), labels, None)


def column_numbers(taken: Taken, one_column: bool) -> NDArray[Any] | InputError | None:
    """Return labels as numbers of columns; with one column of scores -1 and 1 are those of the two classes."""
    labels = taken.labels
    if labels is None:
        return None
    if labels.ndim == 2:  # soft: the class with the largest share
        try:
            checked_shares(labels, len(labels), labels.shape[1], numbered())
        except InputError as error:
            return error
        return np.asarray(labels.argmax(axis=1), np.int64)
    if taken.classes is not None:
        numbers = {str(name): k for k, name in enumerate(taken.classes)}
        return np.array([numbers.get(str(label), -1) for label in labels.tolist()])
    if one_column and np.isin(labels, (-1, 1)).all() and (labels == -1).any():
        return np.asarray(labels == 1, np.int64)
    return labels


def both_columns(values: NDArray[Any], probs: bool) -> NDArray[Any]:
    """Return the scores of two classes where a column has those of the second alone."""
    if values.ndim == 2 and values.shape[1] > 1:
        return values
    column = values.reshape(-1)
    return np.column_stack([1 - column if probs else np.zeros_like(column), column])


@dataclass
class Survey:
    """Counts of what some files hold: numbers, rows, labels, and how often predictions agree with labels."""

    n_classes: int
    one_column: bool = False  # there is one score for each row, and the first column is made up
    n: int = 0
    dtype: str = ""
    low: float = math.inf  # of the finite numbers
    high: float = -math.inf
    n_nan: int = 0
    n_infinite: int = 0  # +inf
    n_masked: int = 0  # -inf
    n_zero: int = 0
    fractions: bool = False  # some number is above 0 and below 1
    n_empty: int = 0  # rows with nothing but masks
    first_bad: str | None = None  # the first row with a NaN or +inf
    lowest_sum: float = math.inf
    highest_sum: float = -math.inf
    log_sum: float = 0.0  # largest |log Σ exp|
    column_low: Floats = field(default_factory=lambda: np.empty(0))
    column_high: Floats = field(default_factory=lambda: np.empty(0))
    labelled: int = 0
    label_problem: str = ""  # why the labels cannot be counted
    n_outside: int = 0  # labels that are no column number
    first_outside: tuple[str, Any] | None = None
    label_low: float = math.inf
    label_high: float = -math.inf
    counts: Labels = field(default_factory=lambda: np.empty(0, np.int64))
    predicted: Labels = field(default_factory=lambda: np.empty(0, np.int64))
    agreeing: dict[int, int] = field(default_factory=lambda: {-1: 0, 0: 0, 1: 0})  # by a shift of the labels
    n_impossible: int = 0  # labels whose own class is masked, or has the probability 0

    def __post_init__(self) -> None:
        k = self.n_classes
        self.column_low, self.column_high = np.full(k, math.inf), np.full(k, -math.inf)
        self.counts, self.predicted = np.zeros(k, np.int64), np.zeros(k, np.int64)

    @classmethod
    def of(cls, files: ScoreFiles, progress: Any = None) -> Survey:
        """Look at all rows that count."""
        survey = cls(files.n_classes, files.one_column)
        with np.errstate(all="ignore"):
            for values, labels, name in unchecked(files):
                survey.add(values, labels, probs=files.spec.probs, name=name)
                if progress is not None:
                    progress(survey.n, files.n_rows)
        return survey

    def add(
        self,
        values: NDArray[Any],
        labels: NDArray[Any] | InputError | None,
        *,
        probs: bool,
        name: RowName | None = None,
    ) -> None:
        """Count a block of rows, and their labels: numbers of columns, -1 for what is none."""
        name = name or numbered()
        self.dtype = self.dtype or str(values.dtype)
        for part in row_slices(len(values), self.n_classes):
            self._add_numbers(values[part].astype(np.float64), name, part.start)
        if isinstance(labels, InputError):
            self.label_problem = str(labels)
        elif labels is not None:
            self._add_labels(values, labels, probs, name)
        self.n += len(values)

    def _add_numbers(self, h: Floats, name: RowName, first: int) -> None:
        nan, infinite, masked = np.isnan(h), h == math.inf, h == -math.inf
        bad = nan | infinite
        if self.first_bad is None and bad.any():
            self.first_bad = name(first + int(np.flatnonzero(bad.any(axis=1))[0]))
        self.n_nan += int(nan.sum())
        self.n_infinite += int(infinite.sum())
        self.n_masked += int(masked.sum())
        self.n_zero += int((h == 0).sum())
        self.n_empty += int(masked.all(axis=1).sum())
        finite = np.isfinite(h)
        lows, highs = np.where(finite, h, math.inf), np.where(finite, h, -math.inf)
        self.column_low = np.minimum(self.column_low, lows.min(axis=0))
        self.column_high = np.maximum(self.column_high, highs.max(axis=0))
        self.low, self.high = float(self.column_low.min()), float(self.column_high.max())
        whole_rows = h[finite.all(axis=1)]
        sums = whole_rows.sum(axis=1)
        self.fractions = self.fractions or bool(((h > 0) & (h < 1)).any())
        if sums.size:
            self.lowest_sum = min(self.lowest_sum, float(sums.min()))
            self.highest_sum = max(self.highest_sum, float(sums.max()))
        whole = ~bad.any(axis=1) & ~masked.all(axis=1)
        if whole.any() and self.high <= 1e-6:  # else they are no logarithms of probabilities
            self.log_sum = max(self.log_sum, float(np.abs(logsumexp(h[whole], axis=1)).max()))

    def _add_labels(self, values: NDArray[Any], labels: NDArray[Any], probs: bool, name: RowName) -> None:
        y = labels.astype(np.float64)
        finite = y[np.isfinite(y)]
        if finite.size:
            self.label_low = min(self.label_low, float(finite.min()))
            self.label_high = max(self.label_high, float(finite.max()))
        inside = (y >= 0) & (y < self.n_classes) & (y == np.floor(y))
        self.labelled += len(y)
        self.n_outside += int((~inside).sum())
        if self.first_outside is None and not inside.all():
            row = int(np.flatnonzero(~inside)[0])
            self.first_outside = (name(row), labels[row])
        top = np.where(np.isnan(values), -math.inf, values).argmax(axis=1)
        for shift in self.agreeing:
            self.agreeing[shift] += int((top == y + shift).sum())
        rows = np.flatnonzero(inside)
        k = y[rows].astype(np.int64)
        self.counts += np.bincount(k, minlength=self.n_classes)
        self.predicted += np.bincount(top, minlength=self.n_classes)
        own = values[rows, k]
        self.n_impossible += int(((own == 0) if probs else (own == -math.inf)).sum())

    @property
    def kind(self) -> str:
        """What the numbers look like; "shares" are between 0 and 1, but do not sum to 1.

        One column from 0 to 1 looks like probabilities of the second class.
        """
        room = room_of_sums(self.n_classes)
        if self.n_nan or self.n_infinite or not self.n or not math.isfinite(self.low):
            return "logits"
        if self.low >= -1e-6 and self.high <= 1 + 1e-6 and not self.n_masked and self.low < self.high:
            summing = self.lowest_sum >= 1 - room and self.highest_sum <= 1 + room
            summing = summing or (self.one_column and self.fractions)
            return "probabilities" if summing else "shares"
        return "log-probabilities" if self.high <= 1e-6 and self.log_sum <= room else "logits"

    @property
    def accuracy(self) -> float | None:
        """Share of the labels that are the arg max of their row."""
        return self.agreeing[0] / self.labelled if self.labelled else None

    @property
    def constant_columns(self) -> Labels:
        """Columns in which all finite numbers are equal."""
        if self.n < 2 or self.one_column:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.column_low >= self.column_high)
