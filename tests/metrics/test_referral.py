import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from attemper.metrics import (
    ReferralCurve,
    referral_area,
    referral_area_difference,
    referral_curve,
)

PAPER = [j / 20 for j in range(21)]
GRIDS = [None, "paper", [0.3, 0.9, 0.5], [0.6]]


def draw(n, k, seed=0, scale=2.0):
    """Labels follow the probabilities; at least one answer is right and one wrong."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, k)) * scale
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    y[:2] = p[:2].argmax(axis=1)
    y[1] = (y[1] + 1) % k
    return p, y, rng.uniform(0.1, 3, size=n)


def draw_coarse(n, k, seed):
    """Many ties, and ones; whole weights, some 0."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=(n, k)) * (rng.random((n, k)) < 0.7)
    counts[np.arange(n), rng.integers(k, size=n)] += 1
    p = counts / counts.sum(axis=1, keepdims=True)
    y = rng.integers(k, size=n)
    y[:2] = p[:2].argmax(axis=1)
    y[1] = (y[1] + 1) % k
    w = rng.integers(0, 4, size=n)
    w[:2] = 2
    return p, y, w


def answers_of(p, y):
    tops = [max(range(len(row)), key=lambda k: row[k]) for row in p]
    return [(row[k], k == label) for row, k, label in zip(p, tops, y)]


def curve_oracle(p, y, w, thresholds):
    """Rows of correct decided, errors referred, referred, error rate of the decided."""
    answers = answers_of(p, y)
    rows = []
    for t in thresholds:
        weight = {(right, decided): 0.0 for right in (True, False) for decided in (True, False)}
        for (c, right), wi in zip(answers, w):
            weight[right, bool(c > t)] += wi
        right, wrong = (weight[r, True] + weight[r, False] for r in (True, False))
        decided = weight[True, True] + weight[False, True]
        rows.append(
            (
                weight[True, True] / right,
                weight[False, False] / wrong,
                (weight[True, False] + weight[False, False]) / (right + wrong),
                weight[False, True] / decided if decided else math.nan,
            )
        )
    return rows


def area_oracle(p, y, w, thresholds):
    rows = curve_oracle(p, y, w, sorted({0.0, 1.0, *thresholds}))
    return sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(rows))


def numbers(grid, p):
    return {None: sorted({0.0, 1.0, *p.max(axis=1)}), "paper": PAPER}[grid] if not isinstance(grid, list) else grid


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("grid", GRIDS)
def test_is_the_obvious_loop(k, grid):
    p, y, w = draw(60, k)
    t = sorted(numbers(grid, p))
    for weights in (w, np.ones(60)):
        curve = referral_curve(y, p, thresholds=grid, sample_weight=weights)
        assert isinstance(curve, ReferralCurve)
        assert curve.threshold.tolist() == t
        found = [curve.correct_decided, curve.errors_referred, curve.referred, curve.error_rate_decided]
        np.testing.assert_allclose(np.transpose(found), curve_oracle(p, y, weights, t), rtol=1e-12, atol=1e-14)
        area = referral_area(y, p, thresholds=grid, sample_weight=weights)
        assert area == pytest.approx(area_oracle(p, y, weights, t), rel=1e-12)


