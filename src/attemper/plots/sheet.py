"""Axes to draw on, and the look of what is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from attemper._checks import number
from attemper.calibrators import METHODS
from attemper.calibrators.style import GREY, Style
from attemper.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["KEY", "SMALL", "axes_for", "new_axes", "plain", "small_axes", "styled", "titled"]

SMALL = 7  # points
KEY: dict[str, Any] = {"fontsize": SMALL, "handlelength": 1.6, "framealpha": 0.85, "edgecolor": "none"}
LONGEST = 36  # characters of a name

UNCALIBRATED = Style(GREY, (0, (1, 1.5)), "")
# For names without a style of their own, in order: neighbours differ in colour, dashes and marker.
OTHERS = ("bayes", "ts", "structured", "ats", "platt", "matrix", "isotonic", "ets")


def new_axes(columns: int = 1, rows: int = 1, *, width: float = 3.5, height: float = 2.7) -> list[Axes]:
    """Return fresh Axes, row by row, on a Figure of their own.

    Labels are small, as fits the printed size: ``width`` inches for the Figure, ``height`` for each row. In a notebook
    the Figure is shown below the cell; elsewhere pyplot does not know it, so that nothing has to be closed.

    Examples
    --------
    >>> left, right = new_axes(2, width=7.2)
    >>> left.figure is right.figure
    True
    """
    require("matplotlib", extra="plots", why="to draw")
    for name, value in (("columns", columns), ("rows", rows), ("width", width), ("height", height)):
        number(name, value, 0, 1000, expected="a positive number, at most 1000", closed=(False, True))
    ipython = sys.modules.get("IPython")
    if hasattr(None if ipython is None else ipython.get_ipython(), "kernel"):  # Jupyter shows the figures of pyplot
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(width, rows * height), layout="constrained")
    else:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, rows * height), layout="constrained")
    return small_axes(figure, columns, rows)


def small_axes(figure: Figure, columns: int = 1, rows: int = 1) -> list[Axes]:
    """Return fresh Axes of a Figure, row by row, with small labels."""
    axes: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes:
        ax.tick_params(labelsize=SMALL)
        for text, size in ((ax.xaxis.label, 8), (ax.yaxis.label, 8), (ax.title, 9)):
            text.set_fontsize(size)
    return axes


def axes_for(ax: Axes | None, title: str = "", *, height: float = 2.7, grid: Literal["x", "y", "both"] = "y") -> Axes:
    """Return the Axes given, or new ones of this height, with a light grid and the title."""
    if ax is None:
        [ax] = new_axes(height=height)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(visible=True, axis=grid, color="0.9", linewidth=0.6)
    ax.title.set_text(plain(title, None))
    return ax


def styled(names: Iterable[str]) -> dict[str, Style]:
    """Give each name a style: methods their own, others what is left.

    >>> [style.marker for style in styled(["ts", "my network", "another"]).values()]
    ['s', 'o', 'D']
    """
    own = {name: UNCALIBRATED if name == "none" else METHODS[name].style if name in METHODS else None for name in names}
    spare = [style for name in OTHERS if (style := METHODS[name].style) is not None]
    left = [style for style in spare if style not in own.values()] or spare
    others = [name for name, style in own.items() if style is None]
    return {name: style or left[others.index(name) % len(left)] for name, style in own.items()}


def titled(name: str) -> str:
    """Return the name of a method in legends."""
    return "uncalibrated" if name == "none" else plain(name)


def plain(text: object, longest: int | None = LONGEST) -> str:
    r"""Return text as matplotlib shows it as it is: no formulas, nothing hidden, names not too long.

    >>> plain("price in $ or $$"), plain("_hidden"), plain("a" * 60)
    ('price in \\$ or \\$\\$', ' _hidden', 'aaaaaaaaaaaaaaaaaaaaaaa…aaaaaaaaaaaa')
    """
    shown = str(text)
    if longest is not None:
        shown = " ".join(shown.split())
        if len(shown) > longest:  # the end often tells names apart
            shown = f"{shown[: longest * 2 // 3 - 1]}…{shown[-(longest // 3) :]}"
        if shown.startswith("_"):  # legends leave such names out
            shown = f" {shown}"
    return shown.replace("$", r"\$")
