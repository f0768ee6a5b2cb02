"""Class priors of unlabelled data, from calibrated predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper._checks import fraction, whole
from attemper._typing import Floats
from attemper.data.arrays import one_line, to_numpy
from attemper.data.ids import as_ids
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels.priors import most_likely_priors, resampled_priors, shrunk_priors
from attemper.priors.known import as_priors

__all__ = ["PriorEstimate", "estimate_priors"]


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate:
    """Shares of the classes in unlabelled data: the result of `estimate_priors`.

    Attributes
    ----------
    priors : array
        The estimate: the most likely shares, shrunk towards the old ones as far as the data do not contradict them.
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
    labelled: Any = None,
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
    labelled : array of shape (n_classes,), optional
        Which classes had labels in the validation data; all by default. Of others nothing shows how their samples look,
        so they keep their old share.
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
    code = None if clusters is None else np.unique(as_ids(clusters, n), return_inverse=True)[1]
    before = _above_zero(before, reference if np.isfinite(reference) else float(n))
    independent = float(weights.sum()) if code is None else float(code.max() + 1)
    movable = np.ones(k, dtype=bool) if labelled is None else np.asarray(labelled, dtype=bool)
    if movable.shape != before.shape or not movable.any():
        raise InputError(f"labelled: expected true or false for each of {k} classes, and one of true")
    rows = (p / before)[:, movable]
    usable = rows.max(axis=1) > 0
    rows, own, left = rows[usable], weights[usable], float(before[movable].sum())
    if not own.sum() > 0:
        raise InputError("probs: every row has probability 0 for all classes with labels")
    start = before[movable] / left
    best = most_likely_priors(rows, own, start=start)
    # As many as both samples leave together, as of the difference of two means.
    together = independent if np.isinf(reference) else independent * reference / (independent + reference)
    shrunk = shrunk_priors(rows, own * (together / own.sum()), start)
    rng = np.random.default_rng(seed)
    units = n if code is None else int(code.max()) + 1

    def draw() -> tuple[Floats, Floats]:
        times = np.bincount(rng.integers(0, units, units), minlength=units)
        drawn = weights * (times if code is None else times[code])
        return np.asarray(drawn[usable]), _factors(start, reference, rng)

    found = resampled_priors(rows, best.priors, (draw() for _ in range(n_resamples)), n_resamples)
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)

    def of_all(shares: Floats) -> Floats:
        """Return the shares of all classes: those that are not movable keep theirs."""
        whole = before.copy()
        whole[movable] = left * shares
        return whole

    return PriorEstimate(
        priors=of_all(shrunk.priors),
        most_likely=of_all(best.priors),
        low=of_all(np.minimum(low, shrunk.priors)),
        high=of_all(np.maximum(high, shrunk.priors)),
        old=before,
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
    return np.asarray(old / np.maximum(rng.dirichlet(n_reference * old + 0.5), 1e-12))  # Jeffreys' prior: no share is 0
