"""Fits and sketches of tensors on a device are those of NumPy, and so are their errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    EdgeWarning,
    InputError,
    Scores,
    Sketch,
    TemperatureScaling,
    VectorScaling,
)
from attemper.data import arrays
from attemper.tokens import token_scores
from attemper.torch import rows, table

from data import draw, draw_masked

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")

PARTS = ("nll", "attended", "reference", "uniform", "similar")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def in_numpy(function, *data, **settings):
    """Do the same without a device."""
    kept, arrays.GPUS = arrays.GPUS, ()
    try:
        return function(*data, **settings)
    finally:
        arrays.GPUS = kept


def assert_alike(found, expected, tolerance=1e-12):
    assert found.n_samples == expected.n_samples
    for name in ("weight", "correct", "confidence"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=tolerance)
    for part in PARTS:
        a, b = (s.nll if part == "nll" else s.tables[part] for s in (found, expected))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), err_msg=part)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sketch_is_that_of_numpy(device, dtype, weighted):
    h, y = draw_masked(40, 23)
    t, w = torch.tensor(h).to(dtype), np.random.default_rng(0).random(40) if weighted else None
    settings = {"sample_weight": w, "n_nodes": 8}
    assert_alike(Sketch.of(t, torch.from_numpy(y), **settings), in_numpy(Sketch.of, t, y, **settings))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [-1e4, -5e4, -65504.0])
def test_finite_masks_are_masks(device, dtype, mask):
    h, y = draw_masked(60, 5)
    infinite = torch.tensor(h).to(dtype)
    finite = infinite.masked_fill(infinite == -torch.inf, mask)
    some = Scores.from_logits(finite, y)
    assert some.masked
    assert some.bound == Scores.from_logits(infinite, y).bound
    t = TemperatureScaling().fit(infinite, y).temperature_
    assert TemperatureScaling().fit(finite, y).temperature_ == t
    assert TemperatureScaling().fit(arrays.SelectedRows(finite, np.arange(60)), y).temperature_ == t


@pytest.mark.parametrize("thetas", [[0.0, 0.2, 0.9], [0.001], [0.5, 1.0], [1.0]])
def test_any_grid_of_thetas(device, thetas):
    h, y = draw_masked(30, 12, seed=3)
    settings = {"thetas": thetas, "n_nodes": 8}
    assert_alike(Sketch.of(torch.tensor(h), y, **settings), in_numpy(Sketch.of, h, y, **settings))


def test_many_rows_and_pairs_are_worked_on_in_parts(device, monkeypatch):
    h, y = draw_masked(50, 12)
    monkeypatch.setattr(table, "ROWS", 32)
    monkeypatch.setattr(table, "PAIRS", 40)
    assert_alike(Sketch.of(torch.tensor(h), y, n_nodes=8), in_numpy(Sketch.of, h, y, n_nodes=8))


@pytest.mark.parametrize(
    "method",
    [
        TemperatureScaling(),
        AttendedTemperatureScaling(),
        AttendedTemperatureScaling(loss="reference"),
        BayesianTemperatureScaling(),
        BayesianTemperatureScaling(labels="noisy"),
        VectorScaling(),  # knows no device: chunks are brought to NumPy
    ],
)
def test_fits_are_those_of_numpy(device, method):
    h, y = draw(60, 6)
    assert_the_same_fit(method, h, y)


def assert_the_same_fit(method, h, y):
    expected = in_numpy(method.fit, h, y).predict_proba(h)
    method.fit(torch.tensor(h, requires_grad=True), torch.from_numpy(y))
    assert method.fit_report_.converged
    np.testing.assert_allclose(method.predict_proba(h), expected, rtol=1e-7)


def test_single_precision_finds_the_same_temperature(device, monkeypatch):
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    h, y = draw(100, 50)
    t = torch.tensor(h).to(torch.bfloat16)
    expected = in_numpy(TemperatureScaling().fit, t, y).temperature_
    assert TemperatureScaling().fit(t, y).temperature_ == pytest.approx(expected, rel=1e-6)


def test_where_no_temperature_is_best_the_edge_is_taken(device):
    h, _ = draw(50, 4)
    for labels, edge in ((h.argmax(axis=1), 0.05), (h.argmin(axis=1), 20.0)):
        with pytest.warns(EdgeWarning):
            assert TemperatureScaling().fit(torch.tensor(h), labels).temperature_ == edge
    flat = np.ones_like(h)
    assert TemperatureScaling().fit(torch.tensor(flat), flat.argmin(axis=1)).temperature_ == 1.0


@pytest.mark.parametrize("place, value", [((7, 2), np.nan), ((7, 2), np.inf), ((7, 2), 1e31)])
def test_the_errors_are_those_of_numpy(device, place, value):
    h, y = draw(40, 5)
    h[place] = value
    with pytest.raises(InputError) as expected:
        in_numpy(Scores.from_logits, h, y)
    with pytest.raises(InputError) as found:
        Scores.from_logits(torch.tensor(h), y)
    assert str(found.value) == str(expected.value)
    assert "row 7, column 2" in str(found.value)


def test_a_masked_label_a_dead_row_and_a_label_outside_are_refused(device):
    h, y = draw(40, 5)
    for spoil in (
        lambda h: h.__setitem__((9, y[9]), -np.inf),
        lambda h: h.__setitem__(11, -np.inf),
        lambda h: h.__imul__(1e-40),
    ):
        bad = h.copy()
        spoil(bad)
        with pytest.raises(InputError):
            TemperatureScaling().fit(torch.tensor(bad), y)
    y[3] = 5
    with pytest.raises(InputError):
        TemperatureScaling().fit(torch.tensor(h), torch.from_numpy(y))


def test_tokens_are_read_where_they_lie(device):
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(4, 9, 11))
    ids = rng.integers(0, 11, size=(4, 9))
    mask = np.arange(9) < rng.integers(4, 10, size=4)[:, None]
    t = torch.tensor(h, dtype=torch.bfloat16)
    scores = token_scores(t, input_ids=torch.tensor(ids), mask=torch.tensor(mask))
    assert scores.device.h.data_ptr() == t.data_ptr()
    expected = in_numpy(token_scores, t, input_ids=ids, mask=mask)
    assert_alike(Sketch.of(scores, n_nodes=16), in_numpy(Sketch.of, expected, n_nodes=16))


def test_streams_stay_on_the_device(device):
    h, y = draw(120, 5)
    whole = TemperatureScaling().fit_sketch(in_numpy(Sketch.of, h, y, parts=[]))
    stream = TemperatureScaling()
    for part in (slice(0, 50), slice(50, 120)):
        stream.partial_fit(torch.tensor(h[part]), torch.tensor(y[part]))
    assert stream.temperature_ == pytest.approx(whole.temperature_, rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("offset", [1e5, -1e7])
def test_a_constant_in_all_logits_loses_no_pair(device, dtype, offset):
    h, y = draw(30, 12)
    t = torch.tensor(h.round(1) * 8 + offset).to(dtype)
    assert_alike(Sketch.of(t, y, n_nodes=8), in_numpy(Sketch.of, t, y, n_nodes=8), 1e-9)


def test_the_error_of_single_precision_is_no_smaller_than_it_is(monkeypatch):
    monkeypatch.setattr(arrays, "GPUS", ("cpu",))
    monkeypatch.setattr(rows, "_has_triton", lambda device: False)
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    for seed in range(10):
        h, y = draw(200, 10, seed=seed)
        t = torch.tensor(h, dtype=torch.float32)
        exact = in_numpy(TemperatureScaling().fit, t, y).temperature_
        found = TemperatureScaling().fit(t, y)
        assert abs(found.temperature_ / exact - 1) < found.fit_report_.log_t_error < 1e-6


@pytest.mark.parametrize("axis", [1, -1])
def test_images_are_moved_into_rows(device, axis):
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(3, 4, 5, 6))
    y = (np.moveaxis(h, axis, -1) / 1.6 + rng.gumbel(size=np.moveaxis(h, axis, -1).shape)).argmax(axis=-1)
    y[rng.random(y.shape) < 0.2] = 255
    settings = {"axis": axis, "ignore_index": 255}
    scores = Scores.from_logits(torch.tensor(h), torch.tensor(y), **settings)
    assert isinstance(scores.device, rows.DeviceRows)
    expected = in_numpy(Scores.from_logits, h, y, **settings)
    found = TemperatureScaling().fit(scores)
    assert found.temperature_ == pytest.approx(in_numpy(TemperatureScaling().fit, expected).temperature_, rel=1e-9)
    assert_alike(Sketch.of(scores, n_nodes=8), in_numpy(Sketch.of, expected, n_nodes=8))
