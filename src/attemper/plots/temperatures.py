"""NLL and ECE against the temperature, and the posterior of the temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attemper._checks import positive
from attemper.calibrators import BayesianTemperatureScaling
from attemper.calibrators.style import BLUE, DARK
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError, InputTypeError, NotFittedError, require
from attemper.maps import ScaleMap
from attemper.metrics import ece, nll
from attemper.metrics.predictions import Predictions
from attemper.plots.sheet import KEY, SMALL, axes_for, styled, titled
from attemper.sketch import log_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_posterior", "plot_temperature"]

N_POINTS = 81
NEAR_BEST = 2.5  # the NLL is shown as high as it is at the best T, times or divided by this
SEEN = 0.01  # of the highest density: less is not shown
INSIDE = "#C6DDED"


def plot_temperature(
    logits: ArrayLike | Any,
    labels: ArrayLike | Any | None = None,
    *,
    t_range: tuple[float, float] = (0.3, 5.0),
    chosen: Mapping[str, float] | None = None,
    ax: Axes | None = None,
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
        Names of methods to the temperatures that they chose: a line for each.
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`). The ECE has a scale of its own on the right.

    Examples
    --------
    >>> from attemper import datasets, plots
    >>> data = datasets.load()
    >>> ax = plots.plot_temperature(data.val_logits, data.val_labels, chosen={"ts": 2.15})
    >>> ax.get_xlabel()
    'temperature T'
    """
    require("matplotlib", extra="plots", why="to draw")
    from matplotlib.ticker import LogLocator

    scores = _scores(logits, labels, options)
    marks = {name: positive(f"chosen: the T of {name!r}", t) for name, t in (chosen or {}).items()}
    log_range(t_range)
    low, high = min([t_range[0], *marks.values()]), max([t_range[1], *marks.values()])
    grid = np.geomspace(low, high, N_POINTS)
    values = np.array([_nll_and_ece(scores, t) for t in grid])
    ax = axes_for(ax, title)
    other = ax.twinx()
    other.spines[["top", "left"]].set_visible(False)
    other.tick_params(labelsize=SMALL)
    lines = ax.plot(grid, values[:, 0], color=BLUE, linewidth=1.4, label="NLL")
    lines += other.plot(grid, values[:, 1], color=DARK, linewidth=1.3, linestyle="--", label="ECE, %")
    ax.set(xscale="log", xlim=(low, high), xlabel="temperature T", ylabel="NLL")
    other.set_ylim(bottom=0)
    other.set_ylabel("ECE, %", fontsize=ax.yaxis.label.get_fontsize())
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    # The minimum is shown, not the walls beside it.
    best = grid[int(values[:, 0].argmin())]
    near = values[(grid >= best / NEAR_BEST) & (grid <= best * NEAR_BEST), 0]
    least, most = near.min(), max([*near, *(_nll_and_ece(scores, t)[0] for t in marks.values())])
    if most > least:
        ax.set_ylim(least - 0.06 * (most - least), most)
    for name, style in styled(marks).items():
        look: dict[str, Any] = {"color": style.color, "linestyle": style.linestyle, "linewidth": 0.9}
        lines.append(ax.axvline(marks[name], **look, label=f"{titled(name)}: T = {marks[name]:.3g}"))
    other.legend(handles=lines, **KEY)
    return ax


def _scores(logits: Any, labels: Any, options: dict[str, Any]) -> LabelledScores:
    if not isinstance(logits, Scores):
        return labelled(Scores.from_logits(logits, labels, **options), "logits")
    if labels is not None or options:
        raise InputError("logits: a Scores has its own labels and weights; pass no others")
    return labelled(logits, "logits")


def _nll_and_ece(scores: LabelledScores, t: float) -> tuple[float, float]:
    """NLL, and ECE in per cent, at one temperature."""
    h = to_numpy(scores.logits).astype(np.float64)
    p = Predictions.of(scores.labels, ScaleMap(1 / t).log_apply(h), scores.weights, input="log_probs")
    return nll.statistic(p).at(p.weights), 100 * ece.statistic(p).at(p.weights)


def plot_posterior(bayes: BayesianTemperatureScaling, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the posterior density of T, with the credible interval shaded.

    Parameters
    ----------
    bayes : fitted BayesianTemperatureScaling
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> from attemper import BayesianTemperatureScaling, datasets, plots
    >>> data = datasets.load()
    >>> bayes = BayesianTemperatureScaling().fit(data.val_logits, data.val_labels)
    >>> ax = plots.plot_posterior(bayes)
    >>> ax.get_xlabel()
    'temperature T'
    """
    if not isinstance(bayes, BayesianTemperatureScaling):
        raise InputTypeError(f"bayes: expected a fitted BayesianTemperatureScaling, got {type(bayes).__name__}")
    if not hasattr(bayes, "map_"):
        raise NotFittedError("bayes: not fitted yet; call fit with validation logits and labels first")
    t, weight, *_ = bayes.posterior_
    density = weight / np.gradient(t)
    low, high = bayes.temperature_interval_
    # To the very ends of the interval, which lie between points of the grid.
    x = np.concatenate([[low], t[(t >= low) & (t <= high)], [high]])
    ax = axes_for(ax, title)
    inside = f"{100 * bayes.credible_level:.3g} % interval {low:.3g} to {high:.3g}"
    ax.fill_between(x, 0, np.interp(x, t, density), color=INSIDE, linewidth=0, label=inside)
    ax.plot(t, density, color=BLUE, linewidth=1.3)
    middle = bayes.temperature_
    ax.axvline(middle, color=DARK, linestyle="--", linewidth=1, label=f"median {middle:.3g}")
    ax.set(xlabel="temperature T", ylabel="posterior density")
    ax.set_ylim(0, 1.04 * float(density.max()))
    seen = [*t[density >= SEEN * density.max()], low, high]
    room = 0.02 * (max(seen) - min(seen))
    ax.set_xlim(max(min(seen) - room, 0.0), max(seen) + room)
    ax.legend(**KEY)
    return ax
