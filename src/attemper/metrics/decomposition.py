"""What a proper score is made of: miscalibration, discrimination and uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import xlog1py, xlogy

from attemper._checks import one_of
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.metrics.bootstrap import Statistic, estimate_all
from attemper.metrics.corp import Recalibration
from attemper.metrics.intervals import Estimate
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions

__all__ = ["Decomposition", "decompose", "decomposition_statistics"]

NO_INTERVAL = "no interval: isotonic recalibration fits noise too; compare miscalibration with its chance"

Score = Literal["brier", "log"]
Kind = Literal["top", "classwise"]


@dataclass(frozen=True)
class Decomposition(Table):
    """A mean score as miscalibration − discrimination + uncertainty: `decompose` returns it.

    Each is a float, or an `Estimate` without an interval where ``confidence_level`` was set.
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
        Such as 0.95: make each an `Estimate`. Recalibration fits noise too, so that miscalibration and discrimination
        are too large when samples are few, and there are no intervals. ``chance`` and ``p_value`` of the
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
    known: dict[bytes, tuple[Floats, Floats]] = {}

    def parts(w: Floats) -> tuple[Floats, Floats]:
        """Return the losses of recalibrated and of constant predictions."""
        key = w.tobytes()
        if key not in known:
            known.clear()
            each = [problem.parts(w) for problem in problems]
            known[key] = np.sum([losses for losses, _ in each], axis=0), np.sum([losses for _, losses in each], axis=0)
        return known[key]

    def of(losses: Callable[[Floats, Floats], Floats], drawn: Any = None) -> Statistic:
        def value(w: Floats) -> Floats:
            return np.array([_mean(losses(*parts(column)), column) for column in np.ascontiguousarray(w.T)])

        return Statistic(value, None, NO_INTERVAL, drawn)

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        [problem] = problems
        return np.array([problem.drawn(rng, w) for _ in range(count)])

    chance = drawn if len(problems) == 1 and not np.isinf(given).any() else None
    return {
        "score": of(lambda recalibrated, constant: given),
        "miscalibration": of(lambda recalibrated, constant: given - recalibrated, chance),
        "discrimination": of(lambda recalibrated, constant: constant - recalibrated),
        "uncertainty": of(lambda recalibrated, constant: constant),
    }


class _Problem(NamedTuple):
    """One class against the others, or right against wrong."""

    score: Score
    scale: float
    confidence: Floats
    right: Floats
    samples: Recalibration
    given: Floats  # losses of the predictions as they are

    def parts(self, w: Floats) -> tuple[Floats, Floats]:
        """Return the losses of recalibrated predictions, and of always predicting the frequency."""
        fit = self.samples.fit(self.right, w)
        frequency = np.full(len(w), w @ self.right / w.sum())
        recalibrated, constant = (
            self.scale * _losses(q, self.right, self.score) for q in (fit[self.samples.place], frequency)
        )
        return recalibrated, constant

    def drawn(self, rng: np.random.Generator, w: Floats) -> float:
        """Miscalibration with labels drawn from the predictions."""
        right = (rng.random(len(w)) < self.confidence).astype(np.float64)
        fit = self.samples.fit(right, w)
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
