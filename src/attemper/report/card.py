"""The model card: what a reader must know of the model that the page is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attemper.errors import InputError, option

__all__ = ["card_of"]

# Shown in this order, before all others.
FIRST = ("model", "version", "date", "developer", "intended use", "population", "training data", "limitations")
MOST_TEXT = 20_000


def card_of(given: Mapping[str, Any] | None) -> list[list[str]]:
    """Return titles and texts of a model card; the usual ones first.

    >>> card_of({"population": "adults", "intended_use": "triage", "site": ["a", "b"], "model": "net 2"})
    [['Model', 'net 2'], ['Intended use', 'triage'], ['Population', 'adults'], ['Site', 'a, b']]
    """
    found = {" ".join(str(key).replace("_", " ").split()): _text(key, value) for key, value in (given or {}).items()}
    order = sorted(found, key=lambda key: FIRST.index(key.lower()) if key.lower() in FIRST else len(FIRST))
    return [[key[:1].upper() + key[1:], found[key]] for key in order if found[key]]


def _text(key: Any, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(key, one) for one in value)
    if isinstance(value, Mapping):
        where = option("card={…}", "--card")
        raise InputError(f"{where}: {key}: expected text, a number or a list of these; got a table of {len(value)}")
    text = "" if value is None else str(value).strip()
    if len(text) > MOST_TEXT:
        raise InputError(f"{option('card={…}', '--card')}: {key}: {len(text)} characters; at most {MOST_TEXT} fit")
    return text
