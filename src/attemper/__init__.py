"""attemper makes a classifier's confidence mean what it says."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attemper import datasets, metrics, priors
from attemper._version import __version__
from attemper.calibrators import (
    BBQ,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    BetaCalibration,
    CalibratedClassifier,
    Calibrator,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    FitReport,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    MultiLabelCalibrator,
    PlattScaling,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
    load,
)
from attemper.data.label_matrix import label_matrix
from attemper.data.scores import LabelledScores, Scores
from attemper.data.soft import label_shares
from attemper.errors import (
    AttemperError,
    AttemperWarning,
    ChanceAccuracyWarning,
    ConvergenceWarning,
    EdgeWarning,
    FileError,
    InputError,
    InputTypeError,
    LabelShiftError,
    MissingExtraError,
    NotFittedError,
    ProbabilitiesAsLogitsWarning,
)
from attemper.group_sketches import GroupSketches
from attemper.maps import AffineMap, BinMap, MixtureMap, OddsMap, ScaleMap, SigmoidMap, TiltedMap
from attemper.sketch import Sketch

if TYPE_CHECKING:
    from attemper import comparison, decisions, drift, planning, plots, report, sharded, testing, tokens
    from attemper import io as io
    from attemper import torch as torch
    from attemper.comparison import compare
    from attemper.fitting import fit_source

# Not `io` and `torch`: after `from attemper import *` they would hide the modules of these names.
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
    "Calibrator",
    "ChanceAccuracyWarning",
    "ConvergenceWarning",
    "DirichletCalibration",
    "EdgeWarning",
    "EnsembleTemperatureScaling",
    "FileError",
    "FitReport",
    "GroupSketches",
    "HistogramBinning",
    "InputError",
    "InputTypeError",
    "IsotonicCalibration",
    "LabelShiftError",
    "LabelledScores",
    "MatrixScaling",
    "MissingExtraError",
    "MixtureMap",
    "MultiLabelCalibrator",
    "NotFittedError",
    "OddsMap",
    "PlattScaling",
    "ProbabilitiesAsLogitsWarning",
    "ScaleMap",
    "Scores",
    "SigmoidMap",
    "Sketch",
    "StructuredScaling",
    "TemperatureScaling",
    "TiltedMap",
    "VectorScaling",
    "VennAbers",
    "__version__",
    "compare",
    "comparison",
    "datasets",
    "decisions",
    "drift",
    "fit_source",
    "label_matrix",
    "label_shares",
    "load",
    "metrics",
    "planning",
    "plots",
    "priors",
    "report",
    "sharded",
    "testing",
    "tokens",
]

# Loaded when first asked for, so that `import attemper` stays light: the module, or the module of the name.
LAZY = {
    **{
        name: name
        for name in (
            "comparison",
            "decisions",
            "drift",
            "io",
            "planning",
            "plots",
            "report",
            "sharded",
            "testing",
            "tokens",
            "torch",
        )
    },
    "compare": "comparison",
    "fit_source": "fitting",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{LAZY[name]}")
    return module if LAZY[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
