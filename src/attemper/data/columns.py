"""Which columns of a table, in a file or in memory, hold what; refused rather than guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attemper.data.numerals import is_number
from attemper.errors import InputError, listed, nearest

__all__ = [
    "LABEL",
    "PREDICTION",
    "PROB",
    "ColumnQuery",
    "bare_names",
    "check_columns",
    "check_order",
    "choose_columns",
    "header_classes",
    "not_numbers",
]

LABEL, PREDICTION, PROB = "label", "prediction", "prob_"
PREFIXES = {"logits": "logit_", "probs": PROB}


@dataclass(frozen=True)
class ColumnQuery:
    """Which columns of a table are asked for."""

    label: str | None = None  # None: no labels are read
    weight: str | None = None
    group: str | None = None
    cluster: str | None = None
    prefix: str | None = None  # what the names of the columns of scores begin with
    columns: tuple[str | int, ...] | None = None  # their names, or numbers among those with the prefix
    classes: tuple[str, ...] | None = None
    input: str = "logits"

    @property
    def beside(self) -> list[str]:
        """Columns that are named and hold no scores."""
        return [name for name in (self.label, self.weight, self.group, self.cluster) if name is not None]


def check_columns(where: object, names: Sequence[str], query: ColumnQuery) -> None:
    """Refuse a table without a column that the query names beside the scores."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{where}: two columns are named {twice[0]!r}; give each a name of its own")
    for name in query.beside:
        if name not in names:
            raise _no_column(where, name, names, "labels" if name == query.label else None)


def choose_columns(where: object, names: Sequence[str], query: ColumnQuery) -> tuple[str, ...]:
    """Return one column for each class: those named, those with a prefix, or those with the names of the classes."""
    check_columns(where, names, query)
    wanted = tuple(map(str, query.columns or ()))
    if wanted and (set(wanted) <= set(names) or any(isinstance(column, str) for column in query.columns or ())):
        missing = next((name for name in wanted if name not in names), None)
        if missing is not None:
            raise _no_column(f"{where}: columns", missing, names, "columns")
        taken = next((name for name in wanted if name in query.beside), None)
        if taken is not None:
            raise InputError(f"{where}: column {taken!r} holds labels, weights or ids, so no class", param="columns")
        return wanted
    prefix = PREFIXES[query.input] if query.prefix is None else query.prefix
    found = tuple(name for name in names if name.startswith(prefix) and name not in (*query.beside, PREDICTION))
    if query.classes is not None:
        first = query.classes[0]
        heads = sorted((name.removesuffix(first) for name in names if name.endswith(first)), key=len)
        for head in (prefix, *heads) if query.prefix is None else (prefix,):
            named = tuple(head + name for name in query.classes)
            if set(named) <= set(names) - {*query.beside}:
                return named
        if found and not _numbered(found) and query.columns is None:
            raise InputError(
                f"{where}: the columns {listed(found)} are not those of the classes {listed(query.classes)}. Use "
                "columns=[…] with their names, in the order of the classes.",
                param="columns",
            )
    if not found:
        raise InputError(
            f"{where}: no column begins with {prefix!r}; there are {listed(names)}. Use columns=[…] with the names of "
            "the columns of logits, one for each class.",
            param="columns",
        )
    if (numbers := _numbered(found)) != sorted(numbers):
        raise InputError(
            f"{where}: the columns of logits are numbered but not in order: {listed(found)}. Labels are column "
            "numbers, so write the columns in order."
        )
    if query.columns is None:
        return found
    wrong = next((k for k in query.columns if not 0 <= int(k) < len(found)), None)
    if wrong is not None:
        raise InputError(
            f"{where}: columns: there is no column {wrong}: the columns of logits are {listed(found)}", param="columns"
        )
    return tuple(found[int(k)] for k in query.columns)


def header_classes(columns: Sequence[str], label: Any) -> tuple[str, ...] | None:
    """Names of the classes that the headers of a table are, if the first label is one of them; else None.

    >>> header_classes(["logit_cat", "logit_dog"], "dog")
    ('cat', 'dog')
    >>> header_classes(["cat", "dog"], 1)
    """
    if not isinstance(label, str) or is_number(label):
        return None
    return next((tuple(names) for names in (columns, bare_names(columns)) if label in names), None)


def bare_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return names without ``logit_`` or ``prob_``, or whatever else all of them begin with up to a sign such as ``_``.

    >>> bare_names(["z.cat", "z.cow"]), bare_names(["cat", "cow"])
    (('cat', 'cow'), ('cat', 'cow'))
    """
    first, last = min(columns), max(columns)
    same = next((k for k, (a, b) in enumerate(zip(first, last)) if a != b), len(first))
    head = re.match(r".*[^0-9A-Za-z]|", first[:same])
    return tuple(name[len(head[0]) if head else 0 :] for name in columns)


def check_order(where: object, columns: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse columns that have the names expected, in another order; prefixes make no difference."""
    own, wanted = bare_names(columns), bare_names(expected)
    if own != wanted and set(own) == set(wanted):
        raise InputError(f"{where}: the columns are {listed(columns)}, expected in the order {listed(expected)}")


def not_numbers(where: object, name: str, what: str) -> InputError:
    """Report a column that cannot hold logits or weights."""
    return InputError(
        f"{where}: column {name!r} {what}, not numbers. Use columns=[…] with the names of the columns of logits.",
        param="columns",
    )


def _no_column(where: object, name: str, names: Sequence[str], param: str | None) -> InputError:
    text = f"{where}: there is no column {name!r}; there are {listed(names)}.{nearest(name, names)}"
    return InputError(text, param=param)


def _numbered(columns: Sequence[str]) -> list[int]:
    """Return the numbers at the ends of names that are else alike, such as logit_0; none where there are others."""
    matches = [re.fullmatch(r"(.*?)([0-9]{1,9})", name) for name in columns]
    found = [match for match in matches if match]
    alike = len(found) == len(columns) and len({match[1] for match in found}) == 1
    return [int(match[2]) for match in found] if alike else []
