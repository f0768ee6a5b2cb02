"""Maps: MAPS × {NumPy, torch, JAX, array_api_strict} × precision, against formulas row by row."""

from __future__ import annotations

import array_api_strict
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax

from attemper.errors import FileError, InputError
from attemper.maps import Affine, Curves, Knots, Map, Mixture
from conftest import draw

import oracles

K = 4
RNG = np.random.default_rng(0)
W = np.eye(K) / 2 + 0.1 * RNG.normal(size=(K, K))
B = RNG.normal(size=K)


def knots(k, linear):
    sizes = np.array([3 + i for i in range(k if k > 2 else 1)])
    x = np.concatenate([np.sort(RNG.random(n)) for n in sizes])
    return Knots(sizes, x, RNG.random(len(x)), linear)


MAPS = {
    "temperature": Map.scale(0.5),
    "bias": Map((Affine.of(0.5, B),)),
    "vector": Map((Affine(np.array([0.4, 0.5, 0.6, 0.7]), B),)),
    "matrix": Map((Affine(W, B),)),
    "as they are": Map((Affine(W, B, "none"),)),
    "dirichlet": Map((Affine(W, B, "log_probs"),)),
    "mixture": Map((Mixture(np.array([0.3, 0.6]), np.array([0.5, 1.5]), 0.1),)),
    "no uniform": Map((Mixture(np.array([0.4, 0.6]), np.array([0.5, 1.5])),)),
    "curves": Map((Curves(np.array([0.5, 1, 1.5, 2]), np.array([1.0, 2, 0.5, 1]), B),)),
    "steps": Map((knots(K, False),)),
    "lines": Map((knots(K, True),)),
    "stages": Map((Affine(W, B), Mixture(np.array([0.9]), np.array([0.8]), 0.1), Affine.of(1.0, B))),
    "probs": Map((Affine.of(0.5),), input="probs", zeros_as=1e-3),
    "labels": Map((Curves(np.full(K, 0.5), np.full(K, 0.5), B, independent=True),)),
}
H = draw(60, K, masks=0.15).h
PLAIN = draw(60, K).h


def expected(name, h):
    """One row, by its formula."""
    possible = np.isfinite(h)
    s = np.array(oracles.softmax(np.where(possible, h, -1e300)))
    x = np.where(possible, h - h[possible].mean(), 0.0)
    if name == "as they are":
        x = np.where(possible, h, h[possible].mean())
    if name == "dirichlet":
        with np.errstate(divide="ignore"):
            x = np.where(possible, np.log(s), np.log(s[possible]).mean())
    if name in ("temperature", "bias", "vector", "matrix", "as they are", "dirichlet"):
        stage = MAPS[name].stages[0]
        z = stage.weight @ x if stage.weight.ndim == 2 else stage.weight * x
        z = z + (0 if stage.bias is None else stage.bias)
        return oracles.softmax(np.where(possible, z, -1e300))
    if name in ("mixture", "no uniform"):
        stage = MAPS[name].stages[0]
        parts = [
            w * np.array(oracles.softmax(np.where(possible, b * h, -1e300))) for w, b in zip(stage.weights, stage.betas)
        ]
        return sum(parts) + stage.uniform_mass * possible / possible.sum()
    if name == "curves":
        stage = MAPS[name].stages[0]
        rest = np.array([oracles.other_than(k, s) for k in range(K)])
        with np.errstate(divide="ignore", invalid="ignore"):
            q = expit(stage.a * np.log(s) - stage.b * np.log(rest) + stage.c)
        q = np.where(possible, q, 0.0)
        return q / q.sum()
    if name in ("steps", "lines"):
        stage, q, end = MAPS[name].stages[0], np.zeros(K), np.cumsum(MAPS[name].stages[0].sizes)
        for k in np.flatnonzero(possible):
            x, v = (a[end[k] - stage.sizes[k] : end[k]] for a in (stage.knots, stage.values))
            q[k] = np.interp(s[k], x, v) if stage.linear else v[max(np.searchsorted(x, s[k], "right") - 1, 0)]
        return q / q.sum()
    if name == "stages":
        z = np.array(expected("matrix", h))
        z = (
            0.9 * np.array(oracles.softmax(np.log(np.maximum(z, 1e-300)) * 0.8)) * possible
            + 0.1 * possible / possible.sum()
        )
        return np.where(possible, z * np.exp(B), 0) / np.where(possible, z * np.exp(B), 0).sum()
    raise KeyError(name)


@pytest.mark.parametrize("name", [name for name in MAPS if name not in ("probs", "labels")])
def test_formulas(name):
    for h in (H, PLAIN):
        p = MAPS[name].apply(h)
        np.testing.assert_allclose(p, [expected(name, row) for row in h], atol=1e-12)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(MAPS[name].log_apply(h), np.log(p), atol=1e-9)


