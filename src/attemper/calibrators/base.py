"""`Calibrator`: a scikit-learn classifier whose X is the logits. A method is one class with ``_fit``.

A fit is a pure function of data: `_fit(scores) -> Fit(map, report, values)`. The estimator only stores it, so that an
error leaves the old fit untouched, and every fitted number is stored once.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, cast

import array_api_compat
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

from attemper import _json, priors
from attemper._typing import Floats, InputKind
from attemper.data.arrays import MASKS_FROM, as_array, masks_as_inf, sum_tolerance, to_numpy
from attemper.data.doubts import warn_of_doubts, warn_of_lost_class
from attemper.data.frames import by_name, named_column, names_of, of_frame
from attemper.data.inputs import as_names, two_columns
from attemper.data.reading import ReadOptions, again, is_paths
from attemper.data.scores import Chunk, Scores
from attemper.data.shared import row_marks
from attemper.errors import (
    InputError,
    NotFittedError,
    ProbabilitiesAsLogitsWarning,
    listed,
    warn,
)
from attemper.kernels import one_blas_thread
from attemper.maps import Affine, Map
from attemper.sketches import Sketch, sketch_scores

METHODS: dict[str, type[Calibrator]] = {}
WRAPPERS: dict[str, type[Calibrator]] = {}  # classes that are saved and loaded, but are no methods of their own
ZEROS_OF_SKETCH = 1e-8  # what later zeros stand for, if there were none in a sketch
SUM_TO_ONE = 1e-5  # how close probabilities come to it in single precision


@dataclass(frozen=True)
class Report:
    """How a fit went: ``report_`` of every calibrator."""

    nll: float  # mean validation NLL of the fitted map
    n_samples: int
    converged: bool = True
    error: float | None = None  # of log T; else by how many nats the mean objective may be above its minimum
    edge: Literal["low", "high"] | None = None  # which end of the range T lies on, if no T inside it is best
    n_iter: int = 1  # steps of the solver
    changed: float | None = 0.0  # share of the validation predictions that the map changes; None for other priors
    left_alone: bool = False  # no gain over the classifier as it is: better left alone
    too_few_classes: bool = False  # have a label, so that one temperature stands for class parameters
    cannot_tell: bool = False  # whether errors are the network's or the labels': pass their share as ``noise``
    notes: tuple[str, ...] = ()
    n_cases: int | None = None  # clusters or images, where samples are no cases of their own

    @classmethod
    def of(cls, fitted: Map, scores: Scores, **facts: Any) -> Report:
        """Report on a map: its NLL, and the predictions that it changes on these samples."""
        plain = replace(fitted, input="logits")

        def sums(chunk: Chunk) -> Floats:
            log_p = plain.log_apply(chunk.h.astype(np.float64, copy=False))
            nll = -log_p[np.arange(len(chunk.y)), chunk.y]
            changed = log_p.argmax(axis=1) != chunk.h.argmax(axis=1)
            return np.array([t.sum() if chunk.w is None else chunk.w @ t for t in (nll, changed)])

        nll, changed = (scores.total(sums) / scores.total_weight).tolist()
        return cls(nll=nll, n_samples=scores.n_samples, changed=changed, **facts)


@dataclass(frozen=True)
class Fit:
    """What a method returns. ``values`` become attributes with an underscore."""

    map: Map
    report: Report
    values: dict[str, Any] = field(default_factory=dict)


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all methods. A subclass has a ``method``, under which it is registered, and ``_fit``.

    Parameters
    ----------
    input : "logits" or "probs"
        What X holds. It is never guessed.
    classes : sequence of names, optional
        Names of the columns, if labels are names.
    zeros_as : float, optional
        What a probability of exactly 0 stands for; by default half of the smallest positive one of the fit.
    """

    method: ClassVar[str]
    title: ClassVar[str] = ""
    knows_noise: ClassVar[bool] = False
    sketch_parts: ClassVar[tuple[str, ...] | None] = None  # tables of a sketch that a fit needs; None: it needs rows
    needs: ClassVar[tuple[str, ...]] = ("labels",)  # of the scores
    value_types: ClassVar[dict[str, Any]] = {}  # of fitted numbers that are not plain, by name without underscore

    def __init__(self, *, input: InputKind = "logits", classes: Any = None, zeros_as: float | None = None) -> None:
        self.input, self.classes, self.zeros_as = input, classes, zeros_as

    def __init_subclass__(cls, *, wrapper: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "method" in vars(cls):
            if (own := (METHODS | WRAPPERS).get(cls.method)) is not None and own.__qualname__ != cls.__qualname__:
                raise InputError(f"method: {cls.method!r} is {own.__qualname__}. Use another name.", "method")
            (WRAPPERS if wrapper else METHODS)[cls.method] = cls

    def _fit(self, scores: Scores) -> Fit:
        """Fit to labelled scores; ``scores.logits``, ``labels`` and ``weights`` are NumPy arrays."""
        raise NotImplementedError

    def _fit_sketch(self, sketch: Sketch) -> Fit:
        """Fit to a sketch, if `sketch_parts` is not None."""
        raise InputError(f"method: {self.method} needs the rows, not a sketch", "method")

    def _options(self) -> dict[str, Any]:
        """How X is read."""
        return {"input": self.input, "classes": self.classes, "zeros_as": self.zeros_as}

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, clusters: Any = None) -> Self:
        """Fit to logits (or probabilities) and labels; X may be `Scores`, which hold all of it."""
        return self._fit_to(X, y, sample_weight=sample_weight, clusters=clusters)

    def _fit_to(self, X: Any, y: Any, **given: Any) -> Self:
        from attemper.calibrators.temperature import with_effective_weights

        scores, columns, options = X, None, self._options()
        if isinstance(X, Scores):
            own = {"labels": y, **given, **options, "input": None if options["input"] == "logits" else options["input"]}
            own = {name: value for name, value in own.items() if value is not None}
            scores = again(X, own) if own else X
        else:
            if y is None:
                what = f"requires y to be passed, but the target y is None: {type(self).__name__}"
                raise InputError(f"{what}. For files use attemper.fit." if is_paths(X) else what, "y")
            if (columns := names_of(X)) is not None:
                X, columns = by_name(X, columns, options)
            scores = Scores.of(X, y, **given, **options)
            warn_of_doubts(scores)
        for name in self.needs:
            if getattr(scores, name) is None:
                raise InputError(f"{name}: a fit needs them, and there are none. Use {name}=… to pass them.", name)
        if scores.w is not None and not (scores.w > 0).all():
            scores = scores.take(scores.w > 0)
        with one_blas_thread():
            self._store(self._fit(with_effective_weights(scores)), scores)
        if self.report_.changed and not self.map_.independent:
            warn_of_lost_class(scores, replace(self.map_, input="logits").log_apply, self.classes_, self.method)
        if columns is not None:
            self.read_ = ReadOptions(columns=columns)
        return self

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit to a sketch."""
        missing = set(self.sketch_parts or ()) - sketch.tables.keys()
        if missing:
            raise InputError(f"parts: the sketch lacks {min(missing)!r}, which {self.method} needs", "parts")
        with one_blas_thread():
            return self._store(self._fit_sketch(sketch), sketch)

    @available_if(lambda self: self.sketch_parts is not None)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add samples to those of earlier calls, and fit again: a sketch is all that is kept, and `save` drops it."""
        if hasattr(self, "map_") and not hasattr(self, "sketch_"):
            warn("partial_fit begins anew: fit and load keep no samples. Use partial_fit for all of them.")
        options, before = self._options(), getattr(self, "sketch_", None)
        read = ReadOptions() if before is None else getattr(self, "read_", ReadOptions())
        if classes is None and before is not None:
            classes = before.classes
        if classes is not None:
            options["classes"] = classes
        if (columns := names_of(X)) is not None:
            X, columns = by_name(X, columns, options, read.columns)
            read = ReadOptions(columns=columns)
        scores = Scores.of(X, y, sample_weight=sample_weight, **options)
        sketch = sketch_scores(scores, self.sketch_parts or (), zeros_as=self.zeros_as)
        sketch = sketch if before is None else before + sketch
        self.fit_sketch(sketch)
        self.sketch_, self.read_ = sketch, read
        return self

    def _store(self, fit: Fit, data: Scores | Sketch) -> Self:
        """Keep a fit, in place of an earlier one."""
        if not isinstance(fit, Fit) or not isinstance(fit.map, Map):
            got = f"one with a {type(fit.map).__name__}" if isinstance(fit, Fit) else type(fit).__name__
            raise TypeError(f"{type(self).__name__}._fit: expected attemper.Fit with a Map, got {got}")
        names = data.classes if self.classes is None else self.classes
        classes = np.arange(data.n_classes) if names is None else np.array(as_names(names, data.n_classes))
        for name in [*vars(self)]:
            if name.endswith("_") and not name.startswith("_"):
                delattr(self, name)
        zeros_as = data.zeros_as
        if isinstance(data, Sketch) and data.input == "probs" and zeros_as is None:
            zeros_as = ZEROS_OF_SKETCH
        self.map_ = replace(fit.map, input=cast(InputKind, data.input), zeros_as=zeros_as)
        self.report_, self.classes_ = fit.report, classes
        if isinstance(data, Scores) and data.cases is not None:
            self.report_ = replace(fit.report, n_cases=int(data.cases.max()) + 1)
        self.n_features_in_ = data.n_classes
        if isinstance(data, Sketch):
            self.priors_ = data.counts / data.weight
        else:
            self.rows_ = row_marks(data)
            if -np.inf < data.low <= MASKS_FROM and not data.finite_masks:
                self.unmasked_ = True  # numbers so low were no masks
            if not data.multi_label and "priors" not in fit.values:
                mean = priors.mean_prediction(replace(self.map_, input="logits"), data)
                self.__dict__ |= {} if mean is None else {"priors_": mean}
        for name, value in fit.values.items():
            setattr(self, f"{name}_", value)
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "map_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")

    def predict_proba(self, X: Any, *, axis: int | None = None) -> Any:
        """Calibrated probabilities, in the array library, on the device and in the precision of X.

        ``axis`` is where the classes are of an array with three or more dimensions; by default that of the fit.
        """
        return self._predicted(X, axis, log=False)

    def predict_log_proba(self, X: Any, *, axis: int | None = None) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._predicted(X, axis, log=True)

    def predict(self, X: Any, **options: Any) -> Any:
        """Return the most probable class of each row, or pixel."""
        probs = self._classes_last(X, options)
        return self.classes_[to_numpy(array_api_compat.array_namespace(probs).argmax(probs, axis=-1))]

    def predict_risk(self, X: Any, **options: Any) -> Any:
        """Return the probability of the second of two classes: one column in, one column out."""
        self._check_fitted()
        if self.n_features_in_ != 2 or self.map_.independent:
            raise InputError("X: expected a calibrator of two classes that exclude each other", "X")
        return self._classes_last(X, options)[..., 1]

    def _classes_last(self, X: Any, options: dict[str, Any]) -> Any:
        p = self.predict_proba(X, **options)
        last = -1 if p.ndim < 3 else self._axis(options.get("axis"))
        return p if last == -1 else array_api_compat.array_namespace(p).moveaxis(p, last, -1)

    def _axis(self, axis: int | None) -> int | None:
        """Return where the classes are: as was passed, or as in the fit."""
        return getattr(self, "read_", ReadOptions()).axis if axis is None else axis

    def decide(self, X: Any, *, groups: Any = None) -> Any:
        """Return what the rule does with each row (`attemper.decide` chooses one): refer or decide, or a set.

        Predictions are names of the classes, as `predict` has them.
        """
        if getattr(self, "rule_", None) is None:
            raise InputError("calibrator: it has no rule. Use attemper.decide to choose one.", "calibrator")
        groups = self._groups_of(X, groups) if self._needs_groups else None
        probs = self.predict_proba(X, **({"groups": groups} if "groups" in self.needs else {}))
        found = self.rule_.decide(to_numpy(probs), groups)
        return replace(found, prediction=self.classes_[found.prediction])

    def _predicted(self, X: Any, axis: int | None, *, log: bool) -> Any:
        self._check_fitted()
        x = self._array_of(X)
        if x.ndim == 1 and self.map_.independent:
            x = array_api_compat.array_namespace(x).reshape(x, (-1, 1))
        elif x.ndim == 1 and self.n_features_in_ > 2:
            what = f"{self.n_features_in_} columns, got a vector, which is the second of two classes"
            raise InputError(f"X: expected {what}. Reshape your data: for one row use X.reshape(1, -1).", "X")
        elif x.ndim == 1 or (
            x.ndim == 2 and x.shape[1] == 1 and self.n_features_in_ == 2 and not self.map_.independent
        ):
            x = two_columns(x, self.map_.input)
        if x.ndim <= 2:
            return self._apply(x, log=log)
        axis = self._axis(axis)
        if axis is None:
            raise InputError(f"axis: expected where the classes are in shape {tuple(x.shape)}", "axis")
        xp = array_api_compat.array_namespace(x)
        rows = xp.moveaxis(x, axis, -1)
        made = Calibrator._predicted(self, xp.reshape(rows, (-1, rows.shape[-1])), None, log=log)
        return xp.moveaxis(xp.reshape(made, (*rows.shape[:-1], made.shape[-1])), -1, axis)

    @property
    def _needs_groups(self) -> bool:
        """Whether predictions, or the rule, need the group of each row."""
        return "groups" in self.needs or getattr(getattr(self, "rule_", None), "groups", None) is not None

    def _groups_of(self, X: Any, groups: Any) -> Any:
        """Return the group of each sample: as was passed; of `Scores` theirs; of a frame a column, as in the fit."""
        if isinstance(X, Scores):
            return X.samples().groups if groups is None else groups
        if (names := names_of(X)) is None:
            return groups
        groups = getattr(self, "read_", ReadOptions()).groups if groups is None else groups
        return of_frame(X)[str(named_column(names, groups, "groups"))] if isinstance(groups, str) else groups

    @property
    def _names(self) -> list[Any] | None:
        """Names of the classes; None where they are the numbers of the columns."""
        names = self.classes_.tolist()
        return None if names == list(range(len(names))) else names

    def _array_of(self, X: Any) -> Any:
        """Return the array of X: of `Scores` like those of the fit; of a frame with names its columns, by name."""
        if isinstance(X, Scores):
            if X.input != self.map_.input:
                raise InputError(f"X: expected Scores of {self.map_.input}, as in the fit, got {X.input}", "X")
            own, its = self._names, X.classes
            if own is not None and its is not None and [*map(str, own)] != [*map(str, its)]:
                raise InputError(f"X: expected the classes {listed(own)}, in this order, got {listed(its)}", "X")
            X = X.samples()
            return as_array(X.raw(slice(0, len(X))), "X")
        if (names := names_of(X)) is None:
            return as_array(X, "X")
        known = getattr(self, "read_", ReadOptions()).columns
        return by_name(X, names, {"input": self.map_.input, "classes": self._names}, known)[0]

    def _apply(self, x: Any, *, log: bool) -> Any:
        k = x.shape[1] if x.ndim == 2 else 0
        if k != self.n_features_in_:
            own = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise InputError(f"X has {k} features, but {own}, the columns of the fit", "X")
        return self.map_.log_apply(self._checked(x)) if log else self.map_.apply(self._checked(x))

    def _checked(self, x: Any) -> Any:
        """Return rows with masks as −inf; refuse what no fit takes, and warn of probabilities among logits."""
        xp = array_api_compat.array_namespace(x)
        if not x.shape[0]:
            return x
        if not bool(xp.max(x) < np.inf):
            bad = int((~(to_numpy(x) < np.inf)).any(axis=1).argmax())
            raise InputError(f"X: row {bad} contains NaN or infinity; drop that row", "X")
        if self.map_.input == "probs":
            if bool(((x < -1e-3) | (x > 1 + 1e-3)).any()):
                raise InputError("X: expected probabilities from 0 to 1, as in the fit, got other numbers", "X")
            off = xp.abs(xp.sum(x, axis=1) - 1)
            if not self.map_.independent and bool(xp.max(off) > sum_tolerance(x.shape[1])):
                raise InputError(f"X: the sum of row {int(xp.argmax(off))} is off 1 by {float(xp.max(off)):.3g}", "X")
        elif not self.map_.independent:
            low = xp.min(x)
            if bool(low <= MASKS_FROM):
                if not bool(xp.all(xp.max(x, axis=1) > -np.inf)):
                    bad = int((to_numpy(x) == -np.inf).all(axis=1).argmax())
                    raise InputError(f"X: row {bad} is -inf everywhere; some class must be possible", "X")
                return x if getattr(self, "unmasked_", False) else masks_as_inf(x)
            if bool(low >= 0) and bool(xp.all(xp.abs(xp.sum(x, axis=1) - 1) < SUM_TO_ONE)):
                warn(f"X: these look like probabilities; the fit had {self.map_.input}.", ProbabilitiesAsLogitsWarning)
        return x

    def with_priors(self, new: Any, old: Any = None) -> Self:
        """Return a calibrator for other class priors: p_k times new_k / old_k, rows normalised. A rule is dropped.

        ``old`` are the shares under which the probabilities are calibrated; by default ``priors_``, the mean prediction
        of the fit (of a fit to a sketch, the shares of its labels).
        """
        self._check_fitted()
        if self.map_.independent:
            raise InputError("new: labels that do not exclude each other have no class priors", "new")
        names = self.classes_.tolist()
        before = getattr(self, "priors_", None) if old is None else priors.as_priors(old, names, "old")
        if before is None:
            raise InputError(
                "old: the mean prediction of the fit is not known. Use old=… for shares of the classes", "old"
            )
        after = priors.as_priors(new, names, "new")
        none = np.flatnonzero((before == 0) & (after > 0))
        if len(none):
            what = f"the share of {names[none[0]]!r} is 0. Use old=… for shares under which it occurs."
            raise InputError(f"old: {what}", "old")
        made = copy.copy(self)
        made.__dict__.pop("sketch_", None)  # whose samples have the priors of the fit
        made._tilt(np.log(np.maximum(after, priors.LEAST_SHARE)) - np.log(np.maximum(before, priors.LEAST_SHARE)))
        made.priors_, made.report_ = after, replace(self.report_, changed=None)
        if made.__dict__.pop("rule_", None) is not None:
            warn("the rule is dropped: it was chosen for other class priors. Use attemper.decide again.")
        return made

    def _tilt(self, log_ratio: Floats) -> None:
        """Add to the logarithms of the probabilities."""
        self.map_ = self.map_.then(Affine.of(1.0, log_ratio))

    def adapt(
        self, X: Any, *, validation: Any = None, axis: int | None = None, groups: Any = None, clusters: Any = None
    ) -> Self:
        """Return a calibrator for the class priors of unlabelled data, which are estimated from the predictions.

        ``validation`` are data with labels, (X, y) or `Scores`: where no mix of their classes explains the new
        predictions a `LabelShiftError` is raised. ``adapted_`` of the result is the estimate, with intervals.
        """
        return cast(Self, priors.adapt(self, X, validation=validation, axis=axis, groups=groups, clusters=clusters))

    def wrap(self, module: Any, axis: int | None = None) -> Any:
        """Return a torch module that returns calibrated probabilities of what ``module`` returns.

        ``axis`` is where the classes are, if these have three or more dimensions; by default that of the fit.
        """
        from attemper.torch.module import wrap

        return wrap(self, module, axis)

    def to_torch(self, axis: int | None = None) -> Any:
        """Return a torch module from logits to calibrated probabilities."""
        from attemper.torch.module import to_torch

        return to_torch(self, axis)

    def to_onnx(self, path: str | os.PathLike[str], model: Any = None, tensor: str | None = None) -> Any:
        """Write an ONNX model that returns calibrated probabilities: of logits, or of the inputs of ``model``."""
        from attemper.onnx import to_onnx

        return to_onnx(self, path, model=model, tensor=tensor)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON, atomically: method, parameters, map, report and fitted numbers."""
        self._check_fitted()
        if (METHODS | WRAPPERS)[self.method].__qualname__ != type(self).__qualname__:
            raise InputError(f"method: {self.method!r} is another class. Give {type(self).__name__} its own.", "method")
        _json.save(path, "calibrator", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return what a file holds."""
        own = {name[:-1]: v for name, v in vars(self).items() if name.endswith("_") and name not in SAVED_APART}
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in SAVED_APART}
        content = {
            "method": self.method,
            "params": _json.plain(params),
            "classes": self.classes_.tolist(),
            "map": self.map_.to_dict(),
            "report": _json.plain(self.report_),
            "values": _json.plain({n: v.to_dict() if isinstance(v, Calibrator) else v for n, v in sorted(own.items())}),
            "read": _json.plain(getattr(self, "read_", ReadOptions())),
        }
        rule = getattr(self, "rule_", None)
        return content if rule is None else content | {"rule": rule.to_dict()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.sparse = False
        return tags

    def __str__(self) -> str:
        if not hasattr(self, "map_"):
            return repr(self)
        lines = self._facts()
        if self.report_.changed is None and not self.map_.independent:
            shares = ", ".join(f"{name} {share:.2g}" for name, share in zip(self.classes_[:5], self.priors_))
            lines.append(f"for the class priors {shares}{', …' * (len(self.classes_) > 5)}")
        return "\n".join([f"{self.title or self.method}", *(f"  {line}" for line in lines)])

    def _facts(self) -> list[str]:
        """Return what a reader wants to know of the fit, line by line."""
        r, lines = self.report_, []
        if hasattr(self, "temperature_"):
            interval = getattr(self, "temperature_interval_", None)
            limits = "" if interval is None else f" ({interval[0]:.3g} to {interval[1]:.3g})"
            lines.append(f"T = {self.temperature_:.4g}{limits}")
        if getattr(self, "noise_interval_", None) is not None and getattr(self, "noise", 0) != 0:
            low, high = self.noise_interval_
            limits = f"{low:.1%} to {high:.1%}" if self.noise == "unknown" else "as given"
            lines.append(f"wrong labels: {self.noise_:.1%} ({limits})")
        lines.append(f"NLL {r.nll:.4f} of {r.n_samples} validation samples")
        if not self.map_.independent:
            moved = "changes predictions" if r.changed is None else f"changes {r.changed:.1%} of the predictions"
            lines.append("never changes the prediction" if self.map_.keeps_arg_max else moved)
        lines += ["no gain is expected: the classifier is better left alone"] if r.left_alone else []
        lines += [f"rule: {self.rule_.describe(self.classes_.tolist())}"] if hasattr(self, "rule_") else []
        return [*lines, *r.notes]


SAVED_APART = ("map_", "report_", "classes_", "n_features_in_", "sketch_", "read_", "rule_", "adapted_", "base")
