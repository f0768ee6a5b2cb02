"""Metrics of a stream: sums that grow with every batch, in memory that does not.

Accuracy, NLL and Brier score are means; a calibration error in bins of equal width is a function of three sums for
each bin. So all of them are known exactly after any number of samples. Their intervals need resamples that can be
drawn before the number of samples is known: in the Poisson bootstrap each sample comes into each resample as often as
a Poisson law of mean 1 gives, whatever the other samples are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import poisson

from attemper._checks import fraction, whole
from attemper._json import read_document, to_fields, values_of, write_document
from attemper._table import Columns, Table, as_list
from attemper._typing import Floats
from attemper.data.arrays import row_slices
from attemper.data.forgetting import check_half_life, fade
from attemper.errors import FileError, InputError, NotFittedError
from attemper.metrics.bins import bin_sums, check_bins, error_of, uniform_edges
from attemper.metrics.bootstrap import BATCH_ELEMENTS, enclosed
from attemper.metrics.calibration import NO_CLASSWISE, NO_MAXIMUM
from attemper.metrics.evaluation import Evaluation
from attemper.metrics.intervals import Estimate, around_share, skewed, too_few
from attemper.metrics.predictions import Predictions, Reading
from attemper.metrics.proper import INFINITE

__all__ = ["RunningMetrics"]

# Bins of all classes together: beyond, class-wise ECE is left out, so that state and file stay small.
MOST_CELLS = 2048
GONE = 1e-280  # what is left of a bin that is forgotten
TIMES: Floats = poisson.cdf(np.arange(20), 1.0)  # beyond lies less than one number that a generator can draw
MEANS = ("weight", "right", "nll", "brier", "infinite")


@dataclass(frozen=True, eq=False)
class Sums:
    """All that is kept of the samples; the last axis is for the weights as they are, and for each resample."""

    means: Floats  # MEANS × columns
    top: Floats  # weight, confidence, right × bins × columns
    classes: Floats | None  # the same for each class: K × 3 × bins × columns
    # Of the weights as they are: of all samples, and of those predicted wrong.
    squares: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if (
            not self.squares.size and self.means.size and len(self.means) == len(MEANS)
        ):  # a file of 0.1: weights count as repeats
            weight, right = self.means.reshape(len(MEANS), -1)[:2, 0]
            object.__setattr__(self, "squares", np.array([weight, max(weight - right, 0.0)]))

    def __add__(self, other: Sums) -> Sums:
        classes = None if self.classes is None or other.classes is None else self.classes + other.classes
        return Sums(self.means + other.means, self.top + other.top, classes, self.squares + other.squares)

    def scaled(self, factor: float) -> Sums:
        """Let everything fade; bins that are as good as forgotten are empty."""
        with np.errstate(under="ignore"):
            means, top = factor * self.means, factor * self.top
            classes = None if self.classes is None else factor * self.classes
            squares = factor**2 * self.squares
        for bins in (top,) if classes is None else (top, *classes):
            bins *= bins[0] > GONE
        return Sums(means, top, classes, squares)

    @property
    def effective(self) -> tuple[float, float]:
        """How many samples, and how many errors, of equal weight are worth as much (Kish)."""
        weight, right = self.means[:2, 0]
        n, errors = (float(t**2 / s) if s > 0 else 0.0 for t, s in zip((weight, weight - right), self.squares))
        return n, errors


class RunningMetrics(Table):
    """Accuracy, NLL, Brier score, ECE, class-wise ECE and MCE of a stream, with intervals.

    Values are those of `evaluate` on everything seen. They do not depend on how the stream is cut into batches, and
    neither do the intervals.

    Parameters
    ----------
    n_bins : int
        Bins of equal width, as in `ece`.
    half_life : float, optional
        A sample counts half when this many others have come after it. By default nothing is forgotten. A label of
        probability 0 makes the NLL infinite until it is forgotten entirely, after about 1000 half-lives.
    confidence_level : float or None
        Level of the intervals; None for values alone, which is far faster.
    n_resamples, seed : int
        Resamples of the Poisson bootstrap, and their random seed. Parts that are to be added need seeds of their own:
        equal seeds would draw equal resamples. Which metrics have an interval is as in `evaluate`.

    Examples
    --------
    >>> running = RunningMetrics(confidence_level=None)
    >>> for labels, probs in [([0, 1], [[0.9, 0.1], [0.2, 0.8]]), ([0], [[0.3, 0.7]])]:
    ...     running = running.partial_fit(labels, probs)
    >>> running.n_samples, round(running.result()["brier"], 4)
    (3, 0.36)
    """

    stored: ClassVar[tuple[str, ...]] = (
        *("n_bins", "half_life", "confidence_level", "n_resamples"),
        *("_seeds", "_drawn", "n_samples", "n_classes", "_sums"),
    )

    n_bins: int
    half_life: float | None
    confidence_level: float | None
    n_resamples: int
    n_samples: int
    n_classes: int | None
    _seeds: tuple[int, ...]  # of all parts that were added
    _drawn: int  # rows that the own seed drew for
    _sums: Sums | None

    def __init__(
        self,
        *,
        n_bins: int = 15,
        half_life: float | None = None,
        confidence_level: float | None = 0.95,
        n_resamples: int = 200,
        seed: int = 0,
    ) -> None:
        check_half_life(half_life)
        whole("n_resamples", n_resamples, at_least=2)
        whole("seed", seed, at_least=0)
        if confidence_level is not None:
            fraction("confidence_level", confidence_level)
        self.n_bins = check_bins(n_bins)
        self.half_life = half_life
        self.confidence_level = confidence_level
        self.n_resamples = int(n_resamples)
        self.seed = int(seed)
        self.n_samples = self._drawn = 0
        self.n_classes = self._sums = None
        self._seeds = (self.seed,)

    def __repr__(self) -> str:
        settings = ("n_bins", "half_life", "confidence_level", "n_samples", "n_classes")
        return f"RunningMetrics({', '.join(f'{name}={getattr(self, name)!r}' for name in settings)})"

    def _table_columns(self) -> Columns:
        return self.result()._table_columns()

    def _repr_html_(self) -> str:
        seen = as_list([f"{self.n_samples} samples"])
        return f"<div>{seen}{self.result()._repr_html_() if self.n_samples else ''}</div>"

    def partial_fit(
        self,
        labels: Any,
        probs: Any = None,
        sample_weight: ArrayLike | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Take in one more batch; parameters as in `evaluate`. A batch that is refused changes nothing."""
        p = Predictions.of(labels, probs, sample_weight, **reading)
        if self.n_classes not in (None, p.n_classes):
            raise InputError(f"probabilities: {p.n_classes} columns, but the batches before had {self.n_classes}")
        sums = self._sums
        if self.half_life is not None:
            weights, before = fade(p.weights, self.half_life)
            p = replace(p, weights=weights)
            sums = None if sums is None else sums.scaled(before)
        added = self._sums_of(p)
        self._sums = added if sums is None else sums + added
        self._drawn += _n_cases(p)
        self.n_samples += p.n_samples
        self.n_classes = p.n_classes
        return self

    def result(self) -> Evaluation[float | Estimate]:
        """Return each metric by its name in `evaluate`, with its interval if there are any.

        Class-wise ECE is left out where there are more than 2048 bins in all. ``ece_quantile`` and ``mmce`` need all
        samples at once, and are left out.
        """
        if self._sums is None:
            raise NotFittedError("RunningMetrics has seen no samples yet: call partial_fit first")
        values = _metrics(self._sums)
        if self.confidence_level is None:
            return Evaluation({name: float(column[0]) for name, column in values.items()})
        # A resample of few samples may hold none of them.
        drawn = np.append(False, self._sums.means[0, 1:] > 0)
        result: Evaluation[float | Estimate] = Evaluation()
        for name, column in values.items():
            resampled = column[drawn] if drawn.any() else column[:1]
            result[name] = self._estimate(
                name, float(column[0]), resampled, self.confidence_level, *self._sums.effective
            )
        return result

    @staticmethod
    def _estimate(name: str, value: float, resampled: Floats, interval: float, n: float, errors: float) -> Estimate:
        if name == "accuracy":
            return around_share(value, n, interval)
        reason = {"mce": NO_MAXIMUM, "classwise_ece": NO_CLASSWISE}.get(name) or too_few(errors)
        if not np.isfinite(value):
            reason = INFINITE
        if reason:
            return Estimate.without(value, reason)
        if name == "ece":
            return enclosed(value, resampled, interval)
        error = float(resampled.std())
        skewness = 0.0 if error == 0 else float(((resampled - resampled.mean()) ** 3).mean()) / error**3
        # B resamples of what has no skewness show one of variance 6/B: take that much away.
        shrunk = skewness * max(0.0, 1 - 6 / len(resampled) / skewness**2) if skewness else 0.0
        return skewed(value, error, shrunk, interval)

    def __add__(self, other: RunningMetrics) -> RunningMetrics:
        """Metrics of both streams together; each as far as it has been forgotten."""
        if not isinstance(other, RunningMetrics):
            return NotImplemented
        for name in ("n_bins", "half_life", "confidence_level", "n_resamples", "n_classes"):
            a, b = getattr(self, name), getattr(other, name)
            if a != b and not (name == "n_classes" and None in (a, b)):
                raise InputError(
                    f"these metrics cannot be added: {name} is {a} and {b}. Make both with the same settings."
                )
        common = set(self._seeds) & set(other._seeds)
        if self.confidence_level is not None and common:
            raise InputError(
                f"these metrics cannot be added: both have drawn with seed {min(common)}, and resamples that are alike "
                "make intervals too narrow or too wide. Give each part a seed of its own, or confidence_level=None."
            )
        new = self._like()
        new._seeds = self._seeds + other._seeds
        new._drawn = self._drawn
        new.n_samples = self.n_samples + other.n_samples
        new.n_classes = self.n_classes or other.n_classes
        parts = [part for part in (self._sums, other._sums) if part is not None]
        new._sums = parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON, atomically; after `load` the stream goes on as if nothing had been."""
        write_document(path, "running metrics", to_fields(self, self.stored))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        values = values_of(cls, read_document(path, "running metrics"), cls.stored)
        settings = {name: values[name] for name in ("n_bins", "half_life", "confidence_level", "n_resamples")}
        try:
            new = cls(**settings, seed=next(iter(values["_seeds"]), -1))
        except InputError as error:
            raise FileError(f"{path}: {error}") from None
        vars(new).update(values)
        if not new._is_consistent():
            raise FileError(f"{path}: its numbers contradict each other")
        return new

    def _is_consistent(self) -> bool:
        """Return whether the numbers of a file fit together."""
        s, k, bins = self._sums, self.n_classes or 0, (3, self.n_bins, self._columns)
        if min(self._seeds) < 0 or not 0 <= self._drawn <= self.n_samples:
            return False
        if s is None:
            return self.n_samples == 0
        arrays = {(len(MEANS), self._columns): s.means, bins: s.top, (2,): s.squares}
        if self._by_class(k):
            arrays |= {(k, *bins): np.zeros(0) if s.classes is None else s.classes}
        fit = all(array.shape == shape and (array >= 0).all() for shape, array in arrays.items())
        return k >= 2 and self.n_samples >= 1 and fit and bool(s.means[0, 0] > 0)

    def _like(self) -> RunningMetrics:
        return RunningMetrics(
            n_bins=self.n_bins,
            half_life=self.half_life,
            confidence_level=self.confidence_level,
            n_resamples=self.n_resamples,
            seed=self.seed,
        )

    @property
    def _columns(self) -> int:
        return 1 if self.confidence_level is None else 1 + self.n_resamples

    def _by_class(self, n_classes: int) -> bool:
        return n_classes * self.n_bins <= MOST_CELLS

    def _sums_of(self, p: Predictions) -> Sums:
        losses, (confidence, right) = -p.log_likelihood, p.top
        infinite = np.isinf(losses)
        finite = np.where(infinite, 0.0, losses)
        rows = np.stack([np.ones(len(p)), right, finite, p.squared_errors, infinite])
        edges = uniform_edges(self.n_bins)
        # One number of the generator for each row and resample: after any number of rows it is known where to go on.
        rng = np.random.Generator(np.random.PCG64(self.seed).advance(self._drawn * self.n_resamples))
        total: Sums | None = None
        by_case = None  # how often each case is drawn
        if self.confidence_level is not None and p.clusters is not None:
            by_case = np.searchsorted(TIMES, rng.random((_n_cases(p), self.n_resamples)))
        for part in row_slices(len(p), self._columns, BATCH_ELEMENTS):
            w = p.weights[part, None]
            if self.confidence_level is not None:
                times = (
                    np.searchsorted(TIMES, rng.random((len(w), self.n_resamples)))
                    if by_case is None or p.clusters is None
                    else by_case[p.clusters[part]]
                )
                w = w * np.hstack([np.ones_like(w), times])
            classes = None
            if self._by_class(p.n_classes):
                pairs = (p.of_class(k) for k in range(p.n_classes))
                classes = np.stack([bin_sums(c[part], r[part], edges, w) for c, r in pairs])
            own = p.weights[part] ** 2
            squares = np.array([own.sum(), own @ (1 - right[part])])
            piece = Sums(rows[:, part] @ w, bin_sums(confidence[part], right[part], edges, w), classes, squares)
            total = piece if total is None else total + piece
        assert total is not None  # Predictions has a row or more
        if p.clusters is not None:
            cases = (p.of_cases(p.weights, rows) for rows in (None, ~p.right))
            total = replace(total, squares=np.array([float(w @ w) for w in cases]))
        return total


def _n_cases(p: Predictions) -> int:
    return len(p) if p.clusters is None else int(p.clusters.max()) + 1


def _metrics(sums: Sums) -> dict[str, Floats]:
    """Return every metric of every column."""
    weight, right, nll, brier, infinite = sums.means
    w = np.where(weight > 0, weight, 1.0)
    found = {
        "accuracy": right / w,
        "nll": np.where(infinite > 0, np.inf, nll / w),
        "brier": brier / w,
        "ece": error_of([sums.top]),
    }
    if sums.classes is not None:
        found["classwise_ece"] = error_of(sums.classes)
    return found | {"mce": error_of([sums.top], "max")}
