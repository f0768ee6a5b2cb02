"""Metrics of labels that do not exclude each other: of each label, of all entries (micro) and their mean (macro)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from attemper._checks import one_of
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import to_numpy
from attemper.data.label_matrix import (
    Uncertain,
    as_label_probs,
    as_label_scores,
    check_columns,
    label_matrix,
    label_names,
)
from attemper.data.labels import as_weights
from attemper.errors import InputError
from attemper.metrics.bins import Bins
from attemper.metrics.bootstrap import Statistic, estimate_all
from attemper.metrics.calibration import ece
from attemper.metrics.intervals import Estimate, too_few
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import brier, nll

__all__ = ["LabelMetrics", "LabelRow", "label_metrics"]

NO_ENTRIES = "no entry is known"


class LabelRow(NamedTuple):
    """Metrics of one label, or of all (micro, macro): a row of what `label_metrics` returns."""

    label: str
    n_known: float  # entries; sums of weights
    prevalence: float  # share of positives among them
    nll: float | Estimate
    brier: float | Estimate  # of the label's probability, from 0 to 1: half of `brier` of two classes
    ece: float | Estimate  # kind "binary"


@dataclass(frozen=True)
class LabelMetrics(Table):
    """Metrics of each label, and of all of them: `label_metrics` returns it.

    ``micro`` is taken over all known entries; ``macro`` is the mean over the labels, each of which counts alike.
    """

    by_label: tuple[LabelRow, ...]
    micro: LabelRow
    macro: LabelRow

    def __getitem__(self, label: str) -> LabelRow:
        """Return the row of a label, "micro" or "macro"."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def rows(self) -> tuple[LabelRow, ...]:
        """All rows: the labels, micro, macro."""
        return (*self.by_label, self.micro, self.macro)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            row.label: {k: v.to_dict() if isinstance(v, Estimate) else v for k, v in row._asdict().items()}
            for row in self.rows
        }

    def _table_columns(self) -> Columns:
        return {name: [getattr(row, name) for row in self.rows] for name in LabelRow._fields}


class _Entries(NamedTuple):
    """Known entries: a soft label is two of them, which are one case."""

    row: NDArray[np.int64]
    y: NDArray[np.int64]
    p: Floats
    w: Floats

    @classmethod
    def of(cls, y: Floats, p: Floats, w: Floats) -> _Entries:
        row = np.broadcast_to(np.arange(len(y))[:, None], y.shape)
        parts = []
        for label, share in ((0, 1 - y), (1, y)):
            known = share > 0  # false where it is NaN
            known &= w[row] > 0
            parts.append((row[known], np.full(int(known.sum()), label), p[known], (w[row] * share)[known]))
        rows, labels, probs, weights = (np.concatenate(columns) for columns in zip(*parts))
        order = np.argsort(rows, kind="stable")
        return cls(rows[order], labels[order], probs[order], weights[order])

    def predictions(self, *, cases: bool) -> Predictions:
        """Return them as two classes; ``cases``: entries of one row are drawn together."""
        pairs = np.column_stack([1 - self.p, self.p])
        return Predictions.of(self.y, pairs, self.w, clusters=self.row if cases else None)


