"""Classifiers that vote: the smallest share of the votes that a class can get.

A forest gives a class that no tree voted for a probability of 0, though one tree more might have voted for it. Half of
the smallest share above 0 stands for such a zero. It is below every other probability that the classifier can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper.calibrators.wrapper.estimators import innermost

__all__ = ["half_a_vote"]


def half_a_vote(estimators: Sequence[Any]) -> float | None:
    """Return half of the smallest share that these fitted estimators can give; None if that is unknown of one.

    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> half_a_vote([RandomForestClassifier(50, random_state=0).fit(X, y)])
    0.01
    >>> half_a_vote([GaussianNB().fit(X, y)])
    """
    shares = [_smallest_share(estimator) for estimator in estimators]
    known = [share for share in shares if share is not None]
    return min(known) / 2 if len(known) == len(shares) > 0 else None


def _smallest_share(estimator: Any) -> float | None:
    estimator = innermost(estimator)
    # By name, as importing scikit-learn's ensembles takes longer than most fits; subclasses of other packages count.
    names = {cls.__name__ for cls in type(estimator).__mro__ if cls.__module__.startswith("sklearn.")}
    if "DecisionTreeClassifier" in names:
        tree = estimator.tree_
        shares = tree.value[tree.children_left == -1]
        return float(shares[shares > 0].min())
    if "KNeighborsClassifier" in names:
        return 1 / estimator.n_neighbors if estimator.weights == "uniform" else None
    if names & {"RandomForestClassifier", "ExtraTreesClassifier", "BaggingClassifier"}:
        members = estimator.estimators_
        if not all(hasattr(member, "predict_proba") for member in members):
            return 1 / len(members)  # bagging counts what such members predict
        return _mean_of(members, None)
    if "VotingClassifier" in names:
        weights = None if estimator.weights is None else estimator._weights_not_none
        return _mean_of(estimator.estimators_, weights, hard=estimator.voting == "hard")
    return None


def _mean_of(members: Sequence[Any], weights: Sequence[float] | None, *, hard: bool = False) -> float | None:
    """Return the smallest share in a mean of the members' probabilities, or of their votes."""
    shares = [1.0 if hard else _smallest_share(member) for member in members]
    if any(share is None for share in shares):
        return None
    w = np.ones(len(shares)) if weights is None else np.asarray(weights, dtype=np.float64)
    parts = w * np.asarray(shares, dtype=np.float64) / w.sum()
    return float(parts[parts > 0].min())
