"""A claim of the paper, the rule that decides about it, and what the numbers are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from experiments.claims.results import Results

__all__ = ["HALF", "MOST", "Claim", "Finding", "share"]

MOST, HALF = 0.9, 0.5  # "almost all cases", and at least half of them


@dataclass(frozen=True)
class Finding:
    """What the numbers of the studies are for one claim.

    Attributes
    ----------
    holds, in_part : whether the two conditions of the claim's rule are met
    number : the one that decides
    details : Markdown, with the figures that a reader needs to check it
    """

    holds: bool
    in_part: bool
    number: str
    details: str

    @property
    def verdict(self) -> str:
        """Return the verdict: the first condition that is met."""
        return "holds" if self.holds else "holds in part" if self.in_part else "does not hold"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can decide about.

    Attributes
    ----------
    title : the claim in a few words
    source : where it stands, with the paper's words
    pages : of `experiments.reproduce`, whose CSV files it is decided from
    holds_if, in_part_if : the rule in words; `find` has the same in code
    find : the figures
    command : what makes the numbers, where that is not `experiments.reproduce`
    """

    title: str
    source: str
    pages: tuple[str, ...]
    holds_if: str
    in_part_if: str
    find: Callable[[Results], Finding]
    command: str = ""

    @property
    def made_by(self) -> str:
        """Return the command that makes the numbers."""
        return self.command or f"python -m experiments.reproduce {' '.join(self.pages)}"


def share(chosen: Iterable[object]) -> float:
    """Return the share of conditions that are true; 0 without any.

    >>> share([True, False]), share([])
    (0.5, 0.0)
    """
    met = [bool(one) for one in chosen]
    return sum(met) / len(met) if met else 0.0
