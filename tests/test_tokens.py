"""Tokens and options: the rows that count, and no others, whatever array they lie in."""

from __future__ import annotations

import warnings

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    LabelledScores,
    Scores,
    Sketch,
    TemperatureScaling,
)
from attemper.calibrators import METHODS
from attemper.data.arrays import SelectedRows, to_numpy
from attemper.errors import InputError
from attemper.tokens import option_scores, token_scores

B, L, V = 6, 9, 11


def draw(b=B, length=L, v=V, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    logits = (3 * rng.normal(size=(b, length, v))).astype(dtype)
    noise = rng.gumbel(size=logits.shape)
    labels = (logits + 2 * noise).argmax(axis=2)
    return logits, labels


def slow(logits, *, labels=None, input_ids=None, mask=None, ignore_index=-100):
    """Say position by position which count, and with which label."""
    b, length, _ = logits.shape
    rows, y = [], []
    for i in range(b):
        for t in range(length):
            if labels is not None:
                label, counts = labels[i, t], mask is None or mask[i, t]
            elif t + 1 == length:
                continue
            else:
                label, counts = input_ids[i, t + 1], mask is None or (mask[i, t] and mask[i, t + 1])
            if counts and (ignore_index is None or label != ignore_index):
                rows.append(logits[i, t])
                y.append(label)
    return np.array(rows), np.array(y)


@st.composite
def batches(draw):
    b, length, v = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.integers(0, v, (b, length))
    labels[rng.random((b, length)) < draw(st.sampled_from([0, 0.3]))] = -100
    mask = rng.random((b, length)) < draw(st.sampled_from([0.3, 0.8, 1]))
    return rng.normal(size=(b, length, v)), labels, mask if draw(st.booleans()) else None


@given(batches(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_rows_that_count_are_those_of_a_slow_loop(batch, shifted):
    logits, labels, mask = batch
    told = {"input_ids" if shifted else "labels": labels, "mask": mask}
    rows, y = slow(logits, **told)
    if not len(y):
        with pytest.raises(InputError):
            token_scores(logits, **told)
        return
    scores = token_scores(logits, **told)
    np.testing.assert_array_equal(to_numpy(scores.values), rows)
    np.testing.assert_array_equal(scores.logits, rows)
    np.testing.assert_array_equal(scores.labels, y)


ARRAYS = {
    "numpy": lambda a: a,
    "torch": torch.tensor,
    "torch-half": lambda a: torch.tensor(a).half(),
    "torch-bfloat16": lambda a: torch.tensor(a).bfloat16(),
    "torch-grad": lambda a: torch.tensor(a, requires_grad=True),
    "jax": jnp.asarray,
    "array-api": array_api_strict.asarray,
}


def masked_batch(make):
    logits, labels = draw()
    mask = np.random.default_rng(1).random((B, L)) < 0.6
    labels = np.where(np.random.default_rng(2).random((B, L)) < 0.2, -100, labels)
    counts = mask & (labels != -100)
    array = make(logits)
    plain = Scores.from_logits(to_numpy(array)[counts], labels[counts])
    if isinstance(array, torch.Tensor):
        labels, mask = torch.tensor(labels), torch.tensor(mask.astype(int))
    return token_scores(array, labels, mask=mask), plain


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_library_gives_the_fit_of_plain_rows_to_the_bit(kind):
    scores, plain = masked_batch(ARRAYS[kind])
    assert isinstance(scores.values, SelectedRows)
    assert (scores.bound, scores.masked, len(scores)) == (plain.bound, plain.masked, len(plain))
    for calibrator in (TemperatureScaling, AttendedTemperatureScaling, BayesianTemperatureScaling):
        one, other = calibrator().fit(scores), calibrator().fit(plain)
        assert one.temperature_ == other.temperature_
        assert one.fit_report_ == other.fit_report_
    one, other = Sketch.of(scores), Sketch.of(plain)
    assert one.to_dict() == other.to_dict()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_selected_rows(method):
    scores, plain = masked_batch(ARRAYS["numpy"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = METHODS[method]().fit(scores), METHODS[method]().fit(plain)
    np.testing.assert_array_equal(one.predict_proba(scores), other.predict_proba(plain))


def test_two_dimensions_and_weights():
    logits, labels = draw(1)
    logits, labels = logits[0], labels[0].copy()
    weights = np.linspace(1, 2, L)
    labels[[0, 4]] = -1
    scores = token_scores(logits, labels, ignore_index=-1, sample_weight=weights)
    keep = labels != -1
    np.testing.assert_array_equal(to_numpy(scores.values), logits[keep])
    np.testing.assert_array_equal(scores.weights, weights[keep])
    logits, labels = draw()
    weights = np.arange(B * L, dtype=float).reshape(B, L)
    scores = token_scores(logits, input_ids=labels, sample_weight=torch.tensor(weights))
    np.testing.assert_array_equal(scores.weights, weights[:, :-1].reshape(-1))


LABELS = draw()[1]


OPTIONS = [7, 2, 10]


@pytest.mark.parametrize("kind", ARRAYS)
def test_options_are_columns(kind):
    logits = ARRAYS[kind](draw()[0])
    plain, labels = to_numpy(logits), np.array([0, 1, 2, 2, 1, 0])
    scores = option_scores(logits, options=OPTIONS, labels=labels)
    np.testing.assert_array_equal(to_numpy(scores.values), plain[:, -1][:, OPTIONS])
    positions = np.arange(B)
    scores = option_scores(logits, options=OPTIONS, labels=labels, positions=positions)
    np.testing.assert_array_equal(to_numpy(scores.values), plain[np.arange(B), positions][:, OPTIONS])
    scores = option_scores(logits[:, 3, :], options=OPTIONS, labels=labels)
    np.testing.assert_array_equal(to_numpy(scores.values), plain[:, 3][:, OPTIONS])
    np.testing.assert_array_equal(scores.labels, labels)


def test_options_at_the_last_real_position():
    logits, _ = draw(3, 4)
    scores = option_scores(logits, options=OPTIONS, mask=[[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]])
    np.testing.assert_array_equal(scores.values, logits[[0, 1, 2], [1, 3, 2]][:, OPTIONS])
    assert not isinstance(scores, LabelledScores)
