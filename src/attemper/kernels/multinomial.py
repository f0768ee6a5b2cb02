"""Penalised multinomial regression: one objective with exact products with its Hessian, and its minimum.

With weights w_i of total W, features x_i and labels y_i (Eq. 9, with a ridge)::

    F(A, b) = 1/W Σ_i −w_i log softmax(A x_i + b)_{y_i}  +  l2 ‖A − A₀‖²  +  l2_bias ‖b − b₀‖²

A is K×D, or diagonal (K numbers, for D = K). F is convex. Newton's steps are SciPy's (``trust-ncg``: conjugate
gradients within a trust region); they begin at A₀ and b₀. Every gradient, and so every step, is orthogonal to what the
softmax does not see (the same vector added to all rows of A, features that no sample has, classes that are masked
everywhere): of all minima the one nearest to A₀ and b₀ is found. A ridge makes steps few; without one they are taken in
coordinates that suit the Hessian (`_by_blocks`).

Without a ridge there may be no minimum, only a limit: a class that never occurs, or labels that A can separate. The
search then ends with finite parameters where the gradient has faded, or gives up after `MAX_PRODUCTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from attemper._typing import Floats, Labels
from attemper.kernels.annotators import Channel
from attemper.kernels.evidence import Operator, Rows
from attemper.kernels.softmax import BOTTOM

MAX_STEPS = 500
MAX_PRODUCTS = 5000  # with the Hessian, after which the search gives up
MAX_BLOCKS = 1 << 22  # numbers that blocks of the Hessian may hold
ROUND = 12  # steps for which these blocks are good
SMALL_STEP = 5e-7  # norm of a gradient, in units of the Hessian: F is about the half of its square from its least value
STEEPEST = 1e-5  # norm of a gradient that counts as none, where rounding hides whether a step helps


class Params(NamedTuple):
    """A, which is K×D or K numbers for a diagonal one, and b."""

    weight: Floats
    bias: Floats


class Solution(NamedTuple):
    """The least F, at A and b, which are always finite."""

    at: Params
    gradient_norm: float  # Euclidean, of features that are scaled
    error: float | None  # bound on the distance of F from its least value; None without a ridge
    n_iter: int  # steps, and products with the Hessian, each about as much work as F with its gradient
    converged: bool


class _Here(NamedTuple):
    """F and what else is known at one θ."""

    theta: Floats
    value: float
    gradient: Floats
    p: Floats  # probabilities
    curvature: Operator  # of the mean NLL


@dataclass(eq=False)
class Objective:
    """F of θ, flat: K×(D+1) numbers with the bias last, or K×2 for a diagonal A."""

    rows: Rows  # weights add up to one; its features, with a column of ones, are for a full A
    centre: Floats  # θ₀, K×(D+1) or K×2
    penalty: Floats  # l2 of each column of θ
    products: int = 0
    _known: list[_Here] = field(default_factory=list)  # the last two

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """F and its gradient."""
        here = self._at(theta)
        return here.value, here.gradient

    def product(self, theta: Floats, direction: Floats) -> Floats:
        """Return the Hessian at θ times a direction."""
        self.products += 1
        v = direction.reshape(self.centre.shape)
        return np.asarray(self._at(theta).curvature(v) + 2 * self.penalty * v).ravel()

    def halt(self, intermediate_result: Any) -> None:
        """End a search that goes on for ever."""
        if self.products >= MAX_PRODUCTS:
            raise StopIteration

    def block_roots(self, theta: Floats) -> Floats:
        """L⁻¹ of the Hessian's block L Lᵀ of each class."""
        p, w, f = self._at(theta).p, self.rows.w, self.rows.features
        if f is None:
            blocks = self.rows.blocks(p, w * (1 - 1 / p.shape[1]))
        else:
            blocks = np.stack([(f * c[:, None]).T @ f for c in (p * (1 - p) * w[:, None]).T])
        trace = np.trace(blocks, axis1=1, axis2=2)
        blocks += (1e-10 * trace + 1e-13 * trace.max() + 1e-100)[:, None, None] * np.eye(blocks.shape[1])
        return np.linalg.inv(np.linalg.cholesky(blocks))

    def nearest(self, theta: Floats) -> Floats:
        """Of all θ with the same probabilities, the one nearest to the centre."""
        away, f = theta - self.centre, self.rows.features
        if f is None:
            return np.asarray(self.centre + away - [0.0, away[:, 1].mean()])
        values, vectors = np.linalg.eigh((f * self.rows.w[:, None]).T @ f)
        used = vectors[:, values > 1e-13 * len(values) * values[-1]]
        return np.asarray(self.centre + ((away - away.mean(axis=0)) @ used) @ used.T)

    def _at(self, theta: Floats) -> _Here:
        for here in self._known:
            if np.array_equal(here.theta, theta):
                return here
        self._known = [self._evaluated(theta.copy()), *self._known[:1]]
        return self._known[0]

    def _evaluated(self, theta: Floats) -> _Here:
        t, rows = theta.reshape(self.centre.shape), self.rows
        z, away = rows.change(t), t - self.centre
        if rows.masked is not None:
            z[rows.masked] = BOTTOM
        state = Channel().apply(z, rows.y)
        value = float(np.sum(self.penalty * away**2)) - float(rows.w @ state.log_likelihood)
        gradient = 2 * self.penalty * away - rows.gradient(state)
        return _Here(theta, value, gradient.ravel(), state.p, rows.curvature(state.p, rows.w))


