import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from attemper.kernels import logistic


def oracle(theta, x, t, w):
    """The objective, sample by sample; x has one row for each feature."""
    total = 0.0
    for i in range(len(t)):
        z = sum(theta[f] * x[f][i] for f in range(len(x))) + theta[-1]
        total += w[i] * (math.log1p(math.exp(-abs(z))) + max(z, 0) - t[i] * z)
    return total


def problem(seed=0, features=2, classes=3, n=40):
    """Features that rise together, as log p and −log(1 − p) do."""
    rng = np.random.default_rng(seed)
    s = 3 * rng.normal(size=(classes, n))
    x = np.stack([-np.logaddexp(0, -s), np.logaddexp(0, s)])[:features]
    t = np.where(rng.random((classes, n)) < 1 / (1 + np.exp(-s * rng.normal(size=(classes, 1)))), 0.95, 0.05)
    w = rng.random((classes, n))
    return x, t, w / w.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("features", [1, 2])
def test_objective_and_derivatives(features):
    x, t, w = problem(features=features)
    theta = np.random.default_rng(1).normal(size=(3, features + 1))
    loss, gradient, hessian = logistic.evaluate(theta, x, t, w)
    for c in range(3):
        assert loss[c] == pytest.approx(oracle(theta[c], x[:, c], t[c], w[c]), rel=1e-13)
        for i in range(features + 1):
            step = np.zeros_like(theta)
            step[:, i] = 1e-5
            up, down = (logistic.evaluate(theta + d, x, t, w) for d in (step, -step))
            assert gradient[c, i] == pytest.approx((up[0] - down[0])[c] / 2e-5, rel=1e-6, abs=1e-9)
            np.testing.assert_allclose(hessian[c, i], (up[1] - down[1])[c] / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("bounded", [False, True])
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_the_minimum_is_one(bounded, seed):
    """No gradient is left but what a bound holds, and a general optimiser finds nothing better."""
    x, t, w = problem(seed)
    found = logistic.minimise(x, t, w, bounded=bounded)
    assert np.abs(found.gradient).max() < 1e-9
    assert (found.error < 1e-15).all()
    assert found.n_iter < 40
    if bounded:
        assert (found.at[:, :-1] >= 0).all()
    loss, gradient, _ = logistic.evaluate(found.at, x, t, w)
    np.testing.assert_allclose(found.value, loss, rtol=1e-12)
    free = ~((found.at == 0) & (gradient > 0)) if bounded else np.ones_like(gradient, dtype=bool)
    np.testing.assert_allclose(found.gradient[free], gradient[free], atol=1e-12)
    bounds = [(0, None), (0, None), (None, None)] if bounded else None
    for c in range(3):
        one = [a[..., c : c + 1, :] for a in (x, t, w)]

        def objective(v, one=one):
            value, slope, _ = logistic.evaluate(v[None], *one)
            return value[0], slope[0]

        other = minimize(objective, np.zeros(3), jac=True, bounds=bounds, method="L-BFGS-B")
        assert found.value[c] <= other.fun + 1e-12
