"""Predictions: probabilities, labels and weights, checked once for every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import CHUNK_ELEMENTS, Floats, Labels, as_labels, as_matrix, as_weights, to_numpy
from attemper.errors import InputError, InputTypeError
from attemper.metrics.intervals import effective
from attemper.plausibility import SUMS, room_of_sums
from attemper.scores import Scores

__all__ = ["Predictions", "metric"]

# Room for float16 and bfloat16, and for probabilities written with three decimals.
ROOM = 1e-3

P = ParamSpec("P")
R = TypeVar("R")


def metric(function: Callable[P, R]) -> Callable[P, R]:
    """Make a metric refuse a `Scores`, also where labels are left out, as it holds them already."""

    @wraps(function)
    def checked(*args: P.args, **more: P.kwargs) -> R:
        _reject_scores(*args, *more.values())
        return function(*args, **more)

    return checked


def _reject_scores(*values: Any) -> None:
    if any(isinstance(value, Scores) for value in values):
        raise InputTypeError(
            "probabilities: expected an N×K array, got a Scores. Use calibrator.predict_proba(scores) and "
            "scores.labels; without a calibrator ScaleMap(1.0).apply(scores.logits)."
        )


@dataclass(frozen=True, eq=False)
class Predictions:
    """What was predicted for N samples, and what was true.

    Make one with `of`; the constructor checks nothing.
    """

    probs: NDArray[Any]  # N×K
    labels: Labels
    weights: Floats  # positive: a sample of weight 0 is left out
    log_likelihood: Floats  # log-probability of each label

    @classmethod
    def of(
        cls,
        probs: ArrayLike | Any,
        labels: ArrayLike | Any,
        sample_weight: ArrayLike | None = None,
        *,
        log_probs: bool = False,
    ) -> Predictions:
        """Check probabilities (or their logarithms) against their labels."""
        _reject_scores(probs)
        what = "log-probabilities" if log_probs else "probabilities"
        values = to_numpy(as_matrix(probs, what))
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
        n, n_classes = values.shape
        y = as_labels(labels, n, n_classes, takes_classes=False)
        w = np.ones(n) if sample_weight is None else as_weights(sample_weight, n)
        p = np.empty_like(values) if log_probs else values
        for rows in row_chunks(n, n_classes):
            _check_range(values[rows], rows.start, what)
            if log_probs:
                np.exp(values[rows], out=p[rows])
            _check_sums(p[rows], rows.start, what)
        of_label = values[np.arange(n), y].astype(np.float64)
        if not log_probs:
            with np.errstate(divide="ignore"):
                of_label = np.log(of_label)
        result = cls(p, y, w, np.minimum(of_label, 0.0))
        return result if (w > 0).all() else result._rows(w > 0)

    def __len__(self) -> int:
        """Return N, the number of samples."""
        return len(self.probs)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.probs.shape[1])

    @cached_property
    def top(self) -> tuple[Floats, Floats]:
        """Confidence of the most probable class (the first, when tied), and 1 where it is the label."""
        best = self.probs.argmax(axis=1)
        confidence = np.minimum(self.probs[np.arange(len(self)), best].astype(np.float64), 1.0)
        return confidence, (best == self.labels).astype(np.float64)

    @cached_property
    def errors(self) -> float:
        """Number of wrong predictions; the effective one (Kish) where they have weights."""
        return effective(self.weights[self.top[1] == 0])

    def draw_labels(self, rng: np.random.Generator, count: int) -> Labels:
        """Draw a label for each sample from its probabilities, ``count`` times: count×N, a chunk of rows at a time."""
        uniform = rng.random((count, len(self)))
        labels = np.empty(uniform.shape, dtype=np.int64)
        for chunk in row_chunks(len(self), self.n_classes):
            reached = np.cumsum(self.probs[chunk], axis=1, dtype=np.float64)
            rows = np.arange(len(reached))
            # One ascending list for all rows: row i goes from i to i + 1.
            line = (rows[:, None] + reached / reached[:, -1:]).ravel()
            place = np.searchsorted(line, rows + uniform[:, chunk], side="right")
            labels[:, chunk] = np.minimum(place - rows * self.n_classes, self.n_classes - 1)
        return labels

    def of_class(self, k: int) -> tuple[Floats, Floats]:
        """Probability of class k, and 1 where it is the label."""
        return np.minimum(self.probs[:, k].astype(np.float64), 1.0), (self.labels == k).astype(np.float64)

    def _rows(self, rows: NDArray[np.bool_]) -> Predictions:
        return Predictions(self.probs[rows], self.labels[rows], self.weights[rows], self.log_likelihood[rows])


def row_chunks(n: int, n_classes: int) -> Iterator[slice]:
    """Cut the rows into chunks that stay in the cache."""
    rows = max(1, CHUNK_ELEMENTS // n_classes)
    return (slice(first, min(first + rows, n)) for first in range(0, n, rows))


def _check_range(values: NDArray[Any], first_row: int, what: str) -> None:
    logs = what == "log-probabilities"
    low, high = (-np.inf, float(np.log1p(ROOM))) if logs else (0.0, 1 + ROOM)
    if values.min() >= low and values.max() <= high:  # false for NaN too
        return
    row, column = np.argwhere(~((values >= low) & (values <= high)))[0]
    expected = "they are at most 0" if logs else "they lie between 0 and 1"
    hint = "" if logs else " Logits need a softmax first; nll and evaluate take log_probs=True."
    raise InputError(f"{what}: row {first_row + row}, column {column} is {values[row, column]}; {expected}.{hint}")


def _check_sums(p: NDArray[Any], first_row: int, what: str) -> None:
    sums = p.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(np.abs(sums - 1) > room_of_sums(p.shape[1]))
    if off.size:
        row, total = first_row + off[0], sums[off[0]]
        if what == "log-probabilities":
            raise InputError(f"{what}: row {row} sums to {total:.6g} after exp; expected 1.")
        raise InputError(f"{what}: row {row} sums to {total:.6g}; expected 1. {SUMS}")
