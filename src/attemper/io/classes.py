"""Which columns of files are classes, and what they are called; files of one data set must agree."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from attemper._checks import same_classes
from attemper.data.columns import header_classes
from attemper.errors import AttemperError, InputError, listed, warn
from attemper.io.reading import Reader
from attemper.io.spec import InputSpec

__all__ = ["check_alike", "check_numbers", "check_own_names", "classes_of_arrays", "classes_of_headers", "n_taken"]

CLASS_NAMES = "class_names"  # an array that names the columns


def classes_of_headers(reader: Reader) -> tuple[str, ...] | None:
    """Names of the classes: the headers of a table whose labels are such names."""
    if reader.columns is None or len(reader.columns) < 2:
        return None
    return header_classes(reader.columns, reader.first_label)


def classes_of_arrays(readers: Sequence[Reader], spec: InputSpec) -> tuple[str, ...] | None:
    """Names of the classes: the array ``class_names``, where a file has one; several files must agree."""
    own = {reader.path: names for reader in readers if (names := _own_names(reader))}
    if not own:
        return None
    path, names = next(iter(own.items()))
    for other, others in own.items():
        if others != names:
            raise InputError(
                f"{other}: its class_names are {listed(others)}, but those of {path} are {listed(names)}; the files of "
                "one data set must have the same classes in the same order"
            )
    columns = [column for column in spec.columns or () if isinstance(column, int)]
    if columns and max(columns) < len(names):
        names = tuple(names[column] for column in columns)
    if names == tuple(map(str, range(len(names)))):
        return None  # the numbers of the columns
    return names


def _own_names(reader: Reader) -> tuple[str, ...]:
    """Names of the classes that a file brings along; none, and a warning, where they cannot be used."""
    try:
        names = tuple(map(str, reader.names(CLASS_NAMES) or ()))
        problem = "" if len(set(names)) == len(names) else "a name is there twice"
        if names and len(names) != max(2, reader.n_classes):
            problem = f"it has {len(names)} names for {max(2, reader.n_classes)} classes"
    except AttemperError as error:
        names, problem = (), str(error).removeprefix(f"{reader.path}: ").rstrip(".")
    if problem:
        warn(
            f"{reader.path}: its array {CLASS_NAMES!r} is not used: {problem}. Use "
            f"classes=[…] for the names of the classes."
        )
        return ()
    return names


def check_numbers(reader: Reader, spec: InputSpec) -> None:
    """Check the columns that are taken out of an array, which has numbers for them; a table has chosen by itself."""
    names = [column for column in spec.columns or () if isinstance(column, str)]
    if reader.columns is None and names:
        raise InputError(
            f"{reader.path}: columns: there is no column {names[0]!r}: the columns of an "
            f"array have numbers, 0 to {reader.n_classes - 1}. Use these.",
            param="columns",
        )
    if reader.columns is None:
        try:
            spec.checked_columns(reader.n_classes)
        except InputError as error:
            raise InputError(f"{reader.path}: {error}") from None


def n_taken(reader: Any, spec: InputSpec | None) -> int:
    """K: how many columns of a reader are classes."""
    chosen = None if spec is None or reader.columns is not None else spec.columns
    return int(reader.n_classes) if chosen is None else len(chosen)


def check_own_names(readers: Sequence[Reader], classes: tuple[str, ...]) -> None:
    """Refuse files whose own names of the classes stand in another order."""
    for reader in readers:
        names: tuple[str, ...] = ()
        with suppress(AttemperError):  # an array that cannot be used, beside names that can
            names = tuple(map(str, reader.names(CLASS_NAMES) or ()))
        if names != classes and set(names) == set(classes):
            raise InputError(
                f"its class_names are {listed(names)}, but the classes are {listed(classes)}; expected the same order"
            )


def check_alike(readers: Sequence[Any], spec: InputSpec | None = None) -> None:
    """Raise an error if files, with path, n_classes and columns, cannot be parts of one data set."""
    first = readers[0]
    for reader in readers[1:]:
        same_classes(n_taken(first, spec), n_taken(reader, spec), of=str(first.path), where=str(reader.path))
    tables = [reader for reader in readers if reader.columns is not None]
    for reader in tables[1:]:
        pairs = zip(tables[0].columns or (), reader.columns or ())
        for k, (expected, got) in enumerate(pairs):
            if expected != got:
                raise InputError(
                    f"{reader.path}: class {k} is column {got!r}, but in {tables[0].path} it is "
                    f"{expected!r}; the files of one data set must have the same columns in the same order"
                )
