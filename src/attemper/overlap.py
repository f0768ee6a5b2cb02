"""Samples that are in two data sets: what was fitted on one of them looks better on the other than it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import CHUNK_ELEMENTS, to_numpy
from attemper.errors import AttemperWarning
from attemper.scores import Scores

__all__ = ["same_samples", "shared_rows", "warn_of_shared_rows"]


def same_samples(one: Scores, other: Scores) -> bool:
    """Whether both hold the same rows in the same order, and that is not by chance."""
    if one.values.shape != other.values.shape:
        return False
    if not all(np.array_equal(a, b) for a, b in zip(_chunks(one), _chunks(other))):
        return False
    return np.array_equal(one.labels, other.labels) or shared_rows(one, other) > 0  # type: ignore[arg-type]


def shared_rows(val: Scores, test: Scores) -> int:
    """How many rows of ``test`` are rows of ``val`` too; 0 where no more are than chance makes equal.

    Rounded or saturated scores are equal by chance: then a row of ``val`` also has a twin in ``val`` itself, about as
    often as a row of ``test`` has one there.

    >>> val = Scores.from_logits([[2.0, 1.0], [0.0, 3.0], [1.0, 5.0]], [0, 1, 1])
    >>> shared_rows(val, Scores.from_logits([[0.0, 3.0], [4.0, 1.0]], [1, 0]))
    1
    """
    if val.kind != test.kind or val.n_classes != test.n_classes:
        return 0
    known, counts = np.unique(_hashes(val), return_counts=True)
    shared = int(np.isin(_hashes(test), known).sum())
    by_chance = len(test) * counts[counts > 1].sum() / len(val)
    return shared if shared > 2 * by_chance else 0


def warn_of_shared_rows(val: Scores, test: Scores) -> None:
    """Warn of samples that are in both."""
    shared = shared_rows(val, test)
    if shared:
        warnings.warn(
            f"{shared} of {len(test)} test samples ({shared / len(test):.1%}) have the same {val.kind} as a validation "
            "sample. If they are the same samples, test results look better than they are; use test samples that are "
            "not in the validation set.",
            AttemperWarning,
            stacklevel=3,
        )


def _hashes(scores: Scores) -> NDArray[np.int64]:
    return np.fromiter((hash(row.tobytes()) for chunk in _chunks(scores) for row in chunk), np.int64, len(scores))


def _chunks(scores: Scores) -> Iterator[NDArray[np.float64]]:
    """Values in double precision, where all precisions compare; -0.0 is 0.0."""
    rows = max(1, CHUNK_ELEMENTS // scores.n_classes)
    for first in range(0, len(scores), rows):
        yield to_numpy(scores.values[first : first + rows, :]).astype(np.float64) + 0.0
