"""Metrics by group: values, and intervals that hold for all groups together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper._checks import fraction, one_of, whole
from attemper._typing import Floats, Labels
from attemper.errors import InputError
from attemper.metrics.alike import calibration_alike
from attemper.metrics.bins import Bins
from attemper.metrics.bootstrap import LEAST_CLUSTERS, estimate, student_level
from attemper.metrics.calibration import ece
from attemper.metrics.group_table import GROUP_METRICS, GroupMetrics, GroupRow
from attemper.metrics.intervals import Estimate, around_mean, means_of_cases, proportion, too_few, worth_of_share
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import INFINITE

__all__ = ["by_group", "group_metrics", "overall"]

BIASED = "no interval: plain ECE is too large in small groups; compare it with its chance, or use ece_debiased"
NO_PAIR = "no value: no bin has two samples"


@of_predictions
def by_group(
    p: Predictions,
    *,
    metrics: Sequence[str] = GROUP_METRICS,
    n_bins: Bins = 15,
    confidence_level: float = 0.95,
    simultaneous: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> GroupMetrics:
    r"""Metrics of each group (site, scanner, sex, age band), with intervals that hold for all groups together.

    Parameters
    ----------
    labels, probs, input, classes, sample_weight, axis, ignore_index
        As in `nll`.
    groups : array of shape (N,)
        The group that each sample is of: text or whole numbers. By default those of the `Scores`. Join columns for
        groups such as site and sex: ``[f"{a}, {b}" for a, b in zip(site, sex)]``.
    metrics : sequence of names
        "accuracy"; "gap", the mean confidence − accuracy, positive where confidence is too high; "nll"; "brier"; "ece"
        with the mean ECE of perfectly calibrated predictions in its ``chance``; "ece_debiased", the root mean square
        calibration error of Kumar et al. (`ece` with ``norm=2, debiased=True``).
    n_bins
        As in `ece`.
    confidence_level : float
        Of all intervals of a metric together. Each of G groups gets the level :math:`c^{1/G}` (Šidák 1967): exact for
        independent groups, and enough where clusters have samples of several.
    simultaneous : bool
        False: each interval by itself has the confidence level. Then some of many groups look bad by chance.
    n_resamples, seed : int
        Draws of the tests and of the ECE by chance.
    clusters : array of shape (N,), optional
        As in `nll`: samples of one case are not independent.

    Returns
    -------
    GroupMetrics

    Notes
    -----
    Plain ECE grows as samples get fewer, even with perfect calibration: compare groups of different sizes by "gap" or
    "ece_debiased", or "ece" with its ``chance``.

    The interval of the accuracy is that of Clopper and Pearson. That of the gap is the same around accuracy, for as
    many samples as its variance is worth (Korn and Graubard): the variance of confidence − right, by cluster where
    there are some, with Student's quantile for the number of clusters. It holds for groups of one sample and for groups
    without errors too. "nll" and "brier" need 20 errors, as everywhere.

    ``alike`` tests whether labels depend on the group given the confidence
    (`attemper.metrics.alike.calibration_alike`); groups that are all overconfident in the same way are alike.

    References
    ----------
    E. L. Korn, B. I. Graubard, Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data, 1998.
    Z. Šidák, Rectangular confidence regions for the means of multivariate normal distributions, 1967.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random(900) < np.repeat([0.8, 0.8, 0.6], 300)
    >>> site = np.repeat(["a", "b", "c"], 300)
    >>> found = by_group(right, np.full(900, 0.8), groups=site)
    >>> [round(x, 3) for x in found["c"].gap]
    [0.203, 0.136, 0.274]
    >>> found.worst("gap")[0]
    'c'
    >>> found.alike.p_value < 0.01
    True
    """
    settings: dict[str, Any] = {"confidence_level": confidence_level, "simultaneous": simultaneous, "n_bins": n_bins}
    return group_metrics(p, metrics, **settings, n_resamples=n_resamples, seed=seed)


def group_metrics(
    p: Predictions,
    metrics: Sequence[str] = GROUP_METRICS,
    *,
    n_bins: Bins = 15,
    confidence_level: float = 0.95,
    simultaneous: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> GroupMetrics:
    """Metrics by group of predictions that were checked before; see `by_group`."""
    fraction("confidence_level", confidence_level)
    whole("n_resamples", n_resamples, at_least=2)
    whole("seed", seed, at_least=0)
    for name in metrics:
        one_of("metrics", name, GROUP_METRICS)
    if p.groups is None:
        raise InputError("groups: expected the group of each sample, got none. Use groups=….", param="groups")
    names, code = np.unique(p.groups, return_inverse=True)
    level = confidence_level ** (1 / len(names)) if simultaneous else confidence_level
    order = np.argsort(code, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(code))[:-1])

    def row(name: str | int, part: Predictions, level: float) -> GroupRow:
        return _row(name, part, metrics, level, n_bins, n_resamples, seed)

    return GroupMetrics(
        tuple(row(name, p.rows(rows), level) for name, rows in zip(names.tolist(), parts)),
        row("all", p, confidence_level),
        calibration_alike(p, code, n_resamples, seed),
        confidence_level,
        simultaneous,
    )


def overall(p: Predictions, confidence_level: float) -> GroupRow:
    """Return accuracy and gap of all samples, as `group_metrics` has them in its row ``all``."""
    return _row("all", p, ("accuracy", "gap"), confidence_level, 15, 2, 0)


def _row(
    name: str | int,
    p: Predictions,
    metrics: Sequence[str],
    level: float,
    n_bins: Bins,
    n_resamples: int,
    seed: int,
) -> GroupRow:
    """Return the metrics of one group."""
    confidence, right = p.top
    case = None if p.clusters is None else np.unique(p.clusters, return_inverse=True)[1]
    n_clusters = None if case is None else int(case.max()) + 1
    few = "" if n_clusters is None else too_few(n_clusters, "clusters", LEAST_CLUSTERS)
    mean = float(p.weights @ confidence / p.weights.sum())
    accuracy = 1.0 if p.right.all() else float(p.weights @ right / p.weights.sum())  # exactly 1, not rounded
    worth = worth_of_share(accuracy, right, p.weights, case, level)
    found: dict[str, Estimate] = {}
    for metric in metrics:
        if metric == "accuracy":
            found[metric] = Estimate.without(accuracy, few) if few else _share(accuracy, worth, level)
        elif metric == "gap":
            n = worth_of_share(accuracy, confidence - right, p.weights, case, level)
            found[metric] = Estimate.without(mean - accuracy, few) if few else _gap(mean, accuracy, n, level)
        elif metric in ("nll", "brier"):
            losses = -p.log_likelihood if metric == "nll" else p.squared_errors
            found[metric] = _mean(losses, p, case, few or p.few_errors(), level)
        else:
            found[metric] = _error(metric, p, n_bins, level, n_resamples, seed)
    return GroupRow(name, float(p.weights.sum()), n_clusters, worth, mean, found)


def _share(share: float, n: float, level: float) -> Estimate:
    found = proportion(share * n, n, level)
    return Estimate(share, found.low, found.high)


def _gap(confidence: float, accuracy: float, n: float, level: float) -> Estimate:
    """Put limits around confidence − accuracy: those of the accuracy, for n samples."""
    _, low, high = _share(accuracy, n, level)
    return Estimate(confidence - accuracy, confidence - high, confidence - low)


def _mean(losses: Floats, p: Predictions, case: Labels | None, reason: str, level: float) -> Estimate:
    """Put limits around a mean of losses; cases are worth as much as samples of their mean."""
    value = float(p.weights @ losses / p.weights.sum())
    if reason or np.isinf(losses).any():
        return Estimate.without(value, INFINITE if np.isinf(losses).any() else reason)
    values, w = means_of_cases(losses, p.weights, case)
    return around_mean(value, values, w, level if case is None else student_level(level, len(w)))


def _error(metric: str, p: Predictions, n_bins: Bins, level: float, n_resamples: int, seed: int) -> Estimate:
    """Return a calibration error: plain, with what chance would show; or debiased, with an interval."""
    if metric == "ece":
        found = ece.statistic(p, n_bins=n_bins)
        if p.clusters is not None:
            found = found._replace(drawn=None)
        return estimate(found._replace(reason=BIASED), p.weights, level, n_resamples, seed)
    try:
        debiased = ece.statistic(p, n_bins=n_bins, norm=2, debiased=True)
    except InputError:
        return Estimate.without(math.nan, NO_PAIR)
    return estimate(debiased._replace(drawn=None), p.weights, level, n_resamples, seed, p.clusters)
