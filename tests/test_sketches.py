"""Sketches: parts add up to the whole; one grid; a certificate that holds; local windows; ts from both roads."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.calibrators.temperature import TemperatureScaling
from attemper.data.scores import Scores
from attemper.errors import EdgeWarning, InputError
from attemper.kernels import chebyshev
from attemper.sketches import NODES, T_RANGE, THETAS, Sketch, local_sketch
from conftest import draw

import oracles


def sketch_of(data, rows=slice(None), **options):
    return Sketch.of(Scores.of(data.h[rows], data.y[rows], sample_weight=1 + data.w[rows]), **options)


def assert_same(a, b, rtol=1e-11):
    for name in ("n_samples", "weight", "correct", "confidence"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=rtol)
    for x, y in [(a.nll, b.nll), *((a.tables[name], b.tables[name]) for name in a.tables)]:
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(x).max())


@given(st.lists(st.integers(1, 59), max_size=3, unique=True), st.randoms())
def test_parts_add_up_to_the_whole_in_any_order(cuts, random):
    data = draw(60)
    edges = [0, *sorted(cuts), 60]
    options = {"n_nodes": 16, "parts": ("attended", "reference", "uniform")}
    parts = [sketch_of(data, slice(a, b), **options) for a, b in itertools.pairwise(edges)]
    random.shuffle(parts)
    assert_same(sum(parts), sketch_of(data, **options))


def test_saved_sketches_have_one_grid_and_the_same_bits(tmp_path):
    sketch = sketch_of(draw(100))
    assert sketch.t_range == T_RANGE == (0.01, 100.0)
    assert len(sketch.nll) == NODES == 128
    assert set(sketch.tables) == {"attended", "uniform"}
    sketch.save(tmp_path / "s.json")
    again = Sketch.load(tmp_path / "s.json")
    np.testing.assert_array_equal(again.nll, sketch.nll)
    assert (again + sketch).n_samples == 200


def test_names_of_classes_are_those_of_the_part_that_has_them():
    data = draw(20)
    named, bare = (Sketch.of(Scores.of(data.h, data.y, classes=names)) for names in (list("abcde"), None))
    assert (named + bare).classes == (bare + named).classes == tuple("abcde")


@pytest.mark.parametrize("options", [{"t_range": (0.1, 10)}, {"thetas": THETAS[:3]}, {"parts": ()}])
def test_unlike_sketches_do_not_add(options):
    data = draw(20)
    with pytest.raises(InputError) as error:
        sketch_of(data) + sketch_of(data, **options)
    assert error.value.param == next(iter(options))


@pytest.mark.parametrize("masks", [0.0, 0.3])
def test_log_likelihood_and_spread_of_t_are_those_of_the_rows(masks):
    data = draw(60, 4, masks=masks)
    sketch = Sketch.of(Scores.of(data.h, data.y))
    rows = [[v for v in row if np.isfinite(v)] for row in data.h]
    place = [int(np.isfinite(row[:y]).sum()) for row, y in zip(data.h, data.y)]
    for t in (0.3, 1.0, 7.0):
        pairs = list(zip(rows, place))
        assert sketch.mean_nll(t) * 60 == pytest.approx(sum(oracles.nll([r], [y], t) for r, y in pairs), rel=1e-9)
        noisy = sum(oracles.noisy_log_likelihood([r], [y], t, 0.2) for r, y in pairs)
        assert sketch.mean_nll(t, 0.2) * 60 == pytest.approx(-noisy, rel=1e-7)
        p = [np.array(oracles.softmax(row, t)) for row in rows]
        information = sum((q * (np.array(r) / t) ** 2).sum() - (q @ np.array(r) / t) ** 2 for q, r in zip(p, rows))
        assert sketch.log_t_std(t) == pytest.approx(information**-0.5, rel=1e-6)
    w = 1 + data.w
    weighted = Sketch.of(Scores.of(data.h, data.y, sample_weight=w))
    noisy = sum(v * oracles.noisy_log_likelihood([r], [y], 2.0, 0.2) for r, y, v in zip(rows, place, w))
    assert weighted.mean_nll(2.0, 0.2) * w.sum() == pytest.approx(-noisy, rel=1e-7)


def test_certificate_holds_for_random_labels():
    tried = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        k = int(rng.choice([2, 10, 200]))
        h, y = rng.choice([0.3, 3.0, 10.0]) * rng.normal(size=(50, k)), rng.integers(0, k, 50)
        sketch = Sketch.of(Scores.of(h, y), parts=())
        found = chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval)
        if found.edge[0]:
            continue
        tried += 1
        with np.errstate(all="raise", under="ignore"):
            exact = TemperatureScaling().fit(h, y)
        assert abs(math.log(exact.temperature_) - found.at[0]) <= found.error[0] + exact.report_.error
    assert tried > 30


def test_local_sketch_is_the_whole_one_where_it_matters():
    data = draw(20_000, 5)
    scores = Scores.of(data.h, data.y)
    sketch, _ = local_sketch(scores, lambda s: (1.5, 2.6) if len(s.nll) == 40 else (1.6, 2.4), parts=("uniform",))
    assert len(sketch.nll) < 30
    whole = Sketch.of(scores)
    for t in (1.7, 2.0, 2.3):
        assert sketch.mean_nll(t, 0.1) == pytest.approx(whole.mean_nll(t, 0.1), rel=1e-9)
    misled, _ = local_sketch(scores, lambda s: (3.0, 4.0) if len(s.nll) == 40 else (1.6, 2.4), parts=())
    assert misled.t_range == (0.05, 20.0)  # what matters of all samples is not inside of what matters of some


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperature_of_rows_sketch_and_mpmath(dtype):
    data = draw(80, 4)
    h = data.h.astype(dtype)
    exact = float(oracles.exact_temperature(h.astype(float), data.y, 30))
    rows = TemperatureScaling().fit(h, data.y)
    sketch = TemperatureScaling().fit_sketch(Sketch.of(Scores.of(h, data.y)))
    for fitted in (rows, sketch):
        assert abs(math.log(fitted.temperature_ / exact)) <= fitted.report_.error + 1e-15
        assert fitted.temperature_interval_[0] < exact < fitted.temperature_interval_[1]


def test_no_finite_temperature_and_ranges():
    data = draw(50)
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling().fit(data.h, data.h.argmax(axis=1)).report_.edge == "low"
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling().fit(data.h, data.h.argmin(axis=1)).report_.edge == "high"
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling(t_range=(0.5, 1.2)).fit(data.h, data.y).temperature_ == 1.2
    assert TemperatureScaling().fit(np.ones((4, 3)), [0, 1, 2, 0]).temperature_ == 1


def test_weights_are_repeats_and_all_sums_add_up():
    data, parts = draw(300, 4, masks=0.2), ("attended", "reference", "uniform")
    rows = np.repeat(np.arange(300), data.w.astype(int))
    weighted = Sketch.of(Scores.of(data.h, data.y, sample_weight=data.w), parts=parts)
    repeated = Sketch.of(Scores.of(data.h[rows], data.y[rows]), parts=parts)
    half = [Sketch.of(Scores.of(data.h[r], data.y[r]), parts=parts) for r in np.array_split(rows, 2)]
    half = [dataclasses.replace(one, rounding=1e-3) for one in half]
    for whole in (weighted, sum(half)):
        for name in ("counts", "correct", "confidence", "guessed", "nll", "chance"):
            np.testing.assert_allclose(getattr(whole, name), getattr(repeated, name), rtol=1e-9, err_msg=name)
        for name in parts:
            np.testing.assert_allclose(whole.tables[name], repeated.tables[name], rtol=1e-8, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(whole.log_likelihood(0.2), repeated.log_likelihood(0.2), rtol=1e-9)
    assert sum(half).rounding == 2e-3
    assert weighted.n_samples == (data.w > 0).sum()


def test_soft_labels_are_samples_once_and_those_of_weight_zero_not_at_all():
    data = draw(100, 3)
    soft = 0.7 * np.eye(3)[data.y] + 0.1
    assert Sketch.of(Scores.of(data.h, soft)).n_samples == 100
    assert Sketch.of(Scores.of(data.h, soft, sample_weight=data.w)).n_samples == (data.w > 0).sum()


def test_the_range_of_a_sketch_may_be_asked_for_to_its_ends():
    data = draw(600)
    sketch = Sketch.of(Scores.of(data.h, data.y), t_range=(0.1, 10))
    free, whole = TemperatureScaling().fit_sketch(sketch), TemperatureScaling(t_range=(0.1, 10)).fit_sketch(sketch)
    assert whole.temperature_ == free.temperature_
    for t_range, t in (((0.2, 1.2), 1.2), ((5.0, 10.0), 5.0)):
        with pytest.warns(EdgeWarning):
            assert TemperatureScaling(t_range=t_range).fit_sketch(sketch).temperature_ == pytest.approx(t)
    for t_range in ((0.09, 10), (0.1, 11)):
        with pytest.raises(InputError):
            TemperatureScaling(t_range=t_range).fit_sketch(sketch)


def test_a_sketch_reports_what_rows_do():
    data = draw(900, masks=0.2)
    rows = TemperatureScaling().fit(data.h, data.y, data.w)
    made = TemperatureScaling().fit_sketch(Sketch.of(Scores.of(data.h, data.y, sample_weight=data.w)))
    assert made.temperature_interval_ == pytest.approx(rows.temperature_interval_, rel=1e-6)
    assert made.report_.nll == pytest.approx(rows.report_.nll, rel=1e-8)
    assert made.report_.n_samples == rows.report_.n_samples
    np.testing.assert_allclose(made.priors_, np.bincount(data.y, data.w) / data.w.sum())
