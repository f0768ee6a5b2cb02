"""The scale that logits are on: which temperatures to look at, and which of them counts as 1.

Networks that were trained on the cross-entropy need temperatures near 1. Logits in other units (in thousands, in
float16 after a division, the log-probabilities of AdaBoost) need others. The temperature T* decides at which the
mean confidence equals the accuracy: it follows the unit of the logits, and a few dozen rows show it well enough.
On 103 published sets of logits T* lies between 0.2 and 9 from as few as 20 labels: they have unit 1. AdaBoost has 0.02.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from attemper._typing import Floats
from attemper.data.scores import LabelledScores

__all__ = ["DEFAULT_T_RANGE", "NORMAL", "LogitScale", "logit_scale", "nearest_unit"]

DEFAULT_T_RANGE = (0.05, 20.0)
SKILL = (0.2, 0.95)  # share of the way from chance to certainty; accuracy by chance, or without an error, adds nothing
ROWS, ELEMENTS = 512, 1 << 19  # that are looked at


class LogitScale(NamedTuple):
    """The scale of logits; multiplying them by 1000 multiplies all of it by 1000."""

    unit: float  # the T that counts as 1: a power of 1000, or 35 times one
    t_range: tuple[float, float]  # temperatures to consider

    @classmethod
    def of(cls, t: float, slack: float = 1.0) -> LogitScale:
        """Return the scale of logits whose mean confidence is their accuracy at T = t, known within a factor ``slack``.

        >>> LogitScale.of(2.5)
        LogitScale(unit=1.0, t_range=(0.05, 20.0))
        >>> LogitScale.of(2500)
        LogitScale(unit=1000.0, t_range=(50.0, 20000.0))
        """

        def is_usual(unit: float) -> bool:
            return USUAL[0] / slack <= t / unit <= USUAL[1] * slack

        thousands = math.log10(t) / 3
        unit, (low, high) = 1.0 if is_usual(1.0) else _power(round(thousands)), DEFAULT_T_RANGE
        if not is_usual(unit):
            unit = _power(math.floor(thousands + 1 / 3))
            unit *= 35 if t > 12.5 * unit else 1
            low *= 0.1 if t < USUAL[0] * unit else 1
            high *= 10 if t > USUAL[1] * unit else 1
        return cls(unit, (low * unit, high * unit))


def nearest_unit(log_t: float) -> float:
    """Return the unit that is nearest to a temperature.

    >>> nearest_unit(math.log(900))
    1000.0
    """
    near = [factor * _power(round(log_t / math.log(1000)) + k) for k in (-1, 0) for factor in (1, 35)]
    return min(near, key=lambda unit: abs(math.log(unit) - log_t))


def _power(thousands: int) -> float:
    return 10.0 ** (3 * max(-9, min(thousands, 9)))  # logits themselves end at 1e±30


USUAL = (0.25, 5.0)  # T* of networks whose logits are what they were trained with
NORMAL = LogitScale(1.0, DEFAULT_T_RANGE)


def logit_scale(scores: LabelledScores) -> LogitScale:
    """Return the scale of these logits, from an even sample of their rows."""
    few = scores.sample(max(64, min(ROWS, ELEMENTS // scores.n_classes)))
    weight, largest = few.total_weight, scores.bound
    if weight == 0 or largest == 0:
        return NORMAL

    def confidence(t: Floats) -> Floats:
        return few.backend.confidences(1 / t) / weight

    correct, certain, sharper, softer, chance = confidence(np.array([1e-20 * largest, *USUAL, 1e3 * largest]))
    if certain <= chance:
        return NORMAL  # the logits of every row are equal
    n = len(few) if few.weights is None else max(weight, weight**2 / float(few.weights @ few.weights))
    accuracy = (n * correct + 1) / (n + 2)
    target = chance + np.clip((accuracy - chance) / (certain - chance), *SKILL) * (certain - chance)
    if sharper > target >= softer:
        return NORMAL
    low, high = 1e-20 * largest, 1e3 * largest
    for _ in range(2):
        t = np.geomspace(low, high, 24)
        above = int((confidence(t)[1:] > target).sum())
        low, high = t[max(above - 1, 0)], t[min(above, len(t) - 1)]
    return LogitScale.of(float(np.sqrt(low * high)), 1 + (20 / n) ** 3)
