"""Reliability diagrams and confidence histograms: how often the classifier was right against how confident it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper.errors import InputError
from attemper.metrics import CorpReliability, Decomposition, Estimate, Reliability, reliability
from attemper.metrics.bins import Bins
from attemper.plots.sheet import drawing
from attemper.plots.styles import AMISS, BLUE, DARK, GREY, LEGEND, RIGHT, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confidence_histogram", "reliability_before_after", "reliability_diagram"]

MARKED = 40  # points of a curve, at most, that are marked
HISTOGRAM_BINS, HISTOGRAM_HEIGHT = 40, 0.12
ROOM = 6.0  # points that the number of a bin takes
PLAIN: dict[str, Any] = {"align": "edge", "color": RIGHT, "edgecolor": "0.35", "linewidth": 0.6}
HATCHED: dict[str, Any] = {"align": "edge", "edgecolor": AMISS, "hatch": "/////", "linewidth": 0.8}


@drawing
def reliability_diagram(
    ax: Axes,
    table: Reliability | CorpReliability,
    *,
    title: str = "",
    counts: bool = True,
    ece: float | Estimate | None = None,
    parts: Decomposition | None = None,
) -> None:
    """Draw a reliability table, in bins or without.

    In bins, bars are the accuracy of each bin, the band on them its interval; the hatched part is the gap to the mean
    confidence. Where bars end below the diagonal the classifier is over-confident. Empty bins stay empty.

    Without bins (CORP), the line is the isotonic regression. If it leaves the grey band, which lies around the
    diagonal, the classifier is not calibrated there; a confidence band lies around the line instead. Below is
    a histogram of the confidences.

    Parameters
    ----------
    ax : matplotlib Axes
    table : Reliability or CorpReliability
        What `attemper.metrics.reliability` returns, of ``kind`` "top" or "full", or
        `attemper.metrics.corp_reliability`.
    counts : bool
        In bins: write the number of samples (their weight) at the foot of each bin that is wide enough for it on
        paper. Without: draw the histogram.
    ece : float or Estimate, optional
        What `attemper.metrics.ece` returns: written into the corner.
    parts : Decomposition, optional
        What `attemper.metrics.decompose` returns: written below.

    Examples
    --------
    >>> from attemper.metrics import reliability
    >>> from attemper.plots import new_axes, reliability_diagram
    >>> [ax] = new_axes()
    >>> reliability_diagram(ax, reliability([0, 0], [[0.9, 0.1], [0.2, 0.8]]), title="two samples") is ax
    True
    """
    words = [] if ece is None else [_in_words(ece)]
    if parts is not None:
        each = {"MCB": parts.miscalibration, "DSC": parts.discrimination, "UNC": parts.uncertainty}
        words += [f"{name} {_with_ends(value, 4)}" for name, value in each.items()]
    if isinstance(table, CorpReliability):
        _draw_curve(ax, table, counts)
    else:
        _draw_bins(ax, table, counts)
    ax.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=0.9, zorder=2.0)
    if words:
        _write(ax, 0.03, 0.97, "\n".join(words), ha="left", va="top", fontsize=LEGEND + 0.5)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="accuracy")


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


def _draw_bins(ax: Axes, table: Reliability, counts: bool) -> None:
    if table.weight.ndim != 1:
        raise InputError(
            f"table: expected one of kind='top' or 'full', got a class-wise one of {len(table.weight)} classes"
        )
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence, weight = (column[filled] for column in (table.accuracy, table.confidence, table.weight))
    low, high = table.low[filled], table.high[filled]
    centre = left + width / 2
    ax.bar(left, accuracy, width, **PLAIN, zorder=1.0, label="accuracy")
    ax.bar(left, confidence - accuracy, width, bottom=accuracy, **HATCHED, fill=False, zorder=1.5, label="gap")
    ax.bar(centre, high - low, 0.3 * width, bottom=low, color=DARK, alpha=0.45, zorder=2.5, label="interval")
    if counts:
        roomy = width * ax.bbox.width / ax.figure.dpi * 72 >= ROOM
        for x, number in zip(centre[roomy], weight[roomy]):
            _write(ax, x, 0.015, _short(number), ha="center", va="bottom", rotation=90, fontsize=SMALL)


@drawing
def confidence_histogram(
    ax: Axes,
    labels: ArrayLike | Any,
    probs: ArrayLike | Any,
    *,
    n_bins: Bins = 15,
    sample_weight: ArrayLike | None = None,
    title: str = "",
) -> None:
    """Draw how the confidence of right and of wrong predictions is spread.

    Bars are shares of all samples, wrong predictions hatched on top of right ones. Two lines mark the mean confidence
    and the accuracy: they fall together if the classifier is calibrated on the whole.

    Parameters
    ----------
    ax : matplotlib Axes
    labels, probs, sample_weight
        As in `attemper.metrics.nll`.
    n_bins : int or "auto"
        Bins of equal width, those of `attemper.metrics.reliability`.

    Examples
    --------
    >>> from attemper import plots
    >>> [ax] = plots.new_axes()
    >>> plots.confidence_histogram(ax, [0, 0], [[0.9, 0.1], [0.2, 0.8]]) is ax
    True
    """
    table = reliability(labels, probs, n_bins=n_bins, sample_weight=sample_weight)
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    share = 100 * table.weight[filled] / table.weight.sum()
    right = share * table.accuracy[filled]
    ax.bar(left, right, width, **PLAIN, label="right predictions")
    ax.bar(left, share - right, width, bottom=right, **HATCHED, color="white", label="wrong predictions")
    means = {"mean confidence": (share @ table.confidence[filled], "--"), "accuracy": (right.sum(), "-")}
    for what, (value, dashes) in means.items():
        ax.axvline(value / 100, color=DARK, linestyle=dashes, linewidth=1.1, label=f"{what} {value:.1f} %")
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="samples, %")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left", frameon=False, fontsize=LEGEND)


def reliability_before_after(
    axes: Sequence[Axes],
    before: Reliability | CorpReliability,
    after: Reliability | CorpReliability,
    *,
    titles: tuple[str, str] = ("before calibration", "after calibration"),
    counts: bool = True,
    ece: tuple[float | Estimate, float | Estimate] | None = None,
) -> Sequence[Axes]:
    """Draw two reliability tables side by side, with one legend.

    Parameters
    ----------
    axes : two matplotlib Axes
        Side by side over two columns of a paper, or one above the other in one.
    before, after, titles, counts, ece
        As in `reliability_diagram`; ``titles`` and ``ece`` are pairs.

    Examples
    --------
    >>> from attemper import metrics, plots
    >>> before = metrics.reliability([0, 0], [[0.9, 0.1], [0.2, 0.8]])
    >>> after = metrics.reliability([0, 0], [[0.7, 0.3], [0.4, 0.6]])
    >>> axes = plots.new_axes(2, width=7.2)
    >>> plots.reliability_before_after(axes, before, after) is axes
    True
    """
    if len(axes) != 2:
        raise InputError(f"axes: expected two, got {len(axes)}; create them with plots.new_axes(2, width=7.2)")
    for ax, table, title, error in zip(axes, (before, after), titles, ece or (None, None)):
        reliability_diagram(ax, table, title=title, counts=counts, ece=error)
    axes[1].set_ylabel("")
    place = (0.0, 0.93) if ece else (0.0, 1.0)
    axes[0].legend(loc="upper left", bbox_to_anchor=place, frameon=False, fontsize=LEGEND, borderaxespad=0.3)
    return axes


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
