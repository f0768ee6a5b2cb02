"""Methods that turn scores and labels into a map: one file, one idea. They register in this order."""
# ruff: noqa: I001

from __future__ import annotations

from attemper.calibrators.base import METHODS, Calibrator, Fit, Report
from attemper.calibrators.registry import load, method_of
from attemper.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling
from attemper.calibrators.attended import AttendedTemperatureScaling
from attemper.calibrators.bayesian import BayesianTemperatureScaling
from attemper.calibrators.structured import StructuredScaling
from attemper.calibrators.affine import DirichletCalibration, MatrixScaling, VectorScaling
from attemper.calibrators.one_vs_rest import BBQ, BetaCalibration, HistogramBinning, IsotonicCalibration, PlattScaling
from attemper.calibrators.venn_abers import VennAbers
from attemper.calibrators.groups import GroupedCalibrator, GroupFit
from attemper.calibrators.multilabel import MultiLabelCalibrator
from attemper.calibrators.classifier import CalibratedClassifier

__all__ = [
    "BBQ", "METHODS", "AttendedTemperatureScaling", "BayesianTemperatureScaling", "BetaCalibration",
    "CalibratedClassifier", "Calibrator", "DirichletCalibration", "EnsembleTemperatureScaling", "Fit", "GroupFit",
    "GroupedCalibrator", "HistogramBinning", "IsotonicCalibration", "MatrixScaling", "MultiLabelCalibrator",
    "PlattScaling", "Report", "StructuredScaling", "TemperatureScaling", "VectorScaling", "VennAbers", "load",
    "method_of",
]  # fmt: skip
