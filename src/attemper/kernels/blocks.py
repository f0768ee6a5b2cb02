"""A preconditioner of multinomial regression: the inverse of the Hessian's blocks, one for each class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from attemper._typing import Floats

__all__ = ["Blocks"]


# A block is made anew when the weights of its samples have changed by this share.
STALE = 0.2


class Blocks:
    """The blocks of the Hessian that belong to one class; only those that have changed are made anew."""

    def __init__(
        self, x: Floats, sample_weight: Floats, penalty: Floats, damping: Callable[[Floats, float], Floats]
    ) -> None:
        k, size = penalty.shape
        self.x, self.sample_weight, self.penalty, self.damping = x, sample_weight, penalty, damping
        self.blocks = np.zeros((k, size, size))
        self.weights = np.zeros((len(x), k))  # of the samples in each block

    def __call__(self, p: Floats, damping: float) -> Callable[[Floats], Floats]:
        """Return the inverse of all blocks at these probabilities."""
        h = p * (1 - p)
        h *= self.sample_weight[:, None]
        now, before = h.sum(axis=0), self.weights.sum(axis=0)
        # A class on its way to infinity fades evenly: its block is the old one, scaled.
        ratio = np.where(before > 0, now / np.where(before > 0, before, 1.0), 0.0)
        changed = np.abs(h - ratio * self.weights).sum(axis=0) > STALE * now
        for k in np.flatnonzero(changed | (ratio == 0)):
            self.blocks[k] = self._block(h[:, k])
            self.weights[:, k] = h[:, k]
            ratio[k] = 1.0
        blocks = self.blocks * ratio[:, None, None]
        if damping > 0:
            blocks += self.damping(p, damping)
        trace = np.trace(blocks, axis1=1, axis2=2) / blocks.shape[1]
        least = 1e-12 * trace + 1e-13 * trace.max() + 1e-100
        diagonal = np.einsum("kdd->kd", blocks)
        diagonal += self.penalty + least[:, None]
        # As Lᵀ⁻¹ L⁻¹ it is positive definite whatever the rounding.
        inverse = np.stack([lapack.dtrtri(lower, lower=1)[0] for lower in np.linalg.cholesky(blocks)])
        turned = inverse.transpose(0, 2, 1)
        return lambda r: (turned @ (inverse @ r[:, :, None]))[:, :, 0]

    def _block(self, h: Floats) -> Floats:
        """Σ h x xᵀ, of the samples that weigh most; the others are taken to be like them."""
        some = max(512, 32 * self.x.shape[1])
        if len(h) <= 2 * some:
            return np.asarray((self.x * h[:, None]).T @ self.x)
        rows = np.sort(np.argpartition(h, -some)[-some:])
        x, top = self.x[rows], h[rows]
        scale = h.sum() / max(float(top.sum()), 1e-300)
        return np.asarray((x * (scale * top)[:, None]).T @ x)
