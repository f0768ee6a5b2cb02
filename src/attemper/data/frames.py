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
from attemper.data.columns import ColumnQuery, check_columns, choose_columns, header_classes, not_numbers
from attemper.data.named_labels import names_or_numbers
from attemper.errors import InputError, InputTypeError, require

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
    """The columns of a table: their names as text, and how to get one."""

    names: list[str]
    get: Callable[[str], Any]


def arrays_of(
    frame: Any,
    labels: Any,
    sample_weight: Any,
    groups: Any = None,
    clusters: Any = None,
    *,
    columns: str | Sequence[Any] | None,
    classes: Sequence[Any] | None,
    input: str,
) -> TableArrays:
    """Take logits, labels and weights out of a table; ``input`` is the usual name of a column of lists."""
    table = _as_frame(frame)
    query = ColumnQuery(
        label=labels if isinstance(labels, str) else None,
        weight=sample_weight if isinstance(sample_weight, str) else None,
        group=groups if isinstance(groups, str) else None,
        cluster=clusters if isinstance(clusters, str) else None,
        prefix=columns if isinstance(columns, str) else None,
        columns=None if columns is None or isinstance(columns, str) else tuple(map(_column_name, columns)),
        classes=None if classes is None else tuple(map(str, classes)),
        input=input,
    )
    lists = _lists(table, query)
    if lists is not None:
        check_columns(WHERE, table.names, query)
        values, names = lists, None
    else:
        names = choose_columns(WHERE, table.names, query)
        values = np.column_stack(_numbers({name: _array(table.get(name)) for name in names}))
    weights = sample_weight
    if query.weight is not None:
        [weights] = _numbers({query.weight: _array(table.get(query.weight))})
    groups, clusters = (
        given if column is None else _array(table.get(column))
        for given, column in ((groups, query.group), (clusters, query.cluster))
    )
    found = TableArrays(values, labels, weights, groups, clusters, names, query.classes)
    return found if query.label is None else _with_labels(found, table, query.label)


def _with_labels(found: TableArrays, table: _Frame, label: str) -> TableArrays:
    """Read the labels, and find out whether they are names of classes or numbers of columns."""
    y, classes, columns = _array(table.get(label)), found.classes, found.columns
    if y.ndim != 1:
        return replace(found, labels=y, classes=None)
    _reject_null(label, y)
    if classes is None and len(columns or ()) > 1 and len(y):
        classes = header_classes(columns or (), y[:1].tolist()[0])
    y, looked_up = names_or_numbers(y, numbered(), classes)
    return replace(found, labels=y, classes=looked_up)


def _as_frame(frame: Any) -> _Frame:
    """See any kind of table as named columns."""
    if isinstance(frame, str | os.PathLike):
        raise InputTypeError(f"{WHERE}: expected a table in memory, got a path; use attemper.io.open_scores({frame!r})")
    if isinstance(frame, Mapping):
        splits = [str(key) for key, value in frame.items() if hasattr(value, "column_names")]
        if splits:
            raise InputTypeError(f"{WHERE}: expected one table, got several; use one of them, such as [{splits[0]!r}]")
        return _frame(list(frame), lambda key: frame[key])
    if hasattr(frame, "with_format") and hasattr(frame, "select_columns"):
        return _dataset(frame)
    if hasattr(frame, "column_names") and hasattr(frame, "column"):  # Arrow
        return _frame(list(frame.column_names), frame.column)
    if hasattr(frame, "collect") and not hasattr(frame, "to_numpy"):
        raise InputTypeError(f"{WHERE}: got a {type(frame).__name__}, which holds no rows yet. Use .collect().")
    if hasattr(frame, "columns") and hasattr(frame, "to_numpy") and hasattr(frame, "__getitem__"):  # pandas, polars
        return _frame(list(frame.columns), lambda key: frame[key])
    if hasattr(frame, "__arrow_c_stream__"):
        return _as_frame(require("pyarrow", extra="parquet", why="to read such tables").table(frame))
    raise InputTypeError(
        f"{WHERE}: expected a DataFrame of pandas or polars, an Arrow table, a dataset or a dict of columns, got "
        f"{type(frame).__name__}. Use Scores.from_logits for an array."
    )


def _frame(keys: list[Any], get: Callable[[Any], Any]) -> _Frame:
    """Name columns by text; two keys such as 1 and "1" are found to be the same name later on."""
    by_name = {str(key): key for key in keys}
    return _Frame([str(key) for key in keys], lambda name: get(by_name[name]))


def _dataset(frame: Any) -> _Frame:
    """See a dataset of Hugging Face through Arrow, in the order that select or shuffle gave it."""
    if getattr(frame, "column_names", None) is None or not hasattr(frame, "__len__"):
        raise InputTypeError(f"{WHERE}: got a {type(frame).__name__}, which is a stream. Load the dataset into memory.")

    def get(name: str) -> Any:
        return frame.select_columns([name]).with_format("arrow")[:].column(name)

    return _Frame(list(frame.column_names), get)


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


def _numbers(arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Columns of numbers, equally long."""
    found = {name: _as_numbers(array) for name, array in arrays.items()}
    for name, array in found.items():
        if array is None:
            held = "lists" if _is_nested(arrays[name]) else "text" if _has_text(arrays[name]) else arrays[name].dtype
            raise not_numbers(WHERE, name, f"holds {held}")
    if len({len(array) for array in arrays.values()}) > 1:
        raise InputError(f"{WHERE}: its columns have several lengths; expected as many rows in each")
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


def _lists(table: _Frame, query: ColumnQuery) -> NDArray[Any] | None:
    """Read a column of lists, one number per class: the one named, or the one that is usually called so."""
    name = query.input if query.prefix is None else query.prefix
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
