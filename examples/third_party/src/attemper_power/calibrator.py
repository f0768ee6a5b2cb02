"""The recipe: how much the gaps between logits count, and the temperature that then fits best."""

from __future__ import annotations

import numpy as np

from attemper import FitReport, InputError, Scores, TemperatureScaling
from attemper.calibrators import Calibrator, fitted, recipe
from attemper.calibrators.style import ORANGE, Style
from attemper_power.map import PowerMap

__all__ = ["PowerScaling"]


@recipe
class PowerScaling(Calibrator):
    """softmax(−β (max h − h)^γ): gaps between logits to the power γ, then the best temperature 1/β.

    With γ = 1 it is temperature scaling. A larger γ moves the probability of far classes to near ones.

    Parameters
    ----------
    power : float
        γ, above 0.
    input, zeros_as, classes
        As for `attemper.TemperatureScaling`.

    Attributes
    ----------
    temperature_ : float
        1/β, in units of the gaps to the power γ.
    map_, fit_report_, classes_, n_features_in_
    """

    method = "power"
    title = "power scaling"
    style = Style(ORANGE, (0, (2, 2)), "8", "**")
    keeps_arg_max = True
    stored = ("temperature_",)

    power: float = 1.1
    temperature_: float = fitted()

    def summary(self):
        """Return the fitted values as plain numbers."""
        return super().summary() | {"temperature": self.temperature_, "power": self.power}

    def describe(self):
        """Return a readable summary, line by line."""
        return [f"T = {self.temperature_:.4g} after gaps to the power {self.power:g}", *super().describe()]

    def _check_parameters(self):
        if not (isinstance(self.power, int | float) and 0 < self.power <= 10):
            raise InputError(f"power={self.power!r}: expected a number above 0, up to 10")

    def _solve_scores(self, scores):
        h = np.asarray(scores.logits, dtype=np.float64)
        gaps = h.max(axis=1, keepdims=True) - h
        powers = Scores.from_logits(-(gaps**self.power), scores.labels, sample_weight=scores.weights)
        inner = TemperatureScaling().fit(powers)
        self.temperature_ = inner.temperature_
        self.map_ = PowerMap(1 / inner.temperature_, float(self.power))
        report = inner.fit_report_
        self.fit_report_ = FitReport.of(
            self.map_,
            scores,
            converged=report.converged,
            log_t_error=report.log_t_error,
            edge=report.edge,
            n_iter=report.n_iter,
            message=report.message,
        )
