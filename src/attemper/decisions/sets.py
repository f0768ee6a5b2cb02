"""Prediction sets: a rule that returns a few classes instead of one, how to apply it, how to keep it in a file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from attemper._checks import same_classes, whole
from attemper._json import from_fields, read_document, to_fields, write_document
from attemper._table import Columns, Table, as_list, as_table
from attemper._typing import Floats
from attemper.data.arrays import one_line, row_slices
from attemper.data.binary import as_columns
from attemper.data.layout import check_independent
from attemper.data.scores import Scores
from attemper.decisions.certificates import most_errors, samples_needed
from attemper.errors import FileError, InputError, listed, warn
from attemper.kernels.conformal import order_for, score_classes
from attemper.kernels.set_mask import SetRule
from attemper.metrics.predictions import Predictions, names_of_labels

__all__ = ["PredictionSets", "SetPolicy", "checked_samples", "order_of"]

Score = Literal["lac", "aps", "raps"]
By = Literal["class", "group"]
Action = Literal["decide", "list", "refer"]
DOCUMENT = "set policy"
ROOM = 1e-9  # so that rounding takes no class out; it can only add some
TITLES = {"lac": "LAC", "aps": "APS", "raps": "RAPS"}


@dataclass(frozen=True, repr=False)
class PredictionSets(Table):
    """The classes that remain possible for each sample: `SetPolicy.sets` returns it.

    A set of one class is a decision, one of at most ``max_size`` classes a short list, and any other is referred; so is
    a set of all classes, which rules nothing out.
    """

    __repr__ = one_line

    mask: NDArray[np.bool_]  # N×K: which classes are in the set
    probs: Floats  # N×K
    max_size: int = 3
    classes: tuple[str, ...] | None = None

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many classes are in each set."""
        return np.asarray(self.mask.sum(axis=1, dtype=np.int64))

    @cached_property
    def prediction(self) -> NDArray[np.int64]:
        """The most probable class of each set (the first, when tied), as a column number; −1 for an empty set."""
        best = np.where(self.mask, self.probs, -1.0).argmax(axis=1)
        return np.where(self.sizes > 0, best, -1).astype(np.int64)

    @cached_property
    def action(self) -> NDArray[np.str_]:
        """For each sample "decide", "list" or "refer"."""
        short = (self.sizes > 1) & (self.sizes <= self.max_size) & (self.sizes < self.mask.shape[1])
        return np.where(self.sizes == 1, "decide", np.where(short, "list", "refer"))

    def lists(self) -> list[list[Any]]:
        """Return the classes of each set by name (column number without names), the most probable first."""
        order = np.argsort(-self.probs, axis=1, kind="stable")
        names: Any = range(self.mask.shape[1]) if self.classes is None else self.classes
        return [[names[k] for k in row if inside[k]] for row, inside in zip(order.tolist(), self.mask.tolist())]

    def __len__(self) -> int:
        """Return N, the number of samples."""
        return len(self.mask)

    def _table_columns(self) -> Columns:
        sets = [", ".join(map(str, names)) for names in self.lists()]
        return {"set": sets, "size": self.sizes, "action": self.action}


