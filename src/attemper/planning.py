"""How many labels you need, before you pay for them.

Each ``labels_for_…`` returns a `Plan`: the number of labels, and the curve behind it. A pilot is a small set of the
same kind of samples, with labels or without.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import bdtr, betainc, log_softmax, ndtri, stdtrit

from attemper._checks import fraction, number, one_of, positive
from attemper._table import Columns, Table
from attemper._typing import Floats, Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.temperature import TemperatureScaling
from attemper.data.ids import as_ids
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import EdgeWarning, InputError
from attemper.kernels.conformal import ROUNDING
from attemper.kernels.information import information, of_temperature
from attemper.kernels.nll import row_terms
from attemper.metrics import effective_sample_size
from attemper.metrics.intervals import LEAST_ERRORS, skewed, wilson

__all__ = ["Plan", "labels_for_certificate", "labels_for_coverage", "labels_for_metric", "labels_for_temperature"]

MAX_LABELS = 100_000_000  # a plan for more helps nobody
MAX_TRIED = 4_000_000  # numbers of labels that are tried, one by one
LEAST_SAMPLES = 10  # of a pilot
LEAST_CLUSTERS = 5  # as for intervals of metrics
ENOUGH = 0.8  # probability of as many errors as an interval takes

PlannedMetric = Literal["accuracy", "nll", "brier"]
Width = Callable[[float], float]  # of an interval of n samples
MAX_WIDTH = {"accuracy": 1, "brier": 2}  # as wide as all values


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Table):
    """How many labels you need: what the functions ``labels_for_…`` return.

    Attributes
    ----------
    n_samples : int
        The smallest number of labels for which the goal is expected to hold.
    curve : dict of arrays
        ``n_samples``, and what is expected of so many. `to_pandas` returns it as a data frame.
    target : float
        What the second column of the curve has to reach.
    confidence_level : float
    n_clusters : int or None
        How many clusters that is, where the pilot has some.

    Examples
    --------
    >>> labels_for_coverage(0.95, within=0.02)
    Plan(n_samples=442)
    """

    n_samples: int
    curve: dict[str, Floats]
    target: float
    confidence_level: float = 0.95
    n_clusters: int | None = None

    def __repr__(self) -> str:
        return f"Plan(n_samples={self.n_samples})"

    def _table_columns(self) -> Columns:
        return self.curve


def labels_for_temperature(
    pilot: Any,
    labels: Any = None,
    *,
    width: float,
    confidence_level: float = 0.95,
    temperature: float | None = None,
    noise: float = 0.0,
    clusters: Any = None,
) -> Plan:
    r"""Plan labels for an interval of T whose upper end is ``width`` times its lower end.

    The Fisher information of a label about :math:`\log T` is :math:`\operatorname{Var}_S[h / T]`, whatever the
    label is. So n labels leave an interval of :math:`\log T` of the width :math:`2 z / \sqrt{n I}`, I being the mean
    over the pilot: the interval of `attemper.TemperatureScaling`. The pilot needs labels only to find T.

    Parameters
    ----------
    pilot : Scores, or logits of shape (N, K)
        Samples of the kind that will be labelled.
    labels : array of shape (N,), optional
        With logits. They fit the T at which the information is taken.
    width : float
        Largest ratio of the ends, such as 1.2: T = 2 would be known from 1.83 to 2.19.
    confidence_level : float
    temperature : float, optional
        Take the information at this T, and fit none. By default 1 for a pilot without labels.
    noise : float
        Share of labels that will be wrong, drawn uniformly, such as 0.1. It is estimated together with T, as
        ``BayesianTemperatureScaling(labels="noisy")`` does, and both cost information.
    clusters : array of shape (N,), optional
        Which samples of the pilot are of the same patient or document; by default those of the `Scores`. With labels
        they show how much less than independent samples they are worth.

    Returns
    -------
    Plan
        The curve has ``n_samples`` and ``width``.

    Examples
    --------
    >>> from attemper import datasets
    >>> from attemper.planning import labels_for_temperature
    >>> data = datasets.load()
    >>> labels_for_temperature(data.val_logits[:200], data.val_labels[:200], width=1.2).n_samples
    773
    >>> labels_for_temperature(data.val_logits[:200], temperature=1.7, width=1.2).n_samples  # no labels at all
    789
    """
    ratio = number("width", width, 1, expected="a number above 1, such as 1.2", closed=(False, False))
    fraction("confidence_level", confidence_level)
    number("noise", noise, 0, 1, expected="a share from 0 to below 1, such as 0.1", closed=(True, False))
    p = _Pilot.of(pilot, labels, clusters)
    h = p.logits()
    known = temperature is not None or p.labels is None
    t = positive("temperature", 1.0 if temperature is None else temperature) if known else _fitted_temperature(p, h)
    rows = information(h, t, noise)
    mean = of_temperature(p.weights @ rows)
    if mean <= 1e-12:
        raise InputError(
            f"pilot: at T = {t:.4g} its labels would not depend on T: the logits of every row are equal, or one class "
            "is certain. Use temperature=… with the T of a similar network.",
            param="temperature",
        )
    effect = _temperature_effect(p, h, t)

    def half(n: float) -> float:
        groups, tail = p.clusters_of(n), (1 + confidence_level) / 2
        z = ndtri(tail) if groups is None else stdtrit(max(groups - 1, 1), tail)
        return float(z * math.sqrt(effect / (n * mean)))

    n = _smallest(lambda n: 2 * half(n) <= math.log(ratio))
    at = _curve_around(n)
    return Plan(
        n_samples=n,
        curve={"n_samples": at, "width": np.exp(np.minimum([2 * half(m) for m in at], 700))},
        target=ratio,
        confidence_level=confidence_level,
        n_clusters=p.clusters_of(n),
    )


def labels_for_metric(
    pilot: Any,
    labels: Any = None,
    *,
    metric: PlannedMetric = "accuracy",
    width: float,
    confidence_level: float = 0.95,
    calibrator: Calibrator | None = None,
    clusters: Any = None,
) -> Plan:
    """Plan labels for an interval of a metric that is ``width`` wide, from end to end, on average.

    The interval is the one that `attemper.metrics` returns: of the accuracy Wilson's, of the NLL and the Brier score
    Hall's of a skewed mean.

    Parameters
    ----------
    pilot, labels, clusters
        As in `labels_for_temperature`. Without labels the probabilities are taken to be calibrated: labels are as
        probable as predicted.
    metric : {"accuracy", "nll", "brier"}
    width : float
        Such as 0.04, for an accuracy known from 0.90 to 0.94.
    confidence_level : float
    calibrator : Calibrator, optional
        A fitted map: plan for its probabilities, not the classifier's own. It must not be fitted on the pilot, if that
        has labels.

    Returns
    -------
    Plan
        The curve has ``n_samples`` and ``width``.

    Examples
    --------
    >>> from attemper import datasets
    >>> data = datasets.load()
    >>> labels_for_metric(data.val_logits, data.val_labels, metric="accuracy", width=0.04).n_samples
    1590
    """
    one_of("metric", metric, get_args(PlannedMetric))
    most = MAX_WIDTH.get(metric, math.inf)
    target = number("width", width, 0, most, expected="a positive number, such as 0.02", closed=(False, False))
    fraction("confidence_level", confidence_level)
    p = _Pilot.of(pilot, labels, clusters)
    log_p = p.log_probs(calibrator)
    right = _right(p, log_p)
    if metric == "accuracy":
        at_least, expected = 1, _width_of_share(p, right, confidence_level)
    else:
        at_least, expected = _enough_errors(1 - p.moment(right)), _width_of_mean(metric, p, log_p, confidence_level)
    n = _smallest(lambda m: expected(m) <= target, at_least=at_least)
    at = _curve_around(n, at_least=at_least)
    return Plan(
        n_samples=n,
        curve={"n_samples": at, "width": np.array([expected(m) for m in at])},
        target=target,
        confidence_level=confidence_level,
        n_clusters=p.clusters_of(n),
    )


def labels_for_coverage(coverage: float = 0.95, *, within: float, confidence_level: float = 0.95) -> Plan:
    """Plan labels for prediction sets whose coverage, once they are chosen, is ``coverage`` give or take ``within``.

    Split conformal sets cover new samples with the asked probability on average over the draw of the labelled samples.
    Given one draw of n, the share of new samples that they cover has the law Beta(k, n + 1 − k), k = ⌈(n + 1) ·
    coverage⌉: exactly, where scores are not tied (Vovk 2012), whatever the classifier and the data. The plan is the n
    from which on that share lies within the limits with a probability of ``confidence_level``. It needs no pilot.

    Parameters
    ----------
    coverage : float
        Share of new samples whose set holds their class, such as 0.95.
    within : float
        Largest distance from it, such as 0.02.
    confidence_level : float

    References
    ----------
    V. Vovk, Conditional validity of inductive conformal predictors, 2012. A. Angelopoulos, S. Bates, A gentle
    introduction to conformal prediction, 2021, section 3.2.

    Examples
    --------
    >>> labels_for_coverage(0.95, within=0.02).n_samples
    442
    """
    fraction("coverage", coverage)
    number("within", within, 0, 1, expected="a distance between 0 and 1, such as 0.02", closed=(False, False))
    fraction("confidence_level", confidence_level)
    rough = coverage * (1 - coverage) * (float(ndtri((1 + confidence_level) / 2)) / within) ** 2
    most = math.ceil(4 * rough + 40 / min(coverage, 1 - coverage))
    found = _from_which_on(lambda n: _coverage_probability(n, coverage, within) >= confidence_level, most, "within")
    at = _curve_around(found)
    return Plan(
        n_samples=found,
        curve={"n_samples": at, "within": np.array([_distance(m, coverage, confidence_level) for m in at])},
        target=within,
        confidence_level=confidence_level,
    )


def labels_for_certificate(
    max_miss: float, *, miss_rate: float, confidence_level: float = 0.95, power: float = 0.8
) -> Plan:
    """Plan labels for a certificate that at most ``max_miss`` of the samples are decided wrongly.

    The test is that of `attemper.decisions.policy_for_miss` with ``miss_rate_of="all"``: exact, by the binomial law of
    the number of errors. The plan is the n from which on the certificate is reached with a probability of ``power``.

    Parameters
    ----------
    max_miss, confidence_level
        Of the guarantee.
    miss_rate : float
        Share of all samples that you expect to be decided wrongly, below ``max_miss``. If you want to decide 80 % of
        the samples and expect 5 % of these to be wrong, it is 0.04.
    power : float

    Returns
    -------
    Plan
        The curve has ``n_samples`` and ``power``.

    Examples
    --------
    >>> labels_for_certificate(0.1, miss_rate=0.05).n_samples
    203
    """
    fraction("max_miss", max_miss, such_as="0.05")
    number("miss_rate", miss_rate, 0, max_miss, expected="a share below max_miss", closed=(True, False))
    fraction("confidence_level", confidence_level)
    fraction("power", power, such_as="0.8")

    def reached(n: Floats) -> Floats:
        worst = _most_errors(n, max_miss, 1 - confidence_level)
        return np.where(worst < 0, 0.0, bdtr(np.maximum(worst, 0), n.astype(np.int64), miss_rate))

    z = float(ndtri(confidence_level) + ndtri(power))
    rough = (z / (max_miss - miss_rate)) ** 2 * max_miss * (1 - max_miss)
    most = math.ceil(4 * rough + 40 / max_miss)
    found = _from_which_on(lambda n: reached(n) >= power, most, "miss_rate")
    at = _curve_around(found)
    return Plan(
        n_samples=found,
        curve={"n_samples": at, "power": reached(at)},
        target=power,
        confidence_level=confidence_level,
    )


class _Pilot(NamedTuple):
    """What plans are made from; ``weights`` sum to 1."""

    scores: Scores
    weights: Floats
    labels: Labels | None
    clusters: Labels | None  # 0, 1, …

    @classmethod
    def of(cls, pilot: Any, labels: Any = None, clusters: Any = None) -> _Pilot:
        """Check a pilot: a `Scores`, or logits and, if there are some, labels."""
        if isinstance(pilot, Scores) and labels is not None:
            raise InputError("labels: a Scores has its own; pass no others", param="labels")
        scores = pilot if isinstance(pilot, Scores) else Scores.from_logits(pilot, labels)
        if scores.n_samples < LEAST_SAMPLES:
            raise InputError(f"pilot: expected {LEAST_SAMPLES} samples or more, got {scores.n_samples}", param="pilot")
        w = np.ones(len(scores)) if scores.weights is None else np.asarray(scores.weights, dtype=np.float64)
        if w.sum() == 0:
            raise InputError("pilot: all weights are 0", param="pilot")
        if clusters is not None:
            scores = replace(scores, cluster_ids=as_ids(clusters, len(scores)))
        soft = scores.repeated is not None and scores.cluster_ids is None  # rows of one sample, whose weights add up
        case = None if soft else scores.clusters
        if case is not None:
            case = np.unique(case, return_inverse=True)[1]
            n = int(case.max()) + 1
            if n < LEAST_CLUSTERS:
                raise InputError(
                    f"clusters: expected {LEAST_CLUSTERS} or more in the pilot, got {n}: so few do not show how much "
                    "samples of one cluster are alike",
                    param="clusters",
                )
        y = scores.labels if isinstance(scores, LabelledScores) else None
        return cls(scores, w / w.sum(), y, case)

    def clusters_of(self, n: float) -> int | None:
        """How many clusters n samples are of."""
        if self.clusters is None:
            return None
        return int(np.ceil(n / (len(self.weights) / (int(self.clusters.max()) + 1))))

    def logits(self) -> Floats:
        """Return the logits, N×K, in double precision."""
        return self.scores.rows(slice(None)).astype(np.float64)

    def log_probs(self, calibrator: Calibrator | None) -> Floats:
        """Return log-probabilities, N×K: the classifier's own, or those after a map."""
        if calibrator is None:
            return np.asarray(log_softmax(self.logits(), axis=1))
        return np.asarray(calibrator.predict_log_proba(self.scores), dtype=np.float64)

    def design_effect(self, values: Floats) -> float:
        """How many times as many samples of clusters as independent ones a mean takes; 1 without labels."""
        if self.clusters is None or self.labels is None:
            return 1.0
        return effective_sample_size(values, self.clusters, self.weights * len(values)).design_effect

    def moment(self, values: Floats) -> float:
        """Weighted mean."""
        return float(self.weights @ values)


