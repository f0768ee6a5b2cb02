"""The paper's figures: numbers drawn for print, which differ without colour too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper.errors import require
from experiments.reproduce.drawing import add_letters, joined, same_to_the_eye, style_of
from experiments.reproduce.journal import Row
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Floats
from experiments.reproduce.recipes import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "LOG_NLL",
    "WIDTH",
    "against_noise",
    "against_size",
    "legend",
    "need",
    "noise_panel",
    "panels",
    "referral",
    "size_panel",
]

WIDTH = 7.2  # inches: two columns of a paper
SMALL = 6.5  # points
WHOLE = ("none", "ats", "bayes")  # methods that a panel of the noise figure has room for; others may leave it
CLEAR = 0.1  # of the height of a panel: markers are so far from its upper edge, or are not drawn at all
NARROW = 3.0  # a logarithmic axis that spans less has numbers at equal steps
BEYOND = {1: ("^", "beyond the axis, to this value"), 0: ("v", "bar ends below the axis")}  # by the edge

# Each thinner than the one below it, and its marker smaller, so that curves that coincide are all seen.
NESTED: dict[str, dict[str, Any]] = {
    "none": {"linewidth": 1.3, "zorder": 2.0},
    "structured": {"linewidth": 2.8, "markersize": 6.4, "zorder": 2.1},
    "ts": {"linewidth": 1.9, "markersize": 5.2, "zorder": 2.2},
    "bayes": {"linewidth": 1.1, "markersize": 4.2, "zorder": 2.3},
    "ats": {"linewidth": 0.8, "markersize": 3.7, "zorder": 2.4},
}
EDGES: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.3}  # so that they differ in grey too

LOG_NLL = "test NLL, log scale"

Values = Mapping[tuple[Any, ...], Floats]


def need() -> None:
    """Say how to get matplotlib before hours of work rather than after."""
    require("matplotlib", extra="plots", why="to draw the figures")


def against_noise(
    values: Values, networks: Sequence[str], kinds: Sequence[str], shares: Sequence[float], methods: Sequence[str]
) -> Figure:
    """Draw NLL against the share of wrong labels: a column for each network, a row for each kind."""
    figure, axes = panels(len(kinds), len(networks), 1.45, sharex=True, sharey="col")
    for column, name in zip(zip(*axes), networks):
        of = {key[1:]: v for key, v in values.items() if key[0] == name}
        limits = _limits(list(of.values()), [v for key, v in of.items() if key[-1] in WHOLE])
        for ax, kind in zip(column, kinds):
            shown = {(share, method): v for (k, share, method), v in of.items() if k in ("none", kind)}
            noise_panel(ax, shown, methods, limits)
            ax.set_xticks([0, *(100 * s for s in shares)])
        column[0].set_title(about(name).label, fontsize=8)
        column[-1].set_xlabel("labels replaced, %", fontsize=8)
    for row, kind in zip(axes, kinds):
        row[0].set_ylabel("test NLL", fontsize=8)
        place: dict[str, Any] = {"transform": row[-1].transAxes, "rotation": 270, "ha": "left", "va": "center"}
        row[-1].text(1.04, 0.5, kind, fontsize=8, **place)
    legend(figure, axes[0][0])
    return figure


def noise_panel(ax: Axes, values: Values, methods: Sequence[str], limits: tuple[float, float] | None = None) -> None:
    """Draw NLL, by share of wrong labels and method, for one network and kind; what runs away leaves the panel."""
    most = 100 * max(share for share, _ in values)
    ax.set_xlim(-4, most + 4)
    ax.set_ylim(limits or _limits(list(values.values()), [v for (_, m), v in values.items() if m in WHOLE]))
    for method in methods:
        found = sorted((100 * share, v) for (share, m), v in values.items() if m == method)
        _line(ax, method, [x for x, _ in found], [v for _, v in found])


def against_size(values: Values, networks: Sequence[str], methods: Sequence[str]) -> Figure:
    """Draw NLL against the number of labels, one panel for each network."""
    figure, axes = panels(1, len(networks), 2.1)
    for ax, name in zip(axes[0], networks):
        size_panel(ax, {key[1:]: v for key, v in values.items() if key[0] == name}, methods)
        ax.set_title(about(name).label, fontsize=8)
        ax.set_xlabel("validation labels", fontsize=8)
    axes[0][0].set_ylabel(LOG_NLL, fontsize=8)
    legend(figure, axes[0][0])
    return figure


def size_panel(ax: Axes, values: Values, methods: Sequence[str]) -> None:
    """Draw NLL, by number of labels and method, for one network; bars are moved sideways a little."""
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _scale(ax, list(values.values()))
    for i, method in enumerate(methods):
        found = sorted((n, v) for (n, m), v in values.items() if m == method)
        _line(ax, method, [n * 1.05 ** (i - (len(methods) - 1) / 2) for n, _ in found], [v for _, v in found])


def referral(rows: Sequence[Row], networks: Sequence[str], methods: Sequence[str]) -> Figure:
    """Draw the referral curves over the paper's 21 thresholds, and thin ones over all, with their areas."""
    figure, axes = panels(1, len(networks), 3.25)
    areas = {(r["network"], r["method"], r["measure"]): r["value"] for r in rows if r["what"] == "interval"}
    for ax, name in zip(axes[0], networks):
        ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        ax.set_title(about(name).label, fontsize=8)
        ax.set_xlabel("right predictions that are decided, %", fontsize=8)
    axes[0][0].set_ylabel("wrong predictions that are referred, %", fontsize=8)
    for ax, name in zip(axes[0], networks):
        for what, measure in (("curve, 21", "area_paper"), ("curve", "area")):
            _referral_lines(ax, {m: _points(rows, name, m, what) for m in methods}, areas, (name, measure))
        place: dict[str, Any] = {"loc": "lower left", "fontsize": SMALL, "frameon": False, "alignment": "left"}
        ax.legend(title="area below the curve", title_fontsize=SMALL, **place)
    return figure


