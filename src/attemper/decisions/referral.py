"""Rules that decide or refer: for a bound on misses that is guaranteed, for a budget, for costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from attemper._typing import Floats, Labels
from attemper.decisions import certificates as exact
from attemper.decisions import rules
from attemper.decisions.certificates import most_errors, samples_needed
from attemper.decisions.rules import Actions, Choice, Promise, Rule, Shortage
from attemper.errors import InputError, check_number, check_share, listed
from attemper.kernels.conformal import clear_of_ties

POWER = 0.8  # with which a guarantee would be given, of so many cases as are asked for
MOST_CASES = 10_000_000


@dataclass(frozen=True)
class Referral(Rule):
    """Decide what is more confident than the threshold; with costs, what is expected to cost less than a referral.

    Examples
    --------
    >>> Referral(2, threshold=0.75).decide([[0.9, 0.1], [0.25, 0.75], [0.45, 0.55]]).action.tolist()
    ['decide', 'refer', 'refer']
    >>> Referral(2, cost_refer=1, cost_miss=(10, 50)).decide([[0.99, 0.01], [0.04, 0.96], [0.3, 0.7]]).refer.tolist()
    [False, False, True]
    """

    kind: ClassVar[str] = "referral"
    n_classes: int
    threshold: float | None = None  # None: costs decide
    cost_refer: float | None = None
    cost_miss: tuple[float, ...] | None = None  # of each true class
    promise: Promise | None = None
    n_cases: tuple[int, ...] = ()  # that it was chosen on; by class one number a class

    def decide(self, probs: ArrayLike, groups: ArrayLike | None = None) -> Actions:
        """Return what to do with each sample; groups make no difference."""
        p = rules.as_probs(probs, self.n_classes)
        prediction, confidence = rules.tops(p)
        if self.threshold is not None:
            refer = confidence <= self.threshold
        else:
            others = np.where(np.arange(p.shape[1]) == prediction[:, None], 0.0, p)
            refer = others @ np.asarray(self.cost_miss, dtype=np.float64) >= (self.cost_refer or 0.0)
        return Actions(np.where(refer, "refer", "decide"), prediction, confidence)


def refer_for_miss(
    probs: ArrayLike,
    labels: ArrayLike,
    max_miss: float | Mapping[Any, float] | Sequence[float],
    *,
    guarantee_level: float = 0.95,
    clusters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    fit_probs: ArrayLike | None = None,
    unit: str = "cluster",
    seed: int = 0,
) -> Choice:
    """Decide as many cases as possible while misses stay below a bound, guaranteed.

    With confidence ``guarantee_level`` in the draw of these cases, for any classifier and any distribution: of the new
    cases that are decided at most ``max_miss`` are wrong; by class, of the true cases of the class at most its bound
    are decided as something else. The samples must have trained neither the network nor the map.

    Parameters
    ----------
    probs, labels : probabilities, N×K, and true classes as column numbers
    max_miss : float, mapping of classes to bounds, or one bound for each class
        By class there is one threshold for all, such that every bound holds. A bound of 1 asks nothing of a class.
    guarantee_level : float
    clusters, unit : array of shape (n_samples,), optional, and what a cluster is called, such as "patient"
        The case of each sample. One sample of each is drawn (with ``seed``), by class one of each cluster and class.
    sample_weight : whole numbers, optional: how often each sample occurred
    classes : names of the columns, optional
    fit_probs : array, optional
        Probabilities of other samples, such as those that fitted the map. If confidences are tied they fix where the
        walk over thresholds starts, which the proof needs then (not by class).

    References
    ----------
    A. Angelopoulos et al., Learn then test, arXiv 2110.01052. S. Bates et al., Distribution-free, risk-controlling
    prediction sets, JACM 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 2000)
    >>> probs, labels = np.column_stack([p, 1 - p]), (rng.random(2000) > p).astype(int)
    >>> round(refer_for_miss(probs, labels, 0.1).rule.threshold, 2)
    0.83
    >>> refer_for_miss(probs[:20], labels[:20], 0.1).shortages
    (Shortage(of=None, n_cases=20, more=9, errors=0, tested=0),)
    """
    p, y, w = rules.checked(probs, labels, sample_weight, classes, whole=True)
    bounds = as_bounds(max_miss, p.shape[1], classes)
    check_share(guarantee_level, "guarantee_level")
    delta, (prediction, confidence) = 1 - guarantee_level, rules.tops(p)
    wrong = prediction != y
    asked = asked_cases(y, bounds, clusters, w, classes, seed)
    threshold, shortages = 0.0, []
    for name, bound, rows, counts in asked:
        c, e = confidence[rows], wrong[rows]
        if name is None:
            start = _start(fit_probs, int(counts.sum()), bound, delta)
            found = exact.certify_decided(c, e, counts, bound, delta, start=start)
        else:
            # One threshold for all classes is too low only if it is for the class that needs the highest. So nothing
            # has to be shared: the level of each class is the level of all.
            found = exact.certify_all(c, e, counts, bound, delta)
        threshold = max(threshold, found.threshold)
        if not found.reached:
            shortages.append(_shortage(name, c, e, counts, bound, delta))
    if shortages:
        return Choice(None, tuple(shortages))
    by: Literal["class"] | None = "class" if len(bounds) > 1 else None
    threshold = clear_of_ties(threshold, confidence) if threshold > 0 else 0.0
    promise = Promise("miss", bounds, float(guarantee_level), by, rules.unit_of(clusters, w, unit))
    return Choice(Referral(p.shape[1], threshold, promise=promise, n_cases=tuple(int(n.sum()) for *_, n in asked)))


def asked_cases(
    y: Labels,
    bounds: tuple[float, ...],
    clusters: ArrayLike | None,
    w: Floats,
    classes: Sequence[Any] | None,
    seed: int,
) -> list[tuple[str | None, float, NDArray[np.intp], Floats]]:
    """Return name (None: all cases), bound, rows and counts of what a bound is asked of: one row of each case."""
    if len(bounds) == 1:
        return [(None, bounds[0], *rules.draw_cases(clusters, w, seed))]
    rng = np.random.default_rng([seed, 1])
    drawn = [rules.draw_cases(clusters, np.where(y == k, w, 0.0), rng) for k in range(len(bounds))]
    return [(rules.name_of(k, classes), bounds[k], *rows) for k, rows in enumerate(drawn) if bounds[k] < 1]


def _shortage(
    name: str | None, confidence: Floats, wrong: NDArray[np.bool_], counts: Floats, bound: float, delta: float
) -> Shortage:
    """Return how many more cases the first test needs to pass, at about the rate of errors that this one shows.

    Of all, the first test of n cases is about the m most confident; of a class it is about those that are certain. It
    passes where at most `most_errors` are wrong, which has a binomial probability; that has to reach `POWER`. A few
    errors show a rate badly, so half of it is what the confidences expect.
    """
    n, least = int(counts.sum()), samples_needed(bound, delta)
    if n < least:
        return Shortage(name, n, least - n)
    order = np.argsort(-confidence, kind="stable")
    own = np.repeat(order, counts[order].astype(np.int64))
    c, e = confidence[own], wrong[own].astype(np.float64)
    m = n if name else int(exact.ranks_to_test(n, bound, delta)[0])
    seen = int(e[c >= 1].sum()) if name else int(e[:m].sum())
    above = np.append(0.0, np.cumsum((e + 1 - c) / 2))

    def passes(cases: int) -> bool:
        first = cases if name else int(exact.ranks_to_test(cases, bound, delta)[0])
        top = n * first / cases  # so many of these are among the same share of the most confident
        rate = seen / n if name else float(np.interp(top, np.arange(n + 1), above)) / top
        return bool(bdtr(most_errors(first, bound, delta), first, rate) >= POWER)

    needed = smallest(passes, n + 1)
    return Shortage(name, n, None if needed is None else needed - n, seen, m)


def refer_for_budget(probs: ArrayLike, budget: float, *, sample_weight: ArrayLike | None = None) -> Referral:
    """Refer the least confident samples, at most the share ``budget`` of these; needs no labels and promises nothing.

    Samples of the same confidence are referred together or not at all.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.4, 0.6]]
    >>> [round(refer_for_budget(probs, share).threshold, 5) for share in (0.4, 0.3)]  # the last two are tied
    [0.6, 0.0]
    """
    check_number(budget, "budget", 0, 1)
    p, _, w = rules.checked(probs, None, sample_weight)
    confidence = rules.tops(p)[1]
    value, group = np.unique(confidence, return_inverse=True)
    share = np.bincount(group, w).cumsum() / w.sum()
    n = int(np.searchsorted(share, budget + 1e-12, side="right"))  # 0.29 · 100 is a little less than 29
    threshold = 0.0 if n == 0 else 1.0 if n == len(value) else float(value[n - 1])
    raised = clear_of_ties(threshold, confidence) if 0 < n < len(value) else threshold
    within = w[confidence <= raised].sum() <= (budget + 1e-12) * w.sum()
    return Referral(p.shape[1], raised if within else threshold, n_cases=(len(p),))


def refer_for_costs(costs: Mapping[Any, float], n_classes: int, classes: Sequence[Any] | None = None) -> Referral:
    """Decide if that is expected to cost less than a referral: Σ_k p_k m_k < r, over the classes not predicted.

    Parameters
    ----------
    costs : mapping
        "refer": r, the cost of a referral; "miss": m, that of a wrong prediction; the name of a class: that of a miss
        of its true cases, in place of m.
    n_classes : int
    classes : names of the columns, optional

    Examples
    --------
    >>> refer_for_costs({"refer": 1, "miss": 50}, 2).threshold
    0.98
    >>> refer_for_costs({"refer": 1, "miss": 5, "mel": 50}, 2, ["nv", "mel"]).cost_miss
    (5.0, 50.0)
    """
    given = dict(costs) if isinstance(costs, Mapping) else {}
    numbers = all(isinstance(v, int | float | np.number) and 0 <= v < np.inf for v in given.values())
    if "refer" not in given or not numbers:
        raise InputError(f"costs: expected refer=… and miss=…, numbers of 0 or more, got {costs!r:.80}", "costs")
    r, miss = float(given.pop("refer")), given.pop("miss", None)
    m = rules.by_name(given, n_classes, classes, "costs", np.nan if miss is None else float(miss))
    if np.isnan(m).any():
        lacking = listed(rules.name_of(k, classes) for k in np.flatnonzero(np.isnan(m)).tolist())
        raise InputError(f"costs: expected miss=…, or a cost for each class; there is none for {lacking}", "costs")
    if (m == m[0]).all():
        # Where a miss costs no more than a referral nobody is referred: every confidence is above 0.
        threshold = float(1 - r / m[0]) if m[0] > r else 0.0
        return Referral(n_classes, threshold, r, tuple(m.tolist()))
    return Referral(n_classes, None, r, tuple(m.tolist()))


def as_bounds(max_miss: Any, n_classes: int, classes: Sequence[Any] | None) -> tuple[float, ...]:
    """Return one bound for all cases, or one for each class."""
    given = max_miss
    if isinstance(max_miss, Mapping):
        max_miss = rules.by_name(max_miss, n_classes, classes, "max_miss", 1.0)
    try:
        bounds = np.asarray(max_miss, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        bounds = np.zeros(0)
    right = bounds.size and (bounds > 0).all() and (bounds <= 1).all() and (bounds < 1).any()
    if bounds.size not in (1, n_classes) or not right:
        raise InputError(
            f"max_miss={given!r:.80}: expected a rate between 0 and 1, such as 0.05, or one a class", "max_miss"
        )
    return tuple(bounds.tolist())


def _start(fit_probs: ArrayLike | None, n: int, bound: float, delta: float) -> float | None:
    """Return where the walk starts if other samples show that confidences are tied; None: at fixed ranks."""
    if fit_probs is None:
        return None
    other = rules.tops(rules.as_probs(fit_probs))[1]
    return exact.start_of(other, np.ones(len(other)), n, bound, delta) if len(np.unique(other)) < len(other) else None


def smallest(holds: Callable[[int], bool], low: int = 1, most: int = MOST_CASES) -> int | None:
    """Return about the smallest n from ``low`` on for which something holds that mostly goes on to hold."""
    high = low
    while not holds(high):
        if high >= most:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