@given(n=st.integers(2, 40), k=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_ties_and_ones_fall_where_the_loop_says(n, k, seed):
    p, y, w = draw_coarse(n, k, seed)
    for grid in GRIDS:
        t = sorted(numbers(grid, p[w > 0]))
        curve = referral_curve(y, p, thresholds=grid, sample_weight=w)
        found = [curve.correct_decided, curve.errors_referred, curve.referred, curve.error_rate_decided]
        np.testing.assert_allclose(np.transpose(found), curve_oracle(p, y, w, t), rtol=1e-12, atol=1e-14)
        area = referral_area(y, p, thresholds=grid, sample_weight=w)
        assert area == pytest.approx(area_oracle(p, y, w, t), abs=1e-12)


@given(n=st.integers(2, 60), k=st.integers(2, 5), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_the_area_over_all_thresholds_is_the_roc_area(n, k, seed, coarse):
    p, y, w = (draw_coarse if coarse else draw)(n, k, seed)
    right = p.argmax(axis=1) == y
    expected = roc_auc_score(right, p.max(axis=1), sample_weight=w)
    assert referral_area(y, p, sample_weight=w) == pytest.approx(expected, abs=1e-12)
    assert referral_area(y, p) == pytest.approx(roc_auc_score(right, p.max(axis=1)), abs=1e-12)


@given(n=st.integers(2, 30), k=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_properties(n, k, seed):
    p, y, _ = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    samples, classes = rng.permutation(n), rng.permutation(k)
    repeats = rng.integers(0, 3, size=n)
    repeats[:2] = 2
    for grid in GRIDS:
        value = referral_area(y, p, thresholds=grid)
        assert 0 <= value <= 1
        assert referral_area(y[samples], p[samples], thresholds=grid) == pytest.approx(value)
        assert referral_area(np.argsort(classes)[y], p[:, classes], thresholds=grid) == pytest.approx(value)
        assert referral_area(y, p, thresholds=grid, sample_weight=repeats) == pytest.approx(
            referral_area(np.repeat(y, repeats), np.repeat(p, repeats, axis=0), thresholds=grid)
        )
        assert referral_area(y, p, thresholds=grid, sample_weight=np.full(n, 7.5)) == pytest.approx(value)
        curve = referral_curve(y, p, thresholds=grid, sample_weight=repeats)
        assert (np.diff(curve.threshold) > 0).all()
        assert (np.diff(curve.correct_decided) <= 0).all()
        assert (np.diff(curve.errors_referred) >= 0).all()
        assert (np.diff(curve.referred) >= 0).all()


@pytest.mark.parametrize("grid", [None, "paper", [0, 1]])
def test_the_curve_runs_from_nobody_to_everybody(grid):
    # Confidences of 1 too: one above 1 by rounding, which counts as 1.
    p = np.array([[1.0, 0.0], [0.0, 1.0], [np.nextafter(1, 2), 0.0], [0.4, 0.6]])
    curve = referral_curve([0, 0, 0, 0], p, thresholds=grid)
    assert (curve.threshold[0], curve.threshold[-1]) == (0, 1)
    assert (curve.correct_decided[0], curve.errors_referred[0], curve.referred[0]) == (1, 0, 0)
    assert (curve.correct_decided[-1], curve.errors_referred[-1], curve.referred[-1]) == (0, 1, 1)
    assert curve.error_rate_decided[0] == 0.5
    assert np.isnan(curve.error_rate_decided[-1])


def test_log_probabilities_tell_confidences_apart_that_round_to_one():
    logs = np.array([[-1e-30, -69.0], [-1e-25, -57.0], [-1e-20, -46.0]])
    y = [0, 0, 1]
    assert referral_area(y, np.exp(logs)) == 0.5
    assert referral_area(y, logs, input="log_probs") == 1
    assert referral_area(y, logs, input="log_probs", thresholds="paper") == 0.5
    curve = referral_curve(y, logs, input="log_probs")
    assert curve.threshold.tolist() == [0, 1]
    assert curve.referred.tolist() == [0, 1]
    # Nor does single precision round them more than needed.
    logs = np.array([[-1e-9, -20.7], [-1e-10, -23.0]], dtype=np.float32)
    assert referral_curve([0, 1], logs, input="log_probs").threshold == pytest.approx(
        [0, 1 - 1e-9, 1 - 1e-10, 1], abs=1e-15
    )


@pytest.mark.parametrize("grid", GRIDS)
def test_interval_is_as_wide_as_the_spread_of_resampled_areas(grid):
    p, y, w = draw(300, 4)
    _, low, high = referral_area(y, p, sample_weight=w, confidence_level=0.95, thresholds=grid)
    rng = np.random.default_rng(3)
    rows = [rng.integers(300, size=300) for _ in range(300)]
    spread = np.std([referral_area(y[i], p[i], sample_weight=w[i], thresholds=grid) for i in rows])
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.2)


def test_few_errors_or_few_right_predictions_give_no_interval():
    p = np.array([[0.99 - 0.001 * i, 0.01 + 0.001 * i] for i in range(100)])
    for n in (99, 81, 19, 1):
        found = referral_area([0] * n + [1] * (100 - n), p, confidence_level=0.9)
        assert found.value == 1
        assert np.isnan(found.low)
        assert not referral_area_difference([0] * n + [1] * (100 - n), p, p, confidence_level=0.9).has_interval


def test_a_difference_needs_more_errors_than_an_area():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.55, 0.99, size=(2, 300))
    p, q = (np.stack([c, 1 - c], axis=1) for c in confidence)
    for errors, enough in ((79, False), (80, True)):
        y = (np.arange(300) < errors).astype(int)
        assert referral_area(y, p, confidence_level=0.9).has_interval
        found = referral_area_difference(y, p, q, confidence_level=0.9)
        assert found.has_interval == enough
        assert enough or ("79" in found.note and "80" in found.note)


def test_difference():
    p, y, w = draw(300, 4)
    rng = np.random.default_rng(1)
    q = p * rng.uniform(0.8, 1.2, size=p.shape)
    q /= q.sum(axis=1, keepdims=True)
    for grid in GRIDS:
        options = {"thresholds": grid, "sample_weight": w}
        one, two = (referral_area(y, x, **options) for x in (p, q))
        assert referral_area_difference(y, p, q, **options) == pytest.approx(one - two, abs=1e-14)
        options |= {"confidence_level": 0.9, "n_resamples": 100}
        found = referral_area_difference(y, p, q, **options)
        assert found.low <= found.value <= found.high
        other_way = referral_area_difference(y, q, p, **options)
        assert other_way == pytest.approx((-found.value, -found.high, -found.low), abs=1e-14)
        assert referral_area_difference(y, p, p, **options) == (0, 0, 0)
        alone = [referral_area(y, x, **options) for x in (p, q)]
        assert found.high - found.low < min(a.high - a.low for a in alone)  # what they share has left
    assert referral_area_difference(y, np.log(p), np.log(q), input="log_probs") == pytest.approx(
        referral_area_difference(y, p, q), abs=1e-14
    )
