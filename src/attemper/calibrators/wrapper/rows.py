"""Rows and their labels: checked, split into folds, and labels as numbers of columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from attemper._typing import Labels
from attemper.data.arrays import is_foreign, reject_masked, to_numpy
from attemper.errors import InputError, InputTypeError, warn

__all__ = [
    "Rows",
    "check_rows",
    "concat",
    "encode",
    "is_number_of_folds",
    "like",
    "reject_short_folds",
    "split",
    "take",
    "warn_left_out",
]

Rows = NDArray[np.intp]

N_FOLDS = 5


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
            f"y: expected one label per row, got shape {labels.shape}: several labels per row. One-hot labels need "
            "y.argmax(axis=1). For a multi-label problem use attemper.MultiLabelCalibrator on the N×L scores of the "
            "fitted classifier."
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


def is_number_of_folds(cv: Any) -> bool:
    """Whether this is a number; True is none."""
    return isinstance(cv, int | np.integer) and not isinstance(cv, bool)


def split(
    cv: Any,
    X: Any,
    y: NDArray[Any],
    kept: Rows,
    params: Mapping[str, Any] | None = None,
    clusters: NDArray[Any] | None = None,
) -> Iterator[tuple[Rows, Rows]]:
    """Yield the rows to train on and the rows to hold out, for each fold; only rows among ``kept``.

    Rows of one cluster are never divided.

    A number means stratified folds, with every class in every training part: the row of a class that has only one is
    always trained on. None is 5 of them, or as many as the largest class has rows. Anything else is a splitter, which
    may take ``params`` (groups), or an iterable of splits as scikit-learn has them, and taken as it is.
    """
    if clusters is not None:
        params = {"groups": clusters} | dict(params or {})
        cv = _by_cluster(cv, clusters[kept])
    if cv is None or is_number_of_folds(cv):
        yield from _stratified(None if cv is None else int(cv), y, kept)
        return
    from sklearn.model_selection import check_cv  # only where it is needed: `import attemper` is light

    allowed = np.zeros(len(y), dtype=bool)
    allowed[kept] = True
    try:
        with warnings.catch_warnings():
            if clusters is not None:  # what divides them is refused below
                warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            splits = list(check_cv(cv, y, classifier=True).split(X, y, **(params or {})))
        parts = [(_as_rows(train, len(y)), _as_rows(held, len(y))) for train, held in splits]
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"cv={cv!r}: {error}. Expected a number of folds, 'prefit', a splitter or a list of (train, test) rows. "
            "Where rows come in groups pass them to fit: fit(X, y, groups=…)."
        ) from None
    if not parts:
        raise InputError(f"cv={cv!r} gives no split")
    for number, (train, held) in enumerate(parts):
        train, held = train[allowed[train]], held[allowed[held]]
        if clusters is not None:
            _reject_divided(cv, clusters[train], clusters[held], number)
        classes = np.unique(y[train])
        if len(classes) < 2:
            what = f"one class only ({classes.tolist()[0]!r})" if len(classes) else "no class at all"
            raise InputError(
                f"cv: the training part of split {number} holds {what}; use stratified folds (cv=5) or shuffle the rows"
            )
        yield train, held


def _by_cluster(cv: Any, clusters: NDArray[Any]) -> Any:
    """Return stratified folds that keep clusters together, in place of a number of folds."""
    if not (cv is None or is_number_of_folds(cv)):
        return cv
    from sklearn.model_selection import StratifiedGroupKFold

    n = len(np.unique(clusters))
    if n < 2 or n < (cv or 2):
        raise InputError(f"clusters: expected at least {cv or 2} for as many folds, got {n}; use fewer folds")
    return StratifiedGroupKFold(min(n, 5) if cv is None else int(cv))


def _reject_divided(cv: Any, train: NDArray[Any], held: NDArray[Any], number: int) -> None:
    both = np.intersect1d(train, held)
    if both.size:
        raise InputError(
            f"cv={cv!r}: cluster {both.tolist()[0]!r} has rows in both parts of split {number}; use cv=5, or a "
            "splitter that keeps groups together, such as GroupKFold(5)"
        )


def take(X: Any, rows: Rows) -> Any:
    """Return some rows of a table, an array, a sparse matrix or a list."""
    if len(rows) == len(X if isinstance(X, list | tuple) else range(X.shape[0])) and (np.diff(rows) == 1).all():
        return X
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if is_foreign(X):
        return array_api_compat.array_namespace(X).take(X, like(X, rows), axis=0)
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def like(X: Any, numbers: NDArray[Any]) -> Any:
    """Return an array of the library that ``X`` is of, on its device; anything but numbers stays as it is."""
    if not is_foreign(X) or numbers.dtype.kind not in "biuf":
        return numbers
    return array_api_compat.array_namespace(X).asarray(numbers, device=array_api_compat.device(X))


def concat(parts: Sequence[Any]) -> Any:
    """Put the rows of arrays of one library one after the other."""
    return array_api_compat.array_namespace(parts[0]).concat(list(parts), axis=0)


def reject_short_folds(cv: Any, parts: Sequence[tuple[Rows, Rows]]) -> None:
    """Refuse folds that leave a calibrator of its own, ``ensemble=True``, one row or none."""
    for number, (_, held) in enumerate(parts):
        if len(held) < 2:
            raise InputError(
                f"cv={cv!r}, ensemble=True: Requesting {len(parts)}-fold cross-validation leaves {len(held)} row(s) "
                f"for the calibrator of split {number}; {type(cv).__name__} cross-validation does not hold out two or "
                "more there. Use fewer folds, or ensemble=False, which fits one calibrator to all rows."
            )


def warn_left_out(names: NDArray[Any], why: str) -> None:
    """Warn that rows of some classes take no part in the calibration."""
    classes, counts = np.unique(names, return_counts=True)
    shown = ", ".join(f"{name!r} ({count})" for name, count in zip(classes.tolist()[:8], counts.tolist()[:8]))
    warn(
        f"{len(names)} rows are left out of the calibration, though not of the training: {why}. Classes (rows): "
        f"{shown}{', …' if len(classes) > 8 else ''}."
    )


def _stratified(n_folds: int | None, y: NDArray[Any], kept: Rows) -> Iterator[tuple[Rows, Rows]]:
    from sklearn.model_selection import StratifiedKFold

    if n_folds is not None and n_folds < 2:
        raise InputError(
            f"cv={n_folds}: expected 2 folds or more, or cv='prefit' for an estimator that is fitted already"
        )
    _, which, counts = np.unique(y[kept], return_inverse=True, return_counts=True)
    if counts.max() < 2:
        raise InputError(
            f"got {len(kept)} rows of {len(counts)} classes, one for each class: none can be held out. Use more "
            "rows, or fit the estimator elsewhere and use cv='prefit'."
        )
    most = int(counts.max())
    if n_folds is not None and n_folds > most:
        raise InputError(
            f"cv={n_folds}: expected {most} folds or fewer, as the largest class has {most} rows. Use cv={most}, or "
            "leave cv out."
        )
    single = kept[counts[which] == 1]
    several = kept[counts[which] > 1]
    if single.size:
        warn_left_out(y[single], "their class has one row only")
    with warnings.catch_warnings():
        # A class with fewer rows than folds is in fewer test parts; in all training parts it is.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        parts = list(StratifiedKFold(n_folds or min(N_FOLDS, most)).split(several, y[several]))
    for train, held in parts:
        yield np.sort(np.concatenate([several[train], single])), several[held]


def _as_rows(rows: Any, n: int) -> Rows:
    found: NDArray[Any] = np.asarray(rows)
    if found.dtype == bool:
        found = np.flatnonzero(found)
    if found.size and (found.ndim != 1 or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= n):
        raise ValueError(f"a split names rows that are not among 0 … {n - 1}")
    return found.astype(np.intp)
