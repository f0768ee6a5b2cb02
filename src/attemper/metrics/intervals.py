"""Intervals in closed form: of a share, of a mean, of an area; and the reason where there is none.

A weighted sample counts as one independent sample whose weight is known: weights that differ widen an interval, the
unit of the weights does not matter (Kish 1965). In two places weights count as repeats instead, and their unit matters:
the debiased ECE (value and interval), and the Clopper–Pearson intervals of referral outcomes.
"""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit, logit, ndtri, stdtrit

from attemper._typing import Floats, Labels

__all__ = [
    "LEAST_ERRORS",
    "Estimate",
    "around_area",
    "around_mean",
    "around_share",
    "effective",
    "means_of_cases",
    "proportion",
    "quantile",
    "share_held",
    "skewed",
    "too_few",
    "wilson",
    "worth_of_share",
]

# Below, the losses of the few errors that were drawn decide everything, and no interval covers as often as it should:
# docs/metrics.md.
LEAST_ERRORS = 20
MOST_GAIN = 4  # times the samples: where confidence separates right from wrong, their difference hardly varies
NO_SPREAD = "no interval: the samples do not differ, so they do not show how far the value varies"


class _Triple(NamedTuple):
    value: float
    low: float
    high: float


class Estimate(_Triple):
    """A metric with its interval: what `ece` and the others return with ``confidence_level=0.95``.

    A tuple of value, low and high. Where there is no interval, low and high are NaN and ``note`` has the reason.
    Calibration errors also have ``chance``, their mean if labels were drawn from the predicted probabilities, and
    ``p_value``, the share of such draws that reach the value: what perfect calibration would show.

    Examples
    --------
    >>> Estimate(0.02, 0.0, 0.03, chance=0.018, p_value=0.28)
    Estimate(value=0.02, low=0.0, high=0.03, chance=0.018, p_value=0.28)
    >>> value, low, high = Estimate(0.9, 0.8, 0.95)
    """

    note: str = ""
    chance: float | None = None
    p_value: float | None = None

    def __new__(
        cls,
        value: float,
        low: float,
        high: float,
        note: str = "",
        chance: float | None = None,
        p_value: float | None = None,
    ) -> Estimate:
        """Make one; a NamedTuple cannot have more fields than are unpacked."""
        self = super().__new__(cls, value, low, high)
        self.note, self.chance, self.p_value = note, chance, p_value
        return self

    @classmethod
    def without(cls, value: float, note: str) -> Estimate:
        """Return a value that has no interval, with the reason."""
        return cls(value, math.nan, math.nan, note)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval; if not, ``note`` has the reason."""
        return not math.isnan(self.low)

    def with_chance(self, drawn: Floats) -> Estimate:
        """Add what perfect calibration shows: the mean of these values, and the share that reach this one."""
        reach = int((drawn >= self.value * (1 - 1e-12)).sum())
        return Estimate(*self, self.note, float(drawn.mean()), (1 + reach) / (1 + len(drawn)))

    def __eq__(self, other: object) -> bool:
        """Compare all that is known; with a plain tuple value, low and high."""
        if not isinstance(other, Estimate):
            return tuple.__eq__(self, other)
        own, its = ((e.note, e.chance, e.p_value) for e in (self, other))
        return tuple.__eq__(self, other) and own == its

    def __ne__(self, other: object) -> bool:
        """Compare as ``==`` does; a tuple has an operator of its own."""
        return not self == other

    __hash__ = tuple.__hash__

    def _repr_html_(self) -> str:
        note = f"<br>{html.escape(self.note)}" if self.note else ""
        ends = f" ({self.low:.4g} to {self.high:.4g})" if self.has_interval else ""
        if self.chance is None:
            return f"<b>{self.value:.4g}</b>{ends}{note}"
        chance = f"perfect calibration would show {self.chance:.4g} by chance; p = {self.p_value:.3g}"
        return f"<b>{self.value:.4g}</b>{ends}<br>{chance}{note}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers; the ends are None where there is no interval, and ``note`` has the reason."""
        ends = {"low": self.low, "high": self.high} if self.has_interval else {"low": None, "high": None}
        more = {"chance": self.chance, "p_value": self.p_value, "note": self.note or None}
        return {"value": self.value, **ends, **{name: v for name, v in more.items() if v is not None}}

    def __repr__(self) -> str:
        """Write all that is known."""
        shown = {**self._asdict(), "chance": self.chance, "p_value": self.p_value, "note": self.note or None}
        return f"Estimate({', '.join(f'{name}={v!r}' for name, v in shown.items() if v is not None)})"


def quantile(confidence_level: float) -> float:
    """How many standard deviations to each side a normal interval reaches."""
    return float(ndtri((1 + confidence_level) / 2))


def effective(weights: Floats) -> float:
    """How many samples of equal weight are worth as much (Kish); their number where weights are equal.

    >>> effective(np.ones(5)), effective(np.array([2.0, 1.0, 1.0]))
    (5.0, 2.6666666666666665)
    """
    return float(weights.sum() ** 2 / (weights @ weights)) if len(weights) else 0.0


def too_few(errors: float, what: str = "errors", least: int = LEAST_ERRORS) -> str:
    """Give the reason for no interval; empty where there are enough errors.

    >>> too_few(3), too_few(20)
    ('too few errors for an interval: 3, and 20 are needed', '')
    """
    if errors >= least - 1e-9:
        return ""
    return f"too few {what} for an interval: {errors:.4g}, and {least} are needed"


