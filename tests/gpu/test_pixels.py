"""Pixels on a device, against NumPy: the kernels in Triton's interpreter, and rows that are moved in plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attemper import InputError, Scores, Sketch, TemperatureScaling
from attemper.torch import fused_pixels, rows
from attemper.torch import pixels as device_pixels
from attemper.torch.pixels import DevicePixels
from attemper.torch.rows import DeviceRows

IGNORE = 255
SETTINGS = {"axis": 1, "ignore_index": IGNORE}


def draw_images(n=3, k=5, shape=(7, 9), seed=0):
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, k, *shape))
    y = (h / 1.6 + rng.gumbel(size=h.shape)).argmax(axis=1)
    y[rng.random(y.shape) < 0.2] = IGNORE
    return h, y.astype(np.uint8)


H, Y = draw_images()
EXPECTED = Scores.from_logits(H, Y, **SETTINGS)


def on_device(h=H, y=Y, dtype=torch.float64, **more):
    scores = Scores.from_logits(torch.tensor(h, dtype=dtype), torch.tensor(y), **SETTINGS | more)
    assert isinstance(scores.device, DevicePixels)
    return scores


def test_sums_are_those_of_numpy(device):
    found = on_device()
    for beta in (1e-3, 0.7, 20.0):
        np.testing.assert_allclose(found.backend.nll(beta), EXPECTED.backend.nll(beta), rtol=1e-11)
    np.testing.assert_allclose(found.backend.limits(), EXPECTED.backend.limits(), rtol=1e-12)
    np.testing.assert_array_equal(found.backend.tops(), EXPECTED.backend.tops())
    betas = np.array([0.5, 2.0])
    np.testing.assert_allclose(found.backend.confidences(betas), EXPECTED.backend.confidences(betas), rtol=1e-12)
    np.testing.assert_allclose(found.slopes_by_image(0.6), EXPECTED.slopes_by_image(0.6), rtol=1e-10)


@pytest.mark.parametrize("parts", [[], ["attended", "uniform"]])
def test_a_sketch_is_that_of_numpy(device, parts):
    one, two = Sketch.of(EXPECTED, parts=parts), Sketch.of(on_device(), parts=parts)
    np.testing.assert_allclose(two.nll, one.nll, rtol=1e-13)
    assert (two.correct, two.n_samples) == (one.correct, one.n_samples)
    assert two.confidence == pytest.approx(one.confidence, rel=1e-13)
    for name, end in one.ends.items():
        np.testing.assert_allclose(two.ends[name], end, rtol=1e-9, atol=1e-9)
    for name, table in one.tables.items():
        np.testing.assert_allclose(two.tables[name], table, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_in_single_precision_they_are_close(device, monkeypatch, dtype):
    monkeypatch.setattr(rows, "FEW_ELEMENTS", 0)
    found = on_device(dtype=dtype)
    assert not found.backend.exact
    same = Scores.from_logits(torch.tensor(H, dtype=dtype).double().numpy(), Y, **SETTINGS)
    for beta in (0.61803398874, 20.0):  # the latter is too large for one shift
        expected = same.backend.nll(beta)
        np.testing.assert_allclose(found.backend.nll(beta), expected, rtol=2e-6, atol=1e-6 * expected[0])
    np.testing.assert_allclose(Sketch.of(found, parts=[]).nll, Sketch.of(same, parts=[]).nll, rtol=3e-7)


def test_fits_are_those_of_numpy(device):
    one, two = (TemperatureScaling(**SETTINGS).fit(h, y) for h, y in ((H, Y), (torch.tensor(H), torch.tensor(Y))))
    assert two.temperature_ == pytest.approx(one.temperature_, rel=1e-12)
    np.testing.assert_allclose(two.temperature_interval_, one.temperature_interval_, rtol=1e-9)
    assert "copied" not in two.fit_report_.message
    probs = two.predict_proba(torch.tensor(H))
    np.testing.assert_allclose(probs.numpy(), one.predict_proba(H), rtol=1e-12)


@pytest.mark.parametrize("view", ["channels last", "a part", "whole"])
def test_memory_is_read_as_it_lies(device, view):
    h = torch.tensor(H)
    if view == "channels last":
        h = h.contiguous(memory_format=torch.channels_last)
    if view == "a part":
        h = torch.cat([h, h], dim=1)[:, :5]  # images are further apart than they are large
    scores = Scores.from_logits(h, torch.tensor(Y), **SETTINGS)
    np.testing.assert_allclose(scores.backend.nll(0.7), EXPECTED.backend.nll(0.7), rtol=1e-11)


def test_labels_of_every_type_and_no_mask(device):
    y = np.where(Y == IGNORE, 0, Y)
    expected = Scores.from_logits(H, y, axis=1).backend.nll(0.7)
    for kind in (torch.uint8, torch.int16, torch.int32, torch.int64):
        scores = Scores.from_logits(torch.tensor(H), torch.tensor(y).to(kind), axis=1)
        np.testing.assert_allclose(scores.backend.nll(0.7), expected, rtol=1e-11)


def test_an_image_without_a_pixel_is_none(device):
    y = Y.copy()
    y[1] = IGNORE
    found, expected = on_device(y=y), Scores.from_logits(H, y, **SETTINGS)
    np.testing.assert_allclose(found.slopes_by_image(0.6), expected.slopes_by_image(0.6), rtol=1e-10)
    assert len(found.slopes_by_image(0.6)) == 2


def test_weights_and_drawn_pixels_too(device):
    w = np.random.default_rng(0).random(Y.shape)
    one = Scores.from_logits(H, Y, sample_weight=w, **SETTINGS)
    np.testing.assert_allclose(on_device(sample_weight=w).backend.nll(0.7), one.backend.nll(0.7), rtol=1e-11)
    one = Scores.from_logits(H, Y, max_pixels=7, **SETTINGS)
    np.testing.assert_allclose(on_device(max_pixels=7).backend.nll(0.7), one.backend.nll(0.7), rtol=1e-11)


def test_a_few_images_at_a_time(device, monkeypatch):
    monkeypatch.setattr(device_pixels, "SUMS", 1)
    monkeypatch.setattr(device_pixels, "ROWS", 20)
    monkeypatch.setattr(fused_pixels, "ONE", fused_pixels.Tile(32, 4))
    np.testing.assert_allclose(on_device().backend.nll(0.7), EXPECTED.backend.nll(0.7), rtol=1e-11)
    np.testing.assert_allclose(on_device().backend.limits(), EXPECTED.backend.limits(), rtol=1e-11)


def test_what_is_not_finite_is_left_to_numpy(device):
    h, y = H.copy(), np.where(Y == IGNORE, 0, Y)
    y[0, 0, 0], h[0, 4, 0, 0] = 1, -np.inf
    scores = Scores.from_logits(torch.tensor(h), torch.tensor(y), axis=1)
    assert scores.device is None
    assert scores.masked
    assert "copied" in TemperatureScaling(axis=1).fit(torch.tensor(h), torch.tensor(y)).fit_report_.message
    h[0, 4, 0, 0] = np.nan
    with pytest.raises(InputError):
        Scores.from_logits(torch.tensor(h), torch.tensor(y), axis=1)


def test_classes_that_are_last_are_rows(device):
    h = torch.tensor(np.moveaxis(H, 1, -1).copy())
    scores = Scores.from_logits(h, torch.tensor(Y), axis=-1, ignore_index=IGNORE)
    assert isinstance(scores.device, DeviceRows)
    np.testing.assert_allclose(scores.backend.nll(0.7), EXPECTED.backend.nll(0.7), rtol=1e-11)
    np.testing.assert_array_equal(scores.clusters, EXPECTED.clusters)
