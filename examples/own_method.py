"""A method of your own: one class for the fit, and, where no map of attemper fits, one for the map.

PYTHONPATH=src python examples/own_method.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attemper import FitReport, InputError, Scores, TemperatureScaling, compare, datasets
from attemper.calibrators import Calibrator, fitted, recipe
from attemper.maps import Map


@dataclass(frozen=True)
class PowerMap(Map):
    """softmax(−β (max h − h)^γ); it keeps the arg max. Files hold the annotated fields."""

    type: ClassVar[str] = "power"

    beta: float
    power: float

    def __post_init__(self) -> None:
        if not (0 < self.beta < np.inf and 0 < self.power < np.inf):
            raise InputError(f"beta={self.beta}, power={self.power}: expected positive numbers")

    def arrays(self):
        """Return the numbers of the map by name."""
        return {"beta": np.asarray(self.beta), "power": np.asarray(self.power)}

    @property
    def has_logits(self):
        """Whether there are logits whose softmax is the probabilities."""
        return True

    def logits(self, h: Any, arrays: Any, xp: Any) -> Any:
        """Calibrated logits."""
        gap = xp.max(h, axis=-1, keepdims=True) - h
        return -arrays["beta"] * gap ** arrays["power"]

    def evaluate(self, h: Any, arrays: Any, xp: Any, *, log: bool) -> Any:
        """Probabilities, or their logarithms."""
        z = self.logits(h, arrays, xp)
        total = xp.sum(xp.exp(z), axis=-1, keepdims=True)  # the largest z is 0
        return z - xp.log(total) if log else xp.exp(z) / total


@recipe
class PowerScaling(Calibrator):
    """softmax(−β (max h − h)^γ): gaps between logits to the power γ, then the best temperature 1/β.

    With γ = 1 it is temperature scaling. A larger γ moves the probability of far classes to near ones.
    """

    method = "power"
    title = "power scaling"
    keeps_arg_max = True
    stored = ("temperature_",)

    power: float = 1.1
    temperature_: float = fitted()

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


if __name__ == "__main__":
    data = datasets.load()
    val = Scores.from_logits(data.val_logits, data.val_labels)
    test = Scores.from_logits(data.test_logits, data.test_labels)
    print(compare(val, test, ["ts", PowerScaling(power=1.2)]))
