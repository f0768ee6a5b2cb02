"""Reliability diagrams: how often the classifier was right against how confident it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper.calibrators.style import BLUE, DARK, GREY, VERMILION
from attemper.errors import InputError
from attemper.metrics import CorpReliability, Decomposition, Estimate, Reliability, corp_reliability, reliability
from attemper.metrics.bins import Bins
from attemper.plots.sheet import KEY, SMALL, axes_for, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_before_after", "plot_reliability"]

PER_CLASS = ("binary", "full")  # kinds that look at the probabilities of classes, not at the prediction
MARKED = 40  # points of a curve, at most, that are marked
HISTOGRAM_BINS, FOOT = 40, 0.12  # below the diagram are the numbers of samples, or their histogram
COUNTED = 25  # bins, at most, that have their number of samples below them
ACCURACY: dict[str, Any] = {"align": "edge", "facecolor": "#73B1D5", "edgecolor": BLUE, "linewidth": 0.6}
GAP: dict[str, Any] = {"align": "edge", "color": VERMILION, "alpha": 0.3, "linewidth": 0}


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
        In bins: write the number of samples (their weight) below each bin, if there are at most 25 bins. Without: draw
        a histogram of the confidences there.
    ece : bool, float or Estimate
        Written in the legend: True for the ECE of these bins, or what `attemper.metrics.ece` returns. Its interval
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
    of_class = options.get("kind") in PER_CLASS or options.get("of_class") is not None
    names = ("predicted probability", "observed frequency") if of_class else ("confidence", "accuracy")
    level = f"{100 * options.get('confidence_level', 0.95):.3g} %"
    ax = axes_for(ax, title, height=3.7)
    ax.set(xlim=(0, 1), ylim=(-FOOT if counts else 0, 1), aspect="equal", xlabel=names[0], ylabel=names[1])
    ax.set_xticks(np.arange(6) / 5)
    ax.set_yticks(np.arange(6) / 5)
    if isinstance(table, CorpReliability):
        _draw_curve(ax, table, counts)
    else:
        _draw_bins(ax, table, names, level, counts)
    ax.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=0.9, zorder=2.0, label="calibrated")
    if counts:
        ax.axhline(0, color="0.6", linewidth=0.6, zorder=1.8)
    words = "\n".join(_words(table, ece, parts, level))
    ax.legend(loc="upper left", title=words or None, title_fontsize=SMALL, alignment="left", **KEY)
    return ax


def _words(
    table: Reliability | CorpReliability, ece: float | Estimate | bool, parts: Decomposition | None, level: str
) -> list[str]:
    """Return what is written in the legend, line by line: the ECE given or that of the bins, and the parts."""
    if ece is True:
        ece = False if isinstance(table, CorpReliability) else table.mean(np.abs(table.accuracy - table.confidence))
    words = [] if ece is False else [f"ECE {_text(ece, 1, level, scale=100, unit=' %')}"]
    if parts is not None:
        each = {"MCB": parts.miscalibration, "DSC": parts.discrimination, "UNC": parts.uncertainty}
        words += [f"{name} {_text(value, 4, level)}" for name, value in each.items()]
    return words


def _text(value: float | Estimate, digits: int, level: str, scale: float = 1, unit: str = "") -> str:
    if not isinstance(value, Estimate):
        return f"{scale * value:.{digits}f}{unit}"
    ends = f" ({level} interval {scale * value.low:.{digits}f}–{scale * value.high:.{digits}f})"
    return f"{scale * value.value:.{digits}f}{unit}{ends if value.has_interval else ''}"


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
        ax.bar(edges[:-1], 0.9 * FOOT * share / share.max(), np.diff(edges), bottom=-FOOT, align="edge", color=GREY)


def _draw_bins(ax: Axes, table: Reliability, names: tuple[str, str], level: str, counts: bool) -> None:
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence = table.accuracy[filled], table.confidence[filled]
    low, high, middle = table.low[filled], table.high[filled], left + width / 2
    ax.bar(left, accuracy, width, **ACCURACY, zorder=1.0, label=names[1])
    ax.bar(left, confidence - accuracy, width, bottom=accuracy, **GAP, zorder=1.5, label="gap")
    ax.hlines(confidence, left, left + width, color=VERMILION, linewidth=1.6, zorder=2.2, label=f"mean {names[0]}")
    ax.vlines(middle, low, high, color="white", linewidth=2.2, zorder=2.4)
    ax.vlines(middle, low, high, color=DARK, linewidth=1.0, zorder=2.5, label=f"{level} interval")
    if counts and len(table.weight) <= COUNTED:
        for x, weight in zip(middle, table.weight[filled]):
            ax.text(x, -0.01, _short(weight), ha="center", va="top", rotation=90, fontsize=SMALL)


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
    """Draw two reliability diagrams side by side.

    Parameters
    ----------
    labels : array
        As in `attemper.metrics.reliability`.
    before, after : arrays
        Probabilities of the same samples.
    titles, ece
        As in `plot_reliability`, a pair of each.
    axes : two matplotlib Axes, optional
        By default new ones.
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
    if axes is not None and len(axes) != 2:
        raise InputError(f"axes: expected two, got {len(axes)}. Use plots.new_axes(2, width=7.2), or leave axes out.")
    drawn = new_axes(2, width=7.2, height=3.7) if axes is None else list(axes)
    for ax, probs, title, error in zip(drawn, (before, after), titles, ece, strict=True):
        plot_reliability(labels, probs, ece=error, ax=ax, title=title, **options)
    drawn[1].set_ylabel("")
    return drawn


def _short(weight: float) -> str:
    """Write a number of samples in at most six characters.

    >>> [_short(n) for n in (7, 0.25, 12.5, 4321, 123456, 2e7)]
    ['7', '0.25', '12.5', '4321', '123k', '20M']
    """
    if weight >= 99_999.5:
        return f"{weight / 1e3:.0f}k" if weight < 999_500 else f"{weight / 1e6:.0f}M"
    return f"{weight:.0f}" if weight >= 999.5 or weight == round(weight) else f"{weight:.3g}"
