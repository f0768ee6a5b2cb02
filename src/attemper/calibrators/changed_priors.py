"""Other class priors than those of the validation data: known ones, or estimated from unlabelled data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from attemper._json import Fields
from attemper._typing import Floats
from attemper.calibrators.adaptation import Adaptation, adaptation_of, check_plausible
from attemper.calibrators.group_fits import GroupMaps, is_common
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.ids import as_ids
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError
from attemper.maps import Map, TiltedMap
from attemper.priors import PredictionCounts, PriorEstimate, as_priors, estimate_priors, label_shift_test
from attemper.priors.counts import MAX_CLASSES, weight_of_cluster
from attemper.priors.estimate import priors_of_counts
from attemper.priors.sample import RowSample

__all__ = ["ChangesPriors"]

COUNTED = ("prediction_counts_", "class_prior_")  # of the data of the fit
REFERENCE_ROWS, REFERENCE_ELEMENTS = 20_000, 1 << 23  # of a fit that are counted: so many show what is needed
SAMPLE_ROWS, SAMPLE_ELEMENTS = 2000, 1 << 22  # of new data that are kept: at least, and of more rows so many numbers
IMPOSSIBLE = -1e30  # bias of a class with a prior of zero


class ChangesPriors:
    """What a calibrator knows of class priors, and how it changes them."""

    if TYPE_CHECKING:  # what `Calibrator` has
        class_prior_: Floats
        prediction_counts_: PredictionCounts
        adaptation_: Adaptation
        map_: Map
        group_maps_: GroupMaps
        n_features_in_: int
        class_names: Any
        predict_proba: Callable[..., Any]
        _counts_are_common: bool  # those of `with_reference`, of a calibrator with groups
        _check_is_fitted: Callable[[], Self]
        _scores: Callable[..., LabelledScores]
        _scores_of: Callable[[Any, Any], Scores]

    def with_priors(self, new: Any, old: Any = None) -> Self:
        """Return this calibrator for data with other shares of the classes: p(y | x) ∝ p_old(y | x) · new / old.

        Parameters
        ----------
        new : array of shape (n_classes,), or dict by class name
            Shares of the classes where the calibrator is used; they add up to 1. A class with a share of 0 becomes
            impossible.
        old : the same, optional
            Shares under which the probabilities are right. By default ``class_prior_``, the mean prediction on the
            data of the fit. If classes were resampled for training *and* validation, pass the shares after resampling,
            and the shares of the population as ``new``.

        Examples
        --------
        >>> from attemper import TemperatureScaling
        >>> ts = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 0, 1])
        >>> ts.predict_proba([[2.0, 0.0]]).round(3)
        array([[0.75, 0.25]])
        >>> ts.with_priors([0.9, 0.1], old=[0.5, 0.5]).predict_proba([[2.0, 0.0]]).round(3)
        array([[0.964, 0.036]])
        """
        self._check_is_fitted()
        k, names = self.n_features_in_, self.class_names
        shares = as_priors(new, k, names, "new")
        if old is None:
            base = self._before_adaptation()
            return base._tilted(Adaptation(old=base._known_prior(), new=shares))
        before = as_priors(old, k, names, "old")
        return self._tilted(Adaptation(old=before, new=shares))

    def adapt(
        self,
        X: Any,
        *,
        old: Any = None,
        validation: Any = None,
        groups: Any = None,
        clusters: Any = None,
        force: bool = False,
        confidence_level: float = 0.95,
        n_resamples: int = 200,
        seed: int = 0,
    ) -> Self:
        """Return this calibrator for data with the shares of the classes of these unlabelled data.

        The shares are the most likely ones under label shift, found by what EM (Saerens et al. 2002) tends to, shrunk
        towards the old ones as far as the data do not show a difference. If no mix of the classes explains the
        predictions, it is no label shift, and an error. ``adaptation_`` has the result.

        Parameters
        ----------
        X : array of shape (n_samples, n_classes), `Scores`, `PredictionCounts`, or an iterator of such pieces
            As for `predict_proba`. Of very many rows a random sample is used.
        old : shares of the classes, optional
            Under which the probabilities are right; by default ``class_prior_``.
        validation : (X, y), labelled `Scores` or labelled `PredictionCounts`, optional
            Data like those of the fit, for ``class_prior_`` and for the test. Needed after a fit from sketches.
        groups : array of shape (n_samples,), or "common", optional
            For a calibrator that was fitted with groups: as for `predict_proba`. Pieces, `Scores` and ``validation``
            (as `Scores`) bring their own. The shares are those of all rows together.
        clusters : array of shape (n_samples,), optional
            Which rows are of one patient, document or user.
        force : bool
            Adapt also where another mix of the classes does not explain the predictions, with a warning.
        confidence_level, n_resamples, seed
            Of the intervals, by bootstrap.

        Examples
        --------
        >>> import numpy as np
        >>> from attemper import VectorScaling
        >>> rng = np.random.default_rng(0)
        >>> def draw(n, shares):
        ...     y = rng.choice(3, n, p=shares)
        ...     return 2 * np.eye(3)[y] + rng.normal(size=(n, 3)), y
        >>> calibrator = VectorScaling().fit(*draw(2000, [0.4, 0.3, 0.3]))
        >>> adapted = calibrator.adapt(draw(3000, [0.1, 0.3, 0.6])[0])
        >>> adapted.adaptation_.new.round(1)
        array([0.1, 0.3, 0.6])
        """
        base = self._check_is_fitted()._before_adaptation()
        if validation is not None:
            base = base.with_reference(validation, groups="common" if is_common(groups) else None)
        elif is_common(groups) and hasattr(base, "group_maps_") and not getattr(base, "_counts_are_common", False):
            # What the fit counted are predictions by group.
            base = copy(base)
            for name in COUNTED:
                base.__dict__.pop(name, None)
        reference: PredictionCounts | None = getattr(base, "prediction_counts_", None)
        before = base._known_prior() if old is None else as_priors(old, self.n_features_in_, self.class_names, "old")
        settings: Any = {"confidence_level": confidence_level, "n_resamples": n_resamples, "seed": seed}
        if isinstance(X, PredictionCounts):
            counts: PredictionCounts | None = X
            found = _of_counts(reference, X, settings)
        else:
            counts, sample = base._seen(X, groups, clusters, seed)
            n_reference = None if reference is None else reference.n_samples
            found = estimate_priors(
                sample.probs,
                before,
                n_reference=n_reference,
                labelled=None if reference is None else reference.counts.sum(axis=0) > 0,
                sample_weight=sample.weights,
                clusters=sample.clusters,
                **settings,
            )
        test = None
        if reference is not None and counts is not None:
            fixed = found.priors if reference.confusion is None else None
            test = label_shift_test(reference, counts, priors=fixed, seed=seed)
        check_plausible(test, force)
        return base._tilted(adaptation_of(found, before, test, reference, counts))

    def with_reference(self, validation: Any, *, groups: Any = None) -> Self:
        """Return this calibrator with the counts of its predictions on labelled data, which `adapt` needs.

        Parameters
        ----------
        validation : (X, y), labelled `Scores` or labelled `PredictionCounts`
            Data like those of the fit. Counts of several sites add up.
        groups : array of shape (n_samples,), or "common", optional
            For a calibrator that was fitted with groups: as for `predict_proba`.
        """
        new = copy(self._check_is_fitted()._before_adaptation())
        if isinstance(validation, PredictionCounts):
            if not validation.labelled or validation.n_classes != self.n_features_in_:
                raise InputError(
                    f"validation: expected counts of {self.n_features_in_} classes with labels, got {validation!r}"
                )
            new.prediction_counts_, new.class_prior_ = validation, validation.mean
            return new
        scores = (
            labelled(validation)
            if isinstance(validation, Scores)
            else self._scores(*validation, None, groups=_ids(groups))
        )
        if scores.n_classes > MAX_CLASSES:
            raise InputError(f"validation: expected at most {MAX_CLASSES} classes, got {scores.n_classes}; pass old=…")
        new._count_predictions(scores, common=is_common(groups))
        new._counts_are_common = is_common(groups)
        return new

    def without_counts(self) -> Self:
        """Return this calibrator without the counts of its predictions, which may point to single samples."""
        new = copy(self._check_is_fitted())
        new.__dict__.pop("prediction_counts_", None)
        return new

    def count_predictions(self, X: Any, y: Any = None, *, groups: Any = None, clusters: Any = None) -> PredictionCounts:
        """Count the calibrated predictions for data, with labels or without: a small table that adds up.

        Counts of labelled data are for `with_reference`, counts of unlabelled data for `adapt`. ``groups`` are as for
        `predict_proba`.
        """
        base = self._check_is_fitted()._before_adaptation()
        if y is None and not isinstance(X, LabelledScores):
            counts, _ = base._seen(X, groups, clusters, 0)
            if counts is None:
                raise InputError(f"X: expected at most {MAX_CLASSES} classes, got {self.n_features_in_}")
            return counts
        scores = self._scores(X, y, None, groups=_ids(groups), clusters=clusters)
        return base._counted(scores, common=is_common(groups))

    # How it is done.

    def _count_predictions(self, scores: LabelledScores, common: bool = False) -> None:
        """Keep the mean prediction and the counts of labelled data, or of some of their rows."""
        if scores.n_classes > MAX_CLASSES:
            return
        rows = min(REFERENCE_ROWS, REFERENCE_ELEMENTS // scores.n_classes)
        some = scores.sample(rows)
        counts = self._counted(some, common or (some.groups is None and scores.groups is not None))
        if counts.weight > 0:
            self.prediction_counts_, self.class_prior_ = counts, counts.mean

    def _counted(self, scores: LabelledScores, common: bool) -> PredictionCounts:
        clusters, w, groups = scores.clusters, scores.weights, "common" if common else None
        whole = None if clusters is None else weight_of_cluster(clusters, np.ones(len(scores)) if w is None else w)
        found = []
        for part in row_slices(len(scores), scores.n_classes):
            some = scores._some(part)
            weights = None if whole is None else whole[part]
            probs = _rows_of(self.predict_proba(some, groups))
            found.append(PredictionCounts.of(probs, some.labels, sample_weight=some.weights, cluster_weight=weights))
        return reduce(operator.add, found)

    def _known_prior(self) -> Floats:
        if not hasattr(self, "class_prior_"):
            why = f"it has {self.n_features_in_} classes" if self.n_features_in_ > MAX_CLASSES else (
                "it was fitted with groups, whose own maps predicted" if hasattr(self, "groups_") else
                "it was fitted from a sketch, which holds no predictions, or by an older version"
            )  # fmt: skip
            raise InputError(
                f"class_prior_: {type(self).__name__} does not know the class priors of its fit: {why}. Use "
                + "validation=(logits, labels), or old=[…]"
                + " with the shares under which its probabilities are right.",
                param="validation",
            )
        return self.class_prior_

    def _before_adaptation(self) -> Self:
        """Return this calibrator with the priors of its fit."""
        adaptation: Adaptation | None = getattr(self, "adaptation_", None)
        if adaptation is None:
            return self
        new = copy(self)
        del new.adaptation_
        new.class_prior_ = adaptation.old
        new.map_ = _without_bias(self.map_)
        if hasattr(self, "group_maps_"):
            new.group_maps_ = GroupMaps({name: _without_bias(own) for name, own in self.group_maps_.items()})
        return new

    def _tilted(self, adaptation: Adaptation) -> Self:
        """Return this calibrator with the maps and priors of an adaptation."""
        bias = _log_ratio(adaptation.new, adaptation.old, self.class_names)
        new = copy(self)
        earlier: Adaptation | None = getattr(self, "adaptation_", None)
        if earlier is not None:
            adaptation = replace(adaptation, old=earlier.old)
        new.map_ = _with_bias(self.map_, bias, earlier is not None)
        if hasattr(self, "group_maps_"):
            maps = {name: _with_bias(own, bias, earlier is not None) for name, own in self.group_maps_.items()}
            new.group_maps_ = GroupMaps(maps)
        new.class_prior_, new.adaptation_ = adaptation.new, adaptation
        return new

    def _seen(self, X: Any, groups: Any, clusters: Any, seed: int) -> tuple[PredictionCounts | None, RowSample]:
        """Go through new data once: counts of all predictions, and those of some rows."""
        pieces = X if isinstance(X, Iterator) else iter([X])
        for name, ids in (("groups", _ids(groups)), ("clusters", clusters)):
            if ids is not None and isinstance(X, Iterator | Scores):
                raise InputError(f"{name}: pieces and Scores bring their own. Use Scores.from_logits(…, {name}=…).")
        counts: PredictionCounts | None = None
        sample = RowSample(seed, max(SAMPLE_ROWS, SAMPLE_ELEMENTS // self.n_features_in_))
        for piece in pieces:
            scores = self._scores_of(piece, groups)
            own = scores.clusters if clusters is None else as_ids(clusters, len(scores))
            probs = _rows_of(self.predict_proba(scores, "common" if is_common(groups) else None))
            if self.n_features_in_ <= MAX_CLASSES:
                found = PredictionCounts.of(probs, sample_weight=scores.weights, clusters=own)
                counts = found if counts is None else counts + found
            sample.add(probs, scores.weights, own)
        if sample.probs is None:
            raise InputError("X: expected predictions, got an iterator of none")
        return counts, sample

    def _prior_fields(self) -> dict[str, Any]:
        """Return what a file keeps of the priors."""
        found: dict[str, Any] = {}
        if hasattr(self, "class_prior_"):
            found["class_prior"] = self.class_prior_.tolist()
        if hasattr(self, "prediction_counts_"):
            found["counts"] = self.prediction_counts_.to_dict()
        return found

    def _priors_from_fields(self, content: Fields) -> None:
        """Read back what `_prior_fields` gave."""
        k = self.n_features_in_
        if "class_prior" in content:
            self.class_prior_ = content.array("class_prior", (k,))  # as it was written, to the last bit
            as_priors(self.class_prior_, k, what=f"{content.where}: class_prior")
        if "counts" in content:
            self.prediction_counts_ = PredictionCounts.from_fields(content.fields("counts"))
            if self.prediction_counts_.n_classes != k or not self.prediction_counts_.labelled:
                raise InputError(
                    f"{content.where}: counts of {self.prediction_counts_.n_classes} classes, expected {k}"
                )


def _rows_of(probs: Any) -> Floats:
    """Probabilities as NumPy has them, in double precision; what half precision loses of a sum of 1 is given back."""
    p = to_numpy(probs).astype(np.float64)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _ids(groups: Any) -> Any:
    """Return the group of each row; None if there are none, or all rows get the common map."""
    return None if is_common(groups) else groups


def _log_ratio(new: Floats, old: Floats, names: Sequence[Any] | None) -> Floats:
    """Return log(new / old); a class without a share becomes impossible."""
    never = np.flatnonzero((old == 0) & (new > 0))
    if len(never):
        name = never[0] if names is None else names[never[0]]
        raise InputError(
            f"old: the share of class {name} is 0, so no factor gives it a share of "
            f"{new[never[0]]:g}. Use data that have that class for the fit.",
            param="old",
        )
    bias = np.full(len(new), IMPOSSIBLE)
    seen = new > 0
    bias[seen] = np.log(new[seen] / old[seen])
    return bias


def _with_bias(before: Map, bias: Floats, has_one: bool) -> Map:
    if has_one:
        assert isinstance(before, TiltedMap)
        assert before.bias is not None
        return TiltedMap(before.base, before.scale, np.maximum(before.bias + bias, IMPOSSIBLE))
    return TiltedMap(before, 1.0, bias)


def _without_bias(adapted: Map) -> Map:
    assert isinstance(adapted, TiltedMap)
    return adapted.base


def _of_counts(reference: PredictionCounts | None, new: PredictionCounts, settings: Any) -> PriorEstimate:
    if reference is None:
        raise InputError(
            "X: counts of predictions are compared with counts of labelled data, which this calibrator does not have. "
            "Use validation=(logits, labels)."
        )
    if reference.confusion is None:
        raise InputError(
            f"X: counts show the mix of up to 32 classes, got {new.n_classes}. Use the rows, or an iterator of pieces."
        )
    if new.labelled or new.n_classes != reference.n_classes:
        raise InputError(f"X: expected counts of {reference.n_classes} classes without labels, got {new!r}")
    return priors_of_counts(reference, new, **settings)
