import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from attemper.kernels.nll import limits, minimise, sums
from attemper.sketch import Sketch

from data import cases, draw
from oracles import exact_temperature, nll, softmax


@given(cases(), st.floats(0.1, 10))
def test_the_sum_is_the_loop(case, beta):
    h, y = case
    w = np.linspace(0.5, 2, len(y))
    np.testing.assert_allclose(sums(h, y, w, beta)[0], nll(h, y, 1 / beta, w), rtol=1e-10, atol=1e-12)


@given(cases(), st.floats(0.2, 3))
def test_derivatives_are_numerical_derivatives(case, beta):
    h, y = case
    step = 1e-4 * beta
    for order in (1, 2):
        below, above = (sums(h, y, None, beta + s)[order - 1] for s in (-step, step))
        numeric = (above - below) / (2 * step)
        scale = 1 + np.abs(h).max() ** (order + 1) * len(y)
        np.testing.assert_allclose(sums(h, y, None, beta)[order], numeric, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_classes_and_huge_logits_stay_finite(dtype):
    h = np.array([[1e4, -1e4, 0.0], [-np.inf, 3.0, 2.0], [5.0, -np.inf, 1.0]], dtype=dtype)
    found = sums(h, np.array([1, 1, 2]), None, 2.0, bound=1e4, masked=True)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], 4e4 + np.log1p(np.exp(-2.0)) + 8 + np.log1p(np.exp(-8.0)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("start", [1e-3, 1.0, 30.0])
def test_the_minimum_is_found_from_any_start_and_on_any_scale(scale, start):
    h, y = draw(60, 4)
    found = minimise(lambda b: sums(scale * h, y, None, b), start)
    assert found.converged
    assert abs(1 / found.at / float(exact_temperature(scale * h, y, 30)) - 1) < 1e-8
    assert abs(found.slope / found.value) < 1e-8 * scale


def test_the_minimum_agrees_with_scipy():
    h, y = draw(500, 10)
    found = minimise(lambda b: sums(h, y, None, b))
    other = minimize_scalar(lambda b: sums(h, y, None, b)[0], bounds=(0.01, 10), options={"xatol": 1e-12})
    assert found.value <= other.fun + 1e-9
    np.testing.assert_allclose(found.value, sums(h, y, None, found.at)[0], rtol=1e-14)


def test_limits_of_the_slope():
    h, y = draw(50, 4)
    low, high = limits(h, y, None)
    np.testing.assert_allclose(sums(h, y, None, 1e-12)[1], low, rtol=1e-6)
    np.testing.assert_allclose(sums(h, y, None, 1e3)[1], high, rtol=1e-6)
    assert limits(h, h.argmax(axis=1), None)[1] == 0


def test_the_spread_of_log_t_is_that_of_the_fisher_information():
    h, y = draw(400, 3)
    found = minimise(lambda beta: sums(h, y, None, beta) / len(h))

    def info(t):
        p = np.array([softmax(row, t) for row in h])
        x = h / t
        return ((p * x**2).sum(axis=1) - (p * x).sum(axis=1) ** 2).sum()

    assert found.log_t_std(400) == pytest.approx(info(1 / found.at) ** -0.5, rel=1e-3)
    sketch = Sketch.of(h, y)
    for t in (0.7, 2.0, 9.0):
        assert sketch.log_t_std(t) == pytest.approx(info(t) ** -0.5, rel=1e-6)


def test_masked_classes_have_no_part_in_the_limits_of_the_slope():
    h, y = draw()
    with_mask = np.column_stack([h, np.full(len(h), -np.inf)])
    np.testing.assert_allclose(limits(with_mask, y, None), limits(h, y, None), rtol=1e-12)
