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
from attemper.plots.labels import MOST_DIRECT, joined, label_lines, label_points, same_to_the_eye
from attemper.plots.sheet import check_order, drawn_on
from attemper.plots.styles import DARK, GREY, Style, styled, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_referral", "plot_risk_coverage"]

TOUCHING = 6.0  # points on paper, from the middle of one circle to that of the other
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

    Lines are labelled where they run. Those that lie within the width of a line on paper are drawn once, and their
    names are joined: by "=" where the numbers are the same, else by "≈".

    Parameters
    ----------
    labels, probs
        As in `attemper.metrics.referral_curve`; for several methods a mapping of their names to probabilities. Or pass
        curves alone: what that function returns, or a mapping of names to it. Names of methods have the same look in
        every picture.
    thresholds : array, optional
        Mark these on each line, such as ``numpy.arange(21) / 20``, those of the paper.
    chosen : float, or mapping of names to floats, optional
        The threshold in use: circled and labelled.
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
    with drawn_on(ax, title, height=3.4, grid="both") as ax:
        ax.set(xlabel="right predictions that are decided, %", ylabel="wrong predictions that are referred, %")
        ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        chance = ax.plot([0, 100], [100, 0], color=GREY, linewidth=0.7)
        points = [100 * np.column_stack([curve.correct_decided, curve.errors_referred]) for _, curve, *_ in lines]
        _draw(ax, lines, points, thresholds, [(chance[0], "chance")])
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
    rate of fewer samples is mostly chance. Lines that fall together are drawn once, as in `plot_referral`.

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
    lines = _styled(_curves(risk_coverage_curve, labels, probs, options), chosen)
    with drawn_on(ax, title, height=2.6) as ax:
        points = [100 * np.column_stack([np.asarray(c.coverage), np.asarray(c.risk)]) for _, c, *_ in lines]
        ax.set(xlim=(0, 100), xlabel="predictions that are decided, %", ylabel="error rate of decided predictions, %")
        known = [xy[xy[:, 0] >= FEWEST, 1] for xy in points]
        highest = max((float(np.nanmax(y)) for y in known if np.isfinite(y).any()), default=0.0)
        ax.set_ylim(0, 1.06 * highest or 1.0)
        _draw(ax, lines, [_of_enough(xy) for xy in points], thresholds, [], points)
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
    lines: Sequence[tuple[str, Any, Style, float | None]],
    points: Sequence[Floats],
    marked: ArrayLike | None,
    named: list[tuple[Any, str]],
    whole: Sequence[Floats] | None = None,
) -> None:
    """Draw each line that can be seen by itself, and name them all.

    ``whole`` are the lines, if ``points`` are only the part that is drawn.
    """
    groups = same_to_the_eye(ax, points)
    for order, group in enumerate(groups):
        names = [lines[i][0] for i in group]
        style = lines[next((i for i in group if lines[i][0] != "none"), group[0])][2]
        look: dict[str, Any] = style.line | {"markersize": 3.2, "linewidth": 1.2, "clip_on": False}
        if len(groups) <= MOST_DIRECT and marked is None:
            look["marker"] = "" if len(points[group[0]]) > 1 else "o"
        elif marked is None:
            look["markevery"] = (0.03 * (order % 5), 0.15)  # at equal distances on paper, and each line's elsewhere
        else:
            threshold = np.asarray(lines[group[0]][1].threshold)
            look["markevery"] = _places(threshold, np.ravel(np.asarray(marked, dtype=np.float64)).tolist())
            look["marker"] = style.marker or "x"
        [line] = ax.plot(*points[group[0]].T, **look)
        label = " ".join(joined([titled(name) for name in names], [points[i] for i in group]))
        line.set_label(label or "_")
        if label:
            named.append((line, label))
    circles = _circles(ax, lines, whole or points)
    for x, y, _ in circles:
        ax.plot([x], [y], marker="o", markersize=7, markerfacecolor="none", color=DARK, linestyle="", clip_on=False)
    label_lines(ax, named)
    label_points(ax, circles)


def _circles(
    ax: Axes, lines: Sequence[tuple[str, Any, Style, float | None]], points: Sequence[Floats]
) -> list[tuple[float, float, str]]:
    """Return the places of the chosen thresholds and what is written there, one for those that touch."""
    found: list[tuple[Floats, float, list[str]]] = []
    for (name, curve, _, at), xy in zip(lines, points):
        if at is None:
            continue
        place = xy[_places(np.asarray(curve.threshold), [at])[0]]
        for other, t, names in found:
            apart = np.hypot(*np.diff(ax.transData.transform([place, other]), axis=0)[0]) / ax.figure.dpi * 72
            if t == at and apart < TOUCHING:
                names.append(name)
                break
        else:
            found.append((place, at, [name]))
    alone = len(lines) == 1 or len(found) == 1
    return [
        (float(x), float(y), f"t = {t:g}" if alone else f"{', '.join(map(titled, names))}: t = {t:g}")
        for (x, y), t, names in found
    ]


def _places(threshold: NDArray[Any], wanted: Sequence[float]) -> list[int]:
    """Where on a curve each wanted threshold is: at the highest one up to it, as confidences between refer nobody."""
    order = np.argsort(threshold, kind="stable")
    found = np.searchsorted(threshold[order], wanted, side="right") - 1
    return sorted({int(order[max(i, 0)]) for i in found})
