"""What the recipes of one temperature share: T with its interval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import stdtrit

from attemper.calibrators.base import Calibrator
from attemper.data.scores import LabelledScores
from attemper.errors import InputError
from attemper.sketch import DEFAULT_T_RANGE, Sketch

__all__ = ["TemperatureCalibrator", "student_factor"]

MAX_LOG_T_STD = 100.0  # beyond this the samples leave T wholly open
SHOWN_FACTOR = 1000.0  # an interval whose ends are further from T is of no use to a reader


class TemperatureCalibrator(Calibrator):
    """Base of the recipes that fit one temperature, or a mixture around one."""

    stored: ClassVar[tuple[str, ...]] = ("temperature_", "temperature_interval_")
    keeps_arg_max = True
    temperature_: float
    temperature_interval_: tuple[float, float] | None = None

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        interval = self.temperature_interval_
        return super().summary() | {
            "temperature": self.temperature_,
            "temperature_interval": None if interval is None else list(interval),
        }

    def describe(self) -> list[str]:
        """Return a readable summary."""
        known = self.known_within()
        if self.temperature_interval_ is None or known is None or known > SHOWN_FACTOR:
            return [f"T = {self.temperature_:.4g}", *self._group_lines()]
        low, high = self.temperature_interval_
        return [f"T = {self.temperature_:.4g} (95% interval {low:.4g} … {high:.4g})", *self._group_lines()]

    def known_within(self) -> float | None:
        """Return the factor by which the ends of the interval of T differ from T; infinite where no T was best."""
        if self.temperature_interval_ is None:
            return None if self.fit_report_.edge is None else math.inf
        low, high = self.temperature_interval_
        return max(self.temperature_ / low, high / self.temperature_)

    def _set_interval(self, log_t_std: float) -> None:
        """Set the 95 % interval of T, normal in log T."""
        factor = float(np.exp(1.959964 * min(log_t_std, MAX_LOG_T_STD)))
        self.temperature_interval_ = (self.temperature_ / factor, self.temperature_ * factor)

    def _allow_for_clusters(self, scores: LabelledScores) -> None:
        """Make the interval of T that of cases drawn afresh (patients, images), not of rows.

        The slope of the NLL in log T is a sum over cases, whose variance theirs show; over its curvature that is the
        standard error of log T (the sandwich of Huber 1967, by cluster: Liang & Zeger 1986). The interval is as much
        wider as that is larger than what independent rows would leave.
        """
        if self.temperature_interval_ is None or self.fit_report_.edge is not None:
            return
        if scores.repeated is not None and scores.cases is None:
            return  # rows of a soft label are one sample, and their weights add up to one
        beta = 1 / self.temperature_
        slopes = scores.slopes_by_cluster(beta)
        if slopes is None:
            return
        rows, cases = ("pixels", "image") if scores.cases is None else ("samples", "cluster")
        n = len(slopes)
        if n < 2:
            self.temperature_interval_ = None
            self._note(f"no interval of T: the {len(scores)} {rows} are of one {cases}, and are not independent")
            return
        information = float(scores.backend.nll(beta)[2])  # Σ Var_S[h], the variance of the slope of independent rows
        slopes = slopes - slopes.mean()
        design = float(n / (n - 1) * (slopes @ slopes)) / max(information, 1e-300)
        wider = max(1.0, math.sqrt(design)) * student_factor(n)
        low, high = self.temperature_interval_
        self.temperature_interval_ = (
            self.temperature_ * (low / self.temperature_) ** wider,
            self.temperature_ * (high / self.temperature_) ** wider,
        )
        self._note(f"the interval of T is {wider:.3g} times as wide as that of independent {rows} ({n} {cases}s)")

    def note_independent_pixels(self) -> None:
        """Report that the interval of T is too narrow: a sketch, which it was fitted from, does not know the images."""
        self._note(
            "the interval of T is that of independent pixels, which is too narrow: a fit from several files, or from a "
            "large one, does not know which pixels are of one image"
        )

    def note_independent_samples(self) -> None:
        """Report that the interval of T is too narrow: a sketch, which it was fitted from, knows no clusters."""
        self._note(
            "the interval of T is that of independent samples, which is too narrow: a fit with workers, or of large "
            "files, does not know which samples are of one cluster"
        )

    def _note(self, text: str) -> None:
        report = self.fit_report_
        self.fit_report_ = replace(report, message=f"{report.message}; {text}")

    def _check_range_of(self, sketch: Sketch) -> None:
        """Refuse a sketch that does not cover the range that was asked for."""
        t_range = getattr(self, "t_range", None)
        asked = None if t_range is None else tuple(float(t) for t in t_range)
        if asked not in (None, DEFAULT_T_RANGE, sketch.t_range):
            raise InputError(
                f"t_range={asked!r}, but this sketch covers {sketch.t_range}; make it with Sketch.of(..., t_range=…)",
                param="t_range",
            )


def student_factor(n: int) -> float:
    """How much wider 95 % of Student's distribution are than those of the normal one, for the variance of n cases."""
    return float(stdtrit(n - 1, 0.975)) / 1.959964