def _referral_lines(
    ax: Axes, curves: Mapping[str, Floats], areas: Mapping[tuple[str, str, str], float], of: tuple[str, str]
) -> None:
    """Draw curves of one network; those that cannot be distinguished in print are drawn once and named together."""
    (name, measure), methods = of, list(curves)
    for group in same_to_the_eye(ax, list(curves.values())):
        together = [methods[j] for j in group]
        ends = [f"{value:.3f}" for value in sorted(areas[name, method, measure] for method in together)]
        joint = " ".join(joined([TITLES[method] for method in together], [curves[m] for m in together]))
        area = "–".join(dict.fromkeys([ends[0], ends[-1]]))
        if measure == "area":
            dashes = (0, (1, 1)) if together == ["none"] else "-"
            thin: dict[str, Any] = {"color": "black", "linewidth": 0.7, "linestyle": dashes}
            ax.plot(*curves[together[0]].T, label=f"all thresholds, {joint}: {area}", zorder=2.2, **thin)
            continue
        style = style_of(together[0])
        look = style.line | {"marker": style.marker or "x", "linewidth": 1.4, "markersize": 4.0, "clip_on": False}
        ax.plot(*curves[together[0]].T, label=f"21 thresholds, {joint}: {area}", zorder=2.5, **look)


def _points(rows: Sequence[Row], name: str, method: str, what: str) -> Floats:
    of = [r for r in rows if (r["network"], r["method"], r["what"]) == (name, method, what)]
    return np.array([(100 * r["correct_decided"], 100 * r["errors_referred"]) for r in of])


def panels(n_rows: int, n_columns: int, height: float, **shared: Any) -> tuple[Figure, list[list[Axes]]]:
    """Return a Figure of two columns' width with Axes for print: small ticks, a light grid, no box, letters."""
    need()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, n_rows * height + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **shared)
    for ax in axes.flat:
        ax.tick_params(labelsize=7, width=0.6, length=2.5)
        ax.tick_params(which="minor", width=0.5, length=1.5)
        ax.grid(color="0.9", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set(linewidth=0.6, color="0.3")
    if axes.size > 1:
        add_letters(axes.flat)
    return figure, axes.tolist()


def legend(figure: Figure, ax: Axes) -> None:
    """Put one legend below all panels; it names the arrows where there are any."""
    from matplotlib.lines import Line2D

    handles, labels = ax.get_legend_handles_labels()
    marks = [text for each in figure.axes for text in each.texts if getattr(text, "arrow_patch", None)]
    for edge, (marker, words) in BEYOND.items():
        if any(text.xy[1] == edge for text in marks):
            handles.append(Line2D([], [], color="0.3", marker=marker, markersize=4, linestyle=""))
            labels.append(words)
    look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "handlelength": 3.0, "columnspacing": 1.2}
    figure.legend(handles, labels, ncols=len(labels), fontsize=8 if len(labels) < 6 else 7, **look)


