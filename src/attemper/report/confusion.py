"""What is taken for what: a matrix of few classes, the most frequent confusions of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.metrics.predictions import Predictions
from attemper.report.classes import Groups

__all__ = ["confusion", "taken_for"]

MOST = 12  # classes of a matrix that fits a page
PAIRS = 15


def confusion(names: Sequence[str], p: Predictions, w: Floats) -> dict[str, Any]:
    """Return the weight of each true class (row) by predicted class, or of more than 12 the commonest confusions.

    >>> p = Predictions.of([0, 0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]])
    >>> confusion(["a", "b"], p, np.ones(4))
    {'matrix': [[1.0, 1.0], [0.0, 2.0]], 'pairs': []}
    """
    n = len(names)
    if n <= MOST:
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
