"""attemper makes a classifier's confidence mean what it says."""

from attemper import datasets, metrics
from attemper.calibrators import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    FitReport,
    TemperatureScaling,
    load,
)
from attemper.errors import (
    AttemperError,
    AttemperWarning,
    EdgeWarning,
    FileError,
    InputError,
    InputTypeError,
    MissingExtraError,
    NotFittedError,
)
from attemper.maps import MixtureMap, ScaleMap
from attemper.scores import Scores
from attemper.sketch import Sketch

__version__ = "0.1.0"

__all__ = [
    "AttemperError",
    "AttemperWarning",
    "AttendedTemperatureScaling",
    "BayesianTemperatureScaling",
    "EdgeWarning",
    "FileError",
    "FitReport",
    "InputError",
    "InputTypeError",
    "MissingExtraError",
    "MixtureMap",
    "NotFittedError",
    "ScaleMap",
    "Scores",
    "Sketch",
    "TemperatureScaling",
    "datasets",
    "load",
    "metrics",
]
