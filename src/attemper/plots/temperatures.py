"""NLL and ECE against the temperature, and what attended temperature scaling finds for each θ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper._checks import positive
from attemper.calibrators import AttendedTemperatureScaling
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError
from attemper.maps import ScaleMap
from attemper.metrics import ece, nll
from attemper.metrics.predictions import Predictions
from attemper.plots.sheet import add_key, check_axes, check_fitted, check_order, drawn_on, twin
from attemper.plots.styles import BLUE, DARK, VERMILION, styled, titled
from attemper.sketch import log_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_temperature", "plot_theta"]

N_POINTS = 81


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
        Names of methods to the temperatures that they chose: a line for each, with its marker on the NLL.
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
        [solid] = ax.plot(grid, values[:, 0], color=BLUE, linewidth=1.4, label="NLL")
        styles, keys, uprights = styled(marks), [], []
        sizes = np.linspace(min(4 + 1.7 * len(marks), 10), 4, len(marks))
        for (name, t), size in zip(marks.items(), sizes):  # one within the other, where methods agree
            look: dict[str, Any] = styles[name].line | {"markerfacecolor": "none", "markersize": size, "clip_on": False}
            keys += ax.plot([t], [_nll_and_ece(scores, t)[0]], **look, label=f"{titled(name)}: T = {t:.3g}")
            thin: dict[str, Any] = {"color": styles[name].color, "linestyle": styles[name].linestyle, "linewidth": 0.9}
            uprights.append(ax.axvline(t, **thin))
            if ece_ax is not None:
                ece_ax.axvline(t, **thin)
        other = twin(ax) if ece_ax is None else ece_ax
        [dashed] = other.plot(
            grid, values[:, 1], color=VERMILION, linewidth=1.3, linestyle=(0, (4, 1.5)), label="ECE, %"
        )
        for each in (ax, other):
            each.set(xscale="log", xlim=(low, high))
            ticks = _ticks(low, high)
            each.set_xticks(ticks, [f"{t:.3g}" for t in ticks])
            each.set_xticks([], minor=True)
        ax.set(xlabel="temperature T", ylabel="NLL")
        other.set_ylabel("ECE, %")
        other.set_ylim(bottom=0)
        if ece_ax is not None:
            other.set_xlabel("temperature T")
        # On the upper of the two, so that no line passes over it; and the marks end below it.
        left = add_key(other, [solid, dashed, *keys], 2, ax) if ece_ax is None else add_key(ax, [solid, *keys], 2)
        for upright in uprights:
            upright.set_ydata([0, left])
    return ax


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
    with drawn_on(ax, title) as ax:
        [solid] = ax.plot(path.theta, path.temperature, color=BLUE, linewidth=1.4, marker=dot, label="T(θ)")
        mark = ax.axvline(ats.theta_, color=DARK, linewidth=0.8, linestyle=(0, (1, 1.5)))
        at = int(np.abs(path.theta - ats.theta_).argmin())
        [point] = ax.plot(
            [ats.theta_],
            [path.temperature[at]],
            color=DARK,
            marker="o",
            markersize=4.5,
            linestyle="",
            label=f"chosen: θ = {ats.theta_:.3g}, T = {ats.temperature_:.3g}",
        )
        other = twin(ax)
        [dashed] = other.plot(
            path.theta,
            path.nll,
            color=VERMILION,
            linewidth=1.3,
            linestyle=(0, (4, 1.5)),
            marker=dot,
            label="NLL at T(θ)",
        )
        ax.set(xlabel="threshold θ", ylabel="temperature T")
        other.set_ylabel("validation NLL")
        other.ticklabel_format(axis="y", useOffset=False)
        left = add_key(other, [solid, dashed, point], 1, ax)
        mark.set(zorder=1.5, ydata=[0, left])
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
