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


def spoilt(row, column, value):
    logits, _ = draw()
    logits[row][column] = value
    return logits


def wrong(label):
    labels = draw()[1]
    labels[2, 4] = label
    return labels


LABELS = draw()[1]


@pytest.mark.parametrize(
    "told, message",
    [
        ({"labels": None}, "got neither"),
        ({"input_ids": LABELS}, "got both"),
        ({"mask": np.ones((B, L - 1))}, r"mask: expected shape \(6, 9\).*got \(6, 8\)"),
        ({"mask": np.full((B, L), 2)}, r"mask: sequence 0, position 0 \(row 0\) is 2; expected 1"),
        ({"mask": np.zeros((B, L))}, "labels: none of the 54 positions counts"),
        ({"labels": LABELS[0]}, r"labels: expected shape \(6, 9\).*got \(9,\)"),
        ({"labels": LABELS + 0.5}, "not whole"),
        ({"labels": wrong(128300)}, r"labels: sequence 2, position 4 \(row 22\) has label 128300, but there are 11 "),
        ({"labels": wrong(-1)}, "leave such positions out use ignore_index=-1"),
        ({"ignore_index": None, "labels": np.where(LABELS == 3, -100, LABELS)}, "use ignore_index=-100"),
        ({"ignore_index": "pad"}, "ignore_index='pad'"),
        ({"sample_weight": np.ones(B)}, r"sample_weight: expected shape .* got \(6,\)"),
        ({"sample_weight": np.full((B, L), -1.0)}, r"sample_weight: sequence 0, position 0 \(row 0\) is -1"),
        ({"logits": spoilt((3, 7), 2, np.nan)}, r"logits: sequence 3, position 7 \(row 34\), column 2 is NaN"),
        ({"logits": draw()[0][None]}, r"got \(1, 6, 9, 11\)"),
        ({"logits": draw()[0][:, :, :1]}, r"got shape \(6, 9, 1\)"),
        ({"logits": "none"}, "logits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [0, 1])  # the row that is wrong need not be the first that counts
def test_errors_tell_the_place(told, message, first):
    mask = np.ones((B, L), dtype=int)
    mask[0, :first] = 0
    told = {"logits": draw()[0], "labels": LABELS, "mask": mask} | told
    if first and "position 0 " in message:
        return
    with pytest.raises(InputError):
        token_scores(told.pop("logits"), told.pop("labels"), **told)


def test_errors_about_input_ids_tell_where_the_token_stands():
    logits, ids = draw()
    ids[3, 5] = V
    with pytest.raises(InputError):
        token_scores(logits, input_ids=ids)
    with pytest.raises(InputError):
        token_scores(logits[0], input_ids=ids[0])


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


@pytest.mark.parametrize(
    "told, message",
    [
        ({"options": [7, 2, 7]}, "7 twice"),
        ({"options": [7, V]}, "token 11 is outside the vocabulary: ids count from 0, and the vocabulary has 11"),
        ({"options": [-1, 2]}, "token -1 is outside"),
        ({"options": [3]}, "two or more token ids"),
        ({"options": ["A", "B"]}, "two or more token ids"),
        ({"labels": [0, 1, 2, 3, 0, 0]}, "labels: sequence 3 has label 3, but there are 3 options"),
        ({"labels": [0, 1, 2, 10, 0, 0]}, "sequence 3 has label 10.*labels_are='tokens'"),
        ({"labels": [0, 1]}, r"labels: .*got \(2,\)"),
        ({"positions": [0, 1, 2, 9, 0, 0]}, "that of sequence 3 is 9, but positions run from 0 to 8"),
        ({"positions": np.zeros(B), "mask": np.ones((B, L))}, "got both"),
        ({"mask": np.arange(B)[:, None] * np.ones((B, L)) > 0}, "sequence 0 has no real position"),
        ({"logits": draw()[0][0], "labels": [0] * L, "positions": [0] * L}, "belong to logits of shape"),
        ({"logits": spoilt((4, -1), 2, np.nan)}, "logits: sequence 4, column 1 is NaN"),
    ],
)  # fmt: skip
def test_errors_about_options(told, message):
    told = {"logits": draw()[0], "options": OPTIONS, "labels": [0, 1, 2, 2, 1, 0]} | told
    with pytest.raises(InputError):
        option_scores(told.pop("logits"), **told)
