"""Other class priors than those of the validation data: known ones, or estimated from unlabelled data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.calibrators.adaptation import Adaptation, adaptation_of, check_plausible
from attemper.calibrators.group_fits import GroupMaps, is_common
from attemper.data.arrays import to_numpy
from attemper.data.ids import as_ids
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError
from attemper.maps import Map, TiltedMap
from attemper.priors import as_priors, estimate_priors, label_shift_test
from attemper.priors.label_shift import PREDICTED_CLASSES

__all__ = ["ChangesPriors"]

MOST_ELEMENTS = 1 << 22  # of predictions for new data that the estimate uses; beyond, a random sample of the rows
IMPOSSIBLE = -1e30  # bias of a class with a prior of zero


class ChangesPriors:
    """What a calibrator knows of class priors, and how it changes them."""

    if TYPE_CHECKING:  # what `Calibrator` has
        adaptation_: Adaptation
        map_: Map
        group_maps_: GroupMaps
        n_features_in_: int
        class_names: Any
        predict_proba: Callable[..., Any]
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
            Shares under which the probabilities are right: the mean prediction on validation data,
            ``calibrator.predict_proba(X).mean(axis=0)``. If classes were resampled for training *and* validation, pass
            the shares after resampling, and the shares of the population as ``new``. By default those that `adapt` or
            an earlier call had.

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
            if not hasattr(self, "adaptation_"):
                raise InputError(
                    "old: expected the shares under which the probabilities are right, got none. Use "
                    "old=calibrator.predict_proba(X).mean(axis=0) on validation data.",
                    param="old",
                )
            return self._before_adaptation()._tilted(Adaptation(old=self.adaptation_.old, new=shares))
        before = as_priors(old, k, names, "old")
        return self._tilted(Adaptation(old=before, new=shares))

    def adapt(
        self,
        X: Any,
        *,
        validation: Any = None,
        old: Any = None,
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
        X : array of shape (n_samples, n_classes), or `Scores`
            As for `predict_proba`. Of very many rows a random sample is used.
        validation : (X, y) or labelled `Scores`
            Data like those of the fit: they show the shares under which the probabilities are right, and whether it is
            label shift.
        old : shares of the classes, optional
            Under which the probabilities are right; by default the mean prediction on ``validation``. With ``old``
            alone there is no test.
        groups : array of shape (n_samples,), or "common", optional
            For a calibrator that was fitted with groups: as for `predict_proba`. `Scores` and ``validation`` (as
            `Scores`) bring their own. The shares are those of all rows together.
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
        >>> val = draw(2000, [0.4, 0.3, 0.3])
        >>> adapted = VectorScaling().fit(*val).adapt(draw(3000, [0.1, 0.3, 0.6])[0], validation=val)
        >>> adapted.adaptation_.new.round(1)
        array([0.1, 0.3, 0.6])
        """
        base = self._check_is_fitted()._before_adaptation()
        common = is_common(groups)
        if groups is not None and not common and isinstance(X, Scores):
            raise InputError("groups: a Scores brings its own. Use Scores.from_logits(…, groups=…).")
        if clusters is not None and isinstance(X, Scores):
            raise InputError("clusters: a Scores brings its own. Use Scores.from_logits(…, clusters=…).")
        reference = None if validation is None else base._labelled_predictions(validation, common)
        if old is not None:
            before = as_priors(old, self.n_features_in_, self.class_names, "old")
        elif reference is not None:
            before = np.average(reference.probs, axis=0, weights=reference.weights)
        else:
            raise InputError(
                f"validation: {type(self).__name__} does not know the shares under which its probabilities are right. "
                "Use validation=(logits, labels), or old=[…].",
                param="validation",
            )
        scores = base._scores_of(X, groups)
        new = _Predictions(
            _rows_of(base.predict_proba(scores, "common" if common else None)),
            None,
            scores.weights,
            scores.clusters if clusters is None else as_ids(clusters, len(scores)),
        )
        has_labels = None if reference is None else reference.with_labels
        some = new.sample(MOST_ELEMENTS, seed)
        found = estimate_priors(
            some.probs,
            before,
            n_reference=None if reference is None else reference.n_samples,
            labelled=has_labels,
            sample_weight=some.weights,
            clusters=some.clusters,
            confidence_level=confidence_level,
            n_resamples=n_resamples,
            seed=seed,
        )
        test = None
        if reference is not None:
            test = label_shift_test(
                reference.probs,
                reference.labels,
                new.probs,
                priors=found.priors if self.n_features_in_ > PREDICTED_CLASSES else None,
                val_sample_weight=reference.weights,
                val_clusters=reference.clusters,
                sample_weight=new.weights,
                clusters=new.clusters,
                seed=seed,
            )
        check_plausible(test, force)
        return base._tilted(adaptation_of(found, before, test, has_labels))

    # How it is done.

    def _labelled_predictions(self, validation: Any, common: bool) -> _Predictions:
        scores = labelled(validation) if isinstance(validation, Scores) else self._scores(*validation, None)
        probs = _rows_of(self.predict_proba(scores, "common" if common else None))
        return _Predictions(probs, scores.labels, scores.weights, scores.clusters)

    def _before_adaptation(self) -> Self:
        """Return this calibrator with the priors of its fit."""
        adaptation: Adaptation | None = getattr(self, "adaptation_", None)
        if adaptation is None:
            return self
        new = copy(self)
        del new.adaptation_
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
        new.adaptation_ = adaptation
        return new


class _Predictions(NamedTuple):
    """Calibrated predictions, and what belongs to their rows."""

    probs: Floats
    labels: Any
    weights: Floats | None
    clusters: Any

    @property
    def n_samples(self) -> float:
        """How many independent samples there are: clusters count as one."""
        if self.clusters is not None:
            return float(len(np.unique(self.clusters)))
        return float(len(self.probs)) if self.weights is None else float(self.weights.sum())

    @property
    def with_labels(self) -> NDArray[np.bool_]:
        """Whether each class has labels."""
        return np.bincount(self.labels, self.weights, self.probs.shape[1]) > 0

    def sample(self, elements: int, seed: int) -> _Predictions:
        """Return at most so many numbers, of rows drawn at random."""
        n, most = len(self.probs), max(2000, elements // self.probs.shape[1])
        if n <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
        weights, clusters = (None if v is None else np.asarray(v)[rows] for v in (self.weights, self.clusters))
        return _Predictions(self.probs[rows], None, weights, clusters)


def _rows_of(probs: Any) -> Floats:
    """Probabilities as NumPy has them, in double precision; what half precision loses of a sum of 1 is given back."""
    p = to_numpy(probs).astype(np.float64)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


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
