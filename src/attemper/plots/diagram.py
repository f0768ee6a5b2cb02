"""Reliability diagrams: how often the classifier was right against how sure it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper.errors import InputError
from attemper.metrics import Estimate, Reliability
from attemper.plots.sheet import check_axes
from attemper.plots.styles import AMISS, DARK, LEGEND, RIGHT, SMALL, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["reliability_before_after", "reliability_diagram"]

ROOM = 6.0  # points that the number of a bin takes


def reliability_diagram(
    ax: Axes, table: Reliability, *, title: str = "", counts: bool = True, ece: float | Estimate | None = None
) -> Axes:
    """Draw a reliability table.

    Bars are the accuracy of each bin, the band on them its interval; the hatched part is the gap to the mean
    confidence. Where bars end below the diagonal the classifier is over-confident. Empty bins stay empty.

    Parameters
    ----------
    ax : matplotlib Axes
    table : Reliability
        What `attemper.metrics.reliability` returns, of ``kind`` "top" or "full".
    counts : bool
        Write the number of samples (their weight) at the foot of each bin that is wide enough for it on paper.
    ece : float or Estimate, optional
        What `attemper.metrics.ece` returns: written into the corner.

    Examples
    --------
    >>> from attemper.metrics import reliability
    >>> from attemper.plots import new_axes, reliability_diagram
    >>> [ax] = new_axes()
    >>> reliability_diagram(ax, reliability([[0.9, 0.1], [0.2, 0.8]], [0, 0]), title="two samples") is ax
    True
    """
    check_axes(ax)
    if table.weight.ndim != 1:
        raise InputError(
            f"table: class-wise, of {len(table.weight)} classes; a diagram shows one: that of kind='top' or 'full'"
        )
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence, weight = (column[filled] for column in (table.accuracy, table.confidence, table.weight))
    low, high = table.low[filled], table.high[filled]
    centre = left + width / 2
    ax.bar(
        left, accuracy, width, align="edge", color=RIGHT, edgecolor="0.35", linewidth=0.6, zorder=1.0, label="accuracy"
    )
    ax.bar(
        left,
        confidence - accuracy,
        width,
        bottom=accuracy,
        align="edge",
        fill=False,
        edgecolor=AMISS,
        hatch="/////",
        linewidth=0.8,
        zorder=1.5,
        label="gap",
    )
    ax.bar(centre, high - low, 0.3 * width, bottom=low, color=DARK, alpha=0.45, zorder=2.5, label="interval")
    ax.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=0.9, zorder=2.0)
    if counts:
        roomy = width * ax.bbox.width / ax.figure.dpi * 72 >= ROOM
        for x, number in zip(centre[roomy], weight[roomy]):
            _write(ax, x, 0.015, _short(number), ha="center", va="bottom", rotation=90, fontsize=SMALL)
    if ece is not None:
        _write(ax, 0.03, 0.97, _in_words(ece), ha="left", va="top", fontsize=LEGEND + 0.5)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="accuracy")
    ax.title.set_text(plain(title, None))
    return ax


def reliability_before_after(
    axes: Sequence[Axes],
    before: Reliability,
    after: Reliability,
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
    >>> before = metrics.reliability([[0.9, 0.1], [0.2, 0.8]], [0, 0])
    >>> after = metrics.reliability([[0.7, 0.3], [0.4, 0.6]], [0, 0])
    >>> axes = plots.new_axes(2, width=7.2)
    >>> plots.reliability_before_after(axes, before, after) is axes
    True
    """
    if len(axes) != 2:
        raise InputError(f"axes: two are expected, {len(axes)} came; before, after = new_axes(2, width=7.2)")
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
