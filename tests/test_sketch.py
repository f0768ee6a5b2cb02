import warnings
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attemper import ConvergenceWarning, InputError, Scores, Sketch, TemperatureScaling
from attemper.kernels import chebyshev
from attemper.kernels.attended import theta_path
from attemper.kernels.chebyshev import nodes
from attemper.sketch import ODDS, focused

from data import cases, draw
from oracles import (
    attended_loss,
    nll,
    noisy_log_likelihood,
    reference_loss,
    similar_log_likelihood,
    softmax,
)

ARRAYS = ("nll", "attended", "reference", "uniform", "similar")


def assert_same(a, b, rtol):
    for f in fields(a):
        if f.name in ("tables", "ends", "by_range"):
            continue
        x, y = getattr(a, f.name), getattr(b, f.name)
        scale = np.abs(np.asarray(x, dtype=float)).max()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * scale, err_msg=f.name)
    assert a.tables.keys() == b.tables.keys()
    for name, x in a.tables.items():
        np.testing.assert_allclose(x, b.tables[name], rtol=rtol, atol=rtol * np.abs(x).max(), err_msg=name)


def blocks(sketch):
    """Return all sums."""
    sums = {name: getattr(sketch, name) for name in ("weight", "correct", "confidence", "nll")}
    return sums | sketch.tables


def test_every_column_is_its_loop():
    h, y = draw(12, 4)
    w = np.linspace(0.5, 2, 12)
    sketch = Sketch.of(h, y, sample_weight=w, n_nodes=8, t_range=(0.3, 5), thetas=[0.003, 0.04, 0.5])
    for j, t in enumerate(np.exp(nodes(8, sketch.interval))):
        np.testing.assert_allclose(sketch.nll[j], nll(h, y, t, w), rtol=1e-12)
        for b, theta in enumerate(sketch.thetas):
            paper, reference = (theta_path(sketch.nll, sketch.tables[part])[j, b] for part in ("attended", "reference"))
            np.testing.assert_allclose(paper, attended_loss(h, y, t, theta, w), rtol=1e-10)
            np.testing.assert_allclose(reference, reference_loss(h, y, t, theta, w), rtol=1e-10)
        for k in (0, 17, -1):
            eps = ODDS[k] / (1 + ODDS[k])
            for table, oracle in (
                (sketch.tables["uniform"], noisy_log_likelihood),
                (sketch.tables["similar"], similar_log_likelihood),
            ):
                expected = oracle(h, y, t, eps, w) - w.sum() * np.log1p(-eps)
                np.testing.assert_allclose(table[j, k], expected, rtol=1e-10)
    confidence = w @ [max(softmax(row)) for row in h]
    np.testing.assert_allclose(sketch.confidence, confidence, rtol=1e-12)


@pytest.mark.parametrize("parts", [1, 7, pytest.param(1000, marks=pytest.mark.slow)])
def test_merging_random_parts_gives_the_whole(parts):
    h, y = draw(3000, 5)
    whole = Sketch.of(h, y)
    part = np.random.default_rng(parts).integers(0, parts, 3000)
    merged = None
    for p in np.random.default_rng(1).permutation(np.unique(part)):
        piece = Sketch.of(h[part == p], y[part == p])
        merged = piece if merged is None else merged + piece
    assert_same(whole, merged, 1e-12)


@pytest.mark.filterwarnings("ignore::attemper.errors.ProbabilitiesAsLogitsWarning")
@given(cases(), st.integers(0, 2**32 - 1))
@example((np.array([[0.5, 0.5]]), np.array([0])), 0)
def test_permutation_weights_and_constants(case, seed):
    h, y = case
    settings = {"n_nodes": 8, "t_range": (0.05, 20), "unit": 1.0}
    plain = Sketch.of(h, y, **settings)
    order = np.random.default_rng(seed).permutation(len(y))
    assert_same(plain, Sketch.of(h[order], y[order], **settings), 1e-12)
    twice = Sketch.of(np.repeat(h, 2, axis=0), np.repeat(y, 2), **settings)
    weighted = Sketch.of(h, y, sample_weight=np.full(len(y), 2.0), **settings)
    for name in ("weight", "correct", "confidence", *ARRAYS):
        np.testing.assert_allclose(blocks(weighted)[name], blocks(twice)[name], rtol=1e-12, atol=1e-12)
    # Powers of two, so that adding them to float32 values loses nothing.
    shifted = Sketch.of(h + 64.0, y, **settings)
    np.testing.assert_allclose(shifted.nll, plain.nll, rtol=1e-9, atol=1e-9)


def test_threads_do_not_change_a_bit(monkeypatch):
    h, y = draw(30_000, 40)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("ATTEMPER_THREADS", threads)
        found.append(Sketch.of(h, y, n_nodes=8, parts=["attended"]))
    assert (found[0].nll == found[1].nll).all()
    assert (found[0].tables["attended"] == found[1].tables["attended"]).all()


def test_save_and_load_give_the_same_bits(tmp_path):
    sketch = Sketch.of(*draw())
    sketch.save(tmp_path / "a.sketch.json")
    assert_same(sketch, Sketch.load(tmp_path / "a.sketch.json"), 0)
    again = Sketch.of(*draw())
    again.save(tmp_path / "b.sketch.json")
    assert (tmp_path / "a.sketch.json").read_bytes() == (tmp_path / "b.sketch.json").read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        {"n_nodes": 32},
        {"thetas": [0.01]},
        {"parts": ["uniform"]},
    ],
)
def test_sketches_that_do_not_fit_are_not_added(other):
    h, y = draw()
    with pytest.raises(InputError):
        Sketch.of(h, y) + Sketch.of(h, y, **other)
    with pytest.raises(InputError):
        Sketch.of(h, y) + Sketch.of(h[:, :4], y % 4)
    with pytest.raises(TypeError):
        Sketch.of(h, y) + 1


