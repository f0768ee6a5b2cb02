"""Raw features in, calibrated probabilities out: a scikit-learn classifier and its calibrator as one estimator.

Calibrators take logits. This puts a classifier in front of one, fitted beforehand or in folds, and takes care of class
names.
"""

from __future__ import annotations

import warnings
from copy import copy, deepcopy
from typing import Any, Literal, NamedTuple, Self

import array_api_compat
import numpy as np
import sklearn.exceptions
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import Classifier
from attemper.calibrators.registry import METHODS
from attemper.data.arrays import is_foreign, reject_masked, to_numpy
from attemper.data.ids import as_ids
from attemper.data.labels import as_weights
from attemper.errors import InputError, InputTypeError, NotFittedError, warn

__all__ = ["CalibratedClassifier"]

Response = Literal["decision_function", "predict_proba", "predict_log_proba"]
Rows = NDArray[np.intp]

# What each method's numbers are. Logarithms of probabilities are logits: softmax gives the probabilities back.
RESPONSES: dict[str, InputKind] = {
    "decision_function": "logits",
    "predict_proba": "probs",
    "predict_log_proba": "logits",
}
# What users of scikit-learn's CalibratedClassifierCV write; its "isotonic" is ours.
ALIASES = {"sigmoid": "platt", "temperature": "ts"}
# A probability of 0, for methods that ask no more of it than to be below the others. It is lost in any sum to one, so
# that votes that were tied stay so, and still is a number in single precision.
LEAST = 1e-30
SMALLEST = 1e-38  # that a probability of 0 stands for
N_FOLDS = 5


