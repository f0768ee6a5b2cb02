"""Predictions: probabilities, labels and weights, checked once for every metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from attemper._checks import one_of
from attemper._typing import Floats, Labels
from attemper.data.arrays import RowName, is_foreign, numbered, one_line, row_slices, to_numpy
from attemper.data.ids import ids_of_rows
from attemper.data.label_matrix import check_classes
from attemper.data.labels import as_labels, as_weights
from attemper.data.layout import as_rows
from attemper.data.plausibility import SUMS, room_of_sums
from attemper.data.scores import LabelledScores, Scores
from attemper.data.soft import spread_labels
from attemper.errors import InputError, InputTypeError
from attemper.metrics.intervals import effective, too_few

__all__ = ["Input", "Predictions", "check_order", "names_of_labels"]

Input = Literal["probs", "log_probs", "logits"]

# Room for float16 and bfloat16, and for probabilities written with three decimals.
ROOM = 1e-3
PER_SAMPLE = ("prediction", "right", "confidence", "squared_errors")


WHAT = {"probs": "probabilities", "log_probs": "log-probabilities", "logits": "logits"}


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """What was predicted for N samples, and what was true.

    Make one with `of`; the constructor checks nothing.
    """

    __repr__ = one_line

    probs: NDArray[Any]  # N×K; N×0 where `without_probs` left what is below
    labels: Labels
    weights: Floats  # positive: a sample of weight 0 is left out
    log_likelihood: Floats  # log-probability of each label
    log_confidence: Floats | None = None  # of the most probable class, where log-probabilities are known
    clusters: Labels | None = None  # number of the case that each sample is of; None: each is one
    groups: NDArray[Any] | None = None  # id of the group that each sample is of

    @classmethod
    def of(
        cls,
        labels: Any,
        probs: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        input: Input = "probs",
        classes: Sequence[Any] | None = None,
        axis: int | None = None,
        ignore_index: int | None = None,
        clusters: Any = None,
        groups: Any = None,
    ) -> Predictions:
        """Check predictions against their labels. All metrics have these options.

        One column of ``probs``, N or N×1, is of the second of two classes, whose label is 1. Soft
        labels, N×K, make a row for each class with a share, weighted by it: a metric is the expectation over them.
        """
        one_of("input", input, WHAT)
        given = next((part for part in (probs, labels) if isinstance(part, Scores)), None)
        image = None if given is None else given.image
        if given is not None:
            clusters = given.cluster_ids if clusters is None else clusters
            groups = given.groups if groups is None else groups
        if given is not None and given.repeated is not None and sample_weight is not None:
            raise InputError(
                "sample_weight: these Scores have soft labels, whose shares are weights already. Use "
                "Scores.from_logits(logits, labels, sample_weight=…), or Scores.from_probs."
            )
        if isinstance(labels, Scores) or isinstance(probs, Scores) or probs is None:
            labels, probs, sample_weight, input, classes = _of_scores(labels, probs, sample_weight, input, classes)
        what = WHAT[input]
        check_order(labels, probs)
        check_classes(probs, classes, "probs")
        laid = as_rows(probs, what, labels, sample_weight, numbered(), axis=axis, ignore_index=ignore_index)
        if laid.images is not None:
            image = laid.images.image()
        n_samples = laid.values.shape[0]
        names = laid.names(classes)
        laid, sample, is_matrix = spread_labels(laid)
        sample_of = image if sample is None else sample
        ids = ids_of_rows(clusters, "clusters", laid, sample_of)
        ids = (sample if image is None else image) if ids is None else ids
        case = None if ids is None else np.unique(ids, return_inverse=True)[1]
        groups = ids_of_rows(groups, "groups", laid, sample_of)
        values, labels, sample_weight, name = to_numpy(laid.values), laid.labels, laid.weights, laid.name
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
        n, n_classes = values.shape
        names = None if is_matrix else names
        y = to_numpy(as_labels(labels, n, n_classes, names, name, one_column=laid.one_column))
        w = np.ones(n) if sample_weight is None else as_weights(sample_weight, n, name)
        if input == "logits":
            values = _log_softmax(values)
        logs = input != "probs"
        p = np.empty_like(values) if logs else values
        for rows in row_slices(n, n_classes):
            _check_range(values[rows], rows.start, what, logs, name)
            if logs:
                np.exp(values[rows], out=p[rows])
            _check_sums(p[rows], rows.start, what, logs, name)
        of_label = _entries(values, y)
        if not logs:
            with np.errstate(divide="ignore"):
                of_label = np.log(of_label)
        result = cls(p, y, w, np.minimum(of_label, 0.0), clusters=case, groups=groups)
        if logs:  # in double precision, and before exp rounds what is near 1
            best = values.argmax(axis=1)
            confidence = np.minimum(_entries(values, best), 0.0)
            result = replace(result, log_confidence=confidence)
            result.__dict__["prediction"] = best
        result = result if (w > 0).all() else result.rows(w > 0)
        if sample is not None:
            result.__dict__["n_samples"] = n_samples
        return result

    def __len__(self) -> int:
        """Return N, the number of samples."""
        return len(self.probs)

    @cached_property
    def n_samples(self) -> int:
        """How many samples there are: the rows, unless soft labels made several of one."""
        return len(self)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.probs.shape[1])

    @cached_property
    def prediction(self) -> NDArray[np.intp]:
        """The most probable class; the first, when tied."""
        return np.asarray(self.probs.argmax(axis=1))

    @cached_property
    def confidence(self) -> Floats:
        """Probability of the most probable class."""
        if self.log_confidence is not None:
            return np.exp(self.log_confidence)
        return np.minimum(_entries(self.probs, self.prediction), 1.0)

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        """Place of each confidence among all that occur, from the lowest; equal where tied."""
        key = self.confidence if self.log_confidence is None else self.log_confidence
        return np.unique(key, return_inverse=True)[1]

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Where the most probable class is the label."""
        return np.asarray(self.prediction == self.labels)

    @property
    def top(self) -> tuple[Floats, Floats]:
        """Confidence of the most probable class, and 1 where it is the label."""
        return self.confidence, self.right.astype(np.float64)

    @cached_property
    def squared_errors(self) -> Floats:
        """Squared error of each sample, summed over the classes."""
        losses = np.empty(len(self))
        for rows in row_slices(len(self), self.n_classes):
            error = self.probs[rows].astype(np.float64)  # a copy, even of float64
            error[np.arange(len(error)), self.labels[rows]] -= 1
            losses[rows] = np.einsum("ik,ik->i", error, error)
        return losses

    @cached_property
    def errors(self) -> float:
        """Number of wrong predictions, or of cases with one; the effective one (Kish) where they have weights."""
        if self.clusters is not None:
            return effective(self.of_cases(self.weights, ~self.right))
        if (self.weights == 1).all():
            return float(len(self) - np.count_nonzero(self.right))
        return effective(self.weights[~self.right])

    def few_errors(self) -> str:
        """Give the reason for no interval; empty where there are enough errors."""
        return too_few(self.errors, "errors" if self.clusters is None else "cases with errors")

    def of_cases(self, values: Floats, rows: NDArray[np.bool_] | None = None) -> Floats:
        """Sum over the samples of each case, or over some of them; cases without any are left out."""
        assert self.clusters is not None
        case, values = (self.clusters, values) if rows is None else (self.clusters[rows], values[rows])
        total = np.bincount(case, values).astype(np.float64) if len(case) else np.zeros(0)
        return total[total > 0]

    def without_probs(self) -> Predictions:
        """Keep a few numbers a sample: enough for all metrics but those of single classes."""
        made = replace(self, probs=self.probs[:, :0])
        made.__dict__.update({name: getattr(self, name) for name in PER_SAMPLE})
        return made

    def rows(self, rows: Any) -> Predictions:
        """Keep some samples, and what was computed of them."""
        arrays: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        made = replace(self, **{name: array[rows] for name, array in arrays.items() if array is not None})
        made.__dict__.update({name: self.__dict__[name][rows] for name in PER_SAMPLE if name in self.__dict__})
        return made

    def weighted(self, weights: Floats | None) -> Predictions:
        """Give the samples weights; those of weight 0 are left out."""
        if weights is None:
            return self
        made = replace(self, weights=weights)
        made.__dict__.update({name: self.__dict__[name] for name in PER_SAMPLE if name in self.__dict__})
        return made if (weights > 0).all() else made.rows(weights > 0)

    def grouped(self, groups: NDArray[Any]) -> Predictions:
        """Give the samples groups."""
        made = replace(self, groups=groups)
        made.__dict__.update({name: self.__dict__[name] for name in PER_SAMPLE if name in self.__dict__})
        return made

    def draw_labels(self, rng: np.random.Generator, count: int) -> Labels:
        """Draw a label for each sample from its probabilities, ``count`` times: count×N, a chunk of rows at a time."""
        uniform = rng.random((count, len(self)))
        labels = np.empty(uniform.shape, dtype=np.int64)
        for chunk in row_slices(len(self), self.n_classes):
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


