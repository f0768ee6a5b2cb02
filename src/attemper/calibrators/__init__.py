"""Recipes that turn logits and labels into a map; one file, one idea."""

from __future__ import annotations

import os

from attemper._json import read_document
from attemper.calibrators.adaptation import Adaptation
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.posterior import Posterior
from attemper.calibrators.provenance import Provenance
from attemper.calibrators.registry import METHODS, calibrator_of, method_title

# Their order is that of `METHODS`: the order of lists, tables and the command line.
from attemper.calibrators.temperature import TemperatureScaling  # isort: skip
from attemper.calibrators.attended import AttendedTemperatureScaling, ThetaPath  # isort: skip
from attemper.calibrators.bayesian import BayesianTemperatureScaling  # isort: skip
from attemper.calibrators.structured import StructuredScaling  # isort: skip
from attemper.calibrators.ensemble_temperature import EnsembleTemperatureScaling  # isort: skip
from attemper.calibrators.affine import DirichletCalibration, MatrixScaling, VectorScaling  # isort: skip
from attemper.calibrators.platt import BetaCalibration, PlattScaling  # isort: skip
from attemper.calibrators.binning import HistogramBinning, IsotonicCalibration  # isort: skip
from attemper.calibrators.bbq import BBQ  # isort: skip
from attemper.calibrators.venn_abers import VennAbers  # isort: skip
from attemper.calibrators.multilabel import LabelFit, MultiLabelCalibrator  # isort: skip
from attemper.calibrators.classifier import CalibratedClassifier  # isort: skip

__all__ = [
    "BBQ",
    "METHODS",
    "Adaptation",
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
    "LabelFit",
    "MatrixScaling",
    "MultiLabelCalibrator",
    "PlattScaling",
    "Posterior",
    "Provenance",
    "StructuredScaling",
    "TemperatureScaling",
    "ThetaPath",
    "VectorScaling",
    "VennAbers",
    "fitted",
    "load",
    "method_title",
    "recipe",
]


def load(path: str | os.PathLike[str]) -> Calibrator | MultiLabelCalibrator:
    """Read a fitted calibrator that ``save`` wrote. The file holds numbers and names, never code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 1]).save(f"{folder}/map.json")
    ...     load(f"{folder}/map.json").method
    'ts'
    """
    content = read_document(path, "calibrator", "multilabel")
    return (
        MultiLabelCalibrator.from_fields(content)
        if content.text("attemper") == "multilabel"
        else calibrator_of(content)
    )