class CalibratedClassifier(Classifier):
    """A classifier whose confidence means what it says.

    Parameters
    ----------
    estimator : scikit-learn classifier
        What gives the raw scores. A `FrozenEstimator`, and any estimator with ``cv="prefit"``, is used as it is; of
        others, clones are fitted.
    method : str or calibrator
        Name of a method (``"bayes"``, ``"ts"``, …), or scikit-learn's name of it (``"sigmoid"`` is ``"platt"``,
        ``"temperature"`` is ``"ts"``), or a calibrator with parameters of its own, of which a clone is fitted:
        ``BayesianTemperatureScaling(labels="noisy")``.
    response_method : str, optional
        What of the estimator is calibrated; it is never guessed from the numbers. ``"decision_function"``: logits, or
        the log-odds of the second of two classes; ``"predict_proba"``: probabilities; ``"predict_log_proba"``: their
        logarithms, with no rounding to 0. By default ``decision_function`` where the estimator has it, else
        ``predict_proba``; `response_method_` has it.
    cv : int, "prefit", splitter or iterable of splits, optional
        The estimator is fitted on each training part, and one calibrator on its predictions for the rows held out; then
        the estimator is fitted again on all rows. A number means stratified folds; by default 5. With ``"prefit"`` the
        estimator is fitted already, and `fit` takes data that it has not seen.
    n_jobs : int, optional
        How many folds are fitted at once (joblib); −1: one for each processor.
    zeros_as : float, optional
        With probabilities: what zeros, and all below it, stand for. By default, where there are zeros, half of the
        smallest probability above 0 that the fit sees; for methods that use ranks or bins alone (``"isotonic"``,
        ``"histogram"``, ``"bbq"``, ``"venn_abers"``) 1e-30.

    Attributes
    ----------
    estimator_, calibrator_ : the fitted two
    classes_ : class names, in the order of the columns of `predict_proba`
    response_method_ : what of the estimator is calibrated
    n_features_in_, feature_names_in_ : as the estimator has them

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from attemper import CalibratedClassifier
    >>> X, y = make_classification(2000, n_informative=6, n_redundant=10, random_state=0)
    >>> clf = CalibratedClassifier(GaussianNB(), response_method="predict_log_proba").fit(X, y)
    >>> round(clf.calibrator_.temperature_, 1)  # naive Bayes is far too confident
    3.2
    >>> clf.predict_proba(X[:2]).shape
    (2, 2)
    """

    response_method_: Response
    classes_: NDArray[Any]
    estimator_: Any
    calibrator_: Calibrator

    def __init__(
        self,
        estimator: Any,
        method: str | Calibrator = "bayes",
        *,
        response_method: str | None = None,
        cv: Any = None,
        n_jobs: int | None = None,
        zeros_as: float | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.response_method = response_method
        self.cv = cv
        self.n_jobs = n_jobs
        self.zeros_as = zeros_as

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, clusters: Any = None, **fit_params: Any) -> Self:
        """Fit the calibrator, and the estimator unless that is fitted already.

        Parameters
        ----------
        X : array, table or sparse matrix of shape (n_samples, n_features)
            As the estimator takes it.
        y : array of shape (n_samples,)
            Class labels.
        sample_weight : array of shape (n_samples,), optional
            Counts repeats: weight 0 leaves the row out. Goes to the calibrator, and to an estimator that takes weights.
        clusters : array of shape (n_samples,), optional
            The case that each row is of, such as a patient: text or whole numbers. Rows of one case are in one fold
            (``cv`` a number: stratified; a splitter gets them as its ``groups``), and the calibrator counts cases.
        **fit_params
            ``groups`` for the splitter, and parameters of the estimator's ``fit``: those with one entry for each row
            are split as the rows are. With scikit-learn's metadata routing, what each of the two requests.
        """
        response = _response_of(self.estimator, self.response_method)
        _make_calibrator(self.method, RESPONSES[response], self.zeros_as)  # what is wrong with it shows at once
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(f"cv={self.cv!r}: expected 'prefit', a number of folds or a splitter", param="cv")
        X, y = _checked_rows(X, y)
        w = None if sample_weight is None else as_weights(sample_weight, len(y))
        ids = None if clusters is None else as_ids(clusters, len(y))
        kept = np.arange(len(y)) if w is None else np.flatnonzero(w > 0)
        fit = (
            self._fit_prefit if self.cv == "prefit" or isinstance(self.estimator, FrozenEstimator) else self._fit_folds
        )
        estimator, classes, rows, h, w, encoded = fit(X, y, w, kept, response, fit_params, ids)
        columns = _encode(y[rows], classes, _name(self.estimator))
        calibrator = _make_calibrator(self.method, RESPONSES[response], self.zeros_as)
        if calibrator.input == "probs" and calibrator.zeros_as is None:
            p = to_numpy(h)
            if (p == 0).any():
                calibrator.set_params(zeros_as=max(float(p[p > 0].min()) / 2, SMALLEST))
        calibrator.fit(h, columns, w, clusters=None if ids is None else ids[rows])
        for name in [a for a in vars(self) if a.endswith("_") and not a.startswith("_")]:
            delattr(self, name)  # only now: what fails leaves an earlier fit alone
        self.estimator_, self.calibrator_, self.classes_ = estimator, calibrator, classes
        self.response_method_, self._encoded = response, encoded
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, in the array library of the estimator's own."""
        return self._fitted().calibrator_.predict_proba(self._scores_of(X))

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        return self._fitted().calibrator_.predict_log_proba(self._scores_of(X))

    def predict(self, X: Any) -> Any:
        """Return the class with the largest calibrated probability."""
        p = self.predict_proba(X)
        columns = array_api_compat.array_namespace(p).argmax(p, axis=1)
        return _like(p, self.classes_[to_numpy(columns)])

    def with_priors(self, new: Any, old: Any = None) -> Self:
        """Return this classifier for data with other shares of the classes; see `Calibrator.with_priors`.

        If classes were resampled for training, pass the shares of the population as ``new`` and those of the resampled
        data as ``old``.
        """
        made = copy(self._fitted())
        made.calibrator_ = self.calibrator_.with_priors(new, old)
        return made

    def adapt(self, X: Any, *, validation: Any = None, **options: Any) -> Self:
        """Return this classifier for data with the shares of the classes of unlabelled rows; see `Calibrator.adapt`.

        ``validation`` is ``(X, y)``, rows that the estimator was not fitted on.
        """
        made = copy(self._fitted())
        if validation is not None:
            rows, y = _checked_rows(*validation)
            validation = self._scores_of(rows), _encode(y, self.classes_, _name(self.estimator))
        made.calibrator_ = self.calibrator_.adapt(self._scores_of(X), validation=validation, **options)
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "__sklearn_tags__"):
            return tags
        own = get_tags(self.estimator)
        tags.input_tags = deepcopy(own.input_tags)
        tags.no_validation = own.no_validation
        tags.non_deterministic = own.non_deterministic
        if own.classifier_tags is not None:
            tags.classifier_tags = deepcopy(own.classifier_tags)
            tags.classifier_tags.multi_label = False
        return tags

    def get_metadata_routing(self) -> Any:
        """Route weights to the calibrator, and to estimator and splitter what they ask for, if that is enabled."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def _fitted(self) -> Self:
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first.")
        return self

    def _scores_of(self, X: Any) -> Any:
        """Scores of the estimator, which knows numbers where its array library has no text for classes."""
        classes = np.arange(len(self.classes_)) if self._fitted()._encoded else self.classes_
        return _respond(self.estimator_, X, self.response_method_, classes)

    def _fit_prefit(
        self, X: Any, y: NDArray[Any], w: Any, kept: Rows, response: Response, params: dict[str, Any], ids: Any
    ) -> _Held:
        given = [name for name, value in params.items() if value is not None]
        if given:
            raise InputError(f"fit got {given[0]!r}, but {_name(self.estimator)} is fitted already; leave it out")
        if hasattr(self.estimator, "fit") and not _is_fitted(self.estimator):
            raise NotFittedError(
                f"cv='prefit', but {_name(self.estimator)} is not fitted. Fit it first, or leave cv out. If it was "
                "fitted: clones (GridSearchCV, cross_val_score) are not; give FrozenEstimator(estimator), which stays "
                "fitted."
            )
        classes = _classes_of(self.estimator)
        h = _respond(self.estimator, _take(X, kept), response, classes)
        return _Held(self.estimator, classes, kept, h, None if w is None else w[kept])

    def _fit_folds(
        self, X: Any, y: NDArray[Any], w: Any, kept: Rows, response: Response, params: dict[str, Any], ids: Any
    ) -> _Held:
        from sklearn.utils.parallel import Parallel, delayed  # only where it is needed: `import attemper` is light

        if not hasattr(self.estimator, "fit") or not hasattr(self.estimator, "get_params"):
            raise InputTypeError(
                f"estimator: {_name(self.estimator)} is no scikit-learn estimator (fit, get_params), so it cannot be "
                "fitted in folds; fit it elsewhere and use cv='prefit'"
            )
        if self.cv is None and _is_fitted(self.estimator):
            warn(
                f"{_name(self.estimator)} is fitted already, but clones of it will be fitted on the data given here. "
                "To keep it as it is use cv='prefit'; if this is what you want, use cv=5."
            )
        to_fit, to_split = self._routed(None if w is None else _like(X, w), params)
        classes, numbers = np.unique(y[kept], return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"y holds one class only ({classes.tolist()[0]!r}); a classifier needs two or more, of weight above 0"
            )
        # An array library has no text for labels, so that its estimators get numbers.
        encoded = is_foreign(X) and y.dtype.kind not in "biuf" and bool(get_config()["array_api_dispatch"])
        labels, of_estimators = y, classes
        if encoded:
            labels, of_estimators = np.zeros(len(y), dtype=np.int64), np.arange(len(classes))
            labels[kept] = numbers
        parts = _split(self.cv, X, labels, kept, to_split, ids)
        one = delayed(_fit_fold)
        folds = Parallel(n_jobs=self.n_jobs)(
            one(self.estimator, X, labels, train, held, response, of_estimators, to_fit)
            for train, held in [*parts, (kept, kept[:0])]
        )
        known = [fold for fold in folds if fold.rows.size]
        if not known:
            raise InputError(f"cv={self.cv!r}: no row is held out whose class its fold has seen; use cv=5")
        rows = np.concatenate([fold.rows for fold in known])
        left = len(np.setdiff1d(np.concatenate([held for _, held in parts]), rows))
        if left:
            warn(f"{left} rows are left out of the calibration: the estimator of their fold has not seen their class")
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        scores = [fold.scores for fold in known]
        h = _take(array_api_compat.array_namespace(scores[0]).concat(scores, axis=0), order)
        times = np.bincount(rows, minlength=len(y))[rows]  # where several folds hold a row out, it is still one row
        weights = None if w is None else w[rows]
        if times.max() > 1:
            weights = 1 / times if weights is None else weights / times
        return _Held(folds[-1].estimator, classes, rows, h, weights, encoded)

    def _routed(self, w: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters of the estimator's ``fit``, and of the splitter.

        With scikit-learn's metadata routing each of them requests what it takes. Without it, ``groups`` go to the
        splitter, weights to an estimator whose ``fit`` has ``sample_weight``, and everything else to the estimator.
        """
        given = {name: value for name, value in params.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            if w is not None:
                given["sample_weight"] = w
            if not given:
                return {}, {}
            found = process_routing(self, "fit", **given)
            return dict(found.estimator.fit), dict(found.splitter.split)
        split = {name: given.pop(name) for name in ("groups",) if name in given}
        if split and (self.cv is None or isinstance(self.cv, int)):
            raise InputError(f"groups: cv={self.cv!r} makes stratified folds; use cv=StratifiedGroupKFold(5)")
        if w is not None and has_fit_parameter(self.estimator, "sample_weight"):
            given["sample_weight"] = w
        elif w is not None:
            warn(
                f"{_name(self.estimator)} takes no sample_weight: it is fitted with equal weights (rows of weight 0 "
                "left out), and only the calibration is weighted. Or fit it elsewhere, with its weights, and use "
                "cv='prefit'."
            )
        return given, split


class _Held(NamedTuple):
    """A fitted estimator, and scores of rows that it, or that of their fold, was not fitted on."""

    estimator: Any
    classes: NDArray[Any]
    rows: Rows
    scores: Any
    weights: Floats | None
    encoded: bool = False


class _Fold(NamedTuple):
    """A fitted estimator, and its scores of the held-out rows whose classes it has seen."""

    estimator: Any
    rows: Rows
    scores: Any


def _fit_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    train: Rows,
    held: Rows,
    response: Response,
    classes: NDArray[Any],
    params: dict[str, Any],
) -> _Fold:
    own = {name: _take(value, train) if _has_rows(value, len(y)) else value for name, value in params.items()}
    fitted = clone(estimator).fit(_take(X, train), _like(X, y[train]), **own)
    rows = held[np.isin(y[held], _classes_of(fitted))]
    return _Fold(fitted, rows, _respond(fitted, _take(X, rows), response, classes) if rows.size else None)


