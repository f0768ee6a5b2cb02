"""Scores of split-conformal prediction sets: how far each class is from being predicted.

A class is in the set where its score is at most a threshold, which is an order statistic of the scores of the true
classes of other samples. Every score here is a function of the probabilities alone, so it does not depend on the order
of the columns, with ties too.

M. Sadinle, J. Lei and L. Wasserman, Least ambiguous set-valued classifiers, JASA 2019 (LAC). Y. Romano, M. Sesia and
E. Candès, Classification with valid and adaptive coverage, NeurIPS 2020 (APS).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, Labels

ROOM = 1e-6  # of a threshold: more than single precision rounds by
ROUNDING = 1e-9  # 0.7 · 10 may be a little more than 7


def mass_before(probs: Floats) -> Floats:
    """Return of each class the probability of the classes that are more probable.

    >>> mass_before(np.array([[0.2, 0.5, 0.2, 0.1]])).round(3).tolist()
    [[0.5, 0.0, 0.5, 0.9]]
    """
    order = np.argsort(-probs, axis=1, kind="stable")
    v = np.take_along_axis(probs, order, axis=1)
    reached = np.cumsum(v, axis=1)
    place = np.arange(v.shape[1])
    starts = np.ones(v.shape, dtype=bool)
    starts[:, 1:] = v[:, 1:] != v[:, :-1]
    first = np.maximum.accumulate(np.where(starts, place, 0), axis=1)  # of the classes that are tied
    until = np.concatenate([np.zeros((len(v), 1)), reached[:, :-1]], axis=1)
    before = np.empty(v.shape)
    np.put_along_axis(before, order, np.take_along_axis(until, first, axis=1), axis=1)
    return before


def score_classes(score: str, probs: Floats) -> Floats:
    """Return the score of each class, N×K.

    LAC: 1 − p. APS: the mass of the more probable classes. Romano et al. add a share of the own probability, drawn
    between 0 and 1 for each sample. Without draws it is 0 here: with 1 confident samples have scores near 1, the
    threshold is near 1 too, and sets are several times as large.

    >>> p = np.array([[0.2, 0.5, 0.3]])
    >>> score_classes("lac", p).tolist(), score_classes("aps", p).tolist()
    ([[0.8, 0.5, 0.7]], [[0.8, 0.0, 0.5]])
    """
    return 1.0 - probs if score == "lac" else mass_before(probs)


def order_for(n: int, coverage: float) -> int:
    """Return which of n ordered scores is the threshold: ⌈(n + 1)(1 − α)⌉; above n where n are too few.

    >>> [order_for(n, 0.95) for n in (18, 19, 20, 100)]
    [19, 19, 20, 96]
    """
    return max(1, math.ceil((n + 1) * coverage - ROUNDING))


def threshold_at(scores: Floats, k: int) -> float:
    """Return a threshold for the k smallest scores, and what is tied with them."""
    return clear_of_ties(float(np.partition(scores, k - 1)[k - 1]), scores)


def clear_of_ties(value: float, values: Floats) -> float:
    """Return a threshold a little above a value: what is tied with it, up to rounding, stays below.

    >>> clear_of_ties(0.2, np.array([0.2, 0.9, 0.2 + 1e-16]))
    0.200001
    """
    above = float(values[values > value + ROOM].min(initial=1.0))
    return value + max(min(ROOM, (above - value) / 2), 0.0)


def one_per_cluster(cluster: Labels, counts: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw one row of each cluster, in proportion to how often it occurred; in the order of the clusters.

    >>> one_per_cluster(np.array([1, 0, 1, 1]), np.array([1.0, 1.0, 0.0, 0.0]), np.random.default_rng(0)).tolist()
    [1, 0]
    """
    with np.errstate(divide="ignore"):
        arrival = rng.exponential(size=len(cluster)) / counts  # the first of several Poisson processes
    order = np.lexsort((arrival, cluster))
    own = cluster[order]
    return order[np.concatenate([[True], own[1:] != own[:-1]])] if len(own) else order
