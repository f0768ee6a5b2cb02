"""How prediction sets fare on labelled samples: how often they hold the true class, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction
from attemper._json import to_fields
from attemper._table import Columns, Table
from attemper.decisions.policy import as_predictions
from attemper.decisions.sets import SetPolicy
from attemper.metrics import Estimate
from attemper.metrics.intervals import share_held

__all__ = ["SetOutcome", "SetShare", "set_outcome"]


@dataclass(frozen=True)
class SetShare:
    """Summary of the sets of some samples, part of `set_outcome`; counts are sums of weights."""

    name: str
    n: float
    coverage: Estimate | None  # share of the sets that hold the true class; None: there are no samples
    mean_size: float | None
    decided: float  # sets of one class
    listed: float  # of at most max_size
    referred: float


@dataclass(frozen=True, repr=False)
class SetOutcome(Table):
    """Outcome for all samples, by true class, by group and by size of the set: `set_outcome` returns it."""

    all: SetShare
    by_class: tuple[SetShare, ...]
    by_group: tuple[SetShare, ...]
    by_size: tuple[SetShare, ...]  # the distribution of sizes; of sizes that occur
    n_clusters: int | None = None  # None: samples are independent

    def __repr__(self) -> str:
        c, size = self.all.coverage, self.all.mean_size
        shown = "" if c is None else f", coverage={c.value:.4g} ({c.low:.4g} to {c.high:.4g}), mean_size={size:.4g}"
        return f"SetOutcome(n={self.all.n:g}{shown})"

    def _table_columns(self) -> Columns:
        parts = {"all": (self.all,), "true class": self.by_class, "group": self.by_group, "size": self.by_size}
        rows = [(part, each) for part, shares in parts.items() for each in shares]
        names = ("name", "n", "coverage", "mean_size", "decided", "listed", "referred")
        return {"of": [part for part, _ in rows]} | {name: [getattr(r, name) for _, r in rows] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text; those of all samples come first."""
        found = to_fields(self)
        return {**found.pop("all"), **found}


def set_outcome(
    policy: SetPolicy,
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    groups: Any = None,
    clusters: Any = None,
    sample_weight: ArrayLike | None = None,
    confidence_level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> SetOutcome:
    """Apply a policy to labelled samples that its thresholds were not taken from.

    Shares come with Clopper–Pearson intervals (weights count as repeats: their unit matters). With ``clusters`` the
    number of samples is divided by the design effect, which is at least 1 (E. Korn and B. Graubard, Confidence
    intervals for proportions with small expected number of positive counts estimated from survey data, 1998).

    Examples
    --------
    >>> policy = SetPolicy("lac", 0.9, (0.75,), (99,), n_classes=3, n_samples=99)
    >>> found = set_outcome(policy, [[0.9, 0.06, 0.04], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]], [0, 1, 2])
    >>> found.all.n, round(found.all.coverage.value, 3), found.all.mean_size
    (3.0, 0.667, 1.3333333333333333)
    >>> [(row.name, row.n) for row in found.by_size]
    [('1', 2.0), ('2', 1.0)]
    """
    fraction("confidence_level", confidence_level)
    p = as_predictions(probs, labels, sample_weight, policy.classes, clusters, groups)
    ids, cluster = p.groups, p.clusters
    sets = policy.sets(p.probs, groups=ids, seed=seed)
    covered, sizes = sets.mask[np.arange(len(p)), p.labels], sets.sizes

    def share(name: str, rows: NDArray[np.bool_]) -> SetShare:
        w = p.weights[rows]
        if not len(w):
            return SetShare(name, 0.0, None, None, 0.0, 0.0, 0.0)
        own = None if cluster is None else cluster[rows]
        held = share_held(covered[rows], w, own, confidence_level)
        acts = (float(w[sets.action[rows] == action].sum()) for action in ("decide", "list", "refer"))
        return SetShare(name, float(w.sum()), held, float(w @ sizes[rows] / w.sum()), *acts)

    return SetOutcome(
        share("all", np.ones(len(p), dtype=bool)),
        tuple(share(policy.name(k), p.labels == k) for k in range(p.n_classes)),
        () if ids is None else tuple(share(str(g), ids == g) for g in np.unique(ids)),
        tuple(share(str(size), sizes == size) for size in np.unique(sizes)),
        None if cluster is None else len(np.unique(cluster)),
    )