def test_sketches_of_other_ranges_add_where_both_are_known():
    h, y = draw(2000)
    total = Sketch.of(h[:900], y[:900], t_range=(0.05, 20)) + Sketch.of(h[900:], y[900:], t_range=(0.1, 40))
    assert total.t_range == (0.1, 20)
    whole = Sketch.of(h, y, t_range=(0.1, 20))
    np.testing.assert_allclose(total.nll, whole.nll, rtol=1e-9)
    for name, table in whole.tables.items():
        # those of noise converge more slowly; fits report it
        np.testing.assert_allclose(total.tables[name], table, atol=1e-5 * np.abs(table).max())


def parts_on_three_scales():
    h, y = draw(3000)
    scale = np.repeat([1.0, 1000.0, 0.03], 1000)
    return h * scale[:, None], y, [slice(0, 1000), slice(1000, 2000), slice(2000, 3000)]


def test_sketches_of_differently_scaled_parts_add_in_any_order(tmp_path):
    h, y, slices = parts_on_three_scales()
    a, b, c = (Sketch.of(h[s], y[s]) for s in slices)
    assert len({part.t_range for part in (a, b, c)}) == 3
    total = (a + b) + c
    for other in (a + (b + c), c + (a + b), (c + b) + a):
        assert_same(total, other, 1e-9)
    assert_same(total.only(["uniform"]), a.only(["uniform"]) + b.only(["uniform"]) + c.only(["uniform"]), 1e-9)
    total.save(tmp_path / "a.sketch.json")
    assert_same(total, Sketch.load(tmp_path / "a.sketch.json"), 1e-9)
    # the slow, obvious way: all rows over the range of the sum
    whole = Sketch.of(h, y, t_range=total.t_range, n_nodes=len(total.nll))
    np.testing.assert_allclose(total.nll, whole.nll, atol=3e-3 * total.weight)


def test_what_is_fitted_from_differently_scaled_parts_is_within_its_certificate():
    h, y, slices = parts_on_three_scales()
    for first, second in ((0, 1), (0, 2), (1, 2)):
        parts = [slices[first], slices[second]]
        total = Sketch.of(h[parts[0]], y[parts[0]]) + Sketch.of(h[parts[1]], y[parts[1]])
        rows = np.concatenate([np.arange(3000)[s] for s in parts])
        expected = TemperatureScaling().fit(h[rows], y[rows]).temperature_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate is wider than wanted
            found = TemperatureScaling().fit_sketch(total)
        assert found.temperature_ == pytest.approx(expected, rel=1e-3)
        assert abs(np.log(found.temperature_ / expected)) <= found.fit_report_.log_t_error


def least_nll(sketch):
    """Temperatures within 30 nats of the best."""
    u = np.linspace(*sketch.interval, 400)
    value = chebyshev.evaluate(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, u)[:, 0]
    near = np.flatnonzero(value < value.min() + 30)
    return float(np.exp(u[max(near[0] - 1, 0)])), float(np.exp(u[min(near[-1] + 1, 399)]))


@pytest.mark.parametrize("scale, n", [(4.0, 20_000), (1.0, 20_000), (4.0, 500)])
def test_a_focused_sketch_has_the_same_sums_at_fewer_temperatures(scale, n):
    h, y = draw(n, 4, scale)
    scores = Scores.from_logits(h, y)
    found = focused(scores, least_nll, parts=("uniform", "similar"))
    assert found.sketch.n_samples == n
    if n == 500:
        assert found.sketch is found.sample
        return
    assert found.sample.n_samples < n
    assert len(found.sketch.nll) < 64
    low, high = found.sketch.t_range
    assert found.sample.t_range[0] <= low < high <= found.sample.t_range[1]
    whole = Sketch.of(scores, t_range=(low, high), parts=("uniform", "similar"))
    u = np.linspace(*found.sketch.interval, 50)
    for a, b in zip(
        (whole.nll[:, None], *whole.tables.values()), (found.sketch.nll[:, None], *found.sketch.tables.values())
    ):
        ours, theirs = (chebyshev.evaluate(chebyshev.coefficients(t), found.sketch.interval, u) for t in (a, b))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_a_sample_that_misleads_is_not_trusted():
    h, y = draw(20_000, 4, 4.0)
    scores = Scores.from_logits(h, y)
    found = focused(scores, lambda sketch: (1.0, 1.5) if sketch.n_samples < 20_000 else least_nll(sketch), parts=())
    assert found.sketch.t_range == found.sample.t_range
    assert len(found.sketch.nll) == 64
    np.testing.assert_array_equal(found.sketch.nll, Sketch.of(scores, parts=()).nll)


def test_masked_classes_get_nothing_of_the_floor():
    h, y = draw(20, 3)
    masked = Sketch.of(np.column_stack([h, np.full(20, -np.inf)]), y)
    plain = Sketch.of(h, y)
    for name in ARRAYS:
        np.testing.assert_allclose(blocks(masked)[name], blocks(plain)[name], rtol=1e-12, atol=1e-12)


def test_sketches_of_other_thetas_are_not_added_though_as_many():
    h, y = draw()
    a, b = (Sketch.of(h, y, thetas=grid) for grid in ([0.01, 0.02], [0.01, 0.03]))
    with pytest.raises(InputError):
        a + b
