"""Metrics by group: intervals that hold for all groups together, the worst group, and whether all are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attemper._checks import fraction, one_of, whole
from attemper._table import Columns, Table
from attemper._typing import Floats, Labels
from attemper.errors import InputError, option
from attemper.metrics.alike import GroupTest, accuracy_alike, calibration_alike
from attemper.metrics.bins import Bins
from attemper.metrics.bootstrap import LEAST_CLUSTERS, estimate, student_level
from attemper.metrics.calibration import ece
from attemper.metrics.intervals import Estimate, around_mean, means_of_cases, proportion, too_few, worth_of_share
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import INFINITE

__all__ = ["GroupMetrics", "GroupRow", "WorstGroup", "and_others", "by_group", "group_metrics"]

GROUP_METRICS = ("accuracy", "gap", "nll", "brier", "ece", "ece_debiased")
BIASED = "no interval: plain ECE is too large in small groups; compare it with its chance, or use ece_debiased"
NO_PAIR = "no value: no bin has two samples"


@dataclass(frozen=True)
class GroupRow:
    """Metrics of one group: a row of what `by_group` returns."""

    group: str | int
    n: float  # samples: the sum of the weights
    n_clusters: int | None
    effective: float  # independent samples that the accuracy is as uncertain as
    confidence: float  # mean
    metrics: dict[str, Estimate]  # accuracy, gap, …

    def __getattr__(self, name: str) -> Estimate:
        """Return a metric by its name."""
        if name in GROUP_METRICS and name in self.metrics:
            return self.metrics[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        about = {"group": self.group, "n": self.n, "n_clusters": self.n_clusters, "effective": self.effective}
        figures = {name: value.to_dict() for name, value in self.metrics.items()}
        return {**about, "confidence": self.confidence, "metrics": figures}


class WorstGroup(NamedTuple):
    """The worst group by some metric; ``value`` is of the worst of all groups, whichever it is."""

    group: str | int
    value: Estimate
    possible: tuple[str | int, ...]  # groups that can be the worst: the intervals hold together

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return {"group": self.group, **self.value.to_dict(), "possible": list(self.possible)}


@dataclass(frozen=True, repr=False)
class GroupMetrics(Table):
    """Metrics of each group: `by_group` returns it."""

    by_group: tuple[GroupRow, ...]  # sorted by name
    all: GroupRow
    alike: GroupTest  # given the confidence, accuracy does not depend on the group
    accuracy_alike: GroupTest  # accuracy does not depend on the group
    confidence_level: float
    simultaneous: bool

    def __repr__(self) -> str:
        p = "" if self.alike.p_value is None else f", alike p={self.alike.p_value:.3g}"
        return f"GroupMetrics({len(self.by_group)} groups, {self.all.n:g} samples{p})"

    def __getitem__(self, group: str | int) -> GroupRow:
        """Return the row of a group."""
        for row in self.by_group:
            if row.group == group:
                return row
        raise KeyError(group)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self.all.metrics)

    def worst(self, metric: str = "gap") -> WorstGroup | None:
        """Return the worst group: the lowest accuracy, the largest gap of either sign, the highest of other metrics.

        The largest of many noisy values is too large, and often that of a small group. So the group is the one whose
        interval begins highest, and the ends are those of the largest *true* value of all groups: the largest of the
        lower ends, and the largest of the upper ends. Both hold with the confidence level, as the intervals of all
        groups hold together. Groups without an interval have no part in it; None where no group has one.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> found = by_group(rng.random(400) < 0.5, np.full(400, 0.8), groups=np.repeat(["a", "b"], 200))
        >>> found.worst("accuracy").group
        'a'
        """
        one_of("metric", metric, self.metrics)
        sizes = {row.group: _size(metric, row.metrics[metric]) for row in self.by_group}
        sizes = {group: size for group, size in sizes.items() if size.has_interval}
        if not sizes:
            return None
        group = max(sizes, key=lambda name: (sizes[name].low, sizes[name].value))
        low, high = max(size.low for size in sizes.values()), max(size.high for size in sizes.values())
        possible = tuple(name for name, size in sizes.items() if size.high >= low)
        value = sizes[group].value
        found = Estimate(value, low, high) if metric != "accuracy" else Estimate(-value, -high, -low)
        return WorstGroup(group, found, possible)

    def beyond_chance(self) -> tuple[list[str | int], list[str | int]]:
        """Return the groups whose confidence is too high, and those where it is too low: 0 is outside the interval."""
        gaps = {row.group: row.metrics["gap"] for row in self.by_group if "gap" in row.metrics}
        return [name for name, gap in gaps.items() if gap.low > 0], [name for name, gap in gaps.items() if gap.high < 0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        worst = {name: self.worst(name) for name in self.metrics}
        return {
            "groups": [row.to_dict() for row in self.by_group],
            "all": self.all.to_dict(),
            "worst": {name: None if found is None else found.to_dict() for name, found in worst.items()},
            "alike": self.alike._asdict(),
            "accuracy_alike": self.accuracy_alike._asdict(),
            "confidence_level": self.confidence_level,
            "simultaneous": self.simultaneous,
        }

    def _table_columns(self) -> Columns:
        rows = (*self.by_group, self.all)
        names = ("group", "n", "n_clusters", "effective", "confidence")
        columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
        if self.all.n_clusters is None:
            del columns["n_clusters"]
        columns |= {name: [row.metrics[name] for row in rows] for name in self.metrics}
        if "ece" in columns:
            columns["ece_chance"] = [math.nan if v.chance is None else v.chance for v in columns["ece"]]
        return columns

    def _html_notes(self) -> Sequence[str]:
        return self.sentences()

    def sentences(self, *, percent: str = "%") -> list[str]:
        """Return the result in sentences: whether all groups are alike, the largest gap, who is beyond chance.

        ``percent`` is the sign of percent, with a space before it if you like.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> right = rng.random(900) < np.repeat([0.8, 0.8, 0.6], 300)
        >>> found = by_group(right, np.full(900, 0.8), groups=np.repeat(["a", "b", "c"], 300))
        >>> print(found.sentences()[0])
        All groups alike? No (p = 0.001): at the same confidence, accuracy depends on the group.
        """
        return [*_alike_sentences(self), *_gap_sentences(self, percent)]


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
    labels, probs, input, classes, pos_label, sample_weight, axis, ignore_index
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
    >>> found.worst("gap").group
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
        raise InputError(
            f"groups: expected the group of each sample, got none. Use {option('groups=…', '--groups NAME')}."
        )
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
        accuracy_alike(p, code, n_resamples, seed),
        confidence_level,
        simultaneous,
    )


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
        found = ece.statistic(p, n_bins=n_bins)._replace(reason=BIASED)
        if p.clusters is not None:
            found = found._replace(drawn=None)
        return estimate(found._replace(reason=BIASED), p.weights, level, n_resamples, seed)
    try:
        debiased = ece.statistic(p, n_bins=n_bins, norm=2, debiased=True)
    except InputError:
        return Estimate.without(math.nan, NO_PAIR)
    return estimate(debiased._replace(drawn=None), p.weights, level, n_resamples, seed, p.clusters)


def _size(metric: str, value: Estimate) -> Estimate:
    """Return how bad a value is; more is worse."""
    if metric == "accuracy":
        return Estimate(-value.value, -value.high, -value.low)
    if metric != "gap":
        return value
    size = abs(value.value)
    if not value.has_interval:
        return Estimate.without(size, value.note)
    return Estimate(size, max(0.0, value.low, -value.high), max(abs(value.low), abs(value.high)))


def _alike_sentences(found: GroupMetrics) -> list[str]:
    test = found.alike
    if test.p_value is None:
        return [f"All groups alike? There is no test: {test.note}."]
    p = f"p = {test.p_value:.2g}"
    if test.p_value <= 1 - found.confidence_level:
        return [f"All groups alike? No ({p}): at the same confidence, accuracy depends on the group."]
    return [f"All groups alike? No difference is detectable ({p}): at the same confidence, accuracy may be the same."]


def _gap_sentences(found: GroupMetrics, percent: str) -> list[str]:
    worst = found.worst("gap") if "gap" in found.metrics else None
    if worst is None:
        return []
    row = found[worst.group]
    gap = row.metrics["gap"]
    ends = Estimate(row.confidence - gap.value, row.confidence - gap.high, row.confidence - gap.low)
    right = row.metrics.get("accuracy", ends)
    mean, value, low, high = (f"{100 * share:.1f}" for share in (row.confidence, *right))
    most = f"The largest gap is that of {row.group}: its mean confidence is {mean}{percent}, and it is right in"
    lines = [f"{most} {value}{percent} ({low} to {high})."]
    unknown = sum(not each.metrics["gap"].has_interval for each in found.by_group)
    but = f", except perhaps the {unknown} without an interval" if unknown else ""
    if worst.value.low > 0:
        lines.append(f"At least one group has a gap of {100 * worst.value.low:.1f} percentage points or more.")
    lines.append(f"No group has a gap above {100 * worst.value.high:.1f} percentage points{but}.")
    above, below = found.beyond_chance()
    for names, side in ((above, "high"), (below, "low")):
        if names:
            lines.append(f"Confidence is too {side} in {and_others(names)}.")
    if not above and not below:
        lines.append("In no group is the confidence detectably too high or too low.")
    return lines


def and_others(names: Sequence[str | int], most: int = 5) -> str:
    """Write names; of many the first ones.

    >>> and_others(["a", "b"]), and_others(list("abcdefg"))
    ('a and b', 'a, b, c, d, e and 2 others')
    """
    shown = [str(name) for name in names]
    if len(shown) > most:
        shown = [*shown[:most], f"{len(shown) - most} others"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
