"""The objective of multinomial regression, its derivatives, and approximate inverses of its Hessian.

F is the one of `attemper.kernels.regression`, which minimises it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._typing import Floats
from attemper.kernels.blocks import Blocks
from attemper.kernels.softmax import BOTTOM, row_max

__all__ = ["Params", "Problem", "State"]


# The blocks of a preconditioner hold at most this many numbers (128 MB); above, all classes share one.
MAX_BLOCKS = 1 << 24
# Where the penalty exceeds the curvature for this share of the parameters, as in shrunken fits, the diagonal of the
# Hessian is as good a preconditioner as its blocks, and costs next to nothing.
RULED = 0.9


class Params(NamedTuple):
    """A and b; A is K×D, or K numbers for a diagonal one. Also holds one number for each of them, as for λ."""

    weight: Any
    bias: Any


class State(NamedTuple):
    """F and what else is known at one set of parameters."""

    z: Floats  # the logits A x + b
    p: Floats  # their softmax
    value: float
    nll: float
    gradient: Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """The data, with parameters as one array θ: K×(D+1) with the bias last, or K×2 for a diagonal A.

    Features are divided by their scale, and A multiplied by it, so that all numbers in θ are of one kind.
    """

    x: Floats
    scale: float
    targets: NDArray[Any]
    weights: Floats  # add up to one
    prior: Floats
    penalty: Floats
    impossible: NDArray[np.bool_] | None
    identifiable: NDArray[np.bool_]  # which parameters the samples determine; the others stay at the prior

    @staticmethod
    def of(
        x: NDArray[Any],
        targets: NDArray[Any],
        weights: NDArray[Any] | None,
        prior: Params,
        penalty: Params,
        possible: NDArray[np.bool_] | None,
    ) -> Problem:
        """Take the data as `attemper.kernels.regression.minimise` does."""
        if weights is None:
            w = np.full(len(x), 1 / len(x))
        else:
            w = np.asarray(weights, dtype=np.float64)
            kept = w > 0
            if not kept.all():
                x, targets, w = x[kept], targets[kept], w[kept]
                possible = None if possible is None else possible[kept]
            w = w / w.sum()
        impossible = None if possible is None or possible.all() else ~possible
        x = np.asarray(x, dtype=np.float64)
        scale = float(np.sqrt(np.mean(x**2))) or 1.0
        centre = _pack(prior, scale)
        return Problem(
            x / scale,
            scale,
            targets,
            w,
            centre,
            _pack(
                Params(*(np.broadcast_to(_array(v), _array(like).shape) for v, like in zip(penalty, prior))), scale**-2
            ),
            impossible,
            _identifiable(x, impossible, centre.shape),
        )

    @property
    def diagonal(self) -> bool:
        """Whether A is."""
        return bool(self.prior.shape[1] == 2 and self.x.shape[1] != 1)

    def pack(self, params: Params) -> Floats:
        """θ of A and b."""
        return _pack(params, self.scale)

    def unpack(self, theta: Floats) -> Params:
        """Return A and b of θ."""
        weight = theta[:, 0] if self.diagonal else theta[:, :-1]
        return Params(weight / self.scale, theta[:, -1].copy())

    def gradient(self, state: State) -> Params:
        """Return the gradient in A and b, from that in θ."""
        weight, bias = self.unpack(state.gradient)
        return Params(weight * self.scale**2, bias)

    def gradient_norm(self, state: State) -> float:
        """Euclidean norm of the gradient in A and b."""
        return float(np.sqrt(sum(float(np.vdot(g, g)) for g in self.gradient(state))))

    def logits(self, theta: Floats) -> Floats:
        """Return A x + b; it is linear in θ, so also the change of the logits that a change of θ makes."""
        z = self.x * theta[:, 0] if self.diagonal else self.x @ theta[:, :-1].T
        z += theta[:, -1]
        if self.impossible is not None:
            z[self.impossible] = 0.0
        return z

    def adjoint(self, r: Floats) -> Floats:
        """Transpose of `logits`: Σ_i r_i x_iᵀ."""
        weight = np.einsum("nk,nk->k", r, self.x)[:, None] if self.diagonal else r.T @ self.x
        return np.concatenate([weight, r.sum(axis=0)[:, None]], axis=1)

    def evaluate(self, z: Floats, theta: Floats) -> State:
        """F with its gradient, at θ with the logits z."""
        p, total, nll = self._exponentials(z)
        p /= total[:, None]
        residual = p.copy()
        residual[np.arange(len(p)), self.targets] -= 1
        residual *= self.weights[:, None]
        gradient = self.adjoint(residual) + self.penalty * (theta - self.prior)
        return State(z, p, nll + self._cost(theta), nll, gradient)

    def value(self, z: Floats, theta: Floats) -> float:
        """F alone."""
        return self._exponentials(z)[2] + self._cost(theta)

    def level_value(self, theta: Floats) -> float:
        """F at θ where all logits are equal."""
        k = len(self.prior)
        if self.impossible is None:
            return float(np.log(k)) + self._cost(theta)
        return float(self.weights @ np.log(k - self.impossible.sum(axis=1))) + self._cost(theta)

    def _exponentials(self, z: Floats) -> tuple[Floats, Floats, float]:
        """exp(z), with the row maximum taken away, its sum over the classes, and the mean NLL."""
        e = z if self.impossible is None else np.where(self.impossible, BOTTOM, z)
        e = e - row_max(e)[:, None]
        at_target = e[np.arange(len(e)), self.targets]
        np.exp(e, out=e)
        total = np.vecdot(e, np.ones(e.shape[1]))
        return e, total, float(self.weights @ (np.log(total) - at_target))

    def _cost(self, theta: Floats) -> float:
        return 0.5 * float(np.sum(self.penalty * (theta - self.prior) ** 2))

    def product(self, p: Floats, damping: float = 0.0) -> Callable[[Floats], Floats]:
        """Return the Hessian as a function of a direction.

        With damping, a share of the curvature that all samples would have if they were as unsure as the average is
        added, so that a step cannot run away where they are certain.
        """
        if damping > 0:
            plain, more = self.product(p), damping * self.mean_curvature(p)
            gram = self.squares() if self.diagonal else self.gram()
            return lambda v: plain(v) + more * (gram * v if self.diagonal else v @ gram)
        if self.diagonal:
            return self._diagonal_product(p)

        def times(v: Floats) -> Floats:
            u = self.logits(v)
            u -= np.vecdot(p, u)[:, None]
            u *= p
            u *= self.weights[:, None]
            return self.adjoint(u) + self.penalty * v

        return times

    def _diagonal_product(self, p: Floats) -> Callable[[Floats], Floats]:
        # Products of a matrix with a vector are all that is left when the sums over samples are taken out.
        px = p * self.x
        w = self.weights
        pxx = np.einsum("n,nk,nk->k", w, px, self.x)
        sums = np.stack([pxx, w @ px, w @ p])

        def times(v: Floats) -> Floats:
            a, c = v[:, 0], v[:, 1]
            s = w * (px @ a + p @ c)
            weight = sums[0] * a + sums[1] * c - s @ px
            bias = sums[1] * a + sums[2] * c - s @ p
            return np.stack([weight, bias], axis=1) + self.penalty * v

        return times

    def mean_curvature(self, p: Floats) -> float:
        """Mean of p (1 − p)."""
        return float(np.mean(self.weights @ (p * (1 - p))))

    def squares(self) -> Floats:
        """Σ w x² for each class, and one for its bias."""
        return np.stack([np.einsum("n,nk,nk->k", self.weights, self.x, self.x), np.ones(self.x.shape[1])], axis=1)

    def preconditioner(self) -> Callable[[Floats, float], Callable[[Floats], Floats]]:
        """Return a function from the probabilities to an approximate inverse of the Hessian."""
        k, size = self.prior.shape
        if self.diagonal:
            return self._pairs
        blocks: list[Callable[[Floats, float], Callable[[Floats], Floats]]] = []  # made when they are needed

        def by_blocks(p: Floats, damping: float) -> Callable[[Floats], Floats]:
            if not blocks:
                own = Blocks(self._with_ones(), self.weights, self.penalty, self._damping)
                blocks.append(own if k * size**2 <= MAX_BLOCKS else self._shared())
            return blocks[0](p, damping)

        if float(np.mean(self.penalty > 0)) < RULED:
            return by_blocks
        squares = self._with_ones() ** 2

        def at(p: Floats, damping: float) -> Callable[[Floats], Floats]:
            h = p * (1 - p)
            h *= self.weights[:, None]
            diagonal = h.T @ squares
            if damping > 0 or float(np.mean(self.penalty > diagonal)) < RULED:
                return by_blocks(p, damping)
            diagonal += self.penalty
            return lambda r: r / diagonal

        return at

    def _damping(self, p: Floats, damping: float) -> Floats:
        """Return what is added to the block of a class so that steps stay short."""
        return np.asarray(damping * self.mean_curvature(p) * self.gram())

    def _with_ones(self) -> Floats:
        """Return the features with a one at their end."""
        return np.concatenate([self.x, np.ones((len(self.x), 1))], axis=1)

    def _pairs(self, p: Floats, damping: float) -> Callable[[Floats], Floats]:
        """2×2 blocks, one for each class."""
        h = p * (1 - p)
        h *= self.weights[:, None]
        cc = h.sum(axis=0)
        ac = np.einsum("nk,nk->k", h, self.x)
        h *= self.x
        aa = np.einsum("nk,nk->k", h, self.x)
        least = 1e-13 * max(float(aa.max()), float(cc.max())) + 1e-100
        more = damping * self.mean_curvature(p) * self.squares() if damping > 0 else np.zeros((1, 2))
        aa = aa * (1 + 1e-12) + self.penalty[:, 0] + least + more[:, 0]
        cc = cc * (1 + 1e-12) + self.penalty[:, 1] + least + more[:, 1]
        det = np.maximum(aa * cc - ac**2, 1e-14 * aa * cc)
        return lambda r: np.stack([cc * r[:, 0] - ac * r[:, 1], aa * r[:, 1] - ac * r[:, 0]], axis=1) / det[:, None]

    def _shared(self) -> Callable[[Floats, float], Callable[[Floats], Floats]]:
        """One matrix for all classes, scaled to each: Σ x xᵀ."""
        values, vectors = np.linalg.eigh(self.gram())
        values = np.maximum(values, 1e-12 * values[-1])
        penalty = self.penalty.mean(axis=1, keepdims=True)

        def at(p: Floats, damping: float) -> Callable[[Floats], Floats]:
            h = self.weights @ (p * (1 - p))
            h += damping * h.mean()
            scale = np.maximum(h, 1e-13 * h.max() + 1e-100)[:, None] * values + penalty
            return lambda r: ((r @ vectors) / scale) @ vectors.T

        return at

    def gram(self) -> Floats:
        """Σ w x xᵀ of the features with a one at their end."""
        xw = self.x * self.weights[:, None]
        edge = xw.sum(axis=0)
        return np.block([[self.x.T @ xw, edge[:, None]], [edge[None, :], np.ones((1, 1))]])

    def moved(self, change: Floats, p: Floats) -> float:
        """Largest change of a logit, apart from what all classes of a sample share."""
        u = change - np.vecdot(p, change)[:, None]
        if self.impossible is not None:
            u[self.impossible] = 0.0
        return float(max(u.max(), -u.min()))

    def projection(self) -> Callable[[Floats], Floats]:
        """Return the projection of a gradient on what the samples identify.

        The rest is rounding, which a preconditioner would blow up, for in those directions there is no curvature.
        """
        free = np.where(self.identifiable, self.penalty, 0.0).sum(axis=0) == 0
        if self.diagonal:
            free[0] = False
        count = np.maximum(self.identifiable.sum(axis=0), 1)
        unused_directions = self.unused_directions()

        def project(r: Floats) -> Floats:
            r = r - np.where(free, r.sum(axis=0, where=self.identifiable) / count, 0.0)
            r = r - (r @ unused_directions) @ unused_directions.T if unused_directions.size else r
            return np.where(self.identifiable, r, 0.0)

        return project

    def pin_unidentified(self, theta: Floats) -> Floats:
        """Return θ with all that is not identifiable at the prior."""
        return np.where(self.identifiable, theta, self.prior)

    def unused_directions(self) -> Floats:
        """Directions of the features of which no sample has anything, if no penalty sees them; as columns."""
        penalised = np.asarray((self.identifiable & (self.penalty > 0)).any(axis=0))
        size = len(penalised)
        if self.diagonal or penalised[:-1].any():
            return np.zeros((size, 0))
        free = size - int(penalised[-1])  # a bias with a penalty is no part of any
        values, vectors = np.linalg.eigh(self.gram()[:free, :free])
        found = vectors[:, values <= 1e-13 * size * values[-1]]
        return np.pad(found, ((0, size - free), (0, 0)))

    def max_margin_deficit(self, z: Floats) -> float:
        """Largest distance of a target's logit from the largest of its row: how far logits might have to go."""
        d = z if self.impossible is None else np.where(self.impossible, BOTTOM, z)
        return float((row_max(d) - z[np.arange(len(z)), self.targets]).max())

    def nearest(self, theta: Floats) -> Floats:
        """Of all θ with the same probabilities and no larger a penalty, the one nearest to the prior."""
        away = self.pin_unidentified(theta) - self.prior
        shared = slice(-1, None) if self.diagonal else slice(None)
        identifiable, dev = self.identifiable[:, shared], away[:, shared]
        lam = np.where(identifiable, self.penalty[:, shared], 0.0)
        total = lam.sum(axis=0)
        weighted = (lam * dev).sum(axis=0) / np.where(total > 0, total, 1.0)
        mean = dev.sum(axis=0, where=identifiable) / np.maximum(identifiable.sum(axis=0), 1)
        away[:, shared] -= np.where(total > 0, weighted, mean)
        unused_directions = self.unused_directions()
        return self.pin_unidentified(self.prior + away - (away @ unused_directions) @ unused_directions.T)


def _identifiable(x: Floats, impossible: NDArray[np.bool_] | None, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which parameters some sample determines: its class and another are possible, and its feature is not 0."""
    identifiable = np.ones(shape, dtype=np.bool_)
    diagonal = shape[1] == 2 and x.shape[1] != 1
    used = x != 0
    if shape[0] == 1:
        return ~identifiable
    if impossible is None:
        identifiable[:, :-1] = used.any(axis=0)[:, None] if diagonal else used.any(axis=0)
        return identifiable
    open_ = ~impossible & (impossible.sum(axis=1, keepdims=True) < shape[0] - 1)
    identifiable[:, -1] = open_.any(axis=0)
    if diagonal:
        identifiable[:, 0] = (open_ & used).any(axis=0)
    else:
        identifiable[:, :-1] = open_.T.astype(np.float32) @ used.astype(np.float32) > 0
    return identifiable


def _array(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _pack(params: Params, scale: float) -> Floats:
    weight, bias = _array(params.weight) * scale, _array(params.bias)
    weight = weight[:, None] if weight.ndim == 1 else weight
    return np.concatenate([weight, bias[:, None]], axis=1)
