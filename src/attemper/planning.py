"""How many labels it takes, before they are paid for: closed forms and exact laws, no simulation.

A pilot is a small set of the same kind of samples. Numbers count labels; with clusters, ``n_cases`` counts cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betainc, ndtri

from attemper._result import Columns, Table
from attemper._typing import Floats, Labels
from attemper.calibrators.label_model import error_rate
from attemper.data.inputs import as_labels
from attemper.data.scores import Scores
from attemper.decisions.certificates import SHARE_AT_FIRST, most_errors, ranks_to_test
from attemper.decisions.referral import as_bounds, asked_cases, smallest
from attemper.decisions.rules import checked, draw_cases, tops
from attemper.errors import InputError, check_share
from attemper.kernels.clusters import design_effect
from attemper.kernels.conformal import ROUNDING
from attemper.kernels.temperature import information, information_of_t, row_terms
from attemper.metrics.bins import Binned, one_of
from attemper.metrics.intervals import LEAST_ERRORS, Spread, around_mean, around_share
from attemper.metrics.predictions import Predictions

__all__ = ["MissPlan", "Plan", "labels_for_metric", "labels_for_miss", "labels_for_sets", "labels_for_temperature"]

Metric = Literal["accuracy", "nll", "brier", "ece"]
MOST_LABELS = 100_000_000  # a plan for more helps nobody
N_BINS = 15
ERRORS = 1.5 * LEAST_ERRORS  # expected: in 98 of 100 draws there are then as many as an interval needs
OF_THE_LIMIT = 0.8  # of what endless labels would decide, where no share is asked for


@dataclass(frozen=True)
class Plan:
    """So many labels for a target, such as the width of an interval."""

    n: int
    n_cases: int  # the same as n without clusters
    target: float
    expected: float  # of n labels


@dataclass(frozen=True, repr=False)
class MissPlan(Table):
    """For all cases, or for each class with a bound: how many it takes until the guarantee decides so many."""

    of: tuple[str | None, ...]  # None: all cases
    n_cases: tuple[int | None, ...]  # None: no number is enough
    there_are: tuple[int, ...]
    more: tuple[int | None, ...]
    rate: tuple[float, ...]  # of misses, as the pilot shows it at this share of decided cases
    power_now: tuple[float, ...]  # probability that as many cases as there are give the guarantee
    decided_share: float
    limit: float  # share that endless labels would decide

    def columns(self) -> Columns:
        """Return one row for each class."""
        return {name: getattr(self, name) for name in ("of", "n_cases", "there_are", "more", "rate", "power_now")}


def labels_for_temperature(
    logits: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    width: float,
    temperature: float = 1.0,
    noise: float = 0.0,
    clusters: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> Plan:
    r"""Plan labels for an interval of T whose upper end is ``width`` times its lower end.

    The Fisher information of a label about :math:`\log T` is :math:`\operatorname{Var}_S[h / T]`, whatever the label
    is. So n labels leave an interval of :math:`\log T` of the width :math:`2 z / \sqrt{n I}`.

    Parameters
    ----------
    logits, labels, clusters : arrays of a pilot
        As in a fit: one column is the log-odds of the second of two classes. Labels are needed only with clusters, to
        show how far the samples of a case go together.
    width : float
        Such as 1.2: T = 2 would be known from 1.83 to 2.19.
    temperature, noise : float
        The information is taken at this T; a share of wrong labels is estimated together with T, and costs information.
    confidence_level : float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels_for_temperature(4 * rng.normal(size=(500, 5)), width=1.2, temperature=2).n
    704
    """
    _within("width", width, 1, math.inf)
    _within("temperature", temperature, 0, math.inf)
    check_share(confidence_level, "confidence_level")
    scores = Scores.of(logits, clusters=clusters)
    rate = error_rate(noise, scores.chance)
    if rate is None:
        raise InputError(f"noise={noise!r}: expected a share. Use one that you consider possible.", "noise")
    h, case = scores.logits, scores.cases
    y = None if labels is None else as_labels(labels, *scores.shape)
    mean = information_of_t(information(h, temperature, rate).mean(axis=0))
    if mean <= 1e-12:
        raise InputError(f"logits: at T = {temperature:.4g} labels would not depend on T", "logits")
    if case is not None and y is None:
        raise InputError("labels: with clusters the labels of the pilot are needed", "labels")
    effect = 1.0 if case is None or y is None else _effect_on_slope(h, y, temperature, case)

    def ratio(n: int) -> float:
        few = case is not None  # cases: Student's quantile allows for them
        z = _spread(1.0, 0.0, n, 1.0, case).quantile(confidence_level) if few else _normal(confidence_level)
        return math.exp(min(2 * z * math.sqrt(effect / (n * mean)), 700.0))

    return _plan(ratio, float(width), case)


def labels_for_metric(
    labels: ArrayLike,
    probs: ArrayLike,
    metric: Metric = "ece",
    *,
    width: float,
    clusters: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> Plan:
    """Plan labels for an interval of a metric that is ``width`` wide, from end to end.

    The interval is that of `attemper.metrics` for as many samples with the spread and skewness of the pilot's, and so
    many that there are enough errors for one. The ECE counts as the mean of confidence − correct with the sign of its
    bin, which is what it tends to where gaps are clear.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 1000)
    >>> y = (rng.random(1000) > p).astype(int)
    >>> labels_for_metric(y, np.column_stack([p, 1 - p]), "accuracy", width=0.04).n
    1730
    """
    one_of("metric", metric, get_args(Metric))
    _within("width", width, 0, math.inf)
    check_share(confidence_level, "confidence_level")
    p = Predictions.of(labels, probs, clusters=clusters)
    if not p.errors:
        raise InputError("labels: the pilot has no wrong prediction, so it does not show their rate", "labels")
    values, case = _losses(metric, p), p.clusters
    std, mean = float(values.std()), float(values.mean())
    if std == 0 or not math.isfinite(mean):
        raise InputError("probs: the pilot's losses do not differ, or are infinite, and show no spread", "probs")
    least = 2 if metric == "accuracy" else math.ceil(ERRORS * len(p) / p.errors)
    skewness = float((((values - mean) / std) ** 3).mean())
    effect = 1.0 if case is None else float(np.nan_to_num(design_effect(values, case), nan=1.0))
    around = around_share if metric == "accuracy" else around_mean

    def expected(n: int) -> float:
        found = around(mean, _spread(std, skewness, n, effect, case), confidence_level)
        return found.high - found.low

    return _plan(expected, float(width), case, least)


def labels_for_sets(coverage: float = 0.9, *, within: float, confidence_level: float = 0.95) -> Plan:
    """Plan cases for prediction sets whose coverage, once they are chosen, is ``coverage`` give or take ``within``.

    Given one draw of n cases, the share of new ones that the sets cover has the law Beta(k, n + 1 − k), k = ⌈(n + 1) ·
    coverage⌉: exactly, where scores are not tied (Vovk 2012), whatever the classifier. No pilot is needed.

    Examples
    --------
    >>> labels_for_sets(0.95, within=0.02).n
    442
    """
    for param, value in (("coverage", coverage), ("within", within), ("confidence_level", confidence_level)):
        check_share(value, param)
    rough = coverage * (1 - coverage) * (_normal(confidence_level) / within) ** 2
    most = math.ceil(4 * rough + 40 / min(coverage, 1 - coverage))
    if most > 10_000_000:
        raise InputError(f"within={within!r}: that takes about {rough:.3g} labels; use a wider one", "within")
    n = np.arange(1, most + 1, dtype=np.float64)
    k = np.maximum(1, np.ceil((n + 1) * coverage - ROUNDING))
    rest = np.maximum(n + 1 - k, 1)
    inside = betainc(k, rest, min(1.0, coverage + within)) - betainc(k, rest, max(0.0, coverage - within))
    inside = np.where(n + 1 - k >= 1, inside, float(coverage + within >= 1))  # of too few, sets hold all classes
    # It rises and falls a little with every step of k, so the last that fails counts.
    fails = np.flatnonzero(inside < confidence_level)
    found = int(fails[-1]) + 2 if fails.size else 1
    return Plan(found, found, float(within), float(inside[found - 1]))


def labels_for_miss(
    labels: ArrayLike,
    probs: ArrayLike,
    max_miss: float | Mapping[Any, float] | Sequence[float],
    *,
    decided_share: float | None = None,
    guarantee_level: float = 0.95,
    power: float = 0.8,
    clusters: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    seed: int = 0,
) -> MissPlan:
    """Plan cases for a guarantee of `refer_for_miss` that decides ``decided_share`` of the cases.

    If errors are as frequent as in the pilot, those among the most confident n₁ < n₂ < … of n cases are sums of
    binomial numbers, and the probability that they pass every test down to that share is exact; it has to reach
    ``power``. By class there is one test, of the true cases of the class: P(Bin(n, r) ≤ `most_errors`), r being the
    share of these that is decided as something else.

    Parameters
    ----------
    labels, probs, max_miss, guarantee_level, clusters, classes, seed
        As in `refer_for_miss`; the samples are a pilot.
    decided_share : float, optional
        By default 0.8 of what endless labels would decide.
    power : float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 300)
    >>> y = (rng.random(300) > p).astype(int)
    >>> plan = labels_for_miss(y, np.column_stack([p, 1 - p]), 0.1, decided_share=0.2)
    >>> plan.n_cases, plan.there_are
    ((479,), (300,))
    """
    for param, value in (("guarantee_level", guarantee_level), ("power", power), ("decided_share", decided_share)):
        if value is not None:
            check_share(value, param)
    p, y, w = checked(probs, labels, None, classes)
    bounds, delta = as_bounds(max_miss, p.shape[1], classes), 1 - guarantee_level
    prediction, confidence = tops(p)
    wrong = prediction != y
    ordered = np.sort(confidence[draw_cases(clusters, w, seed)[0]])[::-1]
    asked = asked_cases(y, bounds, clusters, w, classes, seed)
    limit = _limit(ordered, [(confidence[own], wrong[own], bound, name is None) for name, bound, own, _ in asked])
    share = OF_THE_LIMIT * limit if decided_share is None else float(decided_share)
    threshold = ordered[max(0, min(len(ordered), math.ceil(share * len(ordered))) - 1)]
    found = []
    for name, bound, own, _ in asked:
        decided = confidence[own] >= threshold
        rate = float((wrong[own] & decided).sum()) / max(1, int(decided.sum()) if name is None else len(own))
        by_confidence = wrong[own][np.argsort(-confidence[own], kind="stable")]
        passes = partial(_walk, by_confidence, share) if name is None else partial(_test, rate)
        passes = partial(passes, bound, delta)
        needed = None if rate >= bound else smallest(lambda n, f=passes: f(n) >= power, 1, MOST_LABELS)  # type: ignore[misc]
        now = passes(len(own))
        if needed is not None and now >= power:  # it rises and falls a little with each error that is allowed
            needed = min(needed, len(own))
        found.append((name, len(own), rate, needed, now))
    names, there_are, rates, n_cases, powers = zip(*found)
    more = tuple(None if n is None else max(0, n - have) for n, have in zip(n_cases, there_are))
    return MissPlan(names, n_cases, there_are, more, rates, powers, share, limit)


def _test(rate: float, bound: float, delta: float, n: int) -> float:
    """Return the probability that n cases with this rate of errors pass their test."""
    allowed = most_errors(n, bound, delta)
    return float(bdtr(allowed, n, rate)) if allowed >= 0 else 0.0


def _walk(wrong: NDArray[np.bool_], share: float, bound: float, delta: float, n: int) -> float:
    """Return the probability that n cases pass all tests of `certify_decided` down to this share.

    ``wrong`` is whether the cases of the pilot are, the most confident first: the rate of errors between two shares.
    """
    errors = np.concatenate([[0.0], np.cumsum(wrong)]) / max(len(wrong), 1)
    ranks = ranks_to_test(n, bound, delta)
    ranks = ranks[: int(np.searchsorted(ranks, share * n)) + 1]
    at = np.concatenate([[0], ranks])
    rates = np.diff(np.interp(at / n, np.linspace(0, 1, len(errors)), errors)) * n / np.diff(at)
    chance = np.ones(1 if len(ranks) else 0)  # of each number of errors, having passed so far
    for m, step, rate in zip(ranks.tolist(), np.diff(at).tolist(), rates.tolist()):
        allowed = most_errors(m, bound, delta)
        added = np.diff(bdtr(np.arange(min(allowed, step) + 1), step, min(rate, 1.0)), prepend=0.0)
        chance = np.convolve(chance, added)[: allowed + 1]
    return float(chance.sum())


def _limit(ordered: Floats, asked: list[tuple[Floats, NDArray[np.bool_], float, bool]]) -> float:
    """Return the share that endless labels would decide: down to where a rate passes its bound for the first time."""
    highest = 0.0
    for confidence, wrong, bound, of_decided in asked:
        order = np.argsort(-confidence, kind="stable")
        missed, decided = np.cumsum(wrong[order]), np.arange(1, len(order) + 1)
        rate = missed / decided if of_decided else missed / max(len(order), 1)
        first = math.ceil(SHARE_AT_FIRST * len(order)) - 1 if of_decided else 0
        above = np.flatnonzero(rate[max(first, 0) :] >= bound)
        if above.size or not len(order):
            highest = max(highest, float(confidence[order][max(first, 0) + above[0]]) if len(order) else 1.0)
    return float((ordered > highest).mean())


def _losses(metric: Metric, p: Predictions) -> Floats:
    """Return the loss of each sample, whose mean is the metric."""
    if metric == "accuracy":
        return p.right.astype(np.float64)
    if metric != "ece":
        return -p.log_likelihood if metric == "nll" else p.squared_errors
    [(confidence, right, cell)] = Binned(p, None, N_BINS, "uniform").blocks()
    gap = confidence - right
    return np.asarray(np.sign(np.bincount(cell, gap, N_BINS))[cell] * gap)


def _effect_on_slope(h: Floats, y: Labels, t: float, case: Labels) -> float:
    """How many times as many labels of clusters as of independent samples it takes, as the interval of a fit has it."""
    _, slopes, curvature = row_terms(h, y, 1 / t, masked=bool(np.isneginf(h).any()))
    sums = np.bincount(case, slopes - slopes.mean())
    n = len(sums)
    return max(1.0, n / max(n - 1, 1) * float(sums @ sums) / max(float(curvature.sum()), 1e-300))


def _spread(std: float, skewness: float, n: int, effect: float, case: Labels | None) -> Spread:
    """Return how far the mean of n samples varies."""
    per_case = 1.0 if case is None else len(case) / (case.max() + 1)
    m = max(n / per_case, 1.5)
    return Spread(std * math.sqrt(effect / n * m / (m - 1)), skewness * math.sqrt(effect / n), m, float(n))


def _within(param: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise InputError(f"{param}={value!r}: expected a number between {low:g} and {high:g}", param)


def _normal(confidence_level: float) -> float:
    return float(ndtri((1 + confidence_level) / 2))


def _plan(expected: Callable[[int], float], target: float, case: Labels | None, least: int = 2) -> Plan:
    """Return the smallest n, at least so many, of which no more than the target is expected."""
    n = smallest(lambda m: expected(m) <= target, least, MOST_LABELS)
    if n is None:
        raise InputError(f"width={target:g}: that takes more than {MOST_LABELS} labels; use a wider one", "width")
    return Plan(n, n if case is None else math.ceil(n * (int(case.max()) + 1) / len(case)), target, expected(n))
