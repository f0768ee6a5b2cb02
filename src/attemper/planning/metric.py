"""How many labels the interval of a metric takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import bdtr, stdtrit

from attemper._checks import fraction, number, one_of, whole
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.errors import InputError
from attemper.metrics.bins import bins_of, uniform_edges
from attemper.metrics.bootstrap import enclosed
from attemper.metrics.intervals import LEAST_ERRORS, skewed, wilson
from attemper.planning.pilot import Pilot
from attemper.planning.plan import Plan, curve_around, smallest

__all__ = ["labels_for_metric"]

PlannedMetric = Literal["accuracy", "nll", "brier", "ece"]
TITLES = {"accuracy": "the accuracy", "nll": "the NLL", "brier": "the Brier score", "ece": "the ECE"}
DRAWS, RESAMPLES = 50, 400  # data sets that are simulated, and resamples of each
MOST_WIDTH = {"accuracy": 1, "ece": 1, "brier": 2}  # as wide as all values
ENOUGH = 0.8  # probability of as many errors as an interval takes
FEW = 5  # samples of a bin that do not show how much they vary

Width = Callable[[float], tuple[float, float, float]]  # of n: width, its standard error, and ECE by chance


def labels_for_metric(
    pilot: Any,
    labels: Any = None,
    *,
    metric: PlannedMetric = "ece",
    width: float,
    confidence_level: float = 0.95,
    calibrator: Calibrator | None = None,
    n_bins: int = 15,
    clusters: Any = None,
    seed: int = 0,
) -> Plan:
    """Plan labels for an interval of a metric that is ``width`` wide, from end to end, on average.

    The interval is the one that `attemper.metrics` returns: of the accuracy Wilson's, of the NLL and the Brier score
    Hall's of a skewed mean, of the ECE the bootstrap's, which is simulated here: samples fall into bins as the pilot's
    do, and gaps of bins vary as they do in the pilot. Chance adds to gaps of few samples, so gaps are taken to be
    smaller than the pilot's by what chance adds on average. The curve has in ``chance`` the ECE that perfect
    calibration would show: an ECE that is expected below it cannot be distinguished from 0.

    Parameters
    ----------
    pilot, labels, clusters
        As in `labels_for_temperature`. Without labels the probabilities are taken to be calibrated: labels are as
        probable as predicted.
    metric : {"ece", "accuracy", "nll", "brier"}
    width : float
        Such as 0.02, for an ECE of 0.05 known from 0.04 to 0.06.
    confidence_level : float
    calibrator : Calibrator, optional
        A fitted map: plan for its probabilities, not the classifier's own. It must not be fitted on the pilot, if that
        has labels.
    n_bins : int
        Of the ECE, of equal width.
    seed : int
        Of the simulation.

    Returns
    -------
    Plan
        The curve has ``n_samples`` and ``width``; of the ECE also ``width_error`` and ``chance``.

    Examples
    --------
    >>> from attemper import datasets
    >>> data = datasets.load()
    >>> plan = labels_for_metric(data.val_logits, data.val_labels, metric="accuracy", width=0.04)
    >>> plan.n_samples, plan.n_range
    (1590, (1435, 1746))
    >>> ece = labels_for_metric(data.val_logits, data.val_labels, width=0.04)
    >>> 800 < ece.n_samples < 1400
    True
    """
    one_of("metric", metric, get_args(PlannedMetric))
    target = number(
        "width",
        width,
        0,
        MOST_WIDTH.get(metric, math.inf),
        expected=f"a positive number{f', below {MOST_WIDTH[metric]}' if metric in MOST_WIDTH else ''}, such as 0.02",
        closed=(False, False),
    )
    fraction("confidence_level", confidence_level)
    whole("n_bins", n_bins, at_most=10_000)
    whole("seed", seed, at_least=0)
    p = Pilot.of(pilot, labels, clusters)
    log_p = p.log_probs(calibrator)
    right = _right(p, log_p)
    share = p.moment(right)
    goal = f"an interval of {TITLES[metric]} that is {target:g} wide, at {confidence_level:.4g}"
    notes = [f"the pilot's accuracy is {share:.4g}" + (", by its own probabilities" if p.labels is None else "")]
    at_least = 1
    if metric != "accuracy":
        at_least = _enough_errors(1 - share)
        notes.append(f"an interval takes {LEAST_ERRORS} wrong predictions, which {at_least} labels have")
    if metric == "accuracy":
        found = _of_share(p, right, confidence_level, target, goal)
    elif metric == "ece":
        found = _of_ece(_gaps(p, log_p, right, n_bins), confidence_level, seed)
    else:
        found = _of_mean(p, _moments(metric, p, log_p), confidence_level)
    precision = 0.01 if metric == "ece" else 0.0
    n = smallest(lambda m: found.width(m)[0] <= target, goal, at_least=at_least, precision=precision)
    ns = curve_around(n, at_least=at_least)
    names = ("width", "width_error", "chance") if metric == "ece" else ("width",)
    return Plan(
        question=metric,
        goal=goal,
        n_samples=n,
        curve={"n_samples": ns, **dict(zip(names, np.array([found.width(m) for m in ns]).T, strict=False))},
        target=target,
        confidence_level=confidence_level,
        n_range=found.n_range(n),
        n_clusters=p.clusters_of(n),
        notes=(*notes, *p.cluster_notes(found.effect)),
    )


class Expected(NamedTuple):
    """What is expected of n labels; ``effect`` is the design effect of the pilot's clusters."""

    width: Width
    effect: float
    n_range: Callable[[int], tuple[int, int] | None] = lambda _: None


