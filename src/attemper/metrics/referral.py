"""Referral: who is decided by the network, and who is sent to a specialist.

At a threshold t, samples with confidence c > t are decided, those with c ≤ t are referred. A good
confidence refers the wrong answers and decides the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from attemper.arrays import Floats, as_matrix, as_weights, one_line, to_numpy
from attemper.errors import InputError
from attemper.metrics.bootstrap import Statistic, estimate
from attemper.metrics.intervals import LEAST_ERRORS, Estimate, around_area, around_mean, effective, too_few
from attemper.metrics.predictions import Predictions, metric

__all__ = [
    "Answers",
    "ReferralCurve",
    "referral_area",
    "referral_area_difference",
    "referral_area_of",
    "referral_curve",
]

Thresholds = ArrayLike | Literal["paper"] | None

PAPER = np.arange(21) / 20  # 0, 0.05, … 1
# The few errors that two methods order differently decide a difference: docs/coverage.md.
LEAST_ERRORS_OF_DIFFERENCE = 80


@dataclass(frozen=True, eq=False, repr=False)
class ReferralCurve:
    """What happens at each threshold, from the lowest up: `referral_curve` gives it.

    All but ``threshold`` are shares of weight.
    """

    __repr__ = one_line

    threshold: Floats
    correct_decided: Floats  # of the correctly classified samples, those decided; falls
    errors_referred: Floats  # of the misclassified samples, those referred; rises
    referred: Floats  # of all samples, those referred; rises
    error_rate_decided: Floats  # of the samples decided, those misclassified; NaN where none is decided


@metric
def referral_curve(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    thresholds: Thresholds = None,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
) -> ReferralCurve:
    r"""Referral curve of the skin-lesion system of arXiv 1810.11586: errors referred against right answers decided.

    .. math:: x(t) = \frac{\sum_i w_i [c_i > t, \hat y_i = y_i]}{\sum_i w_i [\hat y_i = y_i]}, \qquad
        y(t) = \frac{\sum_i w_i [c_i \le t, \hat y_i \ne y_i]}{\sum_i w_i [\hat y_i \ne y_i]}

    with the largest probability as confidence c. It runs from (1, 0), where nobody is
    referred, to (0, 1), where everybody is: at t = 1 that includes confidences that round to 1.

    Parameters
    ----------
    probs, labels, log_probs, sample_weight
        As in `nll`. There must be both right and wrong answers among them.
    thresholds : array, "paper" or None
        Where to look: numbers from 0 to 1, in any order; 0, 0.05, … 1, as the paper does; or every
        confidence that occurs, and 0 and 1.

    Returns
    -------
    ReferralCurve

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> curve = referral_curve(probs, [0, 1, 0, 1], thresholds=[0, 0.65, 0.75, 1])
    >>> curve.correct_decided.round(3), curve.errors_referred
    (array([1.   , 0.667, 0.667, 0.   ]), array([0., 0., 1., 1.]))
    >>> curve.referred, curve.error_rate_decided.round(3)
    (array([0.  , 0.25, 0.5 , 1.  ]), array([0.25 , 0.333, 0.   ,   nan]))
    """
    answers = Answers.of(probs, labels, sample_weight, log_probs=log_probs)
    if thresholds is None:
        t = np.unique(np.concatenate([[0.0], answers.confidence, [1.0]]))
    else:
        t = _check_thresholds(thresholds)
    below, total = answers.referred(t)
    above = total - below
    decided = above.sum(axis=0)
    rate = above[1] / np.where(decided > 0, decided, np.nan)
    return ReferralCurve(t, above[0] / total[0], below[1] / total[1], below.sum(axis=0) / total.sum(), rate)


@metric
def referral_area(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    thresholds: Thresholds = None,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
    interval: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> float | Estimate:
    r"""Area under `referral_curve`, by trapezoids: 1 is perfect, 1/2 is chance.

    .. math:: \sum_j (x_{j-1} - x_j) \, \frac{y_{j-1} + y_j}{2}

    Over all thresholds, the default, it is the chance that a misclassified sample has a lower
    confidence than a correctly classified one (ties count one half): the area under the ROC curve
    of confidence for telling right from wrong answers. It depends on the order of the confidences alone.

    Over the 21 thresholds of the paper it also depends on where the confidences lie between the
    thresholds, for samples that no threshold tells apart count as ties. Calibration then
    changes the area even where the order of the samples stays.

    Parameters
    ----------
    probs, labels, sample_weight, interval, n_resamples, seed
        As in `nll`. The interval is that of DeLong et al. (1988) on the scale of log-odds; it needs 20 errors
        and 20 right predictions, and no resamples.
    thresholds : array, "paper" or None
        As in `referral_curve`; 0 and 1 are added to an array without them.
    log_probs : bool
        ``probs`` holds logarithms of probabilities, which tell confidences apart that round to 1.

    Returns
    -------
    float or Estimate

    Examples
    --------
    >>> probs = [[0.96, 0.04], [0.2, 0.8], [0.02, 0.98], [0.4, 0.6]]
    >>> round(referral_area(probs, [0, 1, 0, 1]), 3)
    0.0
    >>> round(referral_area(probs, [0, 1, 0, 1], thresholds="paper"), 3)
    0.167
    """
    answers = Answers.of(probs, labels, sample_weight, log_probs=log_probs)
    return estimate(referral_area_of(answers, thresholds), answers.weights, interval, n_resamples, seed)


@metric
def referral_area_difference(
    probs: ArrayLike | Any,
    other_probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    thresholds: Thresholds = None,
    log_probs: bool = False,
    sample_weight: ArrayLike | None = None,
    interval: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> float | Estimate:
    """`referral_area` of ``probs`` less that of ``other_probs``, for the same samples.

    The interval is that of the difference itself, so that what both share leaves it; it needs 80 errors, as few of them
    differ in order. Parameters as in `referral_area`; ``log_probs`` applies to both.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]
    >>> other = [[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.3, 0.7]]
    >>> referral_area_difference(probs, other, [0, 1, 0, 1])
    0.8333333333333334
    """
    answers = Answers.of(probs, labels, sample_weight, log_probs=log_probs)
    try:
        other = Answers.of(other_probs, labels, sample_weight, log_probs=log_probs)
    except InputError as error:
        raise type(error)(f"other_probs: {error}") from None
    one, two = (_Area(a, thresholds) for a in (answers, other))

    def limits(value: float, w: Floats, interval: float) -> Estimate:
        influence = one.influence(w) - two.influence(w)
        # Both order the samples alike, and so any others that have these confidences.
        return around_mean(value, influence, w, interval) if influence.any() else Estimate(value, value, value)

    reason = answers.reason(LEAST_ERRORS_OF_DIFFERENCE) or other.reason(LEAST_ERRORS_OF_DIFFERENCE)
    statistic = Statistic(lambda w: one.value(w) - two.value(w), limits, reason)
    return estimate(statistic, answers.weights, interval, n_resamples, seed)


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a classifier, right and wrong, with their confidence.

    Make one with `of`; the constructor checks nothing.
    """

    confidence: Floats
    rank: NDArray[np.intp]  # of the confidence among all; equal where tied
    right: NDArray[np.bool_]
    weights: Floats

    @classmethod
    def of(
        cls,
        probs: ArrayLike | Any,
        labels: ArrayLike | Any,
        sample_weight: ArrayLike | None = None,
        *,
        log_probs: bool = False,
        both: bool = True,
    ) -> Answers:
        """Check probabilities (or their logarithms) against their labels; ``both``: some right, some wrong."""
        p = Predictions.of(probs, labels, sample_weight, log_probs=log_probs)
        confidence, right = p.top
        key = confidence
        if log_probs:
            # In double precision, and before exp rounds what is near 1. `p` has left out samples of weight 0.
            key = to_numpy(as_matrix(probs, "log-probabilities")).max(axis=1).astype(np.float64)
            key = np.minimum(key if sample_weight is None else key[as_weights(sample_weight, len(key)) > 0], 0.0)
            confidence = np.exp(key)
        if both and (right.all() or not right.any()):
            every, missing = ("right", "wrong") if right.all() else ("wrong", "right")
            raise InputError(
                f"all {len(p)} answers are {every}: referral weighs right answers against wrong ones, so there must be "
                f"{missing} ones too. Look at more samples."
            )
        return cls(confidence, np.unique(key, return_inverse=True)[1], right > 0, p.weights)

    def reason(self, errors: int = LEAST_ERRORS) -> str:
        """Why an area has no interval; empty if there are as many errors, and enough right predictions."""
        kinds = ((~self.right, "errors", errors), (self.right, "right predictions", LEAST_ERRORS))
        found = (too_few(effective(self.weights[rows]), what, least) for rows, what, least in kinds)
        return next(filter(None, found), "")

    def referred(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """Weight of the right and of the wrong answers up to each threshold (ascending), and of all of them."""
        n_bins = len(thresholds) + 1
        # c ≤ t is decided by comparing, so t = 1 refers everybody. The last bin lies above all thresholds.
        place = np.searchsorted(thresholds, self.confidence, side="left")
        by_bin = [np.bincount(place, self.weights * of, minlength=n_bins) for of in (self.right, ~self.right)]
        reached = np.array(by_bin).cumsum(axis=1)
        return reached[:, :-1], reached[:, -1:]


def referral_area_of(answers: Answers, thresholds: Thresholds = None) -> Statistic:
    """Area under the referral curve as a function of the weights; 1/2 where an area does not exist."""
    area = _Area(answers, thresholds)

    def limits(value: float, w: Floats, interval: float) -> Estimate:
        return around_area(value, area.influence(w), w, interval)

    return Statistic(area.value, limits, answers.reason())


class _Area:
    """Area under the referral curve as a function of the weights."""

    def __init__(self, answers: Answers, thresholds: Thresholds) -> None:
        if thresholds is None:
            self.place = answers.rank  # every confidence in a bin of its own
        else:
            self.place = np.searchsorted(_check_thresholds(thresholds), answers.confidence, side="left")
        self.is_right = answers.right
        self.right, self.wrong = (adding(self.place, rows) for rows in (answers.right, ~answers.right))

    def value(self, w: Floats) -> Floats:
        """Return the area for each column of weights; 1/2 where it does not exist."""
        r, e = np.asarray(self.right @ w), np.asarray(self.wrong @ w)  # by bin
        up_to = np.cumsum(e, axis=0)
        # A right answer wins over the errors in the bins below its own, and half of those that share its bin.
        won = np.einsum("jb,jb->b", r, up_to) - np.einsum("jb,jb->b", r, e) / 2
        both = r.sum(axis=0) * up_to[-1]
        return np.asarray(np.where(both > 0, won / np.where(both > 0, both, 1.0), 0.5))

    def influence(self, w: Floats) -> Floats:
        """Influence of each sample: the share of errors that a right answer wins over, and the reverse (DeLong)."""
        r, e = np.asarray(self.right @ w), np.asarray(self.wrong @ w)
        won = (np.cumsum(e) - e / 2) / e.sum()  # of a right answer in each bin
        lost = (r.sum() - np.cumsum(r) + r / 2) / r.sum()  # of an error
        area = float(r @ won) / r.sum()
        found = np.empty(len(w))
        for rows, gain in ((self.is_right, won), (~self.is_right, lost)):
            n, total = effective(w[rows]), w[rows].sum()
            found[rows] = (gain[self.place[rows]] - area) * w.sum() / total * np.sqrt(n / max(n - 1, 1.0))
        return found


def adding(place: NDArray[np.intp], rows: NDArray[np.bool_]) -> csr_array[np.float64]:
    """Matrix that adds up, bin by bin, the weights of some rows."""
    chosen = np.flatnonzero(rows)
    shape = (int(place.max()) + 1, len(place))
    return csr_array((np.ones(len(chosen)), (place[chosen], chosen)), shape)


def _check_thresholds(thresholds: Thresholds) -> Floats:
    """Ascending, none twice."""
    if isinstance(thresholds, str):
        if thresholds == "paper":
            return PAPER.copy()
        raise InputError(f"thresholds={thresholds!r}: must be numbers from 0 to 1, 'paper' or None")
    try:
        t = np.asarray(thresholds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"thresholds: {error}; expected numbers from 0 to 1, 'paper' or None") from None
    if t.ndim != 1 or t.size == 0:
        raise InputError(f"thresholds: expected a list of numbers from 0 to 1; got shape {t.shape}")
    bad = np.flatnonzero(~((t >= 0) & (t <= 1)))
    if bad.size:
        raise InputError(f"thresholds: number {bad[0]} is {t[bad[0]]}; they lie between 0 and 1")
    return np.unique(t)
