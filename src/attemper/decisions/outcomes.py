"""How a rule fares on labelled samples: who is referred, which errors that catches, which slip through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction
from attemper._json import to_fields
from attemper._table import Columns, Table
from attemper._typing import Floats, Labels
from attemper.data.ids import as_ids
from attemper.data.labels import as_weights
from attemper.decisions.policy import MissRateOf, Policy, as_predictions, several_per_cluster
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import estimate
from attemper.metrics.intervals import share_held
from attemper.metrics.risk import cost_of

__all__ = ["ClassOutcome", "Outcome", "outcome_of"]


@dataclass(frozen=True)
class ClassOutcome:
    """Outcome for some samples, part of `outcome_of`; sums of weights, or counts without weights."""

    name: str
    n: float
    referred: float
    caught: float  # wrong predictions that are referred
    missed: float  # wrong predictions that are decided
    miss_rate: Estimate | None  # None: there are no samples to take it of
    referred_share: Estimate | None = None  # None: there are no samples

    @property
    def decided(self) -> float:
        """How many are decided."""
        return self.n - self.referred

    @property
    def errors(self) -> float:
        """How many predictions are wrong."""
        return self.caught + self.missed

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return to_fields(self) | {"decided": self.decided, "errors": self.errors}


@dataclass(frozen=True, repr=False)
class Outcome(Table):
    """Outcome for all samples, for those of each class, and for each group: `outcome_of` returns it."""

    all: ClassOutcome
    referred_share: Estimate
    miss_rate_of: MissRateOf  # what the miss rate of all, and of predicted classes, is taken of
    by_class: tuple[ClassOutcome, ...]  # true classes; misses are taken of all samples of the class
    by_predicted: tuple[ClassOutcome, ...]
    cost: Estimate | None  # a sample, where the policy knows costs
    by_group: tuple[ClassOutcome, ...] = ()  # sorted by name; intervals that hold for all groups together
    n_clusters: int | None = None  # that samples are of; None: each is one

    def __repr__(self) -> str:
        counts = (f"{name}={getattr(self.all, name):g}" for name in ("n", "referred", "caught", "missed"))
        return f"Outcome({', '.join(counts)})"

    def _table_columns(self) -> Columns:
        groups = {"all": (self.all,), "true class": self.by_class, "predicted class": self.by_predicted}
        groups |= {"group": self.by_group} if self.by_group else {}
        rows = [(group, each) for group, outcomes in groups.items() for each in outcomes]
        names = ("name", "n", "decided", "referred", "errors", "caught", "missed", "miss_rate", "referred_share")
        return {"group": [group for group, _ in rows]} | {name: [getattr(r, name) for _, r in rows] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text; those of all samples come first."""
        found = to_fields(self)
        by_group = found.pop("by_group")
        return {**found.pop("all"), **found, **({"by_group": by_group} if by_group else {})}


def outcome_of(
    policy: Policy,
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    miss_rate_of: MissRateOf | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | Any = None,
    clusters: ArrayLike | None = None,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> Outcome:
    """Apply a policy to labelled samples that it was not chosen on.

    Shares come with Clopper–Pearson intervals (weights count as repeats: their unit matters), the cost with that of a
    mean (`expected_cost`).
    ``miss_rate_of`` is that of the policy's guarantee, else "decided". With ``groups``, the id of the group (such as a
    site) that each sample is of, there is a row for each group. Its intervals hold for all groups together: each of G
    has the level :math:`c^{1/G}` (Šidák). A guarantee is of all samples, and of no group by itself.

    With ``clusters``, the patient (document, user) that each sample is of, intervals are of as many samples as the
    clusters are worth (E. Korn and B. Graubard, Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data, 1998), and that of the cost is resampled by cluster. If at most so many
    of each cluster count in the policy's guarantee, they do in rates of misses as well; counts are of all samples.

    Examples
    --------
    >>> policy = Policy(0.75, "by hand", n_classes=2, n_samples=0)
    >>> found = outcome_of(policy, [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], [0, 0, 0, 1])
    >>> found.all.referred, found.all.caught, found.all.missed, found.all.miss_rate.value
    (2.0, 1.0, 1.0, 0.5)
    """
    fraction("confidence_level", confidence_level)
    whole: MissRateOf = miss_rate_of or (policy.guarantee.miss_rate_of if policy.guarantee else "decided")
    p = as_predictions(probs, labels, sample_weight, policy.classes, clusters)
    refer, prediction, _ = policy.refer_or_decide(p.probs)
    wrong = prediction != p.labels
    n_clusters = several_per_cluster(p)
    case = None if n_clusters is None or p.clusters is None else np.unique(p.clusters, return_inverse=True)[1]
    counted = p.weights if case is None else _counted(p.weights, case, policy)

    def part(name: str, rows: NDArray[np.bool_], of: MissRateOf, level: float = confidence_level) -> ClassOutcome:
        n, referred, caught, missed = (
            float(p.weights[rows & chosen].sum()) for chosen in (rows, refer, wrong & refer, wrong & ~refer)
        )
        base = rows if of == "all" else rows & ~refer
        rate = share(base, wrong & ~refer, counted, level)
        return ClassOutcome(name, n, referred, caught, missed, rate, share(rows, refer, p.weights, level))

    def share(rows: NDArray[np.bool_], held: NDArray[np.bool_], weights: Floats, level: float) -> Estimate | None:
        if not rows.any():
            return None
        return share_held(held[rows], weights[rows], None if case is None else case[rows], level)

    everybody = part("all", np.ones(len(p), dtype=bool), whole)
    assert everybody.referred_share is not None
    cost = None
    if policy.cost_refer is not None and policy.cost_miss is not None:
        statistic = cost_of(p, refer, policy.cost_refer, policy.cost_miss, prediction)
        cost = estimate(statistic, p.weights, confidence_level, seed=seed, clusters=case)
    classes = range(p.n_classes)
    ids = p.groups if groups is None else _ids(groups, sample_weight, labels)
    names = [] if ids is None else np.unique(ids).tolist()
    together = confidence_level ** (1 / max(len(names), 1))
    return Outcome(
        everybody,
        everybody.referred_share,
        whole,
        tuple(part(policy.name(k), p.labels == k, "all") for k in classes),
        tuple(part(policy.name(k), prediction == k, whole) for k in classes),
        cost,
        tuple(part(str(name), np.asarray(ids == name), whole, together) for name in names),
        n_clusters,
    )


def _ids(groups: Any, sample_weight: Any, labels: Any) -> NDArray[Any]:
    """Return the groups of the samples that count: one of weight 0 does not."""
    n = len(labels)
    ids = as_ids(groups, n, "groups")
    return ids if sample_weight is None else ids[as_weights(sample_weight, n) > 0]


def _counted(weights: Floats, case: Labels, policy: Policy) -> Floats:
    """Weigh samples such that of each cluster at most so many count as in the policy's guarantee."""
    most = None if policy.guarantee is None else policy.guarantee.max_per_cluster
    size = np.bincount(case, weights)
    return weights if most is None else weights * (np.minimum(size, most) / size)[case]
