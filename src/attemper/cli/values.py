"""Values of options, read from their text or from small files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from typing import Any

from attemper._paths import as_path
from attemper.calibrators import Calibrator
from attemper.errors import FileError, InputError
from attemper.io.reading import read_lines

NOT_PARAMS = ("labels", "noise")  # --noisy and --noise


def check_noise(noisy: bool, noise: str | None) -> None:
    """Refuse --noise without --noisy."""
    if noise is not None and not noisy:
        raise InputError(f"--noise {noise} describes how labels go wrong; add --noisy")


def parameters(given: Sequence[str], calibrator: type[Calibrator]) -> dict[str, Any]:
    """Read NAME=VALUE, values as in JSON or as plain text."""
    known = [name for name in calibrator.own_params() if name not in NOT_PARAMS]
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise InputError(
                f"-p {text}: expected NAME=VALUE; {calibrator.method} has {', '.join(known) or 'no parameters'}"
            )
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def names_listed(text: str) -> list[str]:
    """Read names with commas between.

    >>> names_listed("ts, bayes")
    ['ts', 'bayes']
    """
    return [name.strip() for name in text.split(",")]


def method_names(methods: str | None) -> list[str] | None:
    """Read a list of methods; None: all of them."""
    return None if methods is None else names_listed(methods)


def column_list(given: str | None) -> list[int | str] | None:
    """Read a list of columns: what is a whole number is an int, everything else a name."""
    if given is None:
        return None
    return [int(part) if re.fullmatch("-?[0-9]{1,18}", part) else part for part in names_listed(given)]


def class_names(given: str | None) -> list[str] | None:
    """Read names from a list or from a file."""
    if given is None:
        return None
    return names_listed(given) if "," in given else [name for name, _ in described_classes(given)]


def class_descriptions(given: str | None) -> dict[str, str]:
    """Read what the names stand for, where a file has that."""
    return {} if given is None or "," in given else {name: text for name, text in described_classes(given) if text}


def described_classes(given: str) -> list[tuple[str, str]]:
    """Read names of classes and their descriptions, which may be empty.

    A .csv file has a name and a description a line, with or without the header ``name,description``; a .json file an
    object, or a list of names. Any other file has a name a line.
    """
    lines = read_lines(as_path(given))
    extension = as_path(given).suffix.lower()
    if extension == ".json":
        found = _json(given, lines)
        return [(str(name), str(found[name]) if isinstance(found, dict) else "") for name in found]
    if extension != ".csv":
        return [(line.strip(), "") for line in lines if line.strip()]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    rows = rows[1:] if rows and [cell.lower() for cell in rows[0][1:]] == ["description"] else rows
    return [(row[0], ", ".join(row[1:])) for row in rows]


def model_card(given: Sequence[str]) -> dict[str, Any]:
    """Read the entries of a model card: NAME=VALUE, or .json files; what comes later wins, also if it is empty."""
    card: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        entries = {name: value} if equals else _json(one, read_lines(as_path(one)))
        if not isinstance(entries, dict):
            raise FileError(f'{one}: expected a JSON object such as {{"model": "resnet200"}}')
        card |= entries
    return card


def class_shares(given: str) -> list[float] | dict[str, float]:
    """Read shares of the classes: numbers or NAME=SHARE with commas between, or a .json file.

    >>> class_shares("0.7,0.3"), class_shares("cat=0.7,dog=0.3")
    ([0.7, 0.3], {'cat': 0.7, 'dog': 0.3})
    """
    if "," not in given:
        found: Any = _json(given, read_lines(as_path(given)))
        return found  # type: ignore[no-any-return]
    parts = [part.rpartition("=") for part in names_listed(given)]
    try:
        if all(equals for _, equals, _ in parts):
            return {name.strip(): float(share) for name, _, share in parts}
        return [float(share) for _, _, share in parts]
    except ValueError:
        raise InputError(f"{given}: expected shares such as 0.7,0.3 or cat=0.7,dog=0.3", param="priors") from None


def _json(given: str, lines: Sequence[str]) -> dict[str, Any] | list[Any]:
    try:
        found = json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        raise FileError(f"{given}: not valid JSON: {error}") from None
    if not isinstance(found, dict | list):
        raise FileError(f"{given}: expected a JSON object or list")
    return found
