"""Cross-validation: the losses of samples that were held out from a fit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores
from attemper.errors import AttemperWarning
from attemper.maps import Map, ScaleMap
from attemper.metrics.intervals import LEAST_ERRORS, effective, too_few

__all__ = ["HeldOut", "assign_folds", "effective_errors"]


class HeldOut:
    """Losses of validation samples by the fit on the other folds, method by method.

    ``reason`` is why validation data cannot select; there are no folds then. ``no_errors``: no prediction is wrong.
    """

    def __init__(
        self, val: LabelledScores, clusters: NDArray[Any] | None, n_folds: int, noisy: bool, seed: int
    ) -> None:
        w = np.ones(len(val)) if val.weights is None else val.weights
        rows = slice(None) if (w > 0).all() else w > 0  # weight zero times an infinite loss would be NaN
        self.weights = w[rows]
        self.clusters = None if clusters is None else clusters[rows]
        errors = effective_errors(val, clusters)
        self.reason = ""
        self.no_errors = errors == 0
        if noisy:
            self.reason = "labels that may be wrong cannot select, as they favour maps that are too soft"
        elif n_folds == 0:
            self.reason = "no cross-validation was asked for"
        elif too_few(errors):
            what = "errors" if clusters is None else "cases with errors"
            self.reason = f"VAL has too few {what} to select by: {errors:.4g}, and {LEAST_ERRORS} are needed"
        cases = len(self.weights) if self.clusters is None else len(np.unique(self.clusters))
        self.n_folds = 0 if self.reason else min(n_folds, cases)
        self.losses: dict[str, Floats] = {}
        if self.n_folds:
            self.scores = _rows_of(replace(val, values=to_numpy(val.values), y=val.labels, device=None), rows)
            self.folds = assign_folds(self.scores.labels, self.n_folds, seed, self.clusters)

    def add(self, name: str, calibrator: Calibrator | None) -> None:
        """Fit a method without each fold in turn; None is no calibration.

        A map that gives a class the probability 0, though its logit is finite, will meet a label of that class one day:
        its losses are infinite.
        """
        if not self.n_folds:
            return
        losses = np.empty(len(self.weights))
        for fold in range(self.n_folds):
            rows = np.flatnonzero(self.folds == fold)
            held, fitted = _rows_of(self.scores, rows), self._fitted_without(fold, calibrator)
            for part, h in held.chunks():
                log_p = fitted.log_apply(h)
                zero = (np.isneginf(log_p) & ~np.isneginf(h)).any()
                losses[rows[part]] = np.inf if zero else -log_p[np.arange(len(h)), held.labels[part]]
        self.losses[name] = losses

    def _fitted_without(self, fold: int, calibrator: Calibrator | None) -> Map:
        if calibrator is None:
            return ScaleMap(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AttemperWarning)  # which the fit on all samples gives too
            fitted: Calibrator = clone(calibrator).fit(_rows_of(self.scores, np.flatnonzero(self.folds != fold)))
        return fitted.map_


def assign_folds(labels: Labels, n_folds: int, seed: int, clusters: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return the fold of each sample: classes spread evenly, a cluster never divided, drawn with the seed.

    Clusters are sorted by the label that they have first, then by size, then at random, and dealt out in turn. Without
    clusters each sample is one.

    >>> assign_folds(np.array([0, 0, 1, 1, 1, 1]), 2, seed=0)
    array([1, 0, 1, 0, 0, 1])
    >>> assign_folds(np.array([0, 0, 1, 1, 1, 1]), 2, seed=0, clusters=np.array([7, 7, 7, 8, 9, 9]))
    array([0, 0, 0, 1, 0, 0])
    """
    rows = np.arange(len(labels)) if clusters is None else clusters
    _, first, case, size = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((np.random.default_rng(seed).random(len(first)), size, labels[first]))
    fold = np.empty(len(first), dtype=np.int64)
    fold[order] = np.arange(len(first)) % n_folds
    return fold[case]


def effective_errors(scores: LabelledScores, clusters: NDArray[Any] | None) -> float:
    """How many wrong predictions there are, as far as weights and clusters make them worth one each."""
    wrong = scores.backend.tops() != scores.labels
    w = (np.ones(len(scores)) if scores.weights is None else scores.weights)[wrong]
    if clusters is not None and len(w):
        _, case = np.unique(clusters[wrong], return_inverse=True)
        w = np.bincount(case, w)
    return effective(w[w > 0])


def _rows_of(scores: LabelledScores, rows: Any) -> LabelledScores:
    return replace(scores, values=scores.values[rows], y=scores.y[rows], **scores.entries(rows))
