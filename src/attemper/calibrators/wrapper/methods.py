"""The calibrator behind a classifier: by name, by scikit-learn's name, or as it was made."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from attemper._typing import InputKind
from attemper.calibrators.base import Calibrator
from attemper.calibrators.registry import METHODS
from attemper.errors import InputError

__all__ = ["ALIASES", "LEAST", "make_calibrator"]

# What users of scikit-learn's CalibratedClassifierCV write; its "isotonic" is ours.
ALIASES = {"sigmoid": "platt", "temperature": "ts"}

# A probability of 0, for methods that ask no more of it than to be below the others. It is lost in any sum to one, so
# that votes that were tied stay so, and still is a number in single precision.
LEAST = 1e-30


def make_calibrator(method: Any, kind: InputKind, zeros_as: float | None) -> Calibrator:
    """Return an unfitted calibrator for scores of this kind.

    >>> make_calibrator("sigmoid", "logits", None), make_calibrator("isotonic", "probs", None)
    (PlattScaling(), IsotonicCalibration(input='probs', zeros_as=1e-30))
    """
    if isinstance(method, Calibrator):
        calibrator: Calibrator = clone(method)
        for name in ("classes", "axis", "ignore_index"):
            if getattr(calibrator, name) is not None:
                raise InputError(
                    f"method: leave {name} out of the calibrator, which is fitted to one row for each sample and "
                    "to the classes of the estimator"
                )
        if calibrator.input == "probs" and kind == "logits":
            raise InputError(
                "method: the calibrator has input='probs', but the estimator's logits are calibrated. Leave input "
                "out, or use response_method='predict_proba' ('probs' for a module)"
            )
    elif isinstance(method, str) and ALIASES.get(method, method) in METHODS:
        calibrator = METHODS[ALIASES.get(method, method)]()
    else:
        raise InputError(
            f"method={method!r}: expected one of {', '.join(map(repr, [*METHODS, *ALIASES]))}, or a calibrator such as "
            "TemperatureScaling()"
        )
    if kind == "logits" and zeros_as is not None:
        raise InputError(
            f"zeros_as={zeros_as}: only probabilities take zeros_as; use response_method='predict_proba' "
            "('probs' for a module)"
        )
    zeros_as = calibrator.zeros_as if zeros_as is None else zeros_as
    if zeros_as is None and kind == "probs" and calibrator.ranks_only:
        zeros_as = LEAST
    calibrator.set_params(input=kind, zeros_as=zeros_as)
    return calibrator
