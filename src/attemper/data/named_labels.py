"""Labels of tables and files: names of classes, or numbers of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import RowName
from attemper.data.numerals import is_number, number_from
from attemper.errors import InputError

__all__ = ["as_text", "names_or_numbers"]


def names_or_numbers(
    labels: NDArray[Any], name: RowName, classes: Sequence[str] | None
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Labels as names, and the classes to look them up in; or as column numbers, and None.

    Where no class is called by a number, labels that are numbers are those of columns.

    >>> names_or_numbers(np.array(["dog", "cat"]), "row {}".format, ["cat", "dog"])
    (array(['dog', 'cat'], dtype=object), ('cat', 'dog'))
    >>> names_or_numbers(np.array(["1", "0"]), "row {}".format, ["cat", "dog"])
    (array([1., 0.]), None)
    """
    if classes is not None:
        known = set(classes)
        names = [_as_name(label, known) for label in labels.tolist()]
        if any(map(is_number, classes)) or not all(map(is_number, names)):
            return np.array(names, dtype=object), tuple(classes)
    if labels.dtype.kind not in "OU":
        return labels, None
    numbers = np.empty(len(labels))
    for i, label in enumerate(labels.tolist()):
        try:
            numbers[i] = number_from(label) if isinstance(label, str) else float(label)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"labels: {name(i)} is {label!r:.60}, not a column number; for names use classes=[…], in column order",
                param="classes",
            ) from None
    return numbers, None


def as_text(label: Any) -> str:
    """Labels as names: 3 and 3.0 are '3'.

    >>> as_text(3.0), as_text("cat")
    ('3', 'cat')
    """
    if isinstance(label, str):
        return label
    try:
        return str(int(label)) if float(label).is_integer() else str(label)
    except (TypeError, ValueError):
        return str(label)


def _as_name(label: Any, known: set[str]) -> str:
    """Return a label as the classes have it: pandas writes 3 as 3.0 if another label is missing."""
    text = as_text(label)
    if text not in known and is_number(text) and (number := number_from(text)).is_integer():
        text = whole if (whole := str(int(number))) in known else text
    return text
