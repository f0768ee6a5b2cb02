"""Labels and scores of many labels, N×L, checked: errors name the row and the label.

An entry is 1 where the sample has the label, 0 where it does not, and NaN where nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction
from attemper._typing import Floats
from attemper.data.arrays import as_numbers, is_foreign, log_probs, to_numpy
from attemper.errors import InputError, InputTypeError

__all__ = [
    "MAX_SCORE",
    "Uncertain",
    "as_label_probs",
    "as_label_scores",
    "check_columns",
    "label_matrix",
    "label_names",
    "unit_target",
]

Uncertain = Literal["unknown", "positive", "negative"] | float | None
STANDS_FOR = {"unknown": np.nan, "positive": 1.0, "negative": 0.0}
MAX_SCORE, MAX_HALF = 1e30, 65504.0


def label_matrix(
    labels: Any,
    *,
    mask: Any = None,
    uncertain: Uncertain = None,
    names: Sequence[Any] | None = None,
    shape: tuple[int, int] | None = None,
) -> Floats:
    """Check multi-label data, and return the labels as N×L numbers, NaN if unknown.

    Parameters
    ----------
    labels : array or data frame of shape (N, L)
        1, 0, True, False; NaN (or a missing entry of a data frame, or of a masked array) where it is not known. Numbers
        between 0 and 1 are soft labels: the share of annotators who see the label.
    mask : array of shape (N, L), optional
        1 where an entry is known, 0 where it does not count.
    uncertain : "unknown", "positive", "negative" or float
        What −1 stands for, as in CheXpert's files. A float is a soft label, such as 0.5. By default −1 is an error.
    names : names of the labels, for errors
    shape : the shape to expect

    Examples
    --------
    >>> label_matrix([[1, 0], [np.nan, -1]], uncertain="positive")
    array([[ 1.,  0.],
           [nan,  1.]])
    """
    y = _numbers(labels)
    if y.ndim != 2 or 0 in y.shape or (shape is not None and y.shape != shape):
        expected = "N×L, one row for each sample and one column for each label" if shape is None else f"{shape}"
        hint = " For one label use labels[:, None]." if y.ndim == 1 else ""
        raise InputError(f"labels: expected shape {expected}, got {y.shape}.{hint}")
    if mask is not None:
        y = np.where(_mask(mask, y.shape), y, np.nan)
    if uncertain is not None:
        y = np.where(y == -1, _stands_for(uncertain), y)
    bad = np.argwhere(~(np.isnan(y) | ((y >= 0) & (y <= 1))))
    if len(bad):
        row, column = bad[0]
        wrong = f"labels: row {row}, {_named(names, column)}: expected 0, 1 or NaN for unknown, got {y[row, column]:g}."
        if y[row, column] == -1:
            how = "uncertain='unknown', 'positive', 'negative' or a soft label such as uncertain=0.5"
            raise InputError(f"{wrong} Use {how} for entries of -1.")
        raise InputError(f"{wrong} Use mask=… for entries that do not count.", param="mask")
    if not np.isin(y[~np.isnan(y)], (0, 1)).any() and not np.isnan(y).all() and not isinstance(uncertain, float):
        raise InputError(
            "labels: no entry is 0 or 1, so these are no labels. Check that labels and probabilities are not swapped."
        )
    return y


def _numbers(labels: Any) -> Floats:
    """Bring labels to doubles; what is missing or masked is NaN."""
    if hasattr(labels, "tocsr"):
        raise InputTypeError("labels: expected a dense array, got a sparse matrix. Use .toarray().")
    try:
        if isinstance(labels, np.ma.MaskedArray):
            return np.ma.filled(labels.astype(np.float64), np.nan)
        if is_foreign(labels):
            return to_numpy(labels).astype(np.float64)
        if hasattr(labels, "columns") and hasattr(labels, "astype"):  # pandas: its NA is no float
            return np.asarray(labels.astype("float64"))
        return np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"labels: {error}; expected an N×L array of 0, 1 and NaN") from None


def _mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    known = to_numpy(mask) if is_foreign(mask) else np.asarray(mask)
    if known.shape != shape or not np.isin(known, (0, 1)).all():
        raise InputError(
            f"mask: expected 1 (known) or 0 (does not count) of shape {shape}, got shape {known.shape}, dtype "
            f"{known.dtype}"
        )
    return known.astype(bool)


def _stands_for(uncertain: Any) -> float:
    if isinstance(uncertain, str):
        if uncertain not in STANDS_FOR:
            choices = ", ".join(map(repr, STANDS_FOR))
            raise InputError(f"uncertain={uncertain!r}: expected one of {choices}, or a number from 0 to 1")
        return STANDS_FOR[uncertain]
    return fraction("uncertain", uncertain, closed=True, such_as="0.5")


def unit_target(uncertain: Any) -> Any:
    """Read ``--uncertain``: a word, or a number."""
    try:
        return None if uncertain is None else float(uncertain)
    except ValueError:
        return uncertain


def label_names(given: Sequence[Any] | None, n_labels: int, *tables: Any) -> list[str]:
    """Names of the labels: those given, those of the columns of a table, or their numbers."""
    found = given
    for table in tables:
        own = getattr(table, "columns", None)
        if found is None and own is not None:
            found = list(own)
    names = [str(k) for k in range(n_labels)] if found is None else [str(name) for name in found]
    if len(names) != n_labels or len(set(names)) != n_labels:
        twice = next((name for name in names if names.count(name) > 1), None)
        what = f"{twice!r} twice" if len(names) == n_labels else f"{len(names)} names"
        raise InputError(f"label_names: expected {n_labels} names, each once, got {what}")
    return names


def check_columns(table: Any, other: Any, name: str, other_name: str) -> None:
    """Refuse data frames, or lists of names, with the same columns in another order.

    What all columns of one begin with, such as "prob_", makes no difference.
    """
    own, theirs = (_columns(part) for part in (table, other))
    if own is None or theirs is None or own == theirs or len(own) != len(theirs):
        return
    for a, b in ((own, theirs), (_without_prefix(own), _without_prefix(theirs))):
        if a != b and sorted(a) == sorted(b) and len(set(a)) == len(a):
            names = list(table.columns) if hasattr(table, "columns") else own
            order = [names[a.index(text)] for text in b]
            raise InputError(
                f"{name}: the columns are {list(own)}, those of {other_name} {list(theirs)}. Use {name}[{order}]."
            )


def check_classes(table: Any, classes: Any, name: str) -> None:
    """Refuse a data frame whose columns are the classes in another order."""
    if hasattr(table, "columns") and isinstance(classes, list | tuple | np.ndarray):
        check_columns(table, tuple(map(str, classes)), name, "the classes")


def _columns(table: Any) -> tuple[str, ...] | None:
    columns = table if isinstance(table, tuple) else getattr(table, "columns", None)
    return None if columns is None else tuple(map(str, columns))


def _without_prefix(names: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what all names begin with.

    >>> _without_prefix(("p_edema", "p_hernia"))
    ('edema', 'hernia')
    """
    pairs = enumerate(zip(min(names), max(names)))
    start = next((i for i, (a, b) in pairs if a != b), len(min(names)))
    return tuple(name[start:] for name in names)


