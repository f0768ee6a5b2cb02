"""Multiple comparisons with the best: which of several methods can have the least mean loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attemper._typing import Floats, Labels
from attemper.metrics.intervals import effective

DRAWS = 10_000  # of the bootstrap: the level of a set is then off by a quarter of a percent
ROUNDING = 1e-12  # relative to the losses: two methods that differ by less are one


def means_and_covariance(losses: Floats, weights: Floats, case: Labels | None = None) -> tuple[Floats, Floats]:
    """Return the weighted mean of each column of losses (N×M), and the covariance of these means by cases (M×M)."""
    share = weights / weights.sum()
    means = share @ losses
    influence = share[:, None] * (losses - means)
    if case is not None:
        influence = np.stack([np.bincount(case, column) for column in influence.T], axis=1)
        share = np.bincount(case, share)
    n = effective(share)
    return means, influence.T @ influence * (n / (n - 1) if n > 1 else 1.0)


def can_be_best(
    losses: Mapping[str, Floats], weights: Floats, case: Labels | None = None, confidence_level: float = 0.95,
    seed: int = 0, margin: float = 0.0,
) -> tuple[str, ...]:  # fmt: skip
    r"""Return the methods that can have the least mean loss, given finite losses on the same samples.

    Hsu's multiple comparisons with the best: with the mean losses :math:`\hat\theta_i`, the standard errors
    :math:`s_{ij}` of their paired differences, and :math:`d_i` the quantile of
    :math:`\max_{j \ne i} (e_i - e_j)/s_{ij}` for errors :math:`e` of the means, these are the methods with

    .. math:: \max_{j \ne i} (\hat\theta_i - \hat\theta_j - d_i s_{ij}) \le \mathrm{margin}

    The best is one of them with the probability ``confidence_level``; one that no other beats by more than the margin
    is, too. The quantiles are those of normal errors with the covariance of the samples (the Gaussian multiplier
    bootstrap).

    J. C. Hsu, Multiple Comparisons, 1996, chapter 4; V. Chernozhukov et al., Annals of Statistics 41, 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> a = rng.exponential(size=500)
    >>> can_be_best({"a": a, "b": a + 0.01 * rng.normal(size=500), "c": a + 0.1}, np.ones(500))
    ('a', 'b')
    """
    names = list(losses)
    cases = weights if case is None else np.bincount(case, weights).astype(np.float64)
    if len(names) == 1 or effective(cases) < 2 - ROUNDING:
        return tuple(names)
    table = np.stack(list(losses.values()), axis=1)
    scale = max(float(np.abs(table).max()), 1e-300)
    means, covariance = means_and_covariance(table / scale, weights, case)
    difference = means[:, None] - means[None, :]
    difference[np.abs(difference) <= ROUNDING] = 0.0
    np.fill_diagonal(difference, -np.inf)  # so that no method is compared with itself
    variance = np.diag(covariance)
    error = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, 0.0))
    error[error <= ROUNDING] = 0.0
    d = _quantiles(covariance, error, confidence_level, seed)
    worse = scale * (difference - d[:, None] * error).max(axis=1)
    return tuple(name for name, certain in zip(names, worse) if certain <= margin)


def _quantiles(covariance: Floats, error: Floats, confidence_level: float, seed: int) -> Floats:
    """Return d of `can_be_best`: for each method, by how many standard errors it may seem worse by chance."""
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
