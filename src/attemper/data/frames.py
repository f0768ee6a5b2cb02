"""Tables in memory: pandas, polars, Arrow, Hugging Face datasets, dicts of columns; their columns as NumPy arrays.

Nothing is imported for that: each library is recognised by what its tables can do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import is_foreign, numbered, to_numpy
from attemper.data.columns import (
    ColumnQuery,
    RowNumbers,
    check_columns,
    choose_columns,
    header_classes,
    not_numbers,
    without_ids,
)
from attemper.data.named_labels import names_or_numbers, reject_numbers
from attemper.data.suspects import reject_extra_probs, warn_of_suspects
from attemper.errors import InputError, InputTypeError, collected_warnings, require, warn

__all__ = ["TableArrays", "arrays_of"]

WHERE = "table"


@dataclass(frozen=True)
class TableArrays:
    """What was taken out of a table."""

    values: NDArray[Any]
    labels: Any
    weights: Any
    groups: Any
    clusters: Any
    columns: tuple[str, ...] | None  # names of the columns of logits; None for a column of lists
    classes: tuple[str, ...] | None  # in which labels are to be looked up; None where they are column numbers


@dataclass(frozen=True)
class _Frame:
    """The columns of a table: their names as text, how to get one, and names of classes that a column has."""

    names: list[str]
    get: Callable[[str], Any]
    class_names: Callable[[str], Sequence[str] | None] = lambda name: None


def arrays_of(
    frame: Any,
    labels: Any,
    sample_weight: Any,
    groups: Any = None,
    clusters: Any = None,
    *,
    columns: str | Sequence[Any] | None,
    classes: Sequence[Any] | None,
    labels_are: str | None,
    pos_label: Any,
    values_key: str,
) -> TableArrays:
    """Take logits, labels and weights out of a table; ``values_key`` is the usual name of a column of lists."""
    table = _as_frame(frame)
    query = ColumnQuery(
        label=labels if isinstance(labels, str) else None,
        weight=sample_weight if isinstance(sample_weight, str) else None,
        group=groups if isinstance(groups, str) else None,
        cluster=clusters if isinstance(clusters, str) else None,
        prefix=columns if isinstance(columns, str) else None,
        columns=None if columns is None or isinstance(columns, str) else tuple(map(_column_name, columns)),
        classes=None if classes is None else tuple(map(str, classes)),
        in_memory=True,
    )
    lists = _lists(table, query, values_key)
    if lists is not None:
        check_columns(WHERE, table.names, query)
        values, names = lists, None
    else:
        chosen = choose_columns(WHERE, table.names, query)
        names = chosen.logits
        values = np.column_stack(_numbers({name: _array(table.get(name)) for name in names}, query))
        if not chosen.named and len(values):
            RowNumbers(WHERE, names, query).check(values)
            _check_suspects(table, names, values, query, probs=values_key == "probs")
    weights = sample_weight
    if query.weight is not None:
        [weights] = _numbers({query.weight: _array(table.get(query.weight))}, query)
    groups, clusters = (
        given if column is None else _array(table.get(column))
        for given, column in ((groups, query.group), (clusters, query.cluster))
    )
    found = TableArrays(values, labels, weights, groups, clusters, names, query.classes)
    return found if query.label is None else _with_labels(found, table, query.label, labels_are, pos_label)


def _check_suspects(
    table: _Frame, names: Sequence[str], values: NDArray[Any], query: ColumnQuery, *, probs: bool
) -> None:
    """Warn of columns that are hardly classes; of probabilities, refuse one more than sum to 1."""
    if probs:
        reject_extra_probs(WHERE, names, values, query)
        return
    labels = None if query.label is None else _array(table.get(query.label)).tolist()
    classes = header_classes(names, labels[0]) if labels else None
    there = set(map(str, labels)) if labels and classes else set()
    with collected_warnings() as found:
        warn_of_suspects(names, values, query, None if classes is None else [name in there for name in classes])
    for warning in found:
        warn(f"{WHERE}: {warning}", type(warning))


def _with_labels(found: TableArrays, table: _Frame, label: str, labels_are: str | None, pos_label: Any) -> TableArrays:
    """Read the labels, and find out whether they are names of classes or numbers of columns."""
    y, classes, columns = _array(table.get(label)), found.classes, found.columns
    if y.ndim != 1:
        return replace(found, labels=y, classes=None)
    _reject_null(label, y)
    own = table.class_names(label)
    if own is not None and y.dtype.kind in "iu" and len(y) and y.min() >= 0 and y.max() < len(own):
        named = classes or (None if columns is None else header_classes(columns, own[0]))
        if named is not None and set(own) == set(named):  # else the order of the columns is that of the names
            y, classes = np.array(own, dtype=object)[y], named
    if classes is None and len(columns or ()) > 1 and len(y) and labels_are in (None, "names") and pos_label is None:
        classes = header_classes(columns or (), y[:1].tolist()[0])
    y, looked_up = names_or_numbers(
        y,
        numbered(),
        classes=classes,
        labels_are=labels_are,
        pos_label=pos_label,
        columns=columns,
        one_column=found.values.shape[1] == 1,
    )
    if looked_up is not None:
        reject_numbers(y, numbered(), looked_up, labels_are)
    return replace(found, labels=y, classes=looked_up)


def _as_frame(frame: Any) -> _Frame:
    """See any kind of table as named columns."""
    if isinstance(frame, str | os.PathLike):
        raise InputTypeError(f"{WHERE}: expected a table in memory, got a path; use attemper.io.open_scores({frame!r})")
    if isinstance(frame, Mapping):
        splits = [str(key) for key, value in frame.items() if hasattr(value, "column_names")]
        if splits:
            raise InputTypeError(f"{WHERE}: expected one table, got several; use one of them, such as [{splits[0]!r}]")
        return _frame(frame, list(frame), lambda key: frame[key])
    if getattr(getattr(frame, "dtype", None), "names", None):  # a structured array of NumPy
        return _frame(frame, list(frame.dtype.names), lambda key: frame[key])
    if hasattr(frame, "with_format") and hasattr(frame, "select_columns"):
        return _dataset(frame)
    if hasattr(frame, "column_names") and hasattr(frame, "column"):  # Arrow
        return _frame(frame, list(frame.column_names), frame.column)
    if hasattr(frame, "collect") and not hasattr(frame, "to_numpy"):
        raise InputTypeError(f"{WHERE}: got a {type(frame).__name__}, which holds no rows yet. Use .collect().")
    if hasattr(frame, "columns") and hasattr(frame, "to_numpy") and hasattr(frame, "__getitem__"):  # pandas, polars
        return _frame(frame, list(frame.columns), lambda key: frame[key])
    if hasattr(frame, "__arrow_c_stream__"):
        return _as_frame(require("pyarrow", extra="parquet", why="to read such tables").table(frame))
    raise InputTypeError(
        f"{WHERE}: expected a DataFrame of pandas or polars, an Arrow table, a dataset or a dict of columns, got "
        f"{type(frame).__name__}. Use Scores.from_logits for an array."
    )


def _frame(frame: Any, keys: list[Any], get: Callable[[Any], Any]) -> _Frame:
    """Name columns by text; two keys such as 1 and "1" are found to be the same name later on."""
    by_name = {str(key): key for key in keys}
    return _Frame([str(key) for key in keys], lambda name: get(by_name[name]))


def _dataset(frame: Any) -> _Frame:
    """See a dataset of Hugging Face through Arrow, in the order that select or shuffle gave it."""
    if getattr(frame, "column_names", None) is None or not hasattr(frame, "__len__"):
        raise InputTypeError(f"{WHERE}: got a {type(frame).__name__}, which is a stream. Load the dataset into memory.")

    def get(name: str) -> Any:
        return frame.select_columns([name]).with_format("arrow")[:].column(name)

    def class_names(name: str) -> Sequence[str] | None:
        feature = (getattr(frame, "features", None) or {}).get(name)
        return getattr(feature, "names", None) if hasattr(feature, "int2str") else None

    return _Frame(list(frame.column_names), get, class_names)


def _column_name(column: Any) -> str | int:
    return column if isinstance(column, str) or not hasattr(column, "__index__") else int(column)


def _array(column: Any) -> NDArray[Any]:
    """Bring a column to NumPy; entries that are missing become NaN, or None among text."""
    if is_foreign(column):
        return to_numpy(column)
    if hasattr(column, "to_pylist"):  # Arrow
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    if not isinstance(column, np.ndarray):
        items = list(column)
        try:
            column = np.asarray(items)
        except ValueError:  # lists of several lengths
            column = np.empty(len(items), dtype=object)
            column[:] = items
    if column.dtype.kind == "T":  # NumPy's own text
        return np.asarray(column.astype(object))
    return np.asarray(column)


def _numbers(arrays: dict[str, NDArray[Any]], query: ColumnQuery) -> list[NDArray[Any]]:
    """Columns of numbers; an error names the first that is none, and those that are."""
    found = {name: _as_numbers(array) for name, array in arrays.items()}
    numbers = {name: array for name, array in found.items() if array is not None}
    good = list(numbers)
    for name, array in found.items():
        if array is None:
            held = "lists" if _is_nested(arrays[name]) else "text" if _has_text(arrays[name]) else arrays[name].dtype
            raise not_numbers(WHERE, name, f"holds {held}", without_ids(numbers), query)
    lengths = {name: len(array) for name, array in arrays.items()}
    odd = next((name for name, n in lengths.items() if n != lengths[good[0]]), None)
    if odd is not None:
        raise InputError(
            f"{WHERE}: column {odd!r} has {lengths[odd]} rows, column {good[0]!r} has {lengths[good[0]]}; expected as "
            "many in each"
        )
    return [array for array in found.values() if array is not None]


def _as_numbers(array: NDArray[Any]) -> NDArray[Any] | None:
    if array.ndim != 1:
        return None
    if array.dtype.kind in "fiu" or "float" in array.dtype.name:
        return array
    if array.dtype.kind == "O" and not _has_text(array):
        try:
            return np.array([np.nan if item is None else float(item) for item in array.tolist()])
        except (TypeError, ValueError, OverflowError):
            return None
    return None


def _has_text(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "US" or any(isinstance(item, str | bytes) for item in array.reshape(-1)[:1000].tolist())


def _is_nested(array: NDArray[Any]) -> bool:
    """Whether the entries are lists or arrays."""
    if array.ndim == 2:
        return True
    first = next((item for item in array[:1000] if item is not None), None) if array.dtype.kind == "O" else None
    return isinstance(first, list | tuple | np.ndarray)


def _lists(table: _Frame, query: ColumnQuery, values_key: str) -> NDArray[Any] | None:
    """Read a column of lists, one number per class: the one named, or the one that is usually called so."""
    name = values_key if query.prefix is None else query.prefix
    if query.columns is not None or name not in table.names:
        return None
    column = _array(table.get(name))
    if not _is_nested(column):
        return None
    if column.ndim == 2:
        return column
    _reject_null(name, column)
    rows = [np.asarray(row) for row in column]
    odd = next((i for i, row in enumerate(rows) if row.shape != rows[0].shape), None)
    if odd is not None:
        raise InputError(
            f"{WHERE}: column {name!r}: row {odd} holds {rows[odd].size} numbers, but row 0 holds {rows[0].size}; "
            "every row needs one number per class"
        )
    values = np.stack(rows)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise InputError(
            f"{WHERE}: column {name!r}: expected lists of numbers, got {values.dtype} in {values.ndim - 1}D"
        )
    return values


def _reject_null(name: str, column: NDArray[Any]) -> None:
    items = column if column.dtype.kind == "O" else ()
    row = next((i for i, item in enumerate(items) if item is None), None)
    if row is not None:
        raise InputError(f"{WHERE}: column {name!r}: row {row} is null; fill in or drop that row")
