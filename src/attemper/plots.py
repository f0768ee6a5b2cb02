"""Results drawn with matplotlib. Every function draws on ``ax=``, or on new Axes as pyplot makes them, and returns it.

Sizes and fonts are those of the Axes and of the user's settings; nothing global is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._result import Estimate
from attemper._typing import Floats
from attemper.errors import InputError, NotFittedError, require
from attemper.metrics import (
    Evaluation,
    Reliability,
    corp_reliability,
    referral_curve,
    reliability,
    risk_coverage_curve,
)
from attemper.metrics.bins import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_comparison",
    "plot_groups",
    "plot_posterior",
    "plot_referral",
    "plot_reliability",
    "plot_risk_coverage",
]

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
DARK, GREY = "#222222", "#7F7F7F"
CYCLE = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"))  # Okabe and Ito
UNCALIBRATED = ("none", "raw", "uncalibrated", "before")  # grey, wherever they come

FOOT = 0.12  # height of the strip below a reliability diagram that shows where the samples are
COUNTED = 25  # bins, at most, that have their number of samples below them
ALONG = 11  # points of an interval
STRIP = 40  # bars of a histogram in the strip
SEEN = 0.01  # of the highest density: less is not shown
FEWEST = 0.05  # decided, from which on an error rate is shown in any case and sets the scale
FEWEST_SAMPLES = 20  # decided: the error rate of fewer is mostly chance
MOST_GROUPS = 40  # that names have room for
RUINED = 2.5  # a row is cut at the edge where the scale without it is so many times as fine

TITLES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier score",
    "gap": "mean confidence − accuracy",
    "ece": "ECE",
    "ece_debiased": "calibration error, debiased",
    "aurc": "AURC",
}


def plot_reliability(
    labels: Any,
    probs: Any,
    *,
    n_bins: Any = 15,
    counts: bool = True,
    confidence_level: float = 0.95,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw a reliability diagram: how often predictions are right against how confident they are.

    One array is drawn as bars that end at the accuracy of each bin, with its interval; the line across a bar is the
    mean confidence. Several are overlaid, a point for each bin. Without bins (CORP) the curve is the isotonic
    regression, and the band is where it would lie if the predictions were calibrated.

    Parameters
    ----------
    labels : array
    probs : array, or mapping of names to arrays
        As in `attemper.metrics.reliability`. One column is the probability of the positive class; otherwise the
        diagram is that of the confidence.
    n_bins : int or None
        Number of bins; None: without bins.
    counts : bool
        Show in a strip below the diagram how many samples there are.
    confidence_level : float
        Level of the intervals, and of the band.
    ax : matplotlib Axes, optional
    **options
        Others of `attemper.metrics.reliability`, such as ``kind``, ``strategy`` and ``clusters``; without bins those of
        `attemper.metrics.corp_reliability`.

    Examples
    --------
    >>> ax = plot_reliability([0, 1, 1], {"raw": [0.1, 0.4, 0.9], "calibrated": [0.2, 0.5, 0.8]})
    >>> ax.get_xlabel()
    'predicted probability'
    """
    arrays = _by_name(probs)
    compute: Any = corp_reliability if n_bins is None else reliability
    if n_bins is not None:
        options["n_bins"] = n_bins
    tables = {name: compute(labels, p, confidence_level=confidence_level, **options) for name, p in arrays.items()}
    if any(table.weight.ndim != 1 for table in tables.values()):
        raise InputError(f"kind={options.get('kind')!r}: expected 'top', 'binary' or 'full' to draw one curve", "kind")
    ax = _axes(ax, square=True)
    first = np.shape(next(iter(arrays.values())))
    of_pairs = options.get("kind") or ("binary" if len(first) == 1 or first[1] == 1 else "top")
    names = ("confidence", "accuracy") if of_pairs == "top" else ("predicted probability", "observed frequency")
    ax.set(xlim=(0, 1), ylim=(-FOOT if counts else 0, 1), xlabel=names[0], ylabel=names[1])
    ax.set_yticks(np.arange(6) / 5)
    if n_bins is None:
        _draw_curves(ax, tables, counts)
    elif len(tables) > 1:
        _draw_points(ax, tables, counts)
    else:
        [table] = tables.values()
        _draw_bars(ax, table, names, f"{100 * confidence_level:.3g}%", counts)
    ax.plot([0, 1], [0, 1], color=DARK, linestyle=":", linewidth=1, zorder=2, label="perfectly calibrated")
    if counts:
        ax.axhline(0, color="0.6", linewidth=0.6, zorder=1.8)
    foot = FOOT / (1 + FOOT) if counts else 0
    ax.legend(loc="best", bbox_to_anchor=(0, foot, 1, 1 - foot), fontsize="small", framealpha=0.85, edgecolor="none")
    return ax


