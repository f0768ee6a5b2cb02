"""What every calibrator is: a scikit-learn classifier whose X is the logits, one column per class.

A calibrator is a recipe. Fitting it makes a map (`map_`) and a report (`fit_report_`);
predicting is applying the map.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import array_api_compat
import numpy as np
from sklearn.utils.validation import validate_data

from attemper._checks import one_of
from attemper._json import Fields, from_fields, to_fields, values_of, write_document
from attemper.calibrators.adaptation import Adaptation
from attemper.calibrators.changed_priors import ChangesPriors
from attemper.calibrators.estimator import Classifier, fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.group_fits import GroupFit, GroupMaps, LabelErrors, fit_groups, is_common
from attemper.calibrators.provenance import Provenance
from attemper.calibrators.registry import METHODS
from attemper.calibrators.style import Style
from attemper.data.arrays import as_matrix, as_numbers, on_gpu, to_numpy
from attemper.data.binary import is_one_column
from attemper.data.ids import as_ids
from attemper.data.labels import as_names
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import (
    FileError,
    InputError,
    InputTypeError,
    NotFittedError,
    listed,
    warn,
)
from attemper.group_sketches import GroupSketches
from attemper.kernels.blas import one_blas_thread
from attemper.maps import Map, map_from_fields
from attemper.sketch import Part, Sketch

__all__ = ["Calibrator"]

SHARED_PARAMS = ("input", "zeros_as", "classes", "axis", "ignore_index")


@recipe
class Calibrator(ChangesPriors, Classifier):
    """Base of all calibrators; use one of its subclasses, such as `TemperatureScaling`.

    To write one, make a class with `recipe` that has a ``method`` and a ``title``, and sets ``map_`` and
    ``fit_report_`` in ``_solve_scores``. `attemper.testing.check_calibrator` checks it.

    Parameters
    ----------
    input : "logits" or "probs"
        What X holds. It is never guessed.
    zeros_as : float, optional
        For probabilities: the value that zeros are read as, such as 1e-8, if they come from rounding. By default a
        zero means that the class is impossible.
    classes : sequence of names, optional
        Names of the columns, if labels are names.
    axis : int, optional
        Where the classes are in an array of three or more dimensions: 1 for images, (N, K, H, W), −1 for (B, L, V).
        Each pixel is a sample, labels have that shape without the axis, and `predict_proba` returns the shape of X. An
        array of two dimensions is always (N, K).
    ignore_index : int, optional
        Samples with this label do not count in a fit.

    Attributes
    ----------
    map_ : Map
        What was fitted.
    fit_report_ : FitReport
        How the fit went.
    sketch_ : Sketch
        After `fit_sketch`, where a sketch is enough.
    adaptation_ : Adaptation
        After `with_priors` and `adapt`.
    group_maps_ : dict of Map
        After a fit with groups: the map of each group. ``map_`` is the common map, which groups that were not seen get.
    groups_ : GroupFit
        After a fit with groups: how each group's map differs from the common one, a table.
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
    stored: ClassVar[tuple[str, ...]] = ()  # fitted attributes that a file keeps in addition to the map, as annotated
    title: ClassVar[str] = ""  # the name for readers
    style: ClassVar[Style | None] = None  # how plots draw it; None: one that is left
    sketch_tables: ClassVar[tuple[Part, ...] | None] = None  # enough for a fit, with the NLL; None: rows are needed
    max_classes: ClassVar[int | None] = None  # `compare` leaves it out beyond, unless it is named
    knows_noise: ClassVar[bool] = False  # has parameters ``labels`` and ``noise``, for labels that may be wrong
    needs_few_labels: ClassVar[bool] = False  # a few dozen fit it
    keeps_arg_max: ClassVar[bool] = False  # never changes the predicted class
    minimises_nll: ClassVar[bool] = True  # or something close to it; else temperatures of groups are relative ones
    ranks_only: ClassVar[bool] = False  # uses no more of a probability than its rank or bin, so a zero is no problem

    input: Literal["logits", "probs"] = "logits"
    zeros_as: float | None = None
    classes: Sequence[Any] | None = None
    axis: int | None = None
    ignore_index: int | None = None
    map_: Map = fitted()
    fit_report_: FitReport = fitted()
    provenance_: Provenance = fitted()  # only if it was loaded from a file that has one
    classes_: Any = fitted()
    n_features_in_: int = fitted()
    sketch_: Sketch = fitted()  # after `fit_sketch`, where a sketch is enough
    adaptation_: Adaptation = fitted()  # after `with_priors` or `adapt`
    group_maps_: GroupMaps = fitted()  # only after a fit with groups
    groups_: GroupFit = fitted()
    group_: str = fitted()  # only of `for_group`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "method" in vars(cls):
            cls.title = vars(cls).get("title") or cls.method
            METHODS[cls.method] = cls

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None, clusters: Any = None
    ) -> Self:
        """Fit on validation data.

        Parameters
        ----------
        X : array of shape (n_samples, n_classes), or of more dimensions (see axis)
            Logits (or probabilities with ``input="probs"``), in any array library; or a `Scores`. Of two classes one
            column is enough, of shape (n_samples,) or (n_samples, 1): the log-odds, or the probability, of the second.
        y : array of shape (n_samples,), or that of X without its axis of classes
            Column numbers, or names if ``classes`` has them. With one column also -1 and 1.
        sample_weight : array of shape (n_samples,), optional
            How often each row counts: weight 2 is the row twice.
        groups : array of shape (n_samples,), optional
            The group that each row is of, such as a site: text or whole numbers. Each group then gets a map of its own
            by partial pooling (``group_maps_``), and predictions need groups too. The number 1 and the text "1" are
            the same group.
        clusters : array of shape (n_samples,), optional
            The case that each row is of, such as a patient. Rows of one case are not independent, so that intervals
            become wider. A `Scores` brings its own groups and clusters.
        """
        scores = self._scores(X, y, sample_weight, groups=groups, clusters=clusters)
        self._reset_fitted_state(scores.n_classes, X, scores.classes)
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
            self._allow_for_clusters(scores)
            self._fit_groups(scores)
        if on_gpu(scores.values) and (scores.device is None or self.sketch_parts() is None):
            message = f"{self.fit_report_.message}; the scores were copied from the GPU to NumPy"
            self.fit_report_ = replace(self.fit_report_, message=message)
        return self

    def fit_sketch(self, sketch: Sketch | GroupSketches) -> Self:
        """Fit on a `Sketch` of the validation data, which may be many sketches added; or on `GroupSketches`.

        From sketches by group each group gets a temperature of its own.
        """
        if isinstance(sketch, GroupSketches):
            self.fit_sketch(sketch.total)
            with one_blas_thread():
                self._take_groups(*self._from_group_sketches(sketch))
            return self
        if not isinstance(sketch, Sketch):
            raise InputError(f"fit_sketch takes a Sketch, not {type(sketch).__name__}; see Sketch.of")
        self._check_parts(sketch)
        self._reset_fitted_state(sketch.n_classes, None)
        with one_blas_thread():
            self._solve_sketch(sketch)
        self.sketch_ = sketch
        return self

    def _check_parts(self, sketch: Sketch) -> None:
        """Refuse a sketch that lacks what this recipe, as its parameters are, needs."""
        parts = self.sketch_parts()
        if parts is None:
            raise InputError(f"{type(self).__name__} cannot be fitted from a sketch: it needs the logits themselves")
        missing = [part for part in parts if part not in sketch.tables]
        if missing:
            raise InputError(
                f"{type(self).__name__} needs the {missing[0]!r} part, which this sketch was made without; make it "
                f"again from the data with Sketch.of(..., parts=[{missing[0]!r}])"
            )

    def predict_proba(self, X: Any, groups: Any = None) -> Any:
        """Calibrated probabilities, in the array type, device, precision and shape of ``X``.

        ``groups`` is the group of each row, for a calibrator that was fitted with groups; ``groups="common"`` applies
        the common map to all rows, as is done for groups that were not seen in the fit.
        """
        return self._predicted(X, groups, lambda own, h, dtype: own.apply(h, dtype=dtype))

    def predict_positive(self, X: Any, groups: Any = None) -> Any:
        """Calibrated probabilities of the second of two classes, one number for each sample.

        >>> from attemper import TemperatureScaling
        >>> ts = TemperatureScaling().fit([2.0, -2.0, 2.0, 2.0], [1, 0, 1, 0])
        >>> ts.predict_positive([2.0, -1.0]).round(2), ts.predict_proba([2.0]).round(2)
        (array([0.75, 0.37]), array([[0.25, 0.75]]))
        """
        if self._check_is_fitted().n_features_in_ != 2:
            raise InputError(
                f"predict_positive: expected a calibrator of two classes, got one of {self.n_features_in_}. Use "
                "predict_proba."
            )
        probs = self.predict_proba(X, groups)
        axis = 1 if self.axis is None or probs.ndim == 2 else self.axis % probs.ndim
        return probs[(*[slice(None)] * axis, 1)]

    def predict_log_proba(self, X: Any, groups: Any = None) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        return self._predicted(X, groups, lambda own, h, dtype: own.log_apply(h, dtype=dtype))

    def predict(self, X: Any, groups: Any = None) -> Any:
        """Return the class with the largest probability.

        It is the one that the classifier gave before, unless the map is one that may change it.
        """

        def classes_of(own: Map, h: Any, dtype: Any) -> Any:
            value = h if own.keeps_arg_max else own.apply(h)
            if self.class_names is None:
                return array_api_compat.array_namespace(value).argmax(value, axis=1)
            return self.classes_[to_numpy(value).argmax(axis=1)]

        return self._predicted(X, groups, classes_of)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Return the share of right predictions; ``groups`` as for `predict`.

        Labels are names of the classes, or column numbers, as in `fit`.
        """
        names = self._check_is_fitted().class_names
        if names is not None and np.asarray(names).dtype.kind == "U" and to_numpy(y).dtype.kind in "iu":
            y = np.asarray(names)[to_numpy(y)]
        if groups is None:
            return super().score(X, y, sample_weight)
        right = to_numpy(self.predict(X, groups)) == to_numpy(y)
        return float(np.average(right, weights=None if sample_weight is None else to_numpy(sample_weight)))

    def _predicted(self, X: Any, groups: Any, predict: Callable[[Map, Any, Any], Any]) -> Any:
        """Predict all rows at once; an array with the classes along ``axis`` keeps its shape."""
        scores = self._check_is_fitted()._scores_of(X, groups)
        h = scores.logits
        if scores.groups is None or is_common(groups) or not hasattr(self, "group_maps_"):
            found = predict(self.map_, h, scores.dtype)
        else:
            found = self.group_maps_.predict(
                scores.groups, self.map_, h, lambda map_, some: predict(map_, some, scores.dtype)
            )
        return found if scores.layout is None or isinstance(X, Scores) else scores.layout.restored(found)

    def for_group(self, group: Any) -> Self:
        """Return this calibrator with the map of one group for all rows; ``"common"`` for the common map.

        Use it to export the map of a group. It cannot be saved; save the calibrator that has all groups.
        """
        maps: GroupMaps | None = getattr(self._check_is_fitted(), "group_maps_", None)
        if maps is None and not is_common(group):
            raise InputError(
                f"group={group!r}: this {type(self).__name__} was fitted without groups. Leave it out.", param="group"
            )
        new = copy(self)
        for name in () if maps is None else ("group_maps_", "groups_"):
            new.__dict__.pop(name, None)
        if maps is None or is_common(group):
            return new
        by_text = {str(key): own for key, own in maps.items()}
        if str(group) not in by_text:
            raise InputError(
                f"group={group!r}: expected one of {listed(by_text)}, or 'common' for the map of all groups",
                param="group",
            )
        new.map_, new.group_ = by_text[str(group)], str(group)
        return new

    @property
    def class_names(self) -> list[Any] | None:
        """Names of the columns: ``classes``, or the labels of the fit; None where those are column numbers."""
        if not hasattr(self, "classes_"):
            return None if self.classes is None else list(self.classes)
        numbers = self.classes is None and np.array_equal(self.classes_, np.arange(len(self.classes_)))
        return None if numbers else self.classes_.tolist()

    @classmethod
    def for_labels(cls, *, noisy: bool, noise: str | None = None, **parameters: Any) -> Self:
        """Return a calibrator for labels of this quality; most recipes know no difference."""
        if cls.knows_noise:
            quality = {"labels": "noisy" if noisy else "clean"} | ({} if noise is None else {"noise": noise})
            parameters = quality | parameters
        return cls(**parameters)

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        found = {} if self.map_.keeps_arg_max else {"changed": self.fit_report_.changed}
        return found | ({"groups": self.groups_.to_dict()} if hasattr(self, "groups_") else {})

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        if self.map_.keeps_arg_max:
            return self._group_lines()
        changes = f"changes the prediction in {self.fit_report_.changed:.2%} of the validation samples"
        return [changes, *self._group_lines()]

    def _group_lines(self) -> list[str]:
        return self.groups_.lines() if hasattr(self, "groups_") else []

    def known_within(self) -> float | None:
        """Return the factor within which the data fix the overall temperature; None where that is unknown."""
        return None

    def save(self, path: str | os.PathLike[str], *, provenance: Provenance | None = None) -> None:
        """Write the fitted calibrator as JSON, atomically; read it with `attemper.load`.

        The same data give the same bytes, unless ``provenance`` has a date.
        """
        write_document(path, "calibrator", self.to_document(provenance=provenance))

    def to_document(self, *, provenance: Provenance | None = None) -> dict[str, Any]:
        """Return what `save` writes, as plain numbers, text, lists and dicts."""
        if hasattr(self._check_is_fitted(), "group_"):
            raise InputError(
                f"group {self.group_}: expected a calibrator with all groups. Save the one it was taken of."
            )
        provenance = provenance or getattr(self, "provenance_", None)
        names = self.class_names
        content = {
            "method": self.method,
            "n_classes": int(self.n_features_in_),
            "input": self.input,
            "zeros_as": self.zeros_as,
            "classes": names,
            **(
                {"columns": columns}
                if (columns := [str(name) for name in getattr(self, "feature_names_in_", ())])
                else {}
            ),
            **{name: int(getattr(self, name)) for name in ("axis", "ignore_index") if getattr(self, name) is not None},
            "params": {name: _plain(getattr(self, name)) for name in self.own_params()},
            "map": self.map_.to_dict(),
            "report": to_fields(self.fit_report_),
            "fitted": to_fields(self, self.stored),
        }
        if hasattr(self, "adaptation_"):
            content["adaptation"] = to_fields(self.adaptation_)
        if hasattr(self, "group_maps_"):
            maps = [own.to_dict() for own in self.group_maps_.values()]
            content["groups"] = self.groups_.to_dict() | {"maps": maps}
        if provenance is not None:
            content["provenance"] = to_fields(provenance)
        if names is not None and any(n != n or not isinstance(n, str | int | float) for n in names):
            raise InputError("classes: only text and numbers can be saved as class names")
        return content

    @classmethod
    def from_fields(cls, content: Fields) -> Self:
        """Make a fitted calibrator from what `save` wrote."""
        n_classes = content.integer("n_classes")
        names = content.items("classes") if content.content.get("classes") is not None else None
        params = content.fields("params").content
        unknown = set(params) - set(cls.own_params())
        if unknown:
            raise FileError(f"{content.where}: the parameter {sorted(unknown)[0]!r} is unknown")
        params = {name: tuple(v) if isinstance(v, list) else v for name, v in params.items()}
        layout: Any = {name: content.integer(name) for name in ("axis", "ignore_index") if name in content}
        kind: Any = content.read("input", Literal["logits", "probs"])
        new = cls(**params, input=kind, zeros_as=content.read("zeros_as", float | None), classes=names, **layout)
        try:
            new._reset_fitted_state(n_classes, None)
        except InputError as error:
            raise FileError(f"{content.where}: {error}") from None
        new.map_ = map_from_fields(content.fields("map"))
        if new.map_.n_classes not in (None, n_classes):
            raise FileError(f"{content.where}: a map of {new.map_.n_classes} classes for {n_classes}")
        new.fit_report_ = from_fields(FitReport, content.fields("report"))
        new.__dict__.update(values_of(cls, content.fields("fitted"), cls.stored))
        if "adaptation" in content:
            new.adaptation_ = from_fields(Adaptation, content.fields("adaptation"))
        if "columns" in content:  # headers of the table of the fit
            new.feature_names_in_ = np.array(content.read("columns", tuple[str, ...]), dtype=object)
        if "groups" in content:
            by_group = content.fields("groups")
            new.groups_ = GroupFit.from_fields(by_group)
            new.group_maps_ = GroupMaps.from_fields(new.groups_.group, by_group)
        if "provenance" in content:
            new.provenance_ = from_fields(Provenance, content.fields("provenance"))
        return new

    # What a recipe may or must define.

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return the tables of a sketch that this fit needs in addition to the NLL; None: a sketch is not enough."""
        return self.sketch_tables

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense."""

    def _allow_for_clusters(self, scores: LabelledScores) -> None:
        """Widen intervals where rows are not independent: those of one case, or pixels of one image."""

    def _fit_groups(self, scores: LabelledScores) -> None:
        """Fit the maps of the groups, where the scores have groups; the common map is fitted."""
        if scores.groups is None:
            return
        from attemper.calibrators.clustering import tempered  # it has a recipe, which imports this file

        scores, _ = tempered(scores, biases=not self.keeps_arg_max)
        maps, found = fit_groups(
            self.map_,
            scores,
            self._label_errors(),
            recentred=not self.minimises_nll,
            level=getattr(self, "credible_level", 0.95),
        )
        self._take_groups(maps, found)

    def _label_errors(self) -> LabelErrors:
        """How labels go wrong, as this fit found it."""
        return LabelErrors()

    def _solve_scores(self, scores: LabelledScores) -> None:
        raise NotImplementedError

    def _solve_sketch(self, sketch: Sketch) -> None:
        raise NotImplementedError

    def _from_group_sketches(self, sketches: GroupSketches) -> tuple[GroupMaps, GroupFit]:
        raise NotImplementedError

    # What they share.

    def _scores(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        classes: Sequence[Any] | None = None,
        *,
        groups: Any = None,
        clusters: Any = None,
    ) -> LabelledScores:
        one_of("input", self.input, ("logits", "probs"))
        if isinstance(X, Scores):
            if not isinstance(X, LabelledScores):
                raise InputError("labels: these Scores hold none; a fit needs them")
            if y is not None or sample_weight is not None:
                raise InputError("a Scores brings its own labels and weights; give no others as well")
            if groups is not None or clusters is not None:
                name = "groups" if groups is not None else "clusters"
                raise InputError(
                    f"{name}: a Scores brings its own. Use Scores.from_logits(logits, labels, {name}=…), or "
                    "Scores.from_probs."
                )
            if X.input != self.input:
                raise InputError(f"these Scores hold {X.input}, but input={self.input!r}")
            if X.zeros_as != self.zeros_as:  # predictions would take zeros for something else
                made = f"{type(self).__name__}(input='probs', zeros_as={X.zeros_as!r})"
                raise InputError(
                    f"zeros_as: these Scores have {X.zeros_as!r}, but the calibrator has {self.zeros_as!r}, for "
                    f"predictions. Use {made}."
                )
            self._check_classes(X, self.classes)
            return X
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give one label per row"
            )
        more: dict[str, Any] = {"classes": self.classes if classes is None else classes}
        more |= {"sample_weight": sample_weight, "groups": groups, "clusters": clusters}
        return labelled(self._make_scores(X, y, ignore_index=self.ignore_index, **more))

    def _make_scores(self, X: Any, y: Any = None, **more: Any) -> Scores:
        if self.input == "probs":
            scores: Scores = Scores.from_probs(X, y, zeros_as=self.zeros_as, axis=self.axis, **more)
            return scores
        if self.zeros_as is not None:
            raise InputError(
                f"zeros_as={self.zeros_as!r}: only probabilities take zeros_as; "
                f"""use input='probs'""",
                param="input",
            )
        logits: Scores = Scores.from_logits(X, y, axis=self.axis, **more)
        return logits

    def _reset_fitted_state(self, n_classes: int, X: Any, classes: Sequence[Any] | None = None) -> None:
        classes = classes if self.classes is None else self.classes
        names = None if classes is None else as_names(classes, n_classes)
        self._check_parameters()
        for name in [a for a in vars(self) if a.endswith("_") and not a.startswith("_")]:
            delattr(self, name)  # nothing of an earlier fit may stay
        self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes) if names is None else np.asarray(names)
        self._column_names(X, reset=True)

    def _warn_of_order(self) -> None:
        if self.class_names is not None and not _ascends(self.classes_.tolist()):
            warn(
                "classes: the names are not in sorted order. They are used in the order given, one per column, but "
                "scikit-learn's scorers of probabilities (neg_log_loss, …) take columns to be in sorted order."
            )

    @classmethod
    def own_params(cls) -> list[str]:
        """Return the parameters that not all calibrators share."""
        return [name for name in cls._get_param_names() if name not in SHARED_PARAMS]

    def _check_is_fitted(self) -> Self:
        if not hasattr(self, "map_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with validation logits and "
                "labels first."
            )
        return self

    def _take_groups(self, maps: GroupMaps, found: GroupFit) -> None:
        """Keep the maps of groups, and add to the report how their fit went."""
        self.group_maps_, self.groups_ = maps, found
        report = self.fit_report_
        state = "" if found.converged else ", which did NOT converge"
        message = f"{report.message}; maps of {len(found)} groups{state}, log T to {found.log_t_error:.0e}"
        self.fit_report_ = replace(report, converged=report.converged and found.converged, message=message)

    def _check_groups(self, scores: Scores, groups: Any) -> None:
        """Refuse rows without a group where groups have maps, and groups where they have none."""
        if is_common(groups):
            return
        maps = getattr(self, "group_maps_", None)
        if maps is None and groups is not None:
            raise InputError(
                f"groups: this {type(self).__name__} was fitted without groups, so there is one map for all rows. "
                "Leave groups out, or fit with groups."
            )
        if maps is not None and scores.groups is None:
            use = 'groups=…, one id for each row, or groups="common"'
            raise InputError(
                f"groups: this {type(self).__name__} has maps of {len(maps)} groups ({listed(map(str, maps))}), but "
                f"these rows have no groups. Use {use} to apply the common map to all rows."
            )
        if maps is not None:
            self._warn_of_other_groups(maps, scores.groups)

    @staticmethod
    def _warn_of_other_groups(maps: GroupMaps, groups: Any) -> None:
        """Warn of several groups, none of them of the fit: another column was passed, or ids are written otherwise."""
        found = [str(name) for name in np.unique(groups).tolist()]
        if len(found) < 2 or {str(name) for name in maps} & set(found):
            return
        warn(
            f"groups: expected those of the fit ({listed(map(str, maps))}), got none of them, but {listed(found)}; the "
            f"common map is applied to all of these {len(groups)} rows. Use "
            "groups='common' if that is what you want."
        )

    def _scores_of(self, X: Any, groups: Any = None) -> Scores:
        """Check what is to be predicted."""
        self._column_names(X, reset=False)
        ids = None if is_common(groups) else groups
        scores: Scores = X
        if not isinstance(X, Scores):
            shape: tuple[int, ...] = () if getattr(X, "is_nested", False) else getattr(X, "shape", ())
            if len(shape) == 2 and shape[1] != self.n_features_in_ and (shape[1], self.n_features_in_) != (1, 2):
                self._reject_columns(shape[1])
            what = "logits" if self.input == "logits" else "probabilities"
            if self.n_features_in_ != 2 and is_one_column(as_numbers(X, what)):
                as_matrix(X, what)  # raises
            scores = self._make_scores(X, groups=ids)
        elif ids is not None and X.groups is not None:
            raise InputError("groups: these Scores have their own; pass no others, or groups='common'")
        elif ids is not None:
            scores = replace(X, groups=as_ids(ids, len(X), "groups"))
        self._check_groups(scores, groups)
        if scores.n_classes != self.n_features_in_:
            self._reject_columns(scores.n_classes)
        self._check_classes(scores, self.class_names)
        return scores

    @staticmethod
    def _check_classes(scores: Scores, names: Sequence[Any] | None) -> None:
        """Refuse scores whose classes are the same in another order."""
        found = scores.classes
        if names is not None and found is not None and list(names) != list(found) and set(names) == set(found):
            raise InputError(
                f"classes: expected columns in the order {listed(map(str, names))}, that of the calibrator, got "
                f"{listed(map(str, found))}. Put them in this order."
            )

    def _column_names(self, X: Any, *, reset: bool) -> None:
        """Remember the column names of a table, or compare them with those of the fit."""
        if isinstance(X, Scores):
            known = list(getattr(self, "feature_names_in_", ()))
            names = list(X.columns or ())
            if reset and names:
                self.feature_names_in_ = np.array(names, dtype=object)
            elif known != names and sorted(known) == sorted(names):
                raise InputError(
                    f"columns: expected {listed(known)}, the order of the fit, got {listed(names)}. Pass these names "
                    "in the order of the fit with columns=[…]."
                )
            return
        if not hasattr(X, "columns"):
            return
        try:
            validate_data(self, X, skip_check_array=True, reset=reset, ensure_2d=False)  # one column is of two classes
        except TypeError as error:
            raise InputTypeError(str(error)) from None
        except ValueError as error:
            raise InputError(str(error)) from None

    def _reject_columns(self, count: int) -> None:
        raise InputError(
            f"X has {count} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
            "input: one column per class"
        )


def _ascends(names: list[Any]) -> bool:
    try:
        return all(a < b for a, b in pairwise(names))
    except TypeError:
        return False


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | tuple | list) else value
