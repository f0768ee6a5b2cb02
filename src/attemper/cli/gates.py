"""Conditions that fail a pipeline: `--fail-if "ece > 0.05"`."""

from __future__ import annotations

import math
import operator
import re
from typing import Any, NamedTuple

from attemper.applying import Evaluated
from attemper.errors import InputError, listed, nearest
from attemper.metrics.evaluation import METRICS

OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
ENDS = ("value", "low", "high", "chance", "p")
PATTERN = re.compile(r"\s*(?:(before|after):)?\s*(\w+)(?:\.(\w+))?\s*(<=|>=|<|>)\s*(\S+)\s*")


class Condition(NamedTuple):
    """A bound on a metric; a command fails where it holds."""

    text: str
    when: str | None  # before or after calibration; None: the last there is
    metric: str
    end: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        >>> Condition.parse("before:ece.low > 0.05")[1:]
        ('before', 'ece', 'low', '>', 0.05)
        """
        found = PATTERN.fullmatch(text)
        try:
            bound = float(found[5]) if found else math.nan
        except ValueError:
            bound = math.nan
        if found is None or math.isnan(bound) or (found[3] or "value") not in ENDS:
            raise InputError(f"fail_if: expected such as 'ece > 0.05' or 'nll.high > 1.2', got {text!r}", "fail_if")
        if found[2] not in METRICS:
            raise InputError(f"fail_if: there is no metric {found[2]!r}.{nearest(found[2], METRICS)}", "fail_if")
        return cls(text.strip(), found[1], found[2], found[3] or "value", found[4], bound)

    def check(self, found: Evaluated) -> dict[str, Any]:
        """Compare; a number that does not exist is an error, never a pass."""
        table = found.before if self.when == "before" else found.after if self.when == "after" else found
        if table is None:
            raise InputError(f"fail_if: {self.text!r} needs a calibrator", "fail_if")
        if self.metric not in found.before:
            raise InputError(f"fail_if: {self.metric!r} is not among {listed(found.before)}. Use metrics=….", "fail_if")
        value = getattr(table[self.metric], self.end)
        if value is None or math.isnan(value):
            why = table[self.metric].note or f"it has no {self.end}"
            raise InputError(f"fail_if: {self.text!r} cannot be compared: {why}", "fail_if")
        return {"condition": self.text, "value": value, "failed": OPERATORS[self.sign](value, self.bound)}
