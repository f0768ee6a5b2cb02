"""Tensors on the CPU take the road of a GPU: plain torch, and Triton's kernels in its interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attemper import (
    AttemperWarning,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    EdgeWarning,
    InputError,
    Scores,
    Sketch,
    TemperatureScaling,
    VectorScaling,
    tokens,
)
from attemper.data import scores as data_scores
from attemper.kernels import temperature as nll
from attemper.torch import plain, rows, table
from attemper.torch.rows import DeviceRows
from conftest import HAS_TRITON, draw

if HAS_TRITON:
    from attemper.torch import fused

# A GPU does not mind NaN; NumPy, which the interpreter works with, warns of it.
pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning"),
]

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WAYS = ("plain", "triton", pytest.param("triton, many strides", marks=pytest.mark.slow))[: 3 if HAS_TRITON else 1]
PARTS = ("attended", "reference", "uniform")


def choose(monkeypatch, way):
    monkeypatch.setattr(rows, "_has_triton", lambda device: way != "plain")
    if way == "triton, many strides":  # as rows of many columns are walked along
        monkeypatch.setattr(fused, "FEW_ROWS", 0)
        for tile in ("SCAN", "NLL", "RESTS"):
            monkeypatch.setattr(fused, tile, fused.Tile(32, 4))
    return way


@pytest.fixture(params=WAYS)
def sums(request, monkeypatch):
    """Choose one of the ways to go through the logits."""
    return choose(monkeypatch, request.param)


@pytest.fixture(params=WAYS[:2])
def device(request, monkeypatch):
    """Let fits of torch tensors take the road of a GPU; NumPy arrays take their own."""
    monkeypatch.setattr(data_scores, "on_gpu", lambda array: isinstance(array, torch.Tensor))
    return choose(monkeypatch, request.param)


def masked_rows(n, k, masked=True, seed=0):
    return tuple(draw(n, k, masks=0.15 * masked, seed=seed))


def as_float64(t):
    return t.to(torch.float64).numpy()


def scan_slowly(h, y):
    """Row by row, as a person would look."""
    found = []
    for row, label in zip(h, y):
        bad = sum(1 for v in row if np.isnan(v) or v == np.inf)
        row = [0.0 if np.isnan(v) or v == np.inf else float(v) for v in row]
        finite = [v for v in row if v > -np.inf]
        top = row.index(max(row))
        others = [v for k, v in enumerate(row) if k != top]
        lowest, total = min(finite, default=np.inf), sum(finite)
        found.append((top, max(row), max(others), lowest, total, len(finite), row[label] - max(row), bad))
    return np.array(found).T


@pytest.mark.parametrize("k", [2, 31, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scan_is_what_a_loop_finds(sums, k, dtype):
    h, y = masked_rows(7, k)
    h[2, :] = 1.5  # all tie
    h[3, [0, k - 1]] = h[3].max() + 1  # two tie
    h[4, :] = -np.inf
    h[4, y[4]] = 2.0  # one class is possible
    for masked in (True, False):
        t = torch.tensor(h if masked else np.maximum(h, -30.0)).to(dtype)
        found, has_nonfinite = (plain if sums == "plain" else fused).scan(t, None, torch.from_numpy(y))
        assert has_nonfinite == masked
        rtol = 1e-6 if dtype != torch.float64 else 1e-13
        np.testing.assert_allclose(np.stack([c.numpy() for c in found]), scan_slowly(as_float64(t), y), rtol=rtol)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_cannot_be_used(sums, value):
    h, y = masked_rows(4, 40, masked=False)
    assert DeviceRows.of(torch.tensor(h), y).usable()
    assert not DeviceRows.of(torch.tensor(h), y).has_nonfinite
    odd, dead, hit = h.copy(), h.copy(), h.copy()
    odd[2, [5, 39]], dead[1], hit[2, y[2]] = value, -np.inf, -np.inf
    for bad in (odd, dead, hit):
        assert not DeviceRows.of(torch.tensor(bad), y).usable()
    np.testing.assert_array_equal(DeviceRows.of(torch.tensor(odd), y).found.bad, [0, 0, 2, 0])
    assert DeviceRows.of(torch.tensor(hit), None).usable()  # without labels none can be masked


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_sums_and_limits_are_those_of_numpy(sums, dtype, masked):
    h, y = masked_rows(9, 77, masked=masked)
    t = torch.tensor(h).to(dtype)
    exact = as_float64(t)
    for w in (None, np.random.default_rng(1).random(9)):
        found = DeviceRows.of(t, y, w)
        np.testing.assert_allclose(
            found.limits(), nll.limits(exact, y, w), rtol=1e-12 if dtype == torch.float64 else 1e-6
        )
        for beta in (1e-3, 0.7, 20.0):
            expected = nll.sums(exact, y, w, beta, masked=masked)
            np.testing.assert_allclose(found.nll(beta), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beta", [0.1, 0.61803398874])
def test_in_single_precision_they_are_close(sums, monkeypatch, masked, beta):
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    h, y = masked_rows(30, 70, masked=masked)
    t = torch.tensor(h).to(torch.bfloat16)
    found = DeviceRows.of(t, y)
    assert not found.exact
    expected = nll.sums(as_float64(t), y, None, beta, masked=masked)
    np.testing.assert_allclose(found.nll(beta), expected, rtol=3e-7)


def test_derivatives_lead_from_a_rounded_beta_to_the_exact_one(monkeypatch):
    choose(monkeypatch, "plain")
    h, y = masked_rows(40, 9)
    found = DeviceRows.of(torch.tensor(h), y)
    exact = found.nll(0.5034)
    near, step = plain._rounded(0.5034, torch.float32)
    assert near == np.float32(0.5034)
    assert near + step == 0.5034
    monkeypatch.setattr(plain, "_rounded", lambda beta, dtype: (0.5, beta - 0.5))  # coarser than any type of number
    off = np.abs(found.nll(0.5034)[:2] - exact[:2])
    assert (off < 0.1 * 0.0034 * np.abs(exact[1:])).all()  # a tenth of what the first derivatives make good


@pytest.mark.parametrize("betas", [[0.7], [0.05, 1.0, 20.0], list(np.geomspace(0.05, 20, 13))])
def test_rests_leave_the_largest_out_and_never_underflow(sums, betas):
    h, y = masked_rows(12, 65)
    h[0] *= 200  # exp(β (h − max)) underflows
    h[1], h[1, 3], y[1] = -np.inf, 2.0, 3  # no other class
    found = DeviceRows.of(torch.tensor(h), y).rests(np.array(betas)).numpy()
    d = h - h.max(axis=1, keepdims=True)
    d[np.arange(12), h.argmax(axis=1)] = -np.inf
    with np.errstate(divide="ignore"):
        expected = np.stack([np.logaddexp.reduce(b * d, axis=1) for b in betas])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_that_reach_a_cut_are_found_in_order(sums, dtype, monkeypatch):
    h, y = masked_rows(6, 300)
    t = torch.tensor(h).to(dtype)
    cut = torch.linspace(5, 13, 6, dtype=torch.float32)
    expected = np.argwhere(as_float64(t) >= cut.double().numpy()[:, None])
    largest = as_float64(t).max(axis=1)
    for room in (1 << 20, 600):  # all at once, or two rows
        monkeypatch.setattr(rows, "PLACES", room)
        groups = list(DeviceRows.of(t, y).entries_above(cut, np.inf))
        assert len(groups) == (1 if room > 600 else 3)
        row, column, gap = (torch.cat(c).numpy() for c in zip(*groups))
        np.testing.assert_array_equal(np.stack([row, column], axis=1), expected)
        np.testing.assert_array_equal(gap, as_float64(t)[row, column] - largest[row])


def test_rows_can_be_chosen_and_need_not_be_contiguous(sums):
    h, y = masked_rows(60, 20)
    index = np.array([50, 3, 3, 17, 59])
    wide = torch.tensor(np.concatenate([h, h], axis=1))
    for t in (torch.tensor(h), wide[:, :20], wide.T.contiguous().T[:, :20]):
        some = DeviceRows.of(t, y[index], None, index)
        np.testing.assert_allclose(some.nll(0.8), nll.sums(h[index], y[index], None, 0.8, masked=True), rtol=1e-12)
        part = some[slice(1, None, 2)]
        assert len(part) == 2
        np.testing.assert_allclose(part.nll(0.8), nll.sums(h[[3, 17]], y[[3, 17]], None, 0.8, masked=True), rtol=1e-12)


def test_where_triton_cannot_compile_plain_torch_is_used(monkeypatch):
    assert not rows._has_triton.__wrapped__("cpu")
    if HAS_TRITON:
        monkeypatch.setattr(fused, "scan", lambda *_: 1 / 0)
        with pytest.warns(AttemperWarning):
            assert not rows._has_triton.__wrapped__("cuda")


@given(st.integers(1, 12), st.integers(2, 9), st.integers(0, 10**6), st.floats(0.01, 30.0))
def test_any_rows_give_the_sums_of_numpy(n, k, seed, beta):
    h, y = masked_rows(n, k, seed=seed)
    h = h.round()  # so that there are ties
    found = DeviceRows.of(torch.tensor(h), y)
    assert found.found.top.tolist() == h.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.nll(beta), nll.sums(h, y, None, beta, masked=True), rtol=1e-10, atol=1e-9)


# Sketches and fits


def assert_alike(found, expected, tolerance=1e-12):
    for name in ("n_samples", "weight", "correct", "confidence"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=tolerance)
    for part in ("nll", *PARTS):
        a, b = (s.nll if part == "nll" else s.tables[part] for s in (found, expected))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), err_msg=part)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sketch_is_that_of_numpy(device, dtype, weighted):
    h, y = masked_rows(40, 23)
    t, w = torch.tensor(h).to(dtype), np.random.default_rng(0).random(40) if weighted else None
    found = Sketch.of(Scores.of(t, torch.from_numpy(y), sample_weight=w), n_nodes=8, parts=PARTS)
    assert_alike(found, Sketch.of(Scores.of(as_float64(t), y, sample_weight=w), n_nodes=8, parts=PARTS))


@pytest.mark.parametrize("thetas", [[0.0, 0.2, 0.9], [0.001], [0.5, 1.0], [1.0]])
def test_any_grid_of_thetas_and_rows_in_parts(device, thetas, monkeypatch):
    h, y = masked_rows(50, 12, seed=3)
    for name, size in ((table, "ROWS"), (table, "ELEMENTS"), (rows, "PLACES")):
        monkeypatch.setattr(name, size, 32)
    settings = {"thetas": np.array(thetas), "n_nodes": 8, "parts": PARTS}
    assert_alike(Sketch.of(Scores.of(torch.tensor(h), y), **settings), Sketch.of(Scores.of(h, y), **settings))


@pytest.mark.parametrize(
    "method",
    [
        TemperatureScaling(),
        AttendedTemperatureScaling(),
        AttendedTemperatureScaling(loss="reference"),
        BayesianTemperatureScaling(),
        BayesianTemperatureScaling(noise="unknown"),
        VectorScaling(),  # knows no device: chunks are brought to NumPy
    ],
)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")  # of ATS: of few samples
def test_fits_are_those_of_numpy(device, method):
    h, y = masked_rows(60, 6, masked=False)
    expected = method.fit(h, y).predict_proba(h)
    method.fit(torch.tensor(h, requires_grad=True), torch.from_numpy(y))
    assert method.report_.converged
    np.testing.assert_allclose(method.predict_proba(h), expected, rtol=1e-7)


def test_single_precision_finds_the_same_temperature(device, monkeypatch):
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    h, y = masked_rows(100, 50)
    t = torch.tensor(h).to(torch.bfloat16)
    expected = TemperatureScaling().fit(as_float64(t), y).temperature_
    assert TemperatureScaling().fit(t, y).temperature_ == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("mask", [-1e4, -65504.0])
def test_finite_masks_are_masks(device, mask):
    h, y = masked_rows(60, 5)
    finite = torch.tensor(np.where(np.isneginf(h), mask, h)).to(torch.float16)
    some = Scores.of(finite, y)
    assert some.device is not None
    assert some.masked
    expected = TemperatureScaling().fit(h.astype(np.float16), y).temperature_
    assert TemperatureScaling().fit(some).temperature_ == pytest.approx(expected, rel=1e-9)


def test_where_no_temperature_is_best_the_edge_is_taken(device):
    h, _ = masked_rows(50, 4, masked=False)
    for labels, edge in ((h.argmax(axis=1), 0.05), (h.argmin(axis=1), 20.0)):
        with pytest.warns(EdgeWarning):
            fitted = TemperatureScaling().fit(Scores.of(torch.tensor(h), labels))
        assert fitted.temperature_ == edge


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e31])
def test_the_errors_are_those_of_numpy(device, value):
    h, y = masked_rows(40, 5, masked=False)
    h[7, 2] = value
    errors = []
    for values in (h, torch.tensor(h)):
        with pytest.raises(InputError) as error:
            Scores.of(values, y)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_images_one_column_soft_labels_and_tokens(device):
    h, y = masked_rows(96, 5, masked=False)
    images = torch.tensor(h).reshape(4, 4, 6, 5).movedim(-1, 1)
    found = TemperatureScaling().fit(Scores.of(images, y.reshape(4, 4, 6), axis=1))
    expected = TemperatureScaling().fit(Scores.of(h.reshape(4, 4, 6, 5), y.reshape(4, 4, 6), axis=-1))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    shares = np.random.default_rng(1).dirichlet(np.full(5, 0.3), 96)
    soft = TemperatureScaling().fit(torch.tensor(h), torch.tensor(shares))
    assert soft.temperature_ == pytest.approx(TemperatureScaling().fit(h, shares).temperature_, rel=1e-9)
    z, labels = h[:, 0], (np.random.default_rng(2).random(96) < 1 / (1 + np.exp(-h[:, 0] / 2))).astype(np.int64)
    one = TemperatureScaling().fit(torch.tensor(z), torch.from_numpy(2 * labels - 1))
    assert one.temperature_ == pytest.approx(TemperatureScaling().fit(z, labels).temperature_, rel=1e-9)
    ids, mask = y.reshape(4, 24), np.arange(24) < np.array([[9], [24], [14], [20]])
    texts = torch.tensor(h.reshape(4, 24, 5), dtype=torch.bfloat16)
    scores = tokens.token_scores(texts, input_ids=torch.tensor(ids), mask=torch.tensor(mask))
    assert scores.device.h.data_ptr() == texts.data_ptr()  # read where they are
    assert_alike(
        Sketch.of(scores, n_nodes=16, parts=PARTS),
        Sketch.of(tokens.token_scores(as_float64(texts), input_ids=ids, mask=mask), n_nodes=16, parts=PARTS),
    )


COMPILED = """
import sys, numpy as np, torch, attemper
from attemper.torch import rows
h, y = (np.load(f"{sys.argv[1]}/{name}.npy") for name in "hy")
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    t = torch.tensor(h, dtype=dtype)
    for method in ("ts", "ats", "bayes"):
        found, expected = (attemper.fit(x, y, method=method).temperature_ for x in (t.cuda(), t.double().numpy()))
        assert abs(found / expected - 1) < 1e-6, (dtype, method, found, expected)
assert rows._has_triton("cuda")
"""

if torch.cuda.is_available():

    def test_compiled_kernels_find_the_temperature_of_numpy(tmp_path):
        h, y = masked_rows(3000, 517)
        np.save(tmp_path / "h.npy", h)
        np.save(tmp_path / "y.npy", y)
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        command = [sys.executable, "-c", COMPILED, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
