"""Conditions that fail a pipeline: `--fail-if "ece>0.05"`, exit code 1."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from attemper.cli.options import Option, bundled
from attemper.cli.output import err
from attemper.errors import InputError

FAILED = 1  # the exit code where a condition holds

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
PARTS = ("value", "low", "high", "chance", "p_value")
PATTERN = re.compile(r"\s*(?:([^:<>=]+):)?\s*(\w+)(?:\.(\w+))?\s*(<=|>=|<|>)\s*(\S+)\s*")


class Condition(NamedTuple):
    """A bound on a figure that a command reports; the command fails where it holds."""

    text: str
    method: str | None  # whose figure; None: that of the map, or of the recommended method
    name: str
    part: str
    operator: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        >>> Condition.parse("ece.low > 0.05")[1:]
        (None, 'ece', 'low', '>', 0.05)
        >>> Condition.parse("none:nll>=1.2")[1:]
        ('none', 'nll', 'value', '>=', 1.2)
        """
        found = PATTERN.fullmatch(text)
        try:
            bound = float(found[5] if found else "")
        except ValueError:
            found = None
        if found is None or not bound == bound:
            raise InputError(
                f"--fail-if {text!r}: expected a figure, one of <, <=, >, >=, and a number, such as 'ece>0.05', "
                "'nll.high>1.2' or 'none:ece<0.1'"
            )
        part = found[3] or "value"
        if part not in PARTS:
            raise InputError(f"--fail-if {text!r}: .{part} is not one of {', '.join(f'.{name}' for name in PARTS)}")
        return cls(text.strip(), found[1] and found[1].strip(), found[2], part, found[4], bound)

    def check(self, figures: Mapping[str, Any]) -> Checked:
        """Look up the figure, a number or a dict of an estimate, and compare it."""
        if self.name not in figures:
            raise InputError(f"--fail-if {self.text!r}: there is no {self.name!r}; use one of {_some(figures, 40)}")
        found = figures[self.name]
        parts = found if isinstance(found, dict) else {"value": found}
        value = parts.get(self.part)
        if value is None or value != value:  # NaN is on neither side of a bound
            why = parts.get("note") or f"{self.name} has no {self.part} here"
            return Checked(self, None, None, why)
        return Checked(self, float(value), not OPERATORS[self.operator](float(value), self.bound))


class Checked(NamedTuple):
    """A condition, the figure that it is about, and whether it passed; None where there is no figure, with ``why``."""

    condition: Condition
    value: float | None
    passed: bool | None
    why: str = ""

    def sentence(self) -> str:
        """Write what was found."""
        c = self.condition
        name = (f"{c.method}:" if c.method else "") + c.name + (f".{c.part}" if c.part != "value" else "")
        if self.value is None:
            return f"{name} cannot be compared with {c.bound:g}: {self.why}"
        return f"{name} = {self.value:.6g} is {'not ' if self.passed else ''}{c.operator} {c.bound:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        c = self.condition
        return {
            "condition": c.text,
            "method": c.method,
            "figure": c.name,
            "part": c.part,
            "bound": c.bound,
            "value": self.value,
            "passed": self.passed,
            "reason": self.why or None,
        }


class Gate:
    """The conditions of a command."""

    def __init__(self, conditions: Sequence[str]) -> None:
        self.conditions = [Condition.parse(text) for text in conditions]
        self.checked: list[Checked] = []

    def check(self, rows: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, Any]:
        """Compare the figures of each method, and return what is added to the JSON."""
        for condition in self.conditions:
            method = condition.method or default
            if method not in rows:
                raise InputError(
                    f"--fail-if {condition.text!r}: there is no {method!r}; before the colon use one of {_some(rows)}"
                )
            self.checked.append(condition.check(rows[method]))
        return {"fail_if": [each.to_dict() for each in self.checked]} if self.conditions else {}

    def end(self) -> int:
        """Print the conditions that failed, and return the exit code."""
        for each in self.checked:
            if not each.passed:
                err.print(f"failed: {each.condition.text}: {each.sentence()}")
        missing = next((each for each in self.checked if each.passed is None), None)
        if missing is not None:
            raise InputError(f"--fail-if {missing.condition.text!r}: {missing.sentence()}")
        return 0 if all(each.passed for each in self.checked) else FAILED


def _some(names: Iterable[str], most: int = 20) -> str:
    """Write names; of many the first ones."""
    known = list(names)
    return ", ".join(known[:most]) + (f", … ({len(known)} in all)" if len(known) > most else "")


gating = bundled(
    "gate",
    lambda given: Gate(given["fail_if"]),
    {
        "fail_if": click.option(
            "--fail-if",
            multiple=True,
            metavar="CONDITION",
            cls=Option,
            group="Pipelines",
            help="Exit with code 1 if this holds, such as 'ece>0.05', 'ece.low>0.02' or 'ts:nll.high>1.2'; repeat for "
            "several.",
        )
    },
)
"""Options of pipelines; the command gets ``gate``, a `Gate`."""
