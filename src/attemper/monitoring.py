"""Watch a deployed calibrator: tests that may be looked at after every batch, for as long as one likes.

Each test is a bet against "nothing has changed". If that is true, the probability that its wealth *ever* reaches 1/α
is at most α. A `MonitorReport` holds the tests that the data allow and what each batch showed, saved as one file:

- `GapTest`, with labels: is confidence − correct, as the mean of a case, as in the reference?
- `ExchangeabilityTest`: are new cases like those before them and like the reference?

A case is a cluster, or a row. Two tests have half of α each. States are frozen: `update` returns the next one, and an
error changes nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from attemper import _json
from attemper._result import Columns, Estimate, Table
from attemper._typing import Floats, Labels
from attemper.calibrators.base import Calibrator
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.data.shared import was_fitted_on
from attemper.decisions.rules import as_probs
from attemper.errors import InputError, check_share, warn
from attemper.kernels.clusters import case_numbers
from attemper.kernels.drift import WIDTH, advance, average_by_cluster, conformal_p_values, log_bets
from attemper.metrics.intervals import Spread, around_mean, share_of

__all__ = [
    "BatchReport", "EProcess", "ExchangeabilityTest", "GapTest", "MonitorReport", "expected_accuracy",
]  # fmt: skip

KIND = "monitor"
# A map that was fitted to n cases leaves a gap of about one standard error of their mean. With one as tolerance up to
# 22 % of streams of 10 000 samples raise a false alarm (five networks, 300 validation samples), with two at most 5 %.
STANDARD_ERRORS = 2.0
# Shares of the wealth that are staked. The best is mean over variance: near 1 for a gap of 6 points in cases of one.
STAKES: Floats = np.array([0.05, 0.1, 0.18, 0.28, 0.4, 0.56, 0.74, 0.95])
# Scores are counted in bins of this width of the log-odds of the label: an exact test for the rounded score, in a state
# that does not grow. The bins must not depend on the data.
BIN, N_BINS = 0.02, 4001
STREAM = 0x617474
CHUNK = 1 << 14  # rows: each has sixteen ratios


@dataclass(frozen=True, eq=False)
class EProcess:
    """A wealth that is 1 on average while the hypothesis holds: a mixture of bets that begin at any time.

    >>> process = EProcess(0.05).update(np.full((100, 16), 0.1))
    >>> process.n, process.alarm_at
    (100, 55)
    """

    alpha: float
    n: int = 0
    log_stake: Floats = field(default_factory=lambda: np.full(WIDTH, -np.inf))
    log_sup: float = 0.0  # of the wealth, which begins at 1
    alarm_at: int | None = None  # the case that raised an alarm, from 1; once raised it stays

    def update(self, ratios: Floats) -> EProcess:
        """Stake on log-ratios, one row a case and one column a bet, each with a mean of at most 1 by hypothesis."""
        found = self
        for first in range(0, len(ratios), CHUNK):
            rows = ratios[first : first + CHUNK]
            stake, wealth = advance(found.n, found.log_stake, rows)
            crossed = np.flatnonzero(wealth >= -math.log(self.alpha))
            at = found.n + int(crossed[0]) + 1 if crossed.size and found.alarm_at is None else found.alarm_at
            found = EProcess(self.alpha, found.n + len(rows), stake, max(found.log_sup, float(wealth.max())), at)
        return found

    @property
    def p_value(self) -> float:
        """The smallest α with which there would have been an alarm; valid whenever one stops."""
        return math.exp(-self.log_sup)


@dataclass(frozen=True, eq=False)
class GapTest:
    """Whether confidence − correct has another mean than in the reference, by more than the tolerance.

    x is the mean of a case, between −1 and 1. The hypothesis is that x, given all before it, has a mean within the
    tolerance of that of the reference, c; 1 + λ (±(x − c) − tolerance) has then a mean of at most 1. The tolerance is
    two standard errors of c. Without a reference c is 0, and the tolerance is that of as many cases as fitted the map.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence, case = rng.uniform(0.5, 1, 3000), np.arange(3000) // 2
    >>> right = rng.random(3000) < confidence
    >>> test = GapTest.new(confidence, right, case).update(confidence, right, case)
    >>> test.alarm_at is None, test.update(confidence, right & (rng.random(3000) < 0.8), case).alarm_at
    (True, 1645)
    """

    centre: float
    tolerance: float
    process: EProcess

    @property
    def alarm_at(self) -> int | None:
        """The case that raised an alarm."""
        return self.process.alarm_at

    @classmethod
    def new(
        cls, confidence: Floats, right: NDArray[np.bool_], clusters: ArrayLike | None = None, alpha: float = 0.05,
        n_fit: float | None = None,
    ) -> GapTest:  # fmt: skip
        """Begin with a reference; or without, with a batch like those to come and the number of cases of the fit."""
        x = _gaps(confidence, right, clusters)
        case = case_numbers(np.arange(len(right)) if clusters is None else clusters)
        independent = np.bincount(case, confidence * (1 - confidence)) / np.bincount(case) ** 2
        variance = max(float(x.var(ddof=1)) if len(x) > 1 else 0.0, float(independent.mean()))  # few cases show little
        tolerance = STANDARD_ERRORS * math.sqrt(variance / (len(x) if n_fit is None else n_fit))
        return cls(float(x.mean()) if n_fit is None else 0.0, tolerance, EProcess(alpha))

    def update(self, confidence: Floats, right: NDArray[np.bool_], clusters: ArrayLike | None = None) -> GapTest:
        """Take in samples in their order in time; all of a case in one call."""
        x = _gaps(confidence, right, clusters)[:, None] - self.centre
        stakes = STAKES / (1 + abs(self.centre) + self.tolerance)
        ratios = [np.log1p(stakes * (side * x - self.tolerance)) for side in (1, -1)]
        return replace(self, process=self.process.update(np.concatenate(ratios, axis=1)))


@dataclass(frozen=True, eq=False)
class ExchangeabilityTest:
    """Whether new cases are like those before them, and like the reference.

    Each is ranked among all before it, reference and new, by the mean log-probability that the map gave to its labels
    (without labels, to its predictions). If they are exchangeable the smoothed conformal p-values are independent and
    uniform, whatever the map predicts (Vovk, Gammerman and Shafer 2022, part III).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def likelihoods(shift):
    ...     return np.log(1 / (1 + np.exp(-rng.normal(2 - shift, 1, 2000))))
    >>> test = ExchangeabilityTest.new(likelihoods(0)).update(likelihoods(0))
    >>> test.alarm_at is None, test.update(likelihoods(0.5)).alarm_at is None
    (True, False)
    """

    process: EProcess
    bins: Labels  # that have cases,
    counts: Labels  # and how many

    @property
    def alarm_at(self) -> int | None:
        """The case that raised an alarm."""
        return self.process.alarm_at

    @classmethod
    def new(cls, log_p: ArrayLike = (), clusters: ArrayLike | None = None, alpha: float = 0.05) -> ExchangeabilityTest:
        """Begin with the log-probabilities that the map gave to the labels (or predictions) of the reference."""
        bins = _bins(np.asarray(log_p, dtype=np.float64), clusters)
        occupied, counts = np.unique(bins, return_counts=True)
        return cls(EProcess(alpha), occupied, counts)

    def update(self, log_p: Floats, clusters: ArrayLike | None = None) -> ExchangeabilityTest:
        """Take in those of new samples, in their order in time; all of a case in one call."""
        bins, counts = _bins(log_p, clusters), np.zeros(N_BINS, dtype=np.int64)
        counts[self.bins] = self.counts
        # Ties are broken at random. As many numbers as cases were drawn before, so that batches make no difference. And
        # a stream of its own: data that were simulated with default_rng(0) must not repeat it.
        bits = np.random.PCG64(np.random.SeedSequence(0, spawn_key=(STREAM,)))
        u = np.random.Generator(bits.advance(self.process.n)).random(len(bins))
        process = self.process.update(log_bets(conformal_p_values(bins, counts, u)))
        counts += np.bincount(bins, minlength=N_BINS)
        occupied = np.flatnonzero(counts)
        return replace(self, process=process, bins=occupied, counts=counts[occupied])


@dataclass(frozen=True)
class BatchReport:
    """What a batch shows, and what is known after it.

    The gap is confidence − accuracy, of one column too, where `evaluate` has mean risk − share of positives.
    """

    batch: str
    n: int
    n_cases: int
    confidence: float
    accuracy: Estimate | None  # None: there are no labels
    expected_accuracy: Estimate
    gap: Estimate | None
    decided: int | None = None  # by the rule, where there is one
    missed: int | None = None  # of these, wrong
    p_value: float = 1.0  # that of the pair of tests, over all batches so far
    verdict: Literal["no alarm", "ALARM"] = "no alarm"


@dataclass(frozen=True, eq=False, repr=False)
class MonitorReport(Table):
    """The tests of a deployed calibrator and a report of each batch that was fed: one saved state, and a table.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def batch(n, noise):
    ...     z = 2 * rng.normal(size=(n, 3))
    ...     labels = (z + noise * rng.normal(size=z.shape) + rng.gumbel(size=z.shape)).argmax(axis=1)
    ...     return z - np.logaddexp.reduce(z, axis=1, keepdims=True), labels, np.arange(n) // 2
    >>> monitor = MonitorReport.from_reference(*batch(1000, 0)).update(*batch(500, 0), name="May")
    >>> monitor.batches[-1].verdict, monitor.batches[-1].n, monitor.batches[-1].n_cases
    ('no alarm', 500, 250)
    >>> monitor.update(*batch(1500, 2), name="June").batches[-1].verdict
    'ALARM'
    """

    alpha: float
    clustered: bool
    exchangeability: ExchangeabilityTest
    gap: GapTest | None = None  # None: there are no labels
    calibrator: str = ""  # digest of its map: a state belongs to it
    fed: tuple[str, ...] = ()  # sha256 of files
    reference: tuple[str, ...] = ()  # sha256 of its files
    batches: tuple[BatchReport, ...] = ()

    @classmethod
    def from_reference(
        cls,
        log_probs: Floats,
        labels: Labels | None = None,
        clusters: NDArray[Any] | None = None,
        *,
        alpha: float = 0.05,
        n_fit: float | None = None,
        calibrator: str = "",
    ) -> MonitorReport:
        """Begin with validation data, as the new data will be. Without labels, confidences are compared.

        With ``n_fit``, the number of cases that fitted the map, the data are no reference but a first batch.
        """
        check_share(alpha, "alpha")
        share = alpha if labels is None else alpha / 2
        own = _own(log_probs, labels) if n_fit is None else np.empty(0)
        among = ExchangeabilityTest.new(own, None if n_fit is not None else clusters, share)
        gap = None if labels is None else GapTest.new(*_outcomes(log_probs, labels), clusters, share, n_fit)
        return cls(alpha, clusters is not None, among, gap, calibrator)

    def update(
        self,
        log_probs: Floats,
        labels: Labels | None = None,
        clusters: NDArray[Any] | None = None,
        *,
        name: str = "",
        sha256: str = "",
        rule: Any = None,
        groups: NDArray[Any] | None = None,
    ) -> MonitorReport:
        """Take in a batch, in its order in time; its report is the last of ``batches``.

        All samples of a case belong in one batch. A file that was fed before is refused by ``sha256``.
        """
        if sha256 and sha256 in (*self.fed, *self.reference):
            what = "was passed to this state before" if sha256 in self.fed else "is the reference"
            raise InputError(f"data: {name} {what}. Use new data.", "data")
        if self.gap is not None and labels is None:
            raise InputError("labels: this state is of labelled data; use another state for data without", "labels")
        if self.clustered != (clusters is not None):
            what = "expected them in all batches and the reference, or in none"
            raise InputError(f"clusters: {what}. Use attemper.read(…, clusters=…) for each.", "clusters")
        y = None if self.gap is None else labels
        among = self.exchangeability.update(_own(log_probs, y), clusters)
        gap = None if self.gap is None or y is None else self.gap.update(*_outcomes(log_probs, y), clusters)
        found = replace(self, fed=(*self.fed, sha256) if sha256 else self.fed, exchangeability=among, gap=gap)
        actions = None if rule is None else rule.decide(np.exp(log_probs), groups)
        report = _report(name or str(len(self.batches) + 1), log_probs, labels, clusters, actions)
        verdict: Any = "ALARM" if found.alarm else "no alarm"
        return replace(found, batches=(*self.batches, replace(report, p_value=found.p_value, verdict=verdict)))

    @property
    def alarm(self) -> bool:
        """Whether a test has raised an alarm."""
        return self.p_value <= self.alpha

    @property
    def p_value(self) -> float:
        """The smallest α with which there would have been an alarm: twice the smaller one of a pair of tests."""
        tests = [test.process for test in (self.gap, self.exchangeability) if test is not None]
        return min(1.0, len(tests) * min(process.p_value for process in tests))

    def columns(self) -> Columns:
        """Return one row for each batch."""
        found = {name: [getattr(b, name) for b in self.batches] for name in BatchReport.__dataclass_fields__}
        return {name: cells for name, cells in found.items() if any(cell is not None for cell in cells)}

    def shown(self) -> Columns:
        """Return what is read first."""
        hidden = {"n_cases", "p_value"} | ({"expected_accuracy"} if any(b.accuracy for b in self.batches) else set())
        return {name: cells for name, cells in self.columns().items() if name not in hidden}

    def notes(self) -> list[str]:
        """Return which test has raised an alarm."""
        tests = {
            "confidence and accuracy differ": self.gap,
            "new cases are unlike those before them": self.exchangeability,
        }
        at = {name: test.alarm_at for name, test in tests.items() if test is not None}
        ends, unit = np.cumsum([b.n_cases for b in self.batches]), "case" if self.clustered else "row"
        lines = [
            f"alarm at {unit} {n}, in {self.batches[int(np.searchsorted(ends, n))].batch}: {name}"
            for name, n in at.items()
            if n is not None
        ]
        return [*lines, f"p = {self.p_value:.2g}"] if lines else []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, atomically."""
        _json.save(path, KIND, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MonitorReport:
        """Read what `save` wrote."""
        return _json.load(path, {KIND: cls})


def monitor_scores(
    calibrator: Calibrator,
    scores: Scores,
    *,
    state: MonitorReport | None = None,
    reference: Scores | None = None,
    alpha: float | None = None,
    sha256: str = "",
    name: str = "",
) -> MonitorReport:
    """Feed a batch to the tests of a calibrator, and return the next state.

    A new state begins with the reference. Without one, new cases are compared with those before them.
    """
    content = {key: value for key, value in calibrator.to_dict().items() if key not in ("read", "rule", "params")}
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
    scores = _counted(scores)
    batch = _arrays(calibrator, scores)
    if (monitor := state) is None:
        about: dict[str, Any] = {"calibrator": digest, "alpha": 0.05 if alpha is None else alpha}
        if reference is None:
            report, cases = calibrator.report_, batch[2]
            share = 1.0 if cases is None else len(np.unique(cases)) / len(cases)
            monitor = MonitorReport.from_reference(*batch, n_fit=report.n_cases or report.n_samples * share, **about)
        else:
            log_p, y, clusters = _arrays(calibrator, _counted(reference))
            if y is None and batch[1] is not None:
                raise InputError("reference: expected labels, as the data have them. Use labels=….", "reference")
            if not calibrator.map_.keeps_arg_max and was_fitted_on(calibrator, reference):
                what = f"the calibrator was fitted on these, and {calibrator.method} fits its own data best"
                warn(f"reference: {what}. Use other labelled data, or expect false alarms.")
            monitor = MonitorReport.from_reference(log_p, None if batch[1] is None else y, clusters, **about)
            monitor = replace(monitor, reference=tuple(reference.sha256.values()))
    elif reference is not None and tuple(reference.sha256.values()) != monitor.reference:
        raise InputError("reference: the state began with another, or none. Use a new state.", "reference")
    if alpha not in (None, monitor.alpha):
        raise InputError(f"alpha: the state has {monitor.alpha:g}. Use the same.", "alpha")
    if was_fitted_on(calibrator, scores):
        raise InputError("data: the calibrator was fitted on these. Use new data.", "data")
    if monitor.calibrator != digest:
        raise InputError("state: it belongs to another calibrator; use a new one", "state")
    rule = getattr(calibrator, "rule_", None)
    return monitor.update(*batch, name=name, sha256=sha256, rule=rule, groups=scores.groups)


def _counted(scores: Scores) -> Scores:
    """Return the rows of weight 1; other weights than 0 and 1 are an error."""
    if scores.n_samples < len(scores):
        raise InputError("labels: expected one label for each sample, got shares; use their argmax(axis=1)", "labels")
    if scores.w is None:
        return scores
    if not np.isin(scores.w, (0, 1)).all():
        raise InputError("sample_weight: a monitor counts cases; expected weights of 0 and 1", "sample_weight")
    return scores.take(scores.w > 0)


def _arrays(calibrator: Calibrator, scores: Scores) -> tuple[Floats, Labels | None, NDArray[Any] | None]:
    """Return log-probabilities of the map, labels and clusters."""
    if scores.multi_label:
        raise InputError("data: expected classes that exclude each other", "data")
    log_p = np.asarray(to_numpy(calibrator.predict_log_proba(scores)), dtype=np.float64)
    return log_p, scores.labels, scores.clusters


def expected_accuracy(
    probs: ArrayLike, clusters: ArrayLike | None = None, *, confidence_level: float = 0.95
) -> Estimate:
    """Estimate the accuracy of unlabelled data: the mean confidence of calibrated probabilities.

    **It rests on the probabilities being calibrated for these data.** A drift that makes them over-confident makes it
    too high, and nothing without labels can notice that. The interval is for the accuracy that labels of these very
    samples would show; with clusters it allows for cases that are all right or all wrong.

    Examples
    --------
    >>> expected_accuracy([[0.9, 0.1], [0.3, 0.7]]).value
    0.8
    """
    check_share(confidence_level, "confidence_level")
    p = np.minimum(as_probs(probs).max(axis=1), 1.0)
    if not len(p):
        raise InputError("probs: expected samples, got none", "probs")
    std = np.sqrt(p * (1 - p))
    if clusters is not None:
        std = np.bincount(case_numbers(clusters), std)
    value, half = float(p.mean()), float(ndtri(0.5 + confidence_level / 2)) * math.sqrt(float(std @ std)) / len(p)
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))