def _entries(values: NDArray[Any], column: NDArray[Any]) -> Floats:
    """One number of each row, in double precision."""
    return np.asarray(values[np.arange(len(values)), column], dtype=np.float64)


def check_order(labels: Any, probs: Any) -> None:
    """Refuse what is surely the other one: a matrix of labels, or fractions, where the probabilities are labels."""
    first, second = _shape(labels), _shape(probs)
    if not second or second[1:] not in ((), (1,)):
        return
    matrix = len(first) == 2 and first[1] > 1
    # One column of probabilities has two classes; where it holds nothing but whole numbers, it is the labels.
    if (matrix and first[1] > 2) or ((matrix or _has_fractions(labels)) and not _has_fractions(probs)):
        raise InputTypeError(
            "labels and probs are swapped: expected labels of shape (N,) and probabilities of shape (N, K), or (N,) of "
            f"two classes; got labels of shape {first} and probs of shape {second}. Use the keywords labels=… and "
            "probs=…; metrics take (labels, probs), in scikit-learn's order."
        )


def _of_scores(
    labels: Any, probs: Any, sample_weight: Any, input: Input, classes: Sequence[Any] | None
) -> tuple[Any, Any, Any, Input, Sequence[Any] | None]:
    """Take labels, probabilities and weights out of `Scores`; arrays that are passed as well replace them."""
    if sample_weight is None:
        given = (part.weights for part in (labels, probs) if isinstance(part, Scores))
        sample_weight = next((weights for weights in given if weights is not None), None)
    of_scores = isinstance(labels, Scores)
    if isinstance(labels, Scores):
        if not isinstance(labels, LabelledScores):
            raise InputTypeError(
                "labels: expected one label per row, got a Scores that has none. Use (labels, scores), or pass labels "
                "to Scores.from_logits or Scores.from_probs."
            )
        probs = labels if probs is None else probs
        labels, classes = labels.labels, None  # column numbers
    if probs is None:
        name = type(labels).__name__
        advice = "scores.load()" if name == "ScoreFiles" else "(labels, probs)"
        raise InputTypeError(
            f"probs: expected an N×K array after labels, or a LabelledScores for both, got {name} alone. Use {advice}."
        )
    if isinstance(probs, Scores):
        if classes is None and not of_scores:
            classes = names_of_labels(labels, probs.classes)
        if input not in ("probs", probs.input):
            raise InputError(f"input={input!r}: expected input={probs.input!r}, as the Scores has. Leave it out.")
        as_they_are = probs.input == "probs" and probs.zeros_as is None
        probs, input = (probs.values, "probs") if as_they_are else (probs.logits, "logits")
    return labels, probs, sample_weight, input, classes


