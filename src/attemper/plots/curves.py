"""Curves over a threshold: the effect when uncertain cases are referred to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction
from attemper._typing import Floats
from attemper.errors import InputError
from attemper.metrics import referral_curve, risk_coverage_curve
from attemper.plots.sheet import check_order, drawn_on
from attemper.plots.styles import DARK, GREY, KEY, Style, styled, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_referral", "plot_risk_coverage"]


def plot_referral(
    labels: ArrayLike | Any,
    probs: ArrayLike | Mapping[str, Any] | Any = None,
    *,
    thresholds: ArrayLike | None = None,
    chosen: float | Mapping[str, float] | None = None,
    ax: Axes | None = None,
    title: str = "",
    **options: Any,
) -> Axes:
    """Draw wrong predictions referred against right predictions decided, a line for each method.

    Parameters
    ----------
    labels, probs
        As in `attemper.metrics.referral_curve`; for several methods a mapping of their names to probabilities. Or pass
        curves alone: what that function returns, or a mapping of names to it. Names of methods have the same look in
        every picture.
    thresholds : array, optional
        Mark these on each line, such as ``numpy.arange(21) / 20``, those of the paper.
    chosen : float, or mapping of names to floats, optional
        The threshold in use: circled, and named in the legend.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str
    **options
        Those of `attemper.metrics.referral_curve`, such as ``input`` and ``sample_weight``.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from attemper import plots
    >>> ax = plots.plot_referral([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], chosen=0.75)
    >>> ax.get_xlabel()
    'right predictions that are decided, %'
    """
    lines = _styled(_curves(referral_curve, labels, probs, options), chosen)
    with drawn_on(ax, title, height=3.3) as ax:
        ax.plot([0, 100], [100, 0], color=GREY, linewidth=0.7, label="chance")
        for name, curve, style, at in lines:
            x, y = 100 * curve.correct_decided, 100 * curve.errors_referred
            _draw(ax, name, style, x, y, curve.threshold, thresholds, at, len(ax.lines))
        ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        ax.set(xlabel="right predictions that are decided, %", ylabel="wrong predictions that are referred, %")
        ax.legend(loc="lower left", **KEY)
    return ax


def plot_risk_coverage(
    labels: ArrayLike | Any,
    probs: ArrayLike | Mapping[str, Any] | Any = None,
    *,
    thresholds: ArrayLike | None = None,
    chosen: float | Mapping[str, float] | None = None,
    ax: Axes | None = None,
    title: str = "",
    **options: Any,
) -> Axes:
    """Draw the share of wrong predictions among those decided against the share decided, a line for each method.

    Parameters
    ----------
    labels, probs, **options
        As in `attemper.metrics.risk_coverage_curve`; a mapping of names, or curves, as in `plot_referral`.
    thresholds, chosen, ax, title
        As in `plot_referral`.

    Examples
    --------
    >>> from attemper import plots
    >>> ax = plots.plot_risk_coverage([0, 1, 0], {"ts": [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]})
    >>> ax.get_ylabel()
    'wrong ones among them, %'
    """
    lines = _styled(_curves(risk_coverage_curve, labels, probs, options), chosen)
    with drawn_on(ax, title, height=2.4) as ax:
        for name, curve, style, at in lines:
            x, y = 100 * np.asarray(curve.coverage), 100 * np.asarray(curve.risk)
            _draw(ax, name, style, x, y, np.asarray(curve.threshold), thresholds, at, len(ax.lines))
        ax.set(xlim=(0, 100), xlabel="predictions that are decided, %", ylabel="wrong ones among them, %")
        ax.set_ylim(bottom=0)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left", bbox_to_anchor=(0.04, 1.0), **KEY)
    return ax


def _curves(compute: Callable[..., Any], labels: Any, probs: Any, options: dict[str, Any]) -> Mapping[str, Any]:
    """Return the curves by name: those given, or those of one or more methods' probabilities."""
    check_order(labels)
    if hasattr(labels, "threshold"):
        labels = {"": labels}
    if isinstance(labels, Mapping):
        if probs is not None:
            raise InputError("curves: they are computed already; pass no probs")
        return labels
    if isinstance(probs, Mapping):
        return {name: compute(labels, p, **options) for name, p in probs.items()}
    return {"": compute(labels, probs, **options)}


def _styled(
    curves: Mapping[str, Any], chosen: float | Mapping[str, float] | None
) -> list[tuple[str, Any, Style, float | None]]:
    """Check the curves; return names, curves, styles and chosen thresholds."""
    wrong = [type(curve).__name__ for curve in curves.values() if not hasattr(curve, "threshold")]
    if wrong or not curves:
        got = wrong[0] if wrong else "an empty mapping"
        raise InputError(f"curves: expected names and curves, such as {{'ts': curve}}, or labels and probs, got {got}")
    for name in chosen if isinstance(chosen, Mapping) else ():
        if name not in curves:
            raise InputError(f"chosen: expected names of the curves, {list(curves)}, got {name!r}")
    at = {name: chosen.get(name) if isinstance(chosen, Mapping) else chosen for name in curves}
    for threshold in at.values():
        if threshold is not None:
            fraction("chosen", threshold, closed=True, such_as="0.8")
    return [(name, curves[name], style, at[name]) for name, style in styled(curves).items()]


def _draw(
    ax: Axes,
    name: str,
    style: Style,
    x: Floats,
    y: Floats,
    threshold: Floats,
    marked: ArrayLike | None,
    at: float | None,
    order: int,
) -> None:
    mark = "" if at is None else f"t = {at:g}"
    label = f"{titled(name)} ({mark})" if name and mark else titled(name) or mark or "_"  # no legend for the only line
    look: dict[str, Any] = style.line | {"markersize": 3.2, "linewidth": 1.2}
    if marked is None:
        # At equal distances on paper, and each line's elsewhere: lines that fall together are still told apart.
        look["markevery"] = (0.03 * (order % 5), 0.15)
    else:
        look["markevery"] = _places(threshold, np.ravel(np.asarray(marked, dtype=np.float64)).tolist())
        look["marker"] = style.marker or "x"
    ax.plot(x, y, label=label, **look)
    if at is not None:
        [place] = _places(threshold, [at])
        ax.plot(x[place], y[place], marker="o", markersize=8, markerfacecolor="none", color=DARK, linestyle="")


def _places(threshold: NDArray[Any], wanted: Sequence[float]) -> list[int]:
    """Where on a curve each wanted threshold is: at the highest one up to it, as confidences between refer nobody."""
    order = np.argsort(threshold, kind="stable")
    found = np.searchsorted(threshold[order], wanted, side="right") - 1
    return sorted({int(order[max(i, 0)]) for i in found})
