"""`decide_scores`: fit a calibrator or take one, choose a rule with a guarantee, and see how it fares on test data."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from attemper._result import Columns, Table
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.label_model import Noise
from attemper.calibrators.registry import method_of, reads_like
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.data.shared import was_fitted_on
from attemper.decisions import words
from attemper.decisions.outcomes import Outcome, outcome_of
from attemper.decisions.referral import refer_for_budget, refer_for_costs, refer_for_miss
from attemper.decisions.rules import Choice, Rule, Shortage
from attemper.decisions.sets import conformal_sets
from attemper.errors import InputError, check_seed, warn

UNTIED = 0.9  # share of different confidences below which ties are no coincidence
FIT_SHARE = 0.2  # of the cases of VAL, where no calibrator is passed


@dataclass(frozen=True, eq=False, repr=False)
class Decision(Table):
    """A calibrator with its rule, and how that fares; or no rule, and what is missing for the guarantee."""

    calibrator: Calibrator  # has `rule_` where a rule was found
    rule: Rule | None
    outcome: Outcome | None  # on TEST; without TEST on the cases of VAL that chose the rule; None without a rule
    tested: bool  # whether the outcome is that of TEST
    shortages: tuple[Shortage, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether there is a rule."""
        return self.rule is not None

    def columns(self) -> Columns:
        """Return the outcome; without a rule, how many more cases are needed, of which class."""
        if self.outcome is not None:
            return self.outcome.columns()
        names = ("of", "n_cases", "more", "errors", "tested")
        return {name: [getattr(each, name) for each in self.shortages] for name in names}

    def shown(self) -> Columns:
        """Return what is read first."""
        return self.columns() if self.outcome is None else self.outcome.shown()

    def notes(self) -> list[str]:
        """Return what is promised, or what is missing."""
        if self.rule is None or self.outcome is None:
            return words.missing(self.shortages)
        promise = self.rule.promise
        lines = [words.RATES] if self.outcome.all.coverage is None else []
        lines += [] if promise is None else words.promised(promise, self.calibrator.classes_.tolist())
        lines += words.missed(self.outcome.parts, promise)
        return lines if self.tested else [*lines, words.UNTESTED]


