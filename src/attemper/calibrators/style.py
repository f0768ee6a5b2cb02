"""How a method is drawn: colour, dashes and marker, which differ in black and white too.

These are plain values; matplotlib is not needed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BLUE", "DARK", "GREEN", "GREY", "ORANGE", "PURPLE", "SKY", "VERMILION", "Dashes", "Style"]

# Colours of Okabe and Ito, which colour-blind readers can distinguish; yellow is left out, as it vanishes on white.
BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
DARK, GREY = "0.15", "0.45"

Dashes = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """Colour, dashes and marker of a line."""

    color: str
    linestyle: Dashes
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments for matplotlib's lines."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}
