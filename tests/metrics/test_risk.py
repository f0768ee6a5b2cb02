"""Risk–coverage, AURC and cost, against obvious loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.errors import InputError
from attemper.metrics import (
    Estimate,
    accuracy,
    aurc,
    expected_cost,
    nll,
    referral_area,
    referral_curve,
    risk_coverage_curve,
)


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
        curve = risk_coverage_curve(p, y, sample_weight=weights)
        found = np.array([curve.threshold, curve.coverage, curve.risk])
        np.testing.assert_allclose(found, curve_oracle(p, y, weights), rtol=1e-12, atol=1e-14)
        assert aurc(p, y, sample_weight=weights) == pytest.approx(aurc_oracle(p, y, weights), abs=1e-12)


@given(n=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_the_published_formula_without_ties(n, seed):
    p, y, _ = draw(n, 3, seed)
    errors = (p.argmax(axis=1) != y)[np.argsort(-p.max(axis=1))]
    assert aurc(p, y) == pytest.approx((errors.cumsum() / np.arange(1, n + 1)).mean(), abs=1e-12)


@given(n=st.integers(2, 30), k=st.integers(2, 5), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_properties(n, k, seed, coarse):
    p, y, w = draw(n, k, seed, coarse)
    value = aurc(p, y, sample_weight=w)
    order = np.random.default_rng(seed).permutation(n)
    assert 0 <= value <= 1
    assert aurc(p[order], y[order], sample_weight=w[order]) == pytest.approx(value)
    twice = w.astype(int)
    assert aurc(np.repeat(p, twice, axis=0), np.repeat(y, twice)) == pytest.approx(value)
    curve = risk_coverage_curve(p, y, sample_weight=w)
    assert curve.coverage[0] == 1
    assert (np.diff(curve.coverage) < 0).all()
    assert curve.risk[0] == pytest.approx(1 - accuracy(p, y, sample_weight=w))


def test_agrees_with_the_referral_curve():
    p, y, w = draw(200, 4)
    curve = risk_coverage_curve(p, y, sample_weight=w)
    other = referral_curve(p, y, thresholds=curve.threshold, sample_weight=w)
    assert curve.coverage == pytest.approx(1 - other.referred)
    assert curve.risk == pytest.approx(other.error_rate_decided)


def test_extremes():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    assert aurc(p, [0, 0, 0, 0]) == 0  # no error at all is no error here
    assert aurc(p, [1, 1, 1, 1]) == 1
    assert aurc([[0.7, 0.3]] * 4, [0, 1, 0, 1]) == 0.5  # a confidence that says nothing
    assert risk_coverage_curve([[0.7, 0.3]] * 4, [0, 1, 0, 1]).threshold.tolist() == [0]


def test_log_probabilities_tell_confidences_apart_that_round_to_one():
    logs = np.array([[-1e-30, -69.0], [-1e-25, -57.0], [-1e-20, -46.0]])
    assert aurc(np.exp(logs), [0, 0, 1]) == pytest.approx(1 / 3)
    assert aurc(logs, [0, 0, 1], log_probs=True) == pytest.approx(1 / 9)
    assert risk_coverage_curve(logs, [0, 0, 1], log_probs=True).coverage == pytest.approx([1, 2 / 3, 1 / 3])


def test_intervals():
    p, y, w = draw(300, 4)
    options = {"sample_weight": w, "interval": 0.9, "n_resamples": 200}
    for found in (aurc(p, y, **options), expected_cost(p, y, 0.6, cost_refer=1, cost_miss=[1, 2, 3, 4], **options)):
        assert isinstance(found, Estimate)
        assert found.low < found.value < found.high
    rng = np.random.default_rng(3)
    found = aurc(p, y, sample_weight=w, interval=0.95)
    rows = [rng.integers(300, size=300) for _ in range(300)]
    spread = np.std([aurc(p[i], y[i], sample_weight=w[i]) for i in rows])
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.2)
    none = expected_cost(p, y, 1.0, cost_refer=1, cost_miss=10, interval=0.9)
    assert "not referred" in none.note
    assert not none.has_interval


def test_the_cost_does_not_need_many_errors_that_are_not_referred():
    # To ask for them prints the interval of unlucky draws alone.
    confidence = np.concatenate([np.full(3, 0.9), np.full(17, 0.6), np.full(180, 0.95)])
    p = np.stack([confidence, 1 - confidence], axis=1)
    y = np.concatenate([np.ones(20, dtype=int), np.zeros(180, dtype=int)])
    found = expected_cost(p, y, 0.8, cost_refer=1, cost_miss=10, interval=0.9)
    assert found.value == pytest.approx((17 + 30) / 200)
    assert 0 < found.low < found.value < found.high
    few = expected_cost(p[1:], y[1:], 0.8, cost_refer=1, cost_miss=10, interval=0.9)
    assert "too few errors" in few.note
    assert "19" in few.note


def test_no_interval_where_samples_do_not_differ():
    p = np.tile([0.7, 0.3], (50, 1))
    for found in (
        aurc(p, np.ones(50, dtype=int), interval=0.9),
        expected_cost(p, np.ones(50, dtype=int), 0.5, cost_refer=1, cost_miss=10, interval=0.9),
        nll(p, np.ones(50, dtype=int), interval=0.9),
        referral_area(p, np.arange(50) % 2, interval=0.9),
    ):
        assert not found.has_interval
        assert "do not differ" in found.note


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
        found = expected_cost(p, y, t, cost_refer=2.5, cost_miss=m, sample_weight=w)
        assert found == pytest.approx(total / w.sum(), rel=1e-12)
    assert expected_cost(p, y, 1, cost_refer=2.5, cost_miss=m) == 2.5
    assert expected_cost(np.log(p), y, 0.37, cost_refer=2.5, cost_miss=m, log_probs=True) == pytest.approx(
        expected_cost(p, y, 0.37, cost_refer=2.5, cost_miss=m)
    )


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"threshold": 1.5}, r"threshold=1\.5: must lie between 0 and 1"),
        ({"threshold": [0.5, math.nan]}, "threshold=nan of class 1"),
        ({"threshold": [0.5]}, r"threshold: shape \(1,\) came; expected a number, or one for each of the 2 classes"),
        ({"threshold": "high"}, "threshold: text came"),
        ({"cost_refer": -1}, "cost_refer=-1: expected a number, not negative"),
        ({"cost_refer": math.inf}, "cost_refer=inf"),
        ({"cost_refer": "a lot"}, "cost_refer='a lot'"),
        ({"cost_miss": [1, -2]}, r"cost_miss=-2\.0 of class 1"),
        ({"cost_miss": [1, 2, 3]}, r"cost_miss: shape \(3,\)"),
        ({"labels": [0, 2]}, "row 1 has label 2"),
        ({"probs": [[0.9, 0.1], [math.nan, 0.8]]}, "row 1, column 0 is nan"),
    ],
)
def test_errors(changed, message):
    told = {"probs": [[0.9, 0.1], [0.2, 0.8]], "labels": [0, 0], "threshold": 0.5, "cost_refer": 1, "cost_miss": 50}
    with pytest.raises(InputError, match=message):
        expected_cost(**(told | changed))