def _right(p: Pilot, log_p: Floats) -> Floats:
    """Whether each prediction is right; without labels how probable that is."""
    if p.labels is None:
        return np.asarray(np.exp(log_p.max(axis=1)))
    return np.asarray(log_p.argmax(axis=1) == p.labels, dtype=np.float64)


def _enough_errors(rate: float) -> int:
    """Smallest number of labels among which there are probably as many errors as an interval takes."""
    if rate <= 0:
        raise InputError(
            f"pilot: no prediction is wrong, and an interval takes {LEAST_ERRORS} wrong ones. Use a larger pilot, or "
            "one without labels, whose probabilities show how rare errors are."
        )
    return smallest(lambda n: float(bdtr(LEAST_ERRORS - 1, n, rate)) <= 1 - ENOUGH, "20 errors", at_least=LEAST_ERRORS)


def _of_share(p: Pilot, right: Floats, level: float, target: float, goal: str) -> Expected:
    """Wilson's interval; the range is that of the ends of the pilot's own."""
    share, effect = p.moment(right), p.design_effect(right)

    def width(n: float, of: float = share) -> tuple[float, float, float]:
        m = n / effect
        low, high = (float(end) for end in wilson(np.asarray(of * m), np.asarray(m), level))
        return (high - low) * _student(p, n, level), 0.0, 0.0

    def n_range(_: int) -> tuple[int, int] | None:
        if p.labels is None:
            return None
        size = 1 / float(p.weights @ p.weights) / effect
        ends = [float(end) for end in wilson(np.asarray(share * size), np.asarray(size), 0.95)]
        possible = [*ends, *([0.5] if ends[0] < 0.5 < ends[1] else [])]
        found = [_narrow_enough(partial(width, of=of), target, goal) for of in possible]
        return min(found), max(found)

    return Expected(width, effect, n_range)


def _narrow_enough(width: Width, target: float, goal: str) -> int:
    return smallest(lambda n: width(n)[0] <= target, goal)


class Losses(NamedTuple):
    """Mean, standard deviation and skewness of a loss, and how well its variance is known."""

    mean: float
    std: float
    skewness: float
    log_variance_error: float
    effect: float


def _moments(metric: str, p: Pilot, log_p: Floats) -> Losses:
    """Moments of the losses of the labels; without labels those of labels that are drawn from the probabilities."""
    probs = np.exp(log_p)
    if metric == "nll":
        every = -np.maximum(log_p, -1e6)  # which has no weight
    else:
        every = 1 - 2 * probs + (probs**2).sum(axis=1, keepdims=True)
    if p.labels is not None:
        rows = np.arange(len(every))
        if metric == "nll" and np.isinf(log_p[rows, p.labels]).any():
            row = int(np.isinf(log_p[rows, p.labels]).argmax())
            raise InputError(
                f"pilot: row {row}: its label has a probability of 0, so the NLL is infinite. Use a map, or zeros_as=…"
            )
        every, probs = every[rows, p.labels][:, None], np.ones((len(every), 1))
    mean = p.moment((probs * every).sum(axis=1))
    d = every - mean
    second, third, fourth = (p.moment((probs * d**power).sum(axis=1)) for power in (2, 3, 4))
    if second <= 0:
        raise InputError("pilot: all its losses are equal, so they do not show how far their mean varies")
    size = 1 / float(p.weights @ p.weights)
    effect = p.design_effect(every[:, 0])
    error = math.sqrt(max(fourth / second**2 - 1, 0.0) * effect / size)
    return Losses(mean, math.sqrt(second), third / second**1.5, min(error, 5.0), effect)


