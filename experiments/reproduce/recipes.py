"""The methods that the tables compare, each as one function of validation logits and labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    Calibrator,
    MatrixScaling,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
)
from attemper.errors import AttemperWarning
from attemper.maps import Map
from attemper.metrics import accuracy, brier, ece
from experiments.reproduce.networks import Part
from experiments.reproduce.published import (
    published_best_temperature,
    published_temperature,
    published_tuned_temperature,
)

__all__ = ["ALL", "AS_RUN", "TITLES", "Fitted", "fit", "judge"]

T_RANGE = (0.05, 20.0)

TITLES = {
    "none": "uncalibrated",
    "ts": "TS",
    "ats": "ATS",
    "ats-code": "ATS, loss of the code",
    "ts-run": "TS as run, from T = 3",
    "ts-run-1.5": "TS as run, from T = 1.5",
    "ts-run-best": "TS as run, best of five starts",
    "ats-run": "ATS as run, best of five θ",
    "vector": "vector",
    "matrix": "matrix",
    "bayes": "Bayesian",
    "structured": "structured",
    "best": "best T for the test part",
}

ALL = tuple(TITLES)
AS_RUN = ("ts-run", "ts-run-1.5", "ts-run-best", "ats-run")  # the authors' optimiser

LEAST = 1e-250  # probability below which its logarithm is computed by itself
RAN_AWAY = 1000.0  # a T beyond which nothing is left of the logits


@dataclass(frozen=True)
class Fitted:
    """A calibration, and what it found on the way."""

    map: Map
    temperature: float | None = None
    theta: float | None = None
    converged: bool = True


def fit(method: str, val: Part, *, noisy: bool = False) -> Fitted:
    """Fit a method of the tables; ``noisy`` tells those that can use it that labels may be wrong.

    The range of T for plain temperature scaling is that of the other methods, so that it has an answer where there is
    no finite optimum. ``…-run`` is what the authors' notebook does (`experiments.reproduce.published`).
    """
    if method == "none":
        return Fitted(Map.scale(1.0))
    if method == "ts-run-best":
        return _scaled(published_best_temperature(val.logits, val.labels))
    if method.startswith("ts-run"):
        return _scaled(published_temperature(val.logits, val.labels, start=1.5 if method.endswith("1.5") else 3.0))
    if method == "ats-run":
        return _scaled(*published_tuned_temperature(val.logits, val.labels))
    calibrator = _calibrator(method, "unknown" if noisy else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # edges and separated labels are results here
        calibrator.fit(val.logits, val.labels)
    return Fitted(
        calibrator.map_,
        getattr(calibrator, "temperature_", None),
        getattr(calibrator, "theta_", None),
        calibrator.report_.converged,
    )


def _calibrator(method: str, noise: Any) -> Calibrator:
    match method:
        case "ts" | "best":
            return TemperatureScaling(t_range=T_RANGE)
        case "ats":
            return AttendedTemperatureScaling(t_range=T_RANGE)
        case "ats-code":
            return AttendedTemperatureScaling(loss="reference", t_range=T_RANGE)
        case "vector":
            return VectorScaling(l2=0, centring="none")  # as the paper has it
        case "matrix":
            return MatrixScaling(l2=0, centring="none")
        case "bayes":
            return BayesianTemperatureScaling(noise=noise)
        case "structured":
            return StructuredScaling(noise=noise)
    raise ValueError(method)


def _scaled(temperature: float, theta: float | None = None) -> Fitted:
    """Apply the temperature that a search ended with; where it ran away, the network stays as it is."""
    if not 0 < temperature < RAN_AWAY:
        return Fitted(Map.scale(1.0), converged=False)
    return Fitted(Map.scale(1 / temperature), temperature, theta, converged=False)


def judge(found: Map, test: Part) -> dict[str, float]:
    """Accuracy and ECE (15 bins) in per cent, NLL and Brier score of a calibration on the test part."""
    h, rows = test.logits.astype(np.float64), np.arange(len(test.labels))
    p = np.asarray(found.apply(h))
    at_label = p[rows, test.labels]
    tiny = at_label < LEAST
    log_label = np.log(np.where(tiny, 1.0, at_label))
    log_label[tiny] = np.asarray(found.log_apply(h[tiny]))[np.arange(tiny.sum()), test.labels[tiny]]
    return {
        "accuracy": 100 * float(accuracy(test.labels, p)),
        "nll": -float(log_label.mean()),
        "ece": 100 * float(ece(test.labels, p)),
        "brier": float(brier(test.labels, p)),
    }
