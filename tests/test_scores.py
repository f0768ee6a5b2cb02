"""Scores are checked once; their chunks, sums and samples are what the arrays hold."""

from __future__ import annotations

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attemper import InputError, Scores
from attemper.data import arrays
from attemper.data import scores as scores_module

from data import draw, softmax

LIBRARIES = {
    "numpy": np.asarray,
    "torch": torch.tensor,
    "jax": jnp.asarray,
    "array_api_strict": array_api_strict.asarray,
}


@pytest.fixture
def small_chunks(monkeypatch):
    """Three rows of four classes at a time."""
    monkeypatch.setattr("attemper.data.arrays.CHUNK_ELEMENTS", 12)


def spoil(array, row, column, value):
    array = array.copy()
    array[row, column] = value
    return array


# Logits


@pytest.mark.parametrize("first_row", [0, 1000])
@pytest.mark.parametrize(
    "row, column, value",
    [
        (7, 2, np.nan),
        (0, 0, np.inf),
        (9, 3, 1e31),
        (8, slice(None), -np.inf),
    ],
)
def test_bad_logits_are_told_by_row(small_chunks, row, column, value, first_row):
    h, y = draw(10, 4)
    for labels in (y, None):
        with pytest.raises(InputError) as error:
            Scores.from_logits(spoil(h, row, column, value), labels, first_row=first_row)
        assert f"row {first_row + row}" in str(error.value)


def test_a_masked_class_may_not_be_the_label(small_chunks):
    h, y = draw(10, 4)
    fine = Scores.from_logits(spoil(h, 6, (y[6] + 1) % 4, -np.inf), y)
    assert fine.masked
    assert np.isfinite(fine.bound)
    with pytest.raises(InputError):
        Scores.from_logits(spoil(h, 6, y[6], -np.inf), y, first_row=100)
    assert Scores.from_logits(spoil(h, 6, y[6], -np.inf)).masked  # without labels there is nothing against it


def test_the_largest_logit_that_is_one():
    h, y = draw(10, 4)
    assert Scores.from_logits(spoil(h, 3, 0, 1e30), y).bound == 1e30
    top = h == h.max(axis=1, keepdims=True)
    assert Scores.from_logits(np.where(top, h, -np.inf), h.argmax(axis=1)).bound == np.abs(h[top]).max()


# Probabilities


@pytest.mark.parametrize(
    "row, value",
    [
        (2, [0, 0, 0]),
        (2, [0.5, 0.5, 0.5]),
        (3, [0.5, 0.7, -0.2]),
        (0, [1.2, -0.1, -0.1]),
        (1, [0.5, np.nan, 0.5]),
        (1, [np.inf, 0, 0]),
    ],
)
def test_bad_probabilities_are_told_by_row(row, value):
    p = spoil(np.full((4, 3), 1 / 3), row, slice(None), value)
    with pytest.raises(InputError) as error:
        Scores.from_probs(p, first_row=10)
    assert f"row {10 + row}" in str(error.value)


def test_probabilities_may_be_rounded():
    p = softmax(draw(50, 4)[0])
    for rounded in (p.astype(np.float16), p.astype(np.float32), p.round(3)):
        assert Scores.from_probs(rounded).input == "probs"
    assert Scores.from_probs(torch.tensor(p, dtype=torch.bfloat16)).n_classes == 4


def test_zeros_are_impossible_unless_a_floor_is_told():
    p = np.array([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]])
    scores = Scores.from_probs(p, [1, 0])
    assert scores.masked
    np.testing.assert_array_equal(scores.logits, np.log(p, where=p > 0, out=np.full_like(p, -np.inf)))
    with pytest.raises(InputError):
        Scores.from_probs(p, [1, 2])
    floored = Scores.from_probs(p, [0, 2], zeros_as=1e-4)
    assert not floored.masked
    assert floored.bound == pytest.approx(-np.log(1e-4))
    np.testing.assert_allclose(floored.logits, np.log(np.maximum(p, 1e-4)))


