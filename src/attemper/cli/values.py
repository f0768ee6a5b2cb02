"""Values of options, read from their text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from attemper._paths import as_path
from attemper.calibrators import Calibrator
from attemper.cli.texts import described_classes
from attemper.errors import FileError, InputError
from attemper.io.reading import read_lines

# Parameters of methods that have an option of their own.
OWN_OPTIONS = {
    "labels": "--noisy",
    "noise": "--noise",
    "t_range": "--t-range",
    "theta": "--theta",
    "loss": "--loss",
}


def check_noise(noisy: bool, noise: str | None) -> None:
    """Refuse --noise without --noisy."""
    if noise is not None and not noisy:
        raise InputError(f"--noise {noise} describes how labels go wrong; add --noisy")


def parameters(given: Sequence[str], calibrator: type[Calibrator]) -> dict[str, Any]:
    """Read NAME=VALUE, values as in JSON or as plain text."""
    known = [name for name in calibrator.own_params() if name not in OWN_OPTIONS]  # others have an option of their own
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name in OWN_OPTIONS and name in calibrator.own_params():
            raise InputError(f"-p {text}: there is an option for that: {OWN_OPTIONS[name]}")
        if not equals or name not in known:
            raise InputError(
                f"-p {text}: expected NAME=VALUE; {calibrator.method} knows {', '.join(known) or 'no parameters'}"
            )
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def method_names(methods: str | None) -> list[str] | None:
    """Read a list of methods; None: all of them."""
    return None if methods is None else names_listed(methods)


def names_listed(text: str) -> list[str]:
    """Read names with commas between.

    >>> names_listed("ts, bayes")
    ['ts', 'bayes']
    """
    return [name.strip() for name in text.split(",")]


def class_names(given: str | None) -> list[str] | None:
    """Read names from a list or from a file."""
    if given is None:
        return None
    if "," in given:
        return names_listed(given)
    return [name for name, _ in described_classes(given)]


def class_descriptions(given: str | None) -> dict[str, str]:
    """Read what the names stand for, where a file has that."""
    return {} if given is None or "," in given else {name: text for name, text in described_classes(given) if text}


def column_list(given: str | None) -> list[int | str] | None:
    """Read a list of columns: what is a whole number is an int, everything else a name."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if not all(parts):
        raise InputError(f"--columns {given}: expected columns with commas between, such as A,B,C,D or 317,418,356")
    return [int(part) if re.fullmatch("-?[0-9]{1,18}", part) else part for part in parts]


def class_shares(flag: str, given: str) -> list[float] | dict[str, float]:
    """Read shares of the classes: numbers, NAME=SHARE with commas between, or a file.

    >>> class_shares("--priors", "0.7,0.3"), class_shares("--priors", "cat=0.7,dog=0.3")
    ([0.7, 0.3], {'cat': 0.7, 'dog': 0.3})
    """
    if "," not in given:
        try:
            text = "\n".join(read_lines(as_path(given)))
        except FileError as error:
            raise FileError(f"{flag} {given}: expected shares such as 0.7,0.3 or a readable file; {error}") from None
        if given.lower().endswith(".json"):
            return _shares_in_json(flag, given, text)
        lines = [line.rpartition(",") for line in text.splitlines() if line.strip()]
        if lines and not re.match(r"\s*[-+.0-9]", lines[0][2]):
            lines = lines[1:]  # a header
        if all(comma for _, comma, _ in lines):
            return {name.strip().strip('"'): _number(flag, share) for name, _, share in lines}
        return [_number(flag, share) for _, _, share in lines]
    parts = names_listed(given)
    if all("=" in part for part in parts):
        return {part.rpartition("=")[0].strip(): _number(flag, part.rpartition("=")[2]) for part in parts}
    return [_number(flag, part) for part in parts]


def _shares_in_json(flag: str, given: str, text: str) -> list[float] | dict[str, float]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{flag} {given}: not valid JSON: {error}") from None
    values = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise FileError(f"{flag} {given}: expected a list of numbers, or an object of them by class name")
    return found  # type: ignore[no-any-return]


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{flag}: expected a share such as 0.2, got {text.strip()!r}") from None
