"""How labels come about, given logits of what is true: right, or wrong at a rate, or through a transition matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.softmax import row_max

__all__ = ["Channel", "State"]


class State(NamedTuple):
    """What labels imply about logits."""

    log_likelihood: Floats  # of each label
    p: Floats  # probabilities of what is true
    d: Floats  # dℓ/dz
    info: Floats  # how much of a clean label's worth each label has


class Channel(NamedTuple):
    """How labels come about: right, or uniform over the classes at a rate, or by a matrix (true class × label)."""

    rate: float = 0.0
    matrix: Floats | None = None

    def apply(self, z: Floats, y: NDArray[np.int64]) -> State:
        """Return the log-likelihood of each label, with its derivatives."""
        n, k = z.shape
        rows = np.arange(n)
        p = z - row_max(z)[:, None]
        at = p[rows, y]
        np.exp(p, out=p)
        total = _row_sums(p)
        log_s = at - np.log(total)
        p *= (1 / total)[:, None]
        if self.matrix is not None:
            q = np.ascontiguousarray(self.matrix.T)[y]
            q *= p
            likelihood = np.maximum(_row_sums(q), 1e-300)
            q *= (1 / likelihood)[:, None]
            before, after = np.vecdot(p, 1 - p), np.vecdot(q, 1 - q)
            info = np.clip(1 - after / np.maximum(before, 1e-12), 0.05, 1)
            q -= p
            return State(np.log(likelihood), p, q, info)
        if self.rate == 0:
            d = -p
            d[rows, y] += 1
            return State(log_s, p, d, np.ones(n))
        floor = self.rate / k
        right = (1 - self.rate) * np.exp(log_s)
        share = right / (right + floor)
        d = p * -share[:, None]
        d[rows, y] += share
        return State(np.log(right + floor), p, d, share)

    def log_likelihood(self, z: Floats, y: NDArray[np.int64]) -> Floats:
        """Log-likelihood alone."""
        top = row_max(z)
        e = z - top[:, None]
        np.exp(e, out=e)
        if self.matrix is not None:
            mixed = np.vecdot(e, np.ascontiguousarray(self.matrix.T)[y]) / _row_sums(e)
            return np.asarray(np.log(np.maximum(mixed, 1e-300)))
        log_s = z[np.arange(len(y)), y] - top - np.log(_row_sums(e))
        if self.rate == 0:
            return np.asarray(log_s)
        return np.asarray(np.log((1 - self.rate) * np.exp(log_s) + self.rate / z.shape[1]))


def _row_sums(a: Floats) -> Floats:
    return np.asarray(a @ np.ones(a.shape[1]))
