"""What a proper score is made of: miscalibration, discrimination and uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy

from attemper._checks import one_of
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.metrics.bootstrap import Statistic, estimate_all
from attemper.metrics.corp import Recalibration
from attemper.metrics.intervals import Estimate, around_mean, effective, quantile, too_few
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import INFINITE

__all__ = ["Decomposition", "decompose", "decomposition_statistics"]

# Isotonic regression fits more noise than the means of its blocks alone, since it also chooses the blocks: about 1.4 to
# 1.8 times as much (benchmarks/bias.py --parts), with a variance 1.1 to 1.8 times as large. So the correction is known
# to some 15 %, which widens the interval. Coverage with these: docs/coverage.md.
# Where errors are few their losses also look more alike after recalibration than they are: the same for discrimination,
# with 40 %.
CHOICE, CHOICE_VARIANCE, CHOICE_ERROR, DISCRIMINATION_ERROR = 1.65, 1.5, 0.15, 0.4
BY_CLUSTER = "no interval of a decomposition by cluster: how far noise adds to it is known of independent samples only"
LEAST_SAMPLES = 10  # for each class

Score = Literal["brier", "log"]
Kind = Literal["top", "classwise"]


@dataclass(frozen=True)
class Decomposition(Table):
    """A mean score as miscalibration − discrimination + uncertainty: `decompose` returns it.

    Each is a float, or an `Estimate` where ``confidence_level`` was set.
    """

    score: float | Estimate
    miscalibration: float | Estimate  # what isotonic recalibration would gain; 0 is best
    discrimination: float | Estimate  # what recalibrated predictions gain over always predicting the frequencies
    uncertainty: float | Estimate  # the score of always predicting the frequencies: of the labels alone

    def _table_columns(self) -> Columns:
        parts = super()._table_columns()
        return {"part": list(parts), "value": list(parts.values())}


@of_predictions
def decompose(
    p: Predictions,
    *,
    score: Score = "brier",
    kind: Kind = "classwise",
    confidence_level: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Decomposition:
    r"""Decompose the Brier score or the log score: how much is due to calibration, how much to the classifier.

    With :math:`\bar S` the mean score of the predictions, :math:`\bar S_C` that of the predictions after isotonic
    recalibration on the same data, and :math:`\bar S_R` that of always predicting the frequencies,

    .. math:: \bar S = (\bar S - \bar S_C) - (\bar S_R - \bar S_C) + \bar S_R
        = \mathrm{MCB} - \mathrm{DSC} + \mathrm{UNC}.

    None of the three is negative. A calibrator can lower the miscalibration only; where that is small, more
    calibration does not help.

    Parameters
    ----------
    labels, probs, input, sample_weight
        As in `nll`.
    score : {"brier", "log"}
    kind : {"classwise", "top"}
        Each class against the others, summed; or the confidence of the most probable class against whether it is right.
        Class-wise, the score is `brier`, and `nll` with two classes. With more classes the class-wise log score is the
        sum of one log score for each class, which is not the NLL.
    confidence_level : float, optional
        Such as 0.95: make each an `Estimate`, if there are 20 errors, and 10 samples for each class. Recalibration
        fits noise too, so that miscalibration and discrimination are too large when samples are few; their intervals
        are corrected for that, and the value often lies near the upper end. ``chance`` and ``p_value`` of the
        miscalibration are those of calibrated predictions, where there is one isotonic regression: with ``kind="top"``
        or two classes.
    n_resamples, seed : int
        Draws of labels for ``chance`` and ``p_value``, and their random seed.

    References
    ----------
    T. Dimitriadis, T. Gneiting, A. I. Jordan, Stable reliability diagrams for probabilistic classifiers, 2021.
    https://doi.org/10.1073/pnas.2016191118

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> parts = decompose([0, 1, 0, 1], probs)
    >>> [round(v, 3) for v in (parts.score, parts.miscalibration, parts.discrimination, parts.uncertainty)]
    [0.35, 0.1, 0.25, 0.5]
    """
    statistics = decomposition_statistics(p, score, kind)
    if confidence_level is None:
        return Decomposition(**{name: s.at(p.weights) for name, s in statistics.items()})
    return Decomposition(**estimate_all(statistics, p.weights, confidence_level, n_resamples, seed, p.clusters))


def decomposition_statistics(p: Predictions, score: Score, kind: Kind) -> dict[str, Statistic]:
    """Return the parts of a score by name, as functions of the sample weights."""
    one_of("score", score, get_args(Score))
    one_of("kind", kind, get_args(Kind))
    problems = list(_problems(p, score, kind))
    given = np.sum([problem.given for problem in problems], axis=0)
    infinite = bool(np.isinf(given).any())
    reason = INFINITE
    known: dict[bytes, _Parts] = {}

    def parts(w: Floats) -> _Parts:
        key = w.tobytes()
        if key not in known:
            known.clear()
            known[key] = _Parts.of([problem.parts(w) for problem in problems])
        return known[key]

    if p.clusters is not None:
        reason = reason if infinite else BY_CLUSTER
    elif not infinite:
        reason = p.few_errors() or too_few(
            effective(p.weights) / len(problems), "samples for each class", LEAST_SAMPLES
        )

    def of(losses: Callable[[_Parts], Floats], noise: Callable[[_Parts], _Noise], drawn: Any = None) -> Statistic:
        """Mean of losses, to which fitted noise adds its share."""

        def value(w: Floats) -> Floats:
            return np.array([_mean(losses(parts(column)), column) for column in np.ascontiguousarray(w.T)])

        def limits(mean: float, w: Floats, confidence_level: float) -> Estimate:
            found = parts(w)
            return _around(mean, losses(found), w, confidence_level, noise(found))

        return Statistic(value, limits, reason, drawn)

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        [problem] = problems
        return np.array([problem.drawn(rng, w) for _ in range(count)])

    chance = drawn if len(problems) == 1 and not infinite else None
    return {
        "score": of(lambda found: given, lambda found: _Noise(0.0, 0.0)),
        "miscalibration": of(lambda found: given - found.recalibrated, lambda found: found.of_fit, chance),
        "discrimination": of(lambda found: found.constant - found.recalibrated, lambda found: found.of_both),
        "uncertainty": of(lambda found: found.constant, lambda found: found.of_constant),
    }


class _Noise(NamedTuple):
    """How much noise that was fitted adds to a mean."""

    bias: float
    variance: float


class _Parts(NamedTuple):
    """Losses of each sample, and how much lower fitting makes them."""

    recalibrated: Floats
    constant: Floats
    of_fit: _Noise
    of_constant: _Noise

    @property
    def of_both(self) -> _Noise:
        """Of the difference of constant and recalibrated predictions."""
        bias, variance = (a + b for a, b in zip(self.of_fit, self.of_constant))
        return _Noise(bias, variance + (DISCRIMINATION_ERROR * bias) ** 2)

    @classmethod
    def of(cls, each: list[_Parts]) -> _Parts:
        """Add the problems; how well the correction is known is the same for all of them."""
        recalibrated = np.sum([parts.recalibrated for parts in each], axis=0)
        constant = np.sum([parts.constant for parts in each], axis=0)
        bias, variance = (sum(parts.of_fit[i] for parts in each) for i in (0, 1))
        of_constant = _Noise(*(sum(parts.of_constant[i] for parts in each) for i in (0, 1)))
        return cls(recalibrated, constant, _Noise(bias, variance + (CHOICE_ERROR * bias) ** 2), of_constant)


class _Problem(NamedTuple):
    """One class against the others, or right against wrong."""

    score: Score
    scale: float
    confidence: Floats
    right: Floats
    samples: Recalibration
    given: Floats  # losses of the predictions as they are

    def parts(self, w: Floats) -> _Parts:
        """Recalibrate."""
        fit, starts = self.samples.fit(self.right, w)
        frequency = np.full(len(w), w @ self.right / w.sum())
        block = np.searchsorted(starts, self.samples.place, side="right") - 1
        noise, [one] = self._noise(block, w), self._noise(np.zeros_like(block), w)
        of_fit = _Noise(CHOICE * float(noise.sum()), CHOICE_VARIANCE * 2 * float((noise**2).sum()))
        recalibrated, constant = (
            self.scale * _losses(q, self.right, self.score) for q in (fit[self.samples.place], frequency)
        )
        return _Parts(recalibrated, constant, of_fit, _Noise(-float(one), 2 * float(one) ** 2))

    def _noise(self, block: NDArray[np.intp], w: Floats) -> Floats:
        """How much lower the mean loss is, since each block has the mean of its own samples."""
        right, weight, squares = (np.bincount(block, v).astype(np.float64) for v in (w * self.right, w, w**2))
        n = weight**2 / squares  # effective (Kish)
        share = (right / weight * n + 1) / (n + 2)  # not 0 or 1: a few samples do not show that there is no noise
        variance = share * (1 - share) if self.score == "brier" else np.full(len(share), 0.5)
        return np.asarray(self.scale * variance * squares / (weight * weight.sum()))

    def drawn(self, rng: np.random.Generator, w: Floats) -> float:
        """Miscalibration with labels drawn from the predictions."""
        right = (rng.random(len(w)) < self.confidence).astype(np.float64)
        fit, _ = self.samples.fit(right, w)
        losses = _losses(self.confidence, right, self.score) - _losses(fit[self.samples.place], right, self.score)
        return self.scale * _mean(losses, w)


def _problems(p: Predictions, score: Score, kind: Kind) -> Iterator[_Problem]:
    if kind == "top":
        confidence, right = p.top
        given = _losses(confidence, right, score)
        if score == "log" and p.log_confidence is not None:  # which distinguishes confidences near 1
            with np.errstate(divide="ignore"):
                given = -np.where(p.right, p.log_confidence, np.log(-np.expm1(p.log_confidence)))
        yield _Problem(score, 1.0, confidence, right, Recalibration.of(confidence), given)
        return
    two = p.n_classes == 2  # both classes have the same problem
    for k in range(1, 2) if two else range(p.n_classes):
        confidence, right = p.of_class(k)
        scale = 2.0 if two and score == "brier" else 1.0
        given = -p.log_likelihood if two and score == "log" else scale * _losses(confidence, right, score)
        if two and score == "brier":
            given = p.squared_errors
        yield _Problem(score, scale, confidence, right, Recalibration.of(confidence), given)


def _losses(q: Floats, right: Floats, score: Score) -> Floats:
    """Score of each probability."""
    if score == "brier":
        return np.asarray((q - right) ** 2)
    return np.asarray(-xlogy(right, q) - xlog1py(1 - right, -q))


def _mean(losses: Floats, w: Floats) -> float:
    return float(losses @ w / w.sum())


def _around(value: float, losses: Floats, w: Floats, confidence_level: float, noise: _Noise) -> Estimate:
    """Put limits around a mean of losses, from which the noise that was fitted is taken first."""
    centre = value - noise.bias
    found = around_mean(centre, losses, w, confidence_level)
    if noise.variance == 0:
        return found
    low, high = (found.low, found.high) if found.has_interval else (centre, centre)
    half = quantile(confidence_level) * math.sqrt(noise.variance)
    low, high = centre - math.hypot(centre - low, half), centre + math.hypot(high - centre, half)
    return Estimate(value, max(0.0, min(low, value)), max(high, value))
