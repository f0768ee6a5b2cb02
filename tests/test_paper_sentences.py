"""Sentences of the paper's method, each as a property: those that hold, and one that does not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from attemper import AttendedTemperatureScaling, TemperatureScaling, metrics
from attemper.kernels.attended import pairs
from attemper.kernels.nll import sums
from attemper.kernels.softmax import split

from data import draw

SEEDS = st.integers(0, 2**32 - 1)


def members(logits, labels, theta):
    """Return the subsets M_k of Eq. (7), as the library finds them: one column for each class."""
    found = pairs(split(logits.astype(float), False), labels, None, np.array([theta]))
    inside = np.zeros(logits.shape, bool)
    inside[np.arange(len(labels)), labels] = True
    for row, gap in zip(found.row, found.gap):
        inside[row, np.flatnonzero(logits[row] - logits[row].max() == gap)] = True
    inside[found.top_row, logits[found.top_row].argmax(axis=1)] = True
    return inside


@given(SEEDS, st.integers(2, 8))
def test_no_distribution_has_a_lower_expected_nll_than_the_true_one(seed, n_classes):
    """Eq. (1), Gibbs' inequality."""
    q, p = np.random.default_rng(seed).dirichlet(np.ones(n_classes), size=2)
    every = np.arange(n_classes)  # one sample of each class, weighted by how probable it is
    true, other = (float(metrics.nll(every, np.tile(law, (n_classes, 1)), sample_weight=q)) for law in (q, p))
    assert true <= other + 1e-12


@given(SEEDS, st.integers(2, 6), st.integers(1, 5))
def test_a_weight_takes_samples_of_other_classes_for_samples_of_a_class(seed, n_classes, n_points):
    """Eq. (6): Q(x, y = k) = W Q(x, y ≠ k) with W = Q(y = k | x) / Q(y ≠ k | x)."""
    joint = np.random.default_rng(seed).dirichlet(np.ones(n_points * n_classes)).reshape(n_points, n_classes)
    other = joint.sum(axis=1, keepdims=True) - joint
    given_x = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(joint, given_x / (1 - given_x) * other, rtol=1e-9)


@given(SEEDS, st.floats(0.01, 0.9))
def test_a_threshold_for_the_probability_is_a_threshold_for_the_weight(seed, theta):
    """W = S_k / (1 − S_k) grows with S_k: "selecting the samples with bigger W" is Eq. (7)."""
    s = softmax(np.random.default_rng(seed).normal(size=(50, 4)) * 3, axis=1)
    np.testing.assert_array_equal(s >= theta, s / (1 - s) >= theta / (1 - theta))


@given(SEEDS, st.floats(0.001, 0.9), st.integers(2, 6))
def test_the_subsets_are_those_of_eq_7(seed, theta, n_classes):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(40, n_classes)) * 2, rng.integers(0, n_classes, 40)
    loop = [[y == k or softmax(h)[k] >= theta for k in range(n_classes)] for h, y in zip(logits, labels)]
    np.testing.assert_array_equal(members(logits, labels, theta), loop)


@given(SEEDS, st.floats(0.001, 0.49))
def test_samples_of_the_other_class_are_taken_near_the_boundary(seed, theta):
    """With two classes: where the logit of the label leads by at most log((1 − θ) / θ)."""
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(60, 2)) * 4, rng.integers(0, 2, 60)
    n = np.arange(60)
    lead = logits[n, labels] - logits[n, 1 - labels]
    np.testing.assert_array_equal(members(logits, labels, theta)[n, 1 - labels], lead <= np.log((1 - theta) / theta))


def test_a_smaller_threshold_makes_more_of_the_same_labels():
    """The subsets are nested, and together never have fewer samples than the validation set."""
    logits, labels = draw(300, 5)
    inside = [members(logits, labels, theta) for theta in (0.001, 0.01, 0.1, 0.999999)]
    for more, fewer in pairwise(inside):
        assert (more >= fewer).all()
        assert more.sum() > fewer.sum() >= len(labels)


@given(SEEDS, st.floats(0.2, 5))
def test_the_term_of_a_samples_own_class_is_its_nll(seed, temperature):
    """For k = y_i the fraction of Eq. (8) is S_k, because S_{y≠k} = 1 − S_k; so without pairs the loss is the NLL."""
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    s = softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(s * (1 - s) / (s.sum(axis=1, keepdims=True) - s), s, rtol=1e-9)
    found = pairs(split(logits, False), labels, None, np.array([1.0]))
    assert len(found.row) == len(found.top_row) == 0
    assert sums(logits, labels, None, 1 / temperature)[0] == pytest.approx(-np.log(s[np.arange(20), labels]).sum())


def test_at_the_temperature_of_least_nll_labels_have_the_mean_logit():
    """Eq. (5)."""
    logits, labels = draw(500, 4)
    s = softmax(logits / TemperatureScaling().fit(logits, labels).temperature_, axis=1)
    assert logits[np.arange(500), labels].sum() == pytest.approx((logits * s).sum(), rel=1e-6)


def nll_at(logits, label, temperatures):
    rows, labels = np.array([logits]), np.array([label])
    return np.array([sums(rows, labels, None, 1 / t)[0] for t in temperatures])


RISING = np.geomspace(0.05, 100, 60)


def test_a_right_answer_alone_draws_the_temperature_to_zero():
    assert (np.diff(nll_at([3.0, 1.0, 0.0], 0, RISING)) > 0).all()


def test_a_wrong_answer_alone_draws_it_up_but_not_always_to_infinity():
    """ "For misclassified samples, T goes toward ∞": only if the label's logit is not above the mean of all."""
    assert (np.diff(nll_at([3.0, 1.0, 0.0], 1, RISING)) < 0).all()  # 1 is below the mean, 4/3
    second = nll_at([3.0, 2.9, -9.0], 1, RISING)  # the label is nearly as likely as the answer
    assert 0 < second.argmin() < len(RISING) - 1


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_temperature_leaves_every_answer_as_it_is(factor):
    logits, labels = draw(200, 6)
    for method in (TemperatureScaling(), AttendedTemperatureScaling()):
        probs = method.fit(factor * logits, labels).predict_proba(factor * logits)
        np.testing.assert_array_equal(probs.argmax(axis=1), logits.argmax(axis=1))
