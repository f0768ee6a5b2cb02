"""How a rule fares on labelled samples: who is referred, which errors that catches, which slip through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.decisions.certificates import proportion
from attemper.decisions.policy import Of, Policy, seen
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import check_level, estimate
from attemper.metrics.risk import cost_of

__all__ = ["ClassOutcome", "Outcome", "outcome_of"]


@dataclass(frozen=True)
class ClassOutcome:
    """What became of some samples, by `outcome_of`; sums of weights, so counts where there are none."""

    name: str
    n: float
    referred: float
    caught: float  # wrong answers that are referred
    missed: float  # wrong answers that are decided
    miss_rate: Estimate | None  # None: there are no samples to take it of

    @property
    def decided(self) -> float:
        """How many are decided."""
        return self.n - self.referred

    @property
    def errors(self) -> float:
        """How many answers are wrong."""
        return self.caught + self.missed


@dataclass(frozen=True)
class Outcome:
    """What became of all samples, and of those of each class: `outcome_of` gives it."""

    all: ClassOutcome
    referred_share: Estimate
    of: Of  # what the miss rate of all, and of predicted classes, is taken of
    by_class: tuple[ClassOutcome, ...]  # true classes; misses are taken of all samples of the class
    by_predicted: tuple[ClassOutcome, ...]
    cost: Estimate | None  # a sample, where the policy knows costs


def outcome_of(
    policy: Policy,
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    of: Of | None = None,
    sample_weight: ArrayLike | None = None,
    interval: float = 0.95,
    seed: int = 0,
) -> Outcome:
    """Apply a policy to labelled samples that it was not chosen on.

    Shares come with Clopper–Pearson intervals (weights count as repeats: their unit matters), the cost with that of a
    mean (`expected_cost`).
    ``of`` is that of the policy's guarantee, else "decided".

    Examples
    --------
    >>> policy = Policy(0.75, "by hand", n_classes=2, n_samples=0)
    >>> found = outcome_of(policy, [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], [0, 0, 0, 1])
    >>> found.all.referred, found.all.caught, found.all.missed, found.all.miss_rate.value
    (2.0, 1.0, 1.0, 0.5)
    """
    check_level(interval)
    whole: Of = of or (policy.guarantee.of if policy.guarantee else "decided")
    p = seen(probs, labels, sample_weight)
    refer, prediction, _ = policy.refer_or_decide(p.probs)
    wrong = prediction != p.labels

    def group(name: str, rows: NDArray[np.bool_], of: Of) -> ClassOutcome:
        n, referred, caught, missed = (
            float(p.weights[rows & chosen].sum()) for chosen in (rows, refer, wrong & refer, wrong & ~refer)
        )
        base = n if of == "all" else float(p.weights[rows & ~refer].sum())
        return ClassOutcome(name, n, referred, caught, missed, proportion(missed, base, interval) if base > 0 else None)

    everybody = group("all", np.ones(len(p), dtype=bool), whole)
    cost = None
    if policy.cost_refer is not None and policy.cost_miss is not None:
        statistic = cost_of(p, refer, policy.cost_refer, policy.cost_miss, prediction)
        found = estimate(statistic, p.weights, interval, 1000, seed)
        assert isinstance(found, Estimate)
        cost = found
    classes = range(p.n_classes)
    return Outcome(
        everybody,
        proportion(everybody.referred, everybody.n, interval),
        whole,
        tuple(group(policy.name(k), p.labels == k, "all") for k in classes),
        tuple(group(policy.name(k), prediction == k, whole) for k in classes),
        cost,
    )
