"""Pooled curves of many labels: known truth, rare and unknown labels, left alone where there is no gain."""

from __future__ import annotations

import numpy as np
import pytest

import attemper
from attemper.calibrators.multilabel import MultiLabelCalibrator
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, InputError
from conftest import draw


def columns(n=4000, n_labels=3, t=2.0, bias=-0.5, seed=0):
    """Log-odds of labels that do not exclude each other: each entry is a sample of two classes."""
    h, y = draw(n * n_labels, 2, t=t, bias=bias, seed=seed)
    return (h[:, 1] - h[:, 0]).reshape(n, n_labels), y.reshape(n, n_labels).astype(float)


def test_truth_is_found():
    h, y = columns()
    fitted = MultiLabelCalibrator(classes=["a", "b", "c"]).fit(h, y)
    np.testing.assert_allclose(fitted.slope_, 0.5, atol=0.06)
    np.testing.assert_allclose(fitted.bias_, -0.5, atol=0.2)
    assert fitted.heldout_gain_ > 0
    assert fitted.report_.converged
    assert fitted.n_positive_.tolist() == y.sum(axis=0).tolist()
    p = 1 / (1 + np.exp(-(fitted.slope_ * h + fitted.bias_)))
    np.testing.assert_allclose(fitted.predict_proba(h), p, rtol=1e-10)
    np.testing.assert_array_equal(fitted.predict(h), p >= 0.5)


def test_calibrated_classifier_is_left_alone():
    h, y = columns(1000, t=1.0, bias=0.0, seed=3)
    fitted = MultiLabelCalibrator().fit(h, y)
    assert fitted.report_.left_alone
    np.testing.assert_array_equal(fitted.slope_, 1)
    assert fitted.report_.changed == 0


def test_scores_that_are_the_wrong_way_round():
    h, y = columns(600)
    fitted = MultiLabelCalibrator().fit(-h, y)
    assert fitted.report_.converged
    assert (fitted.slope_ > 0).all()
    assert fitted.slope_.max() < 0.01


def test_rare_labels_borrow_from_the_others():
    h, y = columns(3000, 4)
    y[30:, 3] = np.nan
    y[:2, 3] = 0, 1
    fitted = MultiLabelCalibrator().fit(h, y)
    assert fitted.own_share_[3] < 0.3 < 0.8 < fitted.own_share_[0]
    assert abs(np.log(fitted.slope_[3] / fitted.common_[0])) < 0.2


def test_unknown_entries_and_weights_of_zero_are_absent():
    h, y = columns(600)
    y[::3, 1] = np.nan
    other = h.copy()
    other[::3, 1] += 100.0
    one, two = MultiLabelCalibrator().fit(h, y), MultiLabelCalibrator().fit(other, y)
    np.testing.assert_allclose(two.slope_, one.slope_, rtol=1e-6)
    w = (np.arange(600) < 400).astype(float)
    some, weighted = MultiLabelCalibrator().fit(h[:400], y[:400]), MultiLabelCalibrator().fit(h, y, w)
    np.testing.assert_allclose(weighted.slope_, some.slope_, rtol=1e-6)


def test_labels_without_positives_get_the_common_curve():
    h, y = columns(800)
    y[:, 2] = 0
    with pytest.warns(AttemperWarning):
        fitted = MultiLabelCalibrator().fit(h, y)
    assert len(fitted.report_.notes) == 1
    assert np.isfinite(fitted.predict_log_proba(h)).all()


def test_probabilities_and_their_zeros():
    h, y = columns(800)
    p = 1 / (1 + np.exp(-h))
    a, b = MultiLabelCalibrator().fit(h, y), MultiLabelCalibrator(input="probs").fit(p, y)
    np.testing.assert_allclose(b.predict_proba(p), a.predict_proba(h), atol=1e-8)
    p[0] = [0.0, 1.0, 0.5]
    assert np.isfinite(MultiLabelCalibrator(input="probs").fit(p, y).predict_log_proba(p)).all()


def test_clusters_count_as_copies_do():
    h, y = columns(400)
    case = np.repeat(np.arange(400), 3)
    alone, copies = MultiLabelCalibrator().fit(h, y), MultiLabelCalibrator().fit(h[case], y[case], clusters=case)
    np.testing.assert_allclose(copies.slope_, alone.slope_, rtol=0.01)
    np.testing.assert_allclose(copies.own_share_, alone.own_share_, atol=0.02)
    assert MultiLabelCalibrator().fit(h, y, clusters=np.arange(400) % 3).heldout_gain_ is None  # cases are not divided


def test_labels_that_are_all_unknown():
    h, y = columns(300)
    with pytest.raises(InputError) as error:
        MultiLabelCalibrator().fit(h, np.full_like(y, np.nan))
    assert error.value.param == "labels"


def test_zeros_and_ones_are_as_far_from_the_end_as_half_of_the_nearest():
    scores = Scores.of([[0.2, 0.999], [0.0, 1.0]], input="probs", multi_label=True)
    assert scores.zeros_as == pytest.approx(0.0005)
    np.testing.assert_allclose(scores.logits[1], np.log(0.0005) * np.array([1, -1]), rtol=1e-3)


