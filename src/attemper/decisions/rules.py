"""What a rule on calibrated probabilities is, what it promises, and what choosing and testing one share.

The unit of a guarantee is the case. Without clusters a sample is a case; with clusters one sample of each is drawn, and
by class one of each cluster and class, so that exact tests hold. The promise is then about a random sample of a new
case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper import _json
from attemper._typing import Floats, Labels
from attemper.data.arrays import as_array, sum_tolerance, to_numpy
from attemper.data.inputs import as_ids, as_labels, as_plain, as_weights, two_columns
from attemper.errors import FileError, InputError, listed, nearest
from attemper.kernels.clusters import case_numbers
from attemper.kernels.conformal import one_per_cluster

RULES: dict[str, type[Rule]] = {}


@dataclass(frozen=True, eq=False)
class Actions:
    """What a rule does with each sample."""

    action: NDArray[np.str_]  # "decide", "list" (a few classes remain) or "refer"
    prediction: NDArray[Any]  # the most probable class, the first when tied: its column, of a calibrator its name
    confidence: Floats  # its probability
    sets: NDArray[np.bool_] | None = None  # N×K: classes that remain possible, of a rule with sets

    @property
    def refer(self) -> NDArray[np.bool_]:
        """Whether each sample is referred."""
        return np.asarray(self.action == "refer")


@dataclass(frozen=True)
class Promise:
    """What holds for new cases, with the confidence ``level`` in the draw of the cases that chose the rule.

    "miss": of the cases that are decided at most ``bounds[0]`` are wrong; by class, of the *true* cases of each at most
    its bound are decided as something else (1: nothing is asked). "coverage": at least ``bounds[0]`` of the sets
    hold the true class, also by class or by group.
    """

    kind: Literal["miss", "coverage"]
    bounds: tuple[float, ...]
    level: float | None  # None: on average over draws
    by: Literal["class", "group"] | None = None
    unit: str = ""  # what a case is: "" a sample; else the name of a cluster, of which one sample counts


@dataclass(frozen=True)
class Shortage:
    """Why a guarantee cannot be given: cases are missing."""

    of: str | None  # class or group; None: of all cases
    n_cases: int
    more: int | None  # None: these do not show how many
    errors: int = 0  # among the cases that the first test is about
    tested: int = 0


class Rule:
    """A rule on calibrated probabilities, referral or sets: a dataclass, in the calibrator's file by its ``kind``."""

    kind: ClassVar[str]
    n_classes: int
    promise: Promise | None

    def __init_subclass__(cls) -> None:
        RULES[cls.kind] = cls

    def decide(self, probs: ArrayLike, groups: ArrayLike | None = None) -> Actions:
        """Return what to do with each sample."""
        raise NotImplementedError

    def describe(self, classes: Sequence[Any] | None = None) -> str:
        """Return its kind, and what it promises."""
        from attemper.decisions.words import promised

        return " ".join([f"{self.kind}.", *([] if self.promise is None else promised(self.promise, classes))])

    def to_dict(self) -> dict[str, Any]:
        """Return what a calibrator's file holds of it."""
        return {"kind": self.kind, **_json.plain(self)}


def rule_from_dict(content: Any, where: str = "rule") -> Rule:
    """Make a rule from what its `to_dict` returned.

    >>> from attemper.decisions import Referral
    >>> rule_from_dict(Referral(2, 0.75).to_dict()) == Referral(2, 0.75)
    True
    """
    kind = content.get("kind") if isinstance(content, Mapping) else None
    if kind not in RULES:
        raise FileError(f"{where}: expected a rule of the kind {' or '.join(RULES)}, got {kind!r}")
    found: Rule = _json.typed({k: v for k, v in content.items() if k != "kind"}, RULES[kind], where)
    return found


@dataclass(frozen=True)
class Choice:
    """A rule; or none, and what is missing for the guarantee that was asked for."""

    rule: Rule | None = None
    shortages: tuple[Shortage, ...] = ()


def as_probs(probs: ArrayLike, n_classes: int | None = None) -> Floats:
    """Return probabilities as N×K; one column is that of the second of two classes."""
    p = to_numpy(as_array(probs, "probs")).astype(np.float64)
    p = two_columns(p, "probs") if p.ndim == 1 or p.shape[1:] == (1,) else p
    if p.ndim != 2 or p.shape[1] < 2:
        raise InputError(f"probs: expected N×K probabilities, got shape {p.shape}", "probs")
    if not ((p >= 0).all() and (np.abs(p.sum(axis=1) - 1) <= sum_tolerance(p.shape[1])).all()):
        raise InputError("probs: expected probabilities that sum to 1 in each row", "probs")
    if n_classes is not None and p.shape[1] != n_classes:
        raise InputError(f"probs: the rule is for {n_classes} classes, got {p.shape[1]}", "probs")
    return p


def checked(
    probs: ArrayLike,
    labels: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    *,
    whole: bool = False,
) -> tuple[Floats, Labels, Floats]:
    """Check arrays: probabilities, labels (zeros if there are none) and weights (ones)."""
    p = as_probs(probs)
    if not len(p):
        raise InputError("probs: expected samples, got none", "probs")
    given = np.zeros(len(p), dtype=np.int64) if labels is None else as_plain(labels)
    # Whole numbers are columns here, also where the classes have numbers for names.
    y = as_labels(given, len(p), p.shape[1], None if given.dtype.kind in "iu" else classes)
    w = as_weights(1.0 if sample_weight is None else sample_weight, len(p))
    if whole and (w != np.floor(w)).any():
        raise InputError("sample_weight: a guarantee needs whole numbers, counts of each sample", "sample_weight")
    return p, y, w


def tops(p: Floats) -> tuple[Labels, Floats]:
    """Return the most probable class of each row, and its probability."""
    return p.argmax(axis=1).astype(np.int64), np.minimum(p.max(axis=1), 1.0)


def draw_cases(
    clusters: ArrayLike | None, weights: Floats, seed: int | np.random.Generator
) -> tuple[NDArray[np.intp], Floats]:
    """Return rows and how often each counts: all rows as often as they occurred, or one row of each cluster."""
    rows = np.flatnonzero(weights > 0)
    if clusters is None:
        return rows, weights[rows]
    case = case_numbers(as_ids(clusters, len(weights), "clusters")[rows])
    drawn = rows[one_per_cluster(case, weights[rows], np.random.default_rng(seed))]
    return drawn, np.ones(len(drawn))


def unit_of(clusters: ArrayLike | None, weights: Floats, name: str = "cluster") -> str:
    """Return what a case is: "", a sample, where no cluster has several; else the name of a cluster."""
    if clusters is None:
        return ""
    used = as_ids(clusters, len(weights), "clusters")[weights > 0]
    return name if len(np.unique(used)) < weights.sum() else ""


def by_name(
    values: Mapping[Any, float], n_classes: int, classes: Sequence[Any] | None, param: str, default: float
) -> Floats:
    """Return a number for each column of a mapping by class name (column number without names).

    >>> by_name({"mel": 0.1}, 3, ["nv", "bcc", "mel"], "max_miss", 1.0)
    array([1. , 1. , 0.1])
    """
    names = [name_of(k, classes) for k in range(n_classes)]
    found = np.full(n_classes, default)
    for key, value in values.items():
        if str(key) not in names:
            raise InputError(f"{param}: {key!r} is not among {listed(names)}.{nearest(str(key), names)}", param)
        found[names.index(str(key))] = value
    return found


def name_of(k: int, classes: Sequence[Any] | None) -> str:
    """Return the name of a column."""
    return str(k if classes is None else classes[k])
