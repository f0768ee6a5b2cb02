"""Penalised multinomial logistic regression, minimised until nothing moves any more.

With weights w_i of total W, features x_i, and targets q_i (one-hot for a label)::

    F(A, b) = 1/W Σ_i w_i Σ_k −q_ik log softmax(A x_i + b)_k  +  ½ Σ λ ∘ ((A, b) − prior)²

A is K×D, or diagonal (K numbers, for D = K). The penalty λ is given for every parameter: an L2 penalty, one on the
off-diagonal alone, or shrinkage towards a multiple of the identity are all the same thing.

F is convex. Newton's steps are found by conjugate gradients, with exact products with the Hessian (two products of
matrices each) and the blocks of the Hessian that belong to one class as the preconditioner, or its diagonal alone where
the penalty outweighs the data; a search along the step sees to it that F falls.

Where there is no penalty, F may have no minimum, only a limit: a class that never occurs, or labels that A can
separate. The steps then go on for ever while the gradient fades. That is seen (`Solution.attained`), and the search
ends with finite parameters as soon as the gradient is below the tolerance.

The softmax does not feel the same vector added to every row of A, nor the same number to every bias. Of all minima
the one nearest to the prior is given, so that the answer is unique. What no sample has a use for stays at the prior:
the parameters of a class that is possible nowhere, and of a feature that is 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.minimum import Minimum
from attemper.kernels.multinomial import Params, Problem, State

__all__ = ["Params", "Problem", "Solution", "descend", "minimise"]


# A step that changes no logit by more than this, or than ten times the tolerance, is the last: what it leaves is far
# less.
STILL = 1e-6
# One that goes on by this much where the gradient has all but gone is on its way to infinity.
ENDLESS = 0.05
# There the search ends as soon as the gradient is below this, and the gap below a tenth of it.
FADED = 1e-7

NONE = Params(0.0, 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution(Minimum):
    """The least F, at A and b, which are always finite; ``error`` is an estimate, on the safe side."""

    nll: float  # F without the penalty
    gradient_norm: float  # Euclidean, in A and b
    products: int  # with the Hessian, each about as much work as an evaluation of F with its gradient
    attained: bool  # whether F has a minimum; False: only a limit, with parameters at infinity


def minimise(
    x: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[Any] | None,
    prior: Params,
    penalty: Params = NONE,
    *,
    start: Params | None = None,
    possible: NDArray[np.bool_] | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
    max_products: int = 2000,
) -> Solution:
    """Find the parameters that minimise F.

    Parameters
    ----------
    x : N×D features
    targets : N labels, or N×K target probabilities whose rows add up to one
    weights : one for each sample, or None
    prior : what the penalty draws towards; a weight of one dimension asks for a diagonal A
    penalty : λ, broadcast to the shape of the prior
    start : where to begin; the prior if None
    possible : N×K, False where a class is masked out of the softmax of a sample
    max_iterations, max_products : Newton steps, and products with the Hessian, after which the search gives up
    tolerance : of the gap, and of the gradient's norm where features are of order one (it is in units of the features)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 3))
    >>> y = (2 * x + [0, 0, 1] + rng.gumbel(size=x.shape)).argmax(axis=1)
    >>> found = minimise(x, y, None, Params(np.ones(3), np.zeros(3)))
    >>> found.at.weight.round(1), found.at.bias.round(1)
    (array([2. , 1.8, 2. ]), array([-0.3, -0.3,  0.6]))
    """
    problem = Problem.of(x, targets, weights, prior, penalty, possible)
    del x  # the problem has a copy, and arrays of this size are to be few
    theta = problem.pin_unidentified(problem.prior if start is None else problem.pack(start))
    # Nobody else holds the first state, so that its arrays go when the search has left it.
    found, _ = descend(
        problem, theta, problem.evaluate(problem.logits(theta), theta), tolerance, max_iterations, max_products
    )
    return replace(found, at=problem.unpack(found.at))


def descend(
    problem: Problem,
    theta: Floats,
    state: State,
    tolerance: float,
    max_iterations: int = 200,
    max_products: int = 2000,
) -> tuple[Solution, State]:
    """Do what `minimise` does for a problem that is there already, from θ, whose state is known; ``at`` is θ."""
    level = problem.pin_unidentified(np.zeros_like(theta))
    if not state.value < problem.level_value(level):
        # A start that is far off has no curvature to go by; a uniform answer has most.
        theta, state = level, problem.evaluate(np.zeros_like(state.z), level)
    precondition, project = problem.preconditioner(), problem.projection()
    faded = FADED / min(max(problem.scale, 1.0), 100.0)
    free = bool((problem.penalty[problem.identifiable] == 0).any())  # else there is a minimum
    iterations = products = 0
    attained, settled, gap, moved, damping, length = True, False, np.inf, np.inf, 0.0, 1.0
    while iterations < max_iterations and products < max_products:
        size = float(np.linalg.norm(state.gradient))
        if size < 1e-30:  # at a minimum, or so far out that there is nothing left to see
            settled, gap = True, 0.0
            attained = not free or problem.mean_curvature(state.p) > 1e-30
            break
        # The residual falls with the gradient, so that the last steps converge faster than linearly; but not further
        # than the tolerance asks for, nor on the way to infinity, where it would be in vain.
        forcing = min(0.1, max(size**0.5, 0.1 * tolerance / size)) if moved < ENDLESS else 0.1
        step, used = _solve(problem, state, precondition(state.p, damping), project, damping, forcing)
        products += used
        gap = max(-float(np.vdot(state.gradient, step)), 0.0)
        change = problem.logits(step)
        before = moved if moved < np.inf else 0.0
        moved = problem.moved(change, state.p)
        # Under a huge penalty the gradient is never small, for parameters are rounded; the step decides then.
        fine = damping == 0 and gap <= tolerance and (size <= tolerance or moved <= STILL**1.5)
        goes_on = moved >= ENDLESS and moved > before / 2
        if free and goes_on and size <= max(tolerance, faded) and gap <= max(tolerance, FADED / 10):
            attained = False
            break
        theta, state, length = _search(problem, theta, state, step, change, gap, moved, far=length <= 1)
        iterations += 1
        if length == 0:  # F is at its minimum, up to rounding
            settled = fine or size <= 1e3 * tolerance
            break
        if fine and moved <= max(STILL, 10 * tolerance):
            settled = True
            break
        damping = 8 * max(damping, 1e-4) if length < 0.5 else damping / 4 if length >= 1 else damping
        if damping < 1e-9 or (length >= 1 and moved < 1):
            damping = 0.0  # near enough for Newton's own step
    before = float(np.linalg.norm(state.gradient))
    theta = problem.nearest(theta)
    state = problem.evaluate(problem.logits(theta), theta)
    if not np.linalg.norm(state.gradient) <= 10 * before + 1e3 * tolerance:
        # Parameters so large that their rounding is felt: the answer is not where the search had ended.
        settled, attained = False, True
    found = Solution(
        at=theta,
        value=state.value,
        error=gap,
        n_iter=iterations,
        converged=settled or not attained,
        nll=state.nll,
        gradient_norm=problem.gradient_norm(state),
        products=products,
        attained=attained,
    )
    return found, state


def _solve(
    problem: Problem,
    state: State,
    precondition: Callable[[Floats], Floats],
    project: Callable[[Floats], Floats],
    damping: float,
    forcing: float,
    limit: int = 500,
) -> tuple[Floats, int]:
    """Newton's step by preconditioned conjugate gradients, to a relative residual of ``forcing``."""
    product = problem.product(state.p, damping)
    step = np.zeros_like(state.gradient)
    residual = project(-state.gradient)
    towards = precondition(residual)
    direction = towards
    size = first = float(np.vdot(residual, towards))
    if first <= 0:
        return step, 0
    for used in range(1, limit + 1):
        curved = product(direction)
        curvature = float(np.vdot(direction, curved))
        if curvature <= 1e-14 * size:  # flat to rounding: F falls along it as far as the search will go
            return (step, used) if used > 1 else (direction, used)
        along = size / curvature
        step = step + along * direction
        residual = project(residual - along * curved)
        towards = precondition(residual)
        new = float(np.vdot(residual, towards))
        if new <= forcing**2 * first:
            break
        direction = towards + new / size * direction
        size = new
    return step, used


