"""A rule that decides or refers: what it is, how to apply it, how to keep it in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import same_classes
from attemper._json import from_fields, read_document, to_fields, write_document
from attemper._table import Columns, Table, as_list, as_table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.data.binary import as_columns
from attemper.data.labels import as_names
from attemper.data.layout import check_independent
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.metrics.predictions import Predictions, names_of_labels
from attemper.metrics.risk import check_threshold

__all__ = [
    "Decisions",
    "Guarantee",
    "MissRateOf",
    "Policy",
    "Predict",
    "as_predictions",
    "cost_of_deciding",
    "names_of",
    "refer_or_decide",
    "samples_of",
    "several_per_cluster",
]

MissRateOf = Literal["decided", "all"]
ByClass = Literal["predicted", "true"]
Predict = Literal["most_probable", "least_cost"]


class _Decisions(NamedTuple):
    refer: NDArray[np.bool_]  # to a specialist; the others are decided as predicted
    # The most probable class (the first, when tied), as a column number; with predict="least_cost" the cheapest class.
    prediction: NDArray[np.int64]
    confidence: Floats  # its probability


class Decisions(_Decisions, Table):
    """The decision for each sample: `refer_or_decide` returns it."""

    __slots__ = ()
    __repr__ = one_line


@dataclass(frozen=True)
class Guarantee:
    """At most ``bound`` of some samples are decided wrongly; the draw that chose the rule has that confidence level.

    `policy_for_miss` gives it to its `Policy`. A bound of 1 asks nothing of a class.
    """

    bound: float | tuple[float, ...]  # a tuple has one for each class
    confidence_level: float
    miss_rate_of: MissRateOf  # of the samples that are decided, or of all of them
    by_class: ByClass | None = None  # of each class that is predicted, or that is true, by itself
    # For a sample drawn at random where of each cluster at most so many count; None: samples are independent.
    max_per_cluster: int | None = None


@dataclass(frozen=True, repr=False)
class Policy(Table):
    """A rule that decides or refers; `policy_for_miss` and similar functions make one.

    Samples whose confidence is above the threshold are decided, the others are referred. With costs instead of a
    threshold, samples are decided whose expected cost of a miss, Σ_k p_k m_k over the classes k that are not predicted,
    is below the cost of a referral. The most probable class is predicted, unless ``predict`` is "least_cost".
    """

    threshold: float | tuple[float, ...] | None  # a tuple has one for each predicted class; None: costs decide
    rationale: str  # how it was chosen, in a sentence
    n_classes: int
    n_samples: int  # that it was chosen on
    guarantee: Guarantee | None = None
    reached: bool = True  # False: nothing could be guaranteed, so every case is referred
    notes: tuple[str, ...] = ()  # on single classes
    classes: tuple[str, ...] | None = None
    cost_refer: float | None = None
    cost_miss: tuple[float, ...] | None = None  # one for each true class
    predict: Predict = "most_probable"  # "least_cost": the class of least expected cost, which may be another one
    n_clusters: int | None = None  # that the samples it was chosen on are of; None: each is one

    def __post_init__(self) -> None:
        if isinstance(self.threshold, Real):
            object.__setattr__(self, "threshold", float(self.threshold))

    def __repr__(self) -> str:
        return f"Policy({self.rule()!r}, n_classes={self.n_classes}, n_samples={self.n_samples})"

    def refer_or_decide(self, probs: ArrayLike | Any) -> Decisions:
        """Apply the rule to calibrated probabilities, N×K, of any array library.

        Examples
        --------
        >>> policy = Policy(0.75, "by hand", n_classes=2, n_samples=0)
        >>> policy.refer_or_decide([[0.9, 0.1], [0.25, 0.75], [0.45, 0.55]])
        Decisions(refer=array([False,  True,  True]), prediction=array([0, 1, 1]), confidence=array([0.9 , 0.75, 0.55]))
        """
        p = as_predictions(probs)
        same_classes(self.n_classes, p.n_classes, of="the policy", where="probabilities")
        if self.predict == "least_cost":
            prediction = (p.probs * np.asarray(self.cost_miss)).argmax(axis=1).astype(np.int64)
            confidence = np.minimum(p.probs[np.arange(len(p)), prediction].astype(np.float64), 1.0)
        else:
            confidence, prediction = p.confidence, p.prediction.astype(np.int64)
        if self.threshold is not None:
            refer = confidence <= check_threshold(self.threshold, self.n_classes)[prediction]
        else:
            assert self.cost_refer is not None
            refer = cost_of_deciding(p, np.asarray(self.cost_miss), prediction) >= self.cost_refer
        return Decisions(refer, prediction, confidence)

    def rule(self) -> str:
        """Return the rule as a sentence."""
        if self.threshold is None:
            cheapest = "predict the class of least expected cost, " if self.predict == "least_cost" else ""
            return (
                f"{cheapest}decide when the expected cost of a miss is below {self.cost_refer:.6g}, the cost of a "
                "referral"
            )
        if isinstance(self.threshold, float):
            return (
                "refer every case"
                if self.threshold >= 1
                else f"decide when the confidence is above {self.threshold:.6g}"
            )
        each = ", ".join(f"{self.name(k)} {t:.6g}" for k, t in enumerate(self.threshold))
        return f"decide when the confidence is above that of the predicted class: {each}"

    def promise(self) -> str:
        """Return the guarantee as a sentence."""
        g = self.guarantee
        if g is None:
            return "nothing is guaranteed"
        which = "of the decided samples" if g.miss_rate_of == "decided" else "of all samples"
        each = {None: "", "predicted": " of each predicted class", "true": " of each true class"}[g.by_class]
        if isinstance(g.bound, tuple):
            those = "predicted as" if g.by_class == "predicted" else "that are"
            bounds = [f"{b:.4g} {which} {those} {self.name(k)}" for k, b in enumerate(g.bound) if b < 1]
        else:
            bounds = [f"{g.bound:.4g} {which}{each}"]
        if g.max_per_cluster is None:
            drawn = ""
        elif g.max_per_cluster == 1:
            drawn = ", for a cluster drawn at random, then one of its samples"
        else:
            drawn = f", for a sample drawn at random, with at most {g.max_per_cluster} of each cluster"
        return f"with confidence {g.confidence_level:.4g} at most {', '.join(bounds)} are decided wrongly{drawn}"

    def _table_columns(self) -> Columns:
        bound = None if self.guarantee is None else self.guarantee.bound
        columns = {"threshold": self.threshold, "bound": bound, "cost_miss": self.cost_miss}
        shown = {
            name: values if isinstance(values, tuple) else [values] * self.n_classes
            for name, values in columns.items()
            if values is not None
        }
        return {"class": [self.name(k) for k in range(self.n_classes)], **shown}

    def _repr_html_(self) -> str:
        by_class = isinstance(self.threshold, tuple)
        rule = "decide when the confidence is above the threshold of the predicted class" if by_class else self.rule()
        promise = "" if self.promise() in self.rationale else self.promise()
        sentences = [text[:1].upper() + text[1:] for text in (rule, promise, self.rationale) if text]
        table = as_table(self._table_columns()) if by_class else ""
        return f"<div>{as_list([*sentences, *self.notes])}{table}</div>"

    def name(self, k: int) -> str:
        """Return what class k is called."""
        return f"class {k}" if self.classes is None else str(self.classes[k])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy as JSON, atomically; read it with `Policy.load`."""
        write_document(path, "policy", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain numbers and text."""
        return to_fields(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a clear `FileError` for anything else."""
        return from_fields(cls, read_document(path, "policy"))


def refer_or_decide(probs: ArrayLike | Any, policy: Policy | float | ArrayLike) -> Decisions:
    """Decide or refer each sample by a `Policy`, or by a threshold: one, or one for each predicted class.

    Examples
    --------
    >>> refer_or_decide([[0.9, 0.1], [0.25, 0.75]], 0.8).refer
    array([False,  True])
    """
    if isinstance(policy, Policy):
        return policy.refer_or_decide(probs)
    p = as_predictions(probs)
    t = tuple(check_threshold(policy, p.n_classes).tolist())
    return Policy(t, "by hand", p.n_classes, 0).refer_or_decide(probs)


def as_predictions(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    clusters: ArrayLike | None = None,
    groups: Any = None,
) -> Predictions:
    """Check probabilities, with labels or without; labels that are text are names among the classes."""
    scores = next((part for part in (probs, labels) if isinstance(part, Scores)), None)
    if clusters is None and scores is not None:
        clusters = scores.cluster_ids
    if getattr(probs, "ndim", 2) > 2 or (clusters is None and scores is not None):
        soft = scores is not None and scores.repeated is not None
        check_independent("probabilities", probs, None if scores is None else scores.image, soft=soft)
    if labels is None:
        n = len(probs) if isinstance(probs, Scores) else as_columns(probs, "probabilities")[0].shape[0]
        labels = np.zeros(n, dtype=np.int64)  # any: nobody reads them
    classes = (
        None if isinstance(labels, Scores) or classes is None else names_of_labels(labels, list(map(str, classes)))
    )
    p = Predictions.of(labels, probs, sample_weight, classes=classes, clusters=clusters, groups=groups)
    if p.n_samples != len(p):
        raise InputError("labels: expected one label for each case, got soft labels. Use labels.argmax(axis=1).")
    return p


def cost_of_deciding(p: Predictions, cost_miss: Floats, prediction: NDArray[np.int64]) -> Floats:
    """Return the expected cost of a miss when each sample is decided as predicted."""
    q = p.probs.astype(np.float64)  # a copy, even of float64
    q[np.arange(len(q)), prediction] = 0.0
    return np.asarray(q @ cost_miss)


def several_per_cluster(p: Predictions) -> int | None:
    """Return the number of clusters; None where there are none, or each has one sample."""
    if p.clusters is None:
        return None
    n = len(np.unique(p.clusters))
    return n if n < p.weights.sum() else None


def samples_of(n: int, n_clusters: int | None) -> str:
    """Write a number of samples, and of how many clusters they are.

    >>> samples_of(640, None), samples_of(640, 512)
    ('640 samples', '640 samples of 512 clusters')
    """
    return f"{n} samples" + ("" if n_clusters is None else f" of {n_clusters} clusters")


def names_of(classes: Any, n_classes: int) -> tuple[str, ...] | None:
    """Names of the classes as text, none twice."""
    return None if classes is None else tuple(str(name) for name in as_names(classes, n_classes))
