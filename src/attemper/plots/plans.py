"""What more labels bring: the curve of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attemper.errors import InputError
from attemper.plots.sheet import check_order, drawn_on
from attemper.plots.styles import BLUE, DARK, GREY, KEY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_plan"]

AXES = {
    "temperature": "upper end of T's interval ÷ lower end",
    "accuracy": "width of the accuracy's interval",
    "nll": "width of the NLL's interval",
    "brier": "width of the Brier score's interval",
    "ece": "width of the ECE's interval",
    "certificate": "certificate reached, %",
    "coverage": "coverage off by, at most",
}
RING: dict[str, Any] = {"markersize": 8, "markerfacecolor": "none"}


def plot_plan(plan: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw what is expected of so many labels, the target, and the number of labels that reaches it.

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
        ax.plot(x, percent * y, color=BLUE, marker="o", markersize=3, linewidth=1.2, label="expected")
        if "decided_share" in curve:
            share = 100 * curve["decided_share"]
            ax.plot(x, share, color=DARK, linestyle="--", linewidth=1, label="decided, %")
        if "chance" in curve:
            ax.plot(x, curve["chance"], color=DARK, linestyle="--", linewidth=1, label="ECE by chance")
        ax.axhline(percent * plan.target, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        ax.axvline(plan.n_samples, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        ax.set_xscale("log")
        if plan.question in ("accuracy", "nll", "brier", "ece", "coverage"):
            ax.set_yscale("log")
        reached = percent * float(np.interp(plan.n_samples, x, y))
        ax.plot([plan.n_samples], [reached], "o", label=f"{plan.n_samples} labels", color=DARK, **RING)
        if percent > 1:
            ax.set_ylim(0, 102)
        ax.set(xlabel="labels", ylabel=AXES[plan.question])
        _plain_numbers(ax)
        ax.legend(**KEY)
    return ax


def _plain_numbers(ax: Axes) -> None:
    """Write numbers of logarithmic axes as numbers, not as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
