"""Which of several methods can be the best: simultaneous intervals of their losses on the same samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction, number, whole
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.ids import as_ids
from attemper.data.labels import as_weights
from attemper.errors import InputError, InputTypeError
from attemper.metrics.intervals import Estimate, effective

__all__ = ["BestSet", "compare_with_best", "means_and_covariance"]

DRAWS = 10_000  # of the bootstrap: the level of a set is then off by a quarter of a percent
ROUNDING = 1e-12  # relative to the losses: two methods that differ by less are one
ONE_CASE = "no interval: fewer than two independent cases do not show how far the losses vary"
ALL_INFINITE = "no interval: the loss of every method is infinite"


class _BestSet(NamedTuple):
    members: tuple[str, ...]  # the best is one of them, with the confidence that was asked for
    above: dict[str, Estimate]  # mean loss above the least of the others, with simultaneous intervals; empty for one


class BestSet(_BestSet, Table):
    """Methods that can be the best, and how far each is above the best of the others, from `compare_with_best`."""

    __slots__ = ()

    def _table_columns(self) -> Columns:
        names = list(self.above) or list(self.members)
        member = [name in self.members for name in names]
        return {"method": names, "member": member, "above": [self.above.get(name) for name in names]}


def means_and_covariance(
    losses: Floats, weights: Floats, clusters: NDArray[Any] | None = None
) -> tuple[Floats, NDArray[np.float64]]:
    """Return the weighted mean of each column of losses (N×M), and the covariance of these means (M×M).

    Samples of a cluster count as one: they may have anything in common.
    """
    share = weights / weights.sum()
    means = share @ losses
    influence = share[:, None] * (losses - means)
    if clusters is not None:
        influence = np.stack([_of_cases(column, clusters) for column in influence.T], axis=1)
        share = _of_cases(share, clusters)
    n = effective(share)
    return means, influence.T @ influence * (n / (n - 1) if n > 1 else 1.0)


def _of_cases(values: Floats, clusters: NDArray[Any]) -> Floats:
    """Sum over the samples of each cluster."""
    _, case = np.unique(clusters, return_inverse=True)
    return np.bincount(case, values).astype(np.float64)


def compare_with_best(
    losses: Mapping[str, Any],
    sample_weight: Any = None,
    clusters: Any = None,
    confidence_level: float = 0.95,
    seed: int = 0,
    margin: float = 0.0,
) -> BestSet:
    r"""Hsu's multiple comparisons with the best, of losses on the same samples.

    With the mean losses :math:`\hat\theta_i`, the standard errors :math:`s_{ij}` of their paired differences, and
    :math:`d_i` the quantile of :math:`\max_{j \ne i} (e_i - e_j)/s_{ij}` for errors :math:`e` of the means, the
    intervals

    .. math:: \theta_i - \min_{j \ne i} \theta_j \in \Bigl[
        \min\bigl(0, \max_{j \ne i} (\hat\theta_i - \hat\theta_j - d_i s_{ij})\bigr), \;
        \max\bigl(0, \max_{j \in G, j \ne i} (\hat\theta_i - \hat\theta_j + d_j s_{ij})\bigr) \Bigr]

    hold together with the probability ``confidence_level``. G are the methods that no other one beats so clearly
    (the lower end is below zero, or the two are equal); it has the best one with that probability. A method whose
    interval begins at 0 is not the best, one whose interval ends at 0 is.

    The quantiles are those of the Gaussian multiplier bootstrap of the paired losses: each sample (or cluster) gets a
    normal weight, so the errors of the means are normal, with the covariance of the samples.

    A method with an infinite loss is not the best, unless all are infinite. With fewer than two independent cases every
    other method is in G, and there are no intervals: ``note`` of each `Estimate` has the reason.

    J. C. Hsu, Multiple Comparisons, 1996, chapter 4; V. Chernozhukov et al., Annals of Statistics 41, 2013.

    Parameters
    ----------
    losses : mapping of names to arrays of shape (n_samples,)
        Lower is better. A loss may be +∞, not NaN.
    sample_weight, clusters : arrays of shape (n_samples,), optional
        Weights, and which samples are the same case (patient, document).
    confidence_level : float
        Of all intervals together.
    seed : int
        Of the bootstrap.
    margin : float
        A difference that does not matter: G also has methods that no other one beats by more, with that confidence.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> a = rng.exponential(size=500)
    >>> found = compare_with_best({"a": a, "b": a + 0.01 * rng.normal(size=500), "c": a + 0.1})
    >>> found.members
    ('a', 'b')
    >>> found.above["c"].low, round(found.above["c"].value, 2)
    (0.0, 0.1)
    """
    fraction("confidence_level", confidence_level)
    whole("seed", seed, at_least=0)
    number("margin", margin, 0, expected="a number that is not negative", closed=(True, False))
    columns = _checked(losses)
    n = len(next(iter(columns.values())))
    w = np.ones(n) if sample_weight is None else as_weights(sample_weight, n)
    cases = None if clusters is None else as_ids(clusters, n)[w > 0]
    columns = {name: values[w > 0] for name, values in columns.items()}  # zero times an infinite loss would be NaN
    w = w[w > 0] / w.max()
    if len(columns) == 1:
        return BestSet(tuple(columns), {})
    finite = {name: values for name, values in columns.items() if np.isfinite(values).all()}
    if not finite:
        return BestSet(tuple(columns), dict.fromkeys(columns, Estimate.without(np.nan, ALL_INFINITE)))
    if len(finite) > 1:
        found = _compare(finite, w, cases, confidence_level, seed, margin)
    else:  # infinitely far below the others
        found = BestSet(tuple(finite), dict.fromkeys(finite, Estimate(-np.inf, -np.inf, 0.0)))
    infinite = Estimate(np.inf, 0.0, np.inf)
    return BestSet(found.members, {name: found.above.get(name, infinite) for name in columns})


def _checked(losses: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the losses as columns of one length."""
    if not isinstance(losses, Mapping):
        raise InputTypeError(
            f"losses: expected a mapping of names to arrays, got {type(losses).__name__}; use {{'a': losses_of_a, …}}"
        )
    if not losses:
        raise InputError("losses: expected at least one method, got an empty mapping")
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in losses.items()}
    n = next(iter(columns.values())).size
    for name, column in columns.items():
        if column.shape != (n,) or not n:
            raise InputError(f"losses[{name!r}]: expected one number per sample, as for the first, got {column.shape}")
        if not (column > -np.inf).all():
            raise InputError(f"losses[{name!r}]: expected numbers or +inf")
    return columns


