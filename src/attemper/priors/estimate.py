"""Class priors of unlabelled data, from calibrated predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper._checks import fraction, whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import one_line, to_numpy
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels.priors import most_likely_priors, resampled_priors, shrunk_priors
from attemper.priors.counts import PredictionCounts
from attemper.priors.known import as_priors
from attemper.priors.label_shift import cell_likelihoods

__all__ = ["PriorEstimate", "estimate_priors", "priors_of_counts"]


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate:
    """Shares of the classes in unlabelled data.

    Attributes
    ----------
    priors : array
        The estimate: the most likely shares, shrunk towards the old ones as far as the data do not speak against them.
    most_likely : array
        The maximum of the likelihood, which EM (Saerens et al. 2002) tends to.
    low, high : arrays
        Interval of each share, by bootstrap of the most likely ones and of the old ones.
    old : array
        The shares under which the predictions are calibrated.
    concentration : float or None
        How many samples the old shares count as; None: infinitely many, there is no sign of a shift.
    gap : float
        Certificate: nats a sample by which the likelihood could be larger, at most.
    n_samples : float
    """

    __repr__ = one_line

    priors: Floats
    most_likely: Floats
    low: Floats
    high: Floats
    old: Floats
    concentration: float | None
    gap: float
    n_samples: float
    confidence_level: float = 0.95


def estimate_priors(
    probs: Any,
    old: Any,
    *,
    n_reference: float | None = None,
    sample_weight: Any = None,
    clusters: Any = None,
    confidence_level: float = 0.95,
    n_resamples: int = 200,
    seed: int = 0,
) -> PriorEstimate:
    """Estimate the shares of the classes in unlabelled data, under label shift.

    Parameters
    ----------
    probs : array of shape (n_samples, n_classes)
        Calibrated probabilities.
    old : array of shape (n_classes,)
        The shares under which they are calibrated: the mean prediction on validation data (Alexandari et al. 2020).
    n_reference : float, optional
        How many validation samples ``old`` is the mean of; by default it is exact. New samples count at most as much
        as they: what they leave open is no shift.
    sample_weight : array of shape (n_samples,), optional
    clusters : array of shape (n_samples,), optional
        Which rows are of one patient, document or user. They are drawn together, and count as one sample where the
        estimate is shrunk.
    confidence_level, n_resamples, seed
        Of the bootstrap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(2, 5000, p=[0.8, 0.2])
    >>> z = 2 * (y - 0.5) * 1.5 + rng.normal(size=5000)  # log-odds 3 z under equal shares
    >>> p = 1 / (1 + np.exp(-3 * z))
    >>> found = estimate_priors(np.column_stack([1 - p, p]), [0.5, 0.5])
    >>> found.priors.round(2), bool(found.low[1] < 0.2 < found.high[1])
    (array([0.79, 0.21]), True)
    """
    scores = Scores.from_probs(probs, sample_weight=sample_weight)
    p = np.asarray(to_numpy(scores.values), dtype=np.float64)
    n, k = p.shape
    before = as_priors(old, k, what="old")
    fraction("confidence_level", confidence_level)
    whole("n_resamples", n_resamples, at_least=1)
    reference = np.inf if n_reference is None else float(n_reference)
    if not reference > 0:
        raise InputError(f"n_reference={n_reference}: expected a positive number of samples")
    weights = np.ones(n) if scores.weights is None else scores.weights
    code = None if clusters is None else _codes(clusters, n)
    before = _above_zero(before, reference if np.isfinite(reference) else float(n))
    likelihoods = p / before
    independent = float(weights.sum()) if code is None else float(code.max() + 1)
    rng = np.random.default_rng(seed)
    units = n if code is None else int(code.max()) + 1

    def draw() -> Floats:
        times = np.bincount(rng.integers(0, units, units), minlength=units)
        return np.asarray(weights * (times if code is None else times[code]))

    resamples = ((draw(), _factors(before, reference, rng)) for _ in range(n_resamples))
    return _estimate(likelihoods, weights, before, reference, independent, resamples, n_resamples, confidence_level)


def priors_of_counts(
    reference: PredictionCounts, new: PredictionCounts, *, confidence_level: float = 0.95, n_resamples: int = 200,
    seed: int = 0,
) -> PriorEstimate:  # fmt: skip
    """Estimate the shares of the classes from counts of predictions: a little wider than from the rows."""
    table, counts = reference.counts, new.counts
    old = _above_zero(table.sum(axis=0) / table.sum(), float(table.sum()))
    model = cell_likelihoods(table, counts)
    rng = np.random.default_rng(seed)
    n, size = max(1, round(float(counts.sum()))), float(table.sum())
    resamples = (
        (rng.multinomial(n, counts / counts.sum()).astype(np.float64), _factors(old, size, rng))
        for _ in range(n_resamples)
    )
    return _estimate(model, counts, old, size, float(counts.sum()), resamples, n_resamples, confidence_level)


def _estimate(
    likelihoods: Floats,
    weights: Floats,
    old: Floats,
    n_reference: float,
    independent: float,
    resamples: Iterable[tuple[Floats, Floats]],
    n_resamples: int,
    confidence_level: float,
) -> PriorEstimate:
    total = float(weights.sum())
    best = most_likely_priors(likelihoods, weights, start=old)
    # As many as both samples leave together, as of the difference of two means.
    counted = independent if np.isinf(n_reference) else independent * n_reference / (independent + n_reference)
    shrunk = shrunk_priors(likelihoods, weights * (counted / total), old)
    found = resampled_priors(likelihoods, best.priors, resamples, n_resamples)
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    return PriorEstimate(
        priors=shrunk.priors,
        most_likely=best.priors,
        low=np.minimum(low, shrunk.priors),
        high=np.maximum(high, shrunk.priors),
        old=old,
        concentration=None if np.isinf(shrunk.concentration) else shrunk.concentration,
        gap=best.gap,
        n_samples=independent,
        confidence_level=confidence_level,
    )


def _above_zero(old: Floats, n: float) -> Floats:
    """Give a class that was never predicted half a sample, shared by all classes."""
    lifted = np.maximum(old, 0.5 / (max(n, 1.0) * len(old)))
    return np.asarray(lifted / lifted.sum())


def _factors(old: Floats, n_reference: float, rng: np.random.Generator) -> Floats:
    """Return what likelihoods are multiplied by where the old shares are drawn anew, from as many samples."""
    if np.isinf(n_reference):
        return np.ones(len(old))
    n = max(1, round(n_reference))
    return np.asarray(old / ((rng.multinomial(n, old) + 0.5 * old) / (n + 0.5)))


def _codes(clusters: Any, n: int) -> Labels:
    ids = np.asarray(to_numpy(clusters) if hasattr(clusters, "shape") else clusters)
    if ids.shape != (n,):
        raise InputError(f"clusters: expected one id for each of {n} rows, got shape {ids.shape}")
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)