def wilson(right: Floats, n: Floats, confidence_level: float) -> tuple[Floats, Floats]:
    """Wilson interval of the share ``right / n``; NaN where n is 0.

    >>> low, high = wilson(np.array([59.0]), np.array([100.0]), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.492]), array([0.681]))
    """
    z = quantile(confidence_level)
    n = np.where(n > 0, n, np.nan)
    share = right / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def around_share(share: float, n: float, confidence_level: float) -> Estimate:
    """Put the Wilson interval around a share of n samples, or of as many as weights are worth."""
    low, high = (float(end) for end in wilson(np.asarray(share * n), np.asarray(n), confidence_level))
    return Estimate(share, min(low, share), max(high, share))


def proportion(k: float, n: float, level: float) -> Estimate:
    """Share k/n with its Clopper–Pearson interval; weights that are no whole numbers count as parts of a sample.

    >>> [round(share, 4) for share in proportion(3, 60, 0.95)]
    [0.05, 0.0104, 0.1392]
    """
    tail = (1 - level) / 2
    low = 0.0 if k <= 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k >= n else float(betaincinv(k + 1, n - k, 1 - tail))
    return Estimate(k / n, min(low, k / n), max(high, k / n))


def worth_of_share(share: float, values: Floats, w: Floats, case: Labels | None, level: float) -> float:
    """Return how many independent samples have a share that varies as much as the mean of these values.

    Korn and Graubard 1998. Without errors, or without right predictions, a case counts as one sample.
    """
    means, weight = means_of_cases(values, w, case)
    a, n = weight / weight.sum(), effective(weight)
    variance = float(a**2 @ (means - a @ means) ** 2)
    worth = n
    if 0 < share < 1:
        worth = min(share * (1 - share) / max(variance, 1e-300), MOST_GAIN * n)
    if case is None or n <= 1 + 1e-9:
        return worth
    rows, tail = effective(w), (1 + level) / 2
    student = float(stdtrit(max(rows - 1, n - 1), tail) / stdtrit(n - 1, tail))
    return min(worth * (n - 1) / n, rows) * student**2


def share_held(held: NDArray[np.bool_], weights: Floats, case: Labels | None, level: float) -> Estimate:
    """Return a share with its Clopper–Pearson interval, of as many samples as those of cases are worth.

    >>> share = share_held(np.arange(60) >= 3, np.ones(60), np.repeat(np.arange(20), 3), 0.95)
    >>> [round(value, 2) for value in share]
    [0.95, 0.73, 1.0]
    """
    n = float(weights.sum())
    if case is None:
        return proportion(float(weights[held].sum()), n, level)
    share = float(weights @ held) / n
    worth = worth_of_share(share, held.astype(np.float64), weights, np.unique(case, return_inverse=True)[1], level)
    return Estimate(share, *proportion(share * worth, worth, level)[1:])


def means_of_cases(values: Floats, w: Floats, case: Labels | None) -> tuple[Floats, Floats]:
    """Return the mean and the weight of each case."""
    if case is None:
        return values, w
    weight = np.bincount(case, w).astype(np.float64)
    return np.bincount(case, w * values) / weight, weight


def around_mean(value: float, influence: Floats, weights: Floats, confidence_level: float) -> Estimate:
    """Put an interval around a mean, or what acts as one, from the influence of each sample on it.

    Of a mean, that is the distance of a sample from it. Losses are skewed, and `skewed` allows for that.
    """
    error, skewness = _spread(influence, weights)
    return skewed(value, error, skewness, confidence_level) if error > 0 else Estimate.without(value, NO_SPREAD)


def around_area(value: float, influence: Floats, weights: Floats, confidence_level: float) -> Estimate:
    """Put an interval around an area between 0 and 1, normal on the scale of log-odds, so that limits stay inside.

    ``influence`` is that of DeLong et al. (1988).
    """
    if not 0 < value < 1:
        return Estimate.without(
            value, "no interval for an area of 0 or 1: confidence separates right from wrong predictions"
        )
    error = _spread(influence, weights)[0]
    if error == 0:
        return Estimate.without(value, NO_SPREAD)
    half = quantile(confidence_level) * error / (value * (1 - value))
    return Estimate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def skewed(value: float, error: float, skewness: float, confidence_level: float) -> Estimate:
    """Put an interval around a value with this standard error, and this skewness of its own.

    P. Hall, On the removal of skewness by transformation, 1992: a monotone cubic of the Student statistic is nearly
    normal.
    """
    z = quantile(confidence_level)

    def student(u: float) -> float:
        if abs(skewness) < 1e-6:
            return u
        return 3 / skewness * (float(np.cbrt(1 + skewness * (u - skewness / 6))) - 1)

    low, high = value - error * student(z), value - error * student(-z)
    return Estimate(value, min(low, value), max(high, value))


def _spread(influence: Floats, weights: Floats) -> tuple[float, float]:
    """Return standard error and skewness of a weighted mean."""
    a, n = weights / weights.sum(), effective(weights)
    d = influence - a @ influence
    variance = float(a**2 @ d**2)
    # Of samples that do not differ rounding is left.
    if n <= 1 or variance <= (1e-14 * np.abs(influence).max()) ** 2:
        return 0.0, 0.0
    return math.sqrt(variance * n / (n - 1)), float(a**3 @ d**3) / variance**1.5
