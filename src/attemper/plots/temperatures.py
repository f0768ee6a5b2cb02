"""NLL and ECE against the temperature, and what attended temperature scaling finds for each θ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper._checks import positive
from attemper._typing import Floats
from attemper.calibrators import AttendedTemperatureScaling
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError
from attemper.maps import ScaleMap
from attemper.metrics import ece, nll
from attemper.metrics.predictions import Predictions
from attemper.plots.labels import data_box, ink, label_lines, label_uprights
from attemper.plots.sheet import check_axes, check_fitted, check_order, drawn_on, make_light, settle, twin
from attemper.plots.styles import BLUE, DARK, styled, titled
from attemper.sketch import log_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_temperature", "plot_theta"]

N_POINTS = 81
NEAR_BEST = 2.5  # the NLL is shown as high as it is at the best T, times or divided by this
LOGARITHMIC = 3.0  # ends of T(θ) that are farther apart have a logarithmic scale
DOTS = (0, (1, 1.5))
TOGETHER = 3.0  # points on paper: marks that are closer are one
LEFT, RIGHT = BLUE, DARK  # of the two scales: each has the colour of its line, and neither that of a method's dashes
SECOND_LINE: dict[str, Any] = {"color": RIGHT, "linewidth": 1.3, "linestyle": (0, (4, 1.5))}


def plot_temperature(
    logits: ArrayLike | Any,
    labels: ArrayLike | Any | None = None,
    *,
    t_range: tuple[float, float] = (0.3, 5.0),
    chosen: Mapping[str, float] | None = None,
    ax: Axes | None = None,
    ece_ax: Axes | None = None,
    title: str = "",
    **options: Any,
) -> Axes:
    """Draw NLL (left, solid) and ECE (right, dashed) of softmax(logits / T) against T.

    Parameters
    ----------
    logits, labels, **options
        As in `attemper.Scores.from_logits`; or a `Scores` for ``logits`` alone. They are gone through once for each of
        81 temperatures: a few thousand samples show as much as millions.
    t_range : (low, high)
        Temperatures shown; the range is widened to those chosen.
    chosen : mapping, optional
        Names of methods to the temperatures that they chose: a line for each, with its marker on the NLL; one for
        those that fall together.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    ece_ax : matplotlib Axes, optional
        Where to draw ECE; by default on the same Axes, with a scale of its own on the right.

    Examples
    --------
    >>> from attemper import datasets, plots
    >>> data = datasets.load()
    >>> ax = plots.plot_temperature(data.val_logits, data.val_labels, chosen={"ts": 2.15})
    >>> ax.get_xlabel()
    'temperature T'
    """
    check_order(logits)
    if ece_ax is not None:
        check_axes(ece_ax)
    scores = _scores(logits, labels, options)
    marks = _check_chosen(chosen or {})
    log_range(t_range)
    low, high = min([t_range[0], *marks.values()]), max([t_range[1], *marks.values()])
    grid = np.geomspace(low, high, N_POINTS)
    values = np.array([_nll_and_ece(scores, t) for t in grid])
    with drawn_on(ax, title) as ax:
        other = twin(ax) if ece_ax is None else ece_ax
        if ece_ax is not None:
            make_light(ece_ax, "y")
        [solid] = ax.plot(grid, values[:, 0], color=LEFT, linewidth=1.4, label="NLL")
        [dashed] = other.plot(grid, values[:, 1], **SECOND_LINE, label="ECE, %")
        for each in (ax, other):
            each.set(xscale="log", xlim=(low, high), xlabel="temperature T")
            ticks = _ticks(low, high)
            each.set_xticks(ticks, [f"{t:.3g}" for t in ticks])
            each.set_xticks([], minor=True)
        other.set_ylim(bottom=0)
        if ece_ax is None:
            other.set_xlabel("")
        _name_scale(ax, "NLL", LEFT)
        _name_scale(other, "ECE, %", RIGHT, "right" if ece_ax is None else "left")
        reached = {name: _nll_and_ece(scores, t)[0] for name, t in marks.items()}
        _show_the_best(ax, grid, values[:, 0], list(reached.values()))
        uprights = []
        styles = styled(marks)
        for names in _together(ax, marks):
            style, t = styles[names[0]], marks[names[0]]
            look: dict[str, Any] = {"color": style.color, "linestyle": style.linestyle, "linewidth": 0.9}
            label = f"{', '.join(map(titled, names))}: T = {_from_to([marks[name] for name in names])}"
            ax.plot(
                [t], [reached[names[0]]], color=style.color, marker=style.marker or "x", markersize=4.5, label=label
            )
            uprights.append((ax.axvline(t, **look), label))
            if ece_ax is not None:
                ece_ax.axvline(t, **look)
        label_uprights(ax, uprights, *([other] if ece_ax is None else []))
        solid.set_clip_box(data_box(ax))
        if ece_ax is None:
            label_lines(other, [(solid, "NLL"), (dashed, "ECE")], ax)
    return ax


def _name_scale(ax: Axes, name: str, color: str, side: str = "left") -> None:
    """Name a scale, in the colour of its line."""
    ax.set_ylabel(name)
    ax.yaxis.label.set_color(ink(color))
    ax.tick_params(axis="y", color=ink(color), labelcolor=ink(color))
    ax.spines[side].set_color(ink(color))


def _show_the_best(ax: Axes, grid: Floats, values: Floats, marked: Sequence[float]) -> None:
    """Show the minimum, not the walls beside it."""
    best = grid[int(values.argmin())]
    near = values[(grid >= best / NEAR_BEST) & (grid <= best * NEAR_BEST)]
    low, high = float(values.min()), float(max([*near, *marked]))
    if high > low:
        ax.set_ylim(low - 0.06 * (high - low), high)


def _together(ax: Axes, marks: Mapping[str, float]) -> list[list[str]]:
    """Return the names in groups whose lines would lie on each other."""
    settle(ax)
    groups: list[list[str]] = []
    at = {name: ax.transData.transform((t, 0))[0] / ax.figure.dpi * 72 for name, t in marks.items()}
    for name in sorted(marks, key=lambda name: marks[name]):
        if groups and at[name] - at[groups[-1][0]] < TOGETHER:
            groups[-1].append(name)
        else:
            groups.append([name])
    return [[name for name in marks if name in group] for group in groups]


def _from_to(values: Sequence[float]) -> str:
    ends = [f"{end:.3g}" for end in (min(values), max(values))]
    return "–".join(dict.fromkeys(ends))


def plot_theta(ats: AttendedTemperatureScaling, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw T(θ) (left, solid) and the validation NLL by which θ is tuned (right, dashed); the chosen θ is marked.

    Parameters
    ----------
    ats : fitted AttendedTemperatureScaling
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> from attemper import AttendedTemperatureScaling, datasets, plots
    >>> data = datasets.load()
    >>> ats = AttendedTemperatureScaling().fit(data.val_logits, data.val_labels)
    >>> ax = plots.plot_theta(ats)
    >>> ax.get_xlabel()
    'threshold θ'
    """
    check_order(ats)
    check_fitted("ats", ats, AttendedTemperatureScaling)
    path = ats.path_
    dot = "." if len(path.theta) == 1 else ""  # a line of one point would not be seen
    chosen = f"chosen: θ = {ats.theta_:.3g}, T = {ats.temperature_:.3g}"
    with drawn_on(ax, title) as ax:
        other = twin(ax)
        [solid] = ax.plot(path.theta, path.temperature, color=LEFT, linewidth=1.4, marker=dot, label="T(θ)")
        [dashed] = other.plot(path.theta, path.nll, **SECOND_LINE, marker=dot, label="NLL at T(θ)")
        ax.set_xlabel("threshold θ")
        _name_scale(ax, "temperature T", LEFT)
        _name_scale(other, "validation NLL", RIGHT, "right")
        other.ticklabel_format(axis="y", useOffset=False)
        if path.temperature.max() > LOGARITHMIC * path.temperature.min():
            ax.set_yscale("log")
            low, high = min(path.temperature.min(), ats.temperature_), path.temperature.max()
            ax.set_ylim(0.95 * low, 1.05 * high)
            ticks = _ticks(*ax.get_ylim())
            ax.set_yticks(ticks, [f"{t:.3g}" for t in ticks])
            ax.set_yticks([], minor=True)
        inside = ats.theta_ <= path.theta.max()
        if not inside:  # temperature scaling itself: a line across instead of a point far away
            chosen += " (temperature scaling)"
            ax.axhline(ats.temperature_, color=DARK, linewidth=0.8, linestyle=DOTS)
        at = ats.theta_ if inside else float(path.theta.max())
        ax.plot([at], [ats.temperature_], color=DARK, marker="o", markersize=4.5, linestyle="", label=chosen)
        mark = ax.axvline(at, color=DARK, linewidth=0.8, linestyle=DOTS, zorder=1.5, visible=inside)
        label_uprights(ax, [(mark, chosen)], other)
        label_lines(other, [(solid, "T(θ)"), (dashed, "NLL")], ax)
    return ax


