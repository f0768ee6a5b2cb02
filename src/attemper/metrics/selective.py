"""Selective prediction: samples with confidence c > t are decided, the others are referred.

One table serves all: the weights of right and of wrong predictions at each confidence that occurs, in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from attemper._result import Table
from attemper._typing import Floats, InputKind
from attemper.errors import InputError
from attemper.metrics.intervals import Statistic, around_area, effective, few_errors, no_interval, value_of
from attemper.metrics.predictions import Predictions

Thresholds = ArrayLike | Literal["paper"] | None
PerClass = float | ArrayLike

PAPER = np.arange(21) / 20  # 0, 0.05, … 1


class _Sorted:
    """Weights of right and of wrong predictions, summed at each place in the order of confidence.

    Places are the confidences that occur; or, with ascending thresholds, place j holds those up to the threshold j, and
    the last one those above all.
    """

    def __init__(self, p: Predictions, thresholds: Floats | None = None) -> None:
        self.place = p.rank if thresholds is None else np.searchsorted(thresholds, p.confidence, side="left")
        size = int(p.rank.max()) + 1 if thresholds is None else len(thresholds) + 1
        rows = (np.flatnonzero(of) for of in (p.right, ~p.right))
        self._adding = [csr_array((np.ones(len(i)), (self.place[i], i)), (size, len(p))) for i in rows]

    def __call__(self, w: Floats) -> tuple[Floats, Floats]:
        """Sum weights, N or N×B, of right predictions and of wrong ones."""
        right, wrong = (np.asarray(adding @ w) for adding in self._adding)
        return right, wrong

    def from_the_top(self, w: Floats) -> tuple[Floats, Floats]:
        """Return weight, and weight of errors, of at least each confidence."""
        right, wrong = self(w)
        every = right + wrong
        return every[::-1].cumsum(axis=0)[::-1], wrong[::-1].cumsum(axis=0)[::-1]


@dataclass(frozen=True, eq=False, repr=False)
class ReferralCurve(Table):
    """Results at each threshold, from the lowest up. All but ``threshold`` are shares of weight."""

    threshold: Floats
    correct_decided: Floats  # of the correctly classified samples, those decided; falls
    errors_referred: Floats  # of the misclassified samples, those referred; rises
    referred: Floats  # of all samples, those referred; rises
    error_rate_decided: Floats  # of the samples decided, those misclassified; NaN where none is decided


def referral_curve(
    labels: Any, probs: Any, *, thresholds: Thresholds = None, sample_weight: Any = None,
    input: InputKind = "probs", classes: Any = None,
) -> ReferralCurve:  # fmt: skip
    r"""Referral curve of the skin-lesion system of arXiv 1810.11586: errors referred against right predictions decided.

    .. math:: x(t) = \frac{\sum_i w_i [c_i > t, \hat y_i = y_i]}{\sum_i w_i [\hat y_i = y_i]}, \qquad
        y(t) = \frac{\sum_i w_i [c_i \le t, \hat y_i \ne y_i]}{\sum_i w_i [\hat y_i \ne y_i]}

    with the largest probability as confidence c. It runs from (1, 0), where nobody is
    referred, to (0, 1), where everybody is: at t = 1 that includes confidences that round to 1.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`. There must be both right and wrong predictions among them.
    thresholds : array, "paper" or None
        Where to look: numbers from 0 to 1, in any order; 0, 0.05, … 1, as the paper does; or every
        confidence that occurs, and 0 and 1.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> curve = referral_curve([0, 1, 0, 1], probs, thresholds=[0, 0.65, 0.75, 1])
    >>> curve.correct_decided.round(3), curve.errors_referred
    (array([1.   , 0.667, 0.667, 0.   ]), array([0., 0., 1., 1.]))
    >>> curve.referred, curve.error_rate_decided.round(3)
    (array([0.  , 0.25, 0.5 , 1.  ]), array([0.25 , 0.333, 0.   ,   nan]))
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes)
    _check_both(p)
    t = np.unique(np.concatenate([[0.0, 1.0], p.confidence])) if thresholds is None else _checked(thresholds)
    reached = np.cumsum(_Sorted(p, t)(p.weights), axis=1)  # c ≤ t by comparing: t = 1 refers everybody
    below, total = reached[:, :-1], reached[:, -1:]
    above = total - below
    decided = above.sum(axis=0)
    rate = above[1] / np.where(decided > 0, decided, np.nan)
    return ReferralCurve(t, above[0] / total[0], below[1] / total[1], below.sum(axis=0) / total.sum(), rate)


def referral_area(
    labels: Any, probs: Any, *, thresholds: Thresholds = None, sample_weight: Any = None,
    input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    r"""Area under `referral_curve`, by trapezoids: 1 is perfect, 1/2 is chance.

    .. math:: \sum_j (x_{j-1} - x_j) \, \frac{y_{j-1} + y_j}{2}

    Over all thresholds, the default, it is the chance that a misclassified sample has a lower
    confidence than a correctly classified one (ties count one half): the area under the ROC curve
    of confidence for separating right from wrong predictions. It depends on the order of the confidences alone.

    Over the 21 thresholds of the paper it also depends on where the confidences lie between the
    thresholds, as samples that no threshold separates count as ties. Calibration then
    changes the area even where the order of the samples stays. Parameters as in `referral_curve`.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]
    >>> referral_area([0, 1, 0, 1], probs)
    1.0
    """
    return value_of(referral_area_of, labels, probs, sample_weight, input, classes, thresholds=thresholds)


def referral_area_of(p: Predictions, thresholds: Thresholds = None) -> Statistic:
    """`referral_area` of checked predictions."""
    _check_both(p)
    table = _Sorted(p, None if thresholds is None else _checked(thresholds))

    def value(w: Floats) -> Floats:
        r, e = table(w)
        up_to = np.cumsum(e, axis=0)
        # A right prediction wins over the errors in the places below its own, and half of those that share it.
        won = np.einsum("jb,jb->b", r, up_to) - np.einsum("jb,jb->b", r, e) / 2
        both = r.sum(axis=0) * up_to[-1]
        return np.asarray(np.where(both > 0, won / np.where(both > 0, both, 1.0), 0.5))

    def influence(w: Floats) -> Floats:
        """Share of errors that a right prediction wins over, and the reverse (DeLong et al. 1988)."""
        r, e = table(w)
        won = (np.cumsum(e) - e / 2) / e.sum()  # of a right prediction at each place
        lost = (r.sum() - np.cumsum(r) + r / 2) / r.sum()  # of an error
        area = float(r @ won) / r.sum()
        found = np.empty(len(w))
        for rows, gain in ((p.right, won), (~p.right, lost)):
            n, total = effective(w[rows]), w[rows].sum()
            found[rows] = (gain[table.place[rows]] - area) * w.sum() / total * np.sqrt(n / max(n - 1, 1.0))
        return found

    right = effective(p.weights[p.right])
    return Statistic(value, influence, around_area, reason=few_errors(p) or no_interval(right, "right predictions"))


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage(Table):
    """Coverage and risk at each threshold, from the lowest up. Some sample is decided at each threshold."""

    threshold: Floats
    coverage: Floats  # share of weight that is decided; falls from 1
    risk: Floats  # of what is decided, the share that is wrong


def risk_coverage_curve(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> RiskCoverage:
    r"""Risk–coverage curve: the error rate of the decided samples against their share.

    .. math:: \phi(t) = \frac{\sum_i w_i [c_i > t]}{\sum_i w_i}, \qquad
        R(t) = \frac{\sum_i w_i [c_i > t, \hat y_i \ne y_i]}{\sum_i w_i [c_i > t]}

    at t = 0, where everybody is decided, and at every confidence that occurs but the highest, where nobody is.
    Samples of the same confidence are decided together (El-Yaniv and Wiener, JMLR 2010). Parameters as in `nll`.

    Examples
    --------
    >>> curve = risk_coverage_curve([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    >>> curve.threshold, curve.coverage, curve.risk.round(3)
    (array([0. , 0.6, 0.7, 0.8]), array([1.  , 0.75, 0.5 , 0.25]), array([0.25 , 0.333, 0.   , 0.   ]))
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes)
    decided, wrong = _Sorted(p).from_the_top(p.weights)
    confidence = np.empty(len(decided))
    confidence[p.rank] = p.confidence
    # Those of rank j and above are decided by the threshold just below, the confidence of rank j − 1.
    return RiskCoverage(np.concatenate([[0.0], confidence[:-1]]), decided / decided[0], wrong / decided)


def aurc(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> float:
    r"""Area under `risk_coverage_curve`: 0 is best, and an uninformative confidence has the error rate.

    .. math:: \mathrm{AURC} = \frac{1}{\sum_i w_i} \sum_i w_i R_i, \qquad
        R_i = \frac{\sum_j w_j [c_j \ge c_i, \hat y_j \ne y_j]}{\sum_j w_j [c_j \ge c_i]}

    the mean, over the samples, of the risk when they and all that are as confident are decided. Without ties that
    is the usual :math:`\frac 1n \sum_{i=1}^n \frac 1i \sum_{j \le i} [\hat y_j \ne y_j]`, most confident first. It
    is no trapezoid, and no excess over the best order (E-AURC; Geifman, Uziel and El-Yaniv, ICLR 2019) is taken off.
    Parameters as in `nll`.

    Examples
    --------
    >>> aurc([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])  # (0/1 + 0/2 + 1/3 + 1/4) / 4
    0.14583333333333331
    """
    return value_of(aurc_of, labels, probs, sample_weight, input, classes)


def aurc_of(p: Predictions) -> Statistic:
    """`aurc` of checked predictions."""
    table = _Sorted(p)

    def value(w: Floats) -> Floats:
        decided, wrong = table.from_the_top(w)
        risk = wrong / np.where(decided > 0, decided, 1.0)
        own = -np.diff(decided, axis=0, append=0.0)  # weight of each confidence
        return np.asarray(np.einsum("jb,jb->b", own, risk) / decided[0])

    def influence(w: Floats) -> Floats:
        """Risk where a sample stands, and what it adds to that of all below."""
        decided, wrong = table.from_the_top(w)
        risk, own = wrong / decided, -np.diff(decided, append=0.0)
        up_to, risk_up_to = np.cumsum(own / decided), np.cumsum(own / decided * risk)
        return np.asarray(risk[p.rank] + ~p.right * up_to[p.rank] - risk_up_to[p.rank])

    return Statistic(value, influence, reason=few_errors(p))


def expected_cost(
    labels: Any, probs: Any, threshold: PerClass, *, cost_refer: float, cost_miss: PerClass, sample_weight: Any = None,
    input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    r"""Mean cost of a sample: of its referral, or of the wrong prediction.

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \left( r\,[c_i \le t] + m_{y_i} [c_i > t, \hat y_i \ne y_i] \right)

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    threshold : float or array of shape (K,)
        Confidence above which samples are decided; an array has one for each predicted class.
    cost_refer : float
        r, the cost of a referral.
    cost_miss : float or array of shape (K,)
        m, the cost of a wrong prediction; an array has one for each true class: a missed melanoma is no missed nevus.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> expected_cost([0, 1, 0, 1], probs, 0.65, cost_refer=1, cost_miss=[50, 10])  # 1 referred, 1 missed
    12.75
    """
    p = Predictions.of(labels, probs, sample_weight, input, classes)
    t, m = _per_class("threshold", threshold, p.n_classes, 1.0), _per_class("cost_miss", cost_miss, p.n_classes)
    [r] = _per_class("cost_refer", cost_refer, 1)
    costs = np.where(p.confidence <= t[p.prediction], r, np.where(p.right, 0.0, m[p.labels]))
    return float(p.weights @ costs / p.weights.sum())


def _per_class(name: str, given: PerClass, n_classes: int, most: float = np.inf) -> Floats:
    """Return a number for each class, none negative: one for all of them, or one for each."""
    values = np.asarray(given)
    number = values.shape in ((), (n_classes,)) and values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
    if not (number and values.min() >= 0 and values.max() <= most):
        limit = "not negative" if np.isinf(most) else f"from 0 to {most:g}"
        raise InputError(f"{name}={given!r:.60}: expected a number {limit}, or {n_classes}, one for each class", name)
    return np.broadcast_to(values.astype(np.float64), (n_classes,))


def _check_both(p: Predictions) -> None:
    """Refuse predictions that are all right, or all wrong."""
    if p.right.all() or not p.right.any():
        what = f"all {len(p)} predictions are {'right' if p.right.all() else 'wrong'}"
        raise InputError(f"labels: {what}: referral compares right ones with wrong ones", "labels")


def _checked(thresholds: Thresholds) -> Floats:
    """Ascending, none twice."""
    t = PAPER if isinstance(thresholds, str) and thresholds == "paper" else np.asarray(thresholds)
    if t.ndim != 1 or t.size == 0 or t.dtype.kind not in "fiu" or not ((t >= 0) & (t <= 1)).all():
        raise InputError(f"thresholds={thresholds!r:.60}: expected numbers from 0 to 1, 'paper' or None", "thresholds")
    return np.unique(t).astype(np.float64)
