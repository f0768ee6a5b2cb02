"""Exponentials at many β, most of them by multiplication.

exp((β + kδ) d) = exp(β d) exp(δ d)^k: between neighbouring β a power of one factor lies, whose binary powers are
squares of each other. A multiplication takes a tenth of the time of an exponential. For that all β must be β₀ + kδ. So
nodes are moved by up to a quarter of their distances; what was computed at those is brought back to the nodes that
were asked for by the polynomial through them, which is as exact as the nodes are many (`resolving_nodes`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attemper._typing import Floats

__all__ = ["Ladder", "Rung", "ladder", "resolving_nodes"]

PARTS = 2  # of the smallest distance of nodes that the others are multiples of
MAX_JUMP = 15  # binary powers that are held at a time are four then
MAX_STEPS = 400  # each rounds; then an exponential begins anew
MIN_NODES = 4  # for fewer in a row two exponentials do not pay


class Rung(NamedTuple):
    """One β: the exponential is computed if ``jump`` is 0, otherwise multiplied by exp(step · d) as often."""

    beta: float
    step: float
    jump: int


class Ladder(NamedTuple):
    """The β to compute at, in ascending order."""

    rungs: list[Rung]
    back: Floats | None  # from values at the rungs to those at the β that were asked for; None: they are the same


def resolving_nodes(half: float) -> int:
    """Chebyshev nodes in an interval of log T of half length ``half`` whose coefficients end below 3e-9 of the first.

    Nothing may be singular within 0.8 of a real log T; of published networks that holds.
    """
    return int(np.ceil(20 / np.arcsinh(0.8 / max(half, 1e-9))))


def ladder(betas: Floats) -> Ladder:
    """Plan how to compute at ``betas``, which descend: exp(−u) for Chebyshev nodes u.

    >>> [rung.jump for rung in ladder(np.exp([0.2, 0.18, 0.1, 0.0, -0.1, -0.18, -0.2])).rungs]
    [0, 0, 0, 0, 0, 0, 0]
    """
    return _planned(tuple(betas.tolist()))


@lru_cache(maxsize=8)  # the plan is the same for every chunk
def _planned(given: tuple[float, ...]) -> Ladder:
    betas = np.array(given)
    ascending = betas[::-1]
    if len(betas) < max(MIN_NODES, resolving_nodes(float(np.log(ascending[-1] / ascending[0])) / 2)):
        return Ladder([Rung(float(beta), 0.0, 0) for beta in ascending], None)
    rungs: list[Rung] = []
    first = 0
    while first < len(ascending):
        group = _group(ascending, first)
        rungs += group
        first += len(group)
    moved = np.array([rung.beta for rung in rungs])
    return Ladder(rungs, _interpolation(moved, betas))


def _group(betas: Floats, first: int) -> list[Rung]:
    """Rungs from β number ``first`` on that are multiples of one step apart."""
    start = betas[first]
    best: list[Rung] = [Rung(float(start), 0.0, 0)]
    step = np.inf
    for last in range(first + 1, len(betas)):
        step = min(step, (betas[last] - betas[last - 1]) / PARTS)
        places = np.rint((betas[first : last + 1] - start) / step).astype(int)
        jumps = np.diff(places)
        if places[-1] > MAX_STEPS or jumps.max() > MAX_JUMP:
            break
        if len(places) >= MIN_NODES:
            best = [Rung(float(start + k * step), float(step), int(j)) for k, j in zip(places, [0, *jumps])]
    return best


def _interpolation(at: Floats, betas: Floats) -> Floats:
    """Matrix from values at some β to those at ``betas``, of the polynomial in log β."""
    low, high = np.log(min(at.min(), betas.min())), np.log(max(at.max(), betas.max()))
    basis, wanted = (
        np.polynomial.chebyshev.chebvander((2 * np.log(b) - low - high) / (high - low), len(at) - 1)
        for b in (at, betas)
    )
    return np.asarray(np.linalg.solve(basis.T, wanted.T).T)
