"""Drawing that several figures share; methods differ in colour, dashes and marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from experiments.reproduce.methods import TITLES
from experiments.reproduce.pages import Floats

__all__ = ["BLUE", "LINES", "curves", "panels"]

WIDTH = 7.2  # inches: two columns of a paper
BLUE = "#0072B2"
# Colours of Okabe and Ito. A later line is thinner, so that lines that coincide are all seen.
LINES: dict[str, dict[str, Any]] = {
    "none": {"color": "0.45", "linestyle": (0, (1, 1.5)), "marker": "", "linewidth": 1.3},
    "structured": {"color": "#009E73", "linestyle": "-", "marker": "D", "linewidth": 2.8, "markersize": 6.4},
    "ts": {"color": "#D55E00", "linestyle": "--", "marker": "s", "linewidth": 1.9, "markersize": 5.2},
    "bayes": {"color": BLUE, "linestyle": "-", "marker": "o", "linewidth": 1.1, "markersize": 4.2},
    "ats": {"color": "#E69F00", "linestyle": "-.", "marker": "^", "linewidth": 0.8, "markersize": 3.7},
}
NARROW = 5.0  # a logarithmic axis that spans less has its numbers at equal steps


def panels(n: int, columns: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of n lettered panels, each so many inches high."""
    rows = -(-n // columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for ax in axes[n:]:
        ax.remove()
    for letter, ax in zip(ascii_lowercase, axes[:n]):
        ax.tick_params(labelsize=7, width=0.6, length=2.5)
        ax.grid(color="0.9", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(letter, loc="left", x=-0.12, ha="right", fontsize=9, fontweight="bold")
    return figure, axes[:n]


def curves(
    values: Mapping[tuple[Any, ...], Floats], of: Sequence[tuple[Any, ...]], titles: Sequence[str], columns: int,
    x_label: str, *, log_x: bool = False,
) -> Figure:  # fmt: skip
    """Draw means with bars of one standard deviation on logarithmic axes, a panel for each case of ``of``.

    ``values`` are by case, x and method.
    """
    figure, axes = panels(len(of), columns, 1.6)
    for i, (ax, case, title) in enumerate(zip(axes, of, titles)):
        mine = {key[len(case) :]: v for key, v in values.items() if key[: len(case)] == case}
        ax.set(xscale="log" if log_x else "linear", yscale="log")
        for j, (method, style) in enumerate(LINES.items()):
            found = sorted(
                (x, v.mean(), v.std(ddof=1) if len(v) > 1 else 0.0) for (x, m), v in mine.items() if m == method
            )
            if found:
                x, mean, std = np.array(found, dtype=np.float64).T
                x = x * 1.04 ** (j - 2) if log_x else x  # side by side, so that bars do not hide each other
                bars = 0 * std if method == "none" else std  # nothing is fitted
                ax.errorbar(x, mean, bars, label=TITLES[method], elinewidth=0.7, markeredgecolor="white",
                            markeredgewidth=0.3, **style)  # fmt: skip
        _fit_axis(ax, list(mine.values()))
        if log_x:
            ax.xaxis.set_major_formatter("{x:g}")
        ax.set_title(title, fontsize=7)
        if i >= len(of) - columns:
            ax.set_xlabel(x_label, fontsize=8)
        if i % columns == 0:
            ax.set_ylabel("test NLL", fontsize=8)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8, frameon=False,
                  handlelength=3)  # fmt: skip
    return figure


def _fit_axis(ax: Axes, values: Sequence[Floats]) -> None:
    """Fit a logarithmic axis to all means, and to the upper ends of the bars."""
    low = min(v.mean() for v in values)
    high = max(v.mean() + (v.std(ddof=1) if len(v) > 1 else 0.0) for v in values)
    room = (high / low) ** 0.08
    ax.set_ylim(low / room, high * room)
    ax.yaxis.set_major_locator(MaxNLocator(4) if high < NARROW * low else LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