def _draw_bars(ax: Axes, table: Reliability, names: tuple[str, str], level: str, counts: bool) -> None:
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence = table.accuracy[filled], table.confidence[filled]
    middle = left + width / 2
    look: dict[str, Any] = {"facecolor": "#9CC9E3", "edgecolor": BLUE, "linewidth": 0.6}
    ax.bar(left, accuracy, width, align="edge", **look, zorder=1, label=f"{names[1]}, {level} interval")
    shade = np.where(confidence > accuracy, VERMILION, BLUE)
    ax.bar(left, confidence - accuracy, width, bottom=accuracy, align="edge", color=shade, alpha=0.25, zorder=1.5)
    error = f"mean {names[0]} (ECE {_ece(table):.3f})"
    ax.hlines(confidence, left, left + width, color=VERMILION, linewidth=1.8, zorder=2.2, label=error)
    _draw_intervals(ax, middle, table, color="white", linewidth=2.4, zorder=2.4)
    _draw_intervals(ax, middle, table, color=DARK, linewidth=1.1, zorder=2.5)
    if counts and len(table.weight) <= COUNTED:
        for x, weight in zip(middle, table.weight[filled]):
            ax.text(x, -0.01, _short(weight), ha="center", va="top", rotation=90, fontsize="x-small")


def _draw_points(ax: Axes, tables: Mapping[str, Reliability], counts: bool) -> None:
    for name, (color, marker) in _styles(tables).items():
        table = tables[name]
        filled = table.weight > 0
        x, label = table.confidence[filled], f"{_text(name)} (ECE {_ece(table):.3f})"
        look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.4}
        ax.plot(x, table.accuracy[filled], **look, zorder=2.5, label=label)
        _draw_intervals(ax, x, table, color=color, linewidth=0.9, zorder=2.5)
    if counts:
        highest = max(float(table.weight.max()) for table in tables.values())
        for name, (color, _) in _styles(tables).items():
            table = tables[name]
            ax.stairs(table.weight / highest * 0.9 * FOOT - FOOT, table.edges, baseline=-FOOT, color=color, linewidth=1)


def _draw_intervals(ax: Axes, x: Floats, table: Reliability, **look: Any) -> None:
    """Draw the interval of each bin as a line through many points: the legend goes where it hides few points."""
    y = np.linspace(table.low[table.weight > 0], table.high[table.weight > 0], ALONG)
    ax.plot(np.tile(x, (ALONG, 1)), y, solid_capstyle="butt", **look)


def _draw_curves(ax: Axes, tables: Mapping[str, Any], counts: bool) -> None:
    for name, (color, _) in _styles(tables).items():
        table = tables[name]
        label = " ".join(filter(None, (_text(name), "isotonic regression")))
        ax.plot(table.confidence, table.accuracy, color=color, linewidth=1.6, zorder=2.5, label=label)
        look: dict[str, Any] = {"color": color, "alpha": 0.2, "linewidth": 0, "zorder": 1}
        if len(tables) == 1:
            look |= {"color": GREY, "label": "band if calibrated" if table.band == "consistency" else "confidence band"}
        ax.fill_between(table.band_confidence, table.low, table.high, **look)
        if counts:
            share, edges = np.histogram(table.confidence, STRIP, (0.0, 1.0), weights=table.weight)
            ax.stairs(share / share.max() * 0.9 * FOOT - FOOT, edges, baseline=-FOOT, color=color, linewidth=1)


def _ece(table: Reliability) -> float:
    return table.mean(np.abs(table.accuracy - table.confidence))


