"""Risk: how often the decided samples are wrong, how that trades against coverage, and what it costs.

As in `referral_curve`, samples with confidence c > t are decided, the others are referred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import Floats, one_line
from attemper.errors import InputError, setting
from attemper.metrics.bootstrap import Statistic, estimate
from attemper.metrics.intervals import Estimate, around_mean, effective, too_few
from attemper.metrics.predictions import Predictions, metric
from attemper.metrics.proper import mean_of
from attemper.metrics.referral import Answers, adding

__all__ = [
    "RiskCoverage",
    "aurc",
    "aurc_of",
    "check_cost",
    "check_costs",
    "check_threshold",
    "cost_of",
    "expected_cost",
    "risk_coverage_curve",
]

PerClass = float | Sequence[float] | ArrayLike

NO_MISS = "no interval: every error is referred, so none shows what errors that are not referred cost"


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage:
    """Coverage and risk at each threshold, from the lowest up: `risk_coverage_curve` gives it.

    Some sample is decided at each threshold.
    """

    __repr__ = one_line

    threshold: Floats
    coverage: Floats  # share of weight that is decided; falls from 1
    risk: Floats  # of what is decided, the share that is wrong


@metric
def risk_coverage_curve(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
) -> RiskCoverage:
    r"""Risk–coverage curve: the error rate of the decided samples against their share.

    .. math:: \phi(t) = \frac{\sum_i w_i [c_i > t]}{\sum_i w_i}, \qquad
        R(t) = \frac{\sum_i w_i [c_i > t, \hat y_i \ne y_i]}{\sum_i w_i [c_i > t]}

    at t = 0, where everybody is decided, and at every confidence that occurs but the highest, where nobody is.
    Samples of the same confidence are decided together.

    Parameters
    ----------
    probs, labels, log_probs, sample_weight
        As in `nll`. With ``log_probs`` confidences are told apart that round to the same probability.

    Returns
    -------
    RiskCoverage

    References
    ----------
    R. El-Yaniv and Y. Wiener, On the foundations of noise-free selective classification, JMLR 2010.

    Examples
    --------
    >>> curve = risk_coverage_curve([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], [0, 1, 0, 1])
    >>> curve.threshold, curve.coverage, curve.risk.round(3)
    (array([0. , 0.6, 0.7, 0.8]), array([1.  , 0.75, 0.5 , 0.25]), array([0.25 , 0.333, 0.   , 0.   ]))
    """
    answers = Answers.of(probs, labels, sample_weight, log_probs=log_probs, both=False)
    decided, wrong = (total[:, 0] for total in _from_the_top(answers)(answers.weights[:, None]))
    confidence = np.empty(len(decided))
    confidence[answers.rank] = answers.confidence
    # Those of rank j and above are decided by the threshold just below, the confidence of rank j − 1.
    threshold = np.concatenate([[0.0], confidence[:-1]])
    return RiskCoverage(threshold, decided / decided[0], wrong / decided)


@metric
def aurc(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
    interval: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> float | Estimate:
    r"""Area under `risk_coverage_curve`: 0 is best, and a confidence that says nothing has the error rate.

    .. math:: \mathrm{AURC} = \frac{1}{\sum_i w_i} \sum_i w_i R_i, \qquad
        R_i = \frac{\sum_j w_j [c_j \ge c_i, \hat y_j \ne y_j]}{\sum_j w_j [c_j \ge c_i]}

    the mean, over the samples, of the risk when they and all that are as sure are decided. Without ties that
    is the usual :math:`\frac 1n \sum_{i=1}^n \frac 1i \sum_{j \le i} [\hat y_j \ne y_j]`, surest first. It is no
    trapezoid, and no excess over the best order (E-AURC) is taken off. Parameters as in `nll`.

    References
    ----------
    Y. Geifman, G. Uziel and R. El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> aurc([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], [0, 1, 0, 1])  # (0/1 + 0/2 + 1/3 + 1/4) / 4
    0.14583333333333331
    """
    answers = Answers.of(probs, labels, sample_weight, log_probs=log_probs, both=False)
    return estimate(aurc_of(answers), answers.weights, interval, n_resamples, seed)


@metric
def expected_cost(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    threshold: PerClass,
    *,
    cost_refer: float,
    cost_miss: PerClass,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
    interval: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> float | Estimate:
    r"""Mean cost of a sample: of its referral, or of the wrong answer given.

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \left( r\,[c_i \le t] + m_{y_i} [c_i > t, \hat y_i \ne y_i] \right)

    Parameters
    ----------
    probs, labels, log_probs, sample_weight, interval, n_resamples, seed
        As in `nll`. The interval needs 20 errors, and one of them not referred.
    threshold : float or array of shape (K,)
        Confidence above which samples are decided; an array has one for each predicted class.
    cost_refer : float
        r, the cost of a referral.
    cost_miss : float or array of shape (K,)
        m, the cost of a wrong answer; an array has one for each true class: a missed melanoma is no missed nevus.

    Returns
    -------
    float or Estimate

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> expected_cost(probs, [0, 1, 0, 1], 0.65, cost_refer=1, cost_miss=[50, 10])  # 1 referred, 1 missed
    12.75
    """
    p = Predictions.of(probs, labels, sample_weight, log_probs=log_probs)
    t = check_threshold(threshold, p.n_classes)
    refer = p.top[0] <= t[p.probs.argmax(axis=1)]
    return estimate(cost_of(p, refer, cost_refer, cost_miss), p.weights, interval, n_resamples, seed)


def aurc_of(answers: Answers) -> Statistic:
    """AURC as a function of the weights."""
    from_the_top = _from_the_top(answers)

    def value(w: Floats) -> Floats:
        decided, wrong = from_the_top(w)
        risk = wrong / np.where(decided > 0, decided, 1.0)
        own = -np.diff(decided, axis=0, append=0.0)  # weight of each confidence
        return np.asarray(np.einsum("jb,jb->b", own, risk) / decided[0])

    def limits(value: float, w: Floats, interval: float) -> Estimate:
        """Take the influence of each sample: the risk where it stands, and what it adds to that of all below."""
        decided, wrong = (total[:, 0] for total in from_the_top(w[:, None]))
        risk, own = wrong / decided, -np.diff(decided, append=0.0)
        up_to, risk_up_to = np.cumsum(own / decided), np.cumsum(own / decided * risk)
        at = answers.rank
        return around_mean(value, risk[at] + ~answers.right * up_to[at] - risk_up_to[at], w, interval)

    return Statistic(value, limits, too_few(effective(answers.weights[~answers.right])))


def cost_of(
    p: Predictions,
    refer: NDArray[np.bool_],
    cost_refer: float,
    cost_miss: PerClass,
    prediction: NDArray[np.int64] | None = None,
) -> Statistic:
    """Mean cost as a function of the weights, when these samples are referred; by default the arg max is predicted."""
    r, m = check_cost(cost_refer, "cost_refer"), check_costs(cost_miss, p.n_classes)
    right = p.top[1] > 0 if prediction is None else prediction == p.labels
    costs = np.where(refer, r, np.where(right, 0.0, m[p.labels]))
    # To need many errors that are not referred would select draws with a large cost: docs/coverage.md.
    reason = too_few(effective(p.weights[~right])) or ("" if (~refer & ~right).any() else NO_MISS)
    return mean_of(costs, reason)


def _from_the_top(answers: Answers) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return a function of the weights: weight, and weight of errors, at least as sure as each confidence."""
    every, wrong = (adding(answers.rank, rows) for rows in (np.ones_like(answers.right), ~answers.right))

    def totals(w: Floats) -> tuple[Floats, Floats]:
        decided, errors = (np.asarray(matrix @ w)[::-1].cumsum(axis=0)[::-1] for matrix in (every, wrong))
        return decided, errors

    return totals


