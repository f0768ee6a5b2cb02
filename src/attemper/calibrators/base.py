"""What every calibrator is: a scikit-learn classifier whose X is the logits, one column per class.

A calibrator is a recipe. Fitting it makes a map (`map_`) and a report (`fit_report_`);
predicting is applying the map.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import array_api_compat
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from attemper.arrays import as_names, to_numpy
from attemper.blas import one_blas_thread
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.provenance import Provenance
from attemper.documents import Fields, write_document
from attemper.errors import AttemperWarning, FileError, InputError, InputTypeError, NotFittedError, option, setting
from attemper.limits import MAX_CLASSES
from attemper.maps import Map, ScaleMap, map_from_fields
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Part, Sketch

__all__ = ["Calibrator", "TemperatureCalibrator"]

MAX_LOG_T_STD = 100.0  # beyond this the samples leave T wholly open
SHOWN_FACTOR = 1000.0  # an interval whose ends are further from T says nothing to a reader


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all calibrators; use one of its subclasses, such as `TemperatureScaling`.

    Attributes
    ----------
    map_ : Map
        What was fitted.
    fit_report_ : FitReport
        How the fit went.
    sketch_ : Sketch
        After `fit_sketch`, where a sketch is enough.
    classes_, n_features_in_
        As scikit-learn has them: names or numbers of the columns, and how many there are.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> ts = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 0, 1])
    >>> ts.predict_proba([[2.0, 0.0]]).round(2), ts.predict([[2.0, 0.0]])
    (array([[0.75, 0.25]]), array([0]))
    """

    method: ClassVar[str]  # the name on the command line and in files

    input: Literal["logits", "probs"]
    floor: float | None
    classes: Sequence[Any] | None
    map_: Map
    fit_report_: FitReport
    provenance_: Provenance  # only if it was saved with one
    classes_: Any
    n_features_in_: int
    sketch_: Sketch  # after `fit_sketch`, where a sketch is enough

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on validation data.

        Parameters
        ----------
        X : array of shape (n_samples, n_classes)
            Logits (or probabilities with ``input="probs"``), in any array library; or a `Scores`.
        y : array of shape (n_samples,)
            Column numbers, or names if ``classes`` was told.
        sample_weight : array of shape (n_samples,), optional
            How often each row counts: weight 2 is the row twice.
        """
        scores = self._scores(X, y, sample_weight)
        self._begin(scores.n_classes, X)
        self._warn_of_order()
        with one_blas_thread():
            try:
                self._solve_scores(scores)
            except np.linalg.LinAlgError as error:
                raise InputError(
                    f"logits: {type(self).__name__} expected logits of about one size, got some as large as "
                    f"{scores.bound:.3g} in magnitude ({error}). For classes that are masked out use -inf, such as "
                    "logits[logits < -1e4] = -np.inf."
                ) from None
        return self

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a `Sketch` of the validation data, which may be many sketches added."""
        if not isinstance(sketch, Sketch):
            raise InputError(f"fit_sketch takes a Sketch, not {type(sketch).__name__}; see Sketch.of")
        self._check_parts(sketch)
        self._begin(sketch.n_classes, None)
        with one_blas_thread():
            self._solve_sketch(sketch)
        self.sketch_ = sketch
        return self

    def _check_parts(self, sketch: Sketch) -> None:
        """Refuse a sketch that lacks what this recipe, as its parameters are, needs."""
        parts = self.sketch_parts()
        if parts is None:
            raise InputError(f"{type(self).__name__} cannot be fitted from a sketch: it needs the logits themselves")
        missing = [part for part in parts if getattr(sketch, part) is None]
        if missing:
            raise InputError(
                f"{type(self).__name__} needs the {missing[0]!r} part, which this sketch was made without; make it "
                "again from the data with "
                + option(f"Sketch.of(..., parts=[{missing[0]!r}])", f"attemper sketch --for {self.method}")
            )

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``X``."""
        scores = self._fitted()._scores_of(X)
        return self.map_.apply(scores.logits, dtype=scores.dtype)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        scores = self._fitted()._scores_of(X)
        return self.map_.log_apply(scores.logits, dtype=scores.dtype)

    def predict(self, X: Any) -> Any:
        """Return the class with the largest probability.

        It is the one that the classifier gave before, unless the map is one that may change it.
        """
        h = self._fitted()._scores_of(X).logits
        value = h if self.map_.keeps_arg_max else self.map_.apply(h)
        if self.classes is None:
            return array_api_compat.array_namespace(value).argmax(value, axis=1)
        return self.classes_[to_numpy(value).argmax(axis=1)]

    @classmethod
    def for_labels(cls, *, noisy: bool, noise: str | None = None, **parameters: Any) -> Self:
        """Return a calibrator for labels of this quality; most recipes know no difference."""
        if cls.knows_noise():
            told = {"labels": "noisy" if noisy else "clean"} | ({} if noise is None else {"noise": noise})
            parameters = told | parameters
        return cls(**parameters)

    @classmethod
    def knows_noise(cls) -> bool:
        """Tell whether the recipe has an answer to labels that are wrong."""
        return "labels" in cls._get_param_names()

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        return {} if self.map_.keeps_arg_max else {"changed": self.fit_report_.changed}

    def describe(self) -> list[str]:
        """Return the same in words."""
        if self.map_.keeps_arg_max:
            return []
        return [f"changes the answer in {self.fit_report_.changed:.2%} of the validation samples"]

    def known_within(self) -> float | None:
        """Return the factor within which the data fix the overall temperature; None where that is unknown."""
        return None

    def save(self, path: str | os.PathLike[str], *, provenance: Provenance | None = None) -> None:
        """Write the fitted calibrator as JSON, atomically; read it with `attemper.load`.

        The same data give the same bytes, unless ``provenance`` tells a date.
        """
        self._fitted()
        if provenance is not None:
            self.provenance_ = provenance
        names = self.classes_.tolist() if self.classes is not None else None
        content = {
            "method": self.method,
            "n_classes": int(self.n_features_in_),
            "input": self.input,
            "floor": self.floor,
            "classes": names,
            "params": {name: _plain(getattr(self, name)) for name in self.own_params()},
            "map": self.map_.to_dict(),
            "report": asdict(self.fit_report_),
            "fitted": self._fitted_to_dict(),
        }
        if hasattr(self, "provenance_"):
            content["provenance"] = self.provenance_.to_dict()
        if names is not None and any(n != n or not isinstance(n, str | int | float) for n in names):
            raise InputError("classes: only text and numbers can be saved as class names")
        write_document(path, "calibrator", content)

    @classmethod
    def from_fields(cls, content: Fields) -> Self:
        """Make a fitted calibrator from what `save` wrote."""
        n_classes = content.integer("n_classes")
        if not 2 <= n_classes <= MAX_CLASSES:
            raise FileError(f"{content.where}: {n_classes} classes")
        names = content.content.get("classes")
        if names is not None:
            names = content.items("classes")
            if len(names) != n_classes or any(not isinstance(n, str | int | float) for n in names):
                raise FileError(f"{content.where}: the field 'classes' must hold {n_classes} names")
        kind = content.text("input")
        if kind not in ("logits", "probs"):
            raise FileError(f"{content.where}: the field 'input' is {kind!r}; expected 'logits' or 'probs'")
        floor = None if content.content.get("floor") is None else content.number("floor")
        if floor is not None and not (kind == "probs" and 0 < floor < 1):
            raise FileError(
                f"{content.where}: a floor of {floor} for {kind}; only probabilities have one, within 0 and 1"
            )
        params = content.fields("params").content
        unknown = set(params) - set(cls.own_params())
        if unknown:
            raise FileError(f"{content.where}: the parameter {sorted(unknown)[0]!r} is unknown")
        params = {name: tuple(v) if isinstance(v, list) else v for name, v in params.items()}
        new = cls(**params, input=kind, floor=floor, classes=names)
        try:
            new._begin(n_classes, None)
        except InputError as error:
            raise FileError(f"{content.where}: {error}") from None
        new.map_ = map_from_fields(content.fields("map"))
        if new.map_.n_classes not in (None, n_classes):
            raise FileError(f"{content.where}: a map of {new.map_.n_classes} classes for {n_classes}")
        new.fit_report_ = FitReport.from_fields(content.fields("report"))
        new._fitted_from_fields(content.fields("fitted"))
        if "provenance" in content:
            new.provenance_ = Provenance.from_fields(content.fields("provenance"))
        return new

    # What a recipe must say for itself.

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return the parts of a sketch that this recipe needs beside the NLL; None: a sketch is not enough."""
        return None

    def _check_parameters(self) -> None:
        """Reject parameters that make no sense."""

    def _solve_scores(self, scores: Scores) -> None:
        raise NotImplementedError

    def _solve_sketch(self, sketch: Sketch) -> None:
        raise NotImplementedError

    def _fitted_to_dict(self) -> dict[str, Any]:
        return {}

    def _fitted_from_fields(self, content: Fields) -> None:
        """Read back what `_fitted_to_dict` gave."""

    # What they share.

    def _scores(self, X: Any, y: Any, sample_weight: Any) -> Scores:
        if self.input not in ("logits", "probs"):
            raise InputError(f"input={self.input!r}: expected 'logits' or 'probs'")
        if isinstance(X, Scores):
            if X.labels is None:
                raise InputError("labels: these Scores hold none; a fit needs them")
            if y is not None or sample_weight is not None:
                raise InputError("a Scores brings its own labels and weights; give no others as well")
            if X.kind != self.input:
                raise InputError(f"these Scores hold {X.kind}, but input={self.input!r}")
            return X
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give one label per row"
            )
        return self._make_scores(X, y, sample_weight=sample_weight, classes=self.classes)

    def _make_scores(self, X: Any, y: Any = None, **more: Any) -> Scores:
        if self.input == "probs":
            return Scores.from_probs(X, y, floor=self.floor, **more)
        if self.floor is not None:
            raise InputError(
                f"{setting('floor', self.floor)}: only probabilities have a floor; "
                f"""use {option("input='probs'", "--probs")}"""
            )
        return Scores.from_logits(X, y, **more)

    def _begin(self, n_classes: int, X: Any) -> None:
        names = None if self.classes is None else as_names(self.classes, n_classes)
        self._check_parameters()
        for name in [a for a in vars(self) if a.endswith("_") and not a.startswith("_")]:
            delattr(self, name)  # nothing of an earlier fit may stay
        self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes) if names is None else np.asarray(names)
        self._column_names(X, reset=True)

    def _warn_of_order(self) -> None:
        if self.classes is not None and not _ascends(self.classes_.tolist()):
            warnings.warn(
                "classes: the names are not in sorted order. They are used in the order given, one per column, but "
                "scikit-learn's scorers of probabilities (neg_log_loss, …) take columns to be in sorted order.",
                AttemperWarning,
                stacklevel=3,
            )

    @classmethod
    def own_params(cls) -> list[str]:
        """Parameters beside those that all calibrators share."""
        return [name for name in cls._get_param_names() if name not in ("input", "floor", "classes")]

    def _fitted(self) -> Self:
        if not hasattr(self, "map_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with validation logits and "
                "labels first."
            )
        return self

    def _scores_of(self, X: Any) -> Scores:
        """Check what is to be predicted."""
        self._column_names(X, reset=False)
        scores: Scores = X
        if not isinstance(X, Scores):
            shape: tuple[int, ...] = () if getattr(X, "is_nested", False) else getattr(X, "shape", ())
            if len(shape) == 2 and shape[1] != self.n_features_in_:
                self._reject_columns(shape[1])
            scores = self._make_scores(X)
        if scores.n_classes != self.n_features_in_:
            self._reject_columns(scores.n_classes)
        return scores

    def _column_names(self, X: Any, *, reset: bool) -> None:
        """Remember the column names of a table, or compare them with those of the fit."""
        if not hasattr(X, "columns"):
            return
        try:
            validate_data(self, X, skip_check_array=True, reset=reset)
        except TypeError as error:
            raise InputTypeError(str(error)) from None
        except ValueError as error:
            raise InputError(str(error)) from None

    def _reject_columns(self, count: int) -> None:
        raise InputError(
            f"X has {count} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
            "input: one column per class"
        )


