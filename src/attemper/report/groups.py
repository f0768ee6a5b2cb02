"""The section by group: a table, and what it shows in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attemper.calibrators import method_title
from attemper.data.scores import LabelledScores
from attemper.metrics import GroupMetrics, GroupRow
from attemper.metrics.groups import group_metrics
from attemper.metrics.predictions import Predictions
from attemper.report.methods import resamples
from attemper.report.numbers import triple

__all__ = ["by_group", "groups_of"]

MOST = 50  # groups in the table
PERCENT = "\u00a0%"  # no line breaks there


def by_group(
    predictions: Mapping[str, Predictions], test: LabelledScores, recommended: str, confidence_level: float, seed: int
) -> dict[str, GroupMetrics]:
    """Return metrics by group, uncalibrated and with the recommended method; nothing where there are no groups."""
    if test.groups is None:
        return {}
    settings: dict[str, Any] = {"confidence_level": confidence_level, "seed": seed, "n_resamples": resamples(len(test))}
    found = {m: predictions[m].grouped(test.groups).weighted(test.weights) for m in ("none", recommended)}
    return {m: group_metrics(p, **settings) for m, p in found.items()}


def groups_of(found: Mapping[str, GroupMetrics], accuracy: list[float]) -> dict[str, Any] | None:
    """Return what the section shows; None without groups. ``accuracy`` is that of all samples, as in other sections."""
    if not found:
        return None
    [before, *_], [*_, (method, after)] = found.values(), found.items()
    shown = _shown(after)
    high_in, low_in = after.beyond_chance()
    rows = [
        {
            "name": str(row.group),
            "n": row.n,
            "n_clusters": row.n_clusters,
            "confidence": row.confidence,
            "accuracy": triple(row.accuracy),
            "before": triple(other.gap),
            "gap": triple(row.gap),
            "error": None if row.ece_debiased.value != row.ece_debiased.value else triple(row.ece_debiased),
            "beyond": "too high" if row.group in high_in else "too low" if row.group in low_in else "",
        }
        for row, other in [*((row, before[row.group]) for row in shown), (after.all, before.all)]
    ]
    rows[-1] |= {"beyond": "", "accuracy": accuracy}
    return {
        "method": method_title(method),
        "calibrated": method != "none",
        "n": len(after.by_group),
        "shown": len(shown),
        "clusters": after.all.n_clusters is not None,
        "rows": rows[:-1],
        "all": rows[-1],
        "before": before.sentences(percent=PERCENT),
        "after": after.sentences(percent=PERCENT),
    }


def _shown(found: GroupMetrics) -> list[GroupRow]:
    """Return the groups of the table: all, or those with the most samples."""
    chosen = sorted(found.by_group, key=lambda row: -row.n)[:MOST]
    return [row for row in found.by_group if row in chosen]
