"""A method of your own in one file: a class for the fit and, where no stage of attemper fits, one for the stage.

python examples/own_method.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import attemper
from attemper import TemperatureScaling
from attemper.maps import Affine, Map, Stage


@dataclass(frozen=True, eq=False)
class Power(Stage):
    """−(max z − z)^γ: gaps between logits to a power. Files hold the annotated fields."""

    type = "power"
    keeps_arg_max = True
    power: np.ndarray[Any, Any]

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the numbers of the stage by name."""
        return {"power": self.power}

    def __call__(self, z: Any, arrays: Any, xp: Any) -> Any:
        """Written once, in the array API: NumPy, torch, JAX and ONNX follow."""
        return -((xp.max(z, axis=-1, keepdims=True) - z) ** arrays["power"])


class PowerScaling(attemper.Calibrator):
    """softmax(−(max h − h)^γ / T). With γ = 1 it is temperature scaling."""

    method = "power"
    title = "power scaling"

    def __init__(self, *, power: float = 1.1, input: Any = "logits", classes: Any = None, zeros_as: Any = None) -> None:
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.power = power

    def _fit(self, scores: attemper.Scores) -> attemper.Fit:
        stage = Power(np.asarray(float(self.power)))
        gaps = stage(scores.logits, stage.arrays(), np)
        inner = TemperatureScaling().fit(gaps, scores.labels, scores.weights)
        fitted = Map((stage, Affine.of(1 / inner.temperature_)))
        return attemper.Fit(fitted, attemper.Report.of(fitted, scores), {"temperature": inner.temperature_})


if __name__ == "__main__":
    data = attemper.datasets.load()
    val, test = (data.val_logits, data.val_labels), (data.test_logits, data.test_labels)
    print(attemper.compare(val, test, methods=["ts", PowerScaling(power=1.2)]))
    attemper.testing.check_calibrator(PowerScaling())
