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

from attemper import FileError, InputError
from attemper._json import Fields
from attemper.maps import AffineMap, map_from_fields
from attemper.maps.affine import bend
from attemper.torch import fold_into_linear

from exported import CURVES, exact, extreme_pairs, random_logits
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
def test_extremes(name):
    m, h = CURVES[name], extreme_pairs()
    p, log_p = exact(m, h), exact(m, h, log=True)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_array_equal(p[np.isneginf(h)], 0)
    np.testing.assert_array_equal(p[np.isneginf(h).any(axis=1)].max(axis=1), 1)
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(m.apply(h), p, atol=1e-6)
    np.testing.assert_allclose(m.apply(h.astype(np.float16)), exact(m, h.astype(np.float16)), atol=1e-3)
    z = h[:2, 1].astype(float) - h[:2, 0]
    if name == "curve":  # far out the bend is a straight line
        margin = 0.7 * z + 0.25 * (0.7 * np.abs(z) - 2 * math.log(2)) - 0.5
        np.testing.assert_allclose(log_p[:2, 1] - log_p[:2, 0], margin, rtol=1e-13)


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
def test_rows_do_not_depend_on_each_other(name):
    m, h = CURVES[name], random_logits(33, k=2).astype(np.float64)
    np.testing.assert_array_equal(m.apply(h)[7:12], m.apply(h[7:12]))


@each_curve
def test_files_hold_the_curve(name):
    m, h = CURVES[name], random_logits(k=2)
    content = m.to_dict()
    back = map_from_fields(Fields(content, "here"))
    assert back.to_dict() == content
    np.testing.assert_array_equal(back.apply(h), m.apply(h))


def test_files_from_before_the_curve_are_read():
    plain = AffineMap(np.array([0.8, 0.6]), np.array([0.2, -0.3]))
    content = plain.to_dict()
    old = {key: value for key, value in content.items() if not key.startswith("curve")}
    back = map_from_fields(Fields(old, "here"))
    assert back.curve is None
    assert back.to_dict() == content
    np.testing.assert_array_equal(back.apply(np.eye(2)), plain.apply(np.eye(2)))
    assert plain.arrays().keys() == {"weight", "bias", "beta"}


@pytest.mark.parametrize(
    "damage",
    [
        {"curve": [0.1]},
        {"curve": [0.1, 0.2, 0.3]},
        {"curve": [[0.1, 0.2]]},
        {"curve": 0.1},
        {"curve": ["a", 0.2]},
        {"curve": [1e31, 0.0]},
        {"curve": [float("nan"), 0.0]},
        {"curve_scale": 0.0},
        {"curve_scale": -1.0},
        {"curve_scale": float("nan")},
        {"curve_scale": float("inf")},
        {"curve_scale": None},
        {"weight": [1.0] * 3, "bias": [0.0] * 3},
    ],
)
def test_curves_that_make_no_sense_are_not_read(damage):
    with pytest.raises(FileError):
        map_from_fields(Fields(CURVES["curve"].to_dict() | damage, "here"))


def test_curves_are_checked_in_python_too():
    with pytest.raises(InputError):
        AffineMap(np.ones(3), np.zeros(3), curve=np.zeros(3))
    with pytest.raises(InputError):
        AffineMap(np.ones(2), np.zeros(2), curve=np.array([np.nan, 0.0]))
    with pytest.raises(InputError):
        AffineMap(np.ones(2), np.zeros(2), curve=np.zeros(2), curve_scale=0)


@each_curve
def test_no_layer_absorbs_a_curve(name):
    with pytest.raises(InputError):
        CURVES[name].as_linear()
    with pytest.raises(InputError):
        fold_into_linear(torch.nn.Linear(3, 2), CURVES[name])


def test_a_curve_of_zeros_is_none():
    weight, bias, h = np.array([0.8, 0.6]), np.array([0.2, -0.3]), np.r_[random_logits(k=2), extreme_pairs()]
    np.testing.assert_array_equal(AffineMap(weight, bias, curve=np.zeros(2)).apply(h), AffineMap(weight, bias).apply(h))


@given(slope=st.floats(0.1, 3), share=st.floats(-0.99, 0.99), scale=st.floats(0.1, 5), bias=st.floats(-3, 3))
def test_the_map_is_monotone_where_the_curve_is_smaller_than_the_slope(slope, share, scale, bias):
    curve = np.array([-0.5, 0.5]) * share * slope / scale
    m = AffineMap(np.full(2, slope), np.array([-bias, bias]), curve=curve, curve_scale=scale)
    h = np.column_stack([np.zeros(401), np.linspace(-30, 30, 401)])
    log_p = m.log_apply(h)
    assert (np.diff(log_p[:, 1] - log_p[:, 0]) > 0).all()


def test_a_larger_curve_turns_the_order_round():
    m = AffineMap(np.ones(2), np.zeros(2), curve=np.array([-1.0, 1.0]))
    p = m.apply(np.column_stack([np.zeros(3), [-9.0, 0.0, 9.0]]))[:, 1]
    assert p[0] > p[1] < p[2]
