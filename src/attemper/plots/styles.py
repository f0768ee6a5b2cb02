"""How things look: each method has its own colour, line, marker and hatch, which differ in black and white too.

These are plain values; matplotlib is not needed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attemper.calibrators import METHODS
from attemper.calibrators.style import BLUE, DARK, GREY, VERMILION, Style

__all__ = ["BLUE", "DARK", "GREY", "VERMILION", "Style", "method_style", "plain", "styled", "titled"]

# What is right and what is wrong or amiss, as areas: light and less light, which differ in grey too.
RIGHT, AMISS = "#C6DDED", "#E8935A"
# A reliability diagram, as in the report (report.css): bars of accuracy, an edge at the mean confidence, the gap.
BAR, LEVEL, GAP_OPACITY = "#73B1D5", VERMILION, 0.3

SMALL, LEGEND = 7, 7  # points, at the size at which a picture is printed
# Long enough for dashes to be seen; white behind it, where lines pass.
KEY: dict[str, Any] = {
    "fontsize": LEGEND,
    "handlelength": 2.2,
    "handletextpad": 0.6,
    "columnspacing": 1.0,
    "facecolor": "white",
    "edgecolor": "none",
    "framealpha": 0.85,
    "borderpad": 0.2,
}
LONGEST = 36  # characters of a name

UNCALIBRATED = Style(GREY, (0, (1, 1.5)), "")
# For names without a style of their own, in order: neighbours differ in colour, dashes and marker.
OTHERS = ("bayes", "ts", "structured", "ats", "platt", "matrix", "isotonic", "ets")


def method_style(name: str) -> Style | None:
    """Return the style of a method as `compare` names it; None where it has none of its own.

    >>> method_style("ts").marker, method_style("my network")
    ('s', None)
    """
    return UNCALIBRATED if name == "none" else METHODS[name].style if name in METHODS else None


def styled(names: Iterable[str]) -> dict[str, Style]:
    """Give each name a style: methods their own, others what is left.

    >>> [style.marker for style in styled(["ts", "my network", "another"]).values()]
    ['s', 'o', 'D']
    """
    own = {name: method_style(name) for name in names}
    spare = [style for style in map(method_style, OTHERS) if style is not None]
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
