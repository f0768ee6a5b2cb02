"""Methods, or groups, one below the other: a metric of each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._checks import one_of
from attemper.calibrators.style import BLUE, DARK, GREY, VERMILION
from attemper.errors import InputError, InputTypeError
from attemper.metrics import Estimate, GroupMetrics
from attemper.plots.sheet import SMALL, axes_for, plain, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_comparison", "plot_groups"]

NAMES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "mce": "MCE", "mmce": "MMCE"}
HIGHER = ("accuracy",)  # better
GROUP_NAMES = {**NAMES, "gap": "mean confidence − accuracy", "ece_debiased": "calibration error, debiased"}
MOST_GROUPS = 40  # that names have room for
LONGEST = 24  # characters of a group's name
# A row is cut where the scale without it is so many times as fine: of methods, whose values are written, and of groups.
CROWDED, RUINED = 2.5, 5.0


def plot_comparison(rows: Any, *, metric: str = "nll", ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a metric of each method with its interval, from top to bottom; the line is that of the best.

    Intervals are of each method alone. Methods are evaluated on the same samples, so two may differ significantly
    though their intervals overlap. A row far from all others is cut at the edge, with its value. Blue and bold is the
    recommended method of a `Comparison`; of rows alone, the one with the best value. Of a `Comparison`, methods that
    cannot have the lowest NLL, outside its ``confidence_set``, have a hollow marker.

    Parameters
    ----------
    rows : Comparison, or its rows
        What `attemper.comparison.compare` returns.
    metric : str
        A key of the metrics: "nll", "ece", "brier", "accuracy", …
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> from attemper import Scores, datasets, plots
    >>> from attemper.comparison import compare
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> ax = plots.plot_comparison(compare(val, test, ["ts"], confidence_level=None), metric="ece")
    >>> ax.get_xlabel()
    'ECE'
    """
    possible = getattr(rows, "confidence_set", None) if metric == "nll" else None
    recommended = getattr(rows, "recommended", None)
    rows = list(getattr(rows, "rows", rows))
    if not rows:
        raise InputError("rows: expected what attemper.comparison.compare returns, got none")
    known = list(dict.fromkeys(key for row in rows for key in row.metrics or ()))
    if known:
        one_of("metric", metric, known)
    ax = axes_for(ax, title, height=0.7 + 0.25 * len(rows), grid="x")
    _draw(ax, rows, metric, possible, recommended)
    return ax


