"""Computed data drawn on matplotlib Axes. Nothing global is read or changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attemper.calibrators.base import Calibrator
from attemper.documents import atomic
from attemper.errors import FileError, require
from attemper.maps import ScaleMap
from attemper.metrics import Reliability, ece, reliability
from attemper.scores import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["reliability_diagram", "save_before_and_after"]

# Blue and vermilion of Okabe and Ito: told apart by the colour-blind, and in print by their lightness.
BAR, GAP = "#0072B2", "#D55E00"

FORMATS = ("png", "svg", "pdf")


def reliability_diagram(ax: Axes, table: Reliability, *, title: str = "") -> Axes:
    """Draw how often the classifier was right against how sure it was.

    Bars are the accuracy of each bin, with its interval; the hatched part is the gap to the mean
    confidence. Below the diagonal the classifier is over-confident. Empty bins stay empty.

    Parameters
    ----------
    ax : matplotlib Axes
    table : what `attemper.metrics.reliability` returns
    """
    filled = table.weight > 0
    left, width = table.edges[:-1][filled], np.diff(table.edges)[filled]
    accuracy, confidence = table.accuracy[filled], table.confidence[filled]
    share = table.weight[filled] / table.weight.sum()
    ax.bar(left, accuracy, width, align="edge", color=BAR, alpha=0.85, edgecolor="white", label="accuracy")
    ax.bar(
        left,
        confidence - accuracy,
        width,
        bottom=accuracy,
        align="edge",
        fill=False,
        edgecolor=GAP,
        hatch="////",
        linewidth=0.8,
        label="gap to confidence",
    )
    centre = left + width / 2
    spread = np.array([accuracy - table.low[filled], table.high[filled] - accuracy])
    ax.errorbar(centre, accuracy, np.maximum(spread, 0), fmt="none", ecolor="black", elinewidth=1, capsize=2)
    ax.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1)
    for x, part in zip(centre, share):
        ax.text(x, 0.015, f"{part:.0%}", ha="center", va="bottom", fontsize=6, color="white", rotation=90)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="accuracy", title=title)
    return ax


def save_before_and_after(path: str | os.PathLike[str], scores: Scores, calibrator: Calibrator) -> None:
    """Write a picture of the reliability before and after a calibration (.png, .svg or .pdf)."""
    require("matplotlib", extra="plots", why="to draw")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    before = ScaleMap(1.0).apply(scores.logits)
    for ax, probs, what in (
        (axes[0], before, "before"),
        (axes[1], calibrator.predict_proba(scores), "after"),
    ):
        table = reliability(probs, scores.labels, sample_weight=scores.weights)
        error = ece(probs, scores.labels, sample_weight=scores.weights)
        reliability_diagram(ax, table, title=f"{what} calibration: ECE {100 * float(error):.1f} %")  # type: ignore[arg-type]
    axes[0].legend(loc="upper left", frameon=False, fontsize=8)
    axes[1].set_ylabel("")
    form = Path(path).suffix.lower().lstrip(".")
    if form not in FORMATS:
        raise FileError(f"{path}: the ending says the format; expected one of .{', .'.join(FORMATS)}")
    with atomic(path) as stream:
        figure.savefig(stream, format=form, dpi=200, metadata={"Software": None} if form == "png" else None)
