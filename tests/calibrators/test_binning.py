"""Histograms count; isotonic regression is scikit-learn's."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from attemper import HistogramBinning, IsotonicCalibration

from data import cases, draw

METHODS = [HistogramBinning(), HistogramBinning(strategy="uniform"), HistogramBinning(n_bins=3), IsotonicCalibration()]


def of_class(fitted, k):
    """Knots and values of one class."""
    stop = np.cumsum(fitted.map_.sizes)[k]
    part = slice(stop - fitted.map_.sizes[k], stop)
    return fitted.map_.knots[part], fitted.map_.values[part]


def normalised(q):
    total = q.sum(axis=1, keepdims=True)
    return np.where(total == 0, 1 / q.shape[1], q / np.where(total == 0, 1, total))


class Softmax(LogisticRegression):
    """A classifier that takes X for logits."""

    decision_function = property()  # predict_proba is asked, then

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.arange(X.shape[1]), X.shape[1]
        return self

    def predict_proba(self, X):
        return softmax(X, axis=1)


@pytest.mark.parametrize("n, n_classes, scale", [(40, 2, 3.0), (1500, 2, 3.0), (1000, 5, 3.0), (400, 20, 8.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_agrees_with_scikit_learn(n, n_classes, scale, weighted):
    h, y = draw(n, n_classes, scale)
    y[:n_classes] = range(n_classes)  # scikit-learn cannot do without a class
    w = np.random.default_rng(1).uniform(0.2, 3, n) if weighted else None
    theirs = CalibratedClassifierCV(FrozenEstimator(Softmax().fit(h, y)), method="isotonic", ensemble=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Since FrozenEstimator does not appear to accept sample_weight")
        theirs.fit(h, y, sample_weight=w)
    ours = IsotonicCalibration().fit(h, y, w)
    for x in (h, draw(500, n_classes, scale, seed=1)[0]):
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-12)


def mass_oracle(p, positive, n_bins):
    """Sort, give each distinct value to the bin that holds the middle of its samples, count."""
    values = sorted(set(p))
    bins = [[] for _ in range(n_bins)]
    before = 0
    for v in values:
        count = sum(p == v)
        bins[int(n_bins * (before + count / 2) / len(p) + 1e-9)].append(v)
        before += count
    bins = [b for b in bins if b]
    knots = [0.0] + [(a[-1] + b[0]) / 2 for a, b in pairwise(bins)]
    return knots, [positive[np.isin(p, b)].mean() for b in bins]


@pytest.mark.filterwarnings("ignore::attemper.ProbabilitiesAsLogitsWarning")
@given(case=cases(max_rows=30), n_bins=st.integers(1, 8), coarse=st.booleans())
def test_histograms_of_equal_mass_are_counted(case, n_bins, coarse):
    h, y = case
    h = h.round(0 if coarse else 3)  # whole logits bring ties
    p = softmax(h, axis=1).round(12)
    fitted = HistogramBinning(n_bins=n_bins).fit(h, y)
    for i, k in enumerate([1] if h.shape[1] == 2 else range(h.shape[1])):
        knots, values = mass_oracle(p[:, k], y == k, n_bins)
        np.testing.assert_allclose(of_class(fitted, i)[0], knots, atol=1e-11)
        np.testing.assert_allclose(of_class(fitted, i)[1], values, rtol=1e-12)


def test_histograms_of_equal_width_are_counted():
    h, y = draw(500, 3)
    fitted = HistogramBinning(strategy="uniform", n_bins=10).fit(h, y)
    p = softmax(h, axis=1)
    expected = np.empty((500, 3))
    for k in range(3):
        knots, values = of_class(fitted, k)
        np.testing.assert_allclose(knots, np.arange(10) / 10)
        bin_of = (10 * p[:, k]).astype(int).clip(0, 9)
        for b in range(10):
            assert values[b] == pytest.approx((y == k)[bin_of == b].mean(), rel=1e-12)
        expected[:, k] = values[bin_of]
    np.testing.assert_allclose(fitted.predict_proba(h), normalised(expected), rtol=1e-12)


def test_rounding_makes_no_difference_between_equal_samples():
    """The same probabilities in another order sum to something slightly else; a border must not fall between them."""
    rng = np.random.default_rng(0)
    base = np.array([0.1, 0.7, -1.3, 2.2])
    h = np.array([np.r_[rng.permutation(base), 1.0] for _ in range(40)])
    assert len(set(softmax(h, axis=1)[:, 4])) > 1
    fitted = HistogramBinning(n_bins=10).fit(h, np.arange(40) % 5)
    assert fitted.map_.sizes[4] == 1


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_sample_says_nothing_about_what_is_masked(method):
    h, y = draw(400, 4)
    h[:200, 3] = -np.inf
    h[:50, 1:] = -np.inf  # class 0 alone is possible
    y = np.where((np.arange(400) < 200) & (y == 3), 0, y)
    y[:50] = 0
    whole, some, rest = (method.__class__(**method.get_params()).fit(h[i:], y[i:]) for i in (0, 50, 200))
    np.testing.assert_allclose(of_class(whole, 3)[1], of_class(rest, 3)[1], rtol=1e-12)
    np.testing.assert_allclose(whole.map_.values, some.map_.values, rtol=1e-12)
    p = whole.predict_proba(h)
    assert (p[np.isneginf(h)] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    always = np.where(np.arange(4) == 3, -np.inf, draw(400, 4)[0])
    knots, values = of_class(method.fit(always, draw(400, 3)[1]), 3)
    middle = 0.5 / len(knots) if method.method == "histogram" else 0
    np.testing.assert_allclose(values, knots + middle, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_sample_of_almost_no_weight_keeps_a_finite_loss(method):
    h = np.zeros((3, 2))
    fitted = method.fit(h, [1, 1, 0], [1e12, 1e12, 1e-12])
    assert np.isfinite(fitted.fit_report_.nll)
    assert 0 < fitted.predict_proba(h)[0, 0] < 1e-15


def test_a_knot_of_isotonic_regression_keeps_scikit_learns_value():
    h, y = draw(300, 3)
    p = softmax(h, axis=1)
    fitted = IsotonicCalibration().fit(h, y)
    for k in range(3):
        model = IsotonicRegression(out_of_bounds="clip").fit(p[:, k], y == k)
        knots, values = of_class(fitted, k)
        np.testing.assert_allclose(model.predict(knots), values, atol=1e-14)
