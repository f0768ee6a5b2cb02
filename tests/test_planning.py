"""Plans: closed forms as oracles, what more labels bring, and what a pilot cannot answer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import attemper
from attemper import InputError, Scores, TemperatureScaling, metrics
from attemper.decisions.certificates import most_errors
from attemper.kernels.information import information
from attemper.planning import (
    choose_samples,
    labels_for_certificate,
    labels_for_coverage,
    labels_for_metric,
    labels_for_temperature,
    typical_network,
)
from attemper.planning.choosing import _inclusion
from attemper.planning.plan import curve_around

from data import draw

Z = 1.959963984540054


# T


def test_labels_for_a_temperature_follow_from_the_information():
    h, y = draw(500, 5)
    t = TemperatureScaling().fit(h, y).temperature_
    mean = information(h, t)[:, 0].mean()
    for width in (1.05, 1.2, 2.0):
        plan = labels_for_temperature(h, y, width=width)
        assert plan.n_samples == math.ceil((2 * Z / math.log(width)) ** 2 / mean)
        assert labels_for_temperature(h, width=width, temperature=t).n_samples == plan.n_samples
    assert plan.curve["width"][plan.curve["n_samples"] == plan.n_samples] <= 2.0


def test_as_many_labels_as_the_pilot_has_leave_its_own_interval():
    h, y = draw(600, 4)
    ts = TemperatureScaling().fit(h, y)
    low, high = ts.temperature_interval_
    assert labels_for_temperature(h, y, width=high / low).n_samples == pytest.approx(600, abs=1)


def test_as_many_clusters_as_the_pilot_has_leave_its_own_interval():
    h, y = (np.repeat(a, 2, axis=0) for a in draw(200, 4))
    case = np.repeat(np.arange(200), 2)
    low, high = TemperatureScaling().fit(h, y, clusters=case).temperature_interval_
    plan = labels_for_temperature(h, y, width=high / low, clusters=case)
    assert (plan.n_samples, plan.n_clusters) == (pytest.approx(400, abs=2), pytest.approx(200, abs=1))


@settings(max_examples=30)
@given(st.floats(1.01, 3), st.floats(1.01, 3), st.floats(0, 0.5), st.floats(0.5, 0.99))
def test_more_is_asked_more_is_needed(one, other, noise, level):
    h, _ = draw(60, 4)
    narrow, wide = (
        labels_for_temperature(h, width=w, temperature=2.0, noise=noise, confidence_level=level)
        for w in sorted([one, other])
    )
    assert narrow.n_samples >= wide.n_samples
    assert (np.diff(narrow.curve["width"]) <= 0).all()
    clean = labels_for_temperature(h, width=min(one, other), temperature=2.0, confidence_level=level)
    assert clean.n_samples <= narrow.n_samples
    low, high = narrow.n_range
    assert low <= narrow.n_samples <= high


def test_weights_count_repeats_and_kinds_of_input_agree():
    h, y = draw(300, 4)
    w = np.where(np.arange(300) < 100, 2.0, 1.0)
    twice = np.concatenate([h, h[:100]]), np.concatenate([y, y[:100]])
    weighted = Scores.from_logits(h, y, sample_weight=w)
    probs = Scores.from_probs(np.exp(h) / np.exp(h).sum(axis=1, keepdims=True), y, sample_weight=w)
    expected = labels_for_temperature(*twice, width=1.3)
    for pilot in (weighted, probs):
        assert labels_for_temperature(pilot, width=1.3).n_samples == expected.n_samples
        for metric in ("accuracy", "nll", "brier"):
            found = labels_for_metric(pilot, metric=metric, width=0.1).n_samples
            assert found == pytest.approx(labels_for_metric(*twice, metric=metric, width=0.1).n_samples, abs=1)


def test_copies_of_a_sample_in_one_cluster_are_worth_one():
    h, y = draw(2000, 4)
    case = np.repeat(np.arange(2000), 3)
    alone = labels_for_temperature(h, y, width=1.2)
    together = labels_for_temperature(np.repeat(h, 3, axis=0), np.repeat(y, 3), width=1.2, clusters=case)
    assert together.n_samples == pytest.approx(3 * alone.n_samples, rel=0.1)
    assert together.n_clusters == math.ceil(together.n_samples / 3)
    for metric, width in (("accuracy", 0.03), ("nll", 0.1), ("ece", 0.15)):
        one = labels_for_metric(h, y, metric=metric, width=width).n_samples
        three = labels_for_metric(np.repeat(h, 3, axis=0), np.repeat(y, 3), metric=metric, width=width, clusters=case)
        assert three.n_samples == pytest.approx(3 * one, rel=0.12)
    own = Scores.from_logits(np.repeat(h, 3, axis=0), np.repeat(y, 3), clusters=case)
    assert labels_for_temperature(own, width=1.2).n_samples == together.n_samples


@pytest.mark.slow
def test_planned_labels_leave_the_planned_interval_of_t():
    rng = np.random.default_rng(0)
    h, y = draw(20000, 5, seed=1)
    plan = labels_for_temperature(h[:300], y[:300], width=1.15)
    found = []
    for _ in range(30):
        rows = rng.choice(np.arange(300, 20000), plan.n_samples, replace=False)
        low, high = TemperatureScaling().fit(h[rows], y[rows]).temperature_interval_
        found.append(math.log(high / low) / math.log(1.15))
    assert np.mean(found) == pytest.approx(1, abs=0.12)


@pytest.mark.slow
def test_wrong_labels_widen_the_interval_as_planned():
    rng = np.random.default_rng(0)
    h, y = draw(20000, 5, seed=1)
    y = np.where(rng.random(20000) < 0.2, rng.integers(0, 5, 20000), y)
    plan = labels_for_temperature(h[:2000], width=1.3, temperature=2.0, noise=0.2)
    assert plan.n_samples > 2 * labels_for_temperature(h[:2000], width=1.3, temperature=2.0).n_samples
    found = []
    for _ in range(20):
        rows = rng.choice(20000, plan.n_samples, replace=False)
        bayes = attemper.BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h[rows], y[rows])
        low, high = bayes.temperature_interval_
        found.append(math.log(high / low) / math.log(1.3))
    assert 0.6 < np.mean(found) < 1.4


# Metrics


def test_accuracy_takes_what_wilsons_interval_takes():
    h, y = draw(400, 5)
    share = float((h.argmax(axis=1) == y).mean())
    plan = labels_for_metric(h, y, metric="accuracy", width=0.05)

    def width(n):
        z2 = Z * Z
        return 2 * Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))

    assert width(plan.n_samples) <= 0.05 < width(plan.n_samples - 1)
    low, high = plan.n_range
    assert low <= plan.n_samples <= high


@pytest.mark.parametrize("metric", ["nll", "brier"])
def test_means_take_what_their_spread_takes(metric):
    h, y = draw(2000, 5)
    value = getattr(metrics, metric)(y, h, input="logits", confidence_level=0.95)
    plan = labels_for_metric(h, y, metric=metric, width=value.high - value.low)
    assert plan.n_samples == pytest.approx(2000, rel=0.01)


def test_without_labels_probabilities_are_believed():
    h, _ = draw(4000, 5, t=1.0)
    y = (h + np.random.default_rng(1).gumbel(size=h.shape)).argmax(axis=1)
    for metric, width in (("accuracy", 0.04), ("nll", 0.1), ("brier", 0.04), ("ece", 0.1)):
        with_labels = labels_for_metric(h, y, metric=metric, width=width).n_samples
        assert labels_for_metric(h, metric=metric, width=width).n_samples == pytest.approx(with_labels, rel=0.15)


def test_a_map_changes_the_probabilities_that_are_planned_for():
    h, y = draw(800, 5)
    ts = TemperatureScaling().fit(h[:400], y[:400])
    by_map = labels_for_metric(h[400:], y[400:], metric="nll", width=0.1, calibrator=ts)
    by_hand = labels_for_metric(h[400:] / ts.temperature_, y[400:], metric="nll", width=0.1)
    assert by_map.n_samples == by_hand.n_samples
    assert by_map.n_samples < labels_for_metric(h[400:], y[400:], metric="nll", width=0.1).n_samples


@settings(max_examples=15)
@given(st.sampled_from(["accuracy", "nll", "brier"]), st.floats(0.05, 0.3), st.floats(0.05, 0.3))
def test_narrower_intervals_take_more(metric, one, other):
    h, y = draw(300, 4)
    narrow, wide = (labels_for_metric(h, y, metric=metric, width=w) for w in sorted([one, other]))
    assert narrow.n_samples >= wide.n_samples
    assert narrow.curve["width"][-1] < narrow.curve["width"][0]


@pytest.mark.slow
@pytest.mark.parametrize("t", [1.0, 2.0])
def test_the_interval_of_the_ece_is_as_wide_as_planned(t):
    h, y = draw(30000, 5, t=t, seed=2)
    plan = labels_for_metric(h[:1000], y[:1000], width=0.06)
    rng, found = np.random.default_rng(0), []
    for _ in range(20):
        rows = rng.choice(np.arange(1000, 30000), plan.n_samples, replace=False)
        value = metrics.ece(y[rows], h[rows], input="logits", confidence_level=0.95, n_resamples=300)
        found.append(value.high - value.low)
    assert 0.045 < np.mean(found) < 0.069  # gaps that chance makes in the pilot ask for more labels, never for fewer
    at = plan.curve["n_samples"] == plan.n_samples
    assert plan.curve["chance"][at] == pytest.approx(value.chance, rel=0.1)


# Certificates


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_the_power_of_a_certificate_of_all_is_a_binomial(share):
    # Every prediction is wrong with probability 0.05. The threshold lies at the first error too many.
    pilot = np.tile([math.log(0.95 / 0.05), 0.0], (50, 1))
    plan = labels_for_certificate(pilot, max_miss=0.1, decided_share=share, miss_rate_of="all", n_simulations=400)
    for n, power, error in zip(plan.curve["n_samples"], plan.curve["power"], plan.curve["power_error"]):
        exact = stats.binom.cdf(most_errors(int(n), 0.1, 0.05), int(n), share * 0.05)
        assert abs(power - exact) < 5 * error
    assert plan.curve["power"][plan.curve["n_samples"] == plan.n_samples] >= 0.8


def test_a_share_that_no_number_of_labels_decides_is_an_error():
    h, y = draw(300, 5)
    with pytest.raises(InputError):
        labels_for_certificate(h, y, max_miss=0.25, decided_share=0.95)
    flat = np.tile([0.2, 0.0], (100, 1))
    with pytest.raises(InputError):
        labels_for_certificate(flat, max_miss=0.05)


@pytest.mark.slow
def test_planned_labels_reach_the_certificate():
    rng = np.random.default_rng(0)
    h, y = draw(40000, 4, scale=5.0, seed=3)
    plan = labels_for_certificate(h[:1000], y[:1000], max_miss=0.1, decided_share=0.5)
    assert any("leaves it open" in note for note in plan.notes)  # T of this pilot is too low by chance
    plan = labels_for_certificate(h[:10000], y[:10000], max_miss=0.1, decided_share=0.35)
    assert not any("leaves it open" in note for note in plan.notes)
    reached = []
    for _ in range(60):
        rows = rng.choice(np.arange(10000, 40000), plan.n_samples, replace=False)
        p = np.exp(h[rows] / 2) / np.exp(h[rows] / 2).sum(axis=1, keepdims=True)
        policy = attemper.decisions.policy_for_miss(p, y[rows], 0.1)
        reached.append(policy.reached and (p.max(axis=1) > policy.threshold).mean() >= 0.35)
    assert np.mean(reached) > 0.6


# Sets


@pytest.mark.parametrize(("coverage", "within"), [(0.95, 0.02), (0.9, 0.05), (0.5, 0.1), (0.99, 0.005)])
def test_coverage_is_the_law_of_beta(coverage, within):
    n = labels_for_coverage(coverage, within=within).n_samples

    def inside(m):
        k = math.ceil((m + 1) * coverage - 1e-9)
        law = stats.beta(k, m + 1 - k)
        return law.cdf(min(1, coverage + within)) - law.cdf(coverage - within)

    assert inside(n - 1) < 0.95
    assert all(inside(m) >= 0.95 for m in range(n, n + 300))


def test_coverage_by_simulation():
    n, rng = labels_for_coverage(0.9, within=0.05).n_samples, np.random.default_rng(0)
    k = math.ceil((n + 1) * 0.9 - 1e-9)
    realised = np.sort(rng.random((4000, n)), axis=1)[:, k - 1]  # of scores that are uniform
    assert np.mean(np.abs(realised - 0.9) <= 0.05) == pytest.approx(0.95, abs=0.02)


# Typical networks


@pytest.mark.parametrize(("accuracy", "n_classes"), [(0.93, 10), (0.7, 2), (0.6, 100), (0.999, 10), (0.02, 1000)])
def test_a_typical_network_has_the_accuracy_and_is_calibrated(accuracy, n_classes):
    scores = typical_network(accuracy, n_classes)
    h = scores.logits
    p = np.exp(h - h.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    assert p.max(axis=1).mean() == pytest.approx(accuracy, abs=1e-8)
    assert scores.n_classes == n_classes
    assert np.bincount(h.argmax(axis=1), minlength=n_classes).max() < 3 * len(h) / n_classes + 20


def test_two_gaussian_classes_have_a_closed_form():
    h = typical_network(0.9, 2).logits
    d = math.sqrt(2) * stats.norm.ppf(0.9)  # the accuracy of the best rule is Φ(d / √2)
    assert np.abs(h[:, 0] - h[:, 1]).mean() == pytest.approx(
        stats.foldnorm(d * d / (math.sqrt(2) * d), scale=math.sqrt(2) * d).mean(), rel=0.02
    )


# Which samples


def test_chosen_samples_are_drawn_as_often_as_their_weights_assume():
    h, y = draw(400, 4)
    right = h.argmax(axis=1) == y
    count, means = np.zeros(400), []
    for seed in range(300):
        chosen = choose_samples(h, 40, seed=seed)
        assert (np.diff(chosen.row) > 0).all()
        assert chosen.weight.mean() == pytest.approx(1)
        count[chosen.row] += 1
        means.append(np.average(right[chosen.row], weights=chosen.weight))
    confidence = np.exp(h.max(axis=1)) / np.exp(h).sum(axis=1)
    spread = np.sqrt(confidence * (1 - confidence))
    expected = 40 * (0.5 + 0.5 * spread / spread.mean()) / 400
    assert count / 300 == pytest.approx(expected, abs=0.1)
    assert np.mean(means) == pytest.approx(right.mean(), abs=0.015)
    at_random = math.sqrt(right.mean() * (1 - right.mean()) / 40)
    assert np.std(means) < 0.9 * at_random


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=30), st.data())
def test_probabilities_of_a_draw_add_up(shares, data):
    n = data.draw(st.integers(1, len(shares) - 1))
    found = _inclusion(np.array(shares), n)
    assert found.sum() == pytest.approx(n)
    assert ((found > 0) & (found <= 1)).all()


def test_choosing_refuses_what_it_cannot_choose():
    h, _ = draw(30, 4)
    with pytest.raises(InputError):
        choose_samples(h, 30)
    with pytest.raises(InputError):
        choose_samples(Scores.from_logits(h, np.full((30, 4), 0.25)), 5)


# Results, and what cannot be answered


def test_a_plan_is_a_table_and_a_line():
    plan = labels_for_coverage(0.9, within=0.05)
    frame = plan.to_pandas()
    assert list(frame) == ["n_samples", "within"]
    assert repr(plan) == f"Plan(coverage: {plan.n_samples} labels)"
    assert plan.to_dict()["curve"][0]["n_samples"] == frame["n_samples"][0]
    assert str(plan.n_samples) in plan._repr_html_()
    assert "\n" not in repr(choose_samples(draw(50, 3)[0], 10))


@given(st.integers(1, 10_000_000))
def test_the_curve_holds_the_plan(n):
    found = curve_around(n)
    assert n in found
    assert (np.diff(found) > 0).all()
    assert len(found) <= 9


@pytest.mark.parametrize("question", ["temperature", "nll", "brier", "ece", "certificate"])
def test_a_pilot_without_errors_is_refused(question):
    h, _ = draw(100, 4)
    y = h.argmax(axis=1)
    asked = {
        "temperature": lambda: labels_for_temperature(h, y, width=1.2),
        "certificate": lambda: labels_for_certificate(h, y, max_miss=0.2),
    }
    with pytest.raises(InputError):
        asked.get(question, lambda: labels_for_metric(h, y, metric=question, width=0.1))()


def test_what_is_wrong_is_named():
    h, y = draw(100, 4)
    with pytest.raises(InputError):
        labels_for_temperature(h[:5], y[:5], width=1.2)
    with pytest.raises(InputError):
        labels_for_temperature(h, y, width=1)
    with pytest.raises(InputError):
        labels_for_metric(h, y, width=0)
    with pytest.raises(InputError):
        labels_for_metric(h, y, metric="mce", width=0.1)
    with pytest.raises(InputError):
        typical_network(0.1, 10)
    with pytest.raises(InputError):
        labels_for_temperature(h, y, width=1.2, clusters=np.arange(100) % 2)
    with pytest.raises(InputError):
        labels_for_temperature(h, y, width=1.2, clusters=[1, 2, 3])
    with pytest.raises(InputError):
        labels_for_temperature(np.zeros((50, 3)), width=1.2)
    with pytest.raises(InputError):
        labels_for_temperature(Scores.from_logits(h, y), y, width=1.2)
    with pytest.raises(InputError):
        labels_for_coverage(0.5, within=1e-6)
    with pytest.raises(InputError):
        labels_for_temperature(h, y, width=1.00001)


def test_a_map_that_rules_a_label_out_is_named():
    class Sure:
        def predict_log_proba(self, scores):
            return np.where(np.arange(4) == 0, 0.0, -np.inf) * np.ones((len(scores), 1))

    h, y = draw(100, 4)
    y[:3] = 0
    y[3] = 1
    with pytest.raises(InputError):
        labels_for_metric(h, y, metric="nll", width=0.1, calibrator=Sure())
