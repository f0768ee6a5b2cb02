"""The posterior of the Bayesian fit: which temperatures and rates of wrong labels the data leave possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from attemper._typing import Floats
from attemper.calibrators import BayesianTemperatureScaling
from attemper.errors import InputError, InputTypeError
from attemper.kernels import quadrature
from attemper.plots.labels import add_key, label_uprights
from attemper.plots.sheet import check_fitted, check_order, drawn_on
from attemper.plots.styles import BLUE, DARK, RIGHT
from attemper.sketch import Sketch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_posterior"]

FINE = 240  # points in each direction
HALF = "#6FAEDB"  # darker than the rest, lighter than what is drawn on it
SEEN = 0.01  # of the highest density: less is not shown


def plot_posterior(
    bayes: BayesianTemperatureScaling, sketch: Sketch | None = None, *, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Draw the posterior of T; with the sketch of the validation data, that of T and the rate of noise together.

    Alone, a fitted object knows the posterior of T: its density is drawn, the credible interval shaded. With the
    sketch the regions of highest density are drawn that hold half of the posterior and ``credible_level`` of it, and a
    cross: the median of T and the mean rate, with the credible interval of each.

    Parameters
    ----------
    bayes : fitted BayesianTemperatureScaling
    sketch : Sketch, optional
        ``Sketch.of(logits, labels)`` of the data that it was fitted on; for ``labels="noisy"`` with one rate of noise.
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
    check_order(bayes)
    check_fitted("bayes", bayes, BayesianTemperatureScaling)
    with drawn_on(ax, title) as ax:
        if sketch is None:
            _draw_marginal(ax, bayes)
        else:
            _draw_joint(ax, bayes, sketch)
    return ax


def _draw_marginal(ax: Axes, bayes: BayesianTemperatureScaling) -> None:
    t, weight, *_ = bayes.posterior_
    density = weight / np.gradient(t)
    low, high = bayes.temperature_interval_
    inside = (t >= low) & (t <= high)
    # To the very ends of the interval, which lie between points of the grid.
    x = np.concatenate([[low], t[inside], [high]])
    y = np.interp(x, t, density)
    area = ax.fill_between(
        x, 0, y, color=RIGHT, linewidth=0, label=f"{100 * bayes.credible_level:.3g} % interval {low:.3g} to {high:.3g}"
    )
    ax.plot(t, density, color=BLUE, linewidth=1.3)
    middle = bayes.temperature_
    upright = ax.axvline(middle, color=DARK, linestyle="--", linewidth=1)
    ax.set(xlabel="temperature T", ylabel="posterior density")
    ax.set_ylim(0, 1.04 * float(density.max()))
    seen = t[density >= SEEN * density.max()]
    _show(ax.set_xlim, [*seen, low, high], room=0.02)
    label_uprights(ax, [(upright, f"median {middle:.3g}")], handles=[area])


def _draw_joint(ax: Axes, bayes: BayesianTemperatureScaling, sketch: Sketch) -> None:
    t, rate, weight, area = joint(bayes, sketch)
    density = weight / area
    half, most = _heights(density, weight, (0.5, bayes.credible_level))
    if half > most:  # a posterior narrower than the grid has one height
        top = max(float(density.max()), half) * (1 + 1e-9)
        ax.contourf(t, 100 * rate, density.T, levels=[most, half, top], colors=[RIGHT, HALF])
        ax.contour(
            t, 100 * rate, density.T, levels=[most, half], colors=[DARK], linewidths=[0.8], linestyles=["--", "-"]
        )
    x, y = bayes.temperature_, 100 * bayes.noise_rate_
    (left, right), (below, above) = bayes.temperature_interval_, (100 * end for end in bayes.noise_interval_)
    # The mean of a rate may lie outside its interval, where most of the mass is in one place.
    reach = [[max(x - left, 0)], [max(right - x, 0)]], [[max(y - below, 0)], [max(above - y, 0)]]
    ax.errorbar(
        [x], [y], xerr=reach[0], yerr=reach[1], color="black", marker="o", markersize=4, capsize=2.5, linewidth=1
    )
    shown = density >= most
    _show(ax.set_xlim, [*t[shown.any(axis=1)], left, right])
    _show(ax.set_ylim, [*100 * rate[shown.any(axis=0)], below, above], most=100.0)
    ax.set(xlabel="temperature T", ylabel="labels that are noise, %")
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys = [
        Patch(facecolor=HALF, edgecolor=DARK, label="50 % of the mass"),
        Patch(facecolor=RIGHT, edgecolor=DARK, linestyle="--", label=f"{100 * bayes.credible_level:.3g} % of it"),
        Line2D([], [], color="black", marker="o", markersize=4, label=f"T = {x:.3g}, noise {y:.1f} %"),
    ]
    add_key(ax, keys, 2)


def joint(bayes: BayesianTemperatureScaling, sketch: Sketch) -> tuple[Floats, Floats, Floats, Floats]:
    """Temperatures, rates of noise, their posterior on that grid, and the area of each cell in (log T, rate)."""
    if not isinstance(sketch, Sketch):
        raise InputTypeError(
            f"sketch: expected a Sketch, got {type(sketch).__name__}; create one with Sketch.of(logits, labels)"
        )
    if bayes.labels != "noisy" or bayes.noise == "classwise":
        raise InputError(
            f"sketch: with labels={bayes.labels!r}, noise={bayes.noise!r} there is no single rate of noise to draw; "
            "pass no sketch to draw T alone"
        )
    missing = [part for part in bayes.sketch_parts() or () if part not in sketch.tables]
    if missing:
        raise InputError(f"sketch: it was made without the {missing[0]!r} part; create it again with Sketch.of(…)")
    model = bayes.model()
    u, v, parts = model.grid(sketch)
    weight = np.sum([part.weight for part in parts], axis=0)
    if abs(quadrature.quantiles(u, weight.sum(axis=1), [0.5])[0] - np.log(bayes.temperature_)) > 1e-6:
        more = "; a fit on logits with noise='auto' knows more than a sketch: use noise='uniform'"
        raise InputError(
            "sketch: expected that of the validation data and the t_range of the fit, got another"
            f"{more if bayes.noise == 'auto' else ''}"
        )
    u, v = _closer(u, weight.sum(axis=1), 0.0), _closer(v, weight.sum(axis=0), 2.0)
    anywhere, similar = (part.weight for part in model.log_posterior(sketch, u, v))
    top = max(anywhere.max(), similar.max())
    anywhere, similar = np.exp(anywhere - top), np.exp(similar - top)
    e, step = expit(v), v[1] - v[0]
    # Errors anywhere are those of the annotators and the network's own together; the priors separate them.
    edges = np.concatenate([[0.0], expit(v[:-1] + step / 2), [expit(v[-1] + step / 2)]])
    below = np.array([model.noise_below(edge, e) for edge in edges])
    below[0] = 0.0
    cells = anywhere @ np.diff(below, axis=0).T + similar
    area = np.outer(np.full(len(u), u[1] - u[0]), np.diff(edges))
    return np.exp(u), e, cells / cells.sum(), area


def _closer(grid: Floats, weight: Floats, below: float) -> Floats:
    """Return a finer grid of what holds all but a millionth at either end, and some more below."""
    reached = np.cumsum(weight)
    first, last = np.searchsorted(reached, reached[-1] * np.array([1e-6, 1 - 1e-6]))
    low, high = grid[max(first - 1, 0)] - below, grid[min(last + 1, len(grid) - 1)]
    return np.linspace(max(low, grid[0]), high, FINE)


def _heights(density: Floats, weight: Floats, shares: tuple[float, ...]) -> Floats:
    """Densities above which these shares of the posterior lie."""
    order = np.argsort(-density, axis=None, kind="stable")
    reached = np.cumsum(weight.ravel()[order])
    places = np.minimum(np.searchsorted(reached, np.array(shares) * reached[-1]), len(order) - 1)
    return np.asarray(density.ravel()[order][places])


def _show(
    limit: Callable[[float, float], object], values: list[float], room: float = 0.2, most: float = np.inf
) -> None:
    """Show these values and some room at either end, but nothing below zero."""
    low, high = float(min(values)), float(max(values))
    room *= high - low
    limit(max(low - room, 0.0), min(high + room, most))
