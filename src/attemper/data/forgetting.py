"""Exponential forgetting: old samples count less, by how many follow them.

A sample counts half when ``half_life`` others have come after it. Age is counted in samples, so a stream gives the
same weights however it is cut into batches. A weight counts repeats of its row here as everywhere: weight 2 is the
sample twice, one after the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from attemper._checks import positive
from attemper._typing import Floats

__all__ = ["Faded", "check_half_life", "fade"]


class Faded(NamedTuple):
    """A batch as it counts at its end, and what is left of all before it."""

    weights: Floats
    before: float


def check_half_life(half_life: float | None) -> None:
    """Reject what is no half-life."""
    if half_life is not None:
        positive("half_life", half_life, of="samples")


def fade(weights: Floats, half_life: float) -> Faded:
    """Weights of a batch, oldest first, at the moment after its last sample.

    With r = 2^(−1/half_life) a sample of weight 1 and age a counts r^a, and one of weight w counts as w in a row:
    r^a (1 + r + … + r^(w−1)) = r^a (1 − r^w) / (1 − r), which is defined for any w ≥ 0.

    >>> fade(np.ones(3), half_life=1).weights
    array([0.25, 0.5 , 1.  ])
    >>> fade(np.array([2.0, 1.0]), half_life=1)
    Faded(weights=array([0.75, 1.  ]), before=0.125)
    """
    rate = -math.log(2) / half_life
    with np.errstate(over="ignore", under="ignore"):
        after = np.cumsum(weights[::-1])[::-1] - weights
        own = np.expm1(rate * weights) / np.expm1(rate)
        return Faded(own * np.exp2(-after / half_life), float(np.exp2(-weights.sum() / half_life)))