def _draw(
    ax: Axes, rows: list[Any], metric: str, possible: Sequence[str] | None, recommended: str | None = None
) -> None:
    found = []
    ax.set_yticks(range(len(rows)), [titled(row.method) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(plain(NAMES.get(metric, metric)))
    for y, row in enumerate(rows):
        estimate = np.nan if row.metrics is None else row.metrics[metric]
        value, low, high = estimate if isinstance(estimate, Estimate) else (float(estimate),) * 3
        if not np.isfinite(value):
            _write_at_the_edge(ax, y, "no result" if row.metrics is None else "infinite")
            continue
        found.append((y, value, low, high))
    if not found:
        return
    values = [value for _, value, *_ in found]
    best = max(values) if metric in HIGHER else min(values)
    for y, value, low, high in found:
        method = rows[y].method
        first = method == recommended if recommended is not None else value == best
        color = BLUE if first else GREY
        # The interval of a calibration error need not hold its value: see `attemper.metrics.ece`.
        ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt")
        hollow: dict[str, Any] = {"markerfacecolor": "white", "zorder": 3}
        if possible is None or method in possible:
            hollow = {}
        ax.plot([value], [y], color=color, marker="o", markersize=4.5, linestyle="", **hollow)
        if first:
            ax.get_yticklabels()[y].set(color=BLUE, fontweight="bold")
    ax.axvline(best, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    _cut(ax, found, finer=CROWDED)


def _write_at_the_edge(ax: Axes, y: float, text: str) -> None:
    place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center"}
    ax.text(0.98, y, text, fontsize=SMALL, style="italic", **place)


def _cut(
    ax: Axes, found: Sequence[tuple[int, float, float, float]], values: Sequence[float] = (), finer: float = RUINED
) -> None:
    """Set the scale by all rows (y, value and ends) but those that would ruin it, which are cut with an arrow.

    ``values`` are shown in any case. A row is cut if that makes the scale ``finer`` by this factor.
    """
    ax.locator_params(axis="x", nbins=6)
    kept = _without_outliers(found, finer)
    ends = [*values, *(end for i in kept for end in found[i][1:] if np.isfinite(end))]
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    ax.set_xlim(low - room, high + room)
    arrow: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "color": DARK, "markersize": 4, "clip_on": False}
    for y, value, *span in found:
        below, above = min(value, *span) < low - room, max(value, *span) > high + room
        for beyond, at, marker in ((below, 0.0, "<"), (above, 1.0, ">")):
            if beyond:
                ax.plot([at], [y], marker=marker, linestyle="", zorder=4, **arrow)
        if not low - room <= value <= high + room:
            _write_at_the_edge(ax, y, f"{value:.3g}")


def _without_outliers(found: Sequence[tuple[float, ...]], finer: float) -> list[int]:
    """Return which rows set the scale: all, or those left when rows that take most of it are left out."""
    lows = np.array([np.nanmin(row[1:]) for row in found])
    highs = np.array([np.nanmax(row[1:]) for row in found])
    kept = list(range(len(found)))

    def width(rows: list[int]) -> float:
        return float(highs[rows].max() - lows[rows].min())

    while len(kept) > max(3, 2 * len(found) // 3):
        rest = [[i for i in kept if i != left_out] for left_out in kept]
        least = min(rest, key=width)
        if width(kept) <= finer * width(least):
            break
        kept = least
    return kept


def plot_groups(found: GroupMetrics, *, metric: str = "gap", ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a metric of each group with its interval, from top to bottom: a forest plot.

    The intervals are those of `attemper.metrics.by_group`, by default ones that hold for all groups together. The
    diamond and the line are of all samples. A filled marker is a gap beyond chance, whose interval excludes 0; the
    area of a marker grows with the samples. Of more than 40 groups those are drawn whose intervals are the farthest
    from the value of all samples. An interval that would take most of the scale for itself is cut, with an arrow.

    Parameters
    ----------
    found : GroupMetrics
        What `attemper.metrics.by_group` returns.
    metric : str
        One of its metrics: "gap", "accuracy", "nll", "brier", "ece", "ece_debiased".
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import metrics, plots
    >>> right = np.random.default_rng(0).random(600) < 0.8
    >>> found = metrics.by_group(right, np.full(600, 0.8), groups=np.repeat(["a", "b", "c"], 200))
    >>> ax = plots.plot_groups(found)
    >>> ax.get_xlabel()
    'mean confidence − accuracy'
    """
    if not isinstance(found, GroupMetrics):
        raise InputTypeError(
            f"found: expected what attemper.metrics.by_group returns, got {type(found).__name__}. Use "
            "plot_groups(by_group(labels, probs, groups=…))."
        )
    one_of("metric", metric, found.metrics)
    rows = _farthest(found, metric)
    ax = axes_for(ax, title, height=0.9 + 0.2 * (len(rows) + 1), grid="x")
    _draw_groups(ax, rows, found, metric)
    return ax


def _farthest(found: GroupMetrics, metric: str) -> list[Any]:
    """Return the groups to draw: all, or those that are the farthest from the rest."""
    if len(found.by_group) <= MOST_GROUPS:
        return list(found.by_group)
    centre = 0.0 if metric == "gap" else found.all.metrics[metric].value

    def distance(row: Any) -> float:
        value = row.metrics[metric]
        return max(value.low - centre, centre - value.high) if value.has_interval else -np.inf

    chosen = sorted(found.by_group, key=distance, reverse=True)[:MOST_GROUPS]
    return [row for row in found.by_group if row in chosen]


def _draw_groups(ax: Axes, rows: list[Any], found: GroupMetrics, metric: str) -> None:
    largest, spans = max(row.n for row in rows), []
    counts = [f"{plain(row.group, LONGEST)} ({row.n:.6g})" for row in rows]
    ax.set_yticks(range(len(rows) + 1), [*counts, f"all ({found.all.n:.6g})"])
    ax.set_ylim(len(rows) + 0.6, -0.6)
    some = "" if len(rows) == len(found.by_group) else f"\n{len(rows)} of {len(found.by_group)} groups: the farthest"
    ax.set_xlabel(GROUP_NAMES.get(metric, metric) + some)
    for y, row in enumerate([*rows, found.all]):
        value, low, high = row.metrics[metric]
        whole = y == len(rows)
        beyond = metric == "gap" and (low > 0 or high < 0)
        color = DARK if whole else VERMILION if beyond else BLUE
        if not np.isfinite(value):
            _write_at_the_edge(ax, y, "no value")
            continue
        spans.append((y, value, low, high) if row.metrics[metric].has_interval else (y, value, value, value))
        if row.metrics[metric].has_interval:
            ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt", zorder=2)
        size = 5.0 if whole else 2.5 + 4 * float(np.sqrt(row.n / largest))
        filled: dict[str, Any] = {} if whole or beyond else {"markerfacecolor": "white"}
        ax.plot([value], [y], color=color, marker="D" if whole else "o", markersize=size, zorder=3, **filled)
    if metric == "gap":
        ax.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    everybody = found.all.metrics[metric].value
    if np.isfinite(everybody):
        ax.axvline(everybody, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    if spans:
        _cut(ax, spans, [value for _, value, *_ in spans] + [0.0] * (metric == "gap"))
