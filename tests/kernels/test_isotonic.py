"""Isotonic regression agrees with scikit-learn's, knot by knot, also where values are tied or nearly so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from attemper.kernels.isotonic import isotonic


def check(x, positive, w):
    found = isotonic(x, positive, w)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, positive.astype(float), w)
    np.testing.assert_array_equal(found.knots, np.atleast_1d(theirs.X_thresholds_))
    np.testing.assert_allclose(found.values, np.atleast_1d(theirs.y_thresholds_), rtol=1e-12, atol=1e-15)
    # Of values that are nearly tied one stands for all.
    np.testing.assert_allclose(found.fitted, theirs.predict(x), rtol=1e-12, atol=1e-15)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 30, 300]), st.booleans(), st.sampled_from([1, 3, 12]))
def test_agrees_with_scikit_learn(seed, n, weighted, digits):
    rng = np.random.default_rng(seed)
    x = rng.random(n).round(digits)
    check(x, rng.random(n) < x, rng.integers(1, 9, n) / 4 if weighted else None)


@pytest.mark.parametrize("least", [1e-300, 1e-18, 1e-16])
def test_tiny_values_are_tied_as_in_scikit_learn(least):
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(least), np.log(1e-11), 400))
    positive = rng.random(400) < 0.3 + 0.4 * (np.log(x) > np.median(np.log(x)))
    found = isotonic(x, positive, None)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, positive.astype(float))
    np.testing.assert_array_equal(found.knots, theirs.X_thresholds_)
    np.testing.assert_allclose(found.values, theirs.y_thresholds_, rtol=1e-12)


def test_minimises_the_squares_among_rising_values():
    rng = np.random.default_rng(1)
    x, positive = rng.random(6), rng.random(6) < 0.5
    fitted = isotonic(x, positive, None).fitted
    order = np.argsort(x)
    assert (np.diff(fitted[order]) >= 0).all()
    best = ((fitted - positive) ** 2).sum()
    for other in np.sort(rng.random((20_000, 6)), axis=1):
        assert ((other - positive[order]) ** 2).sum() >= best
