"""Methods by name. A calibrator class that has a ``method`` is registered when it is defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attemper._json import Fields
from attemper.errors import FileError

if TYPE_CHECKING:
    from attemper.calibrators.base import Calibrator

__all__ = ["METHODS", "Registry", "calibrator_of", "method_title"]


class Registry(dict[str, "type[Calibrator]"]):
    """Calibrator classes by the name of their method: ``METHODS["ts"]`` is `TemperatureScaling`."""

    def from_sketch(self) -> list[str]:
        """Names of the methods that a sketch is enough for, with their parameters as they are by default."""
        return [name for name, cls in self.items() if cls.sketch_tables is not None]


METHODS = Registry()
"""Every method by its name on the command line: ``METHODS["ts"]`` is `TemperatureScaling`."""


def calibrator_of(content: Fields) -> Calibrator:
    """Make a fitted calibrator from what `Calibrator.to_document` gave."""
    method = content.text("method")
    if method not in METHODS:
        raise FileError(
            f"{content.where}: the method {method!r} is unknown; known are {', '.join(METHODS)}. Import the "
            "module that defines it."
        )
    return METHODS[method].from_fields(content)


def method_title(name: str) -> str:
    """Return the readable title of a method, as `compare` names it.

    >>> method_title("none"), method_title("ts"), method_title("histogram(n_bins=5)")
    ('no calibration', 'temperature scaling', 'histogram binning (n_bins=5)')
    """
    method, _, parameters = name.partition("(")
    title = "no calibration" if method == "none" else METHODS[method].title if method in METHODS else method
    return f"{title} ({parameters}" if parameters else title
