"""Samples to look at, as in Figures 1 and 6 of arXiv 1810.11586: sure and right, sure and wrong, unsure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.report.images import ImageFolder
from attemper.report.methods import Said
from attemper.scores import Scores

__all__ = ["choose", "gallery"]

SURE = 0.9
EACH = 6
UNSURE_SHARE = 0.05


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
    test: Scores,
    names: Sequence[str],
    said: dict[str, Said],
    recommended: str,
    ids: Sequence[str] | None,
    images: ImageFolder | None,
    seed: int,
) -> dict[str, Any]:
    """Return three groups of samples, with what each method says about them."""
    assert test.labels is not None
    n, labels = len(test), test.labels
    before, after = said["none"], said[recommended]
    there = np.zeros(n, dtype=bool)
    if images is not None and ids is not None:
        there = np.fromiter((name in images for name in ids), dtype=bool, count=n)
    # The least sure of all: a confidence below 1/2 does not exist with two classes.
    lowest = np.zeros(n, dtype=bool)
    lowest[np.argsort(after.log_confidence, kind="stable")[: max(EACH, int(UNSURE_SHARE * n))]] = True
    sure = before.confidence >= SURE
    groups = {
        "right": (sure & before.right, "Sure and right", "The network said at least 90 %, and was right."),
        "wrong": (sure & ~before.right, "Sure and wrong", "The network said at least 90 %, and was wrong."),
        "unsure": (lowest, "Unsure", f"Among the {lowest.sum()} samples with the lowest calibrated confidence."),
    }

    def example(row: int) -> dict[str, Any]:
        name = None if ids is None else ids[row]
        uri = None if images is None or name is None else images.data_uri(name)
        return {
            "row": row,
            "id": name,
            "label": names[int(labels[row])],
            "answer": names[int(before.answer[row])],
            "right": bool(before.right[row]),
            "image": uri,
            "missing": images is not None and uri is None,
            "says": [
                {
                    "method": method,
                    "confidence": float(one.confidence[row]),
                    "other": None if one.answer[row] == before.answer[row] else names[int(one.answer[row])],
                }
                for method, one in said.items()
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
            for rows, title, rule in groups.values()
        ],
    }
