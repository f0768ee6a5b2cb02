"""scikit-learn estimators: whether one can be used, and its predictions for raw features.

These are brought to logits or probabilities with one column per class.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import sklearn.exceptions
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.errors import InputError, InputTypeError, NotFittedError

__all__ = [
    "RESPONSES",
    "UNSEEN",
    "Response",
    "check_fitted",
    "check_trainable",
    "choose_response",
    "classes_of",
    "is_fitted",
    "is_routed",
    "logits_of_seen",
    "name_of",
    "reject_impossible",
    "respond",
    "takes_weights",
]

Response = Literal["decision_function", "predict_proba", "predict_log_proba"]

# What each method's numbers are. Logarithms of probabilities are logits: softmax gives the probabilities back.
RESPONSES: dict[str, InputKind] = {
    "decision_function": "logits",
    "predict_proba": "probs",
    "predict_log_proba": "logits",
}


# Stands for the logit, or the probability, of a class that an estimator has never seen.
UNSEEN = -np.inf


def name_of(estimator: Any) -> str:
    """Name of the class, for messages; of what is inside a FrozenEstimator."""
    frozen = type(estimator).__name__ == "FrozenEstimator"
    return type(estimator.estimator if frozen else estimator).__name__


def choose_response(estimator: Any, response: str | None) -> Response:
    """Return the method to call: the one asked for, else ``decision_function``, else ``predict_proba``.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> choose_response(DecisionTreeClassifier(), None)
    'predict_proba'
    """
    if isinstance(estimator, type):
        raise InputError(f"estimator: expected an instance, got a class. Use {estimator.__name__}(…).")
    has = [method for method in RESPONSES if hasattr(estimator, method)]
    listed = ", ".join(repr(method) for method in has)
    if not has:
        raise InputError(
            f"estimator: {name_of(estimator)} has neither decision_function nor predict_proba, so it has no "
            "confidence that could be calibrated. Use a classifier that has one of them."
        )
    if response is None:
        return has[0]  # type: ignore[return-value]
    if response not in has:
        raise InputError(f"response_method={response!r}: for {name_of(estimator)} it can be {listed}")
    return response  # type: ignore[return-value]


def classes_of(estimator: Any) -> NDArray[Any]:
    """Classes of a fitted estimator, in the order of its columns."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise InputError(
            f"estimator: {name_of(estimator)} has no classes_ after fit, so the classes of its columns are unknown"
        )
    if isinstance(classes, list) and any(np.ndim(c) for c in classes):
        raise InputError(f"estimator: {name_of(estimator)} has several outputs; calibrate each with one of its own")
    return to_numpy(classes) if hasattr(classes, "__array_namespace__") else np.asarray(classes)


def is_fitted(estimator: Any) -> bool:
    """Whether it is known to be fitted."""
    try:
        check_is_fitted(estimator)
    except (sklearn.exceptions.NotFittedError, TypeError):
        return False
    return True


def check_fitted(estimator: Any) -> None:
    """Refuse an estimator that should be fitted already and is not."""
    if hasattr(estimator, "fit") and not is_fitted(estimator):
        raise NotFittedError(
            f"cv='prefit', but {name_of(estimator)} is not fitted. Fit it first, or leave cv out. If it was fitted: "
            "clones (GridSearchCV, cross_val_score) are not; give FrozenEstimator(estimator), which stays fitted."
        )


def check_trainable(estimator: Any) -> None:
    """Refuse an estimator that cannot be fitted in folds."""
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InputTypeError(
            f"estimator: {name_of(estimator)} is no scikit-learn estimator (fit, get_params), so it cannot be fitted "
            "in folds; fit it elsewhere and use cv='prefit'"
        )
    if hasattr(estimator, "__sklearn_tags__") and get_tags(estimator).input_tags.pairwise:
        raise InputError(
            f"estimator: {name_of(estimator)} takes distances or kernels between rows, of which no folds are made; fit "
            "it elsewhere and use cv='prefit'"
        )