def test_formula_of_labels_and_probabilities():
    np.testing.assert_allclose(MAPS["labels"].apply(PLAIN), expit(0.5 * PLAIN + B), atol=1e-12)
    p = softmax(PLAIN, axis=1).round(2)
    read = np.where(p == 0, 1e-3, p) ** 0.5
    np.testing.assert_allclose(MAPS["probs"].apply(p), read / read.sum(axis=1, keepdims=True), atol=1e-12)


NAMESPACES = {
    "torch": lambda h, dtype: torch.tensor(h, dtype=getattr(torch, dtype)),
    "jax": lambda h, dtype: jnp.asarray(h, dtype=dtype),
    "strict": lambda h, dtype: array_api_strict.asarray(h, dtype=getattr(array_api_strict, dtype)),
    "numpy": lambda h, dtype: h.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype),
}
CASES = [("torch", d) for d in ("float64", "float32", "float16", "bfloat16")]
CASES += [("jax", d) for d in ("float32", "float16", "bfloat16")] + [("strict", d) for d in ("float64", "float32")]
CASES += [("numpy", d) for d in ("float32", "float16", "bfloat16")]


def in_double(array):
    return np.array(array.tolist() if hasattr(array, "tolist") else np.asarray(array), dtype=np.float64)


@pytest.mark.parametrize(("library", "dtype"), CASES)
@pytest.mark.parametrize("name", MAPS)
def test_libraries(name, library, dtype):
    x = PLAIN if name in ("probs", "labels") else H
    x = softmax(x, axis=1) if name == "probs" else x
    given = NAMESPACES[library](x, dtype)
    seen = in_double(given)  # what is left of x in that precision
    for apply in ("apply", "log_apply"):
        made = getattr(MAPS[name], apply)(given)
        assert type(made) is type(given)
        assert made.dtype == given.dtype
        value = in_double(made)
        tolerance = {"float64": 1e-13, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
        np.testing.assert_allclose(value, getattr(MAPS[name], apply)(seen), rtol=tolerance, atol=tolerance)
        if MAPS[name].keeps_arg_max:
            np.testing.assert_array_equal(value.argmax(axis=1), seen.argmax(axis=1))


@pytest.mark.parametrize("name", MAPS)
def test_files(name):
    fitted = MAPS[name]
    again = Map.from_dict(fitted.to_dict())
    x = softmax(PLAIN, axis=1) if name == "probs" else PLAIN
    np.testing.assert_array_equal(again.apply(x), fitted.apply(x))
    assert again.to_dict() == fitted.to_dict()
    assert (again.n_classes, again.keeps_arg_max) == (fitted.n_classes, fitted.keeps_arg_max)


@pytest.mark.parametrize("change", [
    lambda d: d.update(stages=[]),
    lambda d: d["stages"][0].update(type="no"),
    lambda d: d["stages"][0].pop("weight"),
    lambda d: d["stages"][0].update(weight="x"),
    lambda d: d.update(input="words"),
])  # fmt: skip
def test_damaged_files(change):
    content = MAPS["matrix"].to_dict()
    change(content)
    with pytest.raises(FileError):
        Map.from_dict(content)


def test_two_classes_have_one_function_of_knots_or_mirrored_curves():
    h = draw(50, 2).h
    p = softmax(h, axis=1)[:, 1]
    steps = Knots(np.array([2]), np.array([0.0, 0.5]), np.array([0.2, 0.7]), False)
    q = np.where(p < 0.5, 0.2, 0.7)
    np.testing.assert_allclose(Map((steps,)).apply(h), np.column_stack([1 - q, q]), atol=1e-12)
    bent = Map((Affine(np.array([0.5, 0.5]), None, "mean", np.array([0.0, 0.3]), 2.0),))
    margin = h[:, 1] - h[:, 0]
    odds = 0.5 * margin + 0.3 * 2 * np.log(np.cosh(margin))
    np.testing.assert_allclose(bent.apply(h)[:, 1], expit(odds), atol=1e-12)


@pytest.mark.parametrize("k", [3, 12])
def test_the_classifiers_own_prediction_stays_in_ties(k):
    equal = Map((Knots(np.full(k, 1), np.zeros(k), np.full(k, 0.5), False),))
    none = Map((Knots(np.full(k, 1), np.zeros(k), np.zeros(k), False),))
    h = draw(200, k).h
    for fitted in (equal, none, Map.scale(1e-20), Map.scale(1e-9)):
        p = fitted.apply(h)
        np.testing.assert_allclose(p, 1 / k, rtol=1e-7)
        for value in (
            p,
            fitted.log_apply(h),
            fitted.apply(h.astype(np.float32)),
            fitted.apply(torch.tensor(h)).numpy(),
        ):
            np.testing.assert_array_equal(value.argmax(axis=1), h.argmax(axis=1))


def test_far_out():
    h = np.array([[1e30, -1e30, 0.0, 5.0], [700.0, -700.0, 0.0, 1.0], [0.0, -np.inf, -np.inf, -np.inf]])
    for name, fitted in MAPS.items():
        if name in ("probs", "labels"):
            continue
        p = fitted.apply(h)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12, err_msg=name)
        assert (p[2] == [1, 0, 0, 0]).all(), name
    tiny = Map.scale(1.0).log_apply(np.array([[50.0, 0.0]]))
    np.testing.assert_allclose(tiny, [[-np.exp(-50), -50]], rtol=1e-12)  # exact also where p rounds to one


