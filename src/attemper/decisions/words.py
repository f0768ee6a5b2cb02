"""What is promised, missing and observed, in sentences: the only place of this package that writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attemper.decisions.rules import Promise, Shortage, name_of

if TYPE_CHECKING:
    from attemper.decisions.outcomes import Part

RATES = "miss rate: of the decided cases; of a class, of all its true cases."
UNTESTED = "The numbers are those of the cases that chose the rule; pass test data for others."


def promised(promise: Promise, classes: Sequence[Any] | None = None) -> list[str]:
    """Write a promise, one sentence for each bound.

    >>> promised(Promise("miss", (0.1,), 0.95, None, "patient"))
    ['With 95% confidence, at most 10% of the decided cases are wrong (one sample of each patient).']
    """
    level = "On average" if promise.level is None else f"With {100 * promise.level:.4g}% confidence"
    counted = f" ({unit(promise.unit)})" if promise.unit else ""
    if promise.kind == "coverage":
        of = {None: "", "class": " of each true class", "group": " of each group"}[promise.by]
        return [f"{level}, at least {_percent(promise.bounds[0])} of the sets{of} hold the true class{counted}."]
    if promise.by is None:
        return [f"{level}, at most {_percent(promise.bounds[0])} of the decided cases are wrong{counted}."]
    asked = [(name_of(k, classes), bound) for k, bound in enumerate(promise.bounds) if bound < 1]
    return [
        f"{level}, at most {_percent(bound)} of the true {name} cases are decided as something else{counted}."
        for name, bound in asked
    ]


def unit(name: str) -> str:
    """Write what is counted: samples, or one sample of each cluster."""
    return f"one sample of each {name}" if name else "samples"


def missing(shortages: Iterable[Shortage]) -> list[str]:
    """Write how many more cases a guarantee needs.

    >>> missing([Shortage("mel", 20, 9)])
    ['No guarantee. There are too few cases of mel (20): label about 9 more.']
    """
    lines = []
    for found in shortages:
        cases = "cases" if found.of is None else f"cases of {found.of}"
        seen = f"; {found.errors} of the {found.tested} most confident are wrong" if found.tested else ""
        more = "label more, or use a higher bound; these do not show how many more it takes"
        fix = more if found.more is None else f"label about {found.more} more"
        lines.append(f"No guarantee. There are too few {cases} ({found.n_cases}{seen}): {fix}.")
    return lines


def missed(parts: Iterable[Part], promise: Promise | None) -> list[str]:
    """Write which class or group is clearly beyond a bound, and whether the promise is about it."""
    lines = []
    for part in parts:
        if part.verdict not in ("broken", "beyond") or part.bound is None or promise is None:
            continue
        covers = promise.kind == "coverage"
        rate, side = (part.coverage, "at least") if covers else (part.miss_rate, "at most")
        together = "for all together, not for each" if promise.by is None else f"for each {promise.by}"
        asked = "was promised" if part.verdict == "broken" else f"was promised {together}"
        what = "covered" if covers else "missed"
        name = "all cases" if part.of == "all" else f"{part.of} {part.name}"
        lines.append(f"{name}: {rate:.1%} {what}; {side} {_percent(part.bound)} {asked}.")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