def _fitted_temperature(p: _Pilot, logits: Floats) -> float:
    """Fit T on the pilot's labels. An error where they leave T open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)  # which is an error here
        found = TemperatureScaling().fit(logits, p.labels, p.weights * len(p.weights), clusters=p.clusters)
    if found.fit_report_.edge is not None or found.temperature_interval_ is None:
        raise InputError(
            f"pilot: {found.fit_report_.message}. Use a larger pilot, or temperature=… and no labels.",
            param="temperature",
        )
    return found.temperature_


def _temperature_effect(p: _Pilot, h: Floats, t: float) -> float:
    """How many times as many labels of clusters as of independent samples it takes, as the interval of a fit has it."""
    if p.clusters is None or p.labels is None:
        return 1.0
    w = p.weights * len(p.weights)
    _, slopes, curvature = row_terms(h, p.labels, 1 / t, masked=p.scores.masked)
    of_cases = np.bincount(p.clusters, w * (slopes - p.moment(slopes)))
    n = len(of_cases)
    return max(1.0, n / (n - 1) * float(of_cases @ of_cases) / max(float(w @ curvature), 1e-300))


def _right(p: _Pilot, log_p: Floats) -> Floats:
    """Whether each prediction is right; without labels how probable that is."""
    if p.labels is None:
        return np.asarray(np.exp(log_p.max(axis=1)))
    return np.asarray(log_p.argmax(axis=1) == p.labels, dtype=np.float64)


def _enough_errors(rate: float) -> int:
    """Smallest number of labels among which there are probably as many errors as an interval takes."""
    if rate <= 0:
        raise InputError(
            f"pilot: no prediction is wrong, and an interval takes {LEAST_ERRORS} wrong ones. Use a larger pilot, or "
            "one without labels, whose probabilities show how rare errors are.",
            param="pilot",
        )
    return _smallest(lambda n: float(bdtr(LEAST_ERRORS - 1, n, rate)) <= 1 - ENOUGH, at_least=LEAST_ERRORS)


def _width_of_share(p: _Pilot, right: Floats, level: float) -> Width:
    """Width of Wilson's interval."""
    share, effect = p.moment(right), p.design_effect(right)

    def width(n: float) -> float:
        m = n / effect
        low, high = (float(end) for end in wilson(np.asarray(share * m), np.asarray(m), level))
        return (high - low) * _student(p, n, level)

    return width


