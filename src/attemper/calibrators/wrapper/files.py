"""The calibration of a classifier as a document, and how it is put behind the classifier again.

The document holds what `CalibratedClassifier.fit` found in addition to the estimator: the calibrators, the names of the
classes, and which scores of the estimator they take. The estimator itself stays where its owner keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attemper._json import Fields
from attemper.calibrators.base import Calibrator
from attemper.calibrators.registry import calibrator_of
from attemper.calibrators.wrapper.estimators import (
    RESPONSES,
    check_fitted,
    choose_response,
    classes_of,
    name_of,
)
from attemper.errors import FileError, InputError
from attemper.torch.runner import is_module

if TYPE_CHECKING:
    from attemper.calibrators.wrapper.classifier import CalibratedClassifier

__all__ = ["DOCUMENT", "attached", "to_document"]

DOCUMENT = "classifier"  # the kind of document
MODULES = ("logits", "probs")  # responses of torch modules


def to_document(wrapper: CalibratedClassifier, members: Sequence[tuple[Any, Calibrator]]) -> dict[str, Any]:
    """Return what a file keeps of a fitted wrapper."""
    names = wrapper.classes_.tolist()
    if any(name != name or not isinstance(name, str | int | float) for name in names):
        raise InputError("classes_: expected names that are text or numbers, as only those can be saved")
    return {
        "estimator": name_of(members[0][0]),
        "response_method": wrapper.response_method_,
        "classes": names,
        "encoded": getattr(wrapper, "encoded_", False),
        "named": wrapper.classes is not None,
        "n_features": getattr(wrapper, "n_features_in_", None),
        "batch_size": wrapper.batch_size,
        "ensemble": hasattr(wrapper, "calibrators_"),
        "calibrators": [calibrator.to_document() for _, calibrator in members],
    }


def attached(content: Fields, estimator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the fitted attributes of a wrapper that has this calibration and estimator."""
    if content.text("attemper") != DOCUMENT:
        raise FileError(
            f"{content.where}: holds a calibrator without a classifier. Use attemper.load(path), which takes logits, "
            "or CalibratedClassifier(estimator, cv='prefit').fit(X, y)."
        )
    ensemble, response = content.boolean("ensemble"), content.text("response_method")
    documents = content.items("calibrators")
    calibrators = [_calibrator(content, number, item, response) for number, item in enumerate(documents)]
    if not calibrators or (len(calibrators) > 1 and not ensemble):
        raise FileError(f"{content.where}: the field 'calibrators' has {len(calibrators)} items; expected one")
    members = _members(content, estimator, len(calibrators), ensemble)
    classes = _classes(content, calibrators)
    encoded = content.boolean("encoded")
    for member in members:
        _check(content, member, response, np.arange(len(classes)) if encoded else classes)
    module = response in MODULES
    named = classes.tolist() if module and content.boolean("named") else None
    if not (module or ensemble or encoded):
        classes = classes_of(members[0])  # the same, with their own type
    params = {
        "estimator": list(members) if ensemble else members[0],
        "method": clone(calibrators[0]).set_params(input="logits", zeros_as=None),
        "response_method": response,
        "cv": None if module or ensemble else "prefit",
        "ensemble": ensemble,
        "zeros_as": calibrators[0].zeros_as,
        "classes": named,
        "batch_size": content.integer("batch_size"),
    }
    fitted: dict[str, Any] = {"response_method_": response, "classes_": classes} | (
        {"encoded_": True} if encoded else {}
    )
    if ensemble:
        return params, fitted | {"estimators_": list(members), "calibrators_": calibrators}
    return params, fitted | {"estimator_": members[0], "calibrator_": calibrators[0]}


def _calibrator(content: Fields, number: int, item: Any, response: str) -> Calibrator:
    where = f"{content.where}: calibrators[{number}]"
    if not isinstance(item, dict):
        raise FileError(f"{where}: expected an object")
    found = calibrator_of(Fields(item, where))
    kinds = RESPONSES | {name: name for name in MODULES}
    if kinds.get(response) != found.input:
        raise FileError(f"{where}: takes {found.input}, but the field 'response_method' is {response!r}")
    return found


def _classes(content: Fields, calibrators: Sequence[Calibrator]) -> NDArray[Any]:
    names = content.items("classes")
    if any(not isinstance(name, str | int | float) for name in names) or len(set(names)) != len(names):
        raise FileError(f"{content.where}: the field 'classes' must hold names, none of them twice")
    if any(calibrator.n_features_in_ != len(names) for calibrator in calibrators):
        raise FileError(f"{content.where}: {len(names)} classes, but a calibrator of another number")
    return np.asarray(names)


def _members(content: Fields, estimator: Any, count: int, ensemble: bool) -> Sequence[Any]:
    name = content.text("estimator")
    if ensemble:
        if not isinstance(estimator, list | tuple) or len(estimator) != count:
            got = f"{len(estimator)}" if isinstance(estimator, list | tuple) else type(estimator).__name__
            raise InputError(
                f"estimator: expected a list of {count} fitted estimators, one for each calibrator of {content.where} "
                f"(ensemble=True), got {got}. Use the list estimators_ of the wrapper that was saved."
            )
        return estimator
    if estimator is None or isinstance(estimator, list | tuple | type):
        got = "none" if estimator is None else f"a {type(estimator).__name__}"
        use = f"expected the fitted {name}, got {got}. Use CalibratedClassifier.load(path, estimator=…)."
        raise InputError(
            f"estimator: {content.where} holds the calibration of a classifier ({name}), without the classifier; {use}"
        )
    return [estimator]


def _check(content: Fields, estimator: Any, response: str, classes: NDArray[Any]) -> None:
    """Refuse an estimator that is not the one, as far as can be seen."""
    if is_module(estimator) != (response in MODULES):
        wanted = "a torch module" if response in MODULES else "a scikit-learn classifier"
        raise InputError(
            f"estimator: expected {wanted} ({content.text('estimator')}), whose {response} {content.where} was fitted "
            f"to, got {name_of(estimator)}"
        )
    if is_module(estimator):
        return
    choose_response(estimator, response)
    check_fitted(estimator)
    own = classes_of(estimator).tolist()
    fits = set(own) <= set(classes.tolist()) if content.boolean("ensemble") else own == classes.tolist()
    if not fits:  # one of an ensemble may have seen fewer classes
        raise InputError(
            f"estimator: expected a classifier of the classes {_brief(classes.tolist())}, as {content.where} has, got "
            f"{name_of(estimator)} of {_brief(own)}"
        )
    features, has = content.content.get("n_features"), getattr(estimator, "n_features_in_", None)
    if features is not None and has is not None and features != has:
        raise InputError(
            f"estimator: expected a classifier of {features} features, as {content.where} has, got "
            f"{name_of(estimator)} of {has}"
        )


def _brief(names: list[Any]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
