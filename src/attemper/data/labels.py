"""Labels, weights and names of classes, checked; errors name the row and how to fix it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from attemper._typing import Floats, Labels
from attemper.data.arrays import RowName, is_foreign, numbered, on_gpu, reject_masked, to_numpy
from attemper.errors import InputError

__all__ = ["MOST_COUNTED", "as_labels", "as_names", "as_weights", "counted", "is_matrix"]

MAX_WEIGHT = 1e12
MOST_COUNTED = 12  # classes that a message lists
DROP_ROWS = "Drop those rows: keep = ~np.ma.getmaskarray(labels); logits[keep], labels[keep]."


def as_labels(
    labels: Any,
    n: int,
    n_classes: int,
    classes: Sequence[Any] | None = None,
    name: RowName | None = None,
    *,
    on_device: bool = False,
    one_column: bool = False,
) -> Any:
    """Labels as column numbers; names are looked up in ``classes``. Those on a GPU stay there if ``on_device``.

    ``one_column`` is whether the scores were one column, of two classes.
    """
    name = name or numbered()
    if on_device and classes is None and _are_columns(labels, n, n_classes):
        return labels.detach().long()
    reject_masked(labels, "labels", DROP_ROWS)
    by_name = "pass their names in column order, classes=[…], to the calibrator, the metric or Scores.from_logits"
    if one_column:
        by_name = "pass classes=[negative, positive] to the calibrator, the metric or Scores.from_logits"
    try:
        y = to_numpy(labels) if is_foreign(labels) else np.asarray(labels)
    except ValueError as error:
        raise InputError(f"labels: {error}; expected one label per row") from None
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; use labels.ravel()",
            DataConversionWarning,
            stacklevel=2,
        )
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(f"labels: expected one per row, shape ({n},); got shape {y.shape}")
    if len(y) != n:
        one = " One sample needs a row of its own, [[…]]." if one_column and len(y) == 1 else ""
        raise InputError(f"labels: {len(y)} labels for {n} rows of logits: inconsistent; give one label per row.{one}")
    if classes is not None:
        return _look_up(y, as_names(classes, n_classes), name)
    if y.dtype.kind not in "biuf":
        try:
            if y.dtype.kind in "cmM":
                raise TypeError("complex numbers and dates are no column numbers")
            y = y.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            items = y.tolist()
            row = next((i for i, item in enumerate(items) if not _is_number(item)), 0)
            raise InputError(
                f"labels: {name(row)} is {items[row]!r:.60}. Labels are column numbers 0 … {n_classes - 1}; for "
                f"names {by_name} (Unknown label type for a classifier otherwise)"
            ) from None
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y))
        if bad.size:
            raise InputError(
                f"labels: {name(bad[0])} is {y[bad[0]]}; Input y contains NaN or Input y contains infinity"
            )
        bad = np.flatnonzero(y != np.floor(y))
        if bad.size:
            raise InputError(
                f"labels: {name(bad[0])} is {y[bad[0]]}. Unknown label type: continuous; labels are column numbers"
            )
    if y.size and not (y.min() >= 0 and y.max() < n_classes):
        row = int(np.flatnonzero((y < 0) | (y >= n_classes))[0])
        if one_column:
            raise InputError(
                f"labels: {name(row)} has label {y[row]:.0f}, but there is 1 feature(s), the score of the second of "
                f"two classes, so labels are 0 and 1, -1 and 1, or booleans. For others {by_name}; for more classes "
                "pass one column of scores for each."
            )
        hint = ""
        if y.min() >= 1 and y.max() == n_classes:
            hint = " Labels that start at 1 need labels - 1."
        odd = np.unique(y[(y < 0) | (y >= n_classes)])
        if len(odd) == 1 and not hint:
            ignore = f"ignore_index={odd[0]:.0f}"
            hint = f" If label {odd[0]:.0f} marks what is not to count, use {ignore}."
        raise InputError(
            f"labels: {name(row)} has label {y[row]:.0f}, but there are {n_classes} columns of "
            f"logits, so labels run from 0 to {n_classes - 1}.{hint} For labels that are not column "
            f"numbers {by_name}."
        )
    return y.astype(np.int64)


def is_matrix(labels: Any) -> bool:
    """Whether there are several numbers for each sample."""
    if labels is None:
        return False
    try:
        shape = tuple(labels.shape) if hasattr(labels, "shape") else np.shape(labels)
    except (TypeError, ValueError):  # of several lengths, refused later
        return False
    return len(shape) == 2 and shape[1] > 1


def _are_columns(labels: Any, n: int, n_classes: int) -> bool:
    """Whether these are column numbers, one per row, in a tensor on a GPU."""
    if not on_gpu(labels) or tuple(labels.shape) != (n,) or labels.is_floating_point() or labels.is_complex():
        return False
    low, high = labels.detach().long().aminmax()
    return int(low) >= 0 and int(high) < n_classes


def counted(n_classes: int) -> str:
    """List the names of classes whose labels start at 1."""
    return ",".join(map(str, range(1, n_classes + 1))) if n_classes <= MOST_COUNTED else f"1,2,…,{n_classes}"


def _look_up(y: NDArray[Any], classes: list[Any], name: RowName) -> Labels:
    column = {label: k for k, label in enumerate(classes)}
    out = np.empty(len(y), dtype=np.int64)
    for row, label in enumerate(y.tolist()):
        if np.ndim(label) != 0 or label not in column:
            raise InputError(
                f"labels: {name(row)} is {label!r}, which is not among the {len(classes)} classes: {_brief(classes)}"
            )
        out[row] = column[label]
    return out


def _is_number(item: Any) -> bool:
    try:
        float(item)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _brief(names: list[Any]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (", …" if len(names) > 8 else "")


def as_names(classes: Any, n_classes: int) -> list[Any]:
    """Names of the classes in column order: text or numbers, none twice."""
    try:
        names = list(classes)
        distinct = len(set(names))
    except TypeError:
        names, distinct = [], 0
    if not names or any(np.ndim(name) != 0 for name in names):
        raise InputError(
            f"classes={classes!r}: expected a list of names, one for each column, text or numbers", param="classes"
        )
    if len(names) != n_classes:
        raise InputError(f"classes: {len(names)} names for {n_classes} columns of logits")
    if distinct != n_classes:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"classes: expected every name once, got {twice!r} twice")
    return names


def as_weights(weights: Any, n: int, name: RowName | None = None) -> Floats:
    """Sample weights: one per row, finite, none negative, not all zero."""
    name = name or numbered()
    reject_masked(weights, "sample_weight", "To leave those rows out use .filled(0).")
    try:
        w = np.asarray(to_numpy(weights) if is_foreign(weights) else weights)
        if w.dtype.kind == "c":
            raise TypeError("got complex numbers")
        w = w.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"sample_weight: {error}; expected one number per row") from None
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise InputError(f"sample_weight.shape == {w.shape}, expected {(n,)}: one weight per row")
    bad = np.flatnonzero(~((w >= 0) & (w <= MAX_WEIGHT)))
    if bad.size:
        raise InputError(
            f"sample_weight: {name(bad[0])} is {w[bad[0]]}; a weight counts repeats of its row: not "
            f"negative, and at most {MAX_WEIGHT:g}"
        )
    if not (w > 1e-100).any():
        raise InputError("sample_weight: all weights are zero, so there is nothing to fit")
    return w
