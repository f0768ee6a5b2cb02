"""Affine maps of two classes that bend, in every array library and in files."""

import math

import array_api_strict
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attemper import InputError
from attemper.export import fold_into_linear
from attemper.maps import AffineMap
from attemper.maps.affine import bend

from exported import CURVES, extreme_pairs, random_logits
from oracles import softmax

each_curve = pytest.mark.parametrize("name", CURVES)


def oracle(m, row):
    """The formula, number by number."""
    s = softmax(row)
    x = {"mean": [v - sum(row) / 2 for v in row], "none": row, "log_probs": [math.log(v) for v in s]}[m.centring]
    weight = np.diag(m.weight) if m.weight.ndim == 1 else m.weight
    curved = 2 * math.log(math.cosh(m.curve_scale * (row[1] - row[0]) / 2))
    z = [sum(weight[k, j] * x[j] for j in range(2)) + m.bias[k] + m.curve[k] * curved for k in range(2)]
    parts = [(1.0, m.then.beta)] if hasattr(m.then, "beta") else list(zip(m.then.weights, m.then.betas))
    floor = getattr(m.then, "uniform_mass", 0.0) / 2
    return np.sum([w * np.array(softmax(z, 1 / b)) for w, b in parts], axis=0) + floor


@each_curve
def test_the_map_is_its_formula(name):
    m, h = CURVES[name], random_logits(50, k=2).astype(np.float64)
    expected = np.array([oracle(m, list(row)) for row in h])
    np.testing.assert_allclose(m.apply(h), expected, rtol=1e-12)
    np.testing.assert_allclose(m.log_apply(h), np.log(expected), rtol=1e-11, atol=1e-12)
    assert not m.keeps_arg_max


def test_the_bend_is_an_absolute_value_without_its_kink():
    margins = [0.0, 1e-12, 1e-3, 1.0, -1.0, 30.0, -800.0, 1e4]
    with mpmath.workdps(50):
        expected = [float(2 * mpmath.log(mpmath.cosh(mpmath.mpf(v) / 2))) for v in margins]
    np.testing.assert_allclose(bend(np.array(margins), np), expected, rtol=1e-13, atol=5e-16)
    single = bend(np.array(margins, dtype=np.float32), np)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-6, atol=3e-7)
    assert bend(np.zeros(1), np) == 0


@each_curve
def test_array_libraries_give_the_same(name):
    m, h = CURVES[name], np.r_[random_logits(k=2), extreme_pairs()].astype(np.float64)
    for array, tolerance in (
        (torch.tensor(h), 1e-13),
        (torch.tensor(h, dtype=torch.float32), 2e-6),
        (torch.tensor(h[:64]).to(torch.float16), 2e-3),
        (jnp.asarray(h, dtype=jnp.float32), 2e-6),
        (jnp.asarray(h[:64], dtype=jnp.bfloat16), 2e-2),
        (array_api_strict.asarray(h), 1e-13),
        (h.astype(np.float32), 2e-6),
        (h.astype(">f8"), 1e-13),
    ):
        p = m.apply(array)
        assert type(p) is type(array)
        assert p.dtype == array.dtype or array.dtype == ">f8"
        numbers = np.asarray(p, dtype=np.float64)
        np.testing.assert_allclose(numbers, m.apply(h[: len(numbers)]), atol=tolerance)


@each_curve
def test_no_layer_absorbs_a_curve(name):
    with pytest.raises(InputError):
        CURVES[name].as_linear()
    with pytest.raises(InputError):
        fold_into_linear(torch.nn.Linear(3, 2), CURVES[name])


@given(slope=st.floats(0.1, 3), share=st.floats(-0.99, 0.99), scale=st.floats(0.1, 5), bias=st.floats(-3, 3))
def test_the_map_is_monotone_where_the_curve_is_smaller_than_the_slope(slope, share, scale, bias):
    curve = np.array([-0.5, 0.5]) * share * slope / scale
    m = AffineMap(np.full(2, slope), np.array([-bias, bias]), curve=curve, curve_scale=scale)
    h = np.column_stack([np.zeros(401), np.linspace(-30, 30, 401)])
    log_p = m.log_apply(h)
    assert (np.diff(log_p[:, 1] - log_p[:, 0]) > 0).all()