def minimise(
    x: Floats, labels: Labels, weights: Floats | None, centre: Params, l2: float = 0.0, l2_bias: float = 0.0, *,
    possible: NDArray[np.bool_] | None = None, tolerance: float = 1e-8,
) -> Solution:  # fmt: skip
    """Find the A and b that minimise F.

    Parameters
    ----------
    x : N×D features
    centre : where the ridge draws to, and the search begins; a weight of one dimension asks for a diagonal A
    possible : N×K, False where a class is masked out of the softmax of a sample
    tolerance : of the gradient's norm, for scaled features

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 3))
    >>> y = (2 * x + [0, 0, 1] + rng.gumbel(size=x.shape)).argmax(axis=1)
    >>> found = minimise(x, y, None, Params(np.ones(3), np.zeros(3)))
    >>> found.at.weight.round(1), found.at.bias.round(1)
    (array([2. , 1.8, 2. ]), array([-0.3, -0.3,  0.6]))
    """
    w = np.ones(len(x)) if weights is None else weights
    scale = float(np.sqrt(np.mean(x**2))) or 1.0
    diagonal = centre.weight.ndim == 1
    start = np.column_stack([centre.weight * scale, centre.bias])
    penalty = np.append(np.full(start.shape[1] - 1, l2 / scale**2), l2_bias)
    impossible = None if possible is None or possible.all() else ~possible
    x = x / scale
    features = None if diagonal else np.concatenate([x, np.ones((len(x), 1))], axis=1)
    objective = Objective(Rows(x, labels, w / w.sum(), impossible, features), start, penalty)
    if l2 == 0 and impossible is None and start.size * start.shape[1] <= MAX_BLOCKS:
        theta, norm, error, steps, converged = _by_blocks(objective)
    else:
        theta, norm, error, steps, converged = _plainly(objective, tolerance)
    at = Params((theta[:, 0] if diagonal else theta[:, :-1]) / scale, theta[:, -1].copy())
    return Solution(at, norm, error, steps + objective.products, converged)


def _plainly(objective: Objective, tolerance: float) -> tuple[Floats, float, float | None, int, bool]:
    """Newton's steps as they are, which a ridge makes few."""
    found = minimize(
        objective.value, objective.centre.ravel(), method="trust-ncg", jac=True, hessp=objective.product,
        callback=objective.halt, options={"gtol": tolerance, "maxiter": MAX_STEPS, "max_trust_radius": 1e4},
    )  # fmt: skip
    norm, least = float(np.linalg.norm(found.jac)), float(objective.penalty.min())
    error = norm**2 / (4 * least) if least > 0 else None
    done = bool(found.success or norm <= STEEPEST)
    return found.x.reshape(objective.centre.shape), norm, error, int(found.nit), done


def _by_blocks(objective: Objective) -> tuple[Floats, float, float | None, int, bool]:
    """Newton's steps in coordinates φ around a θ, θ_k + Lₖ⁻ᵀ φ_k, in which the Hessian's block of each class is 1.

    They are made anew at times. Half the square of the gradient's norm is there about the distance of F from its least
    value.
    """
    theta, roots, shape = objective.centre, np.empty(0), objective.centre.shape

    def moved(phi: Floats) -> Floats:
        return np.asarray(np.einsum("kij,ki->kj", roots, phi.reshape(shape)))

    def turned(g: Floats) -> Floats:
        return np.asarray(np.einsum("kij,kj->ki", roots, g.reshape(shape))).ravel()

    def value(phi: Floats) -> tuple[float, Floats]:
        f, g = objective.value((theta + moved(phi)).ravel())
        return f, turned(g)

    def product(phi: Floats, v: Floats) -> Floats:
        return turned(objective.product((theta + moved(phi)).ravel(), moved(v).ravel()))

    n_iter, norm = 0, np.inf
    while norm > SMALL_STEP and n_iter < MAX_STEPS and objective.products < MAX_PRODUCTS:
        roots = objective.block_roots(theta.ravel())
        found = minimize(
            value, np.zeros(theta.size), method="trust-ncg", jac=True, hessp=product, callback=objective.halt,
            options={"gtol": SMALL_STEP, "maxiter": ROUND, "max_trust_radius": 1e4},
        )  # fmt: skip
        theta, norm, n_iter = theta + moved(found.x), float(np.linalg.norm(found.jac)), n_iter + int(found.nit)
    theta = objective.nearest(theta)
    steepness = float(np.linalg.norm(objective.value(theta.ravel())[1]))
    return theta, steepness, norm**2 / 2, n_iter, norm <= SMALL_STEP
