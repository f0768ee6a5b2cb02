"""Referral: which cases are decided by the network, and which are referred to a specialist.

At a threshold t, samples with confidence c > t are decided, those with c ≤ t are referred. With a
good confidence the wrong predictions are referred and the right ones decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from attemper._table import Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.metrics.bootstrap import Statistic, estimate
from attemper.metrics.intervals import LEAST_ERRORS, Estimate, around_area, around_mean, effective, too_few
from attemper.metrics.metric import metric, of_predictions
from attemper.metrics.predictions import Predictions

__all__ = ["ReferralCurve", "referral_area", "referral_area_difference", "referral_curve"]

Thresholds = ArrayLike | Literal["paper"] | None

PAPER = np.arange(21) / 20  # 0, 0.05, … 1
# The few errors that two methods order differently decide a difference: docs/metrics.md.
LEAST_ERRORS_OF_DIFFERENCE = 80


@dataclass(frozen=True, eq=False, repr=False)
class ReferralCurve(Table):
    """Results at each threshold, from the lowest up: `referral_curve` returns them.

    All but ``threshold`` are shares of weight.
    """

    __repr__ = one_line

    threshold: Floats
    correct_decided: Floats  # of the correctly classified samples, those decided; falls
    errors_referred: Floats  # of the misclassified samples, those referred; rises
    referred: Floats  # of all samples, those referred; rises
    error_rate_decided: Floats  # of the samples decided, those misclassified; NaN where none is decided


@of_predictions
def referral_curve(
    p: Predictions,
    *,
    thresholds: Thresholds = None,
) -> ReferralCurve:
    r"""Referral curve of the skin-lesion system of arXiv 1810.11586: errors referred against right predictions decided.

    .. math:: x(t) = \frac{\sum_i w_i [c_i > t, \hat y_i = y_i]}{\sum_i w_i [\hat y_i = y_i]}, \qquad
        y(t) = \frac{\sum_i w_i [c_i \le t, \hat y_i \ne y_i]}{\sum_i w_i [\hat y_i \ne y_i]}

    with the largest probability as confidence c. It runs from (1, 0), where nobody is
    referred, to (0, 1), where everybody is: at t = 1 that includes confidences that round to 1.

    Parameters
    ----------
    labels, probs, input, sample_weight
        As in `nll`. There must be both right and wrong predictions among them.
    thresholds : array, "paper" or None
        Where to look: numbers from 0 to 1, in any order; 0, 0.05, … 1, as the paper does; or every
        confidence that occurs, and 0 and 1.

    Returns
    -------
    ReferralCurve

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> curve = referral_curve([0, 1, 0, 1], probs, thresholds=[0, 0.65, 0.75, 1])
    >>> curve.correct_decided.round(3), curve.errors_referred
    (array([1.   , 0.667, 0.667, 0.   ]), array([0., 0., 1., 1.]))
    >>> curve.referred, curve.error_rate_decided.round(3)
    (array([0.  , 0.25, 0.5 , 1.  ]), array([0.25 , 0.333, 0.   ,   nan]))
    """
    _check_both(p)
    t = np.unique([0.0, *p.confidence, 1.0]) if thresholds is None else _check_thresholds(thresholds)
    # c ≤ t is decided by comparing, so t = 1 refers everybody. The last bin lies above all thresholds.
    place, n_bins = np.searchsorted(t, p.confidence, side="left"), len(t) + 1
    reached = np.array([np.bincount(place, p.weights * of, n_bins).cumsum() for of in (p.right, ~p.right)])
    below, total = reached[:, :-1], reached[:, -1:]
    above = total - below
    decided = above.sum(axis=0)
    rate = above[1] / np.where(decided > 0, decided, np.nan)
    return ReferralCurve(t, above[0] / total[0], below[1] / total[1], below.sum(axis=0) / total.sum(), rate)


@metric
def referral_area(p: Predictions, *, thresholds: Thresholds = None) -> Statistic:
    r"""Area under `referral_curve`, by trapezoids: 1 is perfect, 1/2 is chance.

    .. math:: \sum_j (x_{j-1} - x_j) \, \frac{y_{j-1} + y_j}{2}

    Over all thresholds, the default, it is the chance that a misclassified sample has a lower
    confidence than a correctly classified one (ties count one half): the area under the ROC curve
    of confidence for separating right from wrong predictions. It depends on the order of the confidences alone.

    Over the 21 thresholds of the paper it also depends on where the confidences lie between the
    thresholds, as samples that no threshold separates count as ties. Calibration then
    changes the area even where the order of the samples stays.

    Parameters
    ----------
    labels, probs, input, sample_weight, confidence_level, n_resamples, seed
        As in `nll`. The interval is that of DeLong et al. (1988) on the scale of log-odds; it needs 20 errors
        and 20 right predictions, and no resamples.
    thresholds : array, "paper" or None
        As in `referral_curve`; 0 and 1 are added to an array without them.

    Returns
    -------
    float or Estimate

    Examples
    --------
    >>> probs = [[0.96, 0.04], [0.2, 0.8], [0.02, 0.98], [0.4, 0.6]]
    >>> round(referral_area([0, 1, 0, 1], probs), 3)
    0.0
    >>> round(referral_area([0, 1, 0, 1], probs, thresholds="paper"), 3)
    0.167
    """
    area = _Area(p, thresholds)

    def limits(value: float, w: Floats, confidence_level: float) -> Estimate:
        return around_area(value, area.influence(w), w, confidence_level)

    return Statistic(area.value, limits, _reason(p))


def referral_area_difference(
    labels: ArrayLike | Any,
    probs: ArrayLike | Any,
    other_probs: ArrayLike | Any,
    *,
    thresholds: Thresholds = None,
    sample_weight: ArrayLike | None = None,
    confidence_level: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    **reading: Any,
) -> Any:
    """`referral_area` of ``probs`` minus that of ``other_probs``, for the same samples.

    The interval is that of the difference itself, so that what both share leaves it; it needs 80 errors, as few of them
    differ in order. Parameters as in `referral_area`; ``input`` applies to both.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]
    >>> other = [[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.3, 0.7]]
    >>> referral_area_difference([0, 1, 0, 1], probs, other)
    0.8333333333333334
    """
    p, other = (Predictions.of(labels, each, sample_weight, **reading) for each in (probs, other_probs))
    statistic = area_difference(p, other, thresholds)
    if confidence_level is None:
        return statistic.at(p.weights)
    return estimate(statistic, p.weights, confidence_level, n_resamples, seed, p.clusters)


def area_difference(p: Predictions, other: Predictions, thresholds: Thresholds = None) -> Statistic:
    """`referral_area_difference` of predictions that were checked before."""
    one, two = _Area(p, thresholds), _Area(other, thresholds)

    def limits(value: float, w: Floats, confidence_level: float) -> Estimate:
        influence = one.influence(w) - two.influence(w)
        # Both order the samples alike, and so any others that have these confidences.
        return around_mean(value, influence, w, confidence_level) if influence.any() else Estimate(value, value, value)

    reason = _reason(p, LEAST_ERRORS_OF_DIFFERENCE) or _reason(other, LEAST_ERRORS_OF_DIFFERENCE)
    return Statistic(lambda w: one.value(w) - two.value(w), limits, reason)


def _check_both(p: Predictions) -> None:
    """Refuse predictions that are all right, or all wrong."""
    if p.right.all() or not p.right.any():
        every, missing = ("right", "wrong") if p.right.all() else ("wrong", "right")
        raise InputError(
            f"all {len(p)} predictions are {every}: referral compares right predictions with wrong ones. Use more "
            f"samples, with {missing} predictions among them."
        )


def _reason(p: Predictions, errors: int = LEAST_ERRORS) -> str:
    """Why an area has no interval; empty if there are as many errors, and enough right predictions."""
    right = effective(p.weights[p.right] if p.clusters is None else p.of_cases(p.weights, p.right))
    return too_few(p.errors, least=errors) or too_few(right, "right predictions")


class _Area:
    """Area under the referral curve as a function of the weights."""

    def __init__(self, p: Predictions, thresholds: Thresholds) -> None:
        _check_both(p)
        self.place = p.rank  # every confidence in a bin of its own
        if thresholds is not None:
            self.place = np.searchsorted(_check_thresholds(thresholds), p.confidence, side="left")
        self.is_right = p.right
        self.right, self.wrong = (adding(self.place, rows) for rows in (p.right, ~p.right))

    def value(self, w: Floats) -> Floats:
        """Return the area for each column of weights; 1/2 where it does not exist."""
        r, e = np.asarray(self.right @ w), np.asarray(self.wrong @ w)  # by bin
        up_to = np.cumsum(e, axis=0)
        # A right prediction wins over the errors in the bins below its own, and half of those that share its bin.
        won = np.einsum("jb,jb->b", r, up_to) - np.einsum("jb,jb->b", r, e) / 2
        both = r.sum(axis=0) * up_to[-1]
        return np.asarray(np.where(both > 0, won / np.where(both > 0, both, 1.0), 0.5))

    def influence(self, w: Floats) -> Floats:
        """Influence of each sample: the share of errors that a right prediction wins over, and the reverse (DeLong)."""
        r, e = np.asarray(self.right @ w), np.asarray(self.wrong @ w)
        won = (np.cumsum(e) - e / 2) / e.sum()  # of a right prediction in each bin
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
    expected = "expected numbers from 0 to 1, 'paper' or None"
    if isinstance(thresholds, str):
        if thresholds == "paper":
            return PAPER.copy()
        raise InputError(f"thresholds={thresholds!r}: {expected}")
    try:
        t = np.asarray(thresholds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"thresholds: {expected}; {error}") from None
    if t.ndim != 1 or t.size == 0:
        raise InputError(f"thresholds: {expected}, got shape {t.shape}")
    bad = t[~((t >= 0) & (t <= 1))]
    if bad.size:
        raise InputError(f"thresholds: {expected}, got {bad[0]}")
    return np.unique(t)
