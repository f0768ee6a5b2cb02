"""Two classes in one column: the log-odds, or the probability, of the second class, and labels that suit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np

from attemper.data.arrays import RowName, RowView, as_matrix, as_numbers, is_foreign, numbered, on_gpu, to_numpy
from attemper.errors import InputError

__all__ = ["as_columns", "binary_names", "is_one_column"]

ROOM = 1e-6  # what rounding in single precision may add to 1


def as_columns(values: Any, what: str, name: RowName | None = None) -> tuple[Any, bool]:
    """Check that ``values`` is N×K; one column of two classes, N or N×1, becomes N×2.

    Return the matrix, and whether it was one column.

    One column is the log-odds, the probability or the log-probability of the second class: [0, z], [1 − p, p].

    >>> as_columns([1.5, -2.0], "logits")[0]
    array([[ 0. ,  1.5],
           [ 0. , -2. ]])
    >>> as_columns([[0.25], [1.0]], "probabilities")[0]
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    values = as_numbers(values, what)
    if tuple(values.shape) == (0,):
        raise InputError(f"{what}: 0 sample(s) (shape=(0,)) while a minimum of 1 is required")
    if not is_one_column(values) or 0 in values.shape:
        return as_matrix(values, what), False
    column = values if values.ndim == 1 else values[:, 0]
    xp = array_api_compat.array_namespace(column)
    if what == "logits":
        other = xp.zeros_like(column)
    else:
        _check_range(column, what, name or numbered(), xp)
        most = 1.0 if what == "probabilities" else 0.0
        column = xp.where(column > most, xp.full_like(column, most), column)  # by rounding
        with np.errstate(divide="ignore"):
            other = 1 - column if what == "probabilities" else xp.log(-xp.expm1(column))
    return xp.stack([other, column], axis=1), True


def is_one_column(values: Any) -> bool:
    """Whether this array has one number for each sample: N or N×1."""
    shape = tuple(getattr(values, "shape", ()))
    return not isinstance(values, RowView) and len(shape) in (1, 2) and shape[1:] in ((), (1,))


def binary_names(
    labels: Any, classes: Sequence[Any] | None, n_classes: int, *, one_column: bool
) -> Sequence[Any] | None:
    """Return the names of the classes; None where labels are column numbers.

    For one column of scores, labels may be −1 and 1.

    >>> binary_names([-1, 1, 1], None, 2, one_column=True)
    [-1, 1]
    """
    if classes is not None or labels is None:
        return classes
    return _signs(labels) if one_column and n_classes == 2 else None


def _signs(labels: Any) -> list[Any] | None:
    """Return −1 and 1, if labels are those."""
    if on_gpu(labels) and int(labels.min()) >= 0:
        return None
    try:
        array = to_numpy(labels) if is_foreign(labels) else np.asarray(labels)
    except ValueError:  # of several lengths, refused later
        return None
    if array.dtype == object and all(type(label) in (int, float) for label in array.ravel().tolist()):
        array = array.astype(np.float64)
    if array.dtype.kind not in "if" or array.size == 0 or not np.isin(array, (-1, 1)).all() or (array == 1).all():
        return None
    return [-1, 1]


def _check_range(column: Any, what: str, name: RowName, xp: Any) -> None:
    """Refuse what is no probability: the other column would only hide which number it was."""
    low, high = (0.0, 1 + ROOM) if what == "probabilities" else (-float("inf"), ROOM)
    fine = (column >= low) & (column <= high)  # false for NaN too
    if bool(xp.all(fine)):
        return
    row = int(np.flatnonzero(~to_numpy(fine))[0])
    got = to_numpy(column)[row]
    expected = "probability, from 0 to 1," if what == "probabilities" else "log-probability, at most 0,"
    logits = 'input="logits" or Scores.from_logits'
    hint = "" if np.isnan(got) else f" If these are logits (log-odds), use {logits}."
    raise InputError(f"{what}: {name(row)} is {got}; expected the {expected} of the second class.{hint}")
