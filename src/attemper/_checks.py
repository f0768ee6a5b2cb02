"""Checks of parameters, each written once: a number in a range, a whole number, a choice, a number of classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from attemper.errors import InputError

__all__ = ["fraction", "number", "one_of", "positive", "same_classes", "whole"]


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
    raise InputError(f"{name}={value!r}: expected {expected}", param=name)


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

    >>> positive("width", 0, of="points")
    Traceback (most recent call last):
    attemper.errors.InputError: width=0: expected a positive number of points
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
    raise InputError(f"{name}={value!r}: expected a whole number{most}", param=name)


def one_of(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return a value that is one of the choices.

    >>> one_of("strategy", "mass", ("uniform", "quantile"))
    Traceback (most recent call last):
    attemper.errors.InputError: strategy='mass': expected one of 'uniform', 'quantile'
    """
    choices = tuple(choices)
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    raise InputError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}", param=name)


def same_classes(expected: int | None, got: int, *, of: str, where: str) -> None:
    """Refuse scores of another number of classes; None fits any number.

    >>> same_classes(10, 7, of="the map", where="test.npz")
    Traceback (most recent call last):
    attemper.errors.InputError: test.npz: expected 10 classes, as the map has, got 7
    """
    if expected not in (None, got):
        raise InputError(f"{where}: expected {expected} classes, as {of} has, got {got}")
