"""Smooth ECE against the integral of its definition, sample by sample and reflection by reflection."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper.errors import InputError
from attemper.metrics import Estimate, smooth_ece


def blurred(confidence, gap, width, cells=4001):
    """Integral of the absolute value of the gaps, blurred by a Gaussian that is reflected at 0 and 1."""
    total = 0.0
    for t in (np.arange(cells) + 0.5) / cells:
        images = [sign * c + 2 * k for k in range(-5, 6) for sign in (1, -1) for c in [confidence]]
        kernel = sum(np.exp(-((t - image) ** 2) / (2 * width**2)) for image in images) / (
            width * math.sqrt(2 * math.pi)
        )
        total += abs(float(gap @ kernel))
    return total / cells


def oracle(confidence, right, w=None):
    """The width at which the error is equal to it, by halving."""
    w = np.ones(len(right)) if w is None else w
    gap = w * (right - confidence) / w.sum()
    low, high = 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if blurred(confidence, gap, middle, 801) > middle else (low, middle)
    return (low + high) / 2


def two(c):
    return np.column_stack([c, 1 - c])


def draw(n, t, seed=0):
    """Confidences of class 0, and labels; the confidence above 1/2 has to be divided by t."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 1, n)
    return c, (rng.random(n) >= 0.5 + (c - 0.5) / t).astype(int)


@pytest.mark.parametrize("n, t, weighted", [(3, 1, False), (40, 2, False), (40, 1, True), (80, 1, False)])
def test_the_integral_of_the_definition(n, t, weighted):
    c, y = draw(n, t)
    w = np.random.default_rng(1).uniform(0.1, 3, n) if weighted else np.ones(n)
    found = smooth_ece(y, two(c), sample_weight=w)
    assert found == pytest.approx(oracle(c, y == 0, w), abs=2e-4)
    gap = w * ((y == 0) - c) / w.sum()
    assert blurred(c, gap, found) == pytest.approx(found, rel=1e-3)


# By `oracle` above, with 20 001 cells and 25 halvings.
@pytest.mark.parametrize(
    "c, right, expected",
    [([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], 0.096327), ([0.7], [1], 0.3), ([0.99, 0.99], [1, 0], 0.49)],
)
def test_fixed_numbers(c, right, expected):
    assert smooth_ece(1 - np.array(right), two(np.array(c))) == pytest.approx(expected, rel=2e-4)


def test_class_wise_is_the_mean_over_the_classes():
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 60), rng.integers(3, size=60)
    each = [smooth_ece(np.where(y == k, 1, 0), two(1 - p[:, k]), kind="classwise") for k in range(3)]
    assert smooth_ece(y, p, kind="classwise") == pytest.approx(np.mean(each), rel=1e-3)
    c = p[:, 0]
    one = smooth_ece(np.where(y == 0, 1, 0), two(1 - c), kind="classwise")
    assert one == pytest.approx(smooth_ece(np.where(y == 0, 0, 1), two(c), kind="classwise"), rel=1e-3)
    assert one == pytest.approx(oracle(c, y == 0), abs=3e-4)


@settings(max_examples=25)
@given(n=st.integers(1, 30), k=st.integers(2, 4), seed=st.integers(0, 10**6))
def test_order_and_repeats_do_not_matter(n, k, seed):
    rng = np.random.default_rng(seed)
    p, y, w = rng.dirichlet(np.ones(k), n), rng.integers(k, size=n), rng.integers(1, 4, n)
    for kind in ("top", "classwise"):
        found = smooth_ece(y, p, kind=kind)
        order = rng.permutation(n)
        assert smooth_ece(y[order], p[order], kind=kind) == pytest.approx(found, rel=1e-6, abs=1e-9)
        rows = np.repeat(np.arange(n), w)
        weighted = smooth_ece(y, p, kind=kind, sample_weight=w)
        assert weighted == pytest.approx(smooth_ece(y[rows], p[rows], kind=kind), rel=1e-6, abs=1e-9)
        assert 0 <= found <= 1


def test_interval_chance_and_p_value():
    c, y = draw(2000, 1)
    fair = smooth_ece(y, two(c), confidence_level=0.95, n_resamples=100)
    assert isinstance(fair, Estimate)
    assert fair.low == 0
    assert fair.p_value > 0.01
    assert fair.chance == pytest.approx(fair.value, abs=0.015)
    c, y = draw(2000, 2)
    found = smooth_ece(y, two(c), confidence_level=0.95, n_resamples=100)
    assert 0.08 < found.low < found.value < found.high < 0.17
    assert found.p_value < 0.02
    assert smooth_ece(y, two(c), kind="classwise", confidence_level=0.9, n_resamples=50).has_interval
    assert not smooth_ece(y[:15], two(c[:15]), confidence_level=0.95, n_resamples=20).has_interval


def test_binary_is_classwise_of_two_classes():
    rng = np.random.default_rng(0)
    q = rng.random(200)
    p, y = np.column_stack([1 - q, q]), (rng.random(200) < q**2).astype(int)
    assert smooth_ece(y, p, kind="binary") == smooth_ece(y, p, kind="classwise")
    with pytest.raises(InputError):
        smooth_ece([0, 1], np.full((2, 3), 1 / 3), kind="binary")