class TemperatureCalibrator(Calibrator):
    """Base of the recipes whose answer is about one temperature. A sketch is enough for them."""

    temperature_: float
    temperature_interval_: tuple[float, float] | None = None

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return the parts of a sketch that this recipe needs beside the NLL."""
        return ()

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        interval = self.temperature_interval_
        return {"temperature": self.temperature_, "temperature_interval": None if interval is None else list(interval)}

    def describe(self) -> list[str]:
        """Return a readable summary."""
        known = self.known_within()
        if self.temperature_interval_ is None or known is None or known > SHOWN_FACTOR:
            return [f"T = {self.temperature_:.4g}"]
        low, high = self.temperature_interval_
        return [f"T = {self.temperature_:.4g} (95% interval {low:.4g} … {high:.4g})"]

    def known_within(self) -> float | None:
        """Return the factor by which the ends of the interval of T differ from T; infinite where no T was best."""
        if self.temperature_interval_ is None:  # files of ts and ats that are older than intervals have none
            return None if self.fit_report_.edge is None else math.inf
        low, high = self.temperature_interval_
        return max(self.temperature_ / low, high / self.temperature_)

    def _set_interval(self, log_t_std: float) -> None:
        """Set the 95 % interval of T, normal in log T."""
        factor = float(np.exp(1.959964 * min(log_t_std, MAX_LOG_T_STD)))
        self.temperature_interval_ = (self.temperature_ / factor, self.temperature_ * factor)

    def _check_range_of(self, sketch: Sketch) -> None:
        """Refuse a sketch that does not cover the range that was asked for."""
        asked = tuple(float(t) for t in getattr(self, "t_range", DEFAULT_T_RANGE))
        if asked not in (DEFAULT_T_RANGE, sketch.t_range):
            raise InputError(
                f"{setting('t_range', asked)}, but this sketch covers {sketch.t_range}; make it with "
                f"{option('Sketch.of(..., t_range=…)', 'attemper sketch --t-range')}"
            )

    def _fitted_to_dict(self) -> dict[str, Any]:
        interval = self.temperature_interval_
        return {"temperature": self.temperature_, "temperature_interval": None if interval is None else list(interval)}

    def _fitted_from_fields(self, content: Fields) -> None:
        self.temperature_ = content.number("temperature")
        if self.temperature_ <= 0:
            raise FileError(f"{content.where}: a temperature of {self.temperature_}; expected a positive one")
        low, high = self._temperatures_of_map(content)
        if not low <= self.temperature_ <= high:
            self._reject_fitted(content, f"a temperature of {self.temperature_:g}", f"{low:.6g} to {high:.6g}")
        if content.content.get("temperature_interval") is not None:  # older files of ts and ats have none
            low, high = content.array("temperature_interval", (2,)).tolist()
            if not 0 < low <= high:
                raise FileError(f"{content.where}: a temperature_interval of {low} … {high}; expected positive ends")
            self.temperature_interval_ = (low, high)

    def _temperatures_of_map(self, content: Fields) -> tuple[float, float]:
        """Return the range that the fitted temperature lies in if the map is its own."""
        if not isinstance(self.map_, ScaleMap):
            raise FileError(f"{content.where}: the map is not one of {type(self).__name__}")
        return (1 - 1e-9) / self.map_.beta, (1 + 1e-9) / self.map_.beta

    @staticmethod
    def _reject_fitted(content: Fields, stored: str, of_map: str) -> None:
        raise FileError(
            f"{content.where}: {stored}, but the map in this file has {of_map}: changed after it was written; fit it "
            "again"
        )


def _ascends(names: list[Any]) -> bool:
    try:
        return all(a < b for a, b in pairwise(names))
    except TypeError:
        return False


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | tuple | list) else value
