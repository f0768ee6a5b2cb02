"""Labels are made wrong in the way and number that is said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from experiments.reproduce.wrong_labels import KINDS, most_confused, spoil

from data import draw

H, Y = draw(2000, 6)
H = H.astype(np.float32)
CONFUSED = most_confused(H, Y)


@pytest.mark.parametrize("kind", KINDS)
@given(share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_at_most_the_share_is_changed_and_the_input_is_left_alone(kind, share, seed):
    before = Y.copy()
    spoilt = spoil(H, Y, share, kind, CONFUSED, np.random.default_rng(seed))
    np.testing.assert_array_equal(Y, before)
    assert spoilt.min() >= 0
    assert spoilt.max() < 6
    changed = (spoilt != Y).sum()
    if kind == "uniform":  # some are drawn as they were
        assert changed <= int(share * len(Y))
    else:
        assert changed == int(share * len(Y))
    np.testing.assert_array_equal(spoilt, spoil(H, Y, share, kind, CONFUSED, np.random.default_rng(seed)))


def test_uniform_labels_are_right_as_often_as_chance_has_it():
    spoilt = spoil(H, Y, 1.0, "uniform", CONFUSED, np.random.default_rng(0))
    assert (spoilt == Y).mean() == pytest.approx(1 / 6, abs=0.03)
    assert np.bincount(spoilt).min() > 250


def test_the_confused_class_is_found_by_a_loop():
    p = softmax(H.astype(float) / 2, axis=1)
    for k in range(6):
        mean = [p[k == Y][:, j].sum() if j != k else -1 for j in range(6)]
        assert CONFUSED[k] == int(np.argmax(mean)) != k
    spoilt = spoil(H, Y, 0.3, "confusable", CONFUSED, np.random.default_rng(0))
    wrong = spoilt != Y
    np.testing.assert_array_equal(spoilt[wrong], CONFUSED[Y[wrong]])


def test_instance_noise_falls_on_hard_samples_and_takes_what_they_look_like():
    spoilt = spoil(H, Y, 0.2, "instance", CONFUSED, np.random.default_rng(0))
    wrong = spoilt != Y
    p = softmax(H.astype(float) / 2, axis=1)
    doubt = 1 - p.max(axis=1)
    assert doubt[wrong].mean() > doubt[~wrong].mean() + 0.05
    looks = p[wrong, spoilt[wrong]]
    others = p.copy()
    others[np.arange(len(Y)), Y] = 0
    assert looks.mean() > others[wrong].sum(axis=1).mean() / 5 * 1.3  # more than any of the five others at random


def test_annotators_err_in_some_classes_on_hard_images_and_mostly_as_one_confuses():
    doubt = 1 - softmax(H.astype(float) / 2, axis=1).max(axis=1)
    rates, harder, confused = [], [], []
    for seed in range(20):
        spoilt = spoil(H, Y, 0.2, "annotators", CONFUSED, np.random.default_rng(seed))
        wrong = spoilt != Y
        by_class = [wrong[k == Y].mean() for k in range(6)]
        rates.append(max(by_class) / min(by_class))
        harder.append(doubt[wrong].mean() - doubt[~wrong].mean())
        confused.append((spoilt[wrong] == CONFUSED[Y[wrong]]).mean())
    assert np.mean(rates) > 1.8  # classes differ, by up to 1.7 / 0.3
    assert np.mean(harder) > 0.02
    assert np.mean(confused) == pytest.approx(0.7 + 0.3 / 5, abs=0.02)


@given(
    n=st.integers(1, 40),
    k=st.integers(2, 8),
    share=st.floats(0, 0.9),
    seed=st.integers(0, 1000),
)
def test_annotators_of_few_samples_and_classes(n, k, share, seed):
    h, y = draw(n, k, seed=seed)
    h = h.astype(np.float32)
    spoilt = spoil(h, y, share, "annotators", most_confused(h, y), np.random.default_rng(seed))
    assert (spoilt != y).sum() == int(share * n)
    assert ((spoilt >= 0) & (spoilt < k)).all()
