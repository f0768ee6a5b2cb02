"""One function of each class's probability: SciPy's and scikit-learn's optima, loops, and each method's own maths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import betaln, expit, softmax
from sklearn.isotonic import IsotonicRegression

import attemper
from attemper import BBQ, BetaCalibration, HistogramBinning, IsotonicCalibration, PlattScaling, VennAbers
from attemper.errors import InputError
from attemper.maps import Affine
from conftest import draw

import oracles

TWO = draw(900, 2, bias=0.5)
S = TWO.h[:, 1] - TWO.h[:, 0]
P = expit(S)


def log_loss(z, t):
    return np.mean(np.logaddexp(0, z) - t * z)


def test_platt_is_the_minimum_for_his_targets():
    plus = TWO.y.sum()
    t = np.where(TWO.y == 1, (plus + 1) / (plus + 2), 1 / (len(TWO.y) - plus + 2))
    best = minimize(lambda v: log_loss(v[0] * S + v[1], t), [1, 0], tol=1e-12)
    curve = PlattScaling().fit(TWO.h, TWO.y).map_.stages[0]
    np.testing.assert_allclose([curve.a[1], curve.c[1]], best.x, atol=1e-5)
    np.testing.assert_allclose([curve.a[0], curve.c[0]], best.x * [1, -1], atol=1e-5)


@pytest.mark.parametrize("fall", [False, True])
def test_beta_is_the_minimum_with_slopes_that_are_not_negative(fall):
    y = 1 - TWO.y if fall else TWO.y
    x = np.stack([np.log(P), -np.log1p(-P)])
    best = minimize(
        lambda v: log_loss(v[:2] @ x + v[2], y), [0.5, 0.5, 0], bounds=[(0, None)] * 2 + [(None, None)], tol=1e-14
    )
    curve = BetaCalibration().fit(TWO.h, y).map_.stages[0]
    at = np.array([curve.a[1], curve.b[1], curve.c[1]])
    assert log_loss(at[:2] @ x + at[2], y) == pytest.approx(best.fun, abs=1e-9)
    assert (at[:2] >= 0).all()
    np.testing.assert_allclose(at, best.x, atol=2e-3)


def test_beta_notes_classes_that_a_threshold_separates():
    logits = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    fitted = BetaCalibration().fit(logits, [0, 0, 1, 1])
    assert len(fitted.report_.notes) == 1
    assert np.isfinite(fitted.map_.stages[0].a).all()


@pytest.mark.parametrize("method", [PlattScaling, BetaCalibration])
def test_curves_of_many_classes_are_those_of_one_against_the_rest(method):
    data = draw(700, 4, bias=0.3)
    p = softmax(data.h, axis=1)
    stage = method().fit(data.h, data.y).map_.stages[0]
    for k in range(4):
        alone = method(input="probs").fit(p[:, k], (data.y == k).astype(int)).map_.stages[0]
        np.testing.assert_allclose(
            [stage.a[k], stage.b[k], stage.c[k]], [alone.a[1], alone.b[1], alone.c[1]], atol=1e-6
        )


def test_isotonic_is_that_of_scikit_learn():
    expected = IsotonicRegression(out_of_bounds="clip").fit(P, TWO.y)
    fitted = IsotonicCalibration().fit(TWO.h, TWO.y)
    new = np.linspace(-9, 9, 501)
    np.testing.assert_allclose(fitted.predict_risk(new), expected.predict(expit(new)), atol=1e-12)
    data = draw(500, 4)
    p = softmax(data.h, axis=1)
    each = [
        IsotonicRegression(out_of_bounds="clip").fit(p[:, k], data.y == k, data.w).predict(p[:, k]) for k in range(4)
    ]
    q = np.stack(each, axis=1)
    fitted = IsotonicCalibration().fit(data.h, data.y, data.w)
    np.testing.assert_allclose(fitted.predict_proba(data.h), q / q.sum(axis=1, keepdims=True), atol=1e-9)


def test_histograms_are_shares_of_bins():
    order = np.argsort(P, kind="stable")
    parts = np.array_split(order, 15)
    fitted = HistogramBinning(n_bins=15).fit(TWO.h, TWO.y).predict_risk(TWO.h)
    for part in parts:
        np.testing.assert_allclose(fitted[part], TWO.y[part].mean(), atol=1e-12)
    edges = np.linspace(0, 1, 11)
    which = np.minimum(np.searchsorted(edges, P, side="right") - 1, 9)
    fitted = HistogramBinning(n_bins=10, strategy="uniform").fit(TWO.h, TWO.y, TWO.w).predict_risk(TWO.h)
    for b in range(10):
        own = (which == b) & (TWO.w > 0)
        np.testing.assert_allclose(
            fitted[own], np.average(TWO.y[own], weights=TWO.w[own]) if own.any() else 0, atol=1e-12
        )


def test_ties_are_never_parted():
    p = np.repeat([0.2, 0.4, 0.9], [10, 5, 5])
    y = np.r_[np.zeros(8), 1, 1, 1, 1, 0, 0, 0, np.ones(5)].astype(int)
    fitted = HistogramBinning(n_bins=15, input="probs").fit(p, y)
    np.testing.assert_allclose(fitted.predict_risk([0.2, 0.4, 0.9]), [0.2, 0.4, 1.0], atol=1e-12)


def bbq(p, y, new, fewest, most):
    """Naeini et al. 2015: an average over histograms, by loops over bins."""
    order = np.argsort(p)
    x, y = p[order], y[order]
    half = np.r_[0.0, (x[1:] + x[:-1]) / 2, 1.0]
    n, scores, answers = len(x), [], []
    for bins in range(fewest, most + 1):
        middle = (np.arange(n) + 0.5) / n
        start = np.unique(np.searchsorted(middle, (np.arange(bins) - 1e-9) / bins))
        start = start[start < n]
        stop, score, answer = np.r_[start[1:], n], 0.0, 0.0
        for a, b in zip(start, stop):
            prior, centre = 2 / len(start), (half[a] + half[b]) / 2
            alpha, beta = prior * centre, prior * (1 - centre)
            m = y[a:b].sum()
            score += betaln(m + alpha, b - a - m + beta) - betaln(alpha, beta)
            if half[a] <= new < half[b]:
                answer = (m + alpha) / (b - a + prior)
        scores.append(score)
        answers.append(answer)
    share = np.exp(np.array(scores) - max(scores))
    return share @ answers / share.sum()


def test_bbq_is_an_average_over_histograms():
    p, y = P[:120], TWO.y[:120]
    root = 120 ** (1 / 3)
    fitted = BBQ(input="probs").fit(p, y)
    for new in (0.01, 0.3, 0.55, 0.99):
        naive = bbq(p, y, new, max(1, int(root / 10)), int(np.ceil(root * 10)))
        assert fitted.predict_risk([new])[0] == pytest.approx(naive, abs=1e-9)


def test_venn_abers_is_isotonic_regression_with_one_more_sample():
    p, y = P[:60], TWO.y[:60]
    fitted = VennAbers(input="probs").fit(p, y)
    for new in (0.03, 0.5, p[7], 0.97):
        low, high = (end[0, 1] for end in fitted.predict_interval([new]))
        for label, value in ((0, low), (1, high)):
            x, both = np.append(p, new), np.append(y, label)
            order = np.argsort(x, kind="stable")
            ties, first = np.unique(x[order], return_index=True)
            positive = np.add.reduceat(both[order], first)
            negative = np.add.reduceat(1 - both[order], first)
            expected = oracles.isotonic(positive, negative)[int(np.searchsorted(ties, new))]
            assert value == pytest.approx(expected, abs=1e-12)
        assert fitted.predict_risk([new])[0] == pytest.approx(high / (1 - low + high), abs=1e-12)


def test_venn_abers_intervals_of_many_classes():
    data = draw(500, 4, masks=0.2)
    fitted = VennAbers().fit(data.h, data.y)
    low, high = fitted.predict_interval(data.h)
    assert (low <= high).all()
    assert (high[np.isneginf(data.h)] == 0).all()
    alone = fitted.predict_interval(np.where(np.arange(4) == 2, 1.0, -np.inf)[None])
    np.testing.assert_array_equal(alone, np.broadcast_to([0.0, 0.0, 1.0, 0.0], (2, 1, 4)))
    fitted.map_ = fitted.map_.then(Affine.of(1.0, np.zeros(4)))
    with pytest.raises(InputError):
        fitted.predict_interval(data.h)


@pytest.mark.parametrize("params", [{"n_bins": 0}, {"n_bins": 2.5}, {"strategy": "odd"}])
def test_errors(params):
    with pytest.raises(InputError) as caught:
        HistogramBinning(**params).fit(TWO.h, TWO.y)
    assert caught.value.param == next(iter(params))


def test_the_columns_of_an_interval_go_by_name():
    data = draw(400, 3)
    frame = pd.DataFrame(data.h, columns=["logit_a", "logit_b", "logit_c"])
    fitted = attemper.fit(frame.assign(label=np.array(["a", "b", "c"])[data.y]), method="venn_abers")
    for end, turned in zip(fitted.predict_interval(frame), fitted.predict_interval(frame[frame.columns[::-1]])):
        np.testing.assert_array_equal(end, turned)


def test_intervals_of_pixels_are_those_of_rows():
    data = draw(600, 4)
    images, labels = np.moveaxis(data.h.reshape(20, 6, 5, 4), -1, 1), data.y.reshape(20, 6, 5)
    cal = attemper.fit(images, labels, axis=1, method="venn_abers")
    rows = VennAbers().fit(data.h, data.y)
    for found, expected in zip(cal.predict_interval(images), rows.predict_interval(data.h)):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("method", [BBQ, HistogramBinning, IsotonicCalibration, VennAbers])
def test_large_weights_are_many_repeats(method):
    rows = np.repeat(np.arange(150), 40)
    one, two = method().fit(S[:150], TWO.y[:150], np.full(150, 40.0)), method().fit(S[rows], TWO.y[rows])
    np.testing.assert_allclose(one.predict_proba(S), two.predict_proba(S), atol=1e-9)


def test_a_probability_on_the_border_of_two_bins_is_in_the_upper_one():
    p = [0.25, 0.5, 0.5, 0.75]
    fitted = HistogramBinning(strategy="uniform", n_bins=2, input="probs").fit(p, [0, 1, 1, 0])
    np.testing.assert_allclose(fitted.predict_risk(p), [0, 2 / 3, 2 / 3, 2 / 3], atol=1e-12)


def test_separable_is_what_ties_at_the_threshold_and_masked_rows_leave_so():
    assert len(BetaCalibration().fit([-1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1]).report_.notes) == 1
    h, y = draw(300, 3)
    top, hidden = h[:, :2].max(axis=1), (np.arange(300) % 3 == 0) & (y < 2)
    h[:, 2] = np.where(hidden, -np.inf, top - np.where(y == 2, 1.0, 9.0))
    assert len(BetaCalibration().fit(h, y).report_.notes) == 1  # of class 2, wherever it is possible


def test_both_classes_have_the_same_interval():
    low, high = VennAbers().fit(S, TWO.y).predict_interval(S)
    assert (low <= high).all()
    np.testing.assert_allclose(low, 1 - high[:, ::-1], atol=1e-12)


def test_a_bin_without_samples_has_its_middle():
    p = np.array([0.1, 0.1, 0.9, 0.9])
    curve = HistogramBinning(n_bins=5, strategy="uniform", input="probs").fit(p, [0, 1, 1, 1])
    np.testing.assert_allclose(curve.predict_risk(np.array([0.5])), 0.5)
