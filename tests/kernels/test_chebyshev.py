import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.chebyshev import Interval, coefficients, evaluate, minima, nodes

HERE = Interval(-3.0, 2.0)


def table(*functions, count=64):
    return coefficients(np.column_stack([f(nodes(count, HERE)) for f in functions]))


def test_polynomials_come_back_exactly():
    u = np.linspace(-3, 2, 50)
    c = table(lambda v: v**5 - 2 * v + 1, lambda v: np.ones_like(v), count=8)
    np.testing.assert_allclose(evaluate(c, HERE, u), np.column_stack([u**5 - 2 * u + 1, np.ones(50)]), atol=1e-11)


@given(st.floats(-2.9, 1.9), st.floats(0.3, 3))
def test_the_minimum_is_found_and_its_bound_holds(centre, width):
    found = minima(table(lambda u: np.log(np.cosh((u - centre) / width))), HERE)
    assert found.edge[0] == 0
    assert abs(found.at[0] - centre) <= found.error[0]
    assert found.error[0] < 1e-3


def test_the_global_minimum_is_taken_of_several():
    shallow_then_deep = table(lambda u: np.cos(4 * u) - 0.3 * u)
    grid = np.linspace(-3, 2, 200001)
    by_grid = grid[np.argmin(np.cos(4 * grid) - 0.3 * grid)]
    found = minima(shallow_then_deep, HERE)
    assert abs(found.at[0] - by_grid) < 1e-4


@pytest.mark.parametrize("sign, edge", [(1, -1), (-1, 1)])
def test_edges_are_told(sign, edge):
    found = minima(table(lambda u: sign * np.exp(0.3 * u)), HERE)
    assert found.edge[0] == edge
    assert found.at[0] == pytest.approx(HERE[edge > 0])


def test_too_few_nodes_make_a_large_certificate():
    def spiky(u):
        return 1 / (1 + 40 * (u - 0.3) ** 2) * -1

    rough, fine = minima(table(spiky, count=16), HERE), minima(table(spiky, count=400), HERE)
    assert abs(rough.at[0] - 0.3) <= rough.error[0]
    assert abs(fine.at[0] - 0.3) <= fine.error[0] < 1e-6 < rough.error[0]


def test_noise_that_is_told_is_no_tail():
    # Values that are off by 1e-9 at random: the last coefficients are noise, not what is left of a slow decay.
    interval = Interval(-2.0, 2.0)
    u = nodes(48, interval)
    values = (np.cosh(u - 0.3) + 1e-9 * np.random.default_rng(0).normal(size=48))[:, None]
    c = coefficients(values)
    told, untold = minima(c, interval, 4e-9), minima(c, interval)
    off = abs(float(told.at[0]) - 0.3)
    assert off < told.error[0] < 1e-5
    assert told.error[0] < 0.1 * untold.error[0]


def test_the_bound_is_a_length_on_the_axis():
    c = table(lambda u: np.log(np.cosh(u - 0.4)))
    wide = type(HERE)(3 * HERE.low, 3 * HERE.high)  # the same curve, three times as wide
    np.testing.assert_allclose(minima(c, wide).error, 3 * minima(c, HERE).error, rtol=1e-9)
