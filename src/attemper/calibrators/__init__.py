"""Recipes that turn logits and labels into a map; one file, one idea."""

from __future__ import annotations

import os

from attemper.calibrators.affine import DirichletCalibration, MatrixScaling, VectorScaling
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.attended import AttendedTemperatureScaling, ThetaPath
from attemper.calibrators.base import Calibrator
from attemper.calibrators.bayesian import BayesianTemperatureScaling
from attemper.calibrators.bbq import BBQ
from attemper.calibrators.binning import HistogramBinning, IsotonicCalibration
from attemper.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.platt import BetaCalibration, PlattScaling
from attemper.calibrators.posterior import Posterior
from attemper.calibrators.provenance import Provenance
from attemper.calibrators.structured import StructuredScaling
from attemper.calibrators.temperature import TemperatureScaling
from attemper.calibrators.wrapper import CalibratedClassifier
from attemper.documents import read_document
from attemper.errors import FileError

__all__ = [
    "BBQ",
    "METHODS",
    "AttendedTemperatureScaling",
    "BayesianTemperatureScaling",
    "BetaCalibration",
    "CalibratedClassifier",
    "Calibrator",
    "Confusions",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "FitReport",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "PlattScaling",
    "Posterior",
    "Provenance",
    "StructuredScaling",
    "TemperatureScaling",
    "ThetaPath",
    "VectorScaling",
    "load",
]

METHODS: dict[str, type[Calibrator]] = {
    cls.method: cls
    for cls in (
        TemperatureScaling,
        AttendedTemperatureScaling,
        BayesianTemperatureScaling,
        StructuredScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        DirichletCalibration,
        PlattScaling,
        BetaCalibration,
        HistogramBinning,
        IsotonicCalibration,
        BBQ,
    )
}
"""Every method by its name on the command line: ``METHODS["ts"]`` is `TemperatureScaling`."""


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a fitted calibrator that ``save`` wrote. The file holds numbers and names, never code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 1]).save(f"{folder}/map.json")
    ...     load(f"{folder}/map.json").method
    'ts'
    """
    content = read_document(path, "calibrator")
    method = content.text("method")
    if method not in METHODS:
        raise FileError(f"{path}: the method {method!r} is unknown to this version of attemper")
    return METHODS[method].from_fields(content)
