"""Counts of predictions: how often each class was predicted, how confidently, and with labels for which true class."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper._json import Fields, read_document, write_document
from attemper._typing import Floats, Labels
from attemper.data.arrays import one_line
from attemper.errors import FileError, InputError

__all__ = ["MAX_CLASSES", "PredictionCounts"]

MAX_CLASSES = 1024  # with counts at all
PREDICTED_CLASSES = 32  # up to which cells are by predicted class; beyond, the confidence alone
EDGES = np.array([0.5, 0.8, 0.95, 0.99])  # of the confidence, between cells
BINS = len(EDGES) + 1


@dataclass(frozen=True, eq=False, repr=False)
class PredictionCounts:
    """Calibrated predictions of many samples in a small table that adds up.

    A cell is a predicted class (up to 32 classes) and a range of its probability: below 0.5, 0.8, 0.95, 0.99, and
    above. Counts of two data sets add, so that sites or days need not share rows.

    Examples
    --------
    >>> a = PredictionCounts.of(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
    >>> b = PredictionCounts.of(np.array([[0.2, 0.8]]), np.array([1]))
    >>> (a + b).mean, (a + b).confusion
    (array([0.5, 0.5]), array([[1., 0.],
           [0., 2.]]))
    """

    __repr__ = one_line

    weight: float  # of all samples
    sums: Floats  # of the probabilities of each class
    counts: Floats  # of each cell; with labels cells × classes. Clusters count as one sample

    @classmethod
    def of(
        cls,
        probs: Floats,
        labels: Labels | None = None,
        *,
        sample_weight: Floats | None = None,
        clusters: Any = None,
        cluster_weight: Floats | None = None,
    ) -> PredictionCounts:
        """Count N×K calibrated probabilities, as NumPy arrays; ``labels`` are column numbers.

        Rows of a larger table come with ``cluster_weight``, what all rows of their cluster weigh there.
        """
        n, k = probs.shape
        if k > MAX_CLASSES:
            raise InputError(f"probs: expected at most {MAX_CLASSES} classes, got {k}")
        w = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        cells = np.searchsorted(EDGES, probs.max(axis=1), side="right")
        if k <= PREDICTED_CLASSES:
            cells = probs.argmax(axis=1) * BINS + cells
        size = n_cells(k)
        if clusters is not None:
            cluster_weight = weight_of_cluster(clusters, w)
        once = w if cluster_weight is None else w / cluster_weight
        if labels is None:
            counts = np.bincount(cells, once, size)
        else:
            counts = np.bincount(cells * k + labels, once, size * k).reshape(size, k)
        return cls(float(w.sum()), np.asarray(w @ probs, dtype=np.float64), counts.astype(np.float64))

    def __add__(self, other: PredictionCounts) -> PredictionCounts:
        """Count both data sets together."""
        if not isinstance(other, PredictionCounts):
            return NotImplemented
        if self.counts.shape != other.counts.shape:
            raise InputError(
                f"counts of shapes {self.counts.shape} and {other.counts.shape} cannot be added: expected the same "
                "classes, and labels in both or in neither"
            )
        return PredictionCounts(self.weight + other.weight, self.sums + other.sums, self.counts + other.counts)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.sums)

    @property
    def labelled(self) -> bool:
        """Whether labels were counted."""
        return self.counts.ndim == 2

    @property
    def n_samples(self) -> float:
        """How many independent samples there are: clusters count as one."""
        return float(self.counts.sum())

    @property
    def mean(self) -> Floats:
        """Mean prediction of each class."""
        return self.sums / self.weight

    @property
    def confusion(self) -> Floats | None:
        """Counts of predicted × true class, or without labels of the predicted class; None for more than 32 classes."""
        if self.n_classes > PREDICTED_CLASSES:
            return None
        return np.asarray(self.counts.reshape(self.n_classes, BINS, *self.counts.shape[1:]).sum(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers; cells that are empty are left out."""
        used = np.flatnonzero(self.counts.reshape(len(self.counts), -1).sum(axis=1))
        return {
            "weight": self.weight,
            "sums": self.sums.tolist(),
            "labelled": self.labelled,
            "cells": used.tolist(),
            "counts": self.counts[used].tolist(),
        }

    @classmethod
    def from_fields(cls, content: Fields) -> PredictionCounts:
        """Read back what `to_dict` gave; everything is checked."""
        sums = content.array("sums", (-1,))
        k = len(sums)
        if not 2 <= k <= MAX_CLASSES:
            raise FileError(f"{content.where}: {k} classes; expected 2 to {MAX_CLASSES}")
        labelled = content.boolean("labelled")
        cells = content.array("cells", (-1,))
        found = content.array("counts", (len(cells), k) if labelled else (len(cells),))
        weight = content.number("weight")
        fits = (cells == np.floor(cells)) & (cells >= 0) & (cells < n_cells(k))
        if not (fits.all() and len(np.unique(cells)) == len(cells) and (found >= 0).all() and (sums >= 0).all()):
            raise FileError(f"{content.where}: its numbers contradict each other; not counts of predictions")
        if not (weight > 0 and abs(sums.sum() - weight) <= 1e-3 * weight and found.sum() > 0):
            raise FileError(f"{content.where}: its sums contradict each other; not counts of predictions")
        counts = np.zeros((n_cells(k), k) if labelled else n_cells(k))
        counts[cells.astype(int)] = found
        return cls(weight, sums, counts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts as JSON, atomically."""
        write_document(path, "prediction counts", self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PredictionCounts:
        """Read counts that `save` wrote."""
        return cls.from_fields(read_document(path, "prediction counts"))


def n_cells(n_classes: int) -> int:
    """Return how many cells there are."""
    return BINS * (n_classes if n_classes <= PREDICTED_CLASSES else 1)


def weight_of_cluster(clusters: Any, weights: Floats) -> Floats:
    """Return, for each row, what all rows of its cluster weigh."""
    _, code = np.unique(np.asarray(clusters), return_inverse=True)
    return np.asarray(np.maximum(np.bincount(code.reshape(-1), weights), 1e-300)[code.reshape(-1)])
