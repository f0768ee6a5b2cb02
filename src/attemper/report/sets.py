"""The section on prediction sets: how often they hold the true class, and how large they are."""

from __future__ import annotations

from typing import Any

from attemper.decisions import SetOutcome, SetPolicy, SetShare
from attemper.report.numbers import count, fixed, percent_interval, triple

__all__ = ["sets_of"]

MOST = 50  # rows of a table


def sets_of(given: tuple[SetPolicy, SetOutcome] | None) -> dict[str, Any] | None:
    """Return what the section shows of a policy and of how it fares; None without."""
    if given is None:
        return None
    policy, outcome = given
    parts = {
        "true class": outcome.by_class,
        "group": outcome.by_group,
        "size of the set": outcome.by_size,
    }
    return {
        "tables": [[name, [_row(r) for r in rows[:MOST]]] for name, rows in parts.items() if rows],
        "sentences": _sentences(policy, outcome.all),
    }


def _row(share: SetShare) -> dict[str, Any]:
    return {
        "name": share.name,
        "coverage": None if share.coverage is None else triple(share.coverage),
        **{name: getattr(share, name) for name in ("n", "mean_size", "decided", "listed", "referred")},
    }


def _sentences(policy: SetPolicy, every: SetShare) -> list[str]:
    assert every.coverage is not None
    assert every.mean_size is not None
    promise, rule = policy.promise(), policy.rule()
    return [
        f"{promise[:1].upper()}{promise[1:]}.",
        f"On the {count(every.n)} test samples {percent_interval(triple(every.coverage))} of the sets hold the true "
        f"class; their mean size is {fixed(every.mean_size, 2)}.",
        f"{count(every.decided)} cases are decided, {count(every.listed)} get a short list, and "
        f"{count(every.referred)} are referred.",
        f"The rule: {rule}.",
    ]