def _of_mean(p: Pilot, losses: Losses, level: float) -> Expected:
    """Hall's interval of a skewed mean; the range is that of the variance."""

    def width(n: float) -> tuple[float, float, float]:
        m = n / losses.effect
        found = skewed(losses.mean, losses.std / math.sqrt(m), losses.skewness / math.sqrt(m), level)
        return (found.high - found.low) * _student(p, n, level), 0.0, 0.0

    def n_range(n: int) -> tuple[int, int]:
        factor = math.exp(1.96 * losses.log_variance_error)
        return max(1, math.floor(n / factor)), math.ceil(n * factor)

    return Expected(width, losses.effect, n_range)


def _student(p: Pilot, n: float, level: float) -> float:
    """How much wider Student's interval of few clusters is than a normal one."""
    groups = p.clusters_of(n)
    if groups is None:
        return 1.0
    tail = (1 + level) / 2
    return float(stdtrit(max(groups - 1, 1), tail) / stdtrit(np.inf, tail))


class Gaps(NamedTuple):
    """Of each bin the share of samples, the mean of confidence − right, and its variance; that under calibration."""

    share: Floats
    mean: Floats
    variance: Floats
    calibrated: Floats
    effect: float


def _gaps(p: Pilot, log_p: Floats, right: Floats, n_bins: int) -> Gaps:
    effect = p.design_effect(right)
    confidence = np.exp(log_p.max(axis=1))
    cell = bins_of(confidence, uniform_edges(n_bins))
    share = np.bincount(cell, p.weights, n_bins).astype(np.float64)
    used = share > 0
    per = np.where(used, share, 1.0)

    def mean(values: Floats) -> Floats:
        return np.bincount(cell, p.weights * values, n_bins) / per

    calibrated = mean(confidence * (1 - confidence))
    if p.labels is None:
        return Gaps(share[used], np.zeros(int(used.sum())), calibrated[used], calibrated[used], effect)
    gap = mean(confidence - right)
    variance = mean((confidence - right) ** 2) - gap**2
    squares = np.bincount(cell, p.weights**2, n_bins)
    size = per**2 / np.where(used, squares, 1.0) / effect  # samples that a bin is worth
    variance = np.where(size < FEW, np.maximum(variance, calibrated), variance * size / np.maximum(size - 1, 1))
    gap = np.sign(gap) * np.sqrt(np.maximum(gap**2 - variance / size, 0.0))
    return Gaps(share[used], gap[used], effect * variance[used], effect * calibrated[used], effect)


def _of_ece(gaps: Gaps, level: float, seed: int) -> Expected:
    """Simulate data sets of n samples, and the interval of each."""

    def width(n: float) -> tuple[float, float, float]:
        rng, m = np.random.default_rng([seed, int(n)]), int(n)
        count = rng.multinomial(m, gaps.share, size=DRAWS)
        total = count * gaps.mean + np.sqrt(count * gaps.variance) * rng.normal(size=count.shape)
        again = rng.multinomial(m, count / m, size=(RESAMPLES, DRAWS))
        drawn = again * (total / np.maximum(count, 1)) + np.sqrt(again * gaps.variance) * rng.normal(size=again.shape)
        values, resampled = np.abs(total).sum(axis=1) / m, np.abs(drawn).sum(axis=2) / m
        ends = [enclosed(value, column, level) for value, column in zip(values.tolist(), resampled.T, strict=True)]
        found = [end.high - end.low for end in ends]
        chance = math.sqrt(2 / math.pi) * float(np.sqrt(count * gaps.calibrated).sum(axis=1).mean()) / m
        return float(np.mean(found)), float(np.std(found)) / math.sqrt(DRAWS), chance

    return Expected(width, gaps.effect)
