"""Small files of text: names of classes with what they stand for, and model cards."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from attemper._paths import as_path
from attemper.errors import FileError, InputError
from attemper.io.reading import read_lines

HEADER = "description"
REVERSED = ([HEADER, "name"], [HEADER, "class"], [HEADER, "label"])
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def described_classes(given: str) -> list[tuple[str, str]]:
    """Read names of classes and their descriptions, which may be empty.

    A .csv or .tsv file has a name and a description a line, with or without a header; a .json file an object, or a
    list of names. Any other file has a name a line.
    """
    try:
        lines = read_lines(as_path(given))
    except FileError as error:
        count = " For the number of classes use --n-classes (`attemper plan`)." if given.isdecimal() else ""
        raise FileError(
            f"--classes {given}: expected a list such as cat,dog or a readable file; {error}.{count}"
        ) from None
    ending = _ending(given)
    if ending == ".json":
        return _from_json(given, "\n".join(lines))
    if ending not in SEPARATORS:
        return [(line.strip(), "") for line in lines if line.strip()]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=SEPARATORS[ending]) if any(row)]
    if rows and [cell.lower() for cell in rows[0]] in REVERSED:
        rows = [row[::-1] if len(row) == 2 else row for row in rows]
    rows = rows[1:] if rows and [cell.lower() for cell in rows[0][1:]] == [HEADER] else rows
    for number, row in enumerate(rows, 1):
        if len(row) > 2:
            raise FileError(
                f"--classes {given}: expected a name and a description a line, got {len(row)} cells in row {number}. "
                'Use quotes around a description with a comma: mel,"melanoma, in situ too".'
            )
    return [(name, *(rest or [""])) for name, *rest in rows]  # type: ignore[misc]


def _from_json(given: str, text: str) -> list[tuple[str, str]]:
    found = _parsed(f"--classes {given}", text)
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return list(found.items())
    if isinstance(found, list) and all(isinstance(value, str) for value in found):
        return [(name, "") for name in found]
    raise FileError(f'--classes {given}: expected an object such as {{"mel": "melanoma"}}, or a list of names')


def model_card(given: Sequence[str]) -> dict[str, str]:
    """Read the entries of a model card: NAME=VALUE, or files; what comes later wins, also if it is empty."""
    from attemper.report.card import join_cards, read_card

    cards = []
    for one in given:
        name, equals, value = one.partition("=")
        if equals and not name.strip():
            raise InputError(
                f"--card {one}: expected a name before '='. Use NAME=VALUE, such as --card model=resnet200."
            )
        entries = {name: value} if equals and "\n" not in name else _card_file(one)
        cards.append(read_card(entries, f"--card {one}" if not equals else "--card"))
    return join_cards(cards)


def _card_file(given: str) -> dict[str, Any]:
    where = f"--card {given}"
    try:
        lines = read_lines(as_path(given))
    except FileError as error:
        name = given if given.isidentifier() else "NAME"
        raise FileError(
            f"{where}: expected NAME=VALUE or a readable file (.json, .toml, .txt); {error}. "
            f"For one entry use --card {name}=VALUE."
        ) from None
    ending, text = _ending(given), "\n".join(lines)
    if ending == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileError(f"{where}: not valid TOML: {error}") from None
    if ending != ".json":
        return _entries(where, lines)
    found = _parsed(where, text, once=True)
    if not isinstance(found, dict):
        raise FileError(f'{where}: expected an object such as {{"model": "resnet200"}}, got a {type(found).__name__}')
    return found


def _entries(where: str, lines: Iterable[str]) -> dict[str, str]:
    """Read ``name: value``; a line that begins with a space goes on with the one before."""
    found: dict[str, str] = {}
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#") or line.strip() == "---":
            continue
        name, colon, value = line.partition(":")
        if line[0].isspace() and found:
            last = list(found)[-1]
            found[last] = f"{found[last]} {line.strip()}".strip()
        elif colon and name.strip():
            if (first := lines_of.setdefault(name.strip(), number)) != number:
                raise FileError(
                    f"{where}: line {number}: expected each name once; {name.strip()!r} is in line {first} too"
                )
            found[name.strip()] = value.strip().strip("\"'")
        else:
            raise FileError(f"{where}: line {number}: expected 'name: value', got {line[:40]!r}")
    return found


def _parsed(where: str, text: str, *, once: bool = False) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if once and names.count(name) > 1]:
            raise FileError(f"{where}: expected each name once; {twice[0]!r} is there twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: not valid JSON: {error}") from None


def _ending(given: str) -> str:
    return as_path(given).suffix.lower()