# What they hold


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # jax holds float32 alone
def test_logits_stay_in_their_library(library, dtype):
    h, y = draw(20, 4)
    values = LIBRARIES[library](h.astype(dtype))
    scores = Scores.from_logits(values, y)
    assert scores.logits is values
    assert (len(scores), scores.n_classes, scores.total_weight) == (20, 4, 20)
    assert scores.bound == pytest.approx(np.abs(h).max(), rel=1e-6)
    p = softmax(h)
    probs = Scores.from_probs(LIBRARIES[library](p.astype(dtype)), y)
    assert type(probs.logits) is type(values)
    np.testing.assert_allclose(np.asarray(probs.logits), np.log(p), rtol=1e-4)


@pytest.mark.parametrize(
    "half",
    [
        lambda h: h.astype(np.float16),
        lambda h: torch.tensor(h).half(),
        lambda h: torch.tensor(h).bfloat16(),
        lambda h: jnp.asarray(h, dtype=jnp.bfloat16),
        lambda h: np.asarray(jnp.asarray(h, dtype=jnp.bfloat16)),
    ],
)
def test_half_precision_is_summed_in_double(half):
    h, y = draw(500, 4)
    values = half(h)
    exact = np.asarray(arrays.to_numpy(values), dtype=np.float64)
    total = Scores.from_logits(values, y).total(lambda c: c.h.sum(axis=0), np.float64)
    np.testing.assert_allclose(total, exact.sum(axis=0), rtol=1e-12)
    assert total.dtype == np.float64


def whole(chunk):
    w = np.ones(len(chunk.y)) if chunk.w is None else chunk.w
    return np.array([len(chunk.y), chunk.y.sum(), w @ chunk.h.sum(axis=1), w.sum()])


@given(n=st.integers(1, 40), chunk=st.integers(1, 50), block=st.integers(1, 80), weighted=st.booleans())
def test_every_row_is_in_one_chunk(n, chunk, block, weighted):
    h, y = draw(n, 4)
    w = np.random.default_rng(0).uniform(size=n) if weighted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "CHUNK_ELEMENTS", chunk)
        patch.setattr("attemper.data.arrays.CHUNK_ELEMENTS", chunk)
        patch.setattr(scores_module, "BLOCK_ELEMENTS", block)
        found = Scores.from_logits(h, y, sample_weight=w).total(whole)
    weights = np.ones(n) if w is None else w
    np.testing.assert_allclose(found, [n, y.sum(), weights @ h.sum(axis=1), weights.sum()], rtol=1e-9)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch):
    h, y = draw(1000, 4)
    scores = Scores.from_logits(h, y)
    monkeypatch.setattr(scores_module, "BLOCK_ELEMENTS", 64)
    sums = []
    for threads in ("1", "3", "007", ""):
        monkeypatch.setenv("ATTEMPER_THREADS", threads)
        sums.append(scores.total(whole))
    assert all((s == sums[0]).all() for s in sums)


@given(n=st.integers(1, 60), rows=st.integers(1, 70))
def test_a_sample_is_spread_over_all_rows(n, rows):
    h, y = draw(n, 3)
    scores = Scores.from_logits(h, y, sample_weight=np.arange(1.0, n + 1))
    part = scores.sample(rows)
    assert 1 <= len(part) <= rows
    if rows >= n:
        assert part is scores
    taken = part.weights.astype(int) - 1  # the weights tell which rows these are
    assert len(set(np.diff(taken))) <= 1
    assert taken[0] == 0
    assert n - taken[-1] <= (taken[1] if len(taken) > 1 else n)  # they reach to the end
    np.testing.assert_array_equal(part.values, h[taken])
    np.testing.assert_array_equal(part.labels, y[taken])
    assert (part.bound, part.masked, part.input) == (scores.bound, scores.masked, scores.input)


# Tables


def test_a_sample_meets_every_class_where_labels_go_round():
    y = np.arange(100_000) % 40
    scores = Scores.from_logits(3 * np.eye(40)[y], y)
    assert len(np.unique(scores.sample(256).labels)) == 40
