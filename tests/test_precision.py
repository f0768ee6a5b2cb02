"""The same answer in every float type and library, whatever a CPU makes of tiny numbers, in batches of any size."""

from __future__ import annotations

from contextlib import contextmanager

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from attemper import Scores, TemperatureScaling
from attemper.data.arrays import log_probs
from attemper.maps import AffineMap, MixtureMap, OddsMap, ScaleMap
from attemper.onnx import map_to_onnx
from attemper.torch import to_torch

import onnx_models as models
from data import draw
from oracles import softmax

ZEROS = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.0, 0.75]])
DTYPES = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 1e-5, "float64": 1e-9}


@contextmanager
def flushed(on):
    """Let the CPU take denormal numbers for 0, where it can."""
    if on:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@pytest.fixture(params=[False, True], ids=["denormals", "flushed"])
def cpu(request):
    with flushed(request.param):
        yield


def on_probs(floor, beta=0.5, kind=TemperatureScaling, **parameters):
    """A calibrator of probabilities, with a map that is known."""
    h, y = draw(200, 3)
    fitted = kind(input="probs", zeros_as=floor, **parameters).fit(np.array([softmax(row) for row in h]), y)
    if beta is not None:
        fitted.map_ = ScaleMap(beta)
    return fitted


def predicted(calibrator, p, log=False):
    """By every library that takes the type of ``p``."""
    numpy = calibrator.predict_log_proba if log else calibrator.predict_proba
    name = np.dtype(p.dtype).name
    tensor = torch.from_numpy(p.astype(np.float64)).to(getattr(torch, name))
    yield "numpy", numpy(p)
    yield "torch", numpy(tensor)
    yield "module", to_torch(calibrator, log=log)(tensor)
    if name != "float64":
        yield "jax", numpy(jnp.asarray(p))
    if name == "float32":
        model = map_to_onnx(calibrator, output_kind="log_probs" if log else "probs").model
        yield "onnx", models.run(model, {"probs": p})[0]


def as_double(value):
    return value.to(torch.float64).numpy() if isinstance(value, torch.Tensor) else np.asarray(value).astype(np.float64)


# Floors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("floor", [1e-8, 1e-50, 1e-300])
@pytest.mark.usefixtures("cpu")
def test_a_floor_of_any_size_in_every_type(dtype, floor):
    calibrator = on_probs(floor, beta=0.02)
    h = 0.02 * np.log(np.maximum(ZEROS, floor))
    expected = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    for log, true in ((False, expected), (True, np.log(expected))):
        for library, found in predicted(calibrator, ZEROS.astype(dtype), log):
            np.testing.assert_allclose(as_double(found), true, rtol=DTYPES[dtype], atol=1e-6, err_msg=library)
            assert np.array_equal(as_double(found).argmax(axis=1), ZEROS.argmax(axis=1)), library


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_numbers_that_a_cpu_may_take_for_zero_are_zero_where_there_is_a_floor(dtype):
    # Made of bits, since arithmetic may flush them: the smallest number of each type, and the largest denormal one.
    size = {"bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}[dtype]
    most = {"bfloat16": 2**7 - 1, "float32": 2**23 - 1, "float64": 2**52 - 1}[dtype]
    kind = getattr(ml_dtypes, dtype) if dtype == "bfloat16" else np.dtype(dtype)
    p = ZEROS.astype(kind)
    tiny = p.copy()
    tiny.view(size)[0, 1], tiny.view(size)[2, 1] = 1, most
    calibrator = on_probs(1e-305 if dtype == "float64" else 1e-50, beta=0.02)
    zero = as_double(calibrator.predict_proba(p))
    for on in (False, True):
        with flushed(on):
            np.testing.assert_array_equal(as_double(calibrator.predict_proba(tiny)), zero)
            if dtype != "bfloat16":
                tensor = torch.from_numpy(tiny)
                np.testing.assert_array_equal(as_double(calibrator.predict_proba(tensor)), zero)
                np.testing.assert_allclose(as_double(to_torch(calibrator)(tensor)), zero, rtol=1e-6)
            if dtype == "float32":
                found = models.run(map_to_onnx(calibrator).model, {"probs": tiny})[0]
                np.testing.assert_allclose(found, zero, rtol=1e-5)
            fits = [
                TemperatureScaling(input="probs", zeros_as=calibrator.zeros_as).fit(x, [1, 0, 2]) for x in (p, tiny)
            ]
            assert fits[0].temperature_ == fits[1].temperature_


def test_gradients_pass_zeros_below_a_floor():
    p = torch.tensor(ZEROS, dtype=torch.float32, requires_grad=True)
    to_torch(on_probs(1e-8))(p)[:, 0].sum().backward()
    assert bool(torch.isfinite(p.grad).all())


# The arg max


def neighbours(dtype):
    """Rows of probabilities next to each other, the larger one in any column."""
    rng = np.random.default_rng(0)
    rows = []
    for low in rng.uniform(0.2, 0.5, size=300).astype(dtype):
        row = np.array([low, low, np.nextafter(low, dtype(1))], dtype=dtype)
        rows.append(rng.permutation(row))
    p = np.array(rows)
    rest = 1 - p.astype(np.float64).sum(axis=1, keepdims=True)
    return np.hstack([p, np.maximum(rest, 0)]).astype(dtype)[:, :4]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "m",
    [ScaleMap(0.3), ScaleMap(2.5), MixtureMap((0.5, 0.3), (0.4, 1.7), 0.2), MixtureMap((0.6, 0.4), (0.4, 3.0), 0.0)],
)
@pytest.mark.parametrize("floor", [None, 1e-8])
def test_the_arg_max_of_probabilities_stays(dtype, m, floor):
    h = 0.02 * np.random.default_rng(1).normal(size=(3000, 4))
    p = np.exp(h)
    p = (p / p.sum(axis=1, keepdims=True)).astype(dtype)  # in half precision many are next to each other
    p = np.vstack([p, neighbours(dtype)])
    p = p[np.abs(p.astype(np.float64).sum(axis=1) - 1) < 0.005]
    h, y = draw(200, 4)
    calibrator = TemperatureScaling(input="probs", zeros_as=floor).fit(np.array([softmax(row) for row in h]), y)
    calibrator.map_ = m
    top = p.argmax(axis=1)
    assert (log_probs(p, floor).argmax(axis=1) == top).all()
    np.testing.assert_array_equal(calibrator.predict(p), top)
    for log in (False, True):
        for library, found in predicted(calibrator, p, log):
            assert (as_double(found).argmax(axis=1) == top).all(), library


