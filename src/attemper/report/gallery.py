"""Examples, as in Figures 1 and 6 of arXiv 1810.11586: confident and right, confident and wrong, uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.metrics.predictions import Predictions
from attemper.report.images import ImageFolder

__all__ = ["choose", "gallery"]

CONFIDENT = 0.9
EACH = 6
UNCERTAIN_SHARE = 0.05


def choose(candidates: NDArray[np.bool_], labels: NDArray[Any], there: NDArray[np.bool_], seed: int) -> list[int]:
    """Draw up to six: at random, but those with an image first, and a class again only after every other one."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(candidates))
    rows = rows[np.argsort(~there[rows], kind="stable")]
    order = np.argsort(labels[rows], kind="stable")
    turn = np.empty(len(rows), dtype=np.intp)
    of_class = labels[rows][order]
    turn[order] = np.arange(len(rows)) - np.searchsorted(of_class, of_class, side="left")
    best = np.lexsort((turn, ~there[rows]))[:EACH]
    return [int(row) for row in rows[best]]


def gallery(
    names: Sequence[str],
    predictions: dict[str, Predictions],
    recommended: str,
    ids: Sequence[str] | None,
    images: ImageFolder | None,
    seed: int,
) -> dict[str, Any]:
    """Return three groups of samples, with the confidence of each method."""
    before, after = predictions["none"], predictions[recommended]
    n, labels = len(before), before.labels
    there = np.zeros(n, dtype=bool)
    if images is not None and ids is not None:
        there = np.fromiter((name in images for name in ids), dtype=bool, count=n)
    # The least confident of all: a confidence below 1/2 does not exist with two classes.
    lowest = np.zeros(n, dtype=bool)
    lowest[np.argsort(after.rank, kind="stable")[: max(EACH, int(UNCERTAIN_SHARE * n))]] = True
    confident = before.confidence >= CONFIDENT
    stated = "The confidence was at least 90 % before calibration, and the prediction"
    groups = (
        (confident & before.right, "Confident and right", f"{stated} right."),
        (confident & ~before.right, "Confident and wrong", f"{stated} wrong."),
        (lowest & ~confident, "Uncertain", f"Among the {lowest.sum()} samples with the lowest calibrated confidence."),
    )

    def example(row: int) -> dict[str, Any]:
        name = None if ids is None else ids[row]
        uri = None if images is None or name is None else images.data_uri(name)
        return {
            "row": row,
            "id": name,
            "label": names[int(labels[row])],
            "prediction": names[int(before.prediction[row])],
            "right": bool(before.right[row]),
            "image": uri,
            "missing": images is not None and uri is None,
            "confidence": [
                {
                    "method": method,
                    "confidence": float(one.confidence[row]),
                    "other": None if one.prediction[row] == before.prediction[row] else names[int(one.prediction[row])],
                }
                for method, one in predictions.items()
            ],
        }

    return {
        "images": images is not None,
        "found": int(there.sum()),
        "groups": [
            {
                "title": title,
                "rule": rule,
                "n": int(rows.sum()),
                "examples": [example(row) for row in choose(rows, labels, there, seed)],
            }
            for rows, title, rule in groups
        ],
    }
