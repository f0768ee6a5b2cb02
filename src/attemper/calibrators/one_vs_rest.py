"""One class against the others: K problems of two classes, or one where K = 2.

A sample in which a class is masked, or alone possible, carries no information about that class: whatever is fitted, the
map gives it 0 or 1 there. Such samples are left out of that class's problem, and samples of weight zero out of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices
from attemper.data.scores import LabelledScores

__all__ = ["Block", "OneVsRest", "Problem"]


class Problem(NamedTuple):
    """One class against the others."""

    x: Floats  # what the classifier said of the class, for each sample
    positive: NDArray[np.bool_]  # whether the sample is of the class
    w: Floats


class Block(NamedTuple):
    """Several problems side by side, C×N; a sample without information about a class has weight zero there."""

    rows: NDArray[np.intp]  # which problems these are
    x: Floats
    positive: NDArray[np.bool_]
    w: Floats


@dataclass(frozen=True)
class OneVsRest:
    """All problems, one row of ``x`` for each; NaN where a sample has no information about a class."""

    x: Floats
    labels: Labels
    weights: Floats
    classes: range  # of the rows: class 1 alone where K = 2

    @classmethod
    def of(cls, scores: LabelledScores, function: Callable[[Any, Any], Any]) -> OneVsRest:
        """Apply ``function(logits, namespace)`` to the rows, and turn them into columns; N×K doubles are held."""
        n_classes = scores.n_classes
        classes = range(1, 2) if n_classes == 2 else range(n_classes)
        x = np.empty((len(classes), len(scores)))
        for part, h in scores.chunks():
            with np.errstate(divide="ignore"):
                value = function(h, np)
            if scores.masked:
                possible = h > -np.inf
                value[~(possible & (possible.sum(axis=1, keepdims=True) > 1))] = np.nan
            x[:, part] = value.T[classes.start : classes.stop]
        w = np.ones(len(scores)) if scores.weights is None else scores.weights
        some = w > 0
        if some.all():
            return cls(x, scores.labels, w, classes)
        return cls(x[:, some], scores.labels[some], w[some], classes)

    def __iter__(self) -> Iterator[Problem]:
        """Give the problems one by one, each with its own samples only."""
        for k, x in zip(self.classes, self.x):
            known = ~np.isnan(x)
            if known.all():
                yield Problem(x, self.labels == k, self.weights)
            else:
                yield Problem(x[known], self.labels[known] == k, self.weights[known])

    def blocks(self) -> Iterator[Block]:
        """Give as many problems at once as stay in the cache; those without samples are left out."""
        for part in row_slices(*self.x.shape):
            rows = np.arange(part.start, part.stop)
            rows = rows[~np.isnan(self.x[rows]).all(axis=1)]
            if len(rows):
                x = self.x[rows]
                known = ~np.isnan(x)
                positive = self.labels == rows[:, None] + self.classes.start
                yield Block(rows, np.where(known, x, 0.0), positive, np.where(known, self.weights, 0.0))