@dataclass(frozen=True, repr=False)
class SetPolicy(Table):
    """A rule that returns a set of classes, with a guaranteed coverage; `prediction_sets` makes one.

    A class is in the set where its score is at most the threshold: that of all samples, of the class itself
    (``by="class"``), or of the sample's group (``by="group"``).
    """

    score: Score
    coverage: float
    thresholds: tuple[float | None, ...]  # None: too few samples, so every class (this class) is in the set
    n_units: tuple[int, ...]  # samples, or clusters, that each threshold was taken from
    n_classes: int
    n_samples: int
    by: By | None = None
    groups: tuple[int | str, ...] | None = None  # of by="group", in the order of the thresholds
    unit: Literal["sample", "cluster"] = "sample"
    confidence_level: float | None = None  # None: the coverage holds on average over draws of these samples
    penalty: float = 0.0  # λ of RAPS
    k_reg: int = 0  # of RAPS: places without a penalty
    randomized: bool = False  # APS and RAPS: add a random share of the own probability, new for each sample
    allow_empty: bool = False  # False: the most probable class is in every set
    max_size: int = 3  # of sets that are listed; larger ones are referred
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    map_sha256: str | None = None  # of the map whose probabilities it is for

    def __repr__(self) -> str:
        return f"SetPolicy({self.rule()!r}, n_classes={self.n_classes}, n_samples={self.n_samples})"

    def sets(
        self, probs: ArrayLike | Any, *, groups: Any = None, seed: int | np.random.Generator = 0
    ) -> PredictionSets:
        """Apply the rule to calibrated probabilities, N×K, of any array library.

        Parameters
        ----------
        probs : array of shape (N, K)
        groups : array of shape (N,)
            With ``by="group"``: the group of each sample. One that the rule does not know gets every class.
        seed : int or Generator
            Of ``randomized`` scores. A Generator continues where the call before stopped.

        Examples
        --------
        >>> policy = SetPolicy("lac", 0.9, (0.75,), (99,), n_classes=3, n_samples=99)
        >>> sets = policy.sets([[0.9, 0.06, 0.04], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
        >>> sets.mask
        array([[ True, False, False],
               [ True,  True, False],
               [ True,  True,  True]])
        >>> sets.action.tolist(), sets.lists()
        (['decide', 'list', 'refer'], [[0], [0, 1], [2, 0, 1]])
        """
        given = checked_samples(probs, groups=groups)
        p = given.probs.astype(np.float64)
        same_classes(self.n_classes, p.shape[1], of="the policy", where="probabilities")
        limits = self._limits(given.groups)
        rng = (
            seed
            if isinstance(seed, np.random.Generator)
            else np.random.default_rng([whole("seed", seed, at_least=0), 2])
        )
        mask = np.empty(p.shape, dtype=bool)
        for rows in row_slices(*p.shape):
            mask[rows] = self.classes_within(p[rows], limits[rows] if len(limits) > 1 else limits, rng)
        return PredictionSets(mask, p, self.max_size, self.classes)

    def classes_within(self, p: Floats, limits: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return which classes have a score of at most their limit, 1 or N × 1 or K."""
        share: Any = rng.random(len(p)) if self.randomized else 0.0
        mask: NDArray[np.bool_] = score_classes(self.score, p, share, self.penalty, self.k_reg) <= limits + ROOM
        return mask if self.allow_empty else mask | (p == p.max(axis=1, keepdims=True))

    def _limits(self, groups: NDArray[Any] | None) -> Floats:
        limits = np.array([math.inf if t is None else t for t in self.thresholds])
        if self.by != "group":
            return limits[None, :]
        assert self.groups is not None
        if groups is None:
            raise InputError(
                "groups: expected the group of each sample, as the policy has a threshold for each group, got none. "
                f"Use groups=…; its groups are {listed(map(str, self.groups))}.",
                param="groups",
            )
        place = {str(name): i for i, name in enumerate(self.groups)}  # in a table the number 1 may be text
        values, inverse = np.unique(groups, return_inverse=True)
        number = np.array([place.get(str(value), -1) for value in values.tolist()])[inverse]
        unknown = groups[number < 0]
        if unknown.size:
            names = [str(name) for name in np.unique(unknown)]
            warn(
                f"groups: {len(unknown)} samples are of groups that the policy was not fitted on ({listed(names)}); "
                "nothing is known of these, so every class is in their sets"
            )
        return np.asarray(np.append(limits, math.inf)[number][:, None])

    def rule(self) -> str:
        """Return the rule as a sentence."""
        title = TITLES[self.score] + (", randomized" if self.randomized else "")
        which = {None: "the threshold", "class": "the threshold of the class", "group": "the threshold of the group"}
        value = f" {self.thresholds[0]:.6g}" if self.by is None and self.thresholds[0] is not None else ""
        if all(t is None for t in self.thresholds):
            return "every class is in every set"
        return f"a class is in the set if its {title} score is at most {which[self.by]}{value}"

    def promise(self) -> str:
        """Return the guarantee as a sentence, in plain words."""
        of = {"sample": "new samples", "cluster": "random samples, one from each new cluster,"}[self.unit]
        each = {None: "", "class": " of each class", "group": " of each group"}[self.by]
        held = f"the set holds the true class for at least {self.coverage:.4g} of {of}{each} like these"
        if self.confidence_level is None:
            return f"{held}, on average over draws of the calibration samples"
        return f"with confidence {self.confidence_level:.4g} in the draw of the calibration samples, {held}"

    @property
    def coverage_range(self) -> tuple[tuple[float, float], ...]:
        """The 5 % and 95 % points of the coverage that a draw of calibration samples gives, for each threshold.

        The coverage is a random number, as the samples are: its law is Beta(k, n + 1 − k), exactly, where no scores are
        tied and the sets are as the scores give them. Ties and the most probable class, which is in every set, can only
        raise it. 1 where every class is in the set.
        """
        orders = (
            None if t is None else order_of(n, self.coverage, self.delta) for n, t in zip(self.n_units, self.thresholds)
        )
        return tuple(
            (1.0, 1.0) if k is None else (float(beta.ppf(0.05, k, n + 1 - k)), float(beta.ppf(0.95, k, n + 1 - k)))
            for n, k in zip(self.n_units, orders)
        )

    @property
    def delta(self) -> float | None:
        """What may go wrong for one threshold: 1 − ``confidence_level``, shared by all of them."""
        return None if self.confidence_level is None else (1 - self.confidence_level) / len(self.thresholds)

    def law(self) -> str:
        """Return as a sentence how far the coverage varies from draw to draw of the calibration samples."""
        ranges = [r for r, t in zip(self.coverage_range, self.thresholds) if t is not None]
        if not ranges:
            return f"every set has all {self.n_classes} classes, so the coverage is 1"
        low, high = (f(ends) for f, ends in zip((min, max), zip(*ranges)))
        several = f" of {len(ranges)} thresholds" if len(ranges) > 1 else ""
        return f"of 100 draws of the calibration samples 90 give a coverage{several} between {low:.4g} and {high:.4g}"

    def lists_of(self) -> str:
        """Return as words which sets are listed."""
        most = min(self.max_size, self.n_classes - 1)
        return "no sets" if most < 2 else "sets of 2 classes" if most == 2 else f"sets of 2 to {most} classes"

    def name(self, k: int) -> str:
        """Return what class k is called."""
        return f"class {k}" if self.classes is None else str(self.classes[k])

    def part_names(self) -> list[str]:
        """Return what each threshold is of."""
        if self.by == "class":
            return [self.name(k) for k in range(self.n_classes)]
        return ["all"] if self.groups is None else [str(name) for name in self.groups]

    def for_group(self, group: Any) -> SetPolicy:
        """Return the rule of one group, for samples that are all of it.

        >>> policy = SetPolicy("lac", 0.9, (0.5, None), (20, 3), 2, 23, by="group", groups=("a", "b"))
        >>> policy.for_group("a").thresholds
        (0.5,)
        """
        if self.by != "group" or self.groups is None:
            raise InputError(f"group {group!r}: the policy has no thresholds of groups")
        found = [i for i, name in enumerate(self.groups) if name == group or str(name) == str(group)]
        if not found:
            raise InputError(f"there is no group {group!r}; there are {listed(map(str, self.groups))}")
        (i,) = found
        one: dict[str, Any] = {"thresholds": (self.thresholds[i],), "n_units": (self.n_units[i],)}
        level = None if self.delta is None else 1 - self.delta
        return replace(self, by=None, groups=None, confidence_level=level, **one)

    def exported(self, group: Any = None) -> SetRule:
        """Return what exports compute: the rule without draws, for all samples or for those of one group."""
        if self.by == "group" and group is None:
            raise InputError(
                "the policy has a threshold for each group, and an export holds one. Use "
                f"group=…; its groups are {listed(map(str, self.groups or ()))}.",
                param="group",
            )
        if group is not None:
            return self.for_group(group).exported()
        if self.randomized:
            raise InputError("randomized sets cannot be exported; fit the policy without randomized=True")
        if self.by == "class" and self.score != "lac":
            raise InputError(
                f"thresholds by class of the score {self.score!r} cannot be exported. Use score={'lac'!r}.",
                param="score",
            )
        limits = tuple(math.inf if t is None else t for t in self.thresholds)
        return SetRule(self.score, limits, self.penalty, self.k_reg, self.allow_empty)

    def _table_columns(self) -> Columns:
        low, high = zip(*self.coverage_range)
        names = {"of": self.part_names(), "threshold": self.thresholds, f"n_{self.unit}s": self.n_units}
        return {**names, "coverage_5%": low, "coverage_95%": high}

    def _repr_html_(self) -> str:
        sentences = [text[:1].upper() + text[1:] for text in (self.rule(), self.promise(), self.law(), *self.notes)]
        return f"<div>{as_list(sentences)}{as_table(self._table_columns()) if self.by else ''}</div>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy as JSON, atomically; read it with `SetPolicy.load`."""
        write_document(path, DOCUMENT, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain numbers and text."""
        return to_fields(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a clear `FileError` for anything else."""
        policy = from_fields(cls, read_document(path, DOCUMENT))
        wrong = policy.contradiction()
        if wrong:
            raise FileError(f"{path}: {wrong}")
        return policy

    def contradiction(self) -> str:
        """Return what keeps a policy of a file from being one; empty if nothing does."""
        k, parts = self.n_classes, len(self.thresholds)
        if not 2 <= k <= 10**7 or self.n_samples < 0 or min(self.n_units, default=0) < 0:
            return f"{k} classes, {self.n_samples} samples"
        expected = {None: 1, "class": k, "group": parts if self.groups is None else len(self.groups)}[self.by]
        if not parts or parts != expected or len(self.n_units) != expected:
            return f"{parts} thresholds and {len(self.n_units)} sizes; expected {expected}"
        if (self.by == "group") != (self.groups is not None) or len(set(self.groups or ())) != len(self.groups or ()):
            return "the field 'groups' must name each group of by='group' once"
        if self.classes is not None and len(self.classes) != k:
            return f"the field 'classes' must hold {k} names"
        shares = [self.coverage, *([] if self.confidence_level is None else [self.confidence_level])]
        if not all(0 < share < 1 for share in shares):
            return "the fields 'coverage' and 'confidence_level' must hold numbers between 0 and 1"
        return "" if self.penalty >= 0 and self.max_size >= 1 else "penalty must not be negative, max_size at least 1"


def order_of(n: int, coverage: float, delta: float | None = None) -> int | None:
    """Return which of n ordered scores is the threshold; None where n are too few.

    With ``delta`` the coverage, which has the law Beta(k, n + 1 − k), is below what is asked with this probability at
    most (V. Vovk, Conditional validity of inductive conformal predictors, 2012, proposition 2a): n − k is the number of
    errors that a Clopper–Pearson bound allows.

    >>> order_of(100, 0.9), order_of(100, 0.9, 0.05), order_of(8, 0.9), order_of(28, 0.9, 0.05)
    (91, 96, None, None)
    """
    k = order_for(n, coverage)
    if delta is not None:
        k = max(k, n - most_errors(n, 1 - coverage, delta))
    return k if k <= n else None


def units_needed(coverage: float, delta: float | None = None) -> int:
    """Return the least number of samples for which there is a threshold.

    >>> units_needed(0.95), units_needed(0.95, 0.05)
    (19, 59)
    """
    least = math.ceil(coverage / (1 - coverage) - 1e-9)
    return least if delta is None else max(least, samples_needed(1 - coverage, delta))


def checked_samples(
    probs: Any,
    labels: Any = None,
    sample_weight: Any = None,
    classes: Sequence[Any] | None = None,
    *,
    groups: Any = None,
    clusters: Any = None,
) -> Predictions:
    """Check probabilities, with labels or without, and ids of groups and clusters, which a `Scores` may bring."""
    scores = next((part for part in (probs, labels) if isinstance(part, Scores)), None)
    if scores is not None or getattr(probs, "ndim", 2) > 2:
        check_independent("probabilities", probs, None if scores is None else scores.image)
    if labels is None:
        n = len(probs) if isinstance(probs, Scores) else as_columns(probs, "probabilities")[0].shape[0]
        labels = np.zeros(n, dtype=np.int64)  # any: nobody reads them
    named = None if classes is None or isinstance(labels, Scores) else names_of_labels(labels, list(map(str, classes)))
    p = Predictions.of(labels, probs, sample_weight, classes=named, groups=groups, clusters=clusters)
    if p.n_samples != len(p):
        raise InputError(
            "labels: expected one label for each case, got soft labels; a set holds the true class or not. Use "
            "labels.argmax(axis=1)."
        )
    return p
