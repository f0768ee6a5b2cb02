"""Classes as the page shows them: all, or those with the most missed samples and the rest."""

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

__all__ = ["Groups", "group_classes", "names_of", "table"]

MOST = 20


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
