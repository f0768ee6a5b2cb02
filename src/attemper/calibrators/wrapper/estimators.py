"""scikit-learn estimators: whether one can be used, and its predictions for raw features.

These are brought to logits or probabilities with one column per class.
"""

from __future__ import annotations

from typing import Any, Literal

import array_api_compat
import numpy as np
import sklearn.exceptions
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from attemper._typing import InputKind, Labels
from attemper.data.arrays import is_foreign, to_numpy
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
    "innermost",
    "is_fitted",
    "logits_of_seen",
    "name_of",
    "reject_impossible",
    "respond",
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


def innermost(estimator: Any) -> Any:
    """Return the classifier whose numbers come out of pipelines, searches and frozen estimators."""
    while True:
        if hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif type(estimator).__name__ == "FrozenEstimator":
            estimator = estimator.estimator
        else:
            return estimator


def choose_response(estimator: Any, response: str | None) -> Response:
    """Return the method to call: the one asked for, else ``decision_function``, else ``predict_proba``.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> choose_response(DecisionTreeClassifier(), None)
    'predict_proba'
    """
    if isinstance(estimator, type):
        raise InputError(f"estimator: expected an instance, got a class. Use {estimator.__name__}(…).")
    has = [method for method in RESPONSES if hasattr(estimator, method)]
    if not has and _counts_votes(estimator):
        has = ["predict_proba"]  # as shares of the votes: `_vote_shares`
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


def respond(estimator: Any, X: Any, response: Response, classes: NDArray[Any]) -> Any:
    """Call the estimator and return one column for each of ``classes``, in an array of the library it answers in.

    A class that the estimator has never seen is one that it holds impossible: `UNSEEN`.
    """
    own = classes_of(estimator)
    with np.errstate(divide="ignore"):  # the logarithm of a probability of 0 is −inf, as it should be
        shares = response == "predict_proba" and not hasattr(estimator, response) and _counts_votes(estimator)
        values = _vote_shares(estimator, X, len(own)) if shares else getattr(estimator, response)(X)
    values = values if is_foreign(values) else to_numpy(np.asarray(values))
    values = _as_columns(values, estimator, response, len(own))
    if len(own) == len(classes):
        return values
    xp = array_api_compat.array_namespace(values)
    if not xp.isdtype(values.dtype, "real floating"):
        values = xp.astype(values, xp.float64)
    never = xp.full_like(values[:, 0], UNSEEN)
    place = dict(zip(own.tolist(), range(len(own))))
    return xp.stack([values[:, place[name]] if name in place else never for name in classes.tolist()], axis=1)


def reject_impossible(
    values: Any, columns: Labels, rows: NDArray[np.intp], estimator: Any, response: Response, half: float | None
) -> None:
    """Refuse rows whose own label has a probability of exactly 0; the error names the options for that."""
    impossible = 0.0 if RESPONSES[response] == "probs" else -np.inf
    values = to_numpy(values)
    hit = np.flatnonzero(values[np.arange(len(values)), columns] == impossible)
    if not hit.size:
        return
    if half is not None:
        use = f"Use response_method='predict_proba', where half a vote ({half:g}) stands for a zero."
    else:
        use = (
            "Use response_method='predict_proba' and zeros_as=…, what a zero stands for: where models vote, 0.5 / the "
            "number of votes. Where tiny probabilities were rounded to 0 (naive Bayes), use "
            "response_method='predict_log_proba', which keeps them."
        )
    raise InputError(
        f"{response} of {name_of(estimator)} gives {hit.size} of {len(values)} rows a probability of exactly 0 for "
        f"their own label (the first is row {rows[hit[0]]}), so the loss is infinite at every temperature. {use}"
    )


def logits_of_seen(p: NDArray[Any], zeros_as: float | None) -> NDArray[Any]:
    """Logits of probabilities; −inf for `UNSEEN` ones, which no zeros_as makes possible.

    >>> logits_of_seen(np.array([[1.0, 0.0, UNSEEN]]), 1e-8).round(2)
    array([[  0.  , -18.42,   -inf]])
    """
    unseen = p == UNSEEN
    h = np.asarray(Scores.from_probs(np.where(unseen, 0.0, p), zeros_as=zeros_as).logits)
    return np.where(unseen, -np.inf, h)


def _counts_votes(estimator: Any) -> bool:
    """Whether it is a ``VotingClassifier(voting="hard")``, which has no probabilities."""
    voting = innermost(estimator)
    return type(voting).__name__ == "VotingClassifier" and voting.voting == "hard"


def _vote_shares(estimator: Any, X: Any, n_classes: int) -> NDArray[np.float64]:
    """Return the share of the votes that each class gets; ``transform`` has what each member predicts."""
    votes = np.asarray(estimator.transform(X))[:, :, None] == np.arange(n_classes)
    voting = innermost(estimator)
    weights = None if voting.weights is None else voting._weights_not_none  # of members that were not dropped
    return np.asarray(np.average(votes, axis=1, weights=weights))


def _as_columns(values: Any, estimator: Any, response: Response, n_classes: int) -> Any:
    if response == "decision_function" and n_classes == 2 and (values.ndim == 1 or values.shape[1:] == (1,)):
        xp = array_api_compat.array_namespace(values)
        d = xp.reshape(values, (-1,))
        return xp.stack([xp.zeros_like(d), d], axis=1)  # softmax of (0, d) is the sigmoid of d
    if response == "decision_function" and n_classes > 2 and _gives_pairs(estimator):
        raise InputError(
            f"{name_of(estimator)} gives one column for each pair of classes (decision_function_shape='ovo'), not one "
            "for each class. Set decision_function_shape='ovr'."
        )
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise InputError(
            f"{response} of {name_of(estimator)} has shape {tuple(values.shape)}; expected {n_classes} columns, one "
            "for each of its classes. Try another response_method=…"
        )
    return values


def _gives_pairs(estimator: Any) -> bool:
    """Whether it is an SVC with pairs for columns; with three classes the shape does not show it."""
    return bool(getattr(innermost(estimator), "decision_function_shape", None) == "ovo")
