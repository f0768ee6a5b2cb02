"""Soft labels: a distribution over the classes for each sample, such as the shares of several annotators' votes.

A sample becomes one row for each class that has a share, weighted by it: sums over these rows are expectations over the
label. The scores stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import RowName, RowView, SelectedRows, is_foreign, numbered, to_numpy
from attemper.data.labels import as_names, as_weights, is_matrix
from attemper.data.layout import Laid
from attemper.data.plausibility import room_of_sums
from attemper.errors import InputError

__all__ = ["checked_shares", "label_shares", "spread_labels"]


def spread_labels(laid: Laid) -> tuple[Laid, Labels | None, bool]:
    """Make rows of single labels out of soft ones, N×K.

    Return also which sample each row is of (None: each is one), and whether labels were a matrix. One-hot labels become
    column numbers, and what is no matrix stays as it is.
    """
    labels = laid.labels
    if not is_matrix(labels):
        return laid, None, False
    n, n_classes = laid.values.shape
    y = to_numpy(labels) if is_foreign(labels) else np.asarray(labels)
    shares = checked_shares(y, n, n_classes, laid.name)
    if (np.count_nonzero(shares, axis=1) == 1).all() and (shares.max(axis=1) == 1).all():
        return laid._replace(labels=shares.argmax(axis=1)), None, True
    index, column = (np.ascontiguousarray(part) for part in np.nonzero(shares))
    weights = shares[index, column]
    if laid.weights is not None:
        weights = weights * as_weights(laid.weights, n, laid.name)[index]
    values = laid.values.part(index) if isinstance(laid.values, RowView) else SelectedRows(laid.values, index)
    rows = Laid(values, column, weights, lambda row: laid.name(int(index[row])), laid.one_column)
    return rows, index, True


def label_shares(votes: Any, n_classes: int | None = None, *, classes: Sequence[Any] | None = None) -> Floats:
    """Share of the annotators that chose each class, N×K: soft labels for fits and metrics.

    Parameters
    ----------
    votes : array of shape (N, M)
        What each of M annotators chose: column numbers, or names if ``classes`` has them. A vote that is missing is
        −1, NaN or None.
    n_classes : int
        K, the number of classes.
    classes : sequence of names, optional
        Names of the columns, in their order, instead of ``n_classes``.

    Examples
    --------
    >>> label_shares([[0, 1, 1], [2, 2, -1]], n_classes=3).round(2)
    array([[0.33, 0.67, 0.  ],
           [0.  , 0.  , 1.  ]])
    >>> label_shares([["no", "yes"], ["yes", None]], classes=["no", "yes"])
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    given = _array_of(votes)
    if given.ndim != 2 or 0 in given.shape:
        raise InputError(
            f"votes: expected one row per sample and one column per annotator, (N, M); got shape {given.shape}"
        )
    if classes is not None:
        names = as_names(classes, len(list(classes)) if n_classes is None else n_classes)
        column = _looked_up(given, names)
        k = len(names)
    else:
        if n_classes is None:
            raise InputError("n_classes: expected the number of classes. Use label_shares(votes, n_classes=K).")
        k = whole("n_classes", n_classes, at_least=2)
        column = _column_numbers(given, k)
    shares = np.stack([(column == j).sum(axis=1) for j in range(k)], axis=1)
    total = shares.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(total == 0)
    if empty.size:
        raise InputError(f"votes: row {empty[0]} has none; drop the samples that nobody labelled")
    return np.asarray(shares / total)


