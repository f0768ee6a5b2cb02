"""What more labels bring: the curve of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attemper.errors import InputError
from attemper.plots.labels import label_lines, label_points
from attemper.plots.sheet import check_order, drawn_on
from attemper.plots.styles import BLUE, DARK, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_plan"]

AXES = {
    "temperature": "T's interval: upper ÷ lower end",
    "accuracy": "width of the accuracy's interval",
    "nll": "width of the NLL's interval",
    "brier": "width of the Brier score's interval",
    "ece": "ECE: width of its interval, and by chance",
    "certificate": "probability or share, %",
    "coverage": "coverage off by, at most",
}
# Where an axis has two lines: what the first is, and the second with its label.
FIRST = {"certificate": "probability of a certificate", "ece": "width of the interval"}
SECOND = {"decided_share": "share of predictions decided", "chance": "ECE by chance"}
RING: dict[str, Any] = {"markersize": 7, "markerfacecolor": "none"}


def plot_plan(plan: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the expected result against the number of labels, the target, and the number that reaches it.

    Parameters
    ----------
    plan : Plan
        What the functions ``labels_for_…`` of `attemper.planning` return.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> from attemper import planning, plots
    >>> ax = plots.plot_plan(planning.labels_for_coverage(0.95, within=0.02))
    >>> ax.get_xlabel()
    'labels'
    """
    check_order(plan)
    curve = getattr(plan, "curve", None)
    if curve is None or getattr(plan, "question", None) not in AXES:
        raise InputError(f"plan: expected what attemper.planning.labels_for_… returns, got {type(plan).__name__}")
    names = list(curve)
    x, y, error = curve[names[0]], curve[names[1]], curve.get(f"{names[1]}_error")
    percent = 100.0 if plan.question == "certificate" else 1.0
    with drawn_on(ax, title, height=2.4) as ax:
        if error is not None:
            low, high = percent * np.maximum(y - 2 * error, 0), percent * (y + 2 * error)
            ax.fill_between(x, low, np.minimum(high, 100) if percent > 1 else high, color=BLUE, alpha=0.15, linewidth=0)
        look: dict[str, Any] = {"linewidth": 1.2, "clip_on": False}
        lines = ax.plot(
            x, percent * y, color=BLUE, marker="o", markersize=3, **look, label=FIRST.get(plan.question, "expected")
        )
        for name, label in SECOND.items():
            if name in curve:
                share = curve[name] * (percent if percent > 1 else 1)
                lines += ax.plot(x, share, color=DARK, linestyle="--", **look, label=label)
        for draw_across, at in ((ax.axhline, percent * plan.target), (ax.axvline, plan.n_samples)):
            draw_across(at, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        ax.set(xlabel="labels", ylabel=AXES[plan.question], xscale="log")
        if plan.question in ("accuracy", "nll", "brier", "ece", "coverage"):
            ax.set_yscale("log")
        reached = percent * float(np.interp(plan.n_samples, x, y))
        label = f"{plan.n_samples} labels"
        ax.plot([plan.n_samples], [reached], "o", label=label, color=DARK, clip_on=False, **RING)
        if percent > 1:
            ax.set_ylim(0, 102)
        _plain_numbers(ax)
        label_points(ax, [(plan.n_samples, reached, label)])
        if len(lines) > 1:
            label_lines(ax, [(line, str(line.get_label())) for line in lines])
    return ax


def _plain_numbers(ax: Axes) -> None:
    """Write numbers of logarithmic axes as numbers, not as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
