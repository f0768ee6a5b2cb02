"""Confidence histograms: how sure the classifier was when it was right, and when it was wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper.metrics import reliability
from attemper.plots.sheet import check_axes
from attemper.plots.styles import AMISS, DARK, LEGEND, RIGHT, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confidence_histogram"]


def confidence_histogram(
    ax: Axes,
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    title: str = "",
) -> Axes:
    """Draw how the confidence of right and of wrong answers is spread.

    Bars are shares of all samples, wrong answers hatched on top of right ones. Two lines mark the mean confidence
    and the accuracy: they fall together if the classifier is calibrated on the whole.

    Parameters
    ----------
    ax : matplotlib Axes
    probs, labels, sample_weight
        As in `attemper.metrics.nll`.
    n_bins : int
        Bins of equal width, those of `attemper.metrics.reliability`.

    Examples
    --------
    >>> from attemper import plots
    >>> [ax] = plots.new_axes()
    >>> plots.confidence_histogram(ax, [[0.9, 0.1], [0.2, 0.8]], [0, 0]) is ax
    True
    """
    check_axes(ax)
    table = reliability(probs, labels, n_bins=n_bins, sample_weight=sample_weight)
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    share = 100 * table.weight[filled] / table.weight.sum()
    right = share * table.accuracy[filled]
    ax.bar(left, right, width, align="edge", color=RIGHT, edgecolor="0.35", linewidth=0.6, label="right answers")
    ax.bar(
        left,
        share - right,
        width,
        bottom=right,
        align="edge",
        color="white",
        edgecolor=AMISS,
        hatch="/////",
        linewidth=0.8,
        label="wrong answers",
    )
    for what, value, dashes in (
        ("mean confidence", share @ table.confidence[filled], "--"),
        ("accuracy", right.sum(), "-"),
    ):
        ax.axvline(value / 100, color=DARK, linestyle=dashes, linewidth=1.1, label=f"{what} {value:.1f} %")
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="samples, %")
    ax.set_ylim(bottom=0)
    ax.title.set_text(plain(title, None))
    ax.legend(loc="upper left", frameon=False, fontsize=LEGEND)
    return ax
