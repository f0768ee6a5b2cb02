"""Reliability diagrams and confidence histograms: how often the classifier was right against how confident it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper.errors import InputError
from attemper.metrics import CorpReliability, Decomposition, Estimate, Reliability, corp_reliability, reliability
from attemper.metrics.bins import Bins
from attemper.plots.sheet import check_order, drawn_on, new_axes
from attemper.plots.styles import AMISS, BLUE, DARK, GREY, LEGEND, RIGHT, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_before_after", "plot_confidence", "plot_reliability"]

PER_CLASS = ("binary", "full")  # kinds that look at the probabilities of classes, not at the prediction
MARKED = 40  # points of a curve, at most, that are marked
HISTOGRAM_BINS, HISTOGRAM_HEIGHT = 40, 0.12
ROOM = 6.0  # points that the number of a bin takes
PLAIN: dict[str, Any] = {"align": "edge", "color": RIGHT, "edgecolor": "0.35", "linewidth": 0.6}
HATCHED: dict[str, Any] = {"align": "edge", "edgecolor": AMISS, "hatch": "/////", "linewidth": 0.8}


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

    In bins, bars are the accuracy of each bin, the band on them its interval; the hatched part is the gap to the mean
    confidence. Where bars end below the diagonal the classifier is over-confident. Empty bins stay empty.

    Without bins (CORP), the line is the isotonic regression. If it leaves the grey band, which lies around the
    diagonal, the classifier is not calibrated there; a confidence band lies around the line instead. Below is
    a histogram of the confidences.

    Parameters
    ----------
    labels, probs
        As in `attemper.metrics.reliability`. Or pass the table alone: what that function returns, of ``kind`` "top",
        "binary" or "full", or `attemper.metrics.corp_reliability`.
    n_bins : int, "auto" or None
        Number of bins; None: without bins.
    counts : bool
        In bins: write the number of samples (their weight) at the foot of each bin that is wide enough for it on
        paper. Without: draw the histogram.
    ece : bool, float or Estimate
        Written into the corner: True for the ECE of these bins, or what `attemper.metrics.ece` returns.
    parts : Decomposition, optional
        What `attemper.metrics.decompose` returns: written below.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str
    **options
        Those of `attemper.metrics.reliability` (``kind``, ``strategy``, ``input``, …), or, without bins, of
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
    with drawn_on(ax, title, height=3.3) as ax:
        _draw(ax, table, counts, ece, parts, _axis_names(options))
    return ax


def _axis_names(options: dict[str, Any]) -> tuple[str, str]:
    if options.get("kind") in PER_CLASS or options.get("of_class") is not None:
        return "predicted probability", "observed frequency"
    return "confidence", "accuracy"


def _draw(
    ax: Axes,
    table: Reliability | CorpReliability,
    counts: bool,
    ece: float | Estimate | bool,
    parts: Decomposition | None,
    names: tuple[str, str],
) -> None:
    words = [text for text in [_ece_of(table, ece)] if text]
    if parts is not None:
        each = {"MCB": parts.miscalibration, "DSC": parts.discrimination, "UNC": parts.uncertainty}
        words += [f"{name} {_with_ends(value, 4)}" for name, value in each.items()]
    if isinstance(table, CorpReliability):
        _draw_curve(ax, table, counts)
    else:
        _draw_bins(ax, table, counts, names[1])
    ax.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=0.9, zorder=2.0)
    if words:
        _write(ax, 0.03, 0.97, "\n".join(words), ha="left", va="top", fontsize=LEGEND + 0.5)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=names[0], ylabel=names[1])


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


def _ece_of(table: Reliability | CorpReliability, ece: float | Estimate | bool) -> str:
    """Write the ECE: the one given, or that of the bins."""
    if not isinstance(ece, bool):
        return _in_words(ece)
    if not ece or isinstance(table, CorpReliability):
        return ""
    return _in_words(table.mean(np.abs(table.accuracy - table.confidence)))


def _draw_curve(ax: Axes, table: CorpReliability, histogram: bool) -> None:
    label = "band if calibrated" if table.band == "consistency" else "confidence band"
    ax.fill_between(
        table.band_confidence, table.low, table.high, color=GREY, alpha=0.25, linewidth=0, zorder=1.0, label=label
    )
    # Few samples have few points, each of which shows where the curve is known.
    marker = "o" if len(table.confidence) <= MARKED else ""
    ax.plot(
        *(table.confidence, table.accuracy),
        color=BLUE,
        linewidth=1.6,
        marker=marker,
        markersize=2.5,
        zorder=2.5,
        label="isotonic regression",
    )
    if histogram:
        share, edges = np.histogram(table.confidence, HISTOGRAM_BINS, (0.0, 1.0), weights=table.weight)
        ax.bar(edges[:-1], HISTOGRAM_HEIGHT * share / share.max(), np.diff(edges), **PLAIN, zorder=0.5)


def _draw_bins(ax: Axes, table: Reliability, counts: bool, name: str) -> None:
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence, weight = (column[filled] for column in (table.accuracy, table.confidence, table.weight))
    low, high = table.low[filled], table.high[filled]
    centre = left + width / 2
    ax.bar(left, accuracy, width, **PLAIN, zorder=1.0, label=name)
    ax.bar(left, confidence - accuracy, width, bottom=accuracy, **HATCHED, fill=False, zorder=1.5, label="gap")
    ax.bar(centre, high - low, 0.3 * width, bottom=low, color=DARK, alpha=0.45, zorder=2.5, label="interval")
    if counts:
        roomy = width * ax.bbox.width / ax.figure.dpi * 72 >= ROOM
        for x, number in zip(centre[roomy], weight[roomy]):
            _write(ax, x, 0.015, _short(number), ha="center", va="bottom", rotation=90, fontsize=SMALL)


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

    Bars are shares of all samples, wrong predictions hatched on top of right ones. Two lines mark the mean confidence
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
    with drawn_on(ax, title, height=2.3) as ax:
        ax.bar(left, right, width, **PLAIN, label="right predictions")
        ax.bar(left, share - right, width, bottom=right, **HATCHED, color="white", label="wrong predictions")
        means = {"mean confidence": (share @ table.confidence[filled], "--"), "accuracy": (right.sum(), "-")}
        for what, (value, dashes) in means.items():
            ax.axvline(value / 100, color=DARK, linestyle=dashes, linewidth=1.1, label=f"{what} {value:.1f} %")
        ax.set(xlim=(0, 1), xlabel="confidence", ylabel="samples, %")
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left", frameon=False, fontsize=LEGEND)
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
    drawn = new_axes(2, width=7.2, height=3.7) if axes is None else list(axes)
    for ax, table, title, error in zip(drawn, tables, titles, ece, strict=True):
        with drawn_on(ax, title):
            _draw(ax, table, counts, error, None, _axis_names(options))
    drawn[1].set_ylabel("")
    place = (0.0, 0.93) if drawn[0].texts else (0.0, 1.0)
    drawn[0].legend(loc="upper left", bbox_to_anchor=place, frameon=False, fontsize=LEGEND, borderaxespad=0.3)
    return drawn


def _write(ax: Axes, x: float, y: float, text: str, **how: Any) -> None:
    """Write on a halo, so that it reads on bars and hatches."""
    from matplotlib.patheffects import withStroke

    ax.text(x, y, text, color="black", path_effects=[withStroke(linewidth=1.8, foreground="white")], **how)


def _short(weight: float) -> str:
    """Write a number of samples in at most six characters.

    >>> [_short(n) for n in (7, 0.25, 12.5, 4321, 123456, 2e7)]
    ['7', '0.25', '12.5', '4321', '123k', '20M']
    """
    if weight >= 99_999.5:
        return f"{weight / 1e3:.0f}k" if weight < 999_500 else f"{weight / 1e6:.0f}M"
    return f"{weight:.0f}" if weight >= 999.5 or weight == round(weight) else f"{weight:.3g}"


def _in_words(error: float | Estimate) -> str:
    if not isinstance(error, Estimate):
        return f"ECE {100 * error:.1f} %"
    ends = f" ({100 * error.low:.1f}–{100 * error.high:.1f})" if error.has_interval else ""
    return f"ECE {100 * error.value:.1f} %{ends}"


def _with_ends(value: float | Estimate, digits: int) -> str:
    if not isinstance(value, Estimate):
        return f"{value:.{digits}f}"
    ends = f" ({value.low:.{digits}f}–{value.high:.{digits}f})" if value.has_interval else ""
    return f"{value.value:.{digits}f}{ends}"
