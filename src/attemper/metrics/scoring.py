"""Scorers for scikit-learn: the metrics, for ``scoring=`` of its searches and cross-validations."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics._scorer import _BaseScorer  # make_scorer's class: the public function hides names of classes

from attemper.errors import InputError, InputTypeError
from attemper.metrics.calibration import classwise_ece, ece, mce, mmce
from attemper.metrics.metric import Metric
from attemper.metrics.proper import brier, nll
from attemper.metrics.risk import aurc
from attemper.metrics.smooth import smooth_ece

__all__ = ["get_scorer", "scorers"]

MEASURES: dict[str, Metric] = {
    f"neg_{metric.__name__}": metric for metric in (nll, brier, ece, smooth_ece, classwise_ece, mce, mmce, aurc)
}

BOTH = "attemper: predict_proba"  # in scikit-learn's cache of predictions


class ProbabilityScorer(_BaseScorer):  # type: ignore[misc]
    """A metric of ``predict_proba`` and of labels as the estimator names them: `get_scorer` makes it."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(MEASURES[name], -1, options, "predict_proba")
        self.name = name

    def __repr__(self) -> str:
        """Write the call that makes it."""
        return f"get_scorer({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self._kwargs.items())])})"

    def _score(self, method_caller: Any, estimator: Any, X: Any, y_true: Any, **kwargs: Any) -> float:
        """Score; ``method_caller`` keeps the predictions where several scorers ask for them."""
        classes = getattr(estimator, "classes_", None)
        if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not hasattr(estimator, "predict_proba"):
            raise InputTypeError(
                f"{self!r}: expected a fitted classifier with predict_proba and classes_, got "
                f"{type(estimator).__name__}. Use CalibratedClassifier(…) for one that has decision_function alone."
            )
        probs = _all_columns(method_caller, estimator, X)
        return -float(self._score_func(y_true, probs, classes=list(classes), **{**self._kwargs, **kwargs}))


def _all_columns(method_caller: Any, estimator: Any, X: Any) -> Any:
    """Predict once for all scorers of these rows.

    ``method_caller`` itself would return the second of two columns alone, and 1 - p has lost the digits of a small
    first one; so its cache keeps both under a name of their own.
    """
    cache = next(iter(getattr(method_caller, "args", ())), None)
    if cache is None:
        return estimator.predict_proba(X)
    if BOTH not in cache:
        cache[BOTH] = estimator.predict_proba(X)
    return cache[BOTH]


def get_scorer(name: str, **options: Any) -> ProbabilityScorer:
    """Make a scorer for scikit-learn from a metric.

    Labels may be names: columns are those of the estimator's ``classes_``. As everywhere in scikit-learn, more is
    better, so that errors are negative. If metadata routing is on, ``set_score_request(sample_weight=True)`` routes
    weights.

    Parameters
    ----------
    name : str
        "neg_nll", "neg_brier", "neg_ece", "neg_smooth_ece", "neg_classwise_ece", "neg_mce", "neg_mmce" or "neg_aurc".
    **options
        Those of the metric, such as ``n_bins=10`` or ``kind="binary"``.

    Returns
    -------
    callable
        For ``scoring=`` of `sklearn.model_selection.cross_val_score` and `sklearn.model_selection.GridSearchCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> found = cross_val_score(LogisticRegression(max_iter=1000), X, y, scoring=get_scorer("neg_ece", n_bins=10))
    >>> len(found), bool((found < 0).all())
    (5, True)
    >>> get_scorer("ece")
    Traceback (most recent call last):
    attemper.errors.InputError: scorer 'ece': a scorer is to be maximised. Use 'neg_ece'.
    """
    if name not in MEASURES:
        if f"neg_{name}" in MEASURES:
            raise InputError(f"scorer {name!r}: a scorer is to be maximised. Use 'neg_{name}'.")
        raise InputError(f"scorer {name!r}: expected one of {', '.join(map(repr, MEASURES))}")
    refused = {"confidence_level", "n_resamples", "seed", "classes", "input"} & options.keys()
    if refused:
        raise InputTypeError(f"get_scorer() got {min(refused)!r}: expected options of the metric's value alone")
    return ProbabilityScorer(name, options)


class _Scorers(dict[str, ProbabilityScorer]):
    """Scorers by name; each time a new one, since ``set_score_request`` changes it."""

    def __getitem__(self, name: str) -> ProbabilityScorer:
        return get_scorer(name)


scorers: dict[str, ProbabilityScorer] = _Scorers({name: get_scorer(name) for name in MEASURES})
"""Scorers with the defaults of their metrics, by the names that `get_scorer` takes: ``scorers["neg_ece"]``."""
