"""Curves over a threshold: the effect when uncertain cases are referred to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction
from attemper._typing import Floats
from attemper.calibrators.style import DARK, GREY
from attemper.errors import InputError
from attemper.metrics import referral_curve, risk_coverage_curve
from attemper.plots.sheet import KEY, axes_for, styled, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_referral", "plot_risk_coverage"]

FEWEST = 5  # per cent decided, from which on an error rate is shown in any case and sets the scale
FEWEST_SAMPLES = 20  # decided: the error rate of fewer is mostly chance


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
        The threshold in use: circled, with its value in the legend.
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
    curves = _curves(referral_curve, labels, probs, options)
    at = _thresholds(curves, chosen)
    ax = axes_for(ax, title, height=3.4, grid="both")
    ax.set(xlabel="right predictions that are decided, %", ylabel="wrong predictions that are referred, %")
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.plot([0, 100], [100, 0], color=GREY, linewidth=0.7, label="chance")
    points = {
        name: 100 * np.column_stack([curve.correct_decided, curve.errors_referred]) for name, curve in curves.items()
    }
    _draw(ax, curves, points, points, thresholds, at)
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

    Lines begin where 20 samples, or 5 %, are decided, and the scale is that of shares decided from 5 % on: the error
    rate of fewer samples is mostly chance.

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
    'error rate of decided predictions, %'
    """
    curves = _curves(risk_coverage_curve, labels, probs, options)
    at = _thresholds(curves, chosen)
    ax = axes_for(ax, title, height=2.6)
    points = {name: 100 * np.column_stack([np.asarray(c.coverage), np.asarray(c.risk)]) for name, c in curves.items()}
    ax.set(xlim=(0, 100), xlabel="predictions that are decided, %", ylabel="error rate of decided predictions, %")
    known = [xy[xy[:, 0] >= FEWEST, 1] for xy in points.values()]
    highest = max((float(np.nanmax(y)) for y in known if np.isfinite(y).any()), default=0.0)
    ax.set_ylim(0, 1.06 * highest or 1.0)
    _draw(ax, curves, {name: _of_enough(xy) for name, xy in points.items()}, points, thresholds, at)
    return ax


def _of_enough(points: Floats) -> Floats:
    """Leave out the end of a curve where too few samples are decided.

    A curve has a point for each confidence, so at least 20 samples are decided at the twentieth point from the end. Of
    a few thresholds only those are left out that decide hardly any samples.
    """
    few = np.argsort(points[:, 0], kind="stable")[: FEWEST_SAMPLES - 1]
    few = few[points[few, 0] < FEWEST]
    shown = points.copy()
    shown[few, 1] = np.nan
    return shown


def _curves(compute: Callable[..., Any], labels: Any, probs: Any, options: dict[str, Any]) -> Mapping[str, Any]:
    """Return the curves by name: those given, or those of one or more methods' probabilities."""
    if hasattr(labels, "threshold"):
        labels = {"": labels}
    if isinstance(labels, Mapping):
        if probs is not None:
            raise InputError("curves: they are computed already; pass no probs")
        wrong = [type(curve).__name__ for curve in labels.values() if not hasattr(curve, "threshold")]
        if wrong or not labels:
            got = wrong[0] if wrong else "an empty mapping"
            raise InputError(
                f"curves: expected names and curves, such as {{'ts': curve}}, or labels and probs, got {got}"
            )
        return labels
    if isinstance(probs, Mapping):
        return {name: compute(labels, p, **options) for name, p in probs.items()}
    return {"": compute(labels, probs, **options)}


def _thresholds(curves: Mapping[str, Any], chosen: float | Mapping[str, float] | None) -> dict[str, float]:
    """Return the chosen threshold of each curve that has one."""
    if chosen is None:
        return {}
    at = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(curves, chosen)
    for name, threshold in at.items():
        if name not in curves:
            raise InputError(f"chosen: expected names of the curves, {list(curves)}, got {name!r}")
        fraction("chosen", threshold, closed=True, such_as="0.8")
    return at


def _draw(
    ax: Axes,
    curves: Mapping[str, Any],
    points: Mapping[str, Floats],
    whole: Mapping[str, Floats],
    marked: ArrayLike | None,
    chosen: Mapping[str, float],
) -> None:
    """Draw each line and its chosen threshold; ``whole`` are the lines, if ``points`` are only a part of them."""
    for name, style in styled(curves).items():
        look: dict[str, Any] = style.line | {"markersize": 3.2, "linewidth": 1.2, "clip_on": False}
        if marked is None:
            look["marker"] = "" if len(points[name]) > 1 else "o"
        else:
            look["markevery"] = _places(curves[name].threshold, np.ravel(np.asarray(marked, dtype=np.float64)).tolist())
            look["marker"] = style.marker or "x"
        ax.plot(*points[name].T, **look, label=titled(name) or "_")
    ring: dict[str, Any] = {"marker": "o", "markersize": 7, "markerfacecolor": "none", "linestyle": "", "color": DARK}
    for name, t in chosen.items():
        [x, y] = whole[name][_places(curves[name].threshold, [t])[0]]
        label = f"t = {t:g}" if len(set(chosen.values())) == 1 else f"{titled(name)}: t = {t:g}"
        known = label in ax.get_legend_handles_labels()[1]
        ax.plot([x], [y], **ring, clip_on=False, label="_" if known else label)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**KEY)


def _places(threshold: NDArray[Any], wanted: Sequence[float]) -> list[int]:
    """Where on a curve each wanted threshold is: at the highest one up to it, as confidences between refer nobody."""
    threshold = np.asarray(threshold)
    order = np.argsort(threshold, kind="stable")
    found = np.searchsorted(threshold[order], wanted, side="right") - 1
    return sorted({int(order[max(i, 0)]) for i in found})