def test_rows_do_not_depend_on_each_other_nor_on_memory():
    h = np.random.default_rng(0).normal(size=(3000, K))
    for name, fitted in MAPS.items():
        x = softmax(h, axis=1) if name == "probs" else h
        p = fitted.apply(x)
        np.testing.assert_array_equal(fitted.apply(x[7:9]), p[7:9], err_msg=name)
        np.testing.assert_array_equal(fitted.apply(np.asfortranarray(x)), p, err_msg=name)
        np.testing.assert_array_equal(fitted.apply(x[::-1]), p[::-1], err_msg=name)


def test_stages_compose():
    one, two = Map.scale(0.5), Map.scale(0.5).then(Affine.of(0.5))
    assert len(two.stages) == 1  # two temperatures are one
    np.testing.assert_allclose(two.log_apply(PLAIN), log_softmax(PLAIN / 4, axis=1), atol=1e-12)
    tilted = one.then(Affine.of(1.0, B)).apply(PLAIN)
    direct = softmax(PLAIN / 2, axis=1) * np.exp(B)
    np.testing.assert_allclose(tilted, direct / direct.sum(axis=1, keepdims=True), atol=1e-12)


def test_no_real_numbers():
    for x in (np.zeros((2, 4), complex), np.array([["a"] * 4])):
        with pytest.raises((InputError, TypeError)):
            MAPS["temperature"].apply(x)


def test_gradients_are_finite():
    for name, fitted in MAPS.items():
        if fitted.double:  # steps have none
            continue
        x = torch.tensor(PLAIN if name in ("probs", "labels") else H)
        x = (torch.softmax(x, dim=1) if name == "probs" else x).requires_grad_()
        fitted.log_apply(x)[:, 0].clamp(min=-1e3).sum().backward()
        assert torch.isfinite(x.grad[torch.isfinite(x)]).all(), name


@pytest.mark.parametrize("library", ["torch", "jax", "numpy"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_to_half_precision_does_not_change_the_prediction(library, dtype):
    p = in_double(Map.scale(1e-4).apply(NAMESPACES[library](np.array([[1.0, 1.5], [0.0, -1.0]]), dtype)))
    assert p.argmax(axis=1).tolist() == [1, 0]


def test_zeros_and_ones_of_labels_are_as_far_from_the_end():
    made = Map((Curves(np.full(K, 0.5), np.full(K, 0.5), B, independent=True),), "probs", 1e-3)
    odds = -np.log(1e-3) * np.array([-1, 1, 0, 1])
    np.testing.assert_allclose(made.apply(np.array([[0.0, 1.0, 0.5, 1.0]])), [expit(0.5 * odds + B)], rtol=1e-12)


def test_where_all_functions_are_zero_possible_classes_share_equally():
    nothing = Map((Knots(np.array([1, 1, 1]), np.zeros(3), np.zeros(3), False),))
    h = np.array([[1.0, 0.0, -np.inf], [3.0, 2.0, 1.0]])
    for x in (h, torch.tensor(h)):
        np.testing.assert_allclose(np.asarray(nothing.apply(x)), [[0.5, 0.5, 0], [1 / 3] * 3], rtol=1e-12)


@pytest.mark.parametrize("library", NAMESPACES)
def test_a_probability_at_a_knot_has_the_step_that_begins_there(library):
    h = np.array([[0.0, 0.0], [800.0, 0.0], [0.0, 800.0]])  # p is 1/2, 0 and 1 to the last bit
    for linear in (False, True):
        steps = Map((Knots(np.array([9]), np.arange(9) / 8, np.linspace(0.1, 0.9, 9), linear),))
        found = in_double(steps.apply(NAMESPACES[library](h, "float32")))
        np.testing.assert_allclose(found[:, 1], [0.5, 0.1, 0.9], rtol=1e-6)
