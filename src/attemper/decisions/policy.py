"""A rule that decides or refers: what it is, how to apply it, how to keep it in a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import Floats, as_matrix, as_names
from attemper.documents import Fields, read_document, write_document
from attemper.errors import FileError, InputError
from attemper.metrics.predictions import Predictions
from attemper.metrics.risk import check_threshold

__all__ = [
    "Decisions",
    "Guarantee",
    "Of",
    "Policy",
    "Predict",
    "cost_of_deciding",
    "names_of",
    "refer_or_decide",
    "seen",
]

Of = Literal["decided", "all"]
ByClass = Literal["predicted", "true"]
Predict = Literal["most_probable", "least_cost"]


class Decisions(NamedTuple):
    """What happens to each sample: `refer_or_decide` gives it."""

    refer: NDArray[np.bool_]  # to a specialist; the others are decided as predicted
    # The most probable class (the first, when tied), as a column number; with predict="least_cost" the cheapest class.
    prediction: NDArray[np.int64]
    confidence: Floats  # its probability


@dataclass(frozen=True)
class Guarantee:
    """At most ``bound`` of some samples are decided wrongly, with confidence ``level`` in the draw that chose the rule.

    `policy_for_miss` gives it to its `Policy`. A bound of 1 asks nothing of a class.
    """

    bound: float | tuple[float, ...]  # a tuple has one for each class
    level: float
    of: Of  # of the samples that are decided, or of all of them
    by_class: ByClass | None = None  # of each class that is predicted, or that is true, by itself


@dataclass(frozen=True)
class Policy:
    """A rule that decides or refers; `policy_for_miss` and its siblings make one.

    Samples whose confidence is above the threshold are decided, the others are referred. With costs instead of a
    threshold, samples are decided whose expected cost of a miss, Σ_k p_k m_k over the classes k that are not predicted,
    is below the cost of a referral. The most probable class is predicted, unless ``predict`` is "least_cost".
    """

    threshold: float | tuple[float, ...] | None  # a tuple has one for each predicted class; None: costs tell
    chosen: str  # how it was chosen, in words
    n_classes: int
    n_samples: int  # that it was chosen on
    guarantee: Guarantee | None = None
    reached: bool = True  # False: nothing could be guaranteed, so everybody is referred
    notes: tuple[str, ...] = ()  # on single classes
    classes: tuple[str, ...] | None = None
    cost_refer: float | None = None
    cost_miss: tuple[float, ...] | None = None  # one for each true class
    predict: Predict = "most_probable"  # "least_cost": the class of least expected cost, which may be another one

    def __post_init__(self) -> None:
        if isinstance(self.threshold, Real):
            object.__setattr__(self, "threshold", float(self.threshold))

    def refer_or_decide(self, probs: ArrayLike | Any) -> Decisions:
        """Apply the rule to calibrated probabilities, N×K, of any array library.

        Examples
        --------
        >>> policy = Policy(0.75, "by hand", n_classes=2, n_samples=0)
        >>> policy.refer_or_decide([[0.9, 0.1], [0.25, 0.75], [0.45, 0.55]])
        Decisions(refer=array([False,  True,  True]), prediction=array([0, 1, 1]), confidence=array([0.9 , 0.75, 0.55]))
        """
        p = seen(probs)
        if p.n_classes != self.n_classes:
            raise InputError(
                f"probabilities: {p.n_classes} columns came, but the policy was chosen for {self.n_classes}"
            )
        if self.predict == "least_cost":
            prediction = (p.probs * np.asarray(self.cost_miss)).argmax(axis=1).astype(np.int64)
            confidence = np.minimum(p.probs[np.arange(len(p)), prediction].astype(np.float64), 1.0)
        else:
            confidence, prediction = p.top[0], p.probs.argmax(axis=1).astype(np.int64)
        if self.threshold is not None:
            refer = confidence <= check_threshold(self.threshold, self.n_classes)[prediction]
        else:
            assert self.cost_refer is not None
            refer = cost_of_deciding(p, np.asarray(self.cost_miss), prediction) >= self.cost_refer
        return Decisions(refer, prediction, confidence)

    def rule(self) -> str:
        """Return the rule in words."""
        if self.threshold is None:
            cheapest = "predict the class of least expected cost, " if self.predict == "least_cost" else ""
            return (
                f"{cheapest}decide when the expected cost of a miss is below {self.cost_refer:.6g}, the cost of a "
                "referral"
            )
        if isinstance(self.threshold, float):
            return (
                "refer everybody"
                if self.threshold >= 1
                else f"decide when the confidence is above {self.threshold:.6g}"
            )
        each = ", ".join(f"{self.name(k)} {t:.6g}" for k, t in enumerate(self.threshold))
        return f"decide when the confidence is above that of the predicted class: {each}"

    def promise(self) -> str:
        """Return the guarantee in words."""
        g = self.guarantee
        if g is None:
            return "nothing is guaranteed"
        whom = "of the decided samples" if g.of == "decided" else "of all samples"
        each = {None: "", "predicted": " of each predicted class", "true": " of each true class"}[g.by_class]
        if isinstance(g.bound, tuple):
            those = "predicted as" if g.by_class == "predicted" else "that are"
            told = [f"{b:.4g} {whom} {those} {self.name(k)}" for k, b in enumerate(g.bound) if b < 1]
        else:
            told = [f"{g.bound:.4g} {whom}{each}"]
        return f"with confidence {g.level:.4g} at most {', '.join(told)} are decided wrongly"

    def name(self, k: int) -> str:
        """Return what class k is called."""
        return f"class {k}" if self.classes is None else str(self.classes[k])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy as JSON, atomically; read it with `Policy.load`."""
        write_document(path, "policy", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain numbers and text."""
        g = self.guarantee
        told = g and {"bound": _plain(g.bound), "level": g.level, "of": g.of, "by_class": g.by_class}
        return {
            "threshold": _plain(self.threshold),
            "chosen": self.chosen,
            "n_classes": self.n_classes,
            "n_samples": self.n_samples,
            "guarantee": told,
            "reached": self.reached,
            "notes": list(self.notes),
            "classes": _plain(self.classes),
            "cost_refer": self.cost_refer,
            "cost_miss": _plain(self.cost_miss),
            "predict": self.predict,
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a clear `FileError` for anything else."""
        content = read_document(path, "policy")
        n_classes, n_samples = content.integer("n_classes"), content.integer("n_samples")
        if not 2 <= n_classes <= 10**7 or n_samples < 0:
            raise FileError(f"{path}: {n_classes} classes, {n_samples} samples")
        names = None if content.content.get("classes") is None else _texts(content, "classes")
        if names is not None and len(names) != n_classes:
            raise FileError(f"{path}: the field 'classes' must hold {n_classes} names")
        new = cls(None, content.text("chosen"), n_classes, n_samples)
        new = replace(new, reached=content.boolean("reached"), notes=_texts(content, "notes"), classes=names)
        if content.content.get("guarantee") is not None:
            new = replace(new, guarantee=_guarantee(content.fields("guarantee"), n_classes))
        if content.content.get("threshold") is not None:
            new = replace(new, threshold=_shares(content, "threshold", n_classes))
            if content.content.get("cost_refer") is None:
                return new
        refer, miss = content.number("cost_refer"), content.array("cost_miss", (n_classes,))
        if refer < 0 or (miss < 0).any():
            raise FileError(f"{path}: a cost is negative")
        predict = content.content.get("predict", "most_probable")  # files of earlier versions have none
        if predict not in ("most_probable", "least_cost"):
            raise FileError(f"{path}: the field 'predict' is {predict!r}; expected 'most_probable' or 'least_cost'")
        return replace(new, cost_refer=refer, cost_miss=tuple(miss.tolist()), predict=predict)


def refer_or_decide(probs: ArrayLike | Any, policy: Policy | float | ArrayLike) -> Decisions:
    """Decide or refer each sample by a `Policy`, or by a threshold: one, or one for each predicted class.

    Examples
    --------
    >>> refer_or_decide([[0.9, 0.1], [0.25, 0.75]], 0.8).refer
    array([False,  True])
    """
    if isinstance(policy, Policy):
        return policy.refer_or_decide(probs)
    p = seen(probs)
    t = tuple(check_threshold(policy, p.n_classes).tolist())
    return Policy(t, "told", p.n_classes, 0).refer_or_decide(probs)


def seen(probs: ArrayLike | Any, labels: ArrayLike | Any = None, sample_weight: ArrayLike | None = None) -> Predictions:
    """Check probabilities, with labels or without."""
    if labels is None:
        labels = np.zeros(as_matrix(probs, "probabilities").shape[0], dtype=np.int64)  # any will do: nobody reads them
    return Predictions.of(probs, labels, sample_weight)


def cost_of_deciding(p: Predictions, cost_miss: Floats, prediction: NDArray[np.int64]) -> Floats:
    """Return the expected cost of a miss when each sample is decided as predicted."""
    q = p.probs.astype(np.float64)  # a copy, even of float64
    q[np.arange(len(q)), prediction] = 0.0
    return np.asarray(q @ cost_miss)


def names_of(classes: Any, n_classes: int) -> tuple[str, ...] | None:
    """Names of the classes as text, none twice."""
    return None if classes is None else tuple(str(name) for name in as_names(classes, n_classes))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _texts(content: Fields, key: str) -> tuple[str, ...]:
    items = content.items(key)
    if not all(isinstance(item, str) for item in items):
        raise FileError(f"{content.where}: the field {key!r} must hold text")
    return tuple(items)


def _shares(content: Fields, key: str, n_classes: int) -> float | tuple[float, ...]:
    if isinstance(content.content.get(key), list):
        values = content.array(key, (n_classes,))
    else:
        values = np.array(content.number(key))
    if ((values < 0) | (values > 1)).any():
        raise FileError(f"{content.where}: the field {key!r} holds a number that is not between 0 and 1")
    return tuple(values.tolist()) if values.ndim else float(values)


def _guarantee(content: Fields, n_classes: int) -> Guarantee:
    of, by_class = content.text("of"), content.content.get("by_class")
    if of not in ("decided", "all") or by_class not in (None, "predicted", "true"):
        raise FileError(f"{content.where}: of {of!r}, by class {by_class!r}: unknown")
    level = content.number("level")
    if not 0 < level < 1:
        raise FileError(f"{content.where}: the field 'level' is {level}; expected a number between 0 and 1")
    return Guarantee(_shares(content, "bound", n_classes), level, of, by_class)  # type: ignore[arg-type]
