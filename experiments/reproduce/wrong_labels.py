"""Labels that are wrong in four ways."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

__all__ = ["KINDS", "SOFT", "most_confused", "spoil"]

Labels = NDArray[np.int64]

KINDS = {
    "uniform": "any class, any sample (as in the paper)",
    "confusable": "the class most easily confused with the true one",
    "instance": "where an image is hard, and the class that it looks like",
    "annotators": (
        "as annotators get them wrong (simulated): some classes more often, hard images more often, mostly the "
        "confused class"
    ),
}

# Looks are what the network says at this temperature: softer than the network itself, which is over-confident.
SOFT = 2.0

# Annotators: how often classes are wrong, relative to each other; how many errors are the most confused class.
CARELESSNESS, CONFUSED_SHARE = (0.3, 1.7), 0.7


def most_confused(logits: NDArray[np.float32], labels: Labels) -> Labels:
    """For each class the other one to which the network gives most of its probability."""
    p = softmax(logits.astype(np.float64) / SOFT, axis=1)
    k = p.shape[1]
    total = np.zeros((k, k))
    np.add.at(total, labels, p)
    np.fill_diagonal(total, -1)
    return np.asarray(total.argmax(axis=1))


def _looks(logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what images look like to the network, and how doubtful each is."""
    p = np.asarray(softmax(logits.astype(np.float64) / SOFT, axis=1))
    return p, 1 - p.max(axis=1) + 1e-3


def spoil(
    logits: NDArray[np.float32], labels: Labels, share: float, kind: str, confused: Labels, rng: np.random.Generator
) -> Labels:
    """Replace this share of the labels.

    ``uniform`` draws from all classes, as the authors' code does, so that some labels stay right by chance; the others
    draw a wrong class. ``confused`` is what `most_confused` returns for all samples.
    """
    spoilt, n = labels.copy(), int(share * len(labels))
    if kind == "uniform":
        which = rng.choice(len(labels), n, replace=False)
        spoilt[which] = rng.integers(0, logits.shape[1], n)
    elif kind == "confusable":
        which = rng.choice(len(labels), n, replace=False)
        spoilt[which] = confused[labels[which]]
    elif kind == "annotators":
        _, doubt = _looks(logits)
        careless = rng.uniform(*CARELESSNESS, logits.shape[1])
        weight = careless[labels] * (1 + doubt / doubt.mean())
        which = rng.choice(len(labels), n, replace=False, p=weight / weight.sum())
        anything = (labels[which] + rng.integers(1, logits.shape[1], n)) % logits.shape[1]
        spoilt[which] = np.where(rng.random(n) < CONFUSED_SHARE, confused[labels[which]], anything)
    else:
        p, doubt = _looks(logits)
        which = rng.choice(len(labels), n, replace=False, p=doubt / doubt.sum())
        looks = p[which]
        looks[np.arange(n), labels[which]] = 0
        reached = np.cumsum(looks, axis=1)
        spoilt[which] = (reached > rng.random((n, 1)) * reached[:, -1:]).argmax(axis=1)
    return spoilt
