"""What every minimiser returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Minimum"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimum:
    """Where a function is least, and how well that is known; arrays hold one entry for each function."""

    at: Any  # where: β, log T, θ, (A, b) or the weights of a mixture
    value: Any  # the function there
    error: Any  # of one variable: bound on the error of ``at``; else by how much ``value`` may exceed the least one
    n_iter: int
    converged: bool = True
