"""Labels that are wrong in three ways."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

__all__ = ["KINDS", "most_confused", "spoil"]

Labels = NDArray[np.int64]

KINDS = {
    "uniform": "any class, any sample (as in the paper)",
    "confusable": "the class most easily confused with the true one",
    "instance": "where an image is hard, and the class that it looks like",
}

# Looks are what the network says at this temperature: softer than the network itself, which is over-confident.
SOFT = 2.0


def most_confused(logits: NDArray[np.float32], labels: Labels) -> Labels:
    """For each class the other one to which the network gives most of its probability."""
    p = softmax(logits.astype(np.float64) / SOFT, axis=1)
    k = p.shape[1]
    total = np.zeros((k, k))
    np.add.at(total, labels, p)
    np.fill_diagonal(total, -1)
    return np.asarray(total.argmax(axis=1))


def spoil(
    logits: NDArray[np.float32], labels: Labels, share: float, kind: str, confused: Labels, rng: np.random.Generator
) -> Labels:
    """Replace this share of the labels.

    ``uniform`` draws from all classes, as the authors' code does, so that some labels stay right by chance; the others
    draw a wrong class. ``confused`` is what `most_confused` says, of all samples.
    """
    spoilt, n = labels.copy(), int(share * len(labels))
    if kind == "uniform":
        which = rng.choice(len(labels), n, replace=False)
        spoilt[which] = rng.integers(0, logits.shape[1], n)
    elif kind == "confusable":
        which = rng.choice(len(labels), n, replace=False)
        spoilt[which] = confused[labels[which]]
    else:
        p = softmax(logits.astype(np.float64) / SOFT, axis=1)
        doubt = 1 - p.max(axis=1) + 1e-3
        which = rng.choice(len(labels), n, replace=False, p=doubt / doubt.sum())
        looks = p[which]
        looks[np.arange(n), labels[which]] = 0
        reached = np.cumsum(looks, axis=1)
        spoilt[which] = (reached > rng.random((n, 1)) * reached[:, -1:]).argmax(axis=1)
    return spoilt