def plot_referral(
    labels: Any,
    probs: Any,
    *,
    threshold: float | Mapping[str, float] | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw the share of the wrong predictions that are referred against that of the right ones that are decided.

    Parameters
    ----------
    labels : array
    probs : array, or mapping of names to arrays
        As in `attemper.metrics.referral_curve`; samples with a confidence up to a threshold are referred.
    threshold : float, or mapping of names to floats, optional
        The threshold in use: circled, with its value in the legend.
    ax : matplotlib Axes, optional
    **options
        Others of `attemper.metrics.referral_curve`.

    Examples
    --------
    >>> ax = plot_referral([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], threshold=0.75)
    >>> ax.get_xlabel()
    'right predictions that are decided'
    """
    curves = {name: referral_curve(labels, p, **options) for name, p in _by_name(probs).items()}
    ax = _axes(ax, square=True)
    points = {name: (c.threshold, c.correct_decided, c.errors_referred) for name, c in curves.items()}
    _draw_lines(ax, points, threshold)
    ax.plot([0, 1], [1, 0], color=GREY, linestyle=":", linewidth=1, label="chance", zorder=1)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    _percent(ax.xaxis, ax.yaxis)
    ax.set(xlabel="right predictions that are decided", ylabel="wrong predictions that are referred")
    ax.legend(loc="lower left", fontsize="small", framealpha=0.85, edgecolor="none")
    return ax


def plot_risk_coverage(
    labels: Any,
    probs: Any,
    *,
    threshold: float | Mapping[str, float] | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw the error rate of the decided predictions against the share that is decided.

    Lines begin where 20 samples, or 5 %, are decided, and the scale is that of shares decided from 5 % on: the error
    rate of fewer samples is mostly chance.

    Parameters
    ----------
    labels, probs, **options
        As in `attemper.metrics.risk_coverage_curve`; a mapping of names draws several lines.
    threshold, ax
        As in `plot_referral`.

    Examples
    --------
    >>> ax = plot_risk_coverage([0, 1, 0], {"ts": [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]})
    >>> ax.get_ylabel()
    'error rate of the decided'
    """
    curves = {name: risk_coverage_curve(labels, p, **options) for name, p in _by_name(probs).items()}
    ax = _axes(ax)
    points, highest = {}, 0.0
    for name, curve in curves.items():
        shown = np.where(curve.coverage < min(FEWEST, (FEWEST_SAMPLES - 0.5) / len(labels)), np.nan, curve.risk)
        points[name] = (curve.threshold, curve.coverage, shown)
        highest = max(highest, float(curve.risk[curve.coverage >= FEWEST].max(initial=0.0)))
    _draw_lines(ax, points, threshold)
    ax.set(xlim=(0, 1), ylim=(0, 1.06 * highest or 1.0))
    _percent(ax.xaxis, ax.yaxis)
    ax.set(xlabel="predictions that are decided", ylabel="error rate of the decided")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    return ax


def _draw_lines(
    ax: Axes, points: Mapping[str, Sequence[Floats]], threshold: float | Mapping[str, float] | None
) -> None:
    """Draw a line for each name through (threshold, x, y), and circle the place of its threshold."""
    by_name = isinstance(threshold, Mapping)
    at: Mapping[str, Any] = threshold if isinstance(threshold, Mapping) else dict.fromkeys(points, threshold)
    for name, (color, marker) in _styles(points).items():
        _, x, y = points[name]
        alone = marker if len(x) == 1 else ""
        ax.plot(x, y, color=color, marker=alone, linewidth=1.6, label=_text(name) or "_", clip_on=False)
    for name, (t, x, y) in points.items():  # below all lines in the legend
        if (value := at.get(name)) is None:
            continue
        # Confidences between two thresholds of the curve do not occur, so the lower of them refers the same.
        place = max(int(np.searchsorted(t, value, side="right")) - 1, 0)
        known = "_" if name != next(iter(points)) else f"threshold {value:.3g}"
        label = f"{_text(name)}: threshold {value:.3g}" if by_name else known
        ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": ""}
        ax.plot(x[place], y[place], color=DARK, label=label, clip_on=False, zorder=3, **ring)


def plot_posterior(calibrator: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the posterior density of the temperature, with its 95 % interval shaded.

    Parameters
    ----------
    calibrator : fitted BayesianTemperatureScaling
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from attemper.calibrators import BayesianTemperatureScaling
    >>> bayes = BayesianTemperatureScaling().fit([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]], [0, 1, 1])
    >>> plot_posterior(bayes).get_xlabel()
    'temperature T'
    """
    if not hasattr(calibrator, "posterior_"):
        if hasattr(calibrator, "map_"):
            what = f"calibrator: expected bayes, which has a posterior, got {type(calibrator).__name__}"
            raise InputError(what, "calibrator")
        raise NotFittedError("calibrator: it is not fitted yet; call fit first")
    t = np.asarray(calibrator.posterior_.temperature)
    density = np.asarray(calibrator.posterior_.weight) / np.gradient(t)
    low, high = calibrator.temperature_interval_
    middle = calibrator.temperature_
    x = np.concatenate([[low], t[(t >= low) & (t <= high)], [high]])  # the ends lie between points of the grid
    ax = _axes(ax)
    inside = f"95% interval {low:.3g} to {high:.3g}"
    ax.fill_between(x, 0, np.interp(x, t, density), color="#C6DDED", linewidth=0, label=inside)
    ax.plot(t, density, color=BLUE, linewidth=1.6)
    ax.axvline(middle, color=DARK, linestyle="--", linewidth=1, label=f"median {middle:.3g}")
    seen = [*t[density >= SEEN * density.max()], low, high]
    room = 0.02 * (max(seen) - min(seen))
    ax.set(xlabel="temperature T", ylabel="posterior density", ylim=(0, 1.04 * float(density.max())))
    ax.set_xlim(max(min(seen) - room, 0.0), max(seen) + room)
    ax.legend(fontsize="small", framealpha=0.85, edgecolor="none")
    return ax


def plot_comparison(comparison: Any, *, metric: str = "nll", ax: Axes | None = None) -> Axes:
    """Draw a metric of each method with its interval; the chosen method is blue, the dotted line is the lowest value.

    Intervals are of each method alone. Methods are compared on the same samples, so two may differ beyond chance though
    their intervals overlap: those that can have the lowest NLL have a filled marker. A row far from all others is cut
    at the edge, with its value.

    Parameters
    ----------
    comparison : Comparison
        What `attemper.compare` returns.
    metric : str
        One that the comparison evaluated on test samples; "nll" without them is that of held-out samples.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from attemper.comparison import compare_scores
    >>> from attemper.data.scores import Scores
    >>> logits = np.random.default_rng(0).normal(size=(300, 3))
    >>> val = Scores.of(logits, logits.argmax(axis=1) * (np.arange(300) % 3 > 0))
    >>> plot_comparison(compare_scores(val, methods=["ts", "bayes"])).get_xlabel()
    'NLL of held-out samples'
    """
    on_test = any(row.test is not None for row in comparison.rows)
    one_of("metric", metric, sorted({name for row in comparison.rows for name in row.test or ()} | {"nll"}))

    def value(row: Any) -> Estimate | None:
        if row.failure:
            return None
        found: Estimate | None = row.test[metric] if row.test is not None else None if on_test else row.nll
        return found

    best = comparison.test_can_be_best if on_test else comparison.can_be_best
    possible = best if metric == "nll" and best else [row.method for row in comparison.rows]
    rows = [
        _ForestRow(
            "uncalibrated" if row.method == "none" else _text(row.method),
            value(row),
            BLUE if row.method == comparison.chosen else GREY,
            filled=row.method in possible,
            bold=row.method == comparison.chosen,
        )
        for row in comparison.rows
    ]
    ax = _axes(ax, height=1.2 + 0.28 * len(rows))
    values = [row.value.value for row in rows if row.value is not None and np.isfinite(row.value.value)]
    lines = [max(values) if metric == "accuracy" else min(values)] if values else []
    _forest(ax, rows, lines)
    ax.set_xlabel(f"{TITLES.get(metric, metric)} of {'test' if on_test else 'held-out'} samples")
    return ax


def plot_groups(evaluation: Any, *, metric: str = "gap", ax: Axes | None = None) -> Axes:
    """Draw a metric of each group with its interval: a forest plot.

    The intervals of the groups hold together. The diamond and the dotted line are of all samples. A filled marker is a
    gap beyond chance, whose interval excludes 0. Of more than 40 groups those are drawn whose intervals are the
    farthest from 0 (of other metrics: from the value of all samples).

    Parameters
    ----------
    evaluation : Evaluation or Evaluated
        What `attemper.metrics.evaluate` or `attemper.evaluate` returns with ``by``; of both probabilities those after
        calibration are drawn.
    metric : str
        One of its metrics.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from attemper.metrics import evaluate
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(600)
    >>> plot_groups(evaluate(rng.random(600) < p, p, by=np.repeat(["a", "b", "c"], 200))).get_xlabel()
    'mean confidence − accuracy'
    """
    if hasattr(evaluation, "before"):
        evaluation = evaluation.before if evaluation.after is None else evaluation.after
    if not isinstance(evaluation, Evaluation) or not evaluation.parts:
        raise InputError("evaluation: expected one by group; use evaluate(labels, probs, by=groups)", "evaluation")
    one_of("metric", metric, evaluation)
    centre = 0.0 if metric == "gap" else evaluation[metric].value

    def distance(name: Any) -> float:
        found = evaluation.parts[name][metric]
        return max(found.low - centre, centre - found.high) if found.has_interval else -np.inf

    shown = set(sorted(evaluation.parts, key=distance, reverse=True)[:MOST_GROUPS])
    rows = []
    for name, part in evaluation.parts.items():
        if name in shown:
            beyond = metric == "gap" and part[metric].has_interval and distance(name) > 0
            color = VERMILION if beyond else BLUE
            rows.append(_ForestRow(f"{_text(name, 24)} ({_short(part.n)})", part[metric], color, filled=beyond))
    rows.append(_ForestRow(f"all ({_short(evaluation.n)})", evaluation[metric], DARK, marker="D"))
    ax = _axes(ax, height=1.2 + 0.28 * len(rows))
    everybody = evaluation[metric].value
    _forest(ax, rows, [everybody] if np.isfinite(everybody) else [])
    if metric == "gap":
        ax.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        ax.set_xlim(min(ax.get_xlim()[0], 0.0), max(ax.get_xlim()[1], 0.0))
    some = "" if len(shown) == len(evaluation.parts) else f"\n{len(shown)} of {len(evaluation.parts)} groups"
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(TITLES.get(metric, metric) + some)
    return ax


@dataclass(frozen=True)
class _ForestRow:
    """A number with its interval, and how it looks."""

    name: str
    value: Estimate | None
    color: str
    filled: bool = True
    bold: bool = False
    marker: str = "o"

    @property
    def span(self) -> tuple[float, float]:
        """From where to where it reaches; the interval of a calibration error need not hold its value."""
        assert self.value is not None
        found = [v for v in (self.value.value, self.value.low, self.value.high) if np.isfinite(v)]
        return min(found), max(found)


def _forest(ax: Axes, rows: Sequence[_ForestRow], lines: Sequence[float]) -> None:
    """Draw rows from top to bottom, and dotted vertical lines."""
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    known = {y: row for y, row in enumerate(rows) if row.value is not None and np.isfinite(row.value.value)}
    for y, row in enumerate(rows):
        if row.bold:
            ax.get_yticklabels()[y].set(color=row.color, fontweight="bold")
        if row.value is None or y not in known:
            is_infinite = row.value is not None and np.isinf(row.value.value)
            _at_the_edge(ax, y, "infinite" if is_infinite else "no result")
            continue
        if row.value.has_interval:
            ax.plot([row.value.low, row.value.high], [y, y], color=row.color, linewidth=1.6, solid_capstyle="butt")
        face = row.color if row.filled else "white"
        ax.plot([row.value.value], [y], row.marker, color=row.color, markerfacecolor=face, markersize=6, zorder=3)
    for x in lines:
        ax.axvline(x, color=GREY, linewidth=0.9, linestyle=":", zorder=1)
    if not known:
        return
    spans = {y: row.span for y, row in known.items()}
    kept = _without_outliers(spans)
    low, high = (f(end) for f, end in zip((min, max), zip(*(spans[y] for y in kept))))
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - room, high + room
    ax.set_xlim(low, high)
    arrow: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "color": DARK, "markersize": 5, "clip_on": False}
    for y, row in known.items():
        for beyond, at, marker in ((spans[y][0] < low, 0, "<"), (spans[y][1] > high, 1, ">")):
            if beyond:
                ax.plot([at], [y], marker, zorder=4, **arrow)
        assert row.value is not None
        if not low <= row.value.value <= high:
            _at_the_edge(ax, y, f"{row.value.value:.3g}")


def _at_the_edge(ax: Axes, y: float, text: str) -> None:
    place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center"}
    ax.text(0.97, y, text, fontsize="small", style="italic", **place)


def _without_outliers(spans: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return which rows set the scale: all, or those left when rows that take most of it are left out."""
    kept = list(spans)

    def width(rows: list[int]) -> float:
        return max(spans[y][1] for y in rows) - min(spans[y][0] for y in rows)

    while len(kept) > max(3, 2 * len(spans) // 3):
        least = min(([y for y in kept if y != out] for out in kept), key=width)
        if width(kept) <= RUINED * width(least):
            break
        kept = least
    return kept


# What all of them share.


def _axes(ax: Axes | None, *, square: bool = False, height: float | None = None) -> Axes:
    """Return the Axes that were passed, or new ones, with a light grid."""
    if ax is None:
        pyplot = require("matplotlib.pyplot", extra="plots", why="to draw")
        size = {"figsize": (5.2, 5.0)} if square else {} if height is None else {"figsize": (6.4, height)}
        ax = pyplot.subplots(layout="constrained", **size)[1]
    elif not hasattr(ax, "plot"):
        raise InputError(f"ax: expected a matplotlib Axes, got {type(ax).__name__}; of several pass one", "ax")
    ax.set_axisbelow(True)
    ax.grid(visible=True, color="0.9", linewidth=0.6)
    return ax


def _percent(*axes: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1))


def _by_name(probs: Any) -> dict[str, Any]:
    """Return arrays by the names of their lines; one array has none."""
    if isinstance(probs, Mapping):
        if not probs:
            raise InputError("probs: expected at least one name with its probabilities", "probs")
        return {str(name): p for name, p in probs.items()}
    return {"": probs}


def _styles(names: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Give each name a colour and a marker; what is not calibrated is grey beside others.

    >>> _styles({"raw": 0, "ts": 0})
    {'raw': ('#7F7F7F', 'X'), 'ts': ('#0072B2', 'o')}
    """
    others = [name for name in names if name not in UNCALIBRATED or len(names) == 1]
    return {name: CYCLE[others.index(name) % len(CYCLE)] if name in others else (GREY, "X") for name in names}


def _text(text: object, longest: int = 36) -> str:
    r"""Return text that matplotlib shows as it is: no formulas, nothing hidden, names not too long.

    >>> _text("price in $"), _text("_hidden"), _text("a" * 40)
    ('price in \\$', ' _hidden', 'aaaaaaaaaaaaaaaaaaaaaaa…aaaaaaaaaaaa')
    """
    shown = " ".join(str(text).split())
    if len(shown) > longest:  # the end often tells names apart
        shown = f"{shown[: longest * 2 // 3 - 1]}…{shown[-(longest // 3) :]}"
    return (f" {shown}" if shown.startswith("_") else shown).replace("$", r"\$")


def _short(weight: float) -> str:
    """Write a number of samples in at most six characters.

    >>> [_short(n) for n in (7, 0.25, 12.5, 4321, 123456, 2e7)]
    ['7', '0.25', '12.5', '4321', '123k', '20M']
    """
    if weight >= 99_999.5:
        return f"{weight / 1e3:.0f}k" if weight < 999_500 else f"{weight / 1e6:.0f}M"
    return f"{weight:.0f}" if weight >= 999.5 or weight == round(weight) else f"{weight:.3g}"
