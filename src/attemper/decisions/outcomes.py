"""How a rule fares on labelled samples, counted in the unit of its promise, so that like is compared with like.

Where the promise is about cases, each counts once: its samples share its weight, within all, the class or the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._result import Columns, Estimate, Table
from attemper._typing import Floats, Labels
from attemper.data.inputs import as_ids
from attemper.decisions import words
from attemper.decisions.rules import Actions, Promise, Rule, checked, name_of
from attemper.errors import InputError
from attemper.kernels.clusters import case_numbers
from attemper.metrics.intervals import Spread, around_mean, share_of

# "broken": the interval lies beyond the bound; "unclear": the value alone does; "beyond": the interval does, of a class
# or group that the promise is not about.
Verdict = Literal["held", "unclear", "broken", "beyond"]


@dataclass(frozen=True)
class Part:
    """What happens to all cases, to those of a true class, or to those of a group.

    Counts are of cases, or of samples where there are no clusters or no promise; ``n_samples`` is always of samples.
    """

    of: Literal["all", "class", "group"]
    name: str
    n: float
    n_samples: float
    decided: float
    listed: float
    referred: float
    caught: float  # wrong predictions that are not decided
    missed: float  # wrong predictions that are decided
    miss_rate: Estimate | None  # of the decided; of a true class, of all its cases
    referred_share: Estimate | None
    coverage: Estimate | None = None  # of sets
    mean_size: float | None = None  # of sets
    bound: float | None = None  # what was promised for these, or for all together
    verdict: Verdict | None = None


@dataclass(frozen=True, repr=False)
class Outcome(Table):
    """A table with a row for all cases, for each true class and for each group."""

    parts: tuple[Part, ...]
    promise: Promise | None = None
    cost: Estimate | None = None  # of a sample, where the rule knows costs

    @property
    def all(self) -> Part:
        """Return the row of all cases."""
        return self.parts[0]

    def part(self, of: str, name: object) -> Part:
        """Return the row of a class or a group."""
        return next(part for part in self.parts if (part.of, part.name) == (of, str(name)))

    def columns(self) -> Columns:
        """Return one column for each number."""
        names = [name for name in Part.__dataclass_fields__ if any(getattr(p, name) is not None for p in self.parts)]
        return {name: [getattr(part, name) for part in self.parts] for name in names}

    def shown(self) -> Columns:
        """Return what is read first: shares, the rate that was promised, the verdict."""
        first = ("n", "referred_share", "miss_rate" if self.all.coverage is None else "coverage", "verdict")
        names = [part.name if part.of == "all" else f"{part.of} {part.name}" for part in self.parts]
        return {"of": names, **{name: cells for name, cells in self.columns().items() if name in first}}

    def notes(self) -> list[str]:
        """Return what is counted, and which class or group misses its bound."""
        counted = [] if self.promise is None or not self.promise.unit else [f"n: {words.unit(self.promise.unit)}"]
        return [*counted, *words.missed(self.parts, self.promise)]


def outcome_of(
    rule: Rule,
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confidence_level: float = 0.95,
) -> Outcome:
    """Apply a rule to labelled samples that it was not chosen on.

    With clusters, a promise about cases is compared with cases: each counts once. The intervals of several groups hold
    together at ``confidence_level`` (Šidák).

    Examples
    --------
    >>> from attemper.decisions import Referral
    >>> p = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> found = outcome_of(Referral(2, threshold=0.75), p, [0, 0, 0, 1])
    >>> found.all.referred, found.all.caught, found.all.missed, found.all.miss_rate.value
    (2.0, 1.0, 1.0, 0.5)
    """
    p, y, w = checked(probs, labels, sample_weight, classes)
    case = None if clusters is None else case_numbers(as_ids(clusters, len(p), "clusters"))
    promise = rule.promise
    if promise is not None and promise.unit and case is None:
        raise InputError(f"clusters: the promise is by {promise.unit}, so that of each sample is needed", "clusters")
    rows = _Treated(rule.decide(p, groups), y, w, case, promise)
    parts = [rows.part("all", "all", np.ones(len(y), dtype=bool), confidence_level)]
    parts += [rows.part("class", name_of(k, classes), y == k, confidence_level, k) for k in range(p.shape[1])]
    ids = np.zeros(0) if groups is None else as_ids(groups, len(y), "groups")
    names = np.unique(ids).tolist()
    together = confidence_level ** (1 / max(len(names), 1))
    parts += [rows.part("group", str(name), ids == name, together) for name in names]
    return Outcome(tuple(parts), promise, _cost(rule, rows, confidence_level))


@dataclass(frozen=True)
class _Treated:
    """Samples, and what is done with them."""

    actions: Actions
    labels: Labels
    weights: Floats
    case: Labels | None
    promise: Promise | None

    def part(self, of: Literal["all", "class", "group"], name: str, rows: Any, level: float, k: int = 0) -> Part:
        """Count some rows."""
        wrong, w, sets = self.actions.prediction != self.labels, self._weights(rows), self.actions.sets
        decided, listed, refer = (self.actions.action == one for one in ("decide", "list", "refer"))
        miss = share_of(wrong & decided, (w > 0) & (decided | (of == "class")), w, self.case, level)
        n, coverage, size = float(w.sum()), None, None
        if sets is not None:
            coverage = share_of(sets[np.arange(len(w)), self.labels], w > 0, w, self.case, level)
            size = float(w @ sets.sum(axis=1)) / n if n else None
        bound = self._bound(of, k)
        verdict = _verdict(bound, miss if sets is None else coverage, upper=sets is None)
        if self.promise is not None and of not in ("all", self.promise.by):
            verdict = "beyond" if verdict == "broken" else None
        referred = share_of(refer, w > 0, w, self.case, level)
        return Part(
            of, name, n, float(self.weights[rows].sum()), float(w @ decided), float(w @ listed), float(w @ refer),
            float(w @ (wrong & ~decided)), float(w @ (wrong & decided)), miss, referred, coverage,
            size, bound, verdict,
        )  # fmt: skip

    def _weights(self, rows: NDArray[np.bool_]) -> Floats:
        """Return the weights of some rows; in the unit of cases those of a case add up to 1."""
        w = np.where(rows, self.weights, 0.0)
        if self.case is None or self.promise is None or not self.promise.unit:
            return w
        return np.asarray(w / np.maximum(np.bincount(self.case, w), 1e-300)[self.case])

    def _bound(self, of: str, k: int) -> float | None:
        """Return what was promised for these, or is compared with them: groups, and classes of sets."""
        if self.promise is None:
            return None
        bounds, by_class = self.promise.bounds, self.promise.by == "class"
        if self.promise.kind == "coverage":
            return bounds[0]
        if by_class != (of == "class"):  # of a true class another rate is shown
            return None
        return (bounds[k] if bounds[k] < 1 else None) if by_class else bounds[0]


def _verdict(bound: float | None, rate: Estimate | None, *, upper: bool) -> Verdict | None:
    """Compare a rate with a bound from above, or from below."""
    if bound is None or rate is None:
        return None
    if rate.value <= bound if upper else rate.value >= bound:
        return "held"
    return "broken" if (rate.low > bound if upper else rate.high < bound) else "unclear"


def _cost(rule: Any, rows: _Treated, level: float) -> Estimate | None:
    """Return the mean cost of a sample."""
    refer, miss = getattr(rule, "cost_refer", None), getattr(rule, "cost_miss", None)
    if refer is None or miss is None:
        return None
    a, w = rows.actions, rows.weights
    cost = np.where(a.refer, refer, np.where(a.prediction != rows.labels, np.asarray(miss)[rows.labels], 0.0))
    return around_mean(float(w @ cost / w.sum()), Spread.of(cost, w, rows.case), level)
