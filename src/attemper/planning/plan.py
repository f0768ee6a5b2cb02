"""A plan: a number of labels, and the curve that it was read from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.errors import InputError

__all__ = ["MOST_LABELS", "Plan", "curve_around", "smallest"]

MOST_LABELS = 100_000_000  # a plan for more helps nobody
Question = Literal["temperature", "accuracy", "nll", "brier", "ece", "certificate", "coverage"]


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Table):
    """How many labels you need: what the functions ``labels_for_…`` return.

    Attributes
    ----------
    question : str
        "temperature", a metric, "certificate" or "coverage".
    goal : str
        The question in words.
    n_samples : int
        The smallest number of labels for which it is expected to hold.
    n_range : (int, int) or None
        95 % range of that number, as far as the pilot leaves it open. None where that is not known, or exact.
    n_clusters : int or None
        How many clusters that is, where the pilot has some.
    curve : dict of arrays
        ``n_samples``, what is expected of so many, and its standard error (``_error``) where it was simulated.
        `to_pandas` returns it as a data frame.
    target : float
        What the second column of the curve has to reach.
    confidence_level : float
    notes : tuple of str
        What the plan rests on.

    Examples
    --------
    >>> from attemper.planning import labels_for_coverage
    >>> plan = labels_for_coverage(0.95, within=0.02)
    >>> plan
    Plan(coverage: 442 labels)
    >>> [name for name in plan.curve]
    ['n_samples', 'within']
    """

    question: Question
    goal: str
    n_samples: int
    curve: dict[str, Floats]
    target: float
    confidence_level: float = 0.95
    n_range: tuple[int, int] | None = None
    n_clusters: int | None = None
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"Plan({self.question}: {self.n_samples} labels)"

    def describe(self) -> list[str]:
        """Return a readable summary."""
        between = "" if self.n_range is None else f" (the pilot leaves {self.n_range[0]} to {self.n_range[1]} open)"
        of = "" if self.n_clusters is None else f" of {self.n_clusters} clusters"
        return [f"{self.n_samples} labels{of}{between} for {self.goal}", *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "question": self.question,
            "goal": self.goal,
            "n_samples": self.n_samples,
            "n_range": None if self.n_range is None else list(self.n_range),
            "n_clusters": self.n_clusters,
            "target": self.target,
            "confidence_level": self.confidence_level,
            "curve": [
                {name: int(v) if name == "n_samples" else float(v) for name, v in zip(self.curve, row, strict=True)}
                for row in zip(*self.curve.values(), strict=True)
            ],
            "notes": list(self.notes),
        }

    def _table_columns(self) -> Columns:
        return self.curve

    def _html_notes(self) -> Iterable[str]:
        return self.describe()


def smallest(holds: Callable[[int], bool], goal: str, *, at_least: int = 1, precision: float = 0.0) -> int:
    """Return the smallest n for which something holds that goes on to hold; to a relative ``precision``.

    >>> smallest(lambda n: n >= 1234, "")
    1234
    """
    low, high = at_least - 1, at_least
    while not holds(high):
        if high >= MOST_LABELS:
            raise InputError(f"more than {MOST_LABELS:,} labels for {goal}. Use a wider one.".replace(",", " "))
        low, high = high, min(2 * high, MOST_LABELS)
    while high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def curve_around(n: int, *, at_least: int = 1) -> Floats:
    """Numbers of labels to show around n: 1, 2 and 5 times a power of ten, and n itself.

    >>> curve_around(431).tolist()
    [50.0, 100.0, 200.0, 431.0, 500.0, 1000.0, 2000.0]
    """
    low, high = max(at_least, n / 10), min(5 * n, MOST_LABELS)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [float(m * 10**d) for d in decades for m in (1, 2, 5)]
    return np.union1d([step for step in steps if low <= step <= high], [float(n)])