def _line(ax: Axes, method: str, x: Sequence[float], values: Sequence[Floats]) -> None:
    """Draw means with bars of one standard deviation, and mark what leaves the panel, which has its limits already."""
    mean, low, high = _bars(values)
    bottom, top = ax.get_ylim()
    style = {**style_of(method).line, **EDGES, **NESTED.get(method, {})}
    if method == "none":  # nothing is fitted: the bars would be of the divisions alone
        ax.plot(x, mean, label=TITLES[method], **style)
    else:
        bars = [mean - np.maximum(low, np.minimum(bottom, mean)), high - mean]  # a logarithmic axis has no zero
        ax.errorbar(x, mean, bars, label=TITLES[method], elinewidth=0.7, **style)
        for at, m, down, up in zip(x, mean, low, high):
            if bottom <= m <= top:
                ends = [edge for edge, leaves in ((0, down < bottom), (1, up > top)) if leaves]
                for edge in ends:
                    _arrow(ax, at, edge, style["color"])
                if 1 in ends and mean.max() <= top:  # else the value of the curve is written
                    _write_value(ax, at, up, style["color"])
    _mark_exit(ax, x, mean, style["color"])


def _mark_exit(ax: Axes, x: Sequence[float], mean: Floats, color: str) -> None:
    """Mark where a curve leaves the panel at the top, and how far it goes; axes are linear where that happens."""
    top = ax.get_ylim()[1]
    out = np.flatnonzero(mean > top)
    if len(out):
        i = int(out[0])
        share = (top - mean[i - 1]) / (mean[i] - mean[i - 1]) if i else 0.0
        at = x[i - 1] + share * (x[i] - x[i - 1]) if i else x[0]
        _arrow(ax, at, 1, color, length=9.0)
        _write_value(ax, at, float(mean.max()), color)


def _write_value(ax: Axes, x: float, value: float, color: str) -> None:
    """Write beside an arrow at the upper edge how far its curve or bar goes; on the left if the edge is near."""
    low, high = ax.get_xlim()
    left = x > low + 0.9 * (high - low)
    height = -1 - 8 * sum(bool(text.get_text()) for text in ax.texts)  # below what was marked before
    ax.annotate(
        f"to {value:.2f}",
        (x, 1),
        xytext=(-4 if left else 4, height),
        xycoords=_edge(ax),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=SMALL,
        color=color,
    )


def _arrow(ax: Axes, x: float, edge: int, color: str, length: float = 5.0) -> None:
    """Draw an arrow that ends at the upper (1) or lower (0) edge of a panel."""
    tip = {"arrowstyle": "-|>,head_width=0.16,head_length=0.3", "color": color, "linewidth": 0.7}
    tip |= {"shrinkA": 0, "shrinkB": 0}
    start = (0, -length if edge else length)
    ax.annotate(
        "",
        (x, edge),
        xytext=start,
        xycoords=_edge(ax),
        textcoords="offset points",
        arrowprops=tip,
        annotation_clip=False,
    )


def _edge(ax: Axes) -> Any:
    """Coordinates: of the data along, of the panel (0 to 1) upwards."""
    return ax.get_xaxis_transform()


def _bars(values: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Means, and one standard deviation below and above."""
    mean = np.array([v.mean() for v in values])
    std = np.array([v.std(ddof=1) if len(v) > 1 else 0.0 for v in values])
    return mean, mean - std, mean + std


def _limits(shown: Sequence[Floats], whole: Sequence[Floats]) -> tuple[float, float]:
    """Limits of a panel that has all of what is to be seen ``whole``, and the lower end of everything."""
    low = min(v.mean() for v in shown)
    high = max(v.mean() for v in whole)
    bottom, top = low - 0.1 * (high - low), high + 0.25 * (high - low)
    for mean in sorted(v.mean() for v in shown):  # a marker at the edge would be cut
        clear = CLEAR * (top - bottom)
        if top - clear < mean < top + clear:
            top = mean + clear
    return bottom, top


def _scale(ax: Axes, values: Sequence[Floats]) -> None:
    """Fit the vertical axis of a panel, logarithmic as in all panels, to means and bars."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    mean, low, high = _bars(values)
    if mean.max() > NARROW * mean.min():
        ax.set(yscale="log", ylim=(0.8 * mean.min(), 1.15 * high.max()))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        ax.tick_params(which="minor", labelsize=7)
    else:
        bottom = max(low.min(), 0.5 * mean.min())
        room = (high.max() / bottom) ** 0.05
        ax.set(yscale="log", ylim=(bottom / room, high.max() * room))
        ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(*ax.get_ylim())
        digits = max(len(f"{tick:g}".partition(".")[2]) for tick in ticks)
        inside = [tick for tick in ticks if bottom / room <= tick <= high.max() * room]
        ax.set_yticks(inside, [f"{tick:.{digits}f}" for tick in inside])
        ax.yaxis.set_minor_locator(NullLocator())