def _scores(logits: Any, labels: Any, options: dict[str, Any]) -> LabelledScores:
    if not isinstance(logits, Scores):
        return labelled(Scores.from_logits(logits, labels, **options), "logits")
    if labels is not None or options:
        raise InputError("logits: a Scores has its own labels and weights; pass no others")
    return labelled(logits, "logits")


def _check_chosen(chosen: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(chosen, Mapping):
        raise InputError(f"chosen={chosen!r}: expected names and temperatures, such as {{'ts': 1.8}}")
    return {name: positive(f"chosen: the T of {name!r}", t) for name, t in chosen.items()}


def _ticks(low: float, high: float) -> list[float]:
    """Round temperatures within a range, in steps that look even on a logarithmic axis."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 3, 5) if high < 100 * low else (1, 3) if high < 1e4 * low else (1,)
    found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    return found if len(found) > 1 else np.geomspace(low, high, 5).tolist()


def _nll_and_ece(scores: LabelledScores, t: float) -> tuple[float, float]:
    """NLL, and ECE in per cent, at one temperature."""
    h = to_numpy(scores.logits).astype(np.float64)
    p = Predictions.of(scores.labels, ScaleMap(1 / t).log_apply(h), scores.weights, input="log_probs")
    return nll.statistic(p).at(p.weights), 100 * ece.statistic(p).at(p.weights)
