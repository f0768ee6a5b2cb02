"""Other class priors: shares in closed form, EM and its evidence, intervals, and the test of label shift."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln, softmax

import attemper
from attemper import GroupedCalibrator, InputError, LabelShiftError, Scores, TemperatureScaling, VectorScaling, metrics
from attemper.kernels.priors import em_step, evidence, most_likely_priors, resampled_priors
from attemper.priors import as_priors, estimate_priors, shift_test
from conftest import draw

OLD, NEW = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


def shifted(n, shares=OLD, seed=0):
    """Labels with these shares; logits whose distribution given the class is fixed, those of T = 1 under OLD."""
    data = draw(4 * n, 4, t=1.0, seed=seed)  # a quarter of each class
    rows = np.flatnonzero(np.random.default_rng(seed).random(4 * n) < shares[data.y] / shares.max())[:n]
    return data.h[rows] + np.log(OLD), data.y[rows]


def closed_form(p, new, old):
    q = p * (new / old)
    return q / q.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("values", [[90, 10], [0.5, 0.4], [0.5], {"a": 1.0}, {"a": 0.5, "c": 0.5}, [np.nan, 1], "ab"])
def test_wrong_shares_name_their_parameter(values):
    with pytest.raises(InputError) as error:
        as_priors(values, ["a", "b"], "old")
    assert error.value.param == "old"


# Known priors


@pytest.mark.parametrize("recipe", [TemperatureScaling(), VectorScaling()], ids=lambda r: type(r).__name__)
def test_known_priors_are_the_closed_form(recipe, tmp_path):
    cal, h = recipe.fit(*shifted(600)), shifted(50, seed=1)[0]
    p, adapted = cal.predict_proba(h), cal.with_priors(NEW, OLD)
    expected = closed_form(p, NEW, OLD)
    np.testing.assert_allclose(adapted.predict_proba(h), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(adapted.predict(h), expected.argmax(axis=1))
    adapted.save(tmp_path / "adapted.json")
    assert attemper.load(tmp_path / "adapted.json").report_.changed is adapted.report_.changed is None
    assert str(adapted) != str(cal)
    np.testing.assert_array_equal(attemper.load(tmp_path / "adapted.json").predict_proba(h), adapted.predict_proba(h))
    np.testing.assert_array_equal(cal.predict_proba(h), p)  # which stays as it was
    (x, y), w = shifted(600), 1.0 + np.arange(600) % 3
    weighted = recipe.fit(x, y, w)
    np.testing.assert_allclose(weighted.priors_, np.average(weighted.predict_proba(x), axis=0, weights=w), atol=1e-6)


@given(st.lists(st.floats(0.01, 1), min_size=8, max_size=8))
def test_priors_compose_and_come_back(numbers):
    first, second = (np.array(part) / sum(part) for part in (numbers[:4], numbers[4:]))
    cal, h = TemperatureScaling().fit(*shifted(200)), shifted(20, seed=1)[0]
    once = cal.with_priors(second, old=OLD)
    step = cal.with_priors(first, old=OLD).with_priors(second)  # from the priors that it has then
    np.testing.assert_allclose(step.predict_proba(h), once.predict_proba(h), rtol=1e-11)
    np.testing.assert_allclose(step.with_priors(OLD).predict_proba(h), cal.predict_proba(h), rtol=1e-11)


def test_a_class_without_a_share_is_practically_impossible():
    cal, h = TemperatureScaling().fit(*shifted(200)), shifted(5, seed=1)[0]
    p = cal.with_priors([0.5, 0.5, 0, 0], OLD).predict_proba(h)
    assert (p[:, 2:] < 1e-9).all()
    alone = cal.with_priors([0.5, 0.5, 0, 0], OLD).predict_proba([[-np.inf, -np.inf, -np.inf, 1.0]])
    np.testing.assert_array_equal(alone, [[0, 0, 0, 1]])
    assert p.sum(axis=1) == pytest.approx(1)
    with pytest.raises(InputError) as error:
        cal.with_priors(NEW, old=[0.5, 0.5, 0, 0])
    assert error.value.param == "old"


# Estimated priors


def test_the_most_likely_priors_are_those_of_plain_em_with_a_certificate():
    p = softmax(shifted(400, NEW, seed=3)[0], axis=1)
    priors = OLD
    for _ in range(3000):
        priors = closed_form(p, priors, OLD).mean(axis=0)
    found = estimate_priors(p, OLD)
    assert found.most_likely == pytest.approx(priors, abs=1e-6)
    assert 0 <= found.gap < 1e-9
    likelihoods = p / OLD
    np.testing.assert_allclose(em_step(likelihoods, np.ones(400), priors), closed_form(p, priors, OLD).mean(axis=0))
    best = most_likely_priors(likelihoods, tolerance=1e-3)
    value = np.log(likelihoods @ best.priors).mean()
    assert value <= np.log(likelihoods @ priors).mean() <= value + best.gap + 1e-12


def test_every_form_of_probabilities_is_read_alike():
    torch = pytest.importorskip("torch")
    data, old = draw(200, 2), np.array([0.6, 0.4])
    p, y = data.p, data.y
    risk = torch.tensor(p[:, 1], requires_grad=True)
    expected, test = estimate_priors(p, old).priors, shift_test(p, y, p)
    for form in (p[:, 1], p[:, 1:], risk, torch.tensor(p, requires_grad=True)):
        np.testing.assert_allclose(estimate_priors(form, old).priors, expected, rtol=1e-6)
        assert shift_test(form, y, form).p_value == test.p_value
    for param, call in (
        ("data", lambda: estimate_priors(2 * p, old)),
        ("labels", lambda: shift_test(p, np.array(["a", "b"])[y], p)),
        ("clusters", lambda: estimate_priors(p, old, clusters=[1, 2])),
        ("confidence_level", lambda: estimate_priors(p, old, confidence_level=95)),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert error.value.param == param


def test_the_evidence_of_two_classes_is_the_integral():
    """Laplace's approximation against the integral over the share, on a fine grid."""
    rng = np.random.default_rng(0)
    rows, mean = rng.uniform(0.05, 1, size=(80, 2)), np.array([0.3, 0.7])
    share = (np.arange(20_000) + 0.5) / 20_000
    log_l = np.log(rows / rows.max(axis=1, keepdims=True) @ np.stack([share, 1 - share])).sum(axis=0)
    for c in (3.0, 30.0, 300.0):
        a, b = c * mean
        log_prior = gammaln(c) - gammaln(a) - gammaln(b) + (a - 1) * np.log(share) + (b - 1) * np.log1p(-share)
        exact = np.log(np.exp(log_l + log_prior - 50).mean()) + 50
        assert evidence(rows, np.ones(80), mean, c)[0] == pytest.approx(exact, abs=0.1)


