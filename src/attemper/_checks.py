"""Checks of parameters, each written once: a number in a range, a whole number, a choice, a number of classes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from attemper.errors import InputError, InputTypeError, names_flags, setting

__all__ = ["fraction", "number", "one_of", "positive", "renamed", "same_classes", "since_0_2", "whole"]

Function = TypeVar("Function", bound=Callable[..., Any])


def number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    expected: str,
    closed: tuple[bool, bool] = (True, True),
) -> float:
    """Return a real number between ``low`` and ``high``, which ``closed`` includes or not; ``expected`` names them.

    >>> number("norm", 2, 1, 64, expected="a number from 1 to 64")
    2.0
    >>> number("norm", True, 1, 64, expected="a number from 1 to 64")
    Traceback (most recent call last):
    attemper.errors.InputError: norm=True: expected a number from 1 to 64
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        found = float(value)
        if (low <= found if closed[0] else low < found) and (found <= high if closed[1] else found < high):
            return found
    raise InputError(f"{setting(name, value)}: expected {expected}")


def fraction(name: str, value: Any, *, closed: bool = False, such_as: str = "0.95") -> float:
    """Return a number between 0 and 1; ``closed`` allows 0 and 1 themselves.

    >>> fraction("confidence_level", 95)
    Traceback (most recent call last):
    attemper.errors.InputError: confidence_level=95: expected a number between 0 and 1, such as 0.95
    """
    ends = "from 0 to 1" if closed else "between 0 and 1"
    return number(name, value, 0, 1, expected=f"a number {ends}, such as {such_as}", closed=(closed, closed))


def positive(name: str, value: Any, *, of: str = "") -> float:
    """Return a number above zero; ``of`` names its unit.

    >>> positive("half_life", 0, of="samples")
    Traceback (most recent call last):
    attemper.errors.InputError: half_life=0: expected a positive number of samples
    """
    return number(name, value, 0, expected=f"a positive number{f' of {of}' if of else ''}", closed=(False, False))


def whole(name: str, value: Any, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return a whole number; True is none.

    >>> whole("n_bins", 15)
    15
    >>> whole("seed", 1.5, at_least=0)
    Traceback (most recent call last):
    attemper.errors.InputError: seed=1.5: expected a whole number, at least 0
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        found = int(value)
        if at_least <= found and (at_most is None or found <= at_most):
            return found
    most = f", at least {at_least}" if at_most is None else f" from {at_least} to {at_most}"
    raise InputError(f"{setting(name, value)}: expected a whole number{most}")


def one_of(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return a value that is one of the choices.

    >>> one_of("strategy", "mass", ("uniform", "quantile"))
    Traceback (most recent call last):
    attemper.errors.InputError: strategy='mass': expected one of 'uniform', 'quantile'
    """
    choices = tuple(choices)
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    shown = map(str, choices) if names_flags() else map(repr, choices)
    raise InputError(f"{setting(name, value)}: expected one of {', '.join(shown)}")


def same_classes(expected: int | None, got: int, *, of: str, where: str) -> None:
    """Refuse scores of another number of classes; None fits any number.

    >>> same_classes(10, 7, of="the map", where="test.npz")
    Traceback (most recent call last):
    attemper.errors.InputError: test.npz: expected 10 classes, as the map has, got 7
    """
    if expected not in (None, got):
        raise InputError(f"{where}: expected {expected} classes, as {of} has, got {got}")


def since_0_2(module: str, name: str, names: Mapping[str, str]) -> AttributeError:
    """Return the error for a name that a module does not have: an old one names the new one.

    >>> since_0_2("attemper.plots", "theta_path", {"theta_path": "plot_theta(ats, ax=ax)"})
    AttributeError('attemper.plots.theta_path is plot_theta(ats, ax=ax) since version 0.2.0')
    """
    if name in names:
        return AttributeError(f"{module}.{name} is {names[name]} since version 0.2.0")
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def reject_old_names(called: str, given: Iterable[str], names: Mapping[str, str]) -> None:
    """Refuse an old keyword, and name the new one."""
    for old in names.keys() & set(given):
        raise InputTypeError(f"{called}() got {old!r}, which is {names[old]!r} since version 0.2.0")


def renamed(**names: str) -> Callable[[Function], Function]:
    """Make an old keyword of a function an error that names the new one.

    >>> @renamed(level="confidence_level")
    ... def interval(confidence_level=0.95): ...
    >>> interval(level=0.9)
    Traceback (most recent call last):
    attemper.errors.InputTypeError: interval() got 'level', which is 'confidence_level' since version 0.2.0
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            reject_old_names(function.__qualname__.removesuffix(".__init__"), kwargs, names)
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate
