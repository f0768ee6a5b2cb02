"""Risk–coverage, AURC and cost, against obvious loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.metrics import (
    Estimate,
    accuracy,
    aurc,
    expected_cost,
    referral_curve,
    risk_coverage_curve,
)
from attemper.metrics.intervals import around_mean


def draw(n, k, seed=0, coarse=False):
    rng = np.random.default_rng(seed)
    p = rng.integers(1, 5, size=(n, k)) if coarse else rng.random((n, k)) ** 3 + 1e-3
    p = p / p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    return p, y, rng.integers(1, 4, size=n).astype(float)


def answers_of(p, y):
    return [(row.max(), row.argmax() == label) for row, label in zip(p, y)]


def curve_oracle(p, y, w):
    answers = answers_of(p, y)
    rows = []
    for t in sorted({0.0, *(c for c, _ in answers)} - {max(c for c, _ in answers)}):
        decided = sum(wi for (c, _), wi in zip(answers, w) if c > t)
        wrong = sum(wi for (c, right), wi in zip(answers, w) if c > t and not right)
        rows.append((t, decided / sum(w), wrong / decided))
    return np.array(rows).T


def aurc_oracle(p, y, w):
    answers = answers_of(p, y)
    total = 0.0
    for (ci, _), wi in zip(answers, w):
        decided = sum(wj for (c, _), wj in zip(answers, w) if c >= ci)
        wrong = sum(wj for (c, right), wj in zip(answers, w) if c >= ci and not right)
        total += wi * wrong / decided
    return total / sum(w)


@given(n=st.integers(1, 40), k=st.integers(2, 5), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_is_the_obvious_loop(n, k, seed, coarse):
    p, y, w = draw(n, k, seed, coarse)
    for weights in (w, w / 7, np.ones(n)):
        curve = risk_coverage_curve(y, p, sample_weight=weights)
        found = np.array([curve.threshold, curve.coverage, curve.risk])
        np.testing.assert_allclose(found, curve_oracle(p, y, weights), rtol=1e-12, atol=1e-14)
        assert aurc(y, p, sample_weight=weights) == pytest.approx(aurc_oracle(p, y, weights), abs=1e-12)


@given(n=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_the_published_formula_without_ties(n, seed):
    p, y, _ = draw(n, 3, seed)
    errors = (p.argmax(axis=1) != y)[np.argsort(-p.max(axis=1))]
    assert aurc(y, p) == pytest.approx((errors.cumsum() / np.arange(1, n + 1)).mean(), abs=1e-12)


@given(n=st.integers(2, 30), k=st.integers(2, 5), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_properties(n, k, seed, coarse):
    p, y, w = draw(n, k, seed, coarse)
    value = aurc(y, p, sample_weight=w)
    order = np.random.default_rng(seed).permutation(n)
    assert 0 <= value <= 1
    assert aurc(y[order], p[order], sample_weight=w[order]) == pytest.approx(value)
    twice = w.astype(int)
    assert aurc(np.repeat(y, twice), np.repeat(p, twice, axis=0)) == pytest.approx(value)
    curve = risk_coverage_curve(y, p, sample_weight=w)
    assert curve.coverage[0] == 1
    assert (np.diff(curve.coverage) < 0).all()
    assert curve.risk[0] == pytest.approx(1 - accuracy(y, p, sample_weight=w))


def test_agrees_with_the_referral_curve():
    p, y, w = draw(200, 4)
    curve = risk_coverage_curve(y, p, sample_weight=w)
    other = referral_curve(y, p, thresholds=curve.threshold, sample_weight=w)
    assert curve.coverage == pytest.approx(1 - other.referred)
    assert curve.risk == pytest.approx(other.error_rate_decided)


def test_intervals():
    p, y, w = draw(300, 4)
    options = {"sample_weight": w, "confidence_level": 0.9, "n_resamples": 200}
    for found in (aurc(y, p, **options), expected_cost(y, p, 0.6, cost_refer=1, cost_miss=[1, 2, 3, 4], **options)):
        assert isinstance(found, Estimate)
        assert found.low < found.value < found.high
    rng = np.random.default_rng(3)
    found = aurc(y, p, sample_weight=w, confidence_level=0.95)
    rows = [rng.integers(300, size=300) for _ in range(300)]
    spread = np.std([aurc(y[i], p[i], sample_weight=w[i]) for i in rows])
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.2)
    none = expected_cost(y, p, 1.0, cost_refer=1, cost_miss=10, confidence_level=0.9)
    assert not none.has_interval


@given(n=st.integers(1, 40), k=st.integers(2, 5), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_cost_is_the_obvious_loop(n, k, seed, coarse):
    p, y, w = draw(n, k, seed, coarse)
    rng = np.random.default_rng(seed)
    thresholds, costs = rng.random(k), rng.random(k) * 50
    for t, m in ((0.5, 10.0), (thresholds, costs), (0.0, costs), (1.0, costs)):
        total = 0.0
        for (c, right), row, label, wi in zip(answers_of(p, y), p, y, w):
            decided = c > np.broadcast_to(t, k)[row.argmax()]
            total += wi * (0 if right else np.broadcast_to(m, k)[label]) if decided else wi * 2.5
        found = expected_cost(y, p, t, cost_refer=2.5, cost_miss=m, sample_weight=w)
        assert found == pytest.approx(total / w.sum(), rel=1e-12)
    assert expected_cost(y, p, 1, cost_refer=2.5, cost_miss=m) == 2.5
    assert expected_cost(y, np.log(p), 0.37, cost_refer=2.5, cost_miss=m, input="log_probs") == pytest.approx(
        expected_cost(y, p, 0.37, cost_refer=2.5, cost_miss=m)
    )


def test_the_interval_of_aurc_has_the_derivatives_of_the_weights():
    p, y, w = draw(120, 3)

    def moved(i, by):
        changed = w.copy()
        changed[i] += by
        return aurc(y, p, sample_weight=changed)

    influence = np.array([(moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5 for i in range(len(y))]) * w.sum()
    found = aurc(y, p, sample_weight=w, confidence_level=0.9)
    expected = around_mean(found.value, influence, w, 0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-5)