def test_a_shift_is_found_and_no_shift_is_left_alone():
    reference = softmax(shifted(2000)[0], axis=1).mean(axis=0)
    found = estimate_priors(softmax(shifted(4000, NEW, seed=2)[0], axis=1), reference, n_reference=2000)
    assert np.abs(found.priors - NEW).sum() < 0.08
    assert ((found.low <= NEW) & (found.high >= NEW)).all()
    same = estimate_priors(softmax(shifted(100, seed=5)[0], axis=1), OLD)
    assert np.abs(same.priors - OLD).sum() < 0.5 * np.abs(same.most_likely - OLD).sum() + 1e-9
    assert same.concentration is None or same.concentration > 10
    # A reference of few cases leaves less to say: the estimate stays nearer to the old shares.
    near, far = (
        np.abs(estimate_priors(softmax(shifted(400, NEW, 2)[0], axis=1), OLD, n_reference=n).priors - OLD).sum()
        for n in (9, None)
    )
    assert near < far


def test_clusters_make_intervals_wider_and_classes_without_labels_keep_their_share():
    p = softmax(shifted(150, NEW, seed=8)[0], axis=1)
    rows, ids = np.repeat(p, 10, axis=0), np.repeat(np.arange(150), 10)
    plain, by_case = estimate_priors(rows, OLD), estimate_priors(rows, OLD, clusters=ids)
    assert (by_case.high - by_case.low).mean() > 1.4 * (plain.high - plain.low).mean()
    assert by_case.n_cases == 150
    found = estimate_priors(p, OLD, labelled=[True, True, True, False])
    assert found.priors[3] == pytest.approx(OLD[3])


def test_resamples_in_one_step_are_close_to_those_solved(monkeypatch):
    likelihoods = softmax(shifted(3000, NEW, seed=4)[0], axis=1) / OLD
    best = most_likely_priors(likelihoods).priors
    rng = np.random.default_rng(0)
    draws = [
        (np.bincount(rng.integers(0, 3000, 3000), minlength=3000).astype(float), OLD / rng.dirichlet(3000 * OLD))
        for _ in range(20)
    ]
    exact = resampled_priors(likelihoods, best, draws, 20)
    monkeypatch.setattr("attemper.kernels.priors.EXACT_COST", 0)
    assert np.abs(resampled_priors(likelihoods, best, draws, 20) - exact).max() < 0.005


# Label shift


def test_the_level_of_the_shift_test():
    rejected = 0
    for seed in range(40):
        (h, y), new = shifted(500, seed=2 * seed), shifted(500, NEW, seed=2 * seed + 1)[0]
        rejected += shift_test(softmax(h, axis=1), y, softmax(new, axis=1), seed=seed).p_value <= 0.1
    assert rejected <= 10  # P(Bin(40, .1) > 10) = .1 %


