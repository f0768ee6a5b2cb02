"""How a rule fares on labelled samples: who is referred, which errors that catches, which slip through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction, renamed
from attemper._json import to_fields
from attemper._table import Columns, Table
from attemper.decisions.policy import MissRateOf, Policy, as_predictions
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import estimate
from attemper.metrics.intervals import proportion
from attemper.metrics.risk import cost_of

__all__ = ["ClassOutcome", "Outcome", "outcome_of"]


@dataclass(frozen=True)
class ClassOutcome:
    """What became of some samples, by `outcome_of`; sums of weights, so counts where there are none."""

    name: str
    n: float
    referred: float
    caught: float  # wrong predictions that are referred
    missed: float  # wrong predictions that are decided
    miss_rate: Estimate | None  # None: there are no samples to take it of

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
    """What became of all samples, and of those of each class: `outcome_of` gives it."""

    all: ClassOutcome
    referred_share: Estimate
    miss_rate_of: MissRateOf  # what the miss rate of all, and of predicted classes, is taken of
    by_class: tuple[ClassOutcome, ...]  # true classes; misses are taken of all samples of the class
    by_predicted: tuple[ClassOutcome, ...]
    cost: Estimate | None  # a sample, where the policy knows costs

    def __repr__(self) -> str:
        counts = (f"{name}={getattr(self.all, name):g}" for name in ("n", "referred", "caught", "missed"))
        return f"Outcome({', '.join(counts)})"

    def _table_columns(self) -> Columns:
        groups = {"all": (self.all,), "true class": self.by_class, "predicted class": self.by_predicted}
        rows = [(group, each) for group, outcomes in groups.items() for each in outcomes]
        names = ("name", "n", "decided", "referred", "errors", "caught", "missed", "miss_rate")
        return {"group": [group for group, _ in rows]} | {name: [getattr(r, name) for _, r in rows] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text; those of all samples come first."""
        found = to_fields(self)
        return {**found.pop("all"), **found}


@renamed(interval="confidence_level", of="miss_rate_of")
def outcome_of(
    policy: Policy,
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    miss_rate_of: MissRateOf | None = None,
    sample_weight: ArrayLike | None = None,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> Outcome:
    """Apply a policy to labelled samples that it was not chosen on.

    Shares come with Clopper–Pearson intervals (weights count as repeats: their unit matters), the cost with that of a
    mean (`expected_cost`).
    ``miss_rate_of`` is that of the policy's guarantee, else "decided".

    Examples
    --------
    >>> policy = Policy(0.75, "by hand", n_classes=2, n_samples=0)
    >>> found = outcome_of(policy, [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], [0, 0, 0, 1])
    >>> found.all.referred, found.all.caught, found.all.missed, found.all.miss_rate.value
    (2.0, 1.0, 1.0, 0.5)
    """
    fraction("confidence_level", confidence_level)
    whole: MissRateOf = miss_rate_of or (policy.guarantee.miss_rate_of if policy.guarantee else "decided")
    p = as_predictions(probs, labels, sample_weight, policy.classes)
    refer, prediction, _ = policy.refer_or_decide(p.probs)
    wrong = prediction != p.labels

    def group(name: str, rows: NDArray[np.bool_], of: MissRateOf) -> ClassOutcome:
        n, referred, caught, missed = (
            float(p.weights[rows & chosen].sum()) for chosen in (rows, refer, wrong & refer, wrong & ~refer)
        )
        base = n if of == "all" else float(p.weights[rows & ~refer].sum())
        return ClassOutcome(
            name, n, referred, caught, missed, proportion(missed, base, confidence_level) if base > 0 else None
        )

    everybody = group("all", np.ones(len(p), dtype=bool), whole)
    cost = None
    if policy.cost_refer is not None and policy.cost_miss is not None:
        statistic = cost_of(p, refer, policy.cost_refer, policy.cost_miss, prediction)
        cost = estimate(statistic, p.weights, confidence_level, seed=seed)
    classes = range(p.n_classes)
    return Outcome(
        everybody,
        proportion(everybody.referred, everybody.n, confidence_level),
        whole,
        tuple(group(policy.name(k), p.labels == k, "all") for k in classes),
        tuple(group(policy.name(k), prediction == k, whole) for k in classes),
        cost,
    )
