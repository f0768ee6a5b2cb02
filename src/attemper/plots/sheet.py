"""The sheet that is drawn on: fresh Axes of the size they are printed in, and files that appear whole."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal

from attemper._checks import number
from attemper._json import atomic
from attemper.calibrators.base import Calibrator
from attemper.errors import InputTypeError, NotFittedError, require, unsupported_extension
from attemper.plots.styles import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FILES", "add_letters", "check_axes", "check_fitted", "check_order", "drawn_on", "new_axes", "save"]

# What each format would say about the day and the program: left out, so that the same picture is the same bytes.
SILENT: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

# Text stays text, which can be searched and edited: in SVG by the names of fonts (DejaVu Sans, similar ones, then any
# sans-serif), in PDF with the fonts inside. Identifiers within SVG are the same every time.
FILES: dict[str, Any] = {"svg.hashsalt": "attemper", "svg.fonttype": "none", "pdf.fonttype": 42}

COLUMN = 3.5  # inches: one column of a paper; two are 7.2
ON_SCREEN = 1.25  # times as large as in print
GRID: dict[str, Any] = {"color": "0.9", "linewidth": 0.6}


def new_axes(
    columns: int = 1, rows: int = 1, *, width: float = COLUMN, height: float = 2.7, letters: bool = True
) -> list[Axes]:
    """Return fresh Axes, row by row, on a Figure of their own.

    Labels are small, as fits the printed size: ``width`` inches for the Figure, ``height`` for each row. Several Axes
    are lettered a, b, c, unless ``letters=False``. In a notebook the Figure is shown below the cell; elsewhere pyplot
    does not know it, so that nothing has to be closed.

    Examples
    --------
    >>> left, right = new_axes(2, width=7.2)
    >>> left.figure is right.figure
    True
    """
    require("matplotlib", extra="plots", why="to draw")
    from matplotlib.figure import Figure

    for name, value in (("columns", columns), ("rows", rows), ("width", width), ("height", height)):
        number(name, value, 0, 1000, expected="a positive number, at most 1000", closed=(False, True))
    if _in_notebook():
        from matplotlib import pyplot, rcParams

        # The sizes of print are small on a screen.
        dpi = ON_SCREEN * rcParams["figure.dpi"]
        figure = pyplot.figure(figsize=(width, rows * height), dpi=dpi, layout="constrained")
    else:
        figure = Figure(figsize=(width, rows * height), layout="constrained")
    axes: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes:
        make_small(ax)
    if letters and len(axes) > 1:
        add_letters(axes)
    return axes


def add_letters(axes: Sequence[Axes]) -> None:
    """Letter panels: bold, above the upper left corner of each.

    >>> left, right = new_axes(2, letters=False)
    >>> add_letters([left, right])
    >>> right.get_title(loc="left")
    'b'
    """
    for i, ax in enumerate(axes):
        letter = ascii_lowercase[i % 26] * (1 + i // 26)
        ax.set_title(letter, loc="left", x=-0.05, ha="right", fontsize=9, fontweight="bold")


def _in_notebook() -> bool:
    """Return whether this runs in a kernel of Jupyter, whose inline backend shows the figures of pyplot."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def make_small(ax: Axes) -> None:
    """Set the sizes of print: names of the axes 8 points, numbers 7, title 9."""
    ax.tick_params(labelsize=7)
    for text, size in ((ax.xaxis.label, 8), (ax.yaxis.label, 8), (ax.title, 9)):
        text.set_fontsize(size)


def twin(ax: Axes) -> Axes:
    """Return Axes with the same x and another y, in the sizes of the first."""
    other = ax.twinx()
    other.spines[["top", "left"]].set_visible(False)
    shown = ax.yaxis.get_ticklabels()
    other.tick_params(labelsize=shown[0].get_fontsize() if shown else 7)
    other.yaxis.label.set_fontsize(ax.yaxis.label.get_fontsize())
    return other


def settle(ax: Axes) -> None:
    """Give the Axes the place that they will have on paper, as far as it is known by now."""
    figure = ax.figure.figure
    engine = figure.get_layout_engine()
    if engine is not None:
        with warnings.catch_warnings():  # that there is too little room is known when it is drawn
            warnings.simplefilter("ignore", UserWarning)
            engine.execute(figure)
    ax.apply_aspect()


def make_light(ax: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Leave out the upper and the right edge, and draw a light grid behind everything."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(visible=True, axis=grid, **GRID)


def save(path: str | os.PathLike[str], drawn: Figure | Axes, *, dpi: float = 200) -> None:
    """Write a Figure, or that of some Axes, as .png, .svg or .pdf: whole or not at all, the same bytes every time.

    >>> import tempfile
    >>> [ax] = new_axes()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/plot.svg", ax)
    """
    form = check_format(path)
    import matplotlib as mpl

    with atomic(path) as stream, mpl.rc_context(FILES):
        drawn.figure.figure.savefig(stream, format=form, dpi=dpi, metadata=SILENT[form])


def check_format(path: str | os.PathLike[str]) -> str:
    """Return the format of the file's extension."""
    form = Path(path).suffix.lower().lstrip(".")
    if form not in SILENT:
        raise unsupported_extension(path, Path(path).suffix, (f".{known}" for known in SILENT))
    return form


@contextmanager
def drawn_on(
    ax: Axes | None, title: str = "", *, height: float = 2.7, grid: Literal["x", "y", "both"] = "y"
) -> Iterator[Axes]:
    """Draw on the Axes given, or on new ones of this height, and write the title above.

    Where drawing fails, no empty Figure is shown in a notebook.
    """
    own = ax is None
    if ax is None:
        [ax] = new_axes(height=height)
    check_axes(ax)
    make_light(ax, grid)
    ax.title.set_text(plain(title, None))
    try:
        yield ax
    except BaseException:
        if own and _in_notebook():
            from matplotlib import pyplot

            pyplot.close(ax.figure)
        raise


def check_axes(ax: Any) -> None:
    """Refuse what is no Axes, with a word on how to get some."""
    require("matplotlib", extra="plots", why="to draw")
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        got = "None" if ax is None else type(ax).__name__
        raise InputTypeError(
            f"ax: expected a matplotlib Axes, got {got}. Use [ax] = plots.new_axes(), or leave ax out."
        )


def check_order(first: Any) -> None:
    """Refuse Axes where the data belong, as in version 0.1."""
    if type(first).__module__.startswith("matplotlib."):
        raise InputTypeError("expected the data first, got a matplotlib Axes. Use the keyword: ax=ax.")


def check_fitted(name: str, value: Any, kind: type[Calibrator]) -> None:
    """Refuse what is no calibrator of this kind, or not fitted."""
    if not isinstance(value, kind):
        raise InputTypeError(f"{name}: expected a fitted {kind.__name__}, got {type(value).__name__}")
    if not hasattr(value, "map_"):
        raise NotFittedError(f"{name}: not fitted yet; call fit with validation logits and labels first")
