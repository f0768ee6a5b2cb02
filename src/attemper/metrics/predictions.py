"""Predictions: what metrics read from `Scores`, in the form that they need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.inputs import as_plain
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels.clusters import case_numbers


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """What was predicted for N samples, and what was true."""

    probs: NDArray[Any]  # N×K
    labels: Labels
    weights: Floats  # positive: a sample of weight 0 is left out
    log_likelihood: Floats  # log-probability of each label
    log_confidence: Floats | None = None  # of the most probable class, where logits were passed
    clusters: Labels | None = None  # number of the case that each sample is of; None: each is one
    groups: NDArray[Any] | None = None
    one_column: bool = False  # what was passed is the probability of the second of two classes

    @classmethod
    def of(
        cls, labels: Any, probs: Any, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None,
        clusters: Any = None, groups: Any = None,
    ) -> Predictions:  # fmt: skip
        """Check predictions against their labels, as `Scores.of` does."""
        if labels is not None:
            _check_order(labels, probs)
        ids = {"sample_weight": sample_weight, "clusters": clusters, "groups": groups}
        return cls.of_scores(Scores.of(probs, labels, input=input, classes=classes, **ids))

    @classmethod
    def of_scores(cls, scores: Scores, log_probs: Floats | None = None) -> Predictions:
        """Take the predictions of labelled scores, or log-probabilities that some map made of them."""
        if scores.labels is None:
            raise InputError("labels: a metric needs them", "labels")
        y, rows = scores.labels, np.arange(len(scores))
        case: dict[str, Any] = {"clusters": scores.cases, "groups": scores.groups, "one_column": scores.one_column}
        if scores.input == "probs" and log_probs is None:  # as they are: a probability of 0 stays 0
            p = to_numpy(scores.raw(slice(0, len(scores))))
            p = p if p.dtype.kind == "f" else p.astype(np.float64)
            with np.errstate(divide="ignore"):
                made = cls(p, y, scores.weights, np.minimum(np.log(p[rows, y].astype(np.float64)), 0.0), **case)
        else:
            log_p = log_softmax(scores.logits, axis=1) if log_probs is None else log_probs
            best = log_p.argmax(axis=1)
            probs = np.exp(log_p)
            rest = probs.sum(axis=1, where=np.arange(scores.n_classes) != best[:, None])
            # Of confidences near 1 the rest has all digits.
            top = np.where(rest < 0.5, np.log1p(-np.minimum(rest, 0.5)), np.minimum(log_p[rows, best], 0.0))
            likelihood = np.where(y == best, top, np.minimum(log_p[rows, y], 0.0))
            made = cls(probs, y, scores.weights, likelihood, top, **case)
            made.__dict__["prediction"] = best  # before exp rounds what is near 1
        return made if (made.weights > 0).all() else made.rows(made.weights > 0)

    def __len__(self) -> int:
        """Return N, the number of samples."""
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.probs.shape[1])

    @cached_property
    def prediction(self) -> NDArray[np.intp]:
        """The most probable class; the first, when tied."""
        return np.asarray(self.probs.argmax(axis=1))

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Where the most probable class is the label."""
        return np.asarray(self.prediction == self.labels)

    @cached_property
    def confidence(self) -> Floats:
        """Probability of the most probable class."""
        if self.log_confidence is not None:
            return np.exp(self.log_confidence)
        top = self.probs[np.arange(len(self)), self.prediction]
        return np.minimum(top.astype(np.float64), 1.0)

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        """Place of each confidence among all that occur, from the lowest; equal where tied."""
        key = self.confidence if self.log_confidence is None else self.log_confidence
        return case_numbers(key)

    @cached_property
    def squared_errors(self) -> Floats:
        """Squared error of each sample, summed over the classes; of one column that of the positive class."""
        losses = np.empty(len(self))
        for part in row_slices(len(self), self.n_classes):
            error = self.probs[part].astype(np.float64)  # a copy, even of float64
            error[np.arange(len(error)), self.labels[part]] -= 1
            losses[part] = error[:, 1] ** 2 if self.one_column else np.einsum("ik,ik->i", error, error)
        return losses

    @cached_property
    def errors(self) -> float:
        """Number of cases with a wrong prediction; the effective one (Kish) where they have weights."""
        w = self.weights[~self.right]
        if self.clusters is not None and len(w):
            w = np.bincount(self.clusters[~self.right], w).astype(np.float64)
        return float(w.sum() ** 2 / (w @ w)) if len(w) else 0.0

    @property
    def top(self) -> tuple[Floats, Floats]:
        """Confidence of the most probable class, and 1 where it is the label."""
        return self.confidence, self.right.astype(np.float64)

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """Probability and outcome that metrics are of: the positive class of one column, else the most probable one."""
        return self.of_class(1) if self.one_column else self.top

    def of_class(self, k: int) -> tuple[Floats, Floats]:
        """Probability of class k, and 1 where it is the label."""
        return np.minimum(self.probs[:, k].astype(np.float64), 1.0), (self.labels == k).astype(np.float64)

    def rows(self, rows: Any) -> Predictions:
        """Keep some samples."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "one_column"}
        kept: dict[str, Any] = {name: array[rows] for name, array in arrays.items() if array is not None}
        if "clusters" in kept:
            kept["clusters"] = case_numbers(kept["clusters"])
        made = replace(self, **kept)
        made.__dict__["prediction"] = self.prediction[rows]
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

    def drawing(self, rng: np.random.Generator, count: int, *, by_class: bool = False) -> Callable[..., NDArray[Any]]:
        """Return a function that draws outcomes, N×count, of chances and outcomes (N): as if the chances were right.

        ``by_class``: one label of each sample is drawn from the predictions for all classes ``k``. With clusters what
        outcomes differ from their chances gets a random sign, as nothing is known of the dependence inside.
        """
        if self.clusters is not None:
            sign = rng.choice((-1.0, 1.0), (count, int(self.clusters.max()) + 1))[:, self.clusters].T
            return lambda chance, right, k=0: chance[:, None] + sign * (right - chance)[:, None]
        if by_class:
            labels = self.draw_labels(rng, count).T
            return lambda chance, right, k=0: labels == k
        uniform = rng.random((count, len(self))).T
        return lambda chance, right, k=0: uniform < chance[:, None]


def _check_order(labels: Any, probs: Any) -> None:
    """Refuse what is surely the other one: fractions, or a matrix, where the probabilities are whole numbers."""
    if np.ndim(probs) > 1 and np.shape(probs)[1] > 1:
        return
    y, p = as_plain(labels), as_plain(probs)
    matrix = y.ndim == 2 and y.shape[1] > 1
    if (matrix or _has_fractions(y)) and not _has_fractions(p):
        raise InputError(
            f"labels and probs are swapped: got labels of shape {y.shape} and probs of shape {p.shape}. Metrics take "
            "(labels, probs), in scikit-learn's order.",
            "labels",
        )


def _has_fractions(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and bool((values != np.floor(values)).any())