def _split(
    cv: Any, X: Any, y: NDArray[Any], kept: Rows, params: dict[str, Any], clusters: NDArray[Any] | None
) -> list[tuple[Rows, Rows]]:
    """Rows to train on and rows to hold out, for each fold; only rows among ``kept``, no cluster divided."""
    from sklearn.model_selection import StratifiedGroupKFold, check_cv  # only where it is needed

    if clusters is not None:
        params = {"groups": clusters} | params
    if cv is None or (isinstance(cv, int) and not isinstance(cv, bool)):
        most = int(np.unique(y[kept], return_counts=True)[1].max())
        folds = check_cv(cv or max(2, min(N_FOLDS, most)), y[kept], classifier=True)
        if clusters is not None:
            folds, params = StratifiedGroupKFold(cv or N_FOLDS), {"groups": clusters[kept]}
        with warnings.catch_warnings():
            # A class with fewer rows than folds is in fewer test parts; that of one row is left out with a warning.
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            found = [(kept[train], kept[held]) for train, held in folds.split(kept, y[kept], **params)]
    else:
        allowed = np.zeros(len(y), dtype=bool)
        allowed[kept] = True
        with warnings.catch_warnings():
            if clusters is not None:  # what divides them is refused below
                warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            parts = [
                (_as_rows(train), _as_rows(held))
                for train, held in check_cv(cv, y, classifier=True).split(X, y, **params)
            ]
        found = [(train[allowed[train]], held[allowed[held]]) for train, held in parts]
    for number, (train, held) in enumerate(found):
        if clusters is not None and np.intersect1d(clusters[train], clusters[held]).size:
            raise InputError(
                f"cv={cv!r}: a cluster has rows in both parts of split {number}; use cv=5 or GroupKFold(5)"
            )
        if len(np.unique(y[train])) < 2:
            raise InputError(f"cv: the training part of split {number} holds one class only; use cv=5")
    return found


