"""Raw features in, calibrated probabilities out: a classifier and its calibrator as one estimator.

Calibrators take logits. This puts a classifier in front of one, fitted beforehand or in folds, and
takes care of class names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Self

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from attemper._checks import renamed
from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import ShownEstimator
from attemper.calibrators.registry import METHODS
from attemper.calibrators.wrapper.estimators import (
    RESPONSES,
    UNSEEN,
    Response,
    check_fitted,
    check_trainable,
    choose_response,
    classes_of,
    is_fitted,
    is_routed,
    logits_of_seen,
    name_of,
    reject_impossible,
    respond,
    takes_weights,
)
from attemper.calibrators.wrapper.rows import Rows, check_rows, encode, like, split, take, warn_left_out
from attemper.data.arrays import to_numpy
from attemper.data.labels import as_names, as_weights
from attemper.errors import AttemperWarning, InputError, NotFittedError
from attemper.torch.runner import is_loader, is_module, respond_in_batches

__all__ = ["CalibratedClassifier"]

# A probability of 0, for methods that ask no more of it than to be below the others. It is lost in any sum to one, so
# that votes that were tied stay so, and still is a number in single precision.
LEAST = 1e-30


class CalibratedClassifier(ShownEstimator):
    """A classifier whose confidence means what it says.

    Parameters
    ----------
    estimator : scikit-learn classifier or torch.nn.Module
        What gives the raw scores. A module, a `FrozenEstimator`, and any estimator with ``cv="prefit"`` is used as it
        is; of others, clones are fitted.
    method : str or calibrator
        Name of a method (``"bayes"``, ``"ts"``, …), or a calibrator with parameters of its own, of which a clone is
        fitted: ``BayesianTemperatureScaling(labels="noisy")``.
    response_method : str, optional
        What of the estimator is calibrated; it is never guessed from the numbers. ``"decision_function"``: logits, or
        the log-odds of the second of two classes; ``"predict_proba"``: probabilities; ``"predict_log_proba"``: their
        logarithms, with no rounding to 0. By default ``decision_function`` where the estimator has it, else
        ``predict_proba``; `response_method_` has it. For a module it is required: ``"logits"`` or ``"probs"``.
    cv : int, "prefit", splitter or iterable of splits, optional
        The estimator is fitted on each training part, and the calibrator on its predictions for the rows held out. A
        number means stratified folds; by default 5. With ``"prefit"`` the estimator is fitted already, and `fit` takes
        data that it has not seen.
    ensemble : bool
        False: one calibrator for the held-out rows of all folds, and the estimator fitted again on all rows. True: one
        estimator and one calibrator for each fold, and the mean of their probabilities.
    zeros_as : float, optional
        With probabilities: what zeros, and all below it, stand for. Half a vote where models vote: 0.005 for a forest
        of 100 trees. Without it a zero means impossible, and a row whose own label is impossible is an error; except
        with methods that use ranks or bins alone (``"isotonic"``, ``"histogram"``, ``"bbq"``, ``"venn_abers"``):
        there a zero is the least of all, and 1e-30 stands for it.
    classes : sequence of names, optional
        Names of a module's outputs, if labels are names. A scikit-learn estimator has its own.
    select : callable, optional
        Takes a module's output to the tensor of logits, where it is not that tensor: ``lambda out: out.logits``.
    batch_size : int
        Rows of an array or a tensor that are given to a module at once.

    Attributes
    ----------
    estimator_, calibrator_ : the fitted two; ``calibrator_.save(path)`` writes a file for `attemper.load`
    estimators_, calibrators_ : lists of them, one for each fold, in place of the former if ``ensemble=True``
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
    >>> round(clf.calibrator_.temperature_, 1)  # naive Bayes is far too sure of itself
    3.2
    >>> clf.predict_proba(X[:2]).shape
    (2, 2)
    """

    response_method_: str
    classes_: NDArray[Any]
    estimator_: Any
    calibrator_: Calibrator
    estimators_: list[Any]
    calibrators_: list[Calibrator]

    @renamed(response="response_method", floor="zeros_as")
    def __init__(
        self,
        estimator: Any,
        method: str | Calibrator = "bayes",
        *,
        response_method: str | None = None,
        cv: Any = None,
        ensemble: bool = False,
        zeros_as: float | None = None,
        classes: Sequence[Any] | None = None,
        select: Callable[[Any], Any] | None = None,
        batch_size: int = 256,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.response_method = response_method
        self.cv = cv
        self.ensemble = ensemble
        self.zeros_as = zeros_as
        self.classes = classes
        self.select = select
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the calibrator, and the estimator unless that is fitted already.

        Parameters
        ----------
        X : array, table or sparse matrix of shape (n_samples, n_features)
            As the estimator takes it. For a module a tensor, an array, or a loader that yields (inputs, labels).
        y : array of shape (n_samples,)
            Class labels. For a module column numbers, or names if ``classes`` has them; None with a loader.
        sample_weight : array of shape (n_samples,), optional
            Counts repeats: weight 0 leaves the row out. Goes to the calibrator, and to an estimator that takes weights.
        """
        fitted = (self._fit_module if is_module(self.estimator) else self._fit_estimator)(X, y, sample_weight)
        # Only now: what fails leaves an earlier fit alone, and what succeeds leaves nothing of it.
        for name in [a for a in vars(self) if a.endswith("_") and not a.startswith("_")]:
            delattr(self, name)
        self.__dict__.update(fitted)
        first = self._members()[0][0]
        for name in ("n_features_in_", "feature_names_in_"):
            if not is_module(first) and hasattr(first, name):
                setattr(self, name, getattr(first, name))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities; for a module in the array type and on the device of ``X``."""
        parts = [_predict(calibrator, h, log=False) for calibrator, h in self._respond(X)]
        return parts[0] if len(parts) == 1 else np.mean(parts, axis=0)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        parts = [_predict(calibrator, h, log=True) for calibrator, h in self._respond(X)]
        return parts[0] if len(parts) == 1 else logsumexp(parts, axis=0) - np.log(len(parts))

    def predict(self, X: Any) -> Any:
        """Return the class with the largest calibrated probability."""
        p = self.predict_proba(X)
        columns = array_api_compat.array_namespace(p).argmax(p, axis=1)
        if is_module(self.estimator) and self.classes is None:
            return columns
        return self.classes_[to_numpy(columns)]

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
        """Route weights to the calibrator and, as it asks, to the estimator, if metadata routing is enabled."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        routed = MetadataRouter(owner=self).add_self_request(self)
        return routed.add(estimator=self.estimator, method_mapping=to_fit)

    # How it is fitted: a module, an estimator that is fitted already, or one in folds.

    def _fit_module(self, X: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        name = type(self.estimator).__name__
        if self.cv is not None and not self._says_prefit():
            raise InputError(
                f"cv={self.cv!r}: {name} is a torch module, which is used as it is; leave cv out, and give fit data "
                "that it was not trained on"
            )
        self._reject_ensemble(f"{name} is a torch module, of which there is one")
        kind = self._kind_of_module()
        if is_loader(X):
            if y is not None:
                raise InputError("y: a loader yields its own labels, (inputs, labels); give no others beside it")
            if sample_weight is not None:
                raise InputError("sample_weight: a loader may yield rows in any order. Use tensors for X and y.")
        elif y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give one label per row"
            )
        values, yielded = respond_in_batches(self.estimator, X, kind, batch_size=self.batch_size, select=self.select)
        if is_loader(X) and yielded is None:
            raise InputError("X: this loader yields inputs without labels; for fit it must yield (inputs, labels)")
        y = yielded if is_loader(X) else y
        classes = np.arange(values.shape[-1])
        if self.classes is not None:
            classes = np.asarray(as_names(self.classes, values.shape[-1]))
            y = encode(to_numpy(y), classes, name)
        calibrator = self._calibrator(kind).fit(values, y, sample_weight)
        return {"response_method_": kind, "classes_": classes, "estimator_": self.estimator, "calibrator_": calibrator}

    def _fit_estimator(self, X: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        response = choose_response(self.estimator, self.response_method)
        for name in ("classes", "select"):
            if getattr(self, name) is not None:
                raise InputError(f"{name}: only for torch modules; {name_of(self.estimator)} needs none")
        self._calibrator(RESPONSES[response])  # what is wrong with it shall show before anything is fitted
        X, y = check_rows(X, y)
        w = None if sample_weight is None else as_weights(sample_weight, len(y))
        kept = np.arange(len(y)) if w is None else np.flatnonzero(w > 0)
        if isinstance(self.estimator, FrozenEstimator) or self._says_prefit():
            return self._fit_prefit(X, y, w, kept, response)
        return self._fit_folds(X, y, w, kept, response)

    def _fit_prefit(self, X: Any, y: NDArray[Any], w: Floats | None, kept: Rows, response: Response) -> dict[str, Any]:
        self._reject_ensemble(f"{name_of(self.estimator)} is fitted already, so there is one")
        check_fitted(self.estimator)
        classes = classes_of(self.estimator)
        columns = encode(y[kept], classes, name_of(self.estimator))
        h = respond(self.estimator, take(X, kept), response, classes)
        calibrator = self._calibrate(h, columns, None if w is None else w[kept], response)
        return {
            "response_method_": response,
            "classes_": classes,
            "estimator_": self.estimator,
            "calibrator_": calibrator,
        }

    def _fit_folds(self, X: Any, y: NDArray[Any], w: Floats | None, kept: Rows, response: Response) -> dict[str, Any]:
        check_trainable(self.estimator)
        self._tell_what_folds_do(unheeded=w is not None and not is_routed() and not takes_weights(self, w))
        classes = np.unique(y[kept])
        if len(classes) < 2:
            raise InputError(
                f"y holds one class only ({classes.tolist()[0]!r}); a classifier needs two or more, beside rows of "
                "weight 0"
            )
        columns = np.searchsorted(classes, y)  # of rows that are kept; others are never looked at
        estimators, held_rows, held, unseen = [], [], [], []
        for train, test in split(self.cv, X, y, kept):
            estimator = self._train(X, y, w, train)
            seen = np.isin(y[test], classes_of(estimator))
            unseen.append(test[~seen])
            rows = test[seen]
            if rows.size:
                held_rows.append(rows)
                held.append(respond(estimator, take(X, rows), response, classes))
                if self.ensemble:
                    estimators.append(estimator)
        if not held:
            raise InputError(
                f"cv={self.cv!r}: no row is held out whose class the estimator of its fold has seen; use stratified "
                "folds (cv=5) or shuffle the rows"
            )
        never = np.setdiff1d(np.concatenate(unseen), np.concatenate(held_rows))
        if never.size:
            why = "the estimator of their fold has not seen their class (with cv=5 it does)"
            warn_left_out(y[never], why, stacklevel=5)
        result: dict[str, Any] = {"response_method_": response, "classes_": classes}
        if self.ensemble:
            calibrators = [
                self._calibrate(h, columns[rows], None if w is None else w[rows], response, estimator)
                for estimator, rows, h in zip(estimators, held_rows, held)
            ]
            return result | {"estimators_": estimators, "calibrators_": calibrators}
        estimator = self._train(X, y, w, kept)
        rows = np.concatenate(held_rows)
        order = np.argsort(rows, kind="stable")
        rows, h = rows[order], np.concatenate(held)[order]
        # A row that several folds hold out is still one row.
        times = np.bincount(rows, minlength=len(y))[rows]
        weights = None if w is None and (times == 1).all() else (1.0 if w is None else w[rows]) / times
        calibrator = self._calibrate(h, columns[rows], weights, response, estimator)
        return result | {"estimator_": estimator, "calibrator_": calibrator}

    # Parts of a fit.

    def _train(self, X: Any, y: NDArray[Any], w: Floats | None, rows: Rows) -> Any:
        more = {} if w is None or not takes_weights(self, w) else {"sample_weight": like(X, w[rows])}
        return clone(self.estimator).fit(take(X, rows), like(X, y[rows]), **more)

    def _calibrate(
        self, h: NDArray[Any], columns: Labels, w: Floats | None, response: Response, estimator: Any = None
    ) -> Calibrator:
        calibrator = self._calibrator(RESPONSES[response])
        if calibrator.zeros_as is None:
            reject_impossible(h, columns, self.estimator if estimator is None else estimator, response)
        if calibrator.input == "logits" or not (h == UNSEEN).any():
            calibrator.fit(h, columns, w)
            return calibrator
        kind, zeros_as = calibrator.input, calibrator.zeros_as
        calibrator.set_params(input="logits", zeros_as=None).fit(logits_of_seen(h, zeros_as), columns, w)
        calibrator.set_params(input=kind, zeros_as=zeros_as)
        return calibrator

    def _calibrator(self, kind: InputKind) -> Calibrator:
        """Return an unfitted calibrator for scores of this kind."""
        if isinstance(self.method, Calibrator):
            calibrator: Calibrator = clone(self.method)
            if calibrator.classes is not None:
                raise InputError("method: leave classes out of the calibrator; the names come from the estimator")
            if calibrator.input == "probs" and kind == "logits":
                raise InputError(
                    "method: the calibrator has input='probs', but the estimator's logits are calibrated. Leave input "
                    "out, or use response_method='predict_proba' ('probs' for a module)"
                )
        elif isinstance(self.method, str) and self.method in METHODS:
            calibrator = METHODS[self.method]()
        else:
            raise InputError(
                f"method={self.method!r}: expected one of {', '.join(map(repr, METHODS))}, or a calibrator such as "
                "TemperatureScaling()"
            )
        if kind == "logits" and self.zeros_as is not None:
            raise InputError(
                f"zeros_as={self.zeros_as}: only probabilities take zeros_as; use response_method='predict_proba' "
                "('probs' for a module)"
            )
        zeros_as = calibrator.zeros_as if self.zeros_as is None else self.zeros_as
        if zeros_as is None and kind == "probs" and calibrator.ranks_only:
            zeros_as = LEAST
        calibrator.set_params(input=kind, zeros_as=zeros_as)
        return calibrator

    def _kind_of_module(self) -> InputKind:
        if self.response_method not in ("logits", "probs"):
            raise InputError(
                f"response_method={self.response_method!r}: expected what {type(self.estimator).__name__} returns, "
                "which is never guessed. Use response_method='logits' or response_method='probs'."
            )
        return self.response_method  # type: ignore[return-value]

    def _says_prefit(self) -> bool:
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(
                f"cv={self.cv!r}: the only word known here is 'prefit'; else a number of folds or a splitter"
            )
        return isinstance(self.cv, str)

    def _reject_ensemble(self, why: str) -> None:
        if self.ensemble:
            raise InputError(f"ensemble=True: {why}; leave ensemble out")

    def _tell_what_folds_do(self, unheeded: bool) -> None:
        name = name_of(self.estimator)
        if self.cv is None and is_fitted(self.estimator):
            warnings.warn(
                f"{name} is fitted already, but clones of it will be fitted on the data given here. To keep it as it "
                "is use cv='prefit'; if this is what you want, use cv=5.",
                AttemperWarning,
                stacklevel=5,
            )
        if unheeded:
            warnings.warn(
                f"{name} takes no sample_weight: it is fitted with equal weights (rows of weight 0 left out), and only "
                "the calibration is weighted. Or fit it elsewhere, with its weights, and use cv='prefit'.",
                AttemperWarning,
                stacklevel=5,
            )

    # Predictions.

    def _fitted_facts(self) -> list[str]:
        fitted = getattr(self, "calibrators_", None) or ([self.calibrator_] if hasattr(self, "calibrator_") else [])
        folds = [f"fold {k}: " if len(fitted) > 1 else "" for k in range(len(fitted))]
        return [f"{fold}{fact}" for fold, found in zip(folds, fitted) for fact in found._fitted_facts()]

    def _members(self) -> list[tuple[Any, Calibrator]]:
        if hasattr(self, "calibrators_"):
            return list(zip(self.estimators_, self.calibrators_))
        if hasattr(self, "calibrator_"):
            return [(self.estimator_, self.calibrator_)]
        raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first.")

    def _respond(self, X: Any) -> Iterator[tuple[Calibrator, Any]]:
        """Yield each calibrator with the scores it is to be applied to."""
        for estimator, calibrator in self._members():
            if is_module(estimator):
                more: dict[str, Any] = {"batch_size": self.batch_size, "select": self.select}
                yield calibrator, respond_in_batches(estimator, X, calibrator.input, **more)[0]
            else:
                yield calibrator, respond(estimator, X, self.response_method_, self.classes_)  # type: ignore[arg-type]


def _predict(calibrator: Calibrator, h: Any, *, log: bool) -> Any:
    """Apply a calibrator to scores; a class that the estimator has not seen stays impossible, whatever zeros_as is."""
    if calibrator.input == "probs" and isinstance(h, np.ndarray) and (h == UNSEEN).any():
        apply = calibrator.map_.log_apply if log else calibrator.map_.apply
        return apply(logits_of_seen(h, calibrator.zeros_as), dtype=h.dtype)
    return calibrator.predict_log_proba(h) if log else calibrator.predict_proba(h)
