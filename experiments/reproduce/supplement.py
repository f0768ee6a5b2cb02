"""The supplement's curves: wrong labels and few labels for every network that stands for a row of Table 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments.reproduce import figures, networks, paper
from experiments.reproduce import noise as noise_study
from experiments.reproduce import size as size_study
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Page, gather, spread, summary, table
from experiments.reproduce.recipes import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NOISE", "SIZE", "noise", "size"]

MORE = paper.Network("lenet5", "fashion_mnist")  # the paper has no Fashion-MNIST
METHODS = ("none", "ts", "ats", "bayes")
SIZES = (10, 30, 100, 300, 1000, None)  # None: the whole fifth
COLUMNS = 4


def standing() -> list[str]:
    """Networks that stand for rows of Table 1, and one of Fashion-MNIST."""
    found = [networks.stands_for(key) for key in (*paper.TABLE_1, MORE)]
    return [name for name in found if name is not None]


def noise_jobs(settings: Settings) -> list[Job]:
    """One for each network, share of wrong labels and repeat; large networks first."""
    return [
        Job(f"{name} {share:.0%} repeat {i}", (name, share, i, settings.seed), (name,))
        for name in sorted(standing(), key=lambda name: -about(name).n_classes)
        for share in (0.0, *noise_study.FEW_SHARES)
        for i in range(settings.repeats)
    ]


def run_noise(name: str, share: float, repeat: int, seed: int) -> list[Row]:
    """Replace labels by any class, as the paper does."""
    return noise_study.run_methods(METHODS, name, "uniform" if share else "none", share, repeat, seed)


def size_jobs(settings: Settings) -> list[Job]:
    """One for each network, number of labels and repeat; large networks first."""
    return [
        Job(f"{name} {n or 'all'} labels repeat {i}", (name, n, i, settings.seed), (name,))
        for name in sorted(standing(), key=lambda name: -about(name).n_classes)
        for n in reversed(SIZES)
        for i in range(settings.repeats)
    ]


def run_size(name: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Fit on few of the labels."""
    return size_study.run_methods(METHODS, name, n, repeat, seed)


NOISE = Study("supplement-noise", noise_jobs, run_noise)
SIZE = Study("supplement-size", size_jobs, run_size)


def noise(rows: Sequence[Row], _: Settings) -> Page:
    """NLL and ECE against the share of wrong labels."""

    def draw(ax: Axes, of: figures.Values) -> None:
        figures.noise_panel(ax, of, METHODS)
        ax.set_xticks(sorted({100 * share for share, _ in of}))

    names = ("labels replaced, %", "test NLL")
    return _page(rows, "supplement-noise", "share", names, draw, lambda share: f"{share:.0%}")


def size(rows: Sequence[Row], _: Settings) -> Page:
    """NLL and ECE against the number of labels."""

    def draw(ax: Axes, of: figures.Values) -> None:
        figures.size_panel(ax, of, METHODS)

    return _page(rows, "supplement-size", "labels", ("validation labels", figures.LOG_NLL), draw, str)


def _page(
    rows: Sequence[Row],
    name: str,
    along: str,
    axis_names: tuple[str, str],
    draw: Callable[[Axes, figures.Values], None],
    shown: Callable[[Any], str],
) -> Page:
    names = [network for network in standing() if any(row["network"] == network for row in rows)]
    tables, means = {"n_networks": str(len(names))}, {}
    for measure, digits in (("nll", 4), ("ece", 2)):
        values = gather(rows, ("network", along, "method"), measure)
        if measure == "nll":
            figure = _small_multiples(values, names, axis_names, draw)
        lines = [
            [about(network).label, shown(x), *(spread(values.get((network, x, m)), digits) for m in METHODS)]
            for network in names
            for x in sorted({key[1] for key in values if key[0] == network})
        ]
        tables[measure] = table(["network", along, *(TITLES[m] for m in METHODS)], lines)
        means[measure] = {" ".join(map(str, key)): summary(v) for key, v in values.items()}
    return Page(tables, rows, {"means": means}, {name: figure})


def _small_multiples(
    values: figures.Values,
    names: Sequence[str],
    axis_names: tuple[str, str],
    draw: Callable[[Axes, figures.Values], None],
) -> Figure:
    """Draw a panel for each network."""
    n_rows = -(-len(names) // COLUMNS)
    figure, axes = figures.panels(n_rows, COLUMNS, 1.55)
    flat = [ax for row in axes for ax in row]
    for ax, name in zip(flat, names):
        draw(ax, {key[1:]: v for key, v in values.items() if key[0] == name})
        ax.set_title(paper.title(*about(name).key), fontsize=8)
    for ax in flat[len(names) :]:
        ax.set_visible(False)
    for ax in flat[max(0, len(names) - COLUMNS) : len(names)]:
        ax.set_xlabel(axis_names[0], fontsize=8)
    for row in axes:
        row[0].set_ylabel(axis_names[1], fontsize=8)
    figures.legend(figure, flat[0])
    return figure
