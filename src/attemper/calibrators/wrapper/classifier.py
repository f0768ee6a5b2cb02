"""Raw features in, calibrated probabilities out: a classifier and its calibrator as one estimator.

Calibrators take logits. This puts a classifier in front of one, fitted beforehand or in folds, and
takes care of class names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from typing import Any, Literal, Self

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from attemper._json import read_document, write_document
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import ShownEstimator
from attemper.calibrators.wrapper.estimators import classes_of, logits_of_seen, respond
from attemper.calibrators.wrapper.files import DOCUMENT, attached, to_document
from attemper.calibrators.wrapper.fits import fit_estimator, fit_module
from attemper.calibrators.wrapper.routing import router_of
from attemper.calibrators.wrapper.rows import like
from attemper.data.arrays import to_numpy
from attemper.errors import NotFittedError
from attemper.torch.runner import is_module, respond_in_batches

__all__ = ["CalibratedClassifier"]


class CalibratedClassifier(ShownEstimator):
    """A classifier whose confidence means what it says.

    Parameters
    ----------
    estimator : scikit-learn classifier or torch.nn.Module
        What gives the raw scores. A module, a `FrozenEstimator`, and any estimator with ``cv="prefit"`` is used as it
        is; of others, clones are fitted.
    method : str or calibrator
        Name of a method (``"bayes"``, ``"ts"``, …), or scikit-learn's name of it (``"sigmoid"`` is ``"platt"``,
        ``"temperature"`` is ``"ts"``), or a calibrator with parameters of its own, of which a clone is fitted:
        ``BayesianTemperatureScaling(labels="noisy")``.
    response_method : str, optional
        What of the estimator is calibrated; it is never guessed from the numbers. ``"decision_function"``: logits, or
        the log-odds of the second of two classes; ``"predict_proba"``: probabilities; ``"predict_log_proba"``: their
        logarithms, with no rounding to 0. By default ``decision_function`` where the estimator has it, else
        ``predict_proba``; `response_method_` has it. For a module it is required: ``"logits"`` or ``"probs"``.
    cv : int, "prefit", splitter or iterable of splits, optional
        The estimator is fitted on each training part, and the calibrator on its predictions for the rows held out. A
        number means stratified folds; by default 5. With ``"prefit"`` the estimator is fitted already, and `fit` takes
        data that it has not seen.
    ensemble : bool or "auto"
        False: one calibrator for the held-out rows of all folds, and the estimator fitted again on all rows. True: one
        estimator and one calibrator for each fold, and the mean of their probabilities. ``"auto"`` is scikit-learn's
        default: True, unless the estimator is fitted already.
    n_jobs : int, optional
        How many folds are fitted at once (joblib); −1: one for each processor.
    zeros_as : float, optional
        With probabilities: what zeros, and all below it, stand for. By default half a vote, where scikit-learn's
        trees, forests, nearest neighbours with equal weights, or bagging vote: 0.005 for a forest of 100 full trees.
        For other estimators a zero means impossible, and a row whose own label is impossible is an error; except with
        methods that use ranks or bins alone (``"isotonic"``, ``"histogram"``, ``"bbq"``, ``"venn_abers"``): there a
        zero is the least of all, and 1e-30 stands for it.
    classes : sequence of names, optional
        Names of a module's outputs, if labels are names. A scikit-learn estimator has its own.
    select : callable, optional
        Takes a module's output to the tensor of logits, where it is not that tensor: ``lambda out: out.logits``.
    batch_size : int
        Rows of an array or a tensor that are given to a module at once.

    Attributes
    ----------
    estimator_, calibrator_ : the fitted two
    estimators_, calibrators_ : lists of them, one for each fold, in place of the former if ensemble=True
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

    response_method_: str
    classes_: NDArray[Any]
    estimator_: Any
    calibrator_: Calibrator
    estimators_: list[Any]
    calibrators_: list[Calibrator]

    def __init__(
        self,
        estimator: Any,
        method: str | Calibrator = "bayes",
        *,
        response_method: str | None = None,
        cv: Any = None,
        ensemble: bool | Literal["auto"] = False,
        n_jobs: int | None = None,
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
        self.n_jobs = n_jobs
        self.zeros_as = zeros_as
        self.classes = classes
        self.select = select
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, clusters: Any = None, **fit_params: Any) -> Self:
        """Fit the calibrator, and the estimator unless that is fitted already.

        Parameters
        ----------
        X : array, table or sparse matrix of shape (n_samples, n_features)
            As the estimator takes it. For a module a tensor, an array, or a loader that yields (inputs, labels).
        y : array of shape (n_samples,)
            Class labels. For a module column numbers, or names if ``classes`` has them; None with a loader.
        sample_weight : array of shape (n_samples,), optional
            Counts repeats: weight 0 leaves the row out. Goes to the calibrator, and to an estimator that takes weights.
        clusters : array of shape (n_samples,), optional
            The case that each row is of, such as a patient: text or whole numbers. Rows of one case are in one fold
            (``cv`` a number: stratified; a splitter gets them as its ``groups``), and the calibrator counts cases.
        **fit_params
            ``groups`` for the splitter, and parameters of the estimator's ``fit``: those with one entry for each row
            are split as the rows are. With scikit-learn's metadata routing, what each of the two requests.
        """
        fit = fit_module if is_module(self.estimator) else fit_estimator
        fitted = fit(self, X, y, sample_weight, fit_params, clusters)
        self._set_fitted(fitted)  # only now: what fails leaves an earlier fit alone
        return self

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        """Set the fitted attributes; nothing of an earlier fit stays."""
        for name in [a for a in vars(self) if a.endswith("_") and not a.startswith("_")]:
            delattr(self, name)
        self.__dict__.update(fitted)
        first = self._members()[0][0]
        for name in ("n_features_in_", "feature_names_in_"):
            if not is_module(first) and hasattr(first, name):
                setattr(self, name, getattr(first, name))

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, in the array library of the estimator's own; for a module in that of ``X``."""
        parts = list(self._apply(X, log=False))
        if len(parts) == 1:
            return parts[0]
        xp = array_api_compat.array_namespace(parts[0])
        return xp.mean(xp.stack(parts), axis=0)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        parts = list(self._apply(X, log=True))
        if len(parts) == 1:
            return parts[0]
        xp = array_api_compat.array_namespace(parts[0])
        logs = xp.stack(parts)
        top = xp.max(logs, axis=0)
        finite = xp.where(top > -np.inf, top, xp.zeros_like(top))
        with np.errstate(divide="ignore"):  # a class that all hold impossible
            return finite + xp.log(xp.mean(xp.exp(logs - finite), axis=0))

    def predict(self, X: Any) -> Any:
        """Return the class with the largest calibrated probability."""
        p = self.predict_proba(X)
        columns = array_api_compat.array_namespace(p).argmax(p, axis=1)
        if is_module(self.estimator) and self.classes is None:
            return columns
        return like(p, self.classes_[to_numpy(columns)])

    def with_priors(self, new: Any, old: Any = None) -> Self:
        """Return this classifier for data with other shares of the classes; see `Calibrator.with_priors`.

        If classes were resampled for training, pass the shares of the population as ``new`` and those of the resampled
        data as ``old``.
        """
        return self._with_calibrators([calibrator.with_priors(new, old) for _, calibrator in self._members()])

    def adapt(self, X: Any, **options: Any) -> Self:
        """Return this classifier for data with the shares of the classes of unlabelled rows; see `Calibrator.adapt`."""
        responses = self._responses(X)
        members = zip(self._members(), responses)
        return self._with_calibrators([calibrator.adapt(h, **options) for (_, calibrator), h in members])

    def _with_calibrators(self, calibrators: list[Calibrator]) -> Self:
        new = copy(self)
        if hasattr(self, "calibrators_"):
            new.calibrators_ = calibrators
        else:
            (new.calibrator_,) = calibrators
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration as JSON, atomically.

        The file has the calibrators, the names of the classes, and which scores of the estimator they take. The
        estimator is not in the file: keep it with the tools of its own library, and attach it again with `load`. The
        file holds numbers and names, never code.
        """
        write_document(path, DOCUMENT, to_document(self, self._members()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], estimator: Any, *, select: Callable[[Any], Any] | None = None) -> Self:
        """Read what `save` wrote and put it behind a fitted estimator.

        Parameters
        ----------
        path : path of the file
        estimator : the fitted estimator or module
            ``estimator_`` of the wrapper that was saved; with ``ensemble=True`` the list ``estimators_``. Its classes,
            and the number of its features, must be those of the file.
        select : callable, optional
            For a module, as in the constructor; a function is never in the file.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from attemper import CalibratedClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = CalibratedClassifier(LogisticRegression(max_iter=1000), "ts").fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     clf.save(f"{folder}/iris.attemper.json")
        ...     again = CalibratedClassifier.load(f"{folder}/iris.attemper.json", estimator=clf.estimator_)
        >>> bool((again.predict_proba(X) == clf.predict_proba(X)).all())
        True
        """
        params, fitted = attached(read_document(path, DOCUMENT, "calibrator"), estimator)
        new = cls(**params, select=select)
        new._set_fitted(fitted)
        return new

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
        return router_of(self)

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

    def _classes_of_members(self) -> NDArray[Any]:
        """Return the classes as the estimators know them: numbers, where an array library has no text."""
        return np.arange(len(self.classes_)) if getattr(self, "encoded_", False) else self.classes_

    def _responses(self, X: Any) -> Iterator[Any]:
        """Yield the scores of each member."""
        for estimator, calibrator in self._members():
            if is_module(estimator):
                more: dict[str, Any] = {"batch_size": self.batch_size, "select": self.select}
                yield respond_in_batches(estimator, X, calibrator.input, **more)[0]
            else:
                yield respond(estimator, X, self.response_method_, self._classes_of_members())  # type: ignore[arg-type]

    def _apply(self, X: Any, *, log: bool) -> Iterator[Any]:
        """Yield the probabilities of each member, or their logarithms."""
        members, classes = self._members(), self._classes_of_members()
        for (estimator, calibrator), h in zip(members, self._responses(X)):
            unseen = not is_module(estimator) and len(classes_of(estimator)) < len(classes)
            if unseen and calibrator.input == "probs":
                # A class that the estimator has not seen stays impossible, whatever zeros_as is.
                p = to_numpy(h)
                apply = calibrator.map_.log_apply if log else calibrator.map_.apply
                yield like(h, apply(logits_of_seen(p, calibrator.zeros_as), dtype=p.dtype))
                continue
            yield calibrator.predict_log_proba(h) if log else calibrator.predict_proba(h)