def respond(estimator: Any, X: Any, response: Response, classes: NDArray[Any]) -> NDArray[Any]:
    """Call the estimator and return one column for each of ``classes``.

    A class that the estimator has never seen is one that it holds impossible: `UNSEEN`.
    """
    own = classes_of(estimator)
    with np.errstate(divide="ignore"):  # the logarithm of a probability of 0 is −inf, as it should be
        values = _as_columns(to_numpy(getattr(estimator, response)(X)), estimator, response, len(own))
    if len(own) == len(classes):
        return values
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    out = np.full((len(values), len(classes)), UNSEEN, dtype=values.dtype)
    out[:, np.searchsorted(classes, own)] = values
    return out


def reject_impossible(values: NDArray[Any], columns: Labels, estimator: Any, response: Response) -> None:
    """Refuse rows whose own label has a probability of exactly 0; the error names the options for that."""
    impossible = 0.0 if RESPONSES[response] == "probs" else -np.inf
    hit = np.flatnonzero(values[np.arange(len(values)), columns] == impossible)
    if not hit.size:
        return
    trees = len(getattr(estimator, "estimators_", ())) or 100
    raise InputError(
        f"{response} of {name_of(estimator)} gives {hit.size} of {len(values)} rows a probability of exactly 0 for "
        "their own label, so the loss is infinite at every temperature. Specify what a zero stands for: use "
        f"response_method='predict_proba' and zeros_as=…: where models vote, half a vote "
        f"(zeros_as={0.5 / trees:g} for {trees} trees). Where tiny probabilities were rounded to 0 "
        "(naive Bayes), response_method='predict_log_proba' keeps them."
    )


def logits_of_seen(p: NDArray[Any], zeros_as: float | None) -> NDArray[Any]:
    """Logits of probabilities; −inf for `UNSEEN` ones, which no zeros_as makes possible.

    >>> logits_of_seen(np.array([[1.0, 0.0, UNSEEN]]), 1e-8).round(2)
    array([[  0.  , -18.42,   -inf]])
    """
    unseen = p == UNSEEN
    h = np.asarray(Scores.from_probs(np.where(unseen, 0.0, p), zeros_as=zeros_as).logits)
    return np.where(unseen, -np.inf, h)


def _as_columns(values: NDArray[Any], estimator: Any, response: Response, n_classes: int) -> NDArray[Any]:
    if response == "decision_function" and n_classes == 2 and (values.ndim == 1 or values.shape[1:] == (1,)):
        d = values.reshape(-1)
        return np.column_stack([np.zeros_like(d), d])  # softmax of (0, d) is the sigmoid of d
    if response == "decision_function" and n_classes > 2 and _is_one_vs_one(estimator):
        raise InputError(
            f"{name_of(estimator)} gives one column for each pair of classes (decision_function_shape='ovo'), not one "
            "for each class. Set decision_function_shape='ovr'."
        )
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise InputError(
            f"{response} of {name_of(estimator)} has shape {values.shape}; expected {n_classes} columns, one for each "
            "of its classes. Try another response_method=…"
        )
    return values


def _is_one_vs_one(estimator: Any) -> bool:
    """Whether it is an SVC with pairs for columns; with three classes the shape does not tell."""
    while True:
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return bool(getattr(estimator, "decision_function_shape", None) == "ovo")


def is_routed() -> bool:
    """Whether scikit-learn's metadata routing is enabled."""
    return bool(get_config()["enable_metadata_routing"])


def takes_weights(wrapper: Any, w: Floats) -> bool:
    """Whether the classifier is to be given weights.

    With metadata routing it is as the classifier asks with ``set_fit_request``, and one that was not asked is an error
    of scikit-learn's. Without, its ``fit`` has a parameter ``sample_weight`` or not.
    """
    if is_routed():
        return "sample_weight" in process_routing(wrapper, "fit", sample_weight=w).estimator.fit
    return bool(has_fit_parameter(wrapper.estimator, "sample_weight"))
