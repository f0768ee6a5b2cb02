"""The model card: what a reader must know of the model that the page is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attemper.errors import InputError

__all__ = ["card_of", "read_card"]

# Shown in this order, before all others.
FIRST = ("model", "version", "date", "developer", "intended use", "population", "training data", "limitations")


def card_of(given: Mapping[str, Any] | None) -> list[list[str]]:
    """Return titles and texts of a model card; the usual ones first, then those of any other name.

    An entry without a text is left out.

    >>> card_of({"population": "adults", "intended_use": "triage", "site": ["a", "b"], "model": "net 2", "date": ""})
    [['Model', 'net 2'], ['Intended use', 'triage'], ['Population', 'adults'], ['Site', 'a, b']]
    """
    found = read_card({} if given is None else given, "card={…}")
    order = sorted(found, key=lambda key: FIRST.index(key.lower()) if key.lower() in FIRST else len(FIRST))
    return [[key[:1].upper() + key[1:], found[key]] for key in order if found[key]]


def read_card(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the names and texts of one card, each name once: ``intended_use`` and ``Intended use`` are the same.

    >>> read_card({"intended_use": "triage", "sites": ["a", 2], "locked": True, "date": None}, "card")
    {'intended use': 'triage', 'sites': 'a, 2', 'locked': 'yes', 'date': ''}
    """
    if not isinstance(given, Mapping):
        raise InputError(
            f'{where}: expected names and texts such as {{"model": "resnet200"}}, got {type(given).__name__}'
        )
    found: dict[str, str] = {}
    for key, value in given.items():
        name = " ".join(str(key).replace("_", " ").split())
        if not name or name.casefold() in map(str.casefold, found):
            raise InputError(f"{where}: expected each name once, and no empty name; got {key!r}")
        found[name] = _text(f"{where}: {key}", value)
    return found


def _text(where: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(where, one) for one in value)
    if isinstance(value, Mapping | bytes | set | frozenset):
        raise InputError(f"{where}: expected text, a number or a list of these; got {type(value).__name__}")
    return "" if value is None else "yes" if value is True else "no" if value is False else str(value).strip()
