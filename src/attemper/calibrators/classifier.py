"""Raw features in, calibrated probabilities out: a scikit-learn classifier and its calibrator as one estimator."""

from __future__ import annotations

import copy
import os
import warnings
from numbers import Integral
from typing import Any, Self

import array_api_compat
import numpy as np
import sklearn.exceptions
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from attemper._typing import Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.registry import method_of
from attemper.data.arrays import is_foreign, to_numpy
from attemper.data.inputs import as_ids, as_labels, as_weights
from attemper.errors import InputError, NotFittedError, warn

RESPONSES = {"decision_function": "logits", "predict_proba": "probs"}  # what is calibrated, in this order


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose confidence means what it says.

    Parameters
    ----------
    estimator : scikit-learn classifier
        What gives the raw scores: ``decision_function`` where there is one, else ``predict_proba``. Clones of it are
        fitted. To keep a fitted one as it is, pass ``FrozenEstimator(estimator)`` and data that it has not seen.
    method : str or calibrator
        Name of a method (``"bayes"``, ``"ts"``, …), or a calibrator with parameters of its own.
    noise : 0, "unknown" or the share of the labels that are wrong
    cv : int, splitter or iterable of splits
        One calibrator is fitted on predictions for held-out rows (`sklearn.model_selection.cross_val_predict`); then
        the estimator is fitted again on all rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CalibratedClassifier(RandomForestClassifier(20, random_state=0), "ts").fit(X, y)  # zeros and all
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(self, estimator: Any, method: str | Calibrator = "bayes", *, noise: Any = 0, cv: Any = 5) -> None:
        self.estimator, self.method, self.noise, self.cv = estimator, method, noise, cv

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, clusters: Any = None, **fit_params: Any) -> Self:
        """Fit the calibrator, and the estimator unless it is frozen.

        Weights count repeats: 0 leaves a row out. Rows of one case (``clusters``, such as patients) are in one fold,
        and the calibrator counts cases. Other parameters go to the estimator, or where scikit-learn's routing says.
        """
        response = next((name for name in RESPONSES if hasattr(self.estimator, name)), None)
        if response is None or isinstance(self.estimator, type):
            raise InputError("estimator: expected an instance with decision_function or predict_proba", "estimator")
        calibrator = method_of(self.method, self.noise)
        if "groups" in calibrator.needs:
            raise InputError(
                "method: predict_proba(X) cannot pass groups. Use the base of GroupedCalibrator.", "method"
            )
        calibrator.set_params(input=RESPONSES[response], classes=None)
        X, y = _checked_rows(X, y)
        n = len(y)
        w = None if sample_weight is None else as_weights(sample_weight, n)
        ids = None if clusters is None else as_ids(clusters, n, "clusters")
        cv = 5 if self.cv is None else self.cv
        if w is not None and not w.all():
            kept = np.flatnonzero(w)
            cv = cv if isinstance(cv, Integral) else _of_kept(_splits(cv, X, y, ids, fit_params.get("groups")), kept, n)
            X, y, w, ids = (None if a is None else _safe_indexing(a, kept) for a in (X, y, w, ids))
            fit_params = {k: _safe_indexing(v, kept) if np.shape(v)[:1] == (n,) else v for k, v in fit_params.items()}
        rows: Any = slice(None)
        if isinstance(self.estimator, FrozenEstimator):
            estimator, classes = self.estimator, to_numpy(self.estimator.classes_)
            h, columns = _respond(estimator, X, response), as_labels(y, len(y), len(classes), classes.tolist())
        else:
            classes, columns = (np.asarray(found).reshape(-1) for found in np.unique(y, return_inverse=True))
            if len(classes) < 2:
                raise InputError(f"y: expected two classes or more, got one class only ({classes.tolist()[0]!r})", "y")
            h, rows, estimator = self._held_out(X, y, columns, w, ids, cv, response, fit_params)
        weights, cases = (None if a is None else a[rows] for a in (w, ids))
        calibrator.set_params(classes=classes.tolist()).fit(h, classes[columns[rows]], weights, clusters=cases)
        self.estimator_, self.calibrator_, self.classes_ = estimator, calibrator, classes
        self.response_method_ = response
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            self.__dict__ |= {name: getattr(estimator, name)} if hasattr(estimator, name) else {}
        return self

    def _held_out(
        self, X: Any, y: NDArray[Any], columns: Labels, w: Any, ids: Any, cv: Any, response: str, params: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """Return predictions for held-out rows, which rows these are, and the estimator fitted on all rows."""
        from sklearn.model_selection import cross_val_predict  # only where it is needed: `import attemper` is light

        if _is_fitted(self.estimator):
            why = f"this {type(self.estimator).__name__} is fitted, and would be fitted again. To keep it use"
            raise InputError(f"estimator: {why} FrozenEstimator(estimator), and data that it has not seen", "estimator")
        to_fit, to_split = self._routed(w, params)
        splits = _splits(cv, X, columns, ids, to_split.get("groups"))
        labels = _like(X, columns if is_foreign(X) and y.dtype.kind not in "biuf" else y)  # text is NumPy's alone
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Number of classes in")
            h = cross_val_predict(clone(self.estimator), X, labels, cv=splits, method=response, params=to_fit or None)
        estimator = clone(self.estimator).fit(X, labels, **to_fit)
        _check_width(estimator, h, len(np.unique(columns)))
        rows = np.sort(np.concatenate([held[np.isin(columns[held], columns[train])] for train, held in splits]))
        if len(rows) == len(columns):
            return h, slice(None), estimator
        warn(f"{len(columns) - len(rows)} rows are left out of the calibration: their fold has not seen their class")
        h = to_numpy(h)[rows]
        return np.where(h == np.finfo(h.dtype).min, -np.inf, h), rows, estimator  # what it fills in is impossible

    def _routed(self, w: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters of the estimator's ``fit``, and of the splitter."""
        given = {name: value for name, value in params.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            given |= {} if w is None else {"sample_weight": w}
            found = process_routing(self, "fit", **given) if given else None
            return ({}, {}) if found is None else (dict(found.estimator.fit), dict(found.splitter.split))
        split = {name: given.pop(name) for name in ("groups",) if name in given}
        if w is not None and has_fit_parameter(self.estimator, "sample_weight"):
            given["sample_weight"] = w
        elif w is not None:
            warn(f"{type(self.estimator).__name__} takes no sample_weight: only the calibration is weighted")
        return given, split

    def _check_fitted(self) -> None:
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")

    def _predicted(self, X: Any, what: str) -> Any:
        self._check_fitted()
        return getattr(self.calibrator_, what)(_respond(self.estimator_, X, self.response_method_))

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, in the array library of the estimator's own."""
        return self._predicted(X, "predict_proba")

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        return self._predicted(X, "predict_log_proba")

    def predict(self, X: Any) -> Any:
        """Return the class with the largest calibrated probability."""
        p = self.predict_proba(X)
        return _like(p, self.classes_[to_numpy(array_api_compat.array_namespace(p).argmax(p, axis=1))])

    def with_priors(self, new: Any, old: Any = None) -> Self:
        """Return this classifier for data with other shares of the classes; see `Calibrator.with_priors`."""
        self._check_fitted()
        made = copy.copy(self)
        made.calibrator_ = self.calibrator_.with_priors(new, old)
        return made

    def to_onnx(self, path: str | os.PathLike[str]) -> Any:
        """Write estimator and calibrator as one ONNX model, where skl2onnx has a converter for every step."""
        from attemper.onnx import to_onnx

        return to_onnx(self, path)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, tags.no_validation = copy.deepcopy(own.input_tags), own.no_validation
        tags.non_deterministic = own.non_deterministic
        if own.classifier_tags is not None:
            tags.classifier_tags = copy.deepcopy(own.classifier_tags)
            tags.classifier_tags.multi_label = False
        return tags

    def get_metadata_routing(self) -> Any:
        """Route weights to the calibrator, and to estimator and splitter what they ask for, if that is enabled."""
        to_fit, to_split = (MethodMapping().add(caller="fit", callee=callee) for callee in ("fit", "split"))
        router = MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=to_fit)
        return router.add(splitter=self.cv, method_mapping=to_split)


def _checked_rows(X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """Check that there is one class label per row; the features are the estimator's to check."""
    if y is None:
        raise InputError("CalibratedClassifier requires y to be passed, but the target y is None", "y")
    try:
        y = column_or_1d(to_numpy(y) if is_foreign(y) else y, warn=True)
        check_classification_targets(y)
        X, y = indexable(X, y)
        if not len(y):
            raise ValueError("0 sample(s) while a minimum of 1 is required")
    except (TypeError, ValueError) as error:
        raise InputError(f"X, y: {error}", "y") from None
    return X, y


def _splits(cv: Any, X: Any, y: NDArray[Any], clusters: Any, groups: Any) -> list[tuple[Any, Any]]:
    """Return rows to train on and rows to hold out, for each fold; no cluster is divided."""
    from sklearn.model_selection import StratifiedGroupKFold, check_cv

    folds = StratifiedGroupKFold(cv) if clusters is not None and isinstance(cv, Integral) else cv
    with warnings.catch_warnings():  # a class with fewer rows than folds is in fewer test parts
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        warnings.filterwarnings("ignore", message="The groups parameter is ignored")
        found = list(check_cv(folds, y, classifier=True).split(X, y, clusters if groups is None else groups))
    if clusters is not None and any(np.intersect1d(clusters[train], clusters[held]).size for train, held in found):
        raise InputError(f"cv={cv!r}: a cluster has rows in both parts of a split; use cv=5", "cv")
    return found


def _of_kept(splits: list[tuple[Any, Any]], kept: NDArray[np.intp], n: int) -> list[tuple[Any, Any]]:
    """Return splits of n rows as splits of those that are kept, numbered anew."""
    number = np.full(n, -1)
    number[kept] = np.arange(len(kept))
    return [tuple(number[part][number[part] >= 0] for part in split) for split in splits]


def _respond(estimator: Any, X: Any, response: str) -> Any:
    values = getattr(estimator, response)(X)
    _check_width(estimator, values, len(to_numpy(estimator.classes_)))
    return values if is_foreign(values) else np.asarray(values)


def _check_width(estimator: Any, h: Any, n_classes: int) -> None:
    """Refuse an SVC with pairs for columns; with three classes the shape does not show it."""
    inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    pairs = n_classes > 2 and getattr(inner, "decision_function_shape", None) == "ovo"
    if pairs or (h.ndim == 2 and h.shape[1] not in (1, n_classes)):
        raise InputError("estimator: expected a column for each class; use decision_function_shape='ovr'", "estimator")


def _like(X: Any, numbers: NDArray[Any]) -> Any:
    """Return an array of the library that ``X`` is of, on its device; anything but numbers stays as it is."""
    if not is_foreign(X) or numbers.dtype.kind not in "biuf":
        return numbers
    return array_api_compat.array_namespace(X).asarray(numbers, device=array_api_compat.device(X))


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (sklearn.exceptions.NotFittedError, TypeError):
        return False
    return bool(get_tags(estimator).requires_fit)