def _report(name: str, log_p: Floats, y: Labels | None, clusters: NDArray[Any] | None, actions: Any) -> BatchReport:
    """Describe a batch."""
    n, case = len(log_p), None if clusters is None else case_numbers(clusters)
    expected, accuracy, gap = expected_accuracy(np.exp(log_p), case), None, None
    decided = None if actions is None else actions.action == "decide"
    missed = None if decided is None or y is None else int((decided & (actions.prediction != y)).sum())
    if y is not None:
        confidence, right = _outcomes(log_p, y)
        ones = np.ones(n)
        accuracy = share_of(right, ones > 0, ones, case, 0.95)
        gap = around_mean(float((confidence - right).mean()), Spread.of(confidence - right, ones, case), 0.95)
    n_cases, n_decided = n if case is None else int(case.max()) + 1, None if decided is None else int(decided.sum())
    return BatchReport(name, n, n_cases, expected.value, accuracy, expected, gap, n_decided, missed)


def _own(log_p: Floats, y: Labels | None) -> Floats:
    """Return the log-probability of each label, or prediction."""
    return np.asarray(log_p.max(axis=1) if y is None else log_p[np.arange(len(y)), y])


def _outcomes(log_p: Floats, y: Labels) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the confidence of each prediction, and whether it is right."""
    return np.minimum(np.exp(log_p.max(axis=1)), 1.0), np.asarray(log_p.argmax(axis=1) == y)


def _gaps(confidence: Floats, right: NDArray[np.bool_], clusters: ArrayLike | None) -> Floats:
    """Return confidence − correct, the mean of each case."""
    gap = np.asarray(confidence, dtype=np.float64) - right
    return gap if clusters is None else np.asarray(average_by_cluster(gap[:, None], np.asarray(clusters))[0][:, 0])


def _bins(log_p: Floats, clusters: ArrayLike | None) -> Labels:
    """Return the bin of each sample, or case: of the log-odds of the mean log-probability, which ranks them alike."""
    mean = log_p[:, None]
    if clusters is not None:
        # The mean of log-odds instead would be that of the samples that are right and certain: half the power.
        mean, _ = average_by_cluster(np.maximum(mean, -1e9), np.asarray(clusters))
    with np.errstate(divide="ignore"):
        score = mean[:, 0] - np.log(-np.expm1(np.minimum(mean[:, 0], 0.0)))
    largest = BIN * (N_BINS // 2)
    return np.rint(np.clip(score, -largest, largest) / BIN).astype(np.int64) + N_BINS // 2
