"""The paper's figures: numbers drawn for print, told apart without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper.errors import require
from attemper.plots.styles import styled
from experiments.reproduce.journal import Row
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Floats
from experiments.reproduce.recipes import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["against_noise", "against_size", "need", "referral"]

# Below the others and larger, for it is often where the Bayesian fit is.
LARGER: dict[str, dict[str, Any]] = {"structured": {"linewidth": 2.2, "markersize": 5.5, "zorder": 1.5}}

WIDTH = 7.2  # inches: two columns of a paper


def need() -> None:
    """Say how to get matplotlib before hours of work rather than after."""
    require("matplotlib", extra="plots", why="to draw the figures")


def against_noise(
    values: Mapping[tuple[Any, ...], Floats],
    networks: Sequence[str],
    kinds: Sequence[str],
    shares: Sequence[float],
    methods: Sequence[str],
) -> Figure:
    """Draw NLL against the share of wrong labels: a column for each network, a row for each kind."""
    figure, axes = _panels(len(kinds), len(networks), 1.75)
    for row, kind in zip(axes, kinds):
        for ax, name in zip(row, networks):
            cells = [(0.0, "none"), *((share, kind) for share in shares)]
            for i, method in enumerate(methods):
                found = [(100 * s, values[name, k, s, method]) for s, k in cells if (name, k, s, method) in values]
                _line(ax, method, [x + 0.5 * (i - 2) for x, _ in found], [v for _, v in found])
            _frame(ax, [v for key, v in values.items() if key[0] == name and key[3] in ("none", "ats", "bayes")])
            ax.set_xticks([0, *(100 * s for s in shares)])
    for ax, name in zip(axes[0], networks):
        ax.set_title(about(name).label, fontsize=8)
    for row, kind in zip(axes, kinds):
        row[0].set_ylabel(f"{kind} noise\ntest NLL", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("labels replaced, %", fontsize=8)
    _legend(figure, axes[0][0])
    return figure


def against_size(values: Mapping[tuple[Any, ...], Floats], networks: Sequence[str], methods: Sequence[str]) -> Figure:
    """Draw NLL against the number of labels, one panel for each network."""
    figure, axes = _panels(1, len(networks), 2.2)
    for ax, name in zip(axes[0], networks):
        for i, method in enumerate(methods):
            found = sorted((n, v) for (of, n, m), v in values.items() if (of, m) == (name, method))
            _line(ax, method, [n * 1.04 ** (i - 2) for n, _ in found], [v for _, v in found])
        means = [v.mean() for (of, _, _), v in values.items() if of == name]
        wide = max(means) > 3 * min(means)  # where something runs away
        ax.set(xscale="log", yscale="log" if wide else "linear")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if wide:
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
            ax.tick_params(which="minor", labelsize=7)
        ax.set_xlabel("validation labels", fontsize=8)
        ax.set_title(about(name).label, fontsize=8)
    axes[0][0].set_ylabel("test NLL", fontsize=8)
    _legend(figure, axes[0][0])
    return figure


def referral(rows: Sequence[Row], networks: Sequence[str], methods: Sequence[str]) -> Figure:
    """Draw the referral curves over the paper's 21 thresholds, and thin ones over all, with their areas."""
    figure, axes = _panels(1, len(networks), 3.4)
    areas = {(r["network"], r["method"], r["measure"]): r["value"] for r in rows if r["what"] == "interval"}
    for ax, name in zip(axes[0], networks):
        for i, method in enumerate(methods):
            style = {**styled([method])[method].line, "marker": styled([method])[method].marker or "x"}
            both = [areas[name, method, measure] for measure in ("area_paper", "area")]
            label = f"{TITLES[method]} ({both[0]:.3f}, {both[1]:.3f})"
            # Each thinner than the one below it, so that curves that coincide are all seen.
            size: dict[str, Any] = {"linewidth": 3 - 0.7 * i, "markersize": 7 - 1.3 * i}
            ax.plot(*_points(rows, name, method, "curve, 21"), label=label, **style, **size)
            if method in ("none", "ts"):
                ax.plot(
                    *_points(rows, name, method, "curve"), color="black", linewidth=0.6, linestyle=style["linestyle"]
                )
        ax.set(xlim=(0, 100), ylim=(0, 102), aspect="equal")
        ax.set_title(about(name).label, fontsize=9)
        ax.set_xlabel("right answers that are decided, %", fontsize=8)
        ax.legend(loc="lower left", fontsize=7, frameon=False)
    axes[0][0].set_ylabel("wrong answers that are referred, %", fontsize=8)
    return figure


def _points(rows: Sequence[Row], name: str, method: str, what: str) -> tuple[list[float], list[float]]:
    of = [r for r in rows if (r["network"], r["method"], r["what"]) == (name, method, what)]
    return [100 * r["correct_decided"] for r in of], [100 * r["errors_referred"] for r in of]


def _panels(n_rows: int, n_columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    need()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, n_rows * height + 0.45), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for ax in axes.flat:
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.25, linewidth=0.5)
    return figure, axes.tolist()


def _line(ax: Axes, method: str, x: Sequence[float], values: Sequence[Floats]) -> None:
    """Draw means with bars of one standard deviation."""
    mean = np.array([v.mean() for v in values])
    std = np.array([v.std(ddof=1) if len(v) > 1 else 0.0 for v in values])
    bars = None if method == "none" else [np.minimum(std, 0.5 * mean), std]  # a logarithmic axis has no zero
    size: dict[str, Any] = {"linewidth": 1.1, "markersize": 3, "zorder": 2} | LARGER.get(method, {})
    ax.errorbar(x, mean, bars, label=TITLES[method], elinewidth=0.7, **size, **styled([method])[method].line)


def _frame(ax: Axes, values: Sequence[Floats]) -> None:
    """Keep the panel to where the methods differ; what runs away leaves it at the top."""
    means = np.array([v.mean() for v in values])
    low, high = means.min(), means.max()
    ax.set_ylim(low - 0.12 * (high - low), high + 0.25 * (high - low))


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
