"""The methods of the tables, each fitted to validation logits and labels, and evaluated on the test part."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    MatrixScaling,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    metrics,
)
from attemper.calibrators.attended import ThetaPath
from attemper.errors import AttemperWarning
from attemper.maps import Map
from experiments.reproduce.networks import Samples

__all__ = ["TITLES", "T_RANGE", "Fitted", "evaluate", "fit", "fit_attended", "scaled", "theta_path"]

TITLES = {
    "none": "uncalibrated",
    "ts": "TS",
    "ats": "ATS",
    "ats-code": "ATS, loss of the code",
    "vector": "vector",
    "matrix": "matrix",
    "bayes": "Bayesian",
    "structured": "structured",
    "best": "best T",
}

T_RANGE = (0.05, 20.0)  # of TS and ATS: without a finite optimum T is the end of this range

CALIBRATORS: dict[str, Any] = {
    "ts": lambda noise: TemperatureScaling(t_range=T_RANGE),
    "vector": lambda noise: VectorScaling(l2=0, centring="none"),  # Eq. (9)
    "matrix": lambda noise: MatrixScaling(l2=0, centring="none"),
    "bayes": lambda noise: BayesianTemperatureScaling(noise=noise),
    "structured": lambda noise: StructuredScaling(noise=noise),
}


class Fitted(NamedTuple):
    """A calibration map, and the numbers that it is made of."""

    map: Map
    temperature: float | None = None
    theta: float | None = None


def fit(method: str, val: Samples, *, noise: Any = 0) -> Fitted:
    """Fit a method of `TITLES`; ``noise`` is for those with a model of wrong labels. For "best" pass test samples."""
    if method == "none":
        return Fitted(Map.scale(1.0))
    if method in ("ats", "ats-code"):
        return fit_attended(val, loss="paper" if method == "ats" else "reference")
    calibrator = CALIBRATORS["ts" if method == "best" else method](noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # without a finite optimum the end of the range is the result
        calibrator.fit(val.logits, val.labels)
    return Fitted(calibrator.map_, getattr(calibrator, "temperature_", None))


def fit_attended(val: Samples, **options: Any) -> Fitted:
    """ATS to the letter of the paper: of all θ the one whose T has the least validation NLL.

    `AttendedTemperatureScaling` itself falls back on temperature scaling where that T does harm.
    """
    path = theta_path(val, **options)
    best = int(path.nll.argmin())
    return scaled(float(path.temperature[best]), float(path.theta[best]))


def theta_path(val: Samples, **options: Any) -> ThetaPath:
    """T with the least attended loss, for every θ of the grid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        path: ThetaPath = AttendedTemperatureScaling(t_range=T_RANGE, **options).fit(val.logits, val.labels).path_
    return path


def scaled(temperature: float, theta: float | None = None) -> Fitted:
    """Divide logits by a temperature."""
    return Fitted(Map.scale(1 / temperature), temperature, theta)


def evaluate(fitted: Fitted, test: Samples) -> dict[str, float]:
    """NLL, and accuracy and ECE (15 bins) in per cent."""
    log_p = fitted.map.log_apply(test.logits.astype(np.float64))
    names = ("accuracy", "nll", "ece")
    found = metrics.evaluate(test.labels, log_p, names, input="logits", confidence_level=None)
    return {name: found[name].value * (1 if name == "nll" else 100) for name in names}
