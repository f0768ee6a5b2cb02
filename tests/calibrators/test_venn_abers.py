"""Venn–Abers is two isotonic regressions for each sample that is predicted; here they are made one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from attemper import VennAbers, load

from data import draw


def two_fits(p, z, at):
    """p₀ and p₁ at some probabilities: scikit-learn's isotonic regression with the sample, labelled 0 and 1."""
    ends = []
    for label in (0, 1):
        fits = [IsotonicRegression().fit(np.r_[p, x], np.r_[z, label]) for x in at]
        ends.append([float(fit.predict([x])[0]) for fit, x in zip(fits, at)])
    return np.array(ends)


def columns(p):
    return np.column_stack([1 - p, p])


@given(st.integers(1, 25), st.integers(0, 10**6), st.booleans())
def test_two_classes_against_two_fits_for_each_sample(n, seed, ties):
    rng = np.random.default_rng(seed)
    p, at = rng.uniform(0.01, 0.99, (2, n + 5))
    p = p[:n].round(1).clip(0.1, 0.9) if ties else p[:n]
    at = np.r_[at, p]  # also at the scores of the fit
    z = (rng.random(n) < p).astype(int)
    fitted = VennAbers(input="probs").fit(columns(p), z)
    low, high = two_fits(p, z, at)
    found = fitted.predict_interval(columns(at))
    np.testing.assert_allclose(found[0], columns(low) * [0, 1] + columns(high) * [1, 0], atol=1e-12)
    np.testing.assert_allclose(found[1], columns(high) * [0, 1] + columns(low) * [1, 0], atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(columns(at))[:, 1], high / (1 - low + high), rtol=1e-9)


def test_more_classes_one_against_the_rest():
    h, y = draw(60, 3)
    new, _ = draw(30, 3, seed=1)
    fitted = VennAbers().fit(h, y)
    p, at = (np.exp(v) / np.exp(v).sum(axis=1, keepdims=True) for v in (h, new))
    low, high = fitted.predict_interval(new)
    for k in range(3):
        ends = two_fits(p[:, k], (y == k).astype(int), at[:, k])
        np.testing.assert_allclose([low[:, k], high[:, k]], ends, atol=1e-12)
    merged = high / (1 - low + high)
    np.testing.assert_allclose(fitted.predict_proba(new), merged / merged.sum(axis=1, keepdims=True), rtol=1e-9)


def test_it_is_calibrated_and_never_certain():
    rng = np.random.default_rng(0)
    s, new = 8 * rng.normal(size=(2, 4000))
    z = (rng.random(4000) < expit(s / 4 - 0.5)).astype(int)
    fitted = VennAbers().fit(np.column_stack([0 * s, s]), z)
    p = fitted.predict_proba(np.column_stack([0 * new, new]))[:, 1]
    assert np.abs(p - expit(new / 4 - 0.5)).mean() < 0.03
    assert 1e-5 < p.min() < p.max() < 1 - 1e-5
    low, high = fitted.predict_interval(np.column_stack([0 * new, new]))
    assert ((low[:, 1] < p) & (p < high[:, 1])).all()
    few = VennAbers().fit(np.column_stack([0 * s, s])[:100], z[:100])
    wide = np.subtract(*few.predict_interval(np.column_stack([0 * new, new]))[::-1])
    assert wide.mean() > 5 * (high - low).mean()


def test_saved_with_its_interval(tmp_path):
    h, y = draw(50, 3)
    fitted = VennAbers().fit(h, y)
    path = tmp_path / "map.json"
    fitted.save(path)
    again = load(path)
    np.testing.assert_array_equal(again.predict_interval(h), fitted.predict_interval(h))
    np.testing.assert_array_equal(again.predict_proba(h), fitted.predict_proba(h))
