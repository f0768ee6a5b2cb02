"""Class priors that are known: shares of the classes, checked and never guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.data.arrays import to_numpy
from attemper.errors import InputError, listed, nearest

__all__ = ["as_priors"]

SLACK = 1e-6  # that the sum of shares may be off, by rounding; they are then divided by it


def as_priors(given: Any, n_classes: int, names: Sequence[Any] | None = None, what: str = "new") -> Floats:
    """Check shares of the classes: one for each column, or a dict by name; they add up to 1.

    >>> as_priors({"healthy": 0.9, "ill": 0.1}, 2, ["ill", "healthy"])
    array([0.1, 0.9])
    >>> as_priors([90, 10], 2)
    Traceback (most recent call last):
    attemper.errors.InputError: new: expected shares that add up to 1, got a sum of 100. \
Use counts / counts.sum() for counts.
    """
    if isinstance(given, Mapping):
        given = _in_order(given, list(range(n_classes)) if names is None else list(names), what)
    try:
        priors = np.array(to_numpy(given) if hasattr(given, "shape") else given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what}: expected {n_classes} shares, one for each class, got {given!r:.60}") from None
    if priors.shape != (n_classes,):
        raise InputError(
            f"{what}: expected {n_classes} shares, one for each class in column order, got shape {priors.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(priors) & (priors >= 0)))
    if len(wrong):
        where = wrong[0] if names is None else repr(names[wrong[0]])
        raise InputError(f"{what}: expected shares between 0 and 1, got {priors[wrong[0]]} for class {where}")
    total = float(priors.sum())
    if abs(total - 1) > SLACK:
        counts = "counts / counts.sum()"
        raise InputError(
            f"{what}: expected shares that add up to 1, got a sum of {total:.9g}. Use {counts} for counts."
        )
    return priors / total


def _in_order(given: Mapping[Any, Any], names: list[Any], what: str) -> list[Any]:
    """Return the values of a dict in the order of the columns."""
    texts = {str(name): value for name, value in given.items()}
    unknown = [name for name in texts if name not in set(map(str, names))]
    if unknown:
        raise InputError(
            f"{what}: {unknown[0]!r} is not among the classes {listed(map(str, names))}."
            + nearest(unknown[0], map(str, names))
        )
    missing = [name for name in names if str(name) not in texts]
    if missing:
        raise InputError(f"{what}: expected a share for each class, got none for {listed(map(str, missing))}")
    return [texts[str(name)] for name in names]
