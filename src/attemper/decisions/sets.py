"""Prediction sets by split conformal calibration: a few classes instead of one, with a guaranteed coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices
from attemper.data.inputs import as_ids
from attemper.decisions import rules
from attemper.decisions.certificates import most_errors, samples_needed
from attemper.decisions.rules import Actions, Choice, Promise, Rule, Shortage
from attemper.errors import InputError, check_share, listed, warn
from attemper.kernels.conformal import order_for, score_classes, threshold_at

Score = Literal["lac", "aps"]
By = Literal["class", "group"]


@dataclass(frozen=True)
class PredictionSets(Rule):
    """A class is in the set if its score is at most the threshold: of all, of the class, or of the sample's group.

    The most probable class is always in, which can only raise the coverage. A set of one class is a decision, one of at
    most ``max_size`` a list; any other, and one of all classes, is referred.

    Examples
    --------
    >>> rule = PredictionSets(3, "lac", (0.75,))
    >>> found = rule.decide([[0.9, 0.06, 0.04], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
    >>> found.action.tolist(), found.sets.sum(axis=1).tolist()
    (['decide', 'list', 'refer'], [1, 2, 3])
    """

    kind: ClassVar[str] = "sets"
    n_classes: int
    score: Score
    thresholds: tuple[float, ...]
    promise: Promise | None = None
    n_cases: tuple[int, ...] = ()  # that each threshold was taken from
    groups: tuple[str, ...] | None = None  # of by="group", in the order of the thresholds
    max_size: int = 3

    def decide(self, probs: ArrayLike, groups: ArrayLike | None = None) -> Actions:
        """Return the set of each sample; a group that the rule does not know gets every class."""
        p = rules.as_probs(probs, self.n_classes)
        limits, sets = self._limits(groups, len(p)), np.empty(p.shape, dtype=bool)
        for rows in row_slices(*p.shape):
            within = score_classes(self.score, p[rows]) <= (limits[rows] if len(limits) > 1 else limits)
            sets[rows] = within | (p[rows] == p[rows].max(axis=1, keepdims=True))
        size = sets.sum(axis=1)
        short = (size <= self.max_size) & (size < self.n_classes)
        action = np.where(size == 1, "decide", np.where(short, "list", "refer"))
        return Actions(action, *rules.tops(p), sets)

    def _limits(self, groups: ArrayLike | None, n: int) -> Floats:
        """Return thresholds of shape 1×1, 1×K or N×1."""
        limits = np.asarray(self.thresholds, dtype=np.float64)
        if self.groups is None:
            return limits[None, :]
        place, ids = {name: i for i, name in enumerate(self.groups)}, as_ids(groups, n, "groups").astype(str)
        number = np.array([place.get(name, -1) for name in ids.tolist()], dtype=np.int64)
        unknown = np.unique(ids[number < 0]).tolist()
        if unknown:
            warn(f"groups: nothing is known of {listed(unknown)}, so their sets hold every class")
        return np.append(limits, math.inf)[number][:, None]


def conformal_sets(
    probs: ArrayLike,
    labels: ArrayLike,
    coverage: float = 0.9,
    *,
    score: Score = "lac",
    by: By | None = None,
    groups: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    guarantee_level: float | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    unit: str = "cluster",
    seed: int = 0,
) -> Choice:
    """Choose thresholds so that the sets of new cases hold the true class with probability ``coverage``.

    The threshold is the ⌈(n + 1) · coverage⌉-th smallest of the scores of n true classes. The samples must have trained
    neither the network nor the map.

    Parameters
    ----------
    probs, labels, clusters, sample_weight, classes, unit, seed
        As in `refer_for_miss`; with clusters, the coverage is that of a random sample of a new case.
    coverage : float
    score : "lac" or "aps"
        "lac": 1 − p, the smallest sets on average. "aps": the probability of all classes that are more probable; sets
        are larger where the classifier is less confident.
    by : "class" or "group", optional
        The coverage holds for each true class, or each group, by thresholds of their own.
    groups : array of shape (n_samples,), with ``by="group"``
    guarantee_level : float, optional
        Raise thresholds so that the coverage holds with this confidence in the draw of these cases, for all classes or
        groups at once. By default it holds on average over draws.

    References
    ----------
    V. Vovk, Conditional validity of inductive conformal predictors, 2012. A. Angelopoulos and S. Bates, A gentle
    introduction to conformal prediction, arXiv 2107.07511.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet([1, 1, 1], 500)
    >>> labels = np.array([rng.choice(3, p=row) for row in probs])
    >>> round(conformal_sets(probs, labels, 0.9).rule.thresholds[0], 2)
    0.79
    >>> conformal_sets(probs[:5], labels[:5], 0.9).shortages
    (Shortage(of=None, n_cases=5, more=4, errors=0, tested=0),)
    """
    check_share(coverage, "coverage")
    if guarantee_level is not None:
        check_share(guarantee_level, "guarantee_level")
    if score not in get_args(Score):
        raise InputError(f"score={score!r}: expected one of {listed(get_args(Score))}", "score")
    p, y, w = rules.checked(probs, labels, sample_weight, classes, whole=True)
    names, part = _parts(by, y, groups, p.shape[1], classes)
    own, drawn, rng = np.empty(len(p)), [], np.random.default_rng([seed, 1])
    for each in row_slices(*p.shape):
        own[each] = score_classes(score, p[each])[np.arange(each.stop - each.start), y[each]]
    for i in range(len(names)):
        rows, counts = rules.draw_cases(clusters, np.where(part == i, w, 0.0), rng)
        drawn.append(np.repeat(own[rows], counts.astype(np.int64)))
    delta = None if guarantee_level is None else (1 - guarantee_level) / len(names)  # shared by the thresholds
    orders = [order_of(len(scores), coverage, delta) for scores in drawn]
    few = [(name, len(scores)) for name, scores, k in zip(names, drawn, orders) if k is None]
    if few:
        needed = units_needed(coverage, delta)
        return Choice(None, tuple(Shortage(None if by is None else name, n, needed - n) for name, n in few))
    thresholds = tuple(threshold_at(scores, k) for scores, k in zip(drawn, orders) if k is not None)
    promise = Promise("coverage", (float(coverage),), guarantee_level, by, rules.unit_of(clusters, w, unit))
    known = names if by == "group" else None
    return Choice(PredictionSets(p.shape[1], score, thresholds, promise, tuple(map(len, drawn)), known))


def order_of(n: int, coverage: float, delta: float | None = None) -> int | None:
    """Return which of n ordered scores is the threshold; None where n are too few.

    With ``delta`` the coverage, which has the law Beta(k, n + 1 − k), is below what is asked with this probability at
    most (Vovk 2012, proposition 2a): n − k is the number of errors that a Clopper–Pearson bound allows.

    >>> order_of(100, 0.9), order_of(100, 0.9, 0.05), order_of(8, 0.9), order_of(28, 0.9, 0.05)
    (91, 96, None, None)
    """
    k = order_for(n, coverage)
    if delta is not None:
        k = max(k, n - most_errors(n, 1 - coverage, delta))
    return k if k <= n else None


def units_needed(coverage: float, delta: float | None = None) -> int:
    """Return the least number of cases for which there is a threshold.

    >>> units_needed(0.95), units_needed(0.95, 0.05)
    (19, 59)
    """
    least = math.ceil(coverage / (1 - coverage) - 1e-9)
    return least if delta is None else max(least, samples_needed(1 - coverage, delta))


def _parts(
    by: str | None, y: Labels, groups: ArrayLike | None, n_classes: int, classes: Sequence[Any] | None
) -> tuple[tuple[str, ...], Labels]:
    """Return the names of the thresholds, and which is that of each sample."""
    if by == "class":
        return tuple(rules.name_of(k, classes) for k in range(n_classes)), y
    if by == "group":
        values, part = np.unique(as_ids(groups, len(y), "groups"), return_inverse=True)
        return tuple(map(str, values.tolist())), part.ravel().astype(np.int64)
    if by is not None:
        raise InputError(f"by={by!r}: expected 'class', 'group' or None", "by")
    return ("all",), np.zeros(len(y), dtype=np.int64)
