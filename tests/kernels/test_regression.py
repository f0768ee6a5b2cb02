import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from attemper.kernels.regression import Params, Problem, minimise

from data import cases, draw
from oracles import softmax


def state_at(problem, params):
    theta = problem.pack(params)
    return problem.evaluate(problem.logits(theta), theta)


def value_and_gradient(params, x, targets, w, prior, penalty, *, possible=None):
    """F and its gradient."""
    problem = Problem.of(x, targets, w, prior, penalty, possible)
    state = state_at(problem, params)
    return state.value, problem.gradient(state)


def curvature_product(params, direction, x, w, penalty, *, possible=None):
    """Hessian of F, which knows nothing of the targets, times a direction."""
    zero = Params(*(np.zeros_like(v) for v in params))
    problem = Problem.of(x, np.zeros(len(x), dtype=np.int64), w, zero, penalty, possible)
    state = state_at(problem, params)
    return problem.gradient(state._replace(gradient=problem.product(state.p)(problem.pack(direction))))


def naive(params, x, y, w, prior, penalty, possible=None):
    """F of the module's docstring, in loops."""
    weight, bias = params
    n, k = len(x), len(bias)
    total = 0.0
    for i in range(n):
        z = [
            (weight[c] * x[i][c] if np.ndim(weight) == 1 else sum(weight[c][d] * x[i][d] for d in range(len(x[i]))))
            + bias[c]
            for c in range(k)
        ]
        kept = [c for c in range(k) if possible is None or possible[i][c]]
        s = dict(zip(kept, softmax([z[c] for c in kept])))
        total -= w[i] * math.log(s[y[i]])
    total /= sum(w)
    for value, at, lam in zip(params, prior, penalty):
        total += 0.5 * float(np.sum(np.asarray(lam) * (np.asarray(value) - at) ** 2))
    return total


def some(k, diagonal, rng):
    """Parameters, a prior and a penalty of a sensible size."""
    shape = (k,) if diagonal else (k, k)
    return (
        Params(rng.normal(size=shape), rng.normal(size=k)),
        Params(rng.normal(size=shape), rng.normal(size=k)),
        Params(rng.uniform(0, 1, shape), rng.uniform(0, 1, k)),
    )


both = pytest.mark.parametrize("diagonal", [True, False], ids=["diagonal", "full"])


@both
@given(cases(max_rows=6, max_classes=4, bound=4.0), st.integers(0, 99))
def test_the_value_is_the_loop(diagonal, case, seed):
    x, y = case
    rng = np.random.default_rng(seed)
    params, prior, penalty = some(x.shape[1], diagonal, rng)
    w = rng.uniform(0.1, 2, len(y))
    possible = rng.uniform(size=x.shape) < 0.8
    possible[np.arange(len(y)), y] = True
    value, _ = value_and_gradient(params, x, y, w, prior, penalty, possible=possible)
    np.testing.assert_allclose(value, naive(params, x, y, w, prior, penalty, possible), rtol=1e-10)


