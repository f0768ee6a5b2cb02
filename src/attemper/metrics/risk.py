"""Risk: how often the decided samples are wrong, how that trades against coverage, and what it costs.

As in `referral_curve`, samples with confidence c > t are decided, the others are referred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import number
from attemper._table import Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.metrics.bootstrap import Statistic
from attemper.metrics.intervals import Estimate, around_mean, effective, too_few
from attemper.metrics.metric import metric, of_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import mean_of
from attemper.metrics.referral import adding

__all__ = [
    "RiskCoverage",
    "aurc",
    "check_costs",
    "check_threshold",
    "cost_of",
    "expected_cost",
    "per_class",
    "risk_coverage_curve",
]

PerClass = float | Sequence[float] | ArrayLike

NO_MISS = "no interval: every error is referred, so none shows what errors that are not referred cost"


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage(Table):
    """Coverage and risk at each threshold, from the lowest up: `risk_coverage_curve` returns them.

    Some sample is decided at each threshold.
    """

    __repr__ = one_line

    threshold: Floats
    coverage: Floats  # share of weight that is decided; falls from 1
    risk: Floats  # of what is decided, the share that is wrong


@of_predictions
def risk_coverage_curve(
    p: Predictions,
) -> RiskCoverage:
    r"""Risk–coverage curve: the error rate of the decided samples against their share.

    .. math:: \phi(t) = \frac{\sum_i w_i [c_i > t]}{\sum_i w_i}, \qquad
        R(t) = \frac{\sum_i w_i [c_i > t, \hat y_i \ne y_i]}{\sum_i w_i [c_i > t]}

    at t = 0, where everybody is decided, and at every confidence that occurs but the highest, where nobody is.
    Samples of the same confidence are decided together.

    Parameters
    ----------
    labels, probs, input, sample_weight
        As in `nll`.

    Returns
    -------
    RiskCoverage

    References
    ----------
    R. El-Yaniv and Y. Wiener, On the foundations of noise-free selective classification, JMLR 2010.

    Examples
    --------
    >>> curve = risk_coverage_curve([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    >>> curve.threshold, curve.coverage, curve.risk.round(3)
    (array([0. , 0.6, 0.7, 0.8]), array([1.  , 0.75, 0.5 , 0.25]), array([0.25 , 0.333, 0.   , 0.   ]))
    """
    decided, wrong = (total[:, 0] for total in _from_the_top(p)(p.weights[:, None]))
    confidence = np.empty(len(decided))
    confidence[p.rank] = p.confidence
    # Those of rank j and above are decided by the threshold just below, the confidence of rank j − 1.
    threshold = np.concatenate([[0.0], confidence[:-1]])
    return RiskCoverage(threshold, decided / decided[0], wrong / decided)


@metric
def aurc(p: Predictions) -> Statistic:
    r"""Area under `risk_coverage_curve`: 0 is best, and an uninformative confidence has the error rate.

    .. math:: \mathrm{AURC} = \frac{1}{\sum_i w_i} \sum_i w_i R_i, \qquad
        R_i = \frac{\sum_j w_j [c_j \ge c_i, \hat y_j \ne y_j]}{\sum_j w_j [c_j \ge c_i]}

    the mean, over the samples, of the risk when they and all that are as confident are decided. Without ties that
    is the usual :math:`\frac 1n \sum_{i=1}^n \frac 1i \sum_{j \le i} [\hat y_j \ne y_j]`, most confident first. It
    is no trapezoid, and no excess over the best order (E-AURC) is taken off. Parameters as in `nll`.

    References
    ----------
    Y. Geifman, G. Uziel and R. El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> aurc([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])  # (0/1 + 0/2 + 1/3 + 1/4) / 4
    0.14583333333333331
    """
    from_the_top = _from_the_top(p)

    def value(w: Floats) -> Floats:
        decided, wrong = from_the_top(w)
        risk = wrong / np.where(decided > 0, decided, 1.0)
        own = -np.diff(decided, axis=0, append=0.0)  # weight of each confidence
        return np.asarray(np.einsum("jb,jb->b", own, risk) / decided[0])

    def limits(value: float, w: Floats, confidence_level: float) -> Estimate:
        """Take the influence of each sample: the risk where it stands, and what it adds to that of all below."""
        decided, wrong = (total[:, 0] for total in from_the_top(w[:, None]))
        risk, own = wrong / decided, -np.diff(decided, append=0.0)
        up_to, risk_up_to = np.cumsum(own / decided), np.cumsum(own / decided * risk)
        at = p.rank
        return around_mean(value, risk[at] + ~p.right * up_to[at] - risk_up_to[at], w, confidence_level)

    return Statistic(value, limits, p.few_errors())


@metric
def expected_cost(p: Predictions, threshold: PerClass, *, cost_refer: float, cost_miss: PerClass) -> Statistic:
    r"""Mean cost of a sample: of its referral, or of the wrong prediction.

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \left( r\,[c_i \le t] + m_{y_i} [c_i > t, \hat y_i \ne y_i] \right)

    Parameters
    ----------
    labels, probs, input, sample_weight, confidence_level, n_resamples, seed
        As in `nll`. The interval needs 20 errors, and one of them not referred.
    threshold : float or array of shape (K,)
        Confidence above which samples are decided; an array has one for each predicted class.
    cost_refer : float
        r, the cost of a referral.
    cost_miss : float or array of shape (K,)
        m, the cost of a wrong prediction; an array has one for each true class: a missed melanoma is no missed nevus.

    Returns
    -------
    float or Estimate

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> expected_cost([0, 1, 0, 1], probs, 0.65, cost_refer=1, cost_miss=[50, 10])  # 1 referred, 1 missed
    12.75
    """
    t = check_threshold(threshold, p.n_classes)
    refer = p.confidence <= t[p.prediction]
    return cost_of(p, refer, cost_refer, cost_miss)


def cost_of(
    p: Predictions,
    refer: NDArray[np.bool_],
    cost_refer: float,
    cost_miss: PerClass,
    prediction: NDArray[np.int64] | None = None,
) -> Statistic:
    """Mean cost as a function of the weights, when these samples are referred; by default the arg max is predicted."""
    r, m = check_costs(cost_refer, cost_miss, p.n_classes)
    right = p.right if prediction is None else prediction == p.labels
    costs = np.where(refer, r, np.where(right, 0.0, m[p.labels]))
    # To need many errors that are not referred would select draws with a large cost: docs/metrics.md.
    errors = effective(p.weights[~right] if p.clusters is None else p.of_cases(p.weights, ~right))
    reason = too_few(errors) or ("" if (~refer & ~right).any() else NO_MISS)
    return mean_of(costs, reason)


def _from_the_top(p: Predictions) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return a function of the weights: weight, and weight of errors, of at least each confidence."""
    every, wrong = (adding(p.rank, rows) for rows in (np.ones_like(p.right), ~p.right))

    def totals(w: Floats) -> tuple[Floats, Floats]:
        decided, errors = (np.asarray(matrix @ w)[::-1].cumsum(axis=0)[::-1] for matrix in (every, wrong))
        return decided, errors

    return totals


def check_threshold(threshold: PerClass, n_classes: int) -> Floats:
    """Thresholds of the predicted classes: one number for all of them, or one for each; from 0 to 1."""
    return per_class("threshold", threshold, n_classes, (0, 1), "a number from 0 to 1")


def check_costs(cost_refer: float, cost_miss: PerClass, n_classes: int) -> tuple[float, Floats]:
    """Cost of a referral, and of a miss of each true class: one number for all of them, or one for each."""
    not_negative = "a number, not negative"
    r = number("cost_refer", cost_refer, 0, expected=not_negative, closed=(True, False))
    return r, per_class("cost_miss", cost_miss, n_classes, (0, np.finfo(np.float64).max), not_negative)


def per_class(name: str, given: PerClass, n_classes: int, ends: tuple[float, float], expected: str) -> Floats:
    """Return a number for each class, between two ends: one for all of them, or one for each."""
    each = f"expected a number, or one for each of the {n_classes} classes"
    try:
        values = np.asarray(given, dtype=None if isinstance(given, str) else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {each}; {error}") from None
    if values.dtype.kind != "f":
        raise InputError(f"{name}: {each}, got text")
    if values.ndim and values.shape != (n_classes,):
        raise InputError(f"{name}: {each}, got shape {values.shape}")
    bad = np.flatnonzero(~((values >= ends[0]) & (values <= ends[1])))
    if bad.size:
        k = int(bad[0])
        got = f"{name}={float(values.flat[k])!r}" + (f" of class {k}" if values.ndim else "")
        raise InputError(f"{got}: expected {expected}")
    return values if values.ndim else np.full(n_classes, float(values))
