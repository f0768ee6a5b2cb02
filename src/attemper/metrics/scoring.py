"""Scorers for scikit-learn: the metrics, for ``scoring=`` of its searches and cross-validations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attemper.errors import InputError, InputTypeError
from attemper.metrics.calibration import classwise_ece, ece, mce, mmce
from attemper.metrics.metric import Metric
from attemper.metrics.proper import brier, nll
from attemper.metrics.risk import aurc
from attemper.metrics.smooth import smooth_ece

__all__ = ["get_scorer"]

MEASURES: dict[str, Metric] = {
    f"neg_{metric.__name__}": metric for metric in (nll, brier, ece, smooth_ece, classwise_ece, mce, mmce, aurc)
}


def get_scorer(name: str, **options: Any) -> Callable[..., float]:
    """Make a scorer for scikit-learn from a metric.

    Labels may be names: columns are those of the estimator's ``classes_``. As everywhere in scikit-learn, more is
    better, so that errors are negative.

    Parameters
    ----------
    name : str
        "neg_nll", "neg_brier", "neg_ece", "neg_smooth_ece", "neg_classwise_ece", "neg_mce", "neg_mmce" or "neg_aurc".
    **options
        Those of the metric, such as ``n_bins=10`` or ``kind="binary"``.

    Returns
    -------
    callable
        For ``scoring=`` of `sklearn.model_selection.cross_val_score` and `sklearn.model_selection.GridSearchCV`:
        ``scorer(estimator, X, y)``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> found = cross_val_score(LogisticRegression(max_iter=1000), X, y, scoring=get_scorer("neg_ece", n_bins=10))
    >>> len(found), bool((found < 0).all())
    (5, True)
    """
    if name not in MEASURES:
        raise InputError(f"scorer {name!r}: expected one of {', '.join(map(repr, MEASURES))}", param="name")
    refused = {"confidence_level", "n_resamples", "seed", "classes", "input"} & options.keys()
    if refused:
        raise InputTypeError(f"get_scorer() got {min(refused)!r}: expected options of the metric's value alone")
    return partial(_score, name, options)


def _score(name: str, options: dict[str, Any], estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    classes = getattr(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not hasattr(estimator, "predict_proba"):
        raise InputTypeError(
            f"get_scorer({name!r}): expected a fitted classifier with predict_proba and classes_, got "
            f"{type(estimator).__name__}. Use CalibratedClassifier(…) for one that has decision_function alone."
        )
    probs = estimator.predict_proba(X)
    return -float(MEASURES[name](y, probs, classes=list(classes), sample_weight=sample_weight, **options))
