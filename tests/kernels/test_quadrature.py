import numpy as np
import pytest

from attemper.kernels.quadrature import gauss, quantiles


def test_few_nodes_stand_for_the_measure():
    x = np.linspace(-1, 3, 200)
    w = np.exp(-((x - 0.5) ** 2) * 3)
    at, weights = gauss(x, w, 6)
    for power in range(12):  # a Gauss rule of 6 nodes is exact to degree 11
        np.testing.assert_allclose(weights @ at**power, w @ x**power, rtol=1e-9)
    at, weights = gauss(np.array([2.0]), np.array([0.7]), 8)
    assert at.tolist() == [2.0]
    assert weights.tolist() == [0.7]


def test_quantiles_of_equal_weights_are_those_of_the_points():
    x = np.linspace(0, 1, 1001)
    np.testing.assert_allclose(quantiles(x, np.ones(1001), [0.025, 0.5, 0.9]), [0.025, 0.5, 0.9], atol=1e-3)
    np.testing.assert_allclose(quantiles(np.array([0.0, 1.0]), np.ones(2), [0.25, 0.5, 0.75]), [0.0, 0.5, 1.0])
    assert quantiles(np.array([3.0, 4.0]), np.array([1.0, 0.0]), [0.5])[0] == pytest.approx(3.0)
