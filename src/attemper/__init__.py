"""attemper makes a classifier's confidence mean what it says.

Names are loaded when they are first used, so that `import attemper` and `attemper --help` take no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attemper._version import __version__

if TYPE_CHECKING:
    from attemper.calibrators import (
        BBQ,
        METHODS,
        AttendedTemperatureScaling,
        BayesianTemperatureScaling,
        BetaCalibration,
        CalibratedClassifier,
        Calibrator,
        DirichletCalibration,
        EnsembleTemperatureScaling,
        Fit,
        GroupedCalibrator,
        HistogramBinning,
        IsotonicCalibration,
        MatrixScaling,
        MultiLabelCalibrator,
        PlattScaling,
        Report,
        StructuredScaling,
        TemperatureScaling,
        VectorScaling,
        VennAbers,
    )
    from attemper.data.inputs import label_shares
    from attemper.data.scores import Scores
    from attemper.errors import (
        AttemperError,
        AttemperWarning,
        ChanceAccuracyWarning,
        ConvergenceWarning,
        EdgeWarning,
        FileError,
        InputError,
        LabelShiftError,
        MissingExtraError,
        NotFittedError,
        ProbabilitiesAsLogitsWarning,
    )
    from attemper.sketches import Sketch
    from attemper.verbs import apply, check, compare, decide, evaluate, fit, load, monitor, read, sketch

HOMES = ("errors", "sketches", "data.scores", "data.inputs", "calibrators", "verbs")  # of names, from light to heavy
MODULES = (
    "calibrators", "datasets", "decisions", "maps", "metrics", "monitoring", "planning", "plots", "testing", "tokens",
    "torch",
)  # fmt: skip

# A list, which type checkers read. No modules: after `from attemper import *`, `torch` would hide that package.
__all__ = [
    "BBQ", "METHODS", "AttemperError", "AttemperWarning", "AttendedTemperatureScaling", "BayesianTemperatureScaling",
    "BetaCalibration", "CalibratedClassifier", "Calibrator", "ChanceAccuracyWarning", "ConvergenceWarning",
    "DirichletCalibration", "EdgeWarning", "EnsembleTemperatureScaling", "FileError", "Fit", "GroupedCalibrator",
    "HistogramBinning", "InputError", "IsotonicCalibration", "LabelShiftError", "MatrixScaling", "MissingExtraError",
    "MultiLabelCalibrator", "NotFittedError", "PlattScaling", "ProbabilitiesAsLogitsWarning", "Report", "Scores",
    "Sketch", "StructuredScaling", "TemperatureScaling", "VectorScaling", "VennAbers", "__version__", "apply", "check",
    "compare", "decide", "evaluate", "fit", "label_shares", "load", "monitor", "read", "sketch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        for home in HOMES:
            module = importlib.import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                globals()[name] = found = getattr(module, name)
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])
