"""Classes as the page shows them: what the network finds of each, and what is taken for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.errors import InputError
from attemper.metrics.intervals import wilson
from attemper.metrics.predictions import Predictions

__all__ = ["Groups", "confusion", "group_classes", "names_of", "table", "taken_for"]

MOST = 20
IN_MATRIX = 12  # classes of a matrix that fits a page
PAIRS = 15


@dataclass(frozen=True, eq=False)
class Groups:
    """Names, and which group each class belongs to."""

    names: tuple[str, ...]
    of_class: NDArray[np.intp]
    others: int = 0  # classes in the last group; 0: every class is a group of its own

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.names)


def names_of(given: Sequence[Any] | None, n_classes: int) -> tuple[str, ...]:
    """Names of the classes; "class 3" where none are given.

    >>> names_of(None, 2), names_of(["no", "yes"], 2)
    (('class 0', 'class 1'), ('no', 'yes'))
    """
    if given is None:
        return tuple(f"class {k}" for k in range(n_classes))
    if len(given) != n_classes:
        raise InputError(
            f"{len(given)} class names for {n_classes} columns of logits; pass one for each, in their order"
        )
    return tuple(map(str, given))


def group_classes(names: Sequence[str], p: Predictions, w: Floats, focus: Any = None) -> Groups:
    """Keep up to 20 classes apart: the one in focus, and those with the most samples that are not found.

    The others share a group.
    """
    n_classes = len(names)
    if n_classes <= MOST:
        return Groups(tuple(names), np.arange(n_classes))
    missed, n = (np.bincount(p.labels, weight, minlength=n_classes) for weight in (w * ~p.right, w))
    unfocused = np.array([focus is None or name != str(focus) for name in names])
    chosen = np.lexsort((-n, -missed, unfocused))[:MOST]
    shown = chosen[np.lexsort((-n[chosen], -missed[chosen]))]
    of_class = np.full(n_classes, MOST)
    of_class[shown] = np.arange(MOST)
    n_others = n_classes - MOST
    other = f"one other: {names[int(np.argmax(of_class == MOST))]}"
    title = f"all others ({n_others} classes)" if n_others > 1 else other
    return Groups((*(names[k] for k in shown), title), of_class, n_others)


def table(
    groups: Groups, before: Predictions, after: Predictions, confidence_level: float, w: Floats, worth: float
) -> list[dict[str, Any]]:
    """For each class: how many there are, how many are found, and how reliable the prediction of it is.

    Predictions are the network's own; only the confidence is also given as it is after calibration. ``worth`` is how
    many independent samples a unit of weight is worth.
    """
    is_of, predicts = groups.of_class[before.labels], groups.of_class[before.prediction]

    def by(place: NDArray[np.intp], values: Any) -> Floats:
        return np.bincount(place, w * values, minlength=len(groups)).astype(np.float64)

    n, predicted = by(is_of, 1.0), by(predicts, 1.0)
    found, right = by(is_of, before.right), by(predicts, before.right)
    limits = [wilson(worth * part, worth * of, confidence_level) for part, of in ((found, n), (right, predicted))]
    confidence = [by(predicts, one.confidence) for one in (before, after)]
    return [
        {
            "name": groups.names[k],
            "n": float(n[k]),
            "found": _share(found[k], n[k], limits[0], k),
            "predicted": float(predicted[k]),
            "right": _share(right[k], predicted[k], limits[1], k),
            "confidence": [float(total[k] / predicted[k]) if predicted[k] > 0 else None for total in confidence],
        }
        for k in range(len(groups))
    ]


def _share(part: float, total: float, limits: tuple[Floats, Floats], k: int) -> list[float] | None:
    return [float(part / total), float(limits[0][k]), float(limits[1][k])] if total > 0 else None


def confusion(names: Sequence[str], p: Predictions, w: Floats) -> dict[str, Any]:
    """Return the weight of each true class (row) by predicted class, or of more than 12 the commonest confusions.

    >>> p = Predictions.of([0, 0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]])
    >>> confusion(["a", "b"], p, np.ones(4))
    {'matrix': [[1.0, 1.0], [0.0, 2.0]], 'pairs': []}
    """
    n = len(names)
    if n <= IN_MATRIX:
        cells = np.bincount(p.labels * n + p.prediction, w, minlength=n * n).reshape(n, n)
        return {"matrix": cells.tolist(), "pairs": []}
    wrong = ~p.right
    found, place = np.unique(p.labels[wrong] * n + p.prediction[wrong], return_inverse=True)
    weight = np.bincount(place, w[wrong], minlength=len(found))
    order = [i for i in np.argsort(-weight, kind="stable")[:PAIRS] if weight[i] > 0]
    return {
        "matrix": None,
        "pairs": [[names[found[i] // n], names[found[i] % n], float(weight[i])] for i in order],
    }


def taken_for(groups: Groups, names: Sequence[str], p: Predictions, w: Floats) -> list[list[Any] | None]:
    """Return for each class what its errors are most often taken for; None without errors, and for several classes."""
    wrong = ~p.right
    of, predicted, weight = groups.of_class[p.labels[wrong]], p.prediction[wrong], w[wrong]
    found: list[list[Any] | None] = []
    for g in range(len(groups)):
        counts = np.bincount(predicted[of == g], weight[of == g], minlength=1)
        k = int(counts.argmax())
        several = groups.others > 1 and g == len(groups) - 1
        found.append([names[k], float(counts[k])] if counts[k] > 0 and not several else None)
    return found
