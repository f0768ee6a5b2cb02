"""Reliability diagrams and confidence histograms: how often the classifier was right against how confident it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper.errors import InputError
from attemper.metrics import CorpReliability, Decomposition, Estimate, Reliability, corp_reliability, reliability
from attemper.metrics.bins import Bins
from attemper.plots.labels import LINE, headroom, label_uprights, write
from attemper.plots.sheet import check_order, drawn_on, new_axes, settle
from attemper.plots.styles import AMISS, BAR, BLUE, DARK, GAP_OPACITY, GREY, KEY, LEGEND, LEVEL, RIGHT, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_before_after", "plot_confidence", "plot_reliability"]

PER_CLASS = ("binary", "full")  # kinds that look at the probabilities of classes, not at the prediction
MARKED = 40  # points of a curve, at most, that are marked
HISTOGRAM_BINS, FOOT = 40, 0.12  # below the diagram are the numbers of samples, or their histogram
ROOM = 7.0  # points that the number of a bin takes
PLAIN: dict[str, Any] = {"align": "edge", "color": RIGHT, "edgecolor": "white", "linewidth": 0.4}
WRONG: dict[str, Any] = {"align": "edge", "color": AMISS, "edgecolor": "white", "linewidth": 0.4}
COLUMNS = 3  # of the legend
ACCURACY: dict[str, Any] = {"align": "edge", "facecolor": BAR, "edgecolor": BLUE, "linewidth": 0.6}
GAP: dict[str, Any] = {"align": "edge", "color": LEVEL, "alpha": GAP_OPACITY, "linewidth": 0}


def plot_reliability(
    labels: ArrayLike | Any,
    probs: ArrayLike | Any = None,
    *,
    n_bins: Bins | None = 15,
    counts: bool = True,
    ece: float | Estimate | bool = True,
    parts: Decomposition | None = None,
    ax: Axes | None = None,
    title: str = "",
    **options: Any,
) -> Axes:
    """Draw a reliability diagram: accuracy against confidence, in bins or without.

    In bins, bars end at the accuracy of each bin, with its interval; the orange edge is the mean confidence, the light
    area the gap between the two. If the edge is above the bar the classifier is over-confident. Empty bins stay empty.

    Without bins (CORP), the line is the isotonic regression. If it leaves the grey band, which lies around the
    diagonal, the classifier is not calibrated there; a confidence band lies around the line instead.

    Parameters
    ----------
    labels, probs
        As in `attemper.metrics.reliability`. Or pass the table alone: what that function returns, of ``kind`` "top",
        "binary" or "full", or `attemper.metrics.corp_reliability`.
    n_bins : int, "auto" or None
        Number of bins; None: without bins.
    counts : bool
        In bins: write the number of samples (their weight) below each bin that is wide enough for it on paper.
        Without: draw a histogram of the confidences there.
    ece : bool, float or Estimate
        Written above the diagram: True for the ECE of these bins, or what `attemper.metrics.ece` returns. Its interval
        is labelled with the ``confidence_level`` among the options, by default 0.95, which is that of the bins.
    parts : Decomposition, optional
        What `attemper.metrics.decompose` returns: written below.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str
    **options
        Those of `attemper.metrics.reliability` (``kind``, ``strategy``, ``confidence_level``, …), or, without bins, of
        `attemper.metrics.corp_reliability` (``of_class``, ``band``, …).

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from attemper import plots
    >>> ax = plots.plot_reliability([0, 0], [[0.9, 0.1], [0.2, 0.8]], title="two samples")
    >>> ax.get_title()
    'two samples'
    """
    table = _table(labels, probs, n_bins, options)
    level = _level(options)
    words = _words(table, ece, parts, level)
    with drawn_on(ax, title, height=3.7 + LINE / 72 * len(words)) as ax:
        _draw(ax, table, counts, words, _axis_names(options), level)
    return ax


def _level(options: dict[str, Any]) -> str:
    return f"{100 * options.get('confidence_level', 0.95):.3g} %"


def _axis_names(options: dict[str, Any]) -> tuple[str, str]:
    if options.get("kind") in PER_CLASS or options.get("of_class") is not None:
        return "predicted probability", "observed frequency"
    return "confidence", "accuracy"


def _words(
    table: Reliability | CorpReliability, ece: float | Estimate | bool, parts: Decomposition | None, level: str
) -> list[str]:
    """Return what is written above the diagram, line by line."""
    words = [text for text in [_ece_of(table, ece, level)] if text]
    if parts is not None:
        each = {"MCB": parts.miscalibration, "DSC": parts.discrimination, "UNC": parts.uncertainty}
        words += [f"{name} {_with_ends(value, 4, level)}" for name, value in each.items()]
    return words


def _draw(
    ax: Axes,
    table: Reliability | CorpReliability,
    counts: bool,
    words: Sequence[str],
    names: tuple[str, str],
    level: str,
    n_words: int | None = None,
    key: bool = True,
) -> None:
    """Draw on ``ax``, with room above for so many lines of words and a legend."""
    ax.set(xlim=(0, 1), aspect="equal", xlabel=names[0], ylabel=names[1])
    ax.set_ylim(-FOOT if counts else 0, 1)
    ax.set_xticks(np.arange(6) / 5)
    ax.set_yticks(np.arange(6) / 5)
    if isinstance(table, CorpReliability):
        _draw_curve(ax, table, counts)
    else:
        _draw_bins(ax, table, names, level)
    ax.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=0.9, zorder=2.0, label="calibrated")
    handles = sorted(ax.get_legend_handles_labels()[0], key=lambda handle: _order(str(handle.get_label()), names))
    n_words = len(words) if n_words is None else n_words
    below = -(-len(handles) // COLUMNS)  # lines of the legend
    headroom(ax, n_words + 1.1 * below + 0.3)
    ax.spines["left"].set_bounds(0, 1)
    if counts:
        ax.axhline(0, color="0.6", linewidth=0.6, zorder=1.8)
        if isinstance(table, Reliability):
            _write_counts(ax, table)
    for place, text in enumerate(words):
        up = 5 + LINE * (1.1 * below + n_words - 1 - place)
        write(ax, text, (0, 1), (0, up), ha="left", va="bottom", fontsize=LEGEND + 0.5)
    if key:
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "bbox_transform": ax.transData}
        look = KEY | {"handlelength": 1.1, "columnspacing": 0.8, "borderpad": 0, "labelspacing": 0.35}
        ax.legend(handles=handles, ncols=COLUMNS, borderaxespad=0.5, **above, **look)


def _order(label: str, names: tuple[str, str]) -> int:
    """Where in the legend: what is drawn large first, as columns are filled from top to bottom."""
    first = [names[1], f"mean {names[0]}", "gap"]
    return first.index(label) if label in first else len(first) + (label == "calibrated")


def _table(labels: Any, probs: Any, n_bins: Bins | None, options: dict[str, Any]) -> Reliability | CorpReliability:
    """Return the table that is drawn: the one given, or that of these predictions."""
    check_order(labels)
    if isinstance(labels, Reliability | CorpReliability):
        if probs is not None:
            raise InputError("table: it is computed already; pass no probs")
        table = labels
    elif n_bins is None:
        table = corp_reliability(labels, probs, **options)
    else:
        table = reliability(labels, probs, n_bins=n_bins, **options)
    if table.weight.ndim != 1:
        raise InputError(
            "table: expected one of kind='top', 'binary' or 'full', got a class-wise one of "
            f"{len(table.weight)} classes"
        )
    return table


def _ece_of(table: Reliability | CorpReliability, ece: float | Estimate | bool, level: str) -> str:
    """Write the ECE: the one given, or that of the bins."""
    if not isinstance(ece, bool):
        return _in_words(ece, level)
    if not ece or isinstance(table, CorpReliability):
        return ""
    return _in_words(table.mean(np.abs(table.accuracy - table.confidence)), level)


def _draw_curve(ax: Axes, table: CorpReliability, histogram: bool) -> None:
    label = "band if calibrated" if table.band == "consistency" else "confidence band"
    # Few samples have few points, each of which shows where the curve is known.
    marker = "o" if len(table.confidence) <= MARKED else ""
    look: dict[str, Any] = {"color": BLUE, "linewidth": 1.6, "marker": marker, "markersize": 2.5, "zorder": 2.5}
    ax.plot(table.confidence, table.accuracy, **look, label="isotonic regression", clip_on=False)
    ax.fill_between(
        table.band_confidence, table.low, table.high, color=GREY, alpha=0.25, linewidth=0, zorder=1.0, label=label
    )
    if histogram:
        share, edges = np.histogram(table.confidence, HISTOGRAM_BINS, (0.0, 1.0), weights=table.weight)
        ax.bar(edges[:-1], 0.9 * FOOT * share / share.max(), np.diff(edges), bottom=-FOOT, **PLAIN | {"color": GREY})


def _draw_bins(ax: Axes, table: Reliability, names: tuple[str, str], level: str) -> None:
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence = table.accuracy[filled], table.confidence[filled]
    low, high = table.low[filled], table.high[filled]
    ax.bar(left, accuracy, width, **ACCURACY, zorder=1.0, label=names[1])
    ax.bar(left, confidence - accuracy, width, bottom=accuracy, **GAP, zorder=1.5, label="gap")
    ax.hlines(confidence, left, left + width, color=LEVEL, linewidth=1.6, zorder=2.2, label=f"mean {names[0]}")
    ax.vlines(left + width / 2, low, high, color="white", linewidth=2.2, zorder=2.4)
    ax.vlines(left + width / 2, low, high, color=DARK, linewidth=1.0, zorder=2.5, label=f"{level} interval")


def _write_counts(ax: Axes, table: Reliability) -> None:
    """Write the number of samples below each bin, as far as they have room side by side."""
    settle(ax)
    write(ax, "n", (0, 0), (-5, -8), ha="right", va="top", fontsize=SMALL, style="italic")
    points = ax.bbox.width / ax.figure.dpi * 72
    last = -np.inf
    for left, right, weight in zip(table.edges[:-1], table.edges[1:], table.weight):
        x = (left + right) / 2
        if weight > 0 and points * (x - last) >= ROOM and points * (right - left) >= ROOM / 2:
            write(ax, _short(weight), (x, 0), (0, -2), ha="center", va="top", rotation=90, fontsize=SMALL)
            last = x


def plot_confidence(
    labels: ArrayLike | Any,
    probs: ArrayLike | Any = None,
    *,
    n_bins: Bins = 15,
    ax: Axes | None = None,
    title: str = "",
    **options: Any,
) -> Axes:
    """Draw how the confidence of right and of wrong predictions is spread.

    Bars are shares of all samples, wrong predictions, darker, on top of right ones. Two lines mark the mean confidence
    and the accuracy: they fall together if the classifier is calibrated on the whole.

    Parameters
    ----------
    labels, probs, **options
        As in `attemper.metrics.reliability`.
    n_bins : int or "auto"
        Bins of equal width, those of `attemper.metrics.reliability`.
    ax, title
        As in `plot_reliability`.

    Examples
    --------
    >>> from attemper import plots
    >>> ax = plots.plot_confidence([0, 0], [[0.9, 0.1], [0.2, 0.8]])
    >>> ax.get_xlabel()
    'confidence'
    """
    check_order(labels)
    table = reliability(labels, probs, n_bins=n_bins, **options)
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    share = 100 * table.weight[filled] / table.weight.sum()
    right = share * table.accuracy[filled]
    with drawn_on(ax, title) as ax:
        ax.bar(left, right, width, **PLAIN, label="right predictions")
        ax.bar(left, share - right, width, bottom=right, **WRONG, label="wrong predictions")
        ax.set(xlim=(0, 1), xlabel="confidence", ylabel="samples, %")
        ax.set_ylim(bottom=0)
        means = {"mean confidence": (share @ table.confidence[filled], "--"), "accuracy": (right.sum(), "-")}
        marks = []
        for what, (value, dashes) in means.items():
            line = ax.axvline(value / 100, color=DARK, linestyle=dashes, linewidth=1.1, clip_on=False)
            marks.append((line, f"{what} {value:.1f} %"))
        label_uprights(ax, marks, handles=ax.get_legend_handles_labels()[0])
    return ax


def plot_before_after(
    labels: ArrayLike | Any,
    before: ArrayLike | Any,
    after: ArrayLike | Any,
    *,
    titles: tuple[str, str] = ("before calibration", "after calibration"),
    ece: tuple[float | Estimate | bool, float | Estimate | bool] = (True, True),
    axes: Sequence[Axes] | None = None,
    **options: Any,
) -> list[Axes]:
    """Draw two reliability diagrams side by side, with one legend.

    Parameters
    ----------
    labels : array
        As in `attemper.metrics.reliability`.
    before, after : arrays
        Probabilities of the same samples.
    titles, ece
        As in `plot_reliability`, a pair of each.
    axes : two matplotlib Axes, optional
        Side by side over two columns of a paper, or one above the other in one. By default new ones.
    **options
        Other options of `plot_reliability`.

    Returns
    -------
    list of two matplotlib Axes

    Examples
    --------
    >>> from attemper import plots
    >>> left, right = plots.plot_before_after([0, 0], [[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]])
    >>> left.get_title(), right.get_title()
    ('before calibration', 'after calibration')
    """
    check_order(labels)
    if axes is not None and len(axes) != 2:
        raise InputError(f"axes: expected two, got {len(axes)}. Use plots.new_axes(2, width=7.2), or leave axes out.")
    n_bins, counts = options.pop("n_bins", 15), options.pop("counts", True)
    tables = [_table(labels, probs, n_bins, options) for probs in (before, after)]
    level = _level(options)
    words = [_words(table, error, None, level) for table, error in zip(tables, ece, strict=True)]
    drawn = new_axes(2, width=7.2, height=4.5) if axes is None else list(axes)
    n_words = max(map(len, words))  # both are as high
    for ax, table, title, text in zip(drawn, tables, titles, words, strict=True):
        with drawn_on(ax, title):
            _draw(ax, table, counts, text, _axis_names(options), level, n_words, key=ax is drawn[0])
    drawn[1].set(ylabel="", ylim=drawn[0].get_ylim())
    return drawn


def _short(weight: float) -> str:
    """Write a number of samples in at most six characters.

    >>> [_short(n) for n in (7, 0.25, 12.5, 4321, 123456, 2e7)]
    ['7', '0.25', '12.5', '4321', '123k', '20M']
    """
    if weight >= 99_999.5:
        return f"{weight / 1e3:.0f}k" if weight < 999_500 else f"{weight / 1e6:.0f}M"
    return f"{weight:.0f}" if weight >= 999.5 or weight == round(weight) else f"{weight:.3g}"


def _in_words(error: float | Estimate, level: str) -> str:
    if not isinstance(error, Estimate):
        return f"ECE {100 * error:.1f} %"
    ends = f" ({level} interval {100 * error.low:.1f}–{100 * error.high:.1f})" if error.has_interval else ""
    return f"ECE {100 * error.value:.1f} %{ends}"


def _with_ends(value: float | Estimate, digits: int, level: str) -> str:
    if not isinstance(value, Estimate):
        return f"{value:.{digits}f}"
    ends = f" ({level} interval {value.low:.{digits}f}–{value.high:.{digits}f})" if value.has_interval else ""
    return f"{value.value:.{digits}f}{ends}"