def as_label_scores(scores: Any, names: Sequence[Any] | None = None) -> Any:
    """Check N×L log-odds, of any array library: finite numbers."""
    values = _matrix(scores, "logits")
    most = MAX_HALF if str(values.dtype).endswith("float16") and "bfloat16" not in str(values.dtype) else MAX_SCORE
    _check_range(values, -most, most, names, "logits", "a finite number")
    return values


def as_label_probs(
    probs: Any, names: Sequence[Any] | None = None, *, zeros_as: float | None = None, logs: bool = True
) -> Any:
    """Check N×L probabilities; return their logarithms, or what they are where no ``logs`` are wanted."""
    values = _matrix(probs, "probabilities")
    _check_range(values, 0.0, 1.0, names, "probabilities", "a number from 0 to 1")
    if not logs:
        return values
    if zeros_as is None and bool(array_api_compat.array_namespace(values).any((values == 0) | (values == 1))):
        p = to_numpy(values)
        row, column = np.argwhere((p == 0) | (p == 1))[0]
        raise InputError(
            f"probabilities: row {row}, {_named(names, column)} is {p[row, column]:g}: its log-odds are infinite. "
            f"Pass logits, or use zeros_as=1e-8 if it comes from rounding: 0 is "
            "then read as that, and 1 as 1 minus that.",
            param="zeros_as",
        )
    return log_probs(values, zeros_as)


def _matrix(values: Any, what: str) -> Any:
    values = as_numbers(values, what)
    if values.ndim != 2 or 0 in tuple(values.shape):
        hint = " For one label use x[:, None]." if values.ndim == 1 else ""
        raise InputError(
            f"{what}: expected shape N×L, one row for each sample and one column for each label, got "
            f"{tuple(values.shape)}.{hint}"
        )
    return values


def _check_range(values: Any, low: float, high: float, names: Sequence[Any] | None, what: str, expected: str) -> None:
    """Refuse numbers outside a range, and NaN; a tensor is looked at on its device."""
    xp = array_api_compat.array_namespace(values)
    if bool(xp.all((values >= low) & (values <= high))):
        return
    found = to_numpy(values).astype(np.float64)
    row, column = np.argwhere(~((found >= low) & (found <= high)))[0]
    raise InputError(f"{what}: row {row}, {_named(names, column)}: expected {expected}, got {found[row, column]:g}.")


def _named(names: Sequence[Any] | None, column: int) -> str:
    return f"label {column}" if names is None else f"label {str(names[column])!r}"
