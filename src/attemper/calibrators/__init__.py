"""Recipes that turn logits and labels into a map; one file, one idea."""

from __future__ import annotations

import os
from typing import Any, overload

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
from attemper.calibrators.wrapper import DOCUMENT, CalibratedClassifier  # isort: skip
from attemper.errors import InputError

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


@overload
def load(path: str | os.PathLike[str], *, estimator: None = None) -> Calibrator | MultiLabelCalibrator: ...
@overload
def load(path: str | os.PathLike[str], *, estimator: object) -> CalibratedClassifier: ...
def load(
    path: str | os.PathLike[str], *, estimator: Any = None
) -> Calibrator | MultiLabelCalibrator | CalibratedClassifier:
    """Read a fitted calibrator that ``save`` wrote. The file holds numbers and names, never code.

    What `CalibratedClassifier.save` wrote is put behind ``estimator``, a fitted one, as `CalibratedClassifier.load`
    does.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 1]).save(f"{folder}/map.json")
    ...     load(f"{folder}/map.json").method
    'ts'
    """
    content = read_document(path, "calibrator", "multilabel", DOCUMENT)
    if content.text("attemper") == DOCUMENT:
        return CalibratedClassifier.load(path, estimator)
    if content.text("attemper") == "multilabel":
        return MultiLabelCalibrator.from_fields(content)
    if estimator is not None:
        raise InputError(f"estimator: {path} holds a calibrator alone, which needs no estimator. Leave estimator out.")
    return calibrator_of(content)
