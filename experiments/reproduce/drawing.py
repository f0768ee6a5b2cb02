"""How the paper's figures look: the style of each method, letters of panels, curves that cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BLUE", "DARK", "FILES", "add_letters", "joined", "same_to_the_eye", "style_of"]

Floats = NDArray[np.float64]

# Text stays text; identifiers within SVG are the same every time.
FILES: dict[str, Any] = {"svg.hashsalt": "attemper", "svg.fonttype": "none", "pdf.fonttype": 42}
BLUE, DARK, GREY = "#0072B2", "0.15", "0.45"  # of Okabe and Ito, as those below
SEEN_APART = 1.6  # points on paper, of lines 1.2 wide
DENSE = 500  # points that stand for a line


@dataclass(frozen=True)
class Style:
    """Colour, dashes and marker of a line."""

    color: str
    linestyle: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments for matplotlib's lines."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}


STYLES = {
    "none": Style(GREY, (0, (1, 1.5)), ""),
    "ts": Style("#D55E00", "--", "s"),
    "ats": Style("#E69F00", "-.", "^"),
    "bayes": Style(BLUE, "-", "o"),
    "structured": Style("#009E73", (0, (5, 1, 1, 1, 1, 1)), "D"),
    "vector": Style("#CC79A7", (0, (3, 1)), "<"),
    "matrix": Style("#CC79A7", (0, (6, 1.5)), ">"),
}


def style_of(method: str) -> Style:
    """Return the style of a method; others look like the Bayesian."""
    return STYLES.get(method, STYLES["bayes"])


def add_letters(axes: Iterable[Axes]) -> None:
    """Letter panels: bold, above the upper left corner of each."""
    for ax, letter in zip(axes, ascii_lowercase):
        ax.set_title(letter, loc="left", x=-0.05, ha="right", fontsize=9, fontweight="bold")


def same_to_the_eye(ax: Axes, curves: Sequence[Floats]) -> list[list[int]]:
    """Return the curves in groups that lie within the width of a line on paper, each with those that join it.

    ``curves`` are points in data coordinates; the limits of ``ax`` must be set.
    """
    figure = ax.figure.figure
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    ax.apply_aspect()
    near = SEEN_APART * ax.figure.dpi / 72
    shown = [_dense(ax.transData.transform(curve)) for curve in curves]
    groups: list[list[int]] = []
    for i, points in enumerate(shown):
        for group in groups:
            if _far(points, shown[group[0]]) <= near:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _dense(points: Floats) -> Floats:
    """Points at equal distances along a line."""
    reached = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    at = np.linspace(0, reached[-1], DENSE)
    return np.column_stack([np.interp(at, reached, points[:, 0]), np.interp(at, reached, points[:, 1])])


def _far(one: Floats, other: Floats) -> float:
    """Return how far the point of either that is the farthest from the other is from it."""
    return max(float(np.max(cKDTree(b).query(a)[0])) for a, b in ((one, other), (other, one)))


def joined(names: Sequence[str], curves: Sequence[Floats]) -> Iterator[str]:
    """Yield the names, each after the first with "=" where its numbers are those of the first, else with "≈"."""
    for name, curve in zip(names, curves):
        same = curve.shape == curves[0].shape and np.allclose(curve, curves[0], rtol=0, atol=1e-9, equal_nan=True)
        yield name if curve is curves[0] else f"{'=' if same else '≈'} {name}"
