"""What `by_group` returns: a row for each group, the worst group, and all of it in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attemper._checks import one_of
from attemper._table import Columns, Table
from attemper.metrics.alike import GroupTest
from attemper.metrics.intervals import Estimate

__all__ = ["GROUP_METRICS", "GroupMetrics", "GroupRow", "and_others"]

GROUP_METRICS = ("accuracy", "gap", "nll", "brier", "ece", "ece_debiased")
NOT_TOGETHER = "no interval: with simultaneous=False the intervals do not hold together"


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


@dataclass(frozen=True, repr=False)
class GroupMetrics(Table):
    """Metrics of each group: `by_group` returns it."""

    by_group: tuple[GroupRow, ...]  # sorted by name
    all: GroupRow
    alike: GroupTest  # given the confidence, accuracy does not depend on the group
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

    def worst(self, metric: str = "gap") -> tuple[str | int, Estimate] | None:
        """Return the worst group: the lowest accuracy, the largest gap of either sign, the highest of other metrics.

        The largest of many noisy values is too large, and often that of a small group. So the group is the one whose
        interval begins highest, and the ends are those of the largest *true* value of all groups: the largest of the
        lower ends, and the largest of the upper ends. Both hold with the confidence level, as the intervals of all
        groups hold together. Groups without an interval have no part in it; None where no group has one.

        Examples
        --------
        >>> import numpy as np
        >>> from attemper.metrics import by_group
        >>> rng = np.random.default_rng(0)
        >>> found = by_group(rng.random(400) < 0.5, np.full(400, 0.8), groups=np.repeat(["a", "b"], 200))
        >>> found.worst("accuracy")[0]
        'a'
        """
        one_of("metric", metric, self.metrics)
        sizes = {row.group: _size(metric, row.metrics[metric]) for row in self.by_group}
        sizes = {group: size for group, size in sizes.items() if size.has_interval}
        if not sizes:
            return None
        group = max(sizes, key=lambda name: (sizes[name].low, sizes[name].value))
        low, high = max(size.low for size in sizes.values()), max(size.high for size in sizes.values())
        value = sizes[group].value
        found = Estimate(value, low, high) if metric != "accuracy" else Estimate(-value, -high, -low)
        return group, found if self.simultaneous else Estimate.without(found.value, NOT_TOGETHER)

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
            "worst": {name: w and {"group": w[0], **w[1].to_dict()} for name, w in worst.items()},
            "alike": self.alike._asdict(),
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
        """Return the result in sentences: whether all groups are alike, the clearest gap, who is beyond chance.

        ``percent`` is the sign of percent, with a space before it if you like.

        Examples
        --------
        >>> import numpy as np
        >>> from attemper.metrics import by_group
        >>> rng = np.random.default_rng(0)
        >>> right = rng.random(900) < np.repeat([0.8, 0.8, 0.6], 300)
        >>> found = by_group(right, np.full(900, 0.8), groups=np.repeat(["a", "b", "c"], 300))
        >>> print(found.sentences()[0])
        All groups alike? No (p = 0.001): at the same confidence, accuracy depends on the group.
        """
        return [*_alike_sentences(self), *_gap_sentences(self, percent)]


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
    group, largest = worst
    row = found[group]
    gap = row.metrics["gap"]
    ends = Estimate(row.confidence - gap.value, row.confidence - gap.high, row.confidence - gap.low)
    right = row.metrics.get("accuracy", ends)
    mean, value, low, high = (f"{100 * share:.1f}" for share in (row.confidence, *right))
    most = f"The clearest gap is that of {row.group}: its mean confidence is {mean}{percent}, and it is right in"
    lines = [f"{most} {value}{percent} ({low} to {high})."]
    unknown = sum(not each.metrics["gap"].has_interval for each in found.by_group)
    but = f", except perhaps the {unknown} without an interval" if unknown else ""
    if largest.low > 0:
        lines.append(f"At least one group has a gap of {100 * largest.low:.1f} percentage points or more.")
    if largest.has_interval:
        last = max(found.by_group, key=lambda each: _size("gap", each.metrics["gap"]).high)
        of = f", the limit of {last.group} (n = {last.n:g})" if last.group != group else ""
        lines.append(f"No group has a gap above {100 * largest.high:.1f} percentage points{of}{but}.")
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
