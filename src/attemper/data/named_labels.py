"""Labels of tables and files: names of classes, or numbers of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import RowName
from attemper.data.numerals import is_number, number_from
from attemper.errors import InputError, listed, nearest

__all__ = ["as_text", "by_positive", "names_or_numbers", "reject_numbers"]


def names_or_numbers(
    labels: NDArray[Any],
    name: RowName,
    *,
    classes: Sequence[str] | None,
    labels_are: str | None = None,
    pos_label: Any = None,
    columns: Sequence[str] | None = None,
    one_column: bool = False,
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Labels as names, and the classes to look them up in; or as column numbers, and None.

    With ``pos_label`` they stay as they are, for `by_positive`. ``columns`` are the headers of a table, for errors.

    >>> names_or_numbers(np.array(["dog", "cat"]), "row {}".format, classes=["cat", "dog"])
    (array(['dog', 'cat'], dtype=object), ('cat', 'dog'))
    >>> names_or_numbers(np.array(["1", "0"]), "row {}".format, classes=["cat", "dog"])
    (array([1., 0.]), None)
    """
    if classes is None and labels_are == "names":
        raise InputError(f"labels_are={'names'!r}: pass the names in column order with classes=[…]", param="classes")
    if classes is not None and labels_are not in ("tokens", "numbers"):
        known = set(classes)
        names = [_as_name(label, known) for label in labels.tolist()]
        # Where no class is called by a number, a number can only be that of a column.
        either = labels_are != "names" and not any(map(is_number, classes))
        if not (either and all(map(is_number, names))):
            return np.array(names, dtype=object), tuple(classes)
    if labels.dtype.kind not in "OU" or pos_label is not None:
        return labels, None
    numbers = np.empty(len(labels))
    for i, label in enumerate(labels.tolist()):
        try:
            numbers[i] = number_from(label) if isinstance(label, str) else float(label)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"labels: {name(i)} is {label!r:.60}, not a column number{_nor_a_name(str(label), columns)}; for names "
                f"use {_naming(one_column)}"
            ) from None
    return numbers, None


def reject_numbers(labels: NDArray[Any], name: RowName, classes: Sequence[str], labels_are: str | None) -> None:
    """Where classes are called by numbers, labels are these names; others might be numbers of columns."""
    known = set(classes)
    if labels_are not in ("names", "numbers") and any(map(is_number, known)):
        row = next((row for row, label in enumerate(labels.tolist()) if label not in known), None)
        if row is not None:
            raise InputError(
                f"labels: {name(row)} is {labels[row][:60]!r}, which is not among the classes "
                f"{listed(classes)}. Names that are numbers make labels names; if labels are "
                f"column numbers, use labels_are={'numbers'!r}.",
                param="labels_are",
            )


def by_positive(labels: NDArray[Any], pos_label: Any) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Labels of two classes by the name of the second one: as names, or as 0 and 1 where only one occurs.

    >>> by_positive(np.array(["ill", "well"]), "ill")
    (array(['ill', 'well'], dtype=object), ('well', 'ill'))
    """
    positive, names = as_text(pos_label), [as_text(label) for label in labels.tolist()]
    others = {name for name in names if name != positive}
    if len(others) == 1:
        return np.array(names, dtype=object), (*others, positive)
    if not others:
        return np.ones(len(names), dtype=np.int64), None
    raise InputError(
        f"pos_label={pos_label!r}: expected labels of two classes, {positive!r} and one other; "
        f"got {listed(sorted({positive, *others}))}",
        param="pos_label",
    )


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


def _naming(one_column: bool) -> str:
    """Name the option for labels that are names."""
    if one_column:
        return "pos_label=…, the label of the second class"
    return "classes=[…], in column order"


def _nor_a_name(label: str, columns: Sequence[str] | None) -> str:
    if columns is None:
        return ""
    meant = nearest(label, columns).strip()
    return f" nor the name of one of the columns {listed(columns)}{f' ({meant})' if meant else ''}"