def names_of_labels(labels: Any, classes: Sequence[Any] | None) -> Sequence[Any] | None:
    """Return the classes that labels are named by; None for column numbers, which no class is called by.

    >>> names_of_labels(["b", "a"], ["a", "b"]), names_of_labels([1, 0], ["a", "b"]), names_of_labels([1, 0], [1, 0])
    (['a', 'b'], None, [1, 0])
    """
    if classes is None or any(isinstance(name, Real) for name in classes):
        return classes
    try:
        array = to_numpy(labels) if is_foreign(labels) else np.asarray(labels)
    except (RuntimeError, TypeError, ValueError):  # refused later
        return None
    items = array.tolist() if array.ndim == 1 and array.dtype.kind not in "biuf" else []
    return classes if any(isinstance(item, str) for item in items) else None


def _shape(values: Any) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in (values.shape if hasattr(values, "shape") else np.shape(values)))
    except (RuntimeError, TypeError, ValueError):  # a nested tensor or a ragged list, which is refused later
        return ()


def _has_fractions(values: Any) -> bool:
    """Whether these are numbers that are not all whole."""
    try:
        array = to_numpy(values) if is_foreign(values) else np.asarray(values)
        return array.dtype.kind in "fV" and bool((array != np.floor(array)).any())
    except (RuntimeError, TypeError, ValueError):  # refused later
        return False


def _log_softmax(h: NDArray[Any]) -> NDArray[Any]:
    """In single precision or better; a row without a finite maximum stays what it is, and is refused."""
    h = h if h.dtype.itemsize >= 4 else h.astype(np.float32)
    with np.errstate(invalid="ignore"):
        return np.asarray(log_softmax(h, axis=1))


HINT = ' Pass probabilities, such as calibrator.predict_proba(logits). Metrics also take input="logits" or "log_probs".'


def _check_range(values: NDArray[Any], first_row: int, what: str, logs: bool, name: RowName) -> None:
    low, high = (-np.inf, float(np.log1p(ROOM))) if logs else (0.0, 1 + ROOM)
    if values.min() >= low and values.max() <= high:  # false for NaN too
        return
    row, column = np.argwhere(~((values >= low) & (values <= high)))[0]
    if what == "logits":
        raise InputError(f"{what}: {name(first_row + row)} has no softmax: expected finite numbers, or −inf for a mask")
    expected = "at most 0" if logs else "from 0 to 1"
    got = values[row, column]
    hint = "" if logs or np.isnan(got) else HINT
    raise InputError(
        f"{what}: {name(first_row + row)}, column {column}: expected a number {expected}, got {got}.{hint}"
    )


def _check_sums(p: NDArray[Any], first_row: int, what: str, logs: bool, name: RowName) -> None:
    sums = np.einsum("ik->i", p, dtype=np.float64)  # rows are short, where `sum` is slow
    off = np.flatnonzero(np.abs(sums - 1) > room_of_sums(p.shape[1]))
    if off.size:
        row, total = name(first_row + off[0]), sums[off[0]]
        if logs:
            raise InputError(f"{what}: {row} sums to {total:.6g} after exp; expected 1.")
        raise InputError(f"{what}: {row} sums to {total:.6g}; expected 1. {SUMS}")
