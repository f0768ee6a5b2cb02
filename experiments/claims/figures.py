"""The two plots of the summary: NLL above the best temperature, against the number of labels and of wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.claims.cases import METHODS, kinds
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import label
from experiments.reproduce.drawing import style_of
from experiments.reproduce.figures import NESTED, legend, panels
from experiments.reproduce.recipes import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["above_best", "against_labels", "against_wrong_labels"]

SCALE = "symmetric log scale"
ABOVE = (0.001, 0.01, 0.1, 1.0)  # numbers on the axis, and the same below zero


def above_best(results: Results, page: str, network: str, method: str, **where: Any) -> float:
    """Return the mean NLL above that of the best T for the test part, in the same divisions."""
    best = results.values("table1", network=network, method="best")
    own = results.values(page, network=network, method=method, **where)
    return fmean(own[repeat] - best[repeat] for repeat in own if repeat in best)


def against_labels(results: Results) -> Figure:
    """Draw one panel for each network."""
    names = results.networks("size")
    figure, axes = panels(1, len(names), 1.9, sharex=True, sharey=True)
    for ax, name in zip(axes[0], names):
        sizes = sorted(results.distinct("size", "labels", network=name))
        for method in METHODS:
            values = [above_best(results, "size", name, method, labels=size) for size in sizes]
            _line(ax, method, sizes, values)
        ax.set_xscale("log")
        ax.set_xlim(sizes[0] / 1.5, max(results.distinct("size", "labels")) * 1.5)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel("right labels", fontsize=8)
        ax.set_title(label(name), fontsize=8)
    axes[0][0].set_ylabel(f"NLL above the best T,\n{SCALE}", fontsize=8)
    _finish(figure, axes)
    return figure


def against_wrong_labels(results: Results) -> Figure:
    """Draw a column for each network and a row for each kind of wrong labels."""
    names = results.networks("noise")
    figure, axes = panels(len(kinds(results)), len(names), 1.15, sharex=True, sharey=True)
    for row, kind in zip(axes, kinds(results)):
        for ax, name in zip(row, names):
            shares = sorted(results.distinct("noise", "share", network=name, kind=kind))
            wheres = [{"kind": "none", "share": 0}, *({"kind": kind, "share": s} for s in shares)]
            for method in METHODS:
                values = [above_best(results, "noise", name, method, **where) for where in wheres]
                _line(ax, method, [100 * where["share"] for where in wheres], values)
        place: dict[str, Any] = {"transform": row[-1].transAxes, "rotation": 270, "ha": "left", "va": "center"}
        row[-1].text(1.04, 0.5, kind, fontsize=8, **place)
    for ax, name in zip(axes[0], names):
        ax.set_title(label(name), fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("wrong labels, %", fontsize=8)
        ax.set_xticks([0, 10, 30, 50])
    figure.supylabel(f"NLL above the best T, {SCALE}", fontsize=8)
    _finish(figure, axes)
    return figure


def _line(ax: Axes, method: str, x: Sequence[float], y: Sequence[float]) -> None:
    ax.plot(x, y, label=TITLES[method], **style_of(method).line, **NESTED[method])


def _finish(figure: Figure, axes: list[list[Axes]]) -> None:
    """Give all panels one scale: linear up to the margin of a tie, logarithmic beyond it."""
    drawn = [float(y) for row in axes for ax in row for line in ax.lines for y in np.asarray(line.get_ydata())]
    low, high = 3 * min(*drawn, -MARGIN), 2 * max(drawn)  # no marker is cut
    ticks = [tick for tick in (*(-t for t in reversed(ABOVE)), 0.0, *ABOVE) if low <= tick <= high]
    for row in axes:
        for ax in row:
            ax.set_yscale("symlog", linthresh=MARGIN, linscale=0.5)
            ax.set_ylim(low, high)
            ax.set_yticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
            ax.minorticks_off()
            ax.axhline(0, color="0.6", linewidth=0.6, zorder=1)
    legend(figure, axes[0][0])
