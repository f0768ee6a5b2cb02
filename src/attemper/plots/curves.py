"""Curves over a threshold: the effect when uncertain cases are referred to somebody else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction
from attemper._typing import Floats
from attemper.errors import InputError
from attemper.metrics import ReferralCurve, RiskCoverage
from attemper.plots.sheet import drawing
from attemper.plots.styles import DARK, GREY, KEY, Style, styled, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["referral_curve", "risk_coverage"]


@drawing
def referral_curve(
    ax: Axes,
    curves: Mapping[str, ReferralCurve],
    *,
    thresholds: ArrayLike | None = None,
    chosen: float | Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw wrong predictions referred against right predictions decided, a line for each method.

    Parameters
    ----------
    ax : matplotlib Axes
    curves : mapping
        Names to what `attemper.metrics.referral_curve` returns. Names of methods have the same look in every picture.
    thresholds : array, optional
        Mark these on each line, such as ``numpy.arange(21) / 20``, those of the paper.
    chosen : float, or mapping of names to floats, optional
        The threshold in use: circled, and named in the legend.

    Examples
    --------
    >>> from attemper import metrics, plots
    >>> curve = metrics.referral_curve([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    >>> [ax] = plots.new_axes()
    >>> plots.referral_curve(ax, {"ts": curve}, chosen=0.75) is ax
    True
    """
    ax.plot([0, 100], [100, 0], color=GREY, linewidth=0.7, label="chance")
    for name, style, at in _each(curves, chosen):
        curve = curves[name]
        x, y = 100 * curve.correct_decided, 100 * curve.errors_referred
        _draw(ax, name, style, x, y, curve.threshold, thresholds, at, len(ax.lines))
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.set(xlabel="right predictions that are decided, %", ylabel="wrong predictions that are referred, %")
    ax.legend(loc="lower left", **KEY)


@drawing
def risk_coverage(
    ax: Axes,
    curves: Mapping[str, RiskCoverage],
    *,
    thresholds: ArrayLike | None = None,
    chosen: float | Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw the share of wrong predictions among those decided against the share decided, a line for each method.

    Parameters
    ----------
    ax : matplotlib Axes
    curves : mapping
        Names to what `attemper.metrics.risk_coverage_curve` returns.
    thresholds, chosen
        As in `referral_curve`.

    Examples
    --------
    >>> from attemper import metrics, plots
    >>> curve = metrics.risk_coverage_curve([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    >>> [ax] = plots.new_axes()
    >>> plots.risk_coverage(ax, {"ts": curve}) is ax
    True
    """
    for name, style, at in _each(curves, chosen):
        curve = curves[name]
        x, y = 100 * np.asarray(curve.coverage), 100 * np.asarray(curve.risk)
        _draw(ax, name, style, x, y, np.asarray(curve.threshold), thresholds, at, len(ax.lines))
    ax.set(xlim=(0, 100), xlabel="predictions that are decided, %", ylabel="wrong ones among them, %")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left", bbox_to_anchor=(0.04, 1.0), **KEY)


def _each(
    curves: Mapping[str, Any], chosen: float | Mapping[str, float] | None
) -> Iterator[tuple[str, Style, float | None]]:
    """Check the curves; go through names, styles and chosen thresholds."""
    if not isinstance(curves, Mapping) or not curves:
        got = "an empty mapping" if isinstance(curves, Mapping) else type(curves).__name__
        raise InputError(f"curves: expected names and curves, such as {{'ts': curve}}, got {got}")
    for name in chosen if isinstance(chosen, Mapping) else ():
        if name not in curves:
            raise InputError(f"chosen: expected names of the curves, {list(curves)}, got {name!r}")
    for name, style in styled(curves).items():
        at = chosen.get(name) if isinstance(chosen, Mapping) else chosen
        if at is not None:
            fraction("chosen", at, closed=True, such_as="0.8")
        yield name, style, at


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
    label = titled(name) + ("" if at is None else f" (t = {at:g})")
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
