"""Labels as classifiers take them: one per row, with names of any kind, and as numbers of columns."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from attemper.arrays import Labels, reject_masked, to_numpy
from attemper.errors import InputError, InputTypeError

__all__ = ["check_rows", "encode"]


def check_rows(X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """Check that there is one class label per row; the features are the estimator's to check."""
    if y is None:
        raise InputError(
            "CalibratedClassifier requires y to be passed, but the target y is None: give one label per row"
        )
    reject_masked(y, "y", "Drop those rows: keep = ~np.ma.getmaskarray(y); X[keep], y[keep].")
    if array_api_compat.is_array_api_obj(y):
        y = to_numpy(y)
    labels = y if hasattr(y, "tocsr") else np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise InputError(
            f"y has shape {labels.shape}: several labels per row are not supported. One-hot labels need "
            "y.argmax(axis=1); for a multilabel problem calibrate each label with one of its own."
        )
    try:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        X, y = indexable(X, y)
    except TypeError as error:
        raise InputTypeError(f"X, y: {error}") from None
    except ValueError as error:
        raise InputError(f"X, y: {error}") from None
    if not len(y):
        raise InputError("X, y: 0 sample(s) while a minimum of 1 is required")
    return X, y


def encode(y: NDArray[Any], classes: NDArray[Any], whose: str) -> Labels:
    """Return labels as numbers of columns.

    >>> encode(np.array(["b", "a", "b"]), np.array(["a", "b"]), "the forest")
    array([1, 0, 1])
    >>> encode(np.array(["b", "c"]), np.array(["a", "b"]), "the forest")
    Traceback (most recent call last):
    attemper.errors.InputError: y: row 1 is 'c', which is not among the 2 classes of the forest: 'a', 'b'
    """
    column = {name: k for k, name in enumerate(classes.tolist())}
    found, which = np.unique(y, return_inverse=True)
    unknown = [name for name in found.tolist() if name not in column]
    if unknown:
        row = int(np.flatnonzero(y == unknown[0])[0])
        shown = ", ".join(repr(name) for name in list(column)[:8])
        raise InputError(
            f"y: row {row} is {unknown[0]!r}, which is not among the {len(column)} classes of {whose}: "
            f"{shown}{', …' if len(column) > 8 else ''}"
        )
    return np.array([column[name] for name in found.tolist()], dtype=np.int64)[which]
