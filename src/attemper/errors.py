"""Every error and warning a user can meet, and the check for an optional package.

One family: ``except AttemperError`` catches them all, and since it is a ``ValueError`` it also behaves as scikit-learn
users expect. An `InputError` names its parameter; the command line turns it into the flag, in one place.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from types import ModuleType

import sklearn.exceptions

__all__ = [
    "AttemperError",
    "AttemperWarning",
    "ChanceAccuracyWarning",
    "ConvergenceWarning",
    "EdgeWarning",
    "FileError",
    "InputError",
    "LabelShiftError",
    "MissingExtraError",
    "NotFittedError",
    "ProbabilitiesAsLogitsWarning",
]

_collected: ContextVar[list[AttemperWarning] | None] = ContextVar("collected", default=None)


class AttemperError(ValueError):
    """Base class of all errors: what was expected, what was passed and where, and how to fix it."""


class InputError(AttemperError):
    """Arrays or parameters cannot be used; ``param`` is the name of the one to change.

    >>> InputError("classes: 3 names for 4 columns", "classes").param
    'classes'
    """

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class LabelShiftError(InputError):
    """No mix of the classes explains the new data, so other class priors would not help."""


class FileError(AttemperError):
    """A file cannot be read, written or understood."""


class NotFittedError(AttemperError, sklearn.exceptions.NotFittedError):  # type: ignore[misc]
    """A calibrator was asked to predict before it was fitted."""


class MissingExtraError(AttemperError, ImportError):
    """An optional package is needed but not installed."""


class AttemperWarning(UserWarning):
    """Base class of all warnings; the computation continues."""


class EdgeWarning(AttemperWarning):
    """The best temperature is on the edge of the range, or there is no finite one."""


class ConvergenceWarning(AttemperWarning, sklearn.exceptions.ConvergenceWarning):  # type: ignore[misc]
    """A fit stopped before its result was as exact as asked for."""


class ProbabilitiesAsLogitsWarning(AttemperWarning):
    """Numbers that were passed as logits look like probabilities."""


class ChanceAccuracyWarning(AttemperWarning):
    """Predictions agree with the labels no more often than by chance."""


def warn(message: str, category: type[AttemperWarning] = AttemperWarning) -> None:
    """Warn at the line outside attemper that led here, or add to `collected_warnings`."""
    found = _collected.get()
    if found is not None:
        found.append(category(message))
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected_warnings() -> Iterator[list[AttemperWarning]]:
    """Collect what `warn` would report, in this thread alone.

    >>> with collected_warnings() as found:
    ...     warn("the rows look like probabilities")
    >>> found
    [AttemperWarning('the rows look like probabilities')]
    """
    found: list[AttemperWarning] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Return names for an error message; not more of them than a reader can use.

    >>> listed(["cat", "dog", "eel"], limit=2)
    "'cat', 'dog', … (3 in all)"
    """
    found = list(map(str, names))
    shown = ", ".join(repr(name[:60]) for name in found[:limit])
    return (shown + (f", … ({len(found)} in all)" if len(found) > limit else "")) or "nothing"


def check_share(value: object, param: str) -> None:
    """Refuse what is not between 0 and 1: of shares, and of levels of confidence."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        such = 0.05 if param == "alpha" else 0.95
        raise InputError(f"{param}={value!r}: expected a number between 0 and 1, such as {such}", param)


def check_number(value: object, param: str, low: float, high: float, *, whole: bool = False) -> None:
    """Refuse what is no number, or lies outside of a range."""
    kind = Integral if whole else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= float(value) <= high:
        what = "a whole number" if whole else "a number"
        raise InputError(f"{param}={value!r}: expected {what} from {low} to {high}", param)


def check_seed(seed: object) -> None:
    """Refuse what is no seed of NumPy's and scikit-learn's generators."""
    check_number(seed, "seed", 0, 2**32 - 1, whole=True)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a question for the name that is most like the one that is not there; "" if none is.

    >>> nearest("anwser", ["question", "answer"])
    " Did you mean 'answer'?"
    """
    found = difflib.get_close_matches(name[:60], list(names)[:1000], n=1, cutoff=0.7)
    return f" Did you mean {found[0]!r}?" if found else ""


def require(module: str, *, extra: str = "", why: str = "for this") -> ModuleType:
    """Import an optional package, or report in one line how to install it.

    >>> require("json").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # the package is there, but one of its own imports is broken: let that be seen
        package = f'"attemper[{extra}]"' if extra else module
        raise MissingExtraError(f"{module} is needed {why} and is not installed. Use: pip install {package}") from None
