"""Calibration errors and proper scores as a module of Hugging Face's evaluate; see `huggingface_module`."""

from __future__ import annotations

from typing import Any

import numpy as np

from attemper import metrics
from attemper.errors import InputError, require
from attemper.metrics.intervals import Estimate

datasets: Any = require("datasets", extra="evaluate", why="for the module of Hugging Face's evaluate")
evaluate: Any = require("evaluate", extra="evaluate", why="for the module of Hugging Face's evaluate")

__all__ = ["AttemperCalibration"]

ALL = "default"
SINGLE = ("accuracy", "nll", "brier", "ece", "smooth_ece", "classwise_ece", "mce", "mmce", "aurc")
DESCRIPTION = "How good probabilities are: accuracy, NLL, Brier score and calibration errors, by attemper."
INPUTS = """
Args:
    predictions: a row of probabilities for each sample, or the probability of the second of two classes.
    references: labels, as column numbers, or names with classes=[…] in column order.
    **options: those of attemper.metrics.evaluate, or of the metric that was loaded, such as n_bins, input, kind, norm,
        sample_weight, confidence_level.
Returns:
    A dict of floats; with confidence_level also the ends of the intervals, as ece_low and ece_high.
"""


class AttemperCalibration(evaluate.Metric):  # type: ignore[misc]
    """All metrics, or the one that the configuration names: ``evaluate.load(path, "ece")``."""

    def _info(self) -> Any:
        if self.config_name not in (ALL, *SINGLE):
            raise InputError(
                f"config_name={self.config_name!r}: expected one of {', '.join(map(repr, SINGLE))}, or none"
            )
        value = datasets.Value
        rows = (datasets.Sequence(value("float64")), value("float64"))
        forms = [
            datasets.Features({"predictions": row, "references": label})
            for row in rows
            for label in (value("int64"), value("string"))
        ]
        return evaluate.MetricInfo(description=DESCRIPTION, citation="", inputs_description=INPUTS, features=forms)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add a batch; references that are no labels are refused, as `datasets` would round them."""
        _refuse_fractions(references)
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def add(self, *, prediction: Any = None, reference: Any = None, **kwargs: Any) -> None:
        """Add one sample."""
        _refuse_fractions([reference])
        super().add(prediction=prediction, reference=reference, **kwargs)

    def _compute(self, predictions: Any, references: Any, **options: Any) -> dict[str, float]:
        measure: Any = metrics.evaluate if self.config_name == ALL else getattr(metrics, self.config_name)
        found = measure(references, predictions, **options)
        values = dict(found) if self.config_name == ALL else {self.config_name: found}
        flat: dict[str, float] = {}
        for name, value in values.items():
            flat[name] = float(value[0] if isinstance(value, Estimate) else value)
            if isinstance(value, Estimate):
                flat |= {f"{name}_low": value.low, f"{name}_high": value.high}
        return flat


def _refuse_fractions(references: Any) -> None:
    array = np.asarray(references)
    if array.ndim == 1 and array.dtype.kind == "f" and bool((array != np.floor(array)).any()):
        raise InputError(
            f"references: expected labels, got {array[array != np.floor(array)][0]:g}. Use "
            "compute(predictions=probs, references=labels)."
        )