def checked_shares(y: NDArray[Any], n: int, n_classes: int, name: RowName) -> Floats:
    """Refuse a matrix that is no distribution over the classes, and name what it may be."""
    shapes = f"expected one per row, shape ({n},), or soft labels of shape ({n}, {n_classes})"
    got = f"labels: {shapes}; got shape {y.shape}."
    of_votes = f"For the votes of annotators use label_shares(labels, n_classes={n_classes})."
    if y.dtype == object:
        with suppress(TypeError, ValueError):
            y = y.astype(np.float64)
    if y.dtype.kind not in "biuf":
        raise InputError(f"{got} For the votes of annotators use label_shares(labels, classes=[…]).")
    if len(y) != n:
        raise InputError(f"{got} Pass one row of labels for each row of logits.")
    whole_numbers = bool((np.isnan(y) | (y == np.floor(y))).all()) if y.dtype.kind == "f" else True
    if y.shape[1] != n_classes:
        swapped = "Soft labels need one column per class. If these are the logits, pass them first: (logits, labels)."
        raise InputError(f"{got} {of_votes if whole_numbers else swapped}")
    shares = y.astype(np.float64)
    if whole_numbers and not (np.isin(y, (0, 1)).all() and (shares.sum(axis=1) == 1).all()):
        raise InputError(f"{got} {_advice_on_counts(shares, of_votes)}")
    bad = np.argwhere(~(shares >= 0))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"labels: {name(row)}, column {column} is {shares[row, column]}; soft labels are shares, from 0 to 1"
        )
    sums = shares.sum(axis=1)
    off = np.flatnonzero(~(np.abs(sums - 1) <= room_of_sums(n_classes)))
    if off.size:
        raise InputError(
            f"labels: {name(off[0])} sums to {sums[off[0]]:.6g}; the shares of soft labels sum to 1. Use "
            "labels / labels.sum(axis=1, keepdims=True) if they are counts or weights of votes."
        )
    return np.asarray(shares / sums[:, None])


def _advice_on_counts(labels: Floats, of_votes: str) -> str:
    """Advise on a matrix of whole numbers with one column per class that is not one-hot."""
    if (np.isin(labels, (-1, 0, 1)) | np.isnan(labels)).all():
        return (
            "Some rows have several classes or none. If classes do not exclude each other, use "
            f"MultiLabelCalibrator. {of_votes}"
        )
    counts = "" if (labels < 0).any() or np.isnan(labels).any() else (
        " For counts of votes use labels / labels.sum(axis=1, keepdims=True)."
    )  # fmt: skip
    return of_votes + counts


def _array_of(votes: Any) -> NDArray[Any]:
    """Votes as an array; what is missing in a data frame is None, whatever its types."""
    if is_foreign(votes):
        return to_numpy(votes)
    if hasattr(votes, "isna") and hasattr(votes, "to_numpy"):
        array: NDArray[Any] = votes.to_numpy(dtype=object, copy=True)
        array[votes.isna().to_numpy()] = None
        return array
    # NumPy would make text of all entries of a list, of NaN too.
    return np.asarray(votes, dtype=object) if isinstance(votes, list | tuple) else np.asarray(votes)


def _looked_up(votes: NDArray[Any], names: list[Any]) -> NDArray[np.int64]:
    column = {label: k for k, label in enumerate(names)}
    found = np.full(votes.shape, -1, dtype=np.int64)
    for row, labels in enumerate(votes.tolist()):
        for m, label in enumerate(labels):
            if label in column:
                found[row, m] = column[label]
            elif label is not None and label == label and label != -1:
                raise InputError(
                    f"votes: {numbered()(row)}, annotator {m} is {label!r}, which is not among the {len(names)} "
                    f"classes. Use None for a vote that is missing."
                )
    return found


def _column_numbers(votes: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    try:
        numbers = votes.astype(np.float64)
    except (TypeError, ValueError):
        by = "classes=[…]"
        raise InputError(f"votes: expected column numbers; for names use {by}, in column order") from None
    missing = np.isnan(numbers) | (numbers == -1)
    odd = np.argwhere(~missing & ~((numbers >= 0) & (numbers < n_classes) & (numbers == np.floor(numbers))))
    if len(odd):
        row, m = odd[0]
        hint = " These look like shares already: pass them as labels." if (numbers % 1 > 0).any() else ""
        raise InputError(
            f"votes: row {row}, annotator {m} is {numbers[row, m]:g}; expected a column number from 0 to "
            f"{n_classes - 1}, or −1 or NaN for a vote that is missing.{hint}"
        )
    return np.where(missing, -1, numbers).astype(np.int64)
