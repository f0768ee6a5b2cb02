"""A sequential test of whether the temperature of the deployed map still fits.

It may be looked at after every batch, for as long as one likes. If the temperature of the map is right within the
tolerance, and each label is news (drawn afresh given all before it), the probability that it *ever* raises a false
alarm is at most ``alpha``. The proof is in docs/drift.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._checks import number
from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.drift.sequential import SequentialTest
from attemper.errors import InputError
from attemper.kernels.drift import WIDTH, best_factor, log_ratios, top_confidence
from attemper.maps import Map, ScaleMap

__all__ = ["Drift", "DriftTest"]

MAX_TOLERANCE = 10.0


class Drift(NamedTuple):
    """What the labels look like now, as `DriftTest` sees it; an estimate, without a guarantee."""

    factor: float  # by which the temperature of the map would have to be multiplied
    temperature: float | None  # what it would then be, where the map has one
    since: int | None  # samples before the change; None: there seems to be none


class DriftTest(SequentialTest):
    """Watch a deployed map, and raise an alarm once new labels no longer fit its temperature.

    The hypothesis is that each label, given all labels and logits before it, is drawn from what the map predicts, up to
    a factor of the temperature between 1/tolerance and tolerance, which may change from sample to sample. The test
    grows a *wealth* that such labels cannot make large: the probability that it ever reaches 1/alpha is at most alpha.

    With ``clusters`` in `update` a case with m samples counts once: each of its log-ratios has weight 1/m. The bound
    then holds whatever the samples of a case have in common, as long as m does not depend on the labels.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        A fitted calibrator; or a map or a temperature for logits.
    alpha : float
        Probability of a false alarm, over all time.
    tolerance : float
        Factors of the temperature up to this, and down to its inverse, are no drift. A calibrator with an interval
        of its temperature raises the tolerance to that interval: a temperature that was fitted on 200 labels is itself
        off by 10 to 30 percent, and testing it more closely than it is known raises false alarms. Pass the map itself,
        ``DriftTest(calibrator.map_)``, to take its temperature for exact.

    Attributes
    ----------
    n_samples : int
    alarm : bool
        Once raised, it stays.
    alarm_at : int or None
        The sample that raised it, counted from 1.
    tolerance, requested_tolerance : float
        The tolerance in force, and the one that was asked for.
    tolerated_points : (float, float) or None
        What the tolerance hides: by how many points (percent) the mean confidence on the samples seen may be too low,
        and too high, without counting as drift.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 5))
    >>> def labels(t):
    ...     return (logits / t + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> test = DriftTest(2.0).update(logits, labels(2.0))
    >>> test.alarm
    False
    >>> test.update(logits, labels(3.0)).alarm
    True
    >>> test.alarm_at, test.drift().since
    (4638, 4095)
    >>> round(test.drift().temperature, 1)
    2.9
    """

    document = "drift test"
    stored = (*SequentialTest.stored, "tolerance", "requested_tolerance", "_confidence")

    tolerance: float
    requested_tolerance: float
    _confidence: Floats  # samples; sums of the confidence at T, at T · tolerance and at T / tolerance

    def __init__(self, deployed: Calibrator | Map | float, *, alpha: float = 0.05, tolerance: float = 1.1) -> None:
        super().__init__(deployed, alpha)
        expected = "a factor of the temperature from 1 to 10, such as 1.1"
        self.tolerance = number("tolerance", tolerance, 1, MAX_TOLERANCE, expected=expected)
        self.requested_tolerance = self.tolerance
        known = deployed.known_within() if isinstance(deployed, Calibrator) else None
        if known is not None:
            if known > MAX_TOLERANCE:
                raise InputError(
                    f"the temperature of this map is known only within a factor of {known:.3g}, so no test of it is "
                    "valid. Fit it on more labels, or with BayesianTemperatureScaling. To take its T for exact pass "
                    "its map_."
                )
            self.tolerance = max(self.tolerance, known)
        self._confidence = np.zeros(4)

    @property
    def tolerated_points(self) -> tuple[float, float] | None:
        """Return by how many points the mean confidence may be too low and too high within the tolerance."""
        if self._confidence[0] == 0:
            return None
        mean, softer, sharper = 100 * self._confidence[1:] / self._confidence[0]
        return float(sharper - mean), float(mean - softer)

    def drift(self) -> Drift:
        """Estimate by what factor the temperature is off now, and since when.

        The factor is the one that the labels support best, as far as they support a change at all.
        """
        share = self._share_won()
        factor = math.exp(share * best_factor(self._wager, self.tolerance))
        temperature = factor / self.map.beta if isinstance(self.map, ScaleMap) and not self.group_maps else None
        since = int(self._wager.start[self._wager.log_stake.argmax()]) if share > 0.5 else None
        return Drift(factor, temperature, since)

    def describe(self) -> list[str]:
        """Return the verdict as readable lines."""
        if not self.alarm:
            return [
                f"no alarm: {self._counted()} are not enough evidence against the map (p = {self.p_value:.3g}; "
                f"alarm at {self.alpha:g})",
                *self._hidden(),
            ]
        factor, temperature, since = self.drift()
        lines = [
            f"ALARM at sample {self.alarm_at} of {self.n_samples}: the map no longer fits (p = {self.p_value:.3g})"
        ]
        if self._impossible_at is not None:
            lines.append(
                f"sample {self._impossible_at} has a label to which the map gives a probability of exactly 0, so no "
                "temperature explains it"
            )
        if since is not None:
            way = "over-confident: T should be higher" if factor > 1 else "under-confident: T should be lower"
            now = "" if temperature is None else f", T = {temperature:.3g}"
            lines.append(
                f"since about sample {since + 1} the network has been {way} by a factor of about {factor:.2f}{now}"
            )
        return [*lines, "fit the map again on recent labels, and watch the new one with a new test"]

    def _hidden(self) -> list[str]:
        """Report what the tolerance leaves out."""
        points = self.tolerated_points
        if points is None or self.tolerance == 1:
            return []
        why = ""
        if self.tolerance > self.requested_tolerance:
            why = f", raised from {self.requested_tolerance:g} to the interval of the map's own T"
        return [
            f"tolerance {self.tolerance:.3g}{why}: a mean confidence that is up to {points[1]:.1f} points too high or "
            f"{points[0]:.1f} points too low is not counted as drift"
        ]

    def _statistics(self, log_p: Floats, y: Labels | None) -> tuple[Floats, Labels]:
        assert y is not None
        factors = (1.0, self.tolerance, 1 / self.tolerance)
        confidence = np.stack([top_confidence(log_p, factor) for factor in factors], axis=1)
        impossible = np.flatnonzero(np.isneginf(log_p[np.arange(len(y)), y]))
        if impossible.size:
            y = y.copy()
            y[impossible] = log_p[impossible].argmax(axis=1)
        ratios = log_ratios(log_p, y, self.tolerance)
        ratios[impossible] = 0.0
        return np.concatenate([ratios, confidence], axis=1), impossible

    def _stake(self, statistics: Floats, impossible: Labels, clusters: NDArray[Any] | None = None) -> None:
        self._confidence = self._confidence + np.array([len(statistics), *statistics[:, WIDTH:].sum(axis=0)])
        super()._stake(statistics, impossible, clusters)

    def _log_ratios(self, statistics: Floats) -> Floats:
        return statistics[:, :WIDTH]