def _width_of_mean(metric: str, p: _Pilot, log_p: Floats, level: float) -> Width:
    """Width of Hall's interval of a skewed mean of losses.

    Without labels the losses are those of labels that are drawn from the probabilities.
    """
    probs = np.exp(log_p)
    # A probability of 0 has no weight.
    every = -np.maximum(log_p, -1e6) if metric == "nll" else 1 - 2 * probs + (probs**2).sum(axis=1, keepdims=True)
    if p.labels is not None:
        rows = np.arange(len(every))
        if metric == "nll" and np.isinf(log_p[rows, p.labels]).any():
            row = int(np.isinf(log_p[rows, p.labels]).argmax())
            raise InputError(
                f"pilot: row {row}: its label has a probability of 0, so the NLL is infinite. Use a map, or zeros_as=…",
                param="pilot",
            )
        every, probs = every[rows, p.labels][:, None], np.ones((len(every), 1))
    mean = p.moment((probs * every).sum(axis=1))
    second, third = (p.moment((probs * (every - mean) ** power).sum(axis=1)) for power in (2, 3))
    if second <= 0:
        raise InputError(
            "pilot: all its losses are equal, so they do not show how far their mean varies", param="pilot"
        )
    effect = p.design_effect(every[:, 0])

    def width(n: float) -> float:
        m = n / effect
        found = skewed(mean, math.sqrt(second / m), third / second**1.5 / math.sqrt(m), level)
        return (found.high - found.low) * _student(p, n, level)

    return width


