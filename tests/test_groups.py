"""Groups: temperatures that partial pooling finds, one more stage for each, and files."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, GroupedCalibrator, TemperatureScaling
from attemper.calibrators.temperature import with_effective_weights
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, InputError
from conftest import draw

DATA = draw(1800, 4, groups=3)
H, Y, SITE, N = DATA.h, DATA.y, DATA.group, 1800


def fitted(method="ts", **ids):
    return GroupedCalibrator(method).fit(H, Y, groups=SITE, **ids)


@pytest.mark.parametrize("method", ["ts", "ats", "bayes", "structured", "vector"])
def test_temperatures_of_groups_are_found(method):
    cal = fitted(method)
    own = [TemperatureScaling().fit(H[g == SITE], Y[g == SITE]) for g in cal.groups_.group]
    ratio = np.array(cal.groups_.temperature_ratio)
    expected = np.array([each.temperature_ for each in own])
    np.testing.assert_allclose(ratio / ratio[1], expected / expected[1], rtol=0.08)  # many labels, little pooling
    truth = np.exp([-0.5, 0, 0.5])  # relative to the common one, which is near that of the second
    assert (np.array(cal.groups_.ratio_low) < truth).all()
    assert (np.array(cal.groups_.ratio_high) > truth).all()
    assert cal.groups_.n_samples == (600, 600, 600)
    assert min(cal.groups_.own_share) > 0.9
    assert cal.groups_.error < 1e-3


def test_few_labels_are_drawn_to_the_common_map():
    few = np.concatenate([np.flatnonzero(SITE == "site 0")[:5], np.flatnonzero(SITE != "site 0")])
    cal = GroupedCalibrator("ts").fit(H[few], Y[few], groups=SITE[few])
    assert cal.groups_.own_share[0] < 0.7 < cal.groups_.own_share[1]
    same = draw(2000, 4, groups=8)
    alike = GroupedCalibrator("ts").fit(same.h, draw(2000, 4).y, groups=same.group)
    assert np.abs(np.log(alike.groups_.temperature_ratio)).max() < 0.1
    assert alike.groups_.spread < 0.1


def test_clusters_count_as_cases():
    thrice = np.repeat(np.arange(N), 3)
    alone, cases = (GroupedCalibrator("ts"), GroupedCalibrator("ts"))
    alone.fit(H, Y, groups=SITE)
    cases.fit(H[thrice], Y[thrice], groups=SITE[thrice], clusters=thrice)
    for name in ("temperature_ratio", "ratio_low", "ratio_high"):
        np.testing.assert_allclose(getattr(cases.groups_, name), getattr(alone.groups_, name), rtol=0.02)


def test_wrong_labels_are_counted_in_the_groups_too():
    data = draw(3000, 2, noise=0.25, groups=2)
    cal = GroupedCalibrator(BayesianTemperatureScaling(noise=0.25)).fit(data.h, data.y, groups=data.group)
    assert cal.groups_.temperature_ratio[0] < 1 < cal.groups_.temperature_ratio[1]


def test_each_row_gets_the_map_of_its_group():
    cal = fitted()
    p = cal.predict_proba(H, groups=SITE)
    for group, ratio in zip(cal.groups_.group, cal.groups_.temperature_ratio):
        own = group == SITE
        np.testing.assert_array_equal(p[own], cal.map_of(group).apply(H[own]))
        z = np.exp(H[own] / (cal.common_.temperature_ * ratio))
        np.testing.assert_allclose(p[own], z / z.sum(axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_array_equal(cal.predict_proba(H[:3], groups=["elsewhere"] * 3), cal.common_.predict_proba(H[:3]))
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(cal.predict_proba(H[order], groups=SITE[order]), p[order])
    assert (cal.predict(H, groups=SITE) == H.argmax(axis=1)).all()
    np.testing.assert_allclose(np.exp(cal.predict_log_proba(H, groups=SITE)), p, rtol=1e-9)
    np.testing.assert_allclose(cal.report_.nll, -np.log(p[np.arange(N), Y]).mean(), rtol=1e-10)


def test_groups_by_number_are_those_by_text():
    codes = np.unique(SITE, return_inverse=True)[1]
    cal = GroupedCalibrator("ts").fit(H, Y, groups=codes)
    for kind in (str, float, object):
        np.testing.assert_array_equal(
            cal.predict_proba(H, groups=codes.astype(kind)), cal.predict_proba(H, groups=codes)
        )


def test_many_rows_focus_on_the_scales_that_matter(monkeypatch):
    expected = fitted().groups_.temperature_ratio
    monkeypatch.setattr("attemper.calibrators.groups.LARGE", 1 << 10)
    np.testing.assert_allclose(fitted().groups_.temperature_ratio, expected, rtol=1e-5)


def test_other_priors_are_applied_after_the_temperature_of_the_group():
    cal = fitted()
    old, new = np.full(4, 0.25), np.array([0.4, 0.3, 0.2, 0.1])
    tilted = cal.predict_proba(H, groups=SITE) * new
    made = cal.with_priors(new, old)
    p = made.predict_proba(H, groups=SITE)
    np.testing.assert_allclose(p, tilted / tilted.sum(axis=1, keepdims=True), rtol=1e-9)
    back = made.with_priors(old).predict_proba(H, groups=SITE)
    np.testing.assert_allclose(back, cal.predict_proba(H, groups=SITE), rtol=1e-9)


@pytest.mark.parametrize(("call", "param"), [
    (lambda: GroupedCalibrator("ts").fit(H, Y), "groups"),
    (lambda: GroupedCalibrator("ts").fit(H, groups=SITE), "y"),
    (lambda: GroupedCalibrator("ts").fit(H, Y, groups=SITE[1:]), "groups"),
    (lambda: GroupedCalibrator("no").fit(H, Y, groups=SITE), "method"),
    (lambda: fitted().predict_proba(H), "groups"),
    (lambda: fitted().predict_risk(H, groups=SITE), "X"),
])  # fmt: skip
def test_refused(call, param):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.param == param


def test_no_rows_have_no_predictions():
    data = draw(300, 3, groups=2)
    cal = GroupedCalibrator("ts").fit(data.h, data.y, groups=data.group)
    assert cal.predict_proba(data.h[:0], groups=data.group[:0]).shape == (0, 3)


def test_the_nll_of_the_fit_is_weighted():
    cal = fitted(sample_weight=1 + DATA.w)
    losses = -np.log(cal.predict_proba(H, groups=SITE)[np.arange(N), Y])
    assert cal.report_.nll == pytest.approx(np.average(losses, weights=1 + DATA.w), rel=1e-9)


def test_few_cases_have_wider_intervals_of_groups():
    few = np.arange(N) % 4
    alone, cases = (GroupedCalibrator("ts").fit(H, Y, groups=SITE, clusters=c).groups_ for c in (None, few))
    wider = np.log(np.array(cases.ratio_high) / cases.ratio_low) / np.log(np.array(alone.ratio_high) / alone.ratio_low)
    assert (wider > 1.3).all()  # of Student's quantile with 3 degrees of freedom: 1.6


@pytest.mark.parametrize("method", ["ts", "ats", "vector", "structured"])
def test_weights_are_repeats_with_clusters_and_masks(method):
    data = draw(600, 4, groups=2, clusters=3, masks=0.2)
    rows = np.repeat(np.arange(600), data.w.astype(int))
    site = np.where(data.cluster % 2, "a", "b")  # a case is in one group
    one = GroupedCalibrator(method).fit(data.h, data.y, data.w, groups=site, clusters=data.cluster)
    two = GroupedCalibrator(method).fit(data.h[rows], data.y[rows], groups=site[rows], clusters=data.cluster[rows])
    for name in ("temperature_ratio", "ratio_low", "ratio_high", "own_share", "spread", "spread_interval"):
        np.testing.assert_allclose(getattr(one.groups_, name), getattr(two.groups_, name), rtol=1e-5, err_msg=name)
    assert one.report_.nll == pytest.approx(two.report_.nll, rel=1e-6)


def test_soft_labels_are_samples_of_their_group_once():
    soft = 0.9 * np.eye(4)[Y] + 0.1 / 4
    cal = GroupedCalibrator("ts").fit(H, soft, groups=SITE)
    assert cal.groups_.n_samples == (600, 600, 600)
    log_p = np.log(cal.predict_proba(H, groups=SITE))
    assert cal.report_.nll == pytest.approx(-(soft * log_p).sum(axis=1).mean(), rel=1e-9)


def test_groups_are_relative_to_the_common_map_whatever_its_aim_is():
    data = draw(3000, 4, noise=0.2)
    common = AttendedTemperatureScaling(theta=0.3)
    cal = GroupedCalibrator(common).fit(data.h, data.y, groups=np.arange(3000) % 2)
    ts = TemperatureScaling().fit(data.h, data.y)
    assert abs(np.log(cal.common_.temperature_ / ts.temperature_)) > 0.1
    np.testing.assert_allclose(cal.groups_.temperature_ratio, 1, atol=0.05)


def test_a_common_map_that_has_not_converged_is_reported(monkeypatch):
    monkeypatch.setattr("attemper.kernels.multinomial.MAX_STEPS", 1)
    with pytest.warns(ConvergenceWarning):
        assert not fitted("vector").report_.converged


def test_few_cases_have_students_quantile():
    case = np.arange(N) % 4
    w = with_effective_weights(Scores.of(H, Y, clusters=case)).weights
    found = [fitted(clusters=case).groups_, fitted(sample_weight=w).groups_]
    cases, alone = (np.log(np.array(one.ratio_high) / one.temperature_ratio) for one in found)
    np.testing.assert_allclose(cases, alone * student.ppf(0.975, 3) / norm.ppf(0.975), rtol=1e-5)


def test_groups_have_the_share_of_wrong_labels_that_was_found():
    data = draw(3000, 3, noise=0.25, groups=2)
    found = GroupedCalibrator(BayesianTemperatureScaling(noise="unknown")).fit(data.h, data.y, groups=data.group)
    known = GroupedCalibrator(BayesianTemperatureScaling(noise=0.25)).fit(data.h, data.y, groups=data.group)
    np.testing.assert_allclose(found.groups_.temperature_ratio, known.groups_.temperature_ratio, rtol=0.05)


def test_the_mean_prediction_is_that_of_the_groups():
    data = draw(900, 3, groups=2, clusters=1, seed=2)
    h = np.where(data.group[:, None] == np.unique(data.group)[0], data.h, 4 * data.h)
    cal = GroupedCalibrator("ts").fit(h, data.y, data.w, groups=data.group)
    expected = np.average(cal.predict_proba(h, groups=data.group), axis=0, weights=data.w)
    np.testing.assert_allclose(cal.priors_, expected, rtol=1e-12)
