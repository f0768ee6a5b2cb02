"""Logits in other units: T is multiplied, probabilities stay. From arrays, files, sketches and tensors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    Scores,
    Sketch,
    TemperatureScaling,
)
from attemper.data import arrays
from attemper.data.scale import NORMAL, LogitScale, logit_scale, nearest_unit
from attemper.sharded import fit_sharded, merge_sketches

from data import draw

SCALES = [1e-3, 1e3, 1e6]
RECIPES = [
    TemperatureScaling(),
    AttendedTemperatureScaling(),
    AttendedTemperatureScaling(loss="reference"),
    BayesianTemperatureScaling(),
    BayesianTemperatureScaling(labels="noisy"),
]
recipes = pytest.mark.parametrize("recipe", RECIPES, ids=str)
scales = pytest.mark.parametrize("scale", SCALES)


def clone(recipe):
    return type(recipe)(**recipe.get_params())


def assert_scaled(found, expected, h, scale, rtol=1e-7):
    """Check that only the unit differs."""
    assert found.temperature_ == pytest.approx(scale * expected.temperature_, rel=rtol)
    np.testing.assert_allclose(
        found.temperature_interval_, scale * np.array(expected.temperature_interval_), rtol=max(rtol, 1e-5)
    )
    np.testing.assert_allclose(found.predict_proba(scale * h), expected.predict_proba(h), atol=rtol)
    assert found.fit_report_.nll == pytest.approx(expected.fit_report_.nll, rel=rtol)
    assert found.fit_report_.converged == expected.fit_report_.converged
    assert found.fit_report_.edge == expected.fit_report_.edge


@recipes
@scales
@pytest.mark.parametrize("n", [100, 2200])
def test_arrays(recipe, scale, n):
    h, y = draw(n, 5)
    assert_scaled(clone(recipe).fit(scale * h, y), clone(recipe).fit(h, y), h, scale)


@recipes
@scales
def test_sketches_of_parts(recipe, scale):
    h, y = draw(1200, 5)
    slices = [slice(0, 200), slice(200, 700), slice(700, 1200)]
    found = {}
    for factor in (1.0, scale):
        parts = [Sketch.of(factor * h[s], y[s], parts=recipe.sketch_parts()) for s in slices]
        assert {part.unit for part in parts} == {factor}
        total = merge_sketches(parts)
        assert not total.by_range
        found[factor] = clone(recipe).fit_sketch(total)
    assert_scaled(found[scale], found[1.0], h, scale)


@recipes
@scales
def test_shards_and_streams(recipe, scale):
    h, y = draw(1200, 5)
    found = {}
    for factor in (1.0, scale):
        halves = [(factor * h[:500], y[:500]), (factor * h[500:], y[500:])]
        stream = clone(recipe)
        for part in halves:
            stream.partial_fit(*part)
        found[factor] = fit_sharded(clone(recipe), halves), stream
    for scaled, expected in zip(found[scale], found[1.0]):
        assert_scaled(scaled, expected, h, scale)


@recipes
@scales
def test_tensors_on_a_device(recipe, scale, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arrays, "GPUS", ("cpu",))  # as if they lay on a GPU
    h, y = draw(1200, 5)
    expected = clone(recipe).fit(h, y)
    tensor = torch.from_numpy(scale * h)
    assert Scores.from_logits(tensor, y).device is not None
    found = clone(recipe).fit(tensor, torch.from_numpy(y))
    assert found.temperature_ == pytest.approx(scale * expected.temperature_, rel=1e-7)
    sketch = Sketch.of(tensor, torch.from_numpy(y), parts=recipe.sketch_parts())
    assert sketch.unit == scale
    expected = clone(recipe).fit_sketch(Sketch.of(h, y, parts=recipe.sketch_parts()))
    assert clone(recipe).fit_sketch(sketch).temperature_ == pytest.approx(scale * expected.temperature_, rel=1e-7)


def test_parts_on_different_scales_are_read_over_one_range():
    h, y = draw(2000, 4)
    h[1000:] *= 1000
    expected = TemperatureScaling().fit(h, y)
    found = fit_sharded(TemperatureScaling(), [(h[:1000], y[:1000]), (h[1000:], y[1000:])])
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    assert found.fit_report_.converged
    assert not found.sketch_.by_range


@given(st.floats(-24, 24), st.integers(-6, 6))
def test_a_factor_of_a_thousand_multiplies_the_scale(decades, k):
    a, b = LogitScale.of(10.0**decades), LogitScale.of(10.0 ** (decades + 3 * k))
    near = abs((decades + 1) % 3 - np.log10(12.5) - 1) > 1e-6  # not on a boundary
    if (
        near
        and -26 < decades + 3 * k < 26
        and min(abs((decades - np.log10(e)) % 3) for e in (0.1, 0.25, 5, 31.6)) > 1e-6
    ):
        assert b.unit == pytest.approx(a.unit * 1000.0**k, rel=1e-9)
        np.testing.assert_allclose(b.t_range, np.array(a.t_range) * 1000.0**k, rtol=1e-9)
    low, high = a.t_range
    assert 2.4 * low < 10.0**decades < high / 2.4
    assert nearest_unit(np.log(a.unit)) == pytest.approx(a.unit, rel=1e-12)


def slow_scale(h, y):
    """T at which the mean confidence is the accuracy, by bisection."""
    n = len(y)
    accuracy = ((h.argmax(axis=1) == y).sum() + 1) / (n + 2)
    chance = 1 / h.shape[1]
    target = chance + np.clip((accuracy - chance) / (1 - chance), 0.2, 0.95) * (1 - chance)
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        d = (h - h.max(axis=1, keepdims=True)) / 10.0**middle
        low, high = (middle, high) if (1 / np.exp(d).sum(axis=1)).mean() > target else (low, middle)
    return 10.0**low


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 0.02, 0.07, 1.0, 4.0, 15.0, 1e3, 1e9])
def test_the_scale_is_where_confidence_is_accuracy(scale):
    h, y = draw(400, 6)
    expected = LogitScale.of(slow_scale(scale * h, y))
    assert logit_scale(Scores.from_logits(scale * h, y)) == expected
    assert Sketch.of(scale * h, y).t_range == expected.t_range


@pytest.mark.parametrize("n", [1, 3, 20, 1000])
def test_usual_logits_have_the_usual_range(n):
    for seed in range(20):
        assert logit_scale(Scores.from_logits(*draw(n, 5, seed=seed))) == NORMAL
    h = np.zeros((n, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert logit_scale(Scores.from_logits(h, np.zeros(n, dtype=int))) == NORMAL