@pytest.mark.parametrize("method", ["ts", "bayes", "structured"])
def test_without_a_shift_nothing_is_adapted_though_the_classifier_learned_other_shares(method):
    (h, y), (new, y_new) = shifted(2000), shifted(2000, seed=1)
    biased = np.log(NEW) - np.log(OLD)  # the classifier was trained where the shares were these
    cal = attemper.fit(h + biased, y, method=method)
    before, after = (metrics.nll(y_new, c.predict_proba(new + biased)) for c in (cal, cal.adapt(new + biased)))
    assert after < before + 0.01
    with pytest.raises(InputError) as error:
        attemper.fit(attemper.sketch(h, y)).adapt(new)
    assert error.value.param == "validation"


@pytest.mark.parametrize("change", ["sharper", "noise"])
def test_what_is_no_label_shift_is_refused(change):
    val, new = shifted(2000), shifted(3000, NEW, seed=4)[0]
    cal = TemperatureScaling().fit(*val)
    adapted = cal.adapt(new, validation=val)
    assert np.abs(adapted.priors_ - NEW).sum() < 0.1
    new = 2 * new if change == "sharper" else new + 2 * np.random.default_rng(0).normal(size=new.shape)
    with pytest.raises(LabelShiftError):
        cal.adapt(new, validation=Scores.of(*val))
    test = shift_test(softmax(val[0], axis=1), val[1], softmax(new, axis=1))
    assert not test.plausible
    assert test.unexplained > 0.02


def test_many_classes_are_tested_by_confidence():
    data = draw(400, 40)
    p, y = data.p, data.y
    assert shift_test(p, y, p, priors=np.bincount(y, minlength=40) / 400).plausible
    with pytest.raises(InputError) as error:
        shift_test(p, y, p)
    assert error.value.param == "priors"


def test_validation_data_have_groups_of_their_own():
    (h, y), new = shifted(2000), shifted(3000, NEW, seed=4)[0]
    site, new_site = np.where(np.arange(2000) % 3, "a", "b"), np.where(np.arange(3000) % 2, "a", "b")
    cal = GroupedCalibrator(TemperatureScaling()).fit(h, y, groups=site)
    adapted = cal.adapt(new, validation=Scores.of(h, y, groups=site), groups=new_site)
    assert np.abs(adapted.priors_ - NEW).sum() < 0.1


def test_copies_in_a_case_of_the_validation_data_count_once():
    (h, y), new, thrice = shifted(200), shifted(2000, NEW, seed=4)[0], np.repeat(np.arange(200), 3)
    p, q = softmax(h, axis=1), softmax(1.3 * new, axis=1)
    once, copies = shift_test(p, y, q), shift_test(p[thrice], y[thrice], q, val_clusters=thrice)
    assert copies.p_value == pytest.approx(once.p_value, abs=0.01)
    assert copies.unexplained == pytest.approx(once.unexplained, abs=1e-3)
    few, thrice = shift_test(p, y, q[:100]), np.repeat(np.arange(100), 3)
    assert shift_test(p, y, q[thrice], clusters=thrice).unexplained == pytest.approx(few.unexplained, abs=1e-3)


def test_weights_of_the_evidence_are_repeats():
    rng = np.random.default_rng(0)
    rows, w = rng.uniform(0.05, 1, size=(80, 3)), rng.integers(1, 5, 80)
    for c in (3.0, 300.0):
        of_weights = evidence(rows, w.astype(float), np.array([0.5, 0.3, 0.2]), c)[0]
        repeats = evidence(np.repeat(rows, w, axis=0), np.ones(w.sum()), np.array([0.5, 0.3, 0.2]), c)[0]
        assert of_weights == pytest.approx(repeats, rel=1e-9)


def test_adapting_counts_cases_of_the_validation_data():
    cal, new, many = TemperatureScaling().fit(*shifted(2000)), shifted(3000, seed=1)[0], np.repeat(np.arange(60), 50)
    h, y = (a[many] for a in shifted(60, seed=2))
    with pytest.raises(LabelShiftError):  # sixty rows are not like 3000
        cal.adapt(new, validation=(h, y))
    assert cal.adapt(new, validation=Scores.of(h, y, clusters=many)).adapted_.n_cases == 3000


def test_intervals_of_adapted_priors_count_the_cases_of_the_validation_data():
    cal, new, many = TemperatureScaling().fit(*shifted(2000)), shifted(3000, seed=1)[0], np.repeat(np.arange(200), 10)
    h, y = shifted(200, seed=2)
    alone = cal.adapt(new, validation=(h, y)).adapted_
    cases = cal.adapt(new, validation=Scores.of(h[many], y[many], clusters=many)).adapted_
    assert cases.high - cases.low == pytest.approx(alone.high - alone.low, rel=0.3)


def test_the_mean_prediction_is_that_of_all_rows():
    data = draw(3000, 120)
    cal = TemperatureScaling().fit(data.h, data.y)
    np.testing.assert_allclose(cal.priors_, cal.predict_proba(data.h).mean(axis=0), atol=1e-7)
