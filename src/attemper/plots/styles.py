"""How things look: one colour, line, marker and hatch for each method, told apart in black and white too.

Plain values; matplotlib is not needed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["STYLES", "Style", "plain", "styled", "titled"]

# Colours of Okabe and Ito, which the colour-blind tell apart; yellow is left out, as it vanishes on white.
BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
DARK, GREY = "0.15", "0.45"

# What is right and what is wrong or amiss, as areas: light and plain, dark and hatched.
RIGHT, AMISS = "#A6CBE3", VERMILION

SMALL, LEGEND = 6.5, 7  # points, at the size at which a picture is printed
# Long enough for dashes to be seen; white behind it, where lines pass.
KEY: dict[str, Any] = {
    "fontsize": LEGEND,
    "handlelength": 2.6,
    "handletextpad": 0.6,
    "columnspacing": 1.0,
    "facecolor": "white",
    "edgecolor": "none",
    "framealpha": 0.85,
}
LONGEST = 36  # characters of a name

Dashes = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """Colour, dashes and marker of a line; hatch of an area."""

    color: str
    linestyle: Dashes
    marker: str
    hatch: str = ""

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib's lines are told."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}


STYLES: dict[str, Style] = {
    "none": Style(GREY, (0, (1, 1.5)), ""),
    "ts": Style(VERMILION, "--", "s", "////"),
    "ats": Style(ORANGE, "-.", "^", "\\\\\\\\"),
    "bayes": Style(BLUE, "-", "o", "...."),
    "structured": Style(GREEN, (0, (5, 1, 1, 1, 1, 1)), "D", "xxxx"),
    "ets": Style(SKY, (0, (4, 2)), "v", "----"),
    "vector": Style(PURPLE, (0, (3, 1)), "<", "||||"),
    "matrix": Style(PURPLE, (0, (6, 1.5)), ">", "++++"),
    "dirichlet": Style(PURPLE, (0, (6, 1.5, 1, 1.5)), "P", "oooo"),
    "platt": Style(DARK, (0, (2, 1)), "X", "//"),
    "beta": Style(DARK, (0, (5, 1)), "p", "\\\\"),
    "histogram": Style(SKY, (0, (1, 1)), "*", ".."),
    "isotonic": Style(SKY, (0, (5, 1, 1, 1)), "h", "xx"),
    "bbq": Style(SKY, (0, (8, 2)), "d", "--"),
}

# For other names, in order: neighbours differ in colour, dashes and marker.
OTHERS = tuple(STYLES[name] for name in ("bayes", "ts", "structured", "ats", "platt", "matrix", "isotonic", "ets"))


def styled(names: Iterable[str]) -> dict[str, Style]:
    """Give each name a style: methods their own, others what is left.

    >>> [style.marker for style in styled(["ts", "my network", "another"]).values()]
    ['s', 'o', 'D']
    """
    wanted = list(names)
    taken = {STYLES[name] for name in wanted if name in STYLES}
    left = [style for style in OTHERS if style not in taken] or list(OTHERS)
    others = [name for name in wanted if name not in STYLES]
    return {name: STYLES[name] if name in STYLES else left[others.index(name) % len(left)] for name in wanted}


def titled(name: str) -> str:
    """Return how a method is called in legends: by its name, and by a word where there is none."""
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
