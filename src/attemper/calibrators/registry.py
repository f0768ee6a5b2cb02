"""Methods by name: attemper's own, and those of other packages.

A calibrator class that has a ``method`` is registered when it is defined. Other packages name theirs as entry points of
the group ``attemper.calibrators``. These are imported when a name is first asked for that is not known, or the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from attemper._json import Fields
from attemper.errors import FileError, InputError, warn

if TYPE_CHECKING:
    from attemper.calibrators.base import Calibrator

__all__ = ["GROUP", "METHODS", "Registry", "calibrator_of", "method_title"]

GROUP = "attemper.calibrators"


class Registry(Mapping[str, "type[Calibrator]"]):
    """Calibrator classes by the name of their method: ``METHODS["ts"]`` is `TemperatureScaling`."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Calibrator]] = {}
        self._complete = False

    def register(self, cls: type[Calibrator]) -> None:
        """Add a class under its ``method``; a later definition replaces an earlier one, but none of attemper's."""
        name = cls.method
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise InputError(f"method={name!r} of {cls.__name__}: expected lower-case letters, digits, - and _")
        before = self._classes.get(name)
        if name == "none" or (before is not None and _is_own(before) and _where(cls) != _where(before)):
            raise InputError(f"method={name!r} of {cls.__name__}: this name is taken by attemper. Use another.")
        self._classes[name] = cls

    def from_sketch(self) -> list[str]:
        """Names of the methods that a sketch is enough for, with their parameters as they are by default."""
        return [name for name, cls in self.items() if cls.sketch_tables is not None]

    def package_of(self, cls: type[Calibrator]) -> str | None:
        """Name the package that a class comes from; None for attemper itself."""
        if _is_own(cls):
            return None
        package = cls.__module__.partition(".")[0]
        named = [e for e in _entries() if e.name == cls.method and re.split(r"[.:]", e.value)[0] == package]
        return named[0].dist.name if named and named[0].dist is not None else package

    def __repr__(self) -> str:
        return f"Registry({', '.join(self._classes)})"

    def __getitem__(self, name: str) -> type[Calibrator]:
        if name not in self._classes:
            self._load_entry_points()
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(list(self._classes))

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._classes)

    def _load_entry_points(self) -> None:
        if self._complete:
            return
        self._complete = True
        first: dict[str, EntryPoint] = {}
        for entry in _entries():
            if entry.name in self._classes and _is_own(self._classes[entry.name]):
                continue
            if first.setdefault(entry.name, entry) is not entry:
                used = first[entry.name].value
                if entry.value != used:
                    warn(f"the method {entry.name!r} is of {used} and of {entry.value}; the former is used")
                continue
            try:
                found = entry.load()
            except (Exception, SystemExit) as error:  # another package's fault must not take attemper's methods with it
                warn(f"the method {entry.name!r} of {entry.value} cannot be imported: {type(error).__name__}: {error}")
                continue
            if self._classes.get(entry.name) is not found:
                warn(f"the entry point {entry.name!r} expected a Calibrator with this method, got {entry.value}")


METHODS = Registry()
"""Every method by its name on the command line: ``METHODS["ts"]`` is `TemperatureScaling`."""


def calibrator_of(content: Fields) -> Calibrator:
    """Make a fitted calibrator from what `Calibrator.to_document` gave."""
    method = content.text("method")
    if method not in METHODS:
        package = content.content.get("package")
        known = isinstance(package, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", package) is not None
        use = (
            f"It was fitted with the package {package!r}; install it if you trust it"
            if known
            else "Use a newer attemper"
        )
        raise FileError(f"{content.where}: the method {method!r} is unknown; known are {', '.join(METHODS)}. {use}.")
    return METHODS[method].from_fields(content)


def method_title(name: str) -> str:
    """Return the readable title of a method, as `compare` names it.

    >>> method_title("none"), method_title("ts"), method_title("histogram(n_bins=5)")
    ('no calibration', 'temperature scaling', 'histogram binning (n_bins=5)')
    """
    method, _, parameters = name.partition("(")
    title = "no calibration" if method == "none" else METHODS[method].title if method in METHODS else method
    return f"{title} ({parameters}" if parameters else title


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _where(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _is_own(cls: type) -> bool:
    return cls.__module__.startswith("attemper.")