def check_threshold(threshold: PerClass, n_classes: int) -> Floats:
    """Thresholds of the predicted classes: one number for all of them, or one for each; from 0 to 1."""
    t = _one_or_each(threshold, n_classes, "threshold")
    bad = np.flatnonzero(~((t >= 0) & (t <= 1)))
    if bad.size:
        raise InputError(f"threshold={float(t[bad[0]])}{_of(threshold, bad[0])}: must lie between 0 and 1")
    return t


def check_cost(cost: Any, name: str) -> float:
    """Reject what is no cost."""
    try:
        value = float(cost)
    except (TypeError, ValueError):
        value = np.nan
    if not (0 <= value < np.inf) or isinstance(cost, str):
        raise InputError(f"{setting(name, cost)}: expected a number, not negative")
    return value


def check_costs(cost_miss: PerClass, n_classes: int) -> Floats:
    """Costs of a miss of each true class: one number for all of them, or one for each."""
    m = _one_or_each(cost_miss, n_classes, "cost_miss")
    bad = np.flatnonzero(~((m >= 0) & np.isfinite(m)))
    if bad.size:
        raise InputError(
            f"{setting('cost_miss', float(m[bad[0]]))}{_of(cost_miss, bad[0])}: expected a number, not negative"
        )
    return m


def _one_or_each(told: PerClass, n_classes: int, name: str) -> Floats:
    try:
        if isinstance(told, str):
            raise TypeError("text came")
        values = np.asarray(told, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}; expected a number, or one for each of the {n_classes} classes") from None
    if values.ndim == 0:
        return np.full(n_classes, float(values))
    if values.shape != (n_classes,):
        raise InputError(
            f"{name}: shape {values.shape} came; expected a number, or one for each of the {n_classes} classes"
        )
    return values


def _of(told: PerClass, k: int) -> str:
    return "" if np.ndim(told) == 0 else f" of class {k}"