def _student(p: _Pilot, n: float, level: float) -> float:
    """How much wider Student's interval of few clusters is than a normal one."""
    groups = p.clusters_of(n)
    if groups is None:
        return 1.0
    tail = (1 + level) / 2
    return float(stdtrit(max(groups - 1, 1), tail) / stdtrit(np.inf, tail))


def _coverage_probability(n: Floats, coverage: float, within: float) -> Floats:
    """Probability that the realised coverage lies within the limits; where n is too few sets hold all classes."""
    k = np.maximum(1, np.ceil((n + 1) * coverage - ROUNDING))
    b = n + 1 - k
    inside = betainc(k, np.maximum(b, 1), min(1.0, coverage + within)) - betainc(
        k, np.maximum(b, 1), max(0.0, coverage - within)
    )
    return np.where(b >= 1, inside, float(coverage + within >= 1))


def _distance(n: float, coverage: float, confidence_level: float) -> float:
    """Smallest distance that the realised coverage keeps with this probability."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        inside = _coverage_probability(np.array([n]), coverage, middle)[0] >= confidence_level
        low, high = (low, middle) if inside else (middle, high)
    return high


def _most_errors(n: Floats, alpha: float, delta: float) -> Floats:
    """Return `attemper.decisions.certificates.most_errors` of each n."""
    low, high, size = np.full(len(n), -1.0), n.copy(), n.astype(np.int64)
    while (high - low > 1).any():
        k = np.floor((low + high) / 2)
        few = bdtr(np.maximum(k, 0), size, alpha) <= delta
        low, high = np.where(few & (high - low > 1), k, low), np.where(few | (high - low <= 1), high, k)
    return low


def _from_which_on(holds: Callable[[Floats], Any], most: int, param: str) -> int:
    """Return the n from which on something holds that rises and falls a little with every step of a count."""
    if most > MAX_TRIED:
        raise InputError(f"{param}: it would take more than {MAX_TRIED // 4} labels", param=param)
    fails = np.flatnonzero(~holds(np.arange(1, most + 1, dtype=np.float64)))
    return int(fails[-1]) + 2 if fails.size else 1


def _smallest(holds: Callable[[int], bool], *, at_least: int = 1) -> int:
    """Return the smallest n for which something holds that goes on to hold.

    >>> _smallest(lambda n: n >= 1234)
    1234
    """
    low, high = at_least - 1, at_least
    while not holds(high):
        if high >= MAX_LABELS:
            raise InputError(f"width: more than {MAX_LABELS} labels. Use a wider one.", param="width")
        low, high = high, min(2 * high, MAX_LABELS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _curve_around(n: int, *, at_least: int = 1) -> Floats:
    """Numbers of labels to show around n: 1, 2 and 5 times a power of ten, and n itself.

    >>> _curve_around(431).tolist()
    [50.0, 100.0, 200.0, 431.0, 500.0, 1000.0, 2000.0]
    """
    low, high = max(at_least, n / 10), min(5 * n, MAX_LABELS)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [float(m * 10**d) for d in decades for m in (1, 2, 5)]
    return np.union1d([step for step in steps if low <= step <= high], [float(n)])
