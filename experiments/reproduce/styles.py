"""How methods look in the figures: colour (Okabe and Ito), dashes and marker, which differ in grey too."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BLUE", "DARK", "FILES", "LINES", "add_letters"]

BLUE, DARK = "#0072B2", "0.15"

LINES: dict[str, dict[str, Any]] = {
    "none": {"color": "0.45", "linestyle": (0, (1, 1.5)), "marker": ""},
    "ts": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "ats": {"color": "#E69F00", "linestyle": "-.", "marker": "^"},
    "bayes": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "structured": {"color": "#009E73", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "D"},
}

# Text stays text; identifiers within SVG are the same every time.
FILES: dict[str, Any] = {"svg.hashsalt": "attemper", "svg.fonttype": "none", "pdf.fonttype": 42}


def add_letters(axes: Sequence[Axes]) -> None:
    """Letter panels: bold, above the upper left corner of each."""
    for letter, ax in zip(ascii_lowercase, axes):
        ax.set_title(letter, loc="left", x=-0.05, ha="right", fontsize=9, fontweight="bold")