def _as_rows(rows: Any) -> Rows:
    found = np.asarray(rows)
    return np.flatnonzero(found) if found.dtype == bool else found.astype(np.intp)


def _checked_rows(X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """Check that there is one class label per row; the features are the estimator's to check."""
    if y is None:
        raise InputError(
            "CalibratedClassifier requires y to be passed, but the target y is None: give one label per row"
        )
    reject_masked(y, "y", "Drop those rows: keep = ~np.ma.getmaskarray(y); X[keep], y[keep].")
    if array_api_compat.is_array_api_obj(y):
        y = to_numpy(y)
    try:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        X, y = indexable(X, y)
    except TypeError as error:
        raise InputTypeError(f"X, y: {error}") from None
    except ValueError as error:
        raise InputError(f"X, y: {error}") from None
    if not len(y):
        raise InputError("X, y: 0 sample(s) while a minimum of 1 is required")
    return X, y


def _encode(y: NDArray[Any], classes: NDArray[Any], whose: str) -> Labels:
    """Return labels as numbers of columns.

    >>> _encode(np.array(["b", "a", "b"]), np.array(["a", "b"]), "the forest")
    array([1, 0, 1])
    """
    column = {name: k for k, name in enumerate(classes.tolist())}
    found, which = np.unique(y, return_inverse=True)
    unknown = [name for name in found.tolist() if name not in column]
    if unknown:
        raise InputError(f"y: {unknown[0]!r} is not among the {len(column)} classes of {whose}")
    return np.array([column[name] for name in found.tolist()], dtype=np.int64)[which]


def _take(X: Any, rows: Rows) -> Any:
    """Return some rows of a table, an array, a sparse matrix or a list."""
    if len(rows) == len(X if isinstance(X, list | tuple) else range(X.shape[0])) and (np.diff(rows) == 1).all():
        return X
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if is_foreign(X):
        return array_api_compat.array_namespace(X).take(X, _like(X, rows), axis=0)
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def _like(X: Any, numbers: NDArray[Any]) -> Any:
    """Return an array of the library that ``X`` is of, on its device; anything but numbers stays as it is."""
    if not is_foreign(X) or numbers.dtype.kind not in "biuf":
        return numbers
    return array_api_compat.array_namespace(X).asarray(numbers, device=array_api_compat.device(X))


def _has_rows(value: Any, n: int) -> bool:
    """Whether a value has one entry for each of the n rows, as scikit-learn decides it."""
    if isinstance(value, str | bytes | dict):
        return False
    shape = getattr(value, "shape", None)
    try:
        return (shape[0] if shape else len(value)) == n
    except (TypeError, IndexError):
        return False


def _name(estimator: Any) -> str:
    """Name of the class, for messages; of what is inside a FrozenEstimator."""
    return type(estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator).__name__


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (sklearn.exceptions.NotFittedError, TypeError):
        return False
    return True


def _make_calibrator(method: Any, kind: InputKind, zeros_as: float | None) -> Calibrator:
    """Return an unfitted calibrator for scores of this kind.

    >>> _make_calibrator("sigmoid", "logits", None), _make_calibrator("isotonic", "probs", None)
    (PlattScaling(), IsotonicCalibration(input='probs', zeros_as=1e-30))
    """
    if isinstance(method, Calibrator):
        calibrator: Calibrator = clone(method)
        if calibrator.classes is not None or (calibrator.input == "probs" and kind == "logits"):
            raise InputError("method: leave classes and input out of the calibrator; they are those of the estimator")
    elif isinstance(method, str) and ALIASES.get(method, method) in METHODS:
        calibrator = METHODS[ALIASES.get(method, method)]()
    else:
        raise InputError(
            f"method={method!r}: expected one of {', '.join(map(repr, [*METHODS, *ALIASES]))}, or a calibrator such as "
            "TemperatureScaling()",
            param="method",
        )
    if kind == "logits" and zeros_as is not None:
        raise InputError(
            f"zeros_as={zeros_as}: only probabilities take it; use response_method='predict_proba'", param="zeros_as"
        )
    zeros_as = calibrator.zeros_as if zeros_as is None else zeros_as
    if zeros_as is None and kind == "probs" and calibrator.ranks_only:
        zeros_as = LEAST
    calibrator.set_params(input=kind, zeros_as=zeros_as)
    return calibrator


def _response_of(estimator: Any, response: str | None) -> Response:
    """Return the method to call: the one asked for, else ``decision_function``, else ``predict_proba``.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> _response_of(DecisionTreeClassifier(), None)
    'predict_proba'
    """
    if isinstance(estimator, type):
        raise InputError(f"estimator: expected an instance, got a class. Use {estimator.__name__}(…).")
    has = [method for method in RESPONSES if hasattr(estimator, method)]
    if not has:
        raise InputError(
            f"estimator: {_name(estimator)} has neither decision_function nor predict_proba, so it has no confidence "
            "that could be calibrated. Use a classifier that has one of them."
        )
    if response is not None and response not in has:
        raise InputError(
            f"response_method={response!r}: for {_name(estimator)} it can be {', '.join(map(repr, has))}",
            param="response_method",
        )
    return response or has[0]  # type: ignore[return-value]


def _classes_of(estimator: Any) -> NDArray[Any]:
    """Classes of a fitted estimator, in the order of its columns."""
    classes = getattr(estimator, "classes_", None)
    if classes is None or (isinstance(classes, list) and any(np.ndim(c) for c in classes)):
        raise InputError(f"estimator: {_name(estimator)} has no classes_ of one output after fit")
    return to_numpy(classes) if hasattr(classes, "__array_namespace__") else np.asarray(classes)


def _respond(estimator: Any, X: Any, response: Response, classes: NDArray[Any]) -> Any:
    """Call the estimator and return one column for each of ``classes``, in an array of the library it answers in.

    A class that the estimator has never seen is one that it holds impossible.
    """
    own = _classes_of(estimator)
    with np.errstate(divide="ignore"):  # the logarithm of a probability of 0 is −inf, as it should be
        values = getattr(estimator, response)(X)
    values = values if is_foreign(values) else to_numpy(np.asarray(values))
    xp = array_api_compat.array_namespace(values)
    if response == "decision_function" and len(own) == 2 and (values.ndim == 1 or values.shape[1:] == (1,)):
        d = xp.reshape(values, (-1,))
        values = xp.stack([xp.zeros_like(d), d], axis=1)  # softmax of (0, d) is the sigmoid of d
    if values.ndim != 2 or values.shape[1] != len(own) or (len(own) > 2 and _gives_pairs(estimator, response)):
        raise InputError(
            f"{response} of {_name(estimator)} has shape {tuple(values.shape)}; expected {len(own)} columns, one for "
            "each of its classes. Try another response_method=…, or decision_function_shape='ovr'."
        )
    if len(own) == len(classes):
        return values
    if not xp.isdtype(values.dtype, "real floating"):
        values = xp.astype(values, xp.float64)
    never = xp.full_like(values[:, 0], 0.0 if RESPONSES[response] == "probs" else -np.inf)
    place = dict(zip(own.tolist(), range(len(own))))
    return xp.stack([values[:, place[name]] if name in place else never for name in classes.tolist()], axis=1)


def _gives_pairs(estimator: Any, response: Response) -> bool:
    """Whether it is an SVC with pairs for columns; with three classes the shape does not show it."""
    inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return response == "decision_function" and getattr(inner, "decision_function_shape", None) == "ovo"