def test_unknown_entries_are_absent_from_what_clusters_show():
    case = np.repeat(np.arange(400), 3)
    h, y = (a[case] for a in columns(400))
    y[::3, 1] = np.nan
    other = h.copy()
    other[::3, 1] += 100.0
    one, two = (MultiLabelCalibrator().fit(x, y, clusters=case) for x in (h, other))
    np.testing.assert_allclose(two.own_share_, one.own_share_, rtol=1e-9)


def test_a_logit_of_minus_infinity_is_a_probability_of_zero():
    h, y = columns()
    fitted = MultiLabelCalibrator().fit(h, y)
    p = fitted.predict_proba(np.array([[-np.inf, 1, 1], [-np.inf, -np.inf, -np.inf]]))
    np.testing.assert_array_equal(p[[0, 1, 1, 1], [0, 0, 1, 2]], 0)
    one = h.copy()
    one[0, 0] = -1e9  # no mask: columns do not exclude each other
    assert np.isfinite(MultiLabelCalibrator().fit(one, y).slope_).all()
    one[0, 0] = -np.inf
    with pytest.raises(InputError) as caught:
        MultiLabelCalibrator().fit(one, y)
    assert caught.value.param == "data"


def test_entries_to_be_ignored_are_unknown():
    h, y = columns()
    known = np.where(np.random.default_rng(0).random(y.shape) < 0.2, np.nan, y)
    fitted = [Scores.of(h, labels, multi_label=True, ignore_index=ignored) for labels, ignored in
              ((known, None), (np.nan_to_num(known, nan=-1), -1))]  # fmt: skip
    slopes = [MultiLabelCalibrator().fit(scores).slope_ for scores in fitted]
    np.testing.assert_array_equal(*slopes)


def test_a_probability_that_rounds_to_1_has_its_loss_after_the_fit_too():
    x = np.where(np.arange(400)[:, None] == 0, [45.0, 0.0], np.random.default_rng(0).normal(size=(400, 2)))
    y = np.random.default_rng(1).random(x.shape) < 1 / (1 + np.exp(-x))
    y[0] = False
    cal = attemper.fit(x[200:], y[200:].astype(float), multi_label=True)
    found = attemper.evaluate((x[:200], y[:200].astype(float)), cal, metrics=["nll"])
    assert np.isfinite(found.after["nll"].value)
    assert found.before["nll"].value > 45 / 400


def test_weights_are_repeats_and_the_report_is_of_known_entries():
    h, y = columns(600)
    y[::5, 1], y[::7] = np.nan, np.nan
    w, case = np.random.default_rng(1).integers(0, 4, 600), np.arange(600) // 3
    rows = np.repeat(np.arange(600), w)
    one = MultiLabelCalibrator().fit(h, y, w, clusters=case)
    two = MultiLabelCalibrator().fit(h[rows], y[rows], clusters=case[rows])
    for name in ("slope_", "bias_", "own_share_", "n_known_", "n_positive_", "heldout_gain_"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-6, err_msg=name)
    known, p = w[:, None] * ~np.isnan(y), one.predict_proba(h)
    losses = -np.log(np.where(y == 1, p, 1 - p))
    assert one.report_.nll == pytest.approx(np.average(losses, weights=known), rel=1e-9)
    assert one.report_.changed == pytest.approx(np.average((p >= 0.5) != (h >= 0), weights=known), abs=1e-12)
    assert one.report_.n_samples == known.any(axis=1).sum()


@pytest.mark.parametrize("cases", [None, np.arange(600) // 3])
def test_the_order_of_the_labels_is_that_of_the_results(cases):
    h, y = (np.repeat(a, 3, axis=0) for a in columns(200, 4))
    y[:, 1], y[::3, 2], order = y[:, 0], np.nan, np.array([2, 0, 3, 1])
    one, two = (MultiLabelCalibrator().fit(h[:, o], y[:, o], clusters=cases) for o in (np.arange(4), order))
    for name in ("slope_", "bias_", "own_share_", "n_known_"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name)[order], rtol=1e-6, err_msg=name)
    assert two.heldout_gain_ == pytest.approx(one.heldout_gain_, rel=1e-6)


def test_one_half_is_a_finding():
    fitted = MultiLabelCalibrator().fit(*columns(1000, t=1.0, bias=0.0, seed=3))
    assert fitted.predict(np.zeros((1, 3))).tolist() == [[1, 1, 1]]  # left alone


def test_a_certain_error_has_a_finite_loss():
    x, y = columns(400)
    cal = MultiLabelCalibrator().fit(x, y)
    found = attemper.evaluate((100 * x[:50], y[:50]), cal, metrics=["nll"], multi_label=True)
    assert np.isfinite(found.after["nll"].value)


def test_one_label_is_a_vector_or_a_column():
    data = draw(300, 2)
    z, y = data.h[:, 1] - data.h[:, 0], (data.y == 1).astype(float)
    expected = attemper.fit(z[:, None], y[:, None], multi_label=True)
    for labels in (y, y.astype(bool), y.astype(object)):
        assert attemper.fit(z, labels, multi_label=True).slope_ == expected.slope_
