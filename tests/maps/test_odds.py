import math

import array_api_strict
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attemper import OddsMap
from attemper._json import Fields
from attemper.maps import map_from_fields
from attemper.maps.odds import log_odds

from oracles import other_than, softmax

RNG = np.random.default_rng(0)
MAPS = [
    OddsMap(np.full(4, 0.7), np.full(4, 0.7), np.array([0.1, -2.0, 0.0, 1.0])),
    OddsMap(RNG.uniform(0, 2, 4), RNG.uniform(0, 2, 4), RNG.normal(size=4)),
    OddsMap(np.array([0.0, 1.0, -0.5, 2.0]), np.array([1.0, 0.0, -0.5, 0.0]), np.array([-3.0, 0.0, 5.0, 0.0])),
]


def oracle(m, row):
    """The formula, class by class."""
    p = softmax(row)
    q = []
    for k in range(len(row)):
        z = m.a[k] * math.log(p[k]) - m.b[k] * math.log(other_than(k, p)) + m.c[k]
        q.append(1 / (1 + math.exp(-z)))
    return np.array(q) / sum(q)


@pytest.mark.parametrize("m", MAPS)
def test_the_map_is_its_formula(m):
    h = 3 * np.random.default_rng(1).normal(size=(50, 4))
    expected = np.array([oracle(m, row) for row in h])
    np.testing.assert_allclose(m.apply(h), expected, rtol=1e-12)
    np.testing.assert_allclose(m.log_apply(h), np.log(expected), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(m.apply(h).sum(axis=1), 1, rtol=1e-14)


EXTREMES = [
    [0.0, 40.0, -3.0],
    [0.0, 800.0, 1.0],
    [5000.0, 0.0, -5000.0],
    [1.0, 1.0, 1.0],
    [1e-12, 0.0, -1e-12],
    [30.0, 30.0, -700.0],
]


@pytest.mark.parametrize("row", EXTREMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extremes_to_the_last_digits(row, dtype):
    h = np.array([row], dtype=dtype)
    m = OddsMap(np.array([0.5, 1.5, 0.0]), np.array([1.5, 0.25, 2.0]), np.array([0.0, -1.0, 0.5]))
    with mpmath.workdps(5000):
        e = [mpmath.exp(mpmath.mpf(float(v))) for v in h[0]]
        s = [mpmath.log(e[k] / (sum(e) - e[k])) for k in range(3)]
        p = [v / sum(e) for v in e]
        z = [m.a[k] * mpmath.log(p[k]) - m.b[k] * mpmath.log(sum(p[j] for j in range(3) if j != k)) for k in range(3)]
        sigma = [1 / (1 + mpmath.exp(-(z[k] + m.c[k]))) for k in range(3)]
        expected = [float(mpmath.log(v / sum(sigma))) for v in sigma]
        s = [float(v) for v in s]
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(log_odds(h, np)[0], s, rtol=8 * eps, atol=2 * eps)
    np.testing.assert_allclose(m.log_apply(h)[0], expected, rtol=20 * eps, atol=2 * eps)
    np.testing.assert_allclose(m.apply(h)[0], np.exp(expected), rtol=1e4 * eps, atol=1e-300 if eps < 1e-10 else 1e-37)


def test_platt_of_two_classes_is_exact():
    h = np.array([[0.0, 1e-20], [3.0, 3.0], [0.0, 700.0], [1.0, -0.3]])
    np.testing.assert_array_equal(log_odds(h, np), np.stack([h[:, 0] - h[:, 1], h[:, 1] - h[:, 0]], axis=1))
    slope, shift = np.full(2, 2.5), np.array([0.75, -0.75])
    z = 2.5 * (h[:, 1] - h[:, 0]) - 0.75
    p = OddsMap(slope, slope, shift).apply(h)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-15)


@pytest.mark.parametrize("m", MAPS)
def test_masked_classes_have_probability_zero(m):
    h = np.array([[1.0, -np.inf, 0.5, 0.0], [-np.inf, -np.inf, 2.0, -np.inf], [-np.inf, 800.0, -np.inf, 0.0]])
    p = m.apply(h)
    assert (p[np.isneginf(h)] == 0).all()
    assert np.isneginf(m.log_apply(h)[np.isneginf(h)]).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    assert p[1, 2] == 1
    some = [0, 2, 3]
    np.testing.assert_allclose(p[0, some], OddsMap(m.a[some], m.b[some], m.c[some]).apply(h[:1, some])[0], rtol=1e-13)


def arrays(h):
    yield torch.tensor(h), 1e-13
    yield torch.tensor(h, dtype=torch.float32), 2e-5
    yield torch.tensor(h).to(torch.bfloat16), 0.1
    yield jnp.asarray(h, dtype=jnp.float32), 2e-5
    yield jnp.asarray(h, dtype=jnp.bfloat16), 0.1
    yield array_api_strict.asarray(h), 1e-13
    yield h.astype(np.float16), 0.02


@pytest.mark.parametrize("m", MAPS)
def test_array_libraries_give_the_same(m):
    h = 3 * np.random.default_rng(2).normal(size=(30, 4))
    h[3, 1] = h[5, 0] = -np.inf
    expected = m.apply(h)
    for array, tolerance in arrays(h):
        for p in (m.apply(array), m.log_apply(array)):
            assert type(p) is type(array)
            assert p.dtype == array.dtype
        p = m.apply(array)
        p = np.asarray(p.float() if isinstance(p, torch.Tensor) and p.dtype == torch.bfloat16 else p, dtype=np.float64)
        np.testing.assert_allclose(p, expected, atol=tolerance)


@given(
    h=hnp.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32)),
    theta=hnp.arrays(np.float64, (3, 4), elements=st.floats(-1e30, 1e30)),
)
def test_nothing_makes_nan(h, theta):
    m = OddsMap(*theta)
    for array in (h, h.astype(np.float64)):
        p = m.apply(array)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
        assert not np.isnan(m.log_apply(array)).any()


@pytest.mark.parametrize("m", MAPS)
def test_the_map_comes_back_from_its_fields(m):
    back = map_from_fields(Fields(m.to_dict(), "here"))
    assert back.to_dict() == m.to_dict()
    assert (back.n_classes, back.keeps_arg_max) == (4, False)
