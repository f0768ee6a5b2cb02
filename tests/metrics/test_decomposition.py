"""Parts of proper scores, and CORP reliability, against isotonic regressions written down as a loop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper.metrics import (
    CorpReliability,
    Decomposition,
    Estimate,
    brier,
    corp_reliability,
    decompose,
    evaluate,
    nll,
)

from oracles import isotonic


def recalibrated(confidence, right, w):
    """Isotonic regression at each sample: samples with the same confidence are one."""
    values = sorted(set(confidence))
    weights = [[sum(w[(confidence == v) & (right == outcome)]) for v in values] for outcome in (1, 0)]
    fit = dict(zip(values, isotonic(*weights)))
    return np.array([fit[c] for c in confidence])


def mean_score(q, right, w, score):
    def loss(x, r):
        if score == "brier":
            return (x - r) ** 2
        of_it = x if r else 1 - x
        return -math.log(of_it) if of_it > 0 else math.inf

    return sum(wi * loss(x, r) for x, r, wi in zip(q, right, w)) / sum(w)


def oracle(p, y, w, score, kind):
    """Miscalibration, discrimination and uncertainty, each a sum over the problems."""
    n_classes = p.shape[1]
    if kind == "top":
        problems = [(p.max(axis=1), (p.argmax(axis=1) == y).astype(int))]
    else:
        problems = [(p[:, k], (y == k).astype(int)) for k in range(n_classes)]
    parts = np.zeros(3)
    for q, right in problems:
        frequency = np.full(len(y), w @ right / w.sum())
        given, fit, constant = (mean_score(v, right, w, score) for v in (q, recalibrated(q, right, w), frequency))
        parts += [given - fit, constant - fit, constant]
    return parts / 2 if kind == "classwise" and n_classes == 2 and score == "log" else parts


def names(found):
    return [found.miscalibration, found.discrimination, found.uncertainty]


@settings(max_examples=40)
@given(
    n=st.integers(1, 20),
    k=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    score=st.sampled_from(["brier", "log"]),
    kind=st.sampled_from(["top", "classwise"]),
)
def test_parts_are_those_of_isotonic_regression(n, k, seed, score, kind):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.ones(k), n), rng.integers(k, size=n)
    w = rng.integers(1, 4, n).astype(float)
    found = decompose(y, p, score=score, kind=kind, sample_weight=w)
    np.testing.assert_allclose(names(found), oracle(p, y, w, score, kind), atol=1e-12)
    assert found.score == pytest.approx(found.miscalibration - found.discrimination + found.uncertainty)
    assert min(names(found)) >= -1e-12
    rows = np.repeat(np.arange(n), w.astype(int))
    np.testing.assert_allclose(names(decompose(y[rows], p[rows], score=score, kind=kind)), names(found), atol=1e-12)
    if kind == "classwise" and (score == "brier" or k == 2):
        assert found.score == pytest.approx((brier if score == "brier" else nll)(y, p, sample_weight=w))


def draw(n, t=1.0, k=2, seed=0):
    """Probabilities, and labels drawn from softmax(log p / t)."""
    rng = np.random.default_rng(seed)
    h = 2.5 * rng.normal(size=(n, k))
    y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
    return np.exp(h) / np.exp(h).sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("score", ["brier", "log"])
def test_what_the_parts_mean(score):
    p, y = draw(3000)
    fair = decompose(y, p, score=score, confidence_level=0.95, n_resamples=100)
    assert isinstance(fair, Decomposition)
    assert all(isinstance(part, Estimate) for part in (fair.score, *names(fair)))
    assert fair.miscalibration.p_value > 0.01
    assert fair.miscalibration.chance == pytest.approx(fair.miscalibration.value, rel=0.6)
    worse = decompose(*draw(3000, t=3.0)[::-1], score=score, confidence_level=0.95, n_resamples=100)
    assert worse.miscalibration.p_value < 0.02
    blind = decompose(y, p[::-1], score=score, confidence_level=0.95, n_resamples=10)  # of other samples
    assert blind.discrimination.value < 0.1 * fair.discrimination.value
    assert blind.uncertainty.value == pytest.approx(fair.uncertainty.value)
    squeezed = p**2 / (p**2).sum(axis=1, keepdims=True)  # the same order: only the calibration changes
    other = decompose(y, squeezed, score=score)
    assert other.discrimination == pytest.approx(fair.discrimination.value)
    assert other.miscalibration > fair.miscalibration.value


def test_chance_needs_one_isotonic_regression():
    p, y = draw(500, k=4, t=2.0)
    assert decompose(y, p, confidence_level=0.9).miscalibration.chance is None
    assert decompose(y, p, kind="top", confidence_level=0.9, n_resamples=20).miscalibration.chance is not None
    each, found = evaluate(y, p), decompose(y, p)
    assert [each[name] for name in ("miscalibration", "discrimination", "uncertainty")] == names(found)
    sure = np.eye(2)[np.arange(60) % 2]
    assert decompose(1 - np.arange(60) % 2, sure, score="log").miscalibration == math.inf


def test_corp_curve_and_bands():
    p, y = draw(400, t=2.0, k=3)
    w = np.random.default_rng(0).integers(1, 3, 400).astype(float)
    curve = corp_reliability(y, p, sample_weight=w, n_resamples=50)
    assert isinstance(curve, CorpReliability)
    confidence, right = p.max(axis=1), (p.argmax(axis=1) == y).astype(int)
    expected = recalibrated(confidence, right, w)
    np.testing.assert_allclose(np.interp(confidence, curve.confidence, curve.accuracy), expected, atol=1e-12)
    assert curve.weight.sum() == w.sum()
    assert curve.outside > 0.3  # over-confident
    at = corp_reliability(y, p, of_class=2, n_resamples=50)
    expected = recalibrated(p[:, 2], (y == 2).astype(int), np.ones(400))
    np.testing.assert_allclose(np.interp(p[:, 2], at.confidence, at.accuracy), expected, atol=1e-12)
    around = corp_reliability(y, p, band="confidence", n_resamples=50)
    accuracy = np.interp(around.band_confidence, around.confidence, around.accuracy)
    assert ((around.low <= accuracy) & (accuracy <= around.high)).all()
    assert around.outside == 0


def test_a_consistency_band_holds_calibrated_predictions():
    shares = [corp_reliability(*draw(600, seed=seed)[::-1], n_resamples=100, seed=seed).outside for seed in range(12)]
    assert np.mean(shares) < 0.15
