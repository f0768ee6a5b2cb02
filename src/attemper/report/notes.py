"""Notes below the table of methods: each reason once, with the figures and the methods that it applies to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attemper.metrics.group_table import and_others

__all__ = ["notes_of_fits", "p_value", "without_interval"]

NAMES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "area": "referral area"}


def without_interval(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return why figures of the table have no interval.

    >>> reasons = dict.fromkeys(["nll", "ece"], "too few errors: 4, and 20 are needed")
    >>> without_interval([{"method": name, "metrics": {}, "reasons": reasons} for name in ("none", "ts")])
    ['No interval for NLL and ECE: too few errors: 4, and 20 are needed.']
    """
    rows = list(rows)
    methods: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for metric, reason in row["reasons"].items():
            methods.setdefault((metric, reason), []).append(row["method"])
    metrics: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (metric, reason), names in methods.items():
        metrics.setdefault((reason, tuple(names)), []).append(NAMES.get(metric, metric))
    n_methods = sum(row["metrics"] is not None for row in rows)
    found = []
    for (reason, some), figures in metrics.items():
        of = "" if len(some) == n_methods else f" of {and_others(some)}"
        found.append(f"No interval for {and_others(figures)}{of}: {re.sub('^no interval(: | for )', '', reason)}.")
    return found


def notes_of_fits(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return each note once, after the methods that it is about.

    >>> notes_of_fits([{"method": name, "notes": ["few samples"]} for name in ("ts", "bayes")])
    [('ts and bayes', 'few samples')]
    """
    methods: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            methods.setdefault(note, []).append(row["method"])
    return [(and_others(names), note) for note, names in methods.items()]


def p_value(p: float, resamples: int) -> str:
    """Write a p-value from resamples, which cannot be below 1 / (resamples + 1).

    >>> p_value(0.034, 1000), p_value(1 / 1001, 1000)
    ('p = 0.034', 'p ≤ 0.001')
    """
    return f"p {'≤' if p * (resamples + 1) <= 1 + 1e-6 else '='} {p:.2g}"
