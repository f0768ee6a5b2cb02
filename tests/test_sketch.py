import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import AttemperError, FileError, InputError, Scores, Sketch
from attemper.kernels.attended import theta_path
from attemper.kernels.chebyshev import nodes
from attemper.sketch import ODDS

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
        x, y = getattr(a, f.name), getattr(b, f.name)
        scale = np.abs(np.asarray(x, dtype=float)).max()
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * scale, err_msg=f.name)


def test_every_column_is_its_loop():
    h, y = draw(12, 4)
    w = np.linspace(0.5, 2, 12)
    sketch = Sketch.of(h, y, sample_weight=w, n_nodes=8, t_range=(0.3, 5), thetas=[0.003, 0.04, 0.5])
    for j, t in enumerate(np.exp(nodes(8, sketch.interval))):
        np.testing.assert_allclose(sketch.nll[j], nll(h, y, t, w), rtol=1e-12)
        for b, theta in enumerate(sketch.thetas):
            paper, reference = (theta_path(sketch.nll, part)[j, b] for part in (sketch.attended, sketch.reference))
            np.testing.assert_allclose(paper, attended_loss(h, y, t, theta, w), rtol=1e-10)
            np.testing.assert_allclose(reference, reference_loss(h, y, t, theta, w), rtol=1e-10)
        for k in (0, 17, -1):
            eps = ODDS[k] / (1 + ODDS[k])
            for table, oracle in (
                (sketch.uniform, noisy_log_likelihood),
                (sketch.similar, similar_log_likelihood),
            ):
                expected = oracle(h, y, t, eps, w) - w.sum() * np.log1p(-eps)
                np.testing.assert_allclose(table[j, k], expected, rtol=1e-10)
    confidence = w @ [max(softmax(row)) for row in h]
    np.testing.assert_allclose(sketch.confidence, confidence, rtol=1e-12)


def test_masked_classes_get_nothing_of_the_floor():
    h, y = draw(20, 3)
    masked = Sketch.of(np.column_stack([h, np.full(20, -np.inf)]), y)
    plain = Sketch.of(h, y)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(masked, name), getattr(plain, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 7, 1000])
def test_merging_random_parts_gives_the_whole(parts):
    h, y = draw(3000, 5)
    whole = Sketch.of(h, y)
    part = np.random.default_rng(parts).integers(0, parts, 3000)
    merged = None
    for p in np.random.default_rng(1).permutation(np.unique(part)):
        piece = Sketch.of(h[part == p], y[part == p])
        merged = piece if merged is None else merged + piece
    assert_same(whole, merged, 1e-12)


@given(cases(), st.integers(0, 2**32 - 1))
def test_permutation_weights_and_constants(case, seed):
    h, y = case
    plain = Sketch.of(h, y, n_nodes=8)
    order = np.random.default_rng(seed).permutation(len(y))
    assert_same(plain, Sketch.of(h[order], y[order], n_nodes=8), 1e-12)
    twice = Sketch.of(np.repeat(h, 2, axis=0), np.repeat(y, 2), n_nodes=8)
    weighted = Sketch.of(h, y, sample_weight=np.full(len(y), 2.0), n_nodes=8)
    for name in ("weight", "correct", "confidence", *ARRAYS):
        np.testing.assert_allclose(getattr(weighted, name), getattr(twice, name), rtol=1e-12, atol=1e-12)
    # Powers of two, so that adding them to float32 values loses nothing.
    shifted = Sketch.of(h + 64.0, y, n_nodes=8)
    np.testing.assert_allclose(shifted.nll, plain.nll, rtol=1e-9, atol=1e-9)


def test_weight_zero_is_absence():
    h, y = draw(20, 3)
    w = np.r_[np.ones(15), np.zeros(5)]
    assert_same(
        Sketch.of(h[:15], y[:15]).__class__(**{**vars(Sketch.of(h[:15], y[:15])), "n_samples": 20}),
        Sketch.of(h, y, sample_weight=w),
        1e-12,
    )


def test_threads_do_not_change_a_bit(monkeypatch):
    h, y = draw(30_000, 40)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("ATTEMPER_THREADS", threads)
        found.append(Sketch.of(h, y, n_nodes=8, parts=["attended"]))
    assert (found[0].nll == found[1].nll).all()
    assert (found[0].attended == found[1].attended).all()


def test_save_and_load_give_the_same_bits(tmp_path):
    sketch = Sketch.of(*draw())
    sketch.save(tmp_path / "a.sketch.json")
    assert_same(sketch, Sketch.load(tmp_path / "a.sketch.json"), 0)
    again = Sketch.of(*draw())
    again.save(tmp_path / "b.sketch.json")
    assert (tmp_path / "a.sketch.json").read_bytes() == (tmp_path / "b.sketch.json").read_bytes()


@pytest.mark.parametrize(
    "other, why",
    [
        ({"n_nodes": 32}, "64 and 32 nodes"),
        ({"t_range": (0.1, 20)}, "temperature ranges"),
        ({"thetas": [0.01]}, "θ grids"),
        ({"parts": ["uniform"]}, "'attended' part"),
    ],
)
def test_sketches_that_do_not_fit_are_not_added(other, why):
    h, y = draw()
    with pytest.raises(InputError, match=why):
        Sketch.of(h, y) + Sketch.of(h, y, **other)
    with pytest.raises(InputError, match="5 and 4 classes"):
        Sketch.of(h, y) + Sketch.of(h[:, :4], y % 4)
    with pytest.raises(TypeError):
        Sketch.of(h, y) + 1


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"n_nodes": 4}, "between 8 and"),
        ({"t_range": (2, 1)}, "low < high"),
        ({"t_range": 3}, "two temperatures"),
        ({"thetas": [0.2, 0.1]}, "ascend"),
        ({"thetas": [0.2, 1.1]}, "between 0 and 1"),
        ({"thetas": ["x"]}, "no number"),
        ({"parts": ["everything"]}, "unknown"),
    ],
)
def test_settings_are_checked(settings, why):
    with pytest.raises(InputError, match=why):
        Sketch.of(*draw(), **settings)


def test_labels_are_needed():
    with pytest.raises(InputError, match="labels"):
        Sketch.of(Scores.from_logits([[1.0, 2.0]]))


DAMAGE = [
    lambda d: d.update(schema=99),
    lambda d: d.update(schema="1"),
    lambda d: d.update(nll=[1.0] * 7),
    lambda d: d.update(nll=[[1.0]] * 64),
    lambda d: d.update(nll="x"),
    lambda d: d.update(nll=[True] * 64),
    lambda d: d.update(uniform=[[1.0]] * 64),
    lambda d: d.update(weight=-1),
    lambda d: d.update(correct=1e9),
    lambda d: d.update(n_samples=0),
    lambda d: d.update(n_samples=10**400),
    lambda d: d.update(t_range=[5, 1]),
    lambda d: d.update(thetas=[0.5, 0.1]),
    lambda d: d.pop("nll"),
    lambda d: d.update(attemper="calibrator"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_told(tmp_path, damage):
    path = tmp_path / "a.sketch.json"
    Sketch.of(*draw()).save(path)
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"a\.sketch\.json"):
        Sketch.load(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_clear_error(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "x.json"
    path.write_bytes(junk)
    with pytest.raises(AttemperError):
        Sketch.load(path)
