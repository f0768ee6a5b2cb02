"""Platt scaling is scikit-learn's sigmoid, finished; beta calibration is the constrained optimum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn._loss import HalfBinomialLoss
from sklearn.calibration import _sigmoid_calibration
from sklearn.linear_model import LogisticRegression

from attemper import BetaCalibration, PlattScaling

from data import draw

METHODS = [PlattScaling(), PlattScaling(targets="labels"), BetaCalibration(), BetaCalibration(targets="platt")]


def log_odds(h):
    """h_k − log Σ_{j≠k} exp(h_j), class by class."""
    others = [np.logaddexp.reduce(np.delete(h, k, axis=1), axis=1) for k in range(h.shape[1])]
    return h - np.stack(others, axis=1)


def platt_targets(positive, w):
    plus, minus = w[positive].sum(), w[~positive].sum()
    return np.where(positive, (plus + 1) / (plus + 2), 1 / (minus + 2))


def loss(z, t, w):
    """scikit-learn's own objective."""
    return float(HalfBinomialLoss().loss(y_true=t, raw_prediction=z, sample_weight=w).sum() / w.sum())


def finished(s, t, w, a, c):
    """Finish scikit-learn's answer: Newton's method on its own objective and derivatives."""
    x = np.stack([s, np.ones_like(s)])
    theta = np.array([a, c])
    for _ in range(20):
        g, h = HalfBinomialLoss().gradient_hessian(y_true=t, raw_prediction=theta @ x, sample_weight=w)
        theta = theta - np.linalg.solve((h * x) @ x.T, x @ g)
    return theta


@pytest.mark.parametrize("n, n_classes, scale", [(50, 2, 3.0), (2000, 2, 3.0), (1000, 5, 3.0), (400, 3, 40.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_scikit_learn_on_the_same_scores(n, n_classes, scale, weighted):
    h, y = draw(n, n_classes, scale, t=scale / 2)
    w = np.random.default_rng(1).uniform(0.2, 3, n) if weighted else np.ones(n)
    m = PlattScaling().fit(h, y, w).map_
    np.testing.assert_array_equal(m.a, m.b)
    s = log_odds(h)
    for k in range(1, n_classes) if n_classes == 2 else range(n_classes):
        t = platt_targets(y == k, w)
        a, c = (-v for v in _sigmoid_calibration(s[:, k], (y == k).astype(float), w))
        theirs, ours = (loss(slope * s[:, k] + shift, t, w) for slope, shift in ((a, c), (m.a[k], m.c[k])))
        assert ours <= theirs + 1e-15
        assert theirs - ours < 1e-10
        a, c = finished(s[:, k], t, w, a, c)
        np.testing.assert_allclose(expit(m.a[k] * s[:, k] + m.c[k]), expit(a * s[:, k] + c), atol=1e-11)


def test_labels_as_targets_are_logistic_regression():
    h, y = draw(500, 3)
    m = PlattScaling(targets="labels").fit(h, y).map_
    s = log_odds(h)
    for k in range(3):
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(s[:, k : k + 1], y == k)
        np.testing.assert_allclose([m.a[k], m.c[k]], [model.coef_[0, 0], model.intercept_[0]], rtol=1e-8)


def beta_oracle(p, y):
    """As the paper has it: fit both slopes, drop a negative one, fit again."""
    x = np.stack([np.log(p), -np.log1p(-p)], axis=1)
    used = [0, 1]
    while True:
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(x[:, used], y)
        if (model.coef_ >= 0).all():
            theta = np.zeros(2)
            theta[used] = model.coef_[0]
            return [*theta, model.intercept_[0]]
        used = [f for f, slope in zip(used, model.coef_[0]) if slope >= 0]


@pytest.mark.parametrize("a, b", [(0.7, 1.4), (2.0, 0.3), (1.2, -0.6), (-0.6, 1.2)])
def test_beta_agrees_with_the_paper(a, b):
    rng = np.random.default_rng(0)
    p = rng.beta(0.7, 0.7, 3000).clip(1e-6, 1 - 1e-6)
    y = (a * np.log(p) - b * np.log1p(-p) + rng.logistic(size=3000) > 0).astype(int)
    m = BetaCalibration(input="probs").fit(np.stack([1 - p, p], axis=1), y).map_
    expected = beta_oracle(p, y)
    np.testing.assert_allclose([m.a[1], m.b[1], m.c[1]], expected, rtol=1e-7)
    np.testing.assert_array_equal([m.a[0], m.b[0], m.c[0]], [m.b[1], m.a[1], -m.c[1]])
    assert (m.a[1] == 0, m.b[1] == 0) == (a < 0, b < 0)


def test_beta_of_many_classes_beats_a_general_optimiser():
    h, y = draw(600, 4)
    fitted = BetaCalibration().fit(h, y)
    p = np.exp(log_softmax(h, axis=1))
    for k in range(4):
        x = np.stack([np.log(p[:, k]), -np.log1p(-p[:, k]), np.ones(600)])

        def objective(theta, x=x, k=k):
            return loss(theta @ x, (y == k).astype(float), np.ones(600))

        ours = objective(np.array([fitted.map_.a[k], fitted.map_.b[k], fitted.map_.c[k]]))
        theirs = minimize(objective, [1, 1, 0], bounds=[(0, None), (0, None), (None, None)], method="L-BFGS-B").fun
        assert ours <= theirs + 1e-12
        assert theirs - ours < 1e-4


@pytest.mark.parametrize("method", [PlattScaling, BetaCalibration])
def test_what_a_threshold_separates_takes_platts_targets(method):
    h, _ = draw(200, 2)
    y = (h[:, 1] > h[:, 0]).astype(int)
    by_labels, by_platt = (method(targets=t).fit(h, y) for t in ("labels", "platt"))
    np.testing.assert_array_equal(by_labels.map_.a, by_platt.map_.a)
    y[h[:, 1].argmax()] = 0  # no longer
    by_labels, by_platt = (method(targets=t).fit(h, y) for t in ("labels", "platt"))
    assert (by_labels.map_.a != by_platt.map_.a).any()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_sample_says_nothing_about_what_is_masked(method):
    h, y = draw(400, 4)
    h[:200, 3] = -np.inf
    h[:50, 1:] = -np.inf  # class 0 alone is possible
    y = np.where((np.arange(400) < 200) & (y == 3), 0, y)
    y[:50] = 0
    m = method.fit(h, y).map_
    rest = method.fit(h[200:], y[200:]).map_
    assert m.a[3] == pytest.approx(rest.a[3], rel=1e-8)
    assert m.c[3] == pytest.approx(rest.c[3], rel=1e-8)
    rest = method.fit(h[50:], y[50:]).map_
    np.testing.assert_allclose(m.a, rest.a, rtol=1e-8)
    always = np.where(np.arange(4) == 3, -np.inf, draw(400, 4)[0])
    m = method.fit(always, draw(400, 3)[1]).map_
    assert (m.a[3], m.b[3], m.c[3]) == (1, 1, 0)