# Masks


MASKS = (-1e4, -32768.0, -5e4, -65504.0, -(2.0**31), -1e9, -1e12, -1e25, -1e30, float(np.finfo(np.float32).min))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("additive", [False, True])
def test_finite_masks_are_those_of_other_peoples_code(mask, dtype, additive):
    h, y = draw(300, 4, scale=4.0)
    where = np.random.default_rng(0).random(h.shape) < 0.3
    where[np.arange(300), y] = False
    where[7] = False
    if dtype is np.float16:
        mask = max(mask, -65504.0 if not additive else -65000.0)
    x = np.where(where, mask + h if additive else mask, h).astype(dtype)
    x[7] = max(mask, -1e25)  # nothing is masked where everything would be
    found = Scores.from_logits(x, y)
    np.testing.assert_array_equal(np.isneginf(found.rows(slice(None))), where)
    assert found.masked
    if dtype is not ml_dtypes.bfloat16:
        np.testing.assert_array_equal(np.isneginf(Scores.from_logits(torch.from_numpy(x)).logits.numpy()), where)
    for rows in (slice(0, 1), slice(1, 2), slice(3, 7)):  # a part alone is as in the whole
        np.testing.assert_array_equal(np.isneginf(Scores.from_logits(x[rows]).rows(slice(None))), where[rows])


SIZES = -np.geomspace(1, 1e12, 5000)
Z = np.random.default_rng(0).normal(size=(1000, 4))


@pytest.mark.parametrize(
    "logits",
    [
        np.round(3 * Z) * 1000,
        np.round(3 * Z) * 1e4,
        1000 * Z,
        1e4 * Z[:, :2],
        1e9 * Z,
        -np.abs(1e6 * Z),
        np.column_stack([np.zeros_like(SIZES), SIZES]),  # as naive Bayes has them
        np.where(np.arange(4) == 1, -1e4 * np.arange(1, 1001)[:, None], Z),
        Z - 1e9,
        np.full((5, 3), -1e4),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_of_every_size_are_no_masks(logits, dtype):
    found = Scores.from_logits(logits.astype(dtype))
    assert not found.masked
    np.testing.assert_array_equal(found.logits, logits.astype(dtype))


def test_masks_do_not_depend_on_chunks(monkeypatch):
    h = np.round(3 * Z) * 1e4
    monkeypatch.setattr("attemper.data.arrays.CHUNK_ELEMENTS", 4)  # some rows alone look like masked ones
    assert not Scores.from_logits(h).masked
    assert any(Scores.from_logits(row[None]).masked for row in h)


# Batches and the order of bytes


@pytest.mark.parametrize("k", [2, 5, 10, 33, 128])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8"])
def test_a_prediction_does_not_depend_on_the_batch(k, dtype):
    rng = np.random.default_rng(0)
    for m in (
        AffineMap(rng.normal(size=(k, k)), rng.normal(size=k)),
        AffineMap(rng.normal(size=(k, k)), rng.normal(size=k), "log_probs", MixtureMap((0.5, 0.4), (1.0, 0.3), 0.1)),
        AffineMap(rng.normal(size=k), rng.normal(size=k)),
        OddsMap(*rng.uniform(size=(3, k))),
        ScaleMap(0.3),
    ):
        for order in "CF":
            h = np.array(3 * rng.normal(size=(300, k)), dtype=dtype, order=order)
            for apply in (m.apply, m.log_apply):
                whole = apply(h)
                for start, size in ((0, 1), (7, 1), (5, 2), (11, 3), (3, 17), (64, 64), (1, 257)):
                    np.testing.assert_array_equal(apply(h[start : start + size]), whole[start : start + size])