@both
@pytest.mark.parametrize("masked", [False, True])
def test_derivatives_are_numerical_derivatives(diagonal, masked):
    rng = np.random.default_rng(0)
    x, y = draw(40, 4, scale=1.5)
    w = rng.uniform(0, 2, 40)
    possible = rng.uniform(size=x.shape) < 0.7
    possible[np.arange(40), y] = True
    mask = possible if masked else None
    params, prior, penalty = some(4, diagonal, rng)
    direction, _, _ = some(4, diagonal, rng)

    def at(t):
        moved = Params(params.weight + t * direction.weight, params.bias + t * direction.bias)
        return value_and_gradient(moved, x, y, w, prior, penalty, possible=mask)

    step = 1e-5
    slope = sum(np.vdot(g, d) for g, d in zip(at(0)[1], direction))
    np.testing.assert_allclose(slope, (at(step)[0] - at(-step)[0]) / (2 * step), rtol=1e-7)
    product = curvature_product(params, direction, x, w, penalty, possible=mask)
    for part, above, below in zip(product, at(step)[1], at(-step)[1]):
        np.testing.assert_allclose(part, (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


@both
def test_the_minimum_is_that_of_scipy(diagonal):
    x, y = draw(200, 4)
    w = np.random.default_rng(1).uniform(0, 2, 200)
    _, prior, penalty = some(4, diagonal, np.random.default_rng(2))
    penalty = Params(0.1 * penalty.weight, 0.1 * penalty.bias)
    found = minimise(x, y, w, prior, penalty)
    assert found.converged
    assert found.attained
    assert found.gradient_norm < 1e-9
    assert found.error < 1e-12
    cut = prior.weight.size

    def unpack(v):
        return Params(v[:cut].reshape(prior.weight.shape), v[cut:])

    def flat(v):
        value, gradient = value_and_gradient(unpack(v), x, y, w, prior, penalty)
        return value, np.r_[gradient.weight.ravel(), gradient.bias]

    other = minimize(flat, np.zeros(cut + 4), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(found.value, other.fun, atol=1e-12)
    np.testing.assert_allclose(found.at.weight, unpack(other.x).weight, atol=1e-6)
    np.testing.assert_allclose(found.at.bias, unpack(other.x).bias, atol=1e-6)


@pytest.mark.parametrize("classes", [3, 6])
def test_scikit_learn_finds_the_same(classes):
    x, y = draw(500, classes)
    c = 0.7
    model = LogisticRegression(C=c, solver="newton-cg", tol=1e-10, max_iter=1000).fit(x, y)
    zero = Params(np.zeros((classes, classes)), np.zeros(classes))
    found = minimise(x, y, None, zero, Params(1 / (c * len(y)), 0.0))  # theirs has no penalty on the bias
    np.testing.assert_allclose(found.at.weight, model.coef_, atol=1e-6)
    np.testing.assert_allclose(found.at.bias, model.intercept_ - model.intercept_.mean(), atol=1e-6)
    np.testing.assert_allclose(found.at.bias.sum(), 0, atol=1e-12)


@both
@given(st.integers(0, 50))
def test_order_and_repeats_change_nothing(diagonal, seed):
    rng = np.random.default_rng(seed)
    x, y = draw(60, 3, seed=seed)
    _, prior, penalty = some(3, diagonal, rng)
    w = rng.integers(0, 3, 60) + (np.arange(60) == 0)
    plain = minimise(x, y, w.astype(float), prior, penalty)
    order = rng.permutation(60)
    repeated = np.repeat(np.arange(60), w)
    for other in (
        minimise(x[order], y[order], w[order], prior, penalty),
        minimise(x[repeated], y[repeated], None, prior, penalty),
        minimise(x, y, 2.0 * w, prior, penalty),
    ):
        np.testing.assert_allclose(other.at.weight, plain.at.weight, atol=1e-8)
        np.testing.assert_allclose(other.at.bias, plain.at.bias, atol=1e-8)


@both
def test_separable_labels_have_no_minimum_and_that_is_told(diagonal):
    x, _ = draw(200, 4)
    prior = Params(np.ones(4) if diagonal else np.eye(4), np.zeros(4))
    found = minimise(x, x.argmax(axis=1), None, prior)
    assert found.converged
    assert not found.attained
    assert found.gradient_norm < 1e-6
    assert found.value < 1e-7
    assert np.isfinite(found.at.weight).all()
    assert minimise(x, x.argmax(axis=1), None, prior, Params(1e-6, 1e-6)).attained


@both
@pytest.mark.parametrize("penalty", [Params(0.0, 0.0), Params(0.01, 0.01), Params(0.0, 0.01)], ids=str)
def test_what_no_sample_has_a_use_for_stays_at_the_prior(diagonal, penalty):
    x, y = draw(300, 5)
    x[:, 4], y = 0.0, y % 4
    possible = np.ones(x.shape, dtype=bool)
    possible[:, 4] = False
    prior = Params(0.7 * (np.ones(5) if diagonal else np.eye(5)), np.linspace(-1, 1, 5))
    start = Params(3 * prior.weight, prior.bias + 1)
    found = minimise(x, y, None, prior, penalty, possible=possible, start=start)
    cut = (slice(4),) if diagonal else (slice(4), slice(4))
    alone = minimise(x[:, :4], y, None, Params(prior.weight[cut], prior.bias[:4]), penalty)
    assert found.converged
    assert found.attained
    assert found.gradient_norm < 1e-8
    np.testing.assert_allclose(found.at.weight[cut], alone.at.weight, atol=1e-9)
    np.testing.assert_allclose(found.at.bias[:4], alone.at.bias, atol=1e-9)
    np.testing.assert_array_equal(found.at.weight[4], prior.weight[4])
    assert found.at.bias[4] == prior.bias[4]
    if not diagonal:
        np.testing.assert_array_equal(found.at.weight[:, 4], prior.weight[:, 4])
