"""What each method says about every test sample, a chunk at a time, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attemper.arrays import Floats
from attemper.comparison import Comparison, compare
from attemper.maps import Map
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import BATCH_ELEMENTS, Limits, Statistic, estimate_all
from attemper.metrics.intervals import effective, too_few
from attemper.metrics.proper import mean_of, share_of
from attemper.scores import Scores

__all__ = [
    "MOST_RESAMPLED",
    "N_BINS",
    "Said",
    "chunks",
    "compare_in_time",
    "estimates",
    "is_large",
    "resampled",
    "resamples",
    "said",
    "shown",
    "weights",
]

N_BINS = 15
ELEMENTS = 1 << 18  # of a chunk
QUICK = 20_000, 250_000  # N and N·K of the test data up to which `compare` may resample all of its metrics
LARGE = 500_000  # N·K of the validation data beyond which some methods take minutes
MOST_RESAMPLED = 100_000  # samples that intervals are made from
ALWAYS = ("ts", "ats", "bayes")


Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Said:
    """One method's answers to N samples."""

    log_confidence: Floats  # tells confidences apart that round to 1
    confidence: Floats
    answer: NDArray[np.intp]
    right: NDArray[np.bool_]
    loss: Floats  # of each sample, in nats
    brier: Floats


def weights(scores: Scores) -> Floats:
    """Weights of the samples; ones where there are none."""
    return np.ones(len(scores)) if scores.weights is None else np.asarray(scores.weights, dtype=np.float64)


def chunks(scores: Scores) -> Iterator[tuple[slice, Floats]]:
    """Go through the logits in double precision, some rows at a time."""
    rows = max(1, ELEMENTS // scores.n_classes)
    for first in range(0, len(scores), rows):
        part = slice(first, min(first + rows, len(scores)))
        yield part, scores.rows(part).astype(np.float64)


def said(found: Map, scores: Scores) -> Said:
    """Apply a map; memory is needed for a chunk and for six numbers a sample."""
    assert scores.labels is not None
    n = len(scores)
    log_confidence, loss, brier = np.empty(n), np.empty(n), np.empty(n)
    answer = np.empty(n, dtype=np.intp)
    for part, h in chunks(scores):
        log_p = found.log_apply(h)
        y, rows = scores.labels[part], np.arange(len(h))
        p = np.exp(log_p)
        answer[part] = log_p.argmax(axis=1)
        log_confidence[part] = np.minimum(log_p.max(axis=1), 0.0)
        loss[part] = np.maximum(-log_p[rows, y], 0.0)
        p[rows, y] -= 1
        brier[part] = np.einsum("ik,ik->i", p, p)
    return Said(log_confidence, np.exp(log_confidence), answer, answer == scores.labels, loss, brier)


def compare_in_time(
    val: Scores,
    test: Scores,
    methods: Sequence[str] | None = None,
    *,
    noisy: bool = False,
    noise: str | None = None,
    interval: float = 0.95,
    seed: int = 0,
    tick: Callable[[str], None] = lambda method: None,
) -> Comparison:
    """`compare`, with what time allows.

    Of large validation data only ts, ats and bayes, unless others are named. Of large test data without intervals,
    for `estimates` finds those that are shown faster.
    """
    if methods is None and is_large(val):
        methods = ALWAYS
    level = interval if len(test) <= QUICK[0] and len(test) * test.n_classes <= QUICK[1] else None
    return compare(val, test, methods, noisy=noisy, noise=noise, interval=level, seed=seed, tick=tick)


def is_large(val: Scores) -> bool:
    """Tell whether only ts, ats and bayes are compared unless others are named."""
    return len(val) * val.n_classes > LARGE


def shown(comparison: Comparison) -> list[str]:
    """Methods that are looked at one by one: none, the paper's, the Bayesian, the one recommended."""
    there = [row.method for row in comparison.rows if row.metrics is not None]
    chosen = [m for m in dict.fromkeys(["none", *ALWAYS, comparison.recommended]) if m in there]
    others = [m for m in there if m not in chosen]
    return chosen + others[: max(0, 1 + len(ALWAYS) - len(chosen))]


def resamples(n: int) -> int:
    """As many as time allows.

    >>> resamples(3205), resamples(50_000), resamples(1_000_000)
    (1000, 400, 200)
    """
    return int(min(1000, max(200, 20_000_000 // n)))


def resampled(
    statistics: Callable[[Rows], Mapping[str, Statistic]], w: Floats, interval: float, seed: int
) -> dict[str, Estimate]:
    """Value of each statistic, with its interval.

    ``statistics`` makes them for some rows. Where an interval needs resamples, of more than 100 000 samples as many are
    drawn and resampled, and the interval is as much narrower as more samples make it.
    """
    rows: Rows = np.flatnonzero(w > 0)
    whole = dict(statistics(rows))
    if len(rows) > MOST_RESAMPLED:
        part = np.sort(np.random.default_rng(seed).choice(rows, MOST_RESAMPLED, replace=False))
        narrower = (MOST_RESAMPLED / len(rows)) ** 0.5
        for name, statistic in statistics(part).items():
            if whole[name].limits is None and not whole[name].reason:
                alone = Statistic(statistic.value)
                whole[name] = whole[name]._replace(limits=_narrowed(alone, w[part], narrower, seed))
    found = estimate_all(whole, w[rows], interval, resamples(len(rows)), seed)
    return {name: value for name, value in found.items() if isinstance(value, Estimate)}


def _narrowed(statistic: Statistic, w: Floats, narrower: float, seed: int) -> Limits:
    """Return limits that lie around a value as those of a part of the samples do, but closer."""

    def limits(value: float, _: Floats, interval: float) -> Estimate:
        around = estimate_all({"it": statistic}, w, interval, resamples(len(w)), seed)["it"]
        assert isinstance(around, Estimate)
        middle, low, high = around
        return Estimate(value, max(0.0, value - narrower * (middle - low)), value + narrower * (high - middle))

    return limits


def estimates(one: Said, w: Floats, interval: float, seed: int) -> dict[str, Estimate]:
    """Accuracy, NLL, Brier score and ECE, each what `attemper.metrics` gives."""

    def statistics(rows: Rows) -> dict[str, Statistic]:
        reason = too_few(effective(w[rows][~one.right[rows]]))
        return {
            "accuracy": share_of(one.right[rows].astype(np.float64)),
            "nll": mean_of(one.loss[rows], reason),
            "brier": mean_of(one.brier[rows], reason),
            "ece": _ece(one.confidence[rows], one.right[rows], reason),
        }

    return resampled(statistics, w, interval, seed)


def _ece(confidence: Floats, right: NDArray[np.bool_], reason: str) -> Statistic:
    n = len(confidence)
    bins = np.searchsorted(np.arange(1, N_BINS) / N_BINS, confidence, side="left")
    gaps, adding = (csr_array((v, (bins, np.arange(n))), (N_BINS, n)) for v in (right - confidence, np.ones(n)))

    def value(w: Floats) -> Floats:
        return np.asarray(np.abs(np.asarray(gaps @ w)).sum(axis=0) / w.sum(axis=0))

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        size = max(1, BATCH_ELEMENTS // n)
        parts = []
        for first in range(0, count, size):
            outcome = rng.random((min(size, count - first), n)) < confidence
            parts.append(np.abs(np.asarray(adding @ ((outcome - confidence) * w).T)).sum(axis=0) / w.sum())
        return np.concatenate(parts)

    return Statistic(value, None, reason, drawn)