def _compare(
    losses: Mapping[str, Floats],
    weights: Floats,
    clusters: NDArray[Any] | None,
    confidence_level: float,
    seed: int,
    margin: float,
) -> BestSet:
    """Compare two or more methods whose losses are finite."""
    names = list(losses)
    table = np.stack(list(losses.values()), axis=1)
    scale = max(float(np.abs(table).max()), 1e-300)
    means, covariance = means_and_covariance(table / scale, weights, clusters)
    difference = means[:, None] - means[None, :]
    difference[np.abs(difference) <= ROUNDING] = 0.0
    np.fill_diagonal(difference, -np.inf)  # so that no method is compared with itself
    if effective(weights if clusters is None else _of_cases(weights, clusters)) < 2 - ROUNDING:
        most = difference.max(axis=1) * scale
        return BestSet(tuple(names), {name: Estimate.without(float(v), ONE_CASE) for name, v in zip(names, most)})
    variance = np.diag(covariance)
    error = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, 0.0))
    error[error <= ROUNDING] = 0.0
    d = _quantiles(covariance, error, confidence_level, seed)
    low = (difference - d[:, None] * error).max(axis=1)
    high = np.where(low[None, :] <= 0, difference + d[None, :] * error, -np.inf).max(axis=1)
    low, high, most = scale * low, scale * high, scale * difference.max(axis=1)
    above = {
        name: Estimate(float(value), float(min(0.0, least)), float(max(0.0, greatest)))
        for name, value, least, greatest in zip(names, most, low, high)
    }
    return BestSet(tuple(name for name, certain in zip(names, low) if certain <= margin), above)


def _quantiles(covariance: Floats, error: Floats, confidence_level: float, seed: int) -> Floats:
    """Return d of `compare_with_best`: for each method, by how many standard errors it may seem worse by chance."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = root @ np.random.default_rng(seed).standard_normal((len(covariance), DRAWS))
    found = np.zeros(len(covariance))
    for i, (e, s) in enumerate(zip(drawn, error)):
        others = s > 0
        if others.any():
            most = ((e - drawn[others]) / s[others, None]).max(axis=0)
            found[i] = max(0.0, float(np.quantile(most, confidence_level)))
    return found