def label_metrics(
    labels: Any,
    probs: Any,
    *,
    input: Literal["probs", "logits"] = "probs",
    mask: Any = None,
    uncertain: Uncertain = None,
    label_names: Sequence[Any] | None = None,
    sample_weight: Any = None,
    n_bins: Bins = 15,
    confidence_level: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> LabelMetrics:
    """Metrics by label, micro and macro, of a multi-label classifier.

    Parameters
    ----------
    labels : array or data frame of shape (N, L)
        1, 0, or NaN where it is not known; see `attemper.label_matrix`, which explains ``mask`` and ``uncertain`` too.
    probs : array or data frame of shape (N, L)
        Probabilities of the labels, or their log-odds with ``input="logits"``.
    label_names : sequence of names, optional
        By default those of the columns of a data frame, or numbers.
    sample_weight : array of shape (N,), optional
    n_bins : int or "auto"
        Bins of the ECE, as in `ece`.
    confidence_level : float, optional
        Such as 0.95: with intervals, as those of `nll` and `ece`. Those of micro and macro come from resampling
        samples, not entries: the labels of one sample are not independent.
    n_resamples, seed : int
        As in `nll`.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([[1, 0], [0, np.nan], [1, 1], [0, 0]])
    >>> probs = np.array([[0.8, 0.1], [0.3, 0.5], [0.6, 0.7], [0.1, 0.2]])
    >>> found = label_metrics(labels, probs, label_names=["edema", "hernia"])
    >>> found["hernia"].n_known, round(found["hernia"].nll, 4), round(found.macro.brier, 4)
    (3.0, 0.2284, 0.0608)
    """
    one_of("input", input, ("probs", "logits"))
    names, y, p = checked_labels(labels, probs, label_names, input=input, mask=mask, uncertain=uncertain)
    w = np.ones(len(y)) if sample_weight is None else as_weights(sample_weight, len(y))
    columns = [_Entries.of(y[:, [k]], p[:, [k]], w) for k in range(len(names))]
    found = [own.predictions(cases=bool(np.any(np.diff(own.row) == 0))) for own in columns if len(own.y)]
    if not found:
        raise InputError(f"labels: {NO_ENTRIES}, so there is nothing to measure")
    given = (confidence_level, n_resamples, seed)
    rows, rest = [], iter(found)
    for name, own in zip(names, columns):
        if not len(own.y):
            rows.append(LabelRow(name, 0.0, np.nan, np.nan, np.nan, np.nan))
            continue
        rows.append(_row(name, next(rest), n_bins, *given))
    micro = _row("micro", _Entries.of(y, p, w).predictions(cases=True), n_bins, *given)
    return LabelMetrics(tuple(rows), micro, _macro(rows, columns, found, w, n_bins, *given))


def checked_labels(
    labels: Any,
    probs: Any,
    names: Sequence[Any] | None,
    *,
    input: Literal["probs", "logits"] = "probs",
    mask: Any = None,
    uncertain: Uncertain = None,
) -> tuple[list[str], Floats, Floats]:
    """Return names, labels and probabilities of labels that do not exclude each other."""
    check_columns(probs, labels, "probs", "labels")
    own = names if names is not None else getattr(labels, "columns", getattr(probs, "columns", None))
    values = np.asarray(probs) if hasattr(probs, "columns") else probs
    if input == "logits":
        p = expit(to_numpy(as_label_scores(values, own)).astype(np.float64))
    else:
        p = to_numpy(as_label_probs(values, own, logs=False)).astype(np.float64)
    found = label_names(names, p.shape[1], labels, probs)
    return found, label_matrix(labels, mask=mask, uncertain=uncertain, names=found, shape=p.shape), p


def _statistics(p: Predictions, n_bins: Bins) -> dict[str, Statistic]:
    return {
        "nll": nll.statistic(p),
        "brier": brier.statistic(p),
        "ece": ece.statistic(p, kind="binary", n_bins=n_bins),
    }


def _row(
    name: str, p: Predictions, n_bins: Bins, confidence_level: float | None, n_resamples: int, seed: int
) -> LabelRow:
    found: dict[str, Any]
    if confidence_level is None:
        found = {key: s.at(p.weights) for key, s in _statistics(p, n_bins).items()}
    else:
        found = dict(estimate_all(_statistics(p, n_bins), p.weights, confidence_level, n_resamples, seed, p.clusters))
    found["brier"] = _halved(found["brier"])
    known = float(p.weights.sum())
    return LabelRow(name, known, float(p.weights[p.labels == 1].sum()) / known, **found)


def _macro(
    rows: list[LabelRow],
    columns: list[_Entries],
    found: list[Predictions],
    w: Floats,
    n_bins: Bins,
    confidence_level: float | None,
    n_resamples: int,
    seed: int,
) -> LabelRow:
    """Return means over the labels that have known entries; whole samples are drawn."""
    known = [own for own in columns if len(own.y)]
    shares = [own.w / w[own.row] for own in known]  # 1, or less where a label is soft
    each = [_statistics(p, n_bins) for p in found]
    reason = too_few(sum(p.errors for p in found))

    def mean(key: str) -> Callable[[Floats], Floats]:
        def value(weights: Floats) -> Floats:
            with np.errstate(invalid="ignore", divide="ignore"):  # a label of which a resample has no entry
                parts = [s[key].value(weights[o.row] * q[:, None]) for s, o, q in zip(each, known, shares)]
            return np.asarray(np.nanmean(parts, axis=0))

        return value

    statistics = {key: Statistic(mean(key), None if key == "ece" else _percentile, reason) for key in each[0]}
    means: dict[str, Any]
    if confidence_level is None:
        means = {key: s.at(w) for key, s in statistics.items()}
    else:
        cases = np.arange(len(w))
        means = dict(estimate_all(statistics, w, confidence_level, n_resamples, seed, cases))
    means["brier"] = _halved(means["brier"])
    shown = [row for row in rows if row.n_known]
    prevalence = float(np.mean([row.prevalence for row in shown]))
    return LabelRow("macro", float(sum(row.n_known for row in shown)), prevalence, **means)


def _percentile(value: float, weights: Floats, level: float) -> Estimate:
    """Mark a mean, whose interval is that of percentiles: `estimate_all` with clusters never calls it."""
    raise AssertionError


def _halved(value: float | Estimate) -> float | Estimate:
    if isinstance(value, Estimate):
        return Estimate(value.value / 2, value.low / 2, value.high / 2, value.note)
    return value / 2