def _search(
    problem: Problem, theta: Floats, state: State, step: Floats, change: Floats, gap: float, moved: float, far: bool
) -> tuple[Floats, State, float]:
    """Go along the step as far as F falls well; length 0 if it cannot be seen to fall at all.

    ``change``, the change of the logits, is used up.
    """
    rounding = 4 * np.finfo(float).eps * max(abs(state.value), 1e-8)

    def at(t: float) -> float:
        return problem.value(state.z + t * change, theta + t * step)

    length = 1.0 if moved <= 1e5 else min(1.0, 1e3 * (100 + problem.max_margin_deficit(state.z)) / moved)
    shortest = 1e-12 * length
    value = at(length)
    while value > state.value - 1e-4 * length * gap + rounding:
        length /= 2
        if length < shortest:
            return theta, state, 0.0
        value = at(length)
    # F fell by more than a parabola would: it is flatter ahead, as on the way to infinity. Go on while that pays.
    # Not twice in a row: what was at its minimum already has gone as far beyond, and comes back with the next step.
    while far and state.value - value > 0.55 * gap * length and gap > rounding:
        farther = at(2 * length)
        if farther > value - 0.1 * gap * length:
            break
        length, value = 2 * length, farther
    theta = theta + length * step
    change *= length
    change += state.z
    return theta, problem.evaluate(change, theta), length
