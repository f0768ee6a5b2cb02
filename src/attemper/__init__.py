"""attemper makes a classifier's confidence mean what it says."""

from attemper import datasets, metrics
from attemper.calibrators import (
    BBQ,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    BetaCalibration,
    CalibratedClassifier,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    FitReport,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    PlattScaling,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    load,
)
from attemper.errors import (
    AttemperError,
    AttemperWarning,
    ChanceAccuracyWarning,
    EdgeWarning,
    FileError,
    InputError,
    InputTypeError,
    MissingExtraError,
    NotFittedError,
    ProbabilitiesAsLogitsWarning,
)
from attemper.maps import AffineMap, BinMap, MixtureMap, OddsMap, ScaleMap
from attemper.scores import Scores
from attemper.sketch import Sketch

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 (plain order, where BBQ is a class and no constant)
    "AffineMap",
    "AttemperError",
    "AttemperWarning",
    "AttendedTemperatureScaling",
    "BBQ",
    "BayesianTemperatureScaling",
    "BetaCalibration",
    "BinMap",
    "CalibratedClassifier",
    "ChanceAccuracyWarning",
    "DirichletCalibration",
    "EdgeWarning",
    "EnsembleTemperatureScaling",
    "FileError",
    "FitReport",
    "HistogramBinning",
    "InputError",
    "InputTypeError",
    "IsotonicCalibration",
    "MatrixScaling",
    "MissingExtraError",
    "MixtureMap",
    "NotFittedError",
    "OddsMap",
    "PlattScaling",
    "ProbabilitiesAsLogitsWarning",
    "ScaleMap",
    "Scores",
    "Sketch",
    "StructuredScaling",
    "TemperatureScaling",
    "VectorScaling",
    "datasets",
    "load",
    "metrics",
]