def decide_scores(
    val: Scores,
    test: Scores | None = None,
    *,
    calibrator: Calibrator | None = None,
    method: str | Calibrator | type[Calibrator] = "bayes",
    noise: Noise = 0,
    max_miss: float | Mapping[Any, float] | None = None,
    budget: float | None = None,
    costs: Mapping[Any, float] | None = None,
    coverage: float | None = None,
    by: Literal["class", "group"] | None = None,
    guarantee_level: float | None = 0.95,
    unit: str = "cluster",
    seed: int = 0,
) -> Decision:
    """Choose a rule on VAL for one of the four goals, and apply it to TEST.

    Without a calibrator VAL is divided: a fifth of the cases fits one, the rest chooses the rule; clusters stay
    together. The parameters are those of `attemper.decide`; ``unit`` is what a cluster is called, and
    ``guarantee_level=None`` gives sets whose coverage holds on average over draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(4000, 3))
    >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> val, test = (Scores.of(logits[part], labels[part]) for part in (slice(0, 2000), slice(2000, 4000)))
    >>> decision = decide_scores(val, test, max_miss=0.1)
    >>> decision.reached, decision.outcome.all.miss_rate.value < 0.1, decision.rule.n_cases
    (True, True, (1600,))
    """
    goals = {"max_miss": max_miss, "budget": budget, "costs": costs, "coverage": coverage}
    asked = [name for name, value in goals.items() if value is not None]
    if len(asked) != 1:
        got = " and ".join(f"{name}=…" for name in asked) or "none"
        raise InputError(f"max_miss: expected one of {', '.join(f'{name}=…' for name in goals)}, got {got}", "max_miss")
    for name, scores in (("val", val), ("test", test)):
        if scores is not None and (scores.multi_label or scores.labels is None):
            raise InputError(f"{name}: expected one label for each row; pass (logits, labels), or name them", name)
        if scores is not None and scores.n_samples < len(scores):
            raise InputError(f"{name}: expected one label for each sample, got shares; use their argmax(axis=1)", name)
    if by is not None and coverage is None and not (by == "class" and isinstance(max_miss, Real)):
        raise InputError(f"by={by!r}: use it with coverage; or by='class' with one number for max_miss", "by")
    if guarantee_level is None and max_miss is not None:
        raise InputError("guarantee_level: max_miss needs one. None is for coverage.", "guarantee_level")
    check_seed(seed)
    for name, given in {"method": method != "bayes", "noise": noise != 0}.items():
        if calibrator is not None and given:
            raise InputError(f"{name}: the calibrator is fitted. Use one of the two.", name)
    if calibrator is None:
        (fitting, val), cal = _divided(val, seed), method_of(method, noise)
        reads_like(cal, val)
        cal.fit(fitting)
        fit_probs: Floats | None = _probs(cal, fitting)
    else:
        cal, fit_probs = copy.copy(calibrator), None
        if was_fitted_on(cal, val):
            raise InputError("calibrator: it was fitted on VAL. Use other samples, or leave it out.", "calibrator")
    probs, classes = _probs(cal, val), cal.classes_.tolist()
    cases: dict[str, Any] = {"clusters": val.clusters, "sample_weight": val.w, "classes": classes}
    level: dict[str, Any] = {"guarantee_level": guarantee_level, "unit": unit, "seed": seed}
    if max_miss is not None:
        different = len(np.unique(probs.max(axis=1)))
        if fit_probs is None and isinstance(max_miss, Real) and by is None and different < UNTIED * len(probs):
            warn("calibrator: its confidences are tied; the guarantee is not proven then. Let decide fit one.")
        bound: Any = [max_miss] * len(classes) if by == "class" else max_miss
        choice = refer_for_miss(probs, val.labels, bound, fit_probs=fit_probs, **cases, **level)
    elif coverage is not None:
        choice = conformal_sets(probs, val.labels, coverage, by=by, groups=val.groups, **cases, **level)
    elif budget is not None:
        choice = Choice(refer_for_budget(probs, budget, sample_weight=val.w))
    else:
        choice = Choice(refer_for_costs(costs or {}, len(classes), classes))
    cal.__dict__.pop("rule_", None)
    if choice.rule is None:
        share = 1.0 if calibrator is not None else 1 - FIT_SHARE  # of the cases that come, so many choose the rule
        more = [None if s.more is None else math.ceil(s.more / share) for s in choice.shortages]
        return Decision(cal, None, None, False, tuple(replace(s, more=m) for s, m in zip(choice.shortages, more)))
    cal.rule_ = choice.rule
    seen = val if test is None else test
    ids: dict[str, Any] = {"groups": seen.groups, "clusters": seen.clusters, "sample_weight": seen.w}
    outcome = outcome_of(choice.rule, _probs(cal, seen), seen.labels, classes=classes, **ids)
    if test is None:  # the cases that chose the rule cannot test it
        outcome = replace(outcome, parts=tuple(replace(part, verdict=None) for part in outcome.parts))
    return Decision(cal, choice.rule, outcome, test is not None)


def _divided(val: Scores, seed: int) -> tuple[Scores, Scores]:
    """Return what fits the calibrator, a fifth of the cases drawn at random, and the rest; counts are divided, too."""
    case, rng = np.arange(len(val)) if val.cases is None else val.cases, np.random.default_rng([seed, 2])
    if val.w is not None and val.cases is None and (val.w == np.floor(val.w)).all():
        counts = val.w.astype(np.int64)
        drawn = rng.multivariate_hypergeometric(counts, max(1, round(FIT_SHARE * counts.sum())), method="marginals")
        parts = [val.with_weights(w.astype(np.float64)) for w in (drawn, counts - drawn)]
        return parts[0].take(drawn > 0), parts[1].take(drawn < counts)
    n = int(case.max()) + 1
    if n < 2:
        raise InputError("val: expected two cases or more, got one", "val")
    fitting = np.zeros(n, dtype=bool)
    fitting[rng.permutation(n)[: max(1, round(FIT_SHARE * n))]] = True
    return val.take(fitting[case]), val.take(~fitting[case])


def _probs(cal: Calibrator, scores: Scores) -> Floats:
    return np.asarray(to_numpy(cal.predict_proba(scores)), dtype=np.float64)
