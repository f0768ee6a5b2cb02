"""Samples that are in two data sets: what was fitted on one of them looks better on the other than it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import warn

__all__ = ["same_samples", "shared_rows", "warn_of_shared_rows"]


# A test set with this share of rows that are validation rows too is a copy, perhaps in another order.
COPIED_SHARE = 0.99


def same_samples(val: LabelledScores, test: LabelledScores) -> bool:
    """Whether all rows of ``test``, or nearly all, are rows of ``val`` in any order, and that is not by chance."""
    if val.values.shape == test.values.shape and np.array_equal(val.labels, test.labels):
        precision = _coarser(val, test)
        if all(np.array_equal(a, b) for a, b in zip(_chunks(val, precision), _chunks(test, precision))):
            return True
    return shared_rows(val, test) >= COPIED_SHARE * len(test)


def shared_rows(val: Scores, test: Scores) -> int:
    """How many rows of ``test`` are rows of ``val`` too; 0 where no more are than chance makes equal.

    Rounded or saturated scores are equal by chance: then a row of ``val`` also has a twin in ``val`` itself, about as
    often as a row of ``test`` has one there.

    >>> val = Scores.from_logits([[2.0, 1.0], [0.0, 3.0], [1.0, 5.0]], [0, 1, 1])
    >>> shared_rows(val, Scores.from_logits([[0.0, 3.0], [4.0, 1.0]], [1, 0]))
    1
    """
    if val.input != test.input or val.n_classes != test.n_classes:
        return 0
    precision = _coarser(val, test)
    known, counts = np.unique(_hashes(val, precision), return_counts=True)
    shared = int(np.isin(_hashes(test, precision), known).sum())
    by_chance = len(test) * counts[counts > 1].sum() / len(val)
    return shared if shared > 2 * by_chance else 0


def warn_of_shared_rows(val: Scores, test: Scores) -> None:
    """Warn of samples that are in both."""
    shared = shared_rows(val, test)
    if shared:
        warn(
            f"{shared} of {len(test)} test samples ({shared / len(test):.1%}) have the same {val.input} as a "
            "validation sample. If they are the same samples, test results look better than they are; use test samples "
            "that are not in the validation set."
        )


def _coarser(*sets: Scores) -> str:
    """Name the precision that all sets can be rounded to: that of the coarsest, and single precision at most."""
    types = [str(scores.values.dtype) for scores in sets]
    return next((name for name in ("bfloat16", "float16") if any(name in kind for kind in types)), "float32")


def _hashes(scores: Scores, precision: str) -> NDArray[np.int64]:
    rows = (row for chunk in _chunks(scores, precision) for row in chunk)
    return np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(scores))


def _chunks(scores: Scores, precision: str) -> Iterator[NDArray[np.floating[Any]]]:
    """Values rounded to a precision, so that copies in other precisions compare; -0.0 is 0.0."""
    for part in row_slices(len(scores), scores.n_classes):
        values = to_numpy(scores.values[part, :])
        with np.errstate(over="ignore", under="ignore"):
            if precision == "float16":
                yield values.astype(np.float16) + np.float16(0)
                continue
            single = values.astype(np.float32) + np.float32(0)
        if precision == "bfloat16":  # the upper half of the bits, rounded to even
            bits = single.view(np.uint32)
            single = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        yield single
