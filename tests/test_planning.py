"""Plans: closed forms as oracles."""

import math

import numpy as np
import pytest
from scipy import stats

import attemper
from attemper import InputError, Scores, TemperatureScaling, metrics
from attemper.decisions.certificates import most_errors
from attemper.kernels.information import information
from attemper.planning import (
    labels_for_certificate,
    labels_for_coverage,
    labels_for_metric,
    labels_for_temperature,
)

from data import draw

Z = 1.959963984540054


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
    for metric, width in (("accuracy", 0.03), ("nll", 0.1)):
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


def test_accuracy_takes_what_wilsons_interval_takes():
    h, y = draw(400, 5)
    share = float((h.argmax(axis=1) == y).mean())
    plan = labels_for_metric(h, y, metric="accuracy", width=0.05)

    def width(n):
        z2 = Z * Z
        return 2 * Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))

    assert width(plan.n_samples) <= 0.05 < width(plan.n_samples - 1)


@pytest.mark.parametrize("metric", ["nll", "brier"])
def test_means_take_what_their_spread_takes(metric):
    h, y = draw(2000, 5)
    value = getattr(metrics, metric)(y, h, input="logits", confidence_level=0.95)
    plan = labels_for_metric(h, y, metric=metric, width=value.high - value.low)
    assert plan.n_samples == pytest.approx(2000, rel=0.01)


def test_without_labels_probabilities_are_believed():
    h, _ = draw(4000, 5, t=1.0)
    y = (h + np.random.default_rng(1).gumbel(size=h.shape)).argmax(axis=1)
    for metric, width in (("accuracy", 0.04), ("nll", 0.1), ("brier", 0.04)):
        with_labels = labels_for_metric(h, y, metric=metric, width=width).n_samples
        assert labels_for_metric(h, metric=metric, width=width).n_samples == pytest.approx(with_labels, rel=0.15)


def test_a_map_changes_the_probabilities_that_are_planned_for():
    h, y = draw(800, 5)
    ts = TemperatureScaling().fit(h[:400], y[:400])
    by_map = labels_for_metric(h[400:], y[400:], metric="nll", width=0.1, calibrator=ts)
    by_hand = labels_for_metric(h[400:] / ts.temperature_, y[400:], metric="nll", width=0.1)
    assert by_map.n_samples == by_hand.n_samples
    assert by_map.n_samples < labels_for_metric(h[400:], y[400:], metric="nll", width=0.1).n_samples


@pytest.mark.parametrize(("coverage", "within"), [(0.95, 0.02), (0.9, 0.05), (0.5, 0.1), (0.99, 0.005)])
def test_coverage_is_the_law_of_beta(coverage, within):
    n = labels_for_coverage(coverage, within=within).n_samples

    def inside(m):
        k = math.ceil((m + 1) * coverage - 1e-9)
        law = stats.beta(k, m + 1 - k)
        return law.cdf(min(1, coverage + within)) - law.cdf(coverage - within)

    assert inside(n - 1) < 0.95
    assert all(inside(m) >= 0.95 for m in range(n, n + 300))


def test_the_power_of_a_certificate_is_a_binomial():
    plan = labels_for_certificate(0.1, miss_rate=0.05)

    def power(n):
        return stats.binom.cdf(most_errors(n, 0.1, 0.05), n, 0.05)

    assert power(plan.n_samples - 1) < 0.8
    assert all(power(n) >= 0.8 for n in range(plan.n_samples, plan.n_samples + 300))
    assert plan.curve["power"] == pytest.approx([power(int(n)) for n in plan.curve["n_samples"]])


def test_a_plan_is_a_table():
    frame = labels_for_coverage(0.9, within=0.05).to_pandas()
    assert list(frame) == ["n_samples", "within"]
    assert (np.diff(frame["within"]) < 0).all()


def test_what_cannot_be_planned_is_an_error():
    h, y = draw(100, 4)
    for call in (
        lambda: labels_for_temperature(h[:5], y[:5], width=1.2),
        lambda: labels_for_temperature(h, y, width=1),
        lambda: labels_for_temperature(h, y, width=1.2, clusters=np.arange(100) % 2),
        lambda: labels_for_temperature(np.zeros((50, 3)), width=1.2),
        lambda: labels_for_temperature(Scores.from_logits(h, y), y, width=1.2),
        lambda: labels_for_temperature(h, h.argmax(axis=1), width=1.2),
        lambda: labels_for_temperature(h, y, width=1.00001),
        lambda: labels_for_metric(h, y, width=0),
        lambda: labels_for_metric(h, y, metric="ece", width=0.1),
        lambda: labels_for_metric(h, h.argmax(axis=1), metric="nll", width=0.1),
        lambda: labels_for_coverage(0.5, within=1e-6),
        lambda: labels_for_certificate(0.1, miss_rate=0.1),
    ):
        with pytest.raises(InputError):
            call()
