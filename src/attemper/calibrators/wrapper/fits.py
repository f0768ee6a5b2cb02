"""How a wrapper is fitted: a module, an estimator that is fitted already, or one in folds.

Each function returns the fitted attributes and changes nothing of the wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.frozen import FrozenEstimator

from attemper._checks import one_of
from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.wrapper.estimators import (
    RESPONSES,
    UNSEEN,
    Response,
    check_fitted,
    check_trainable,
    choose_response,
    classes_of,
    is_fitted,
    logits_of_seen,
    name_of,
    reject_impossible,
    respond,
)
from attemper.calibrators.wrapper.folds import fit_folds, held_out
from attemper.calibrators.wrapper.methods import make_calibrator
from attemper.calibrators.wrapper.routing import reject_params, route
from attemper.calibrators.wrapper.rows import (
    Rows,
    check_rows,
    encode,
    like,
    reject_short_folds,
    split,
    take,
    warn_left_out,
)
from attemper.calibrators.wrapper.votes import half_a_vote
from attemper.data.arrays import is_foreign, to_numpy
from attemper.data.ids import as_ids
from attemper.data.labels import as_names, as_weights
from attemper.errors import InputError, warn
from attemper.torch.runner import is_loader, respond_in_batches

if TYPE_CHECKING:
    from attemper.calibrators.wrapper.classifier import CalibratedClassifier

__all__ = ["fit_estimator", "fit_module"]


def fit_module(
    wrapper: CalibratedClassifier, X: Any, y: Any, sample_weight: Any, params: dict[str, Any], clusters: Any = None
) -> dict[str, Any]:
    """Fit a calibrator to the outputs of a torch module."""
    name = type(wrapper.estimator).__name__
    reject_params(params, f"{name} is a torch module, which is used as it is")
    if wrapper.cv is not None and not _says_prefit(wrapper):
        raise InputError(
            f"cv={wrapper.cv!r}: {name} is a torch module, which is used as it is; leave cv out, and give fit data "
            "that it was not trained on"
        )
    if _is_ensemble(wrapper, fitted=True):
        raise InputError(f"ensemble=True: {name} is a torch module, of which there is one; leave ensemble out")
    kind = _kind_of_module(wrapper)
    if is_loader(X):
        if y is not None:
            raise InputError("y: a loader yields its own labels, (inputs, labels); pass no others")
        if sample_weight is not None:
            raise InputError("sample_weight: a loader may yield rows in any order. Use tensors for X and y.")
        if clusters is not None:
            raise InputError("clusters: a loader may yield rows in any order. Use tensors for X and y.")
    elif y is None:
        raise InputError(
            f"{type(wrapper).__name__} requires y to be passed, but the target y is None: give one label per row"
        )
    values, yielded = respond_in_batches(
        wrapper.estimator, X, kind, batch_size=wrapper.batch_size, select=wrapper.select
    )
    if is_loader(X) and yielded is None:
        raise InputError("X: this loader yields inputs without labels; for fit it must yield (inputs, labels)")
    y = yielded if is_loader(X) else y
    classes = np.arange(values.shape[-1])
    if wrapper.classes is not None:
        classes = np.asarray(as_names(wrapper.classes, values.shape[-1]))
        y = encode(to_numpy(y), classes, name)
    calibrator = make_calibrator(wrapper.method, kind, wrapper.zeros_as).fit(
        values, y, sample_weight, clusters=clusters
    )
    return {"response_method_": kind, "classes_": classes, "estimator_": wrapper.estimator, "calibrator_": calibrator}


def fit_estimator(
    wrapper: CalibratedClassifier, X: Any, y: Any, sample_weight: Any, params: dict[str, Any], clusters: Any = None
) -> dict[str, Any]:
    """Fit a calibrator to a scikit-learn classifier, and the classifier unless that is fitted already."""
    response = choose_response(wrapper.estimator, wrapper.response_method)
    for name in ("classes", "select"):
        if getattr(wrapper, name) is not None:
            raise InputError(f"{name}: only for torch modules; {name_of(wrapper.estimator)} needs none")
    # What is wrong with the method shall show before anything is fitted.
    make_calibrator(wrapper.method, RESPONSES[response], wrapper.zeros_as)
    prefit, frozen = _says_prefit(wrapper), isinstance(wrapper.estimator, FrozenEstimator)
    ensemble = _is_ensemble(wrapper, fitted=prefit or frozen)
    X, y = check_rows(X, y)
    w = None if sample_weight is None else as_weights(sample_weight, len(y))
    ids = None if clusters is None else as_ids(clusters, len(y))
    kept = np.arange(len(y)) if w is None else np.flatnonzero(w > 0)
    if not prefit and (ensemble or not frozen):
        if frozen or not _takes_numbers_alone(X, y):
            return _fit_folds(wrapper, X, y, w, kept, response, params, ensemble, ids)
        names, numbers = np.unique(y[kept], return_inverse=True)
        y = np.zeros(len(y), dtype=np.int64)
        y[kept] = numbers
        found = _fit_folds(wrapper, X, y, w, kept, response, params, ensemble, ids)
        return found | {"classes_": names, "encoded_": True}
    name = name_of(wrapper.estimator)
    if ensemble:
        raise InputError(f"ensemble=True: {name} is fitted already, so there is one; leave ensemble out")
    reject_params(params, f"{name} is fitted already and is used as it is")
    return _fit_prefit(wrapper, X, y, w, kept, response, ids)


def _fit_prefit(
    wrapper: CalibratedClassifier,
    X: Any,
    y: NDArray[Any],
    w: Floats | None,
    kept: Rows,
    response: Response,
    clusters: NDArray[Any] | None,
) -> dict[str, Any]:
    check_fitted(wrapper.estimator)
    classes = classes_of(wrapper.estimator)
    columns = encode(y[kept], classes, name_of(wrapper.estimator))
    h = respond(wrapper.estimator, take(X, kept), response, classes)
    weights = None if w is None else w[kept]
    calibrator = _calibrate(wrapper, h, kept, columns, weights, response, [wrapper.estimator], clusters)
    return {
        "response_method_": response,
        "classes_": classes,
        "estimator_": wrapper.estimator,
        "calibrator_": calibrator,
    }


def _fit_folds(
    wrapper: CalibratedClassifier,
    X: Any,
    y: NDArray[Any],
    w: Floats | None,
    kept: Rows,
    response: Response,
    params: dict[str, Any],
    ensemble: bool,
    clusters: NDArray[Any] | None,
) -> dict[str, Any]:
    frozen = isinstance(wrapper.estimator, FrozenEstimator)
    if frozen:
        check_fitted(wrapper.estimator)
    else:
        check_trainable(wrapper.estimator)
        _warn_of_clones(wrapper)
    routed = route(wrapper, None if w is None or frozen else like(X, w), params)
    classes = classes_of(wrapper.estimator) if frozen else np.unique(y[kept])
    if len(classes) < 2:
        raise InputError(
            f"y holds one class only ({classes.tolist()[0]!r}); a classifier needs two or more, of weight above 0"
        )
    columns = np.zeros(len(y), dtype=np.int64)  # of rows that are not kept, too: nobody looks at those
    columns[kept] = encode(y[kept], classes, name_of(wrapper.estimator))
    parts = list(split(wrapper.cv, X, y, kept, routed.split, clusters))
    if ensemble:
        reject_short_folds(wrapper.cv, parts)
    else:
        parts.append((kept, kept[:0]))  # the estimator of the result
    folds = fit_folds(
        wrapper.estimator, X, y, parts, response=response, classes=classes, params=routed, n_jobs=wrapper.n_jobs
    )
    result: dict[str, Any] = {"response_method_": response, "classes_": classes}
    known = [fold for fold in folds if fold.rows.size]
    if not known:
        raise InputError(
            f"cv={wrapper.cv!r}: no row is held out whose class the estimator of its fold has seen; use stratified "
            "folds (cv=5) or shuffle the rows"
        )
    never = np.setdiff1d(np.concatenate([f.unseen for f in folds]), np.concatenate([f.rows for f in folds]))
    if never.size:
        warn_left_out(y[never], "the estimator of their fold has not seen their class (with cv=5 it does)")
    if ensemble:
        calibrators = [
            _calibrate(wrapper, h, rows, columns[rows], None if w is None else w[rows], response, [estimator], clusters)
            for estimator, rows, h, _ in known
        ]
        return result | {"estimators_": [fold.estimator for fold in known], "calibrators_": calibrators}
    rows, h, weights = held_out(known, len(y))
    if w is not None:
        weights = w[rows] if weights is None else w[rows] * weights
    fitted = [fold.estimator for fold in folds]
    calibrator = _calibrate(wrapper, h, rows, columns[rows], weights, response, fitted, clusters)
    return result | {"estimator_": folds[-1].estimator, "calibrator_": calibrator}


def _calibrate(
    wrapper: CalibratedClassifier,
    h: Any,
    rows: Rows,
    columns: Labels,
    w: Floats | None,
    response: Response,
    estimators: Sequence[Any],
    clusters: NDArray[Any] | None,
) -> Calibrator:
    """Fit a calibrator to scores of these estimators; ``clusters`` are those of all rows."""
    ids = {} if clusters is None else {"clusters": clusters[rows]}
    calibrator = make_calibrator(wrapper.method, RESPONSES[response], wrapper.zeros_as)
    if calibrator.zeros_as is None:
        half = half_a_vote(estimators)
        if calibrator.input == "probs" and half is not None:
            calibrator.set_params(zeros_as=half)
        else:
            reject_impossible(h, columns, rows, estimators[-1], response, half)
    if calibrator.input == "logits" or not (to_numpy(h) == UNSEEN).any():
        calibrator.fit(h, columns, w, **ids)
        return calibrator
    kind, zeros_as = calibrator.input, calibrator.zeros_as
    calibrator.set_params(input="logits", zeros_as=None).fit(logits_of_seen(to_numpy(h), zeros_as), columns, w, **ids)
    calibrator.set_params(input=kind, zeros_as=zeros_as)
    return calibrator


def _takes_numbers_alone(X: Any, y: NDArray[Any]) -> bool:
    """Whether estimators will work in the library of ``X``, which has no text for labels."""
    return is_foreign(X) and y.dtype.kind not in "biuf" and bool(get_config()["array_api_dispatch"])


def _kind_of_module(wrapper: CalibratedClassifier) -> InputKind:
    if wrapper.response_method not in ("logits", "probs"):
        raise InputError(
            f"response_method={wrapper.response_method!r}: expected what {type(wrapper.estimator).__name__} returns, "
            "which is never guessed. Use response_method='logits' or response_method='probs'."
        )
    return wrapper.response_method  # type: ignore[return-value]


def _says_prefit(wrapper: CalibratedClassifier) -> bool:
    if isinstance(wrapper.cv, str) and wrapper.cv != "prefit":
        raise InputError(
            f"cv={wrapper.cv!r}: the only word known here is 'prefit'; else a number of folds or a splitter"
        )
    return isinstance(wrapper.cv, str)


def _is_ensemble(wrapper: CalibratedClassifier, *, fitted: bool) -> bool:
    if isinstance(wrapper.ensemble, str):
        one_of("ensemble", wrapper.ensemble, ("auto", True, False))
        return not fitted
    return bool(wrapper.ensemble)


def _warn_of_clones(wrapper: CalibratedClassifier) -> None:
    if wrapper.cv is None and is_fitted(wrapper.estimator):
        warn(
            f"{name_of(wrapper.estimator)} is fitted already, but clones of it will be fitted on the data given here. "
            "To keep it as it is use cv='prefit'; if this is what you want, use cv=5."
        )
