"""Folds: the estimator fitted on one part of the rows, and its scores of the part held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attemper.calibrators.wrapper.estimators import Response, classes_of, respond
from attemper.calibrators.wrapper.routing import Routed
from attemper.calibrators.wrapper.rows import Rows, concat, like, take

__all__ = ["Fold", "fit_folds", "held_out"]


class Fold(NamedTuple):
    """A fitted estimator, and its scores of the held-out rows whose classes it has seen."""

    estimator: Any
    rows: Rows
    scores: Any
    unseen: Rows  # held-out rows of other classes


def fit_folds(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    parts: Sequence[tuple[Rows, Rows]],
    *,
    response: Response,
    classes: NDArray[Any],
    params: Routed,
    n_jobs: int | None,
) -> list[Fold]:
    """Fit a clone on each training part, as many at once as ``n_jobs``; a part may hold out no row."""
    from sklearn.utils.parallel import Parallel, delayed  # only where it is needed: `import attemper` is light

    fold = delayed(_fit_fold)
    return list(
        Parallel(n_jobs=n_jobs)(fold(estimator, X, y, train, held, response, classes, params) for train, held in parts)
    )


def _fit_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    train: Rows,
    held: Rows,
    response: Response,
    classes: NDArray[Any],
    params: Routed,
) -> Fold:
    fitted = clone(estimator).fit(take(X, train), like(X, y[train]), **params.of(train, len(y)))
    seen = np.isin(y[held], classes_of(fitted))
    rows = held[seen]
    scores = respond(fitted, take(X, rows), response, classes) if rows.size else None
    return Fold(fitted, rows, scores, held[~seen])


def held_out(folds: Sequence[Fold], n: int) -> tuple[Rows, Any, NDArray[np.float64] | None]:
    """Return the rows in order, their scores, and a weight where several folds hold a row out: it is still one row."""
    rows = np.concatenate([fold.rows for fold in folds])
    order = np.argsort(rows, kind="stable")
    times = np.bincount(rows, minlength=n)[rows[order]]
    return rows[order], take(concat([fold.scores for fold in folds]), order), None if times.max() == 1 else 1 / times
