"""Bayesian temperature scaling: frozen numbers, brute force, the share of wrong labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta
from scipy.stats import t as student

import attemper
from attemper import metrics
from attemper.calibrators.bayesian import BayesianTemperatureScaling
from attemper.calibrators.label_model import error_rate
from attemper.calibrators.structured import StructuredScaling
from attemper.calibrators.temperature import Z95, scale_of, with_effective_weights
from attemper.data.scores import Scores
from attemper.errors import EdgeWarning, InputError
from attemper.sketches import Sketch
from conftest import draw
from test_ats_ets import network

# T, its interval and the mean NLL, as recorded
FROZEN = {
    "densenet40-cifar10-s0": (1.3837066378865448, 1.2248777930157286, 1.544027946511294, 0.16557600049275728),
    "lenet5-fashion_mnist-s0": (1.891753273421858, 1.7123386252087744, 2.0903969996294824, 0.2251410303698222),
}


@pytest.mark.parametrize("name", FROZEN)
def test_clean_labels_have_the_frozen_numbers(name):
    fitted = BayesianTemperatureScaling().fit(*network(name))
    found = (fitted.temperature_, *fitted.temperature_interval_, fitted.report_.nll)
    assert found == pytest.approx(FROZEN[name], rel=1e-8)


def sketch_of(data):
    return Sketch.of(Scores.of(data.h, data.y))


@pytest.mark.parametrize("noise", [0, 0.1])
def test_sketch_and_rows_agree(noise):
    data = draw(5000, noise=0.1)
    rows = BayesianTemperatureScaling(noise=noise).fit(data.h, data.y)
    made = BayesianTemperatureScaling(noise=noise).fit_sketch(sketch_of(data))
    assert made.temperature_ == pytest.approx(rows.temperature_, rel=1e-4)
    assert made.temperature_interval_ == pytest.approx(rows.temperature_interval_, rel=1e-3)


@pytest.mark.parametrize(("noise", "centre"), [(0, 0.15), (0.2, 0.15), (0, 0.8)])
def test_posterior_is_that_of_brute_force(noise, centre):
    h, y = draw(60, 3, noise=0.2)
    fitted = BayesianTemperatureScaling(noise=noise, prior_centre=centre).fit(h, y)
    u = np.linspace(-2, 3, 1501)
    s = np.exp(h[None] / np.exp(u)[:, None, None])
    top = s / s.sum(axis=2, keepdims=True)
    label = top[:, np.arange(60), y]
    confidence = np.exp(h - h.max(axis=1, keepdims=True))
    c = min(float((1 / confidence.sum(axis=1)).mean()), 0.95)
    usual = centre + 0.125 * np.log(c / (1 - c))
    known = noise * 3 / 2
    quantile = (np.arange(2000) + 0.5) / 2000
    floors = beta.ppf(quantile, 0.25, 20)

    def likelihood(floor):
        e = 1 - (1 - floor) * (1 - known)
        return np.prod((1 - e) * label + e / 3, axis=1)

    few, some = (np.mean([likelihood(f) for f in law], axis=0) for law in (floors, quantile))
    labels = 0.85 * likelihood(0.0) + 0.1 * few + 0.05 * some

    def quantiles(p, scale):
        weight = student.pdf((u - usual) / scale, 4) * labels
        return np.exp(np.interp(p, np.cumsum(weight) / weight.sum(), u))

    assert fitted.temperature_ == pytest.approx(quantiles(0.5, 0.4), rel=5e-3)
    assert fitted.temperature_interval_ == pytest.approx(quantiles([0.025, 0.975], 0.8), rel=1e-2)


def mass_of(fitted):
    return fitted.map_.stages[0].uniform_mass


def test_noise_counts_labels_that_are_actually_wrong():
    assert error_rate(0.1, 1 / 5) == pytest.approx(0.125)
    assert error_rate(0, 1 / 5) == 0
    assert error_rate("unknown", 1 / 5) is None


def test_known_share_finds_the_temperature():
    data = draw(4000, 10, noise=0.27, seed=1)
    fitted = BayesianTemperatureScaling(noise=0.27).fit(data.h, data.y)
    assert fitted.temperature_interval_[0] < 2 < fitted.temperature_interval_[1]
    assert fitted.noise_ == pytest.approx(0.27)
    assert fitted.noise_interval_ == pytest.approx((0.27, 0.27))
    assert mass_of(fitted) < 0.02  # what is not the annotators' is the network's own
    assert mass_of(BayesianTemperatureScaling().fit(data.h, data.y)) > 0.2


def test_known_share_leaves_the_rest_of_the_floor_in_the_prediction():
    data = draw(6000, 10, noise=0.27)  # ε = 0.3
    fitted = BayesianTemperatureScaling(noise=0.09).fit(data.h, data.y)  # ε_l = 0.1
    assert mass_of(fitted) == pytest.approx((0.3 - 0.1) / (1 - 0.1), abs=0.05)


@pytest.mark.parametrize("from_sketch", [False, True])
def test_unknown_share_is_found_and_whose_it_is_cannot_be_told(from_sketch):
    data = draw(4000, 10, noise=0.27)
    fitted = BayesianTemperatureScaling(noise="unknown")
    fitted = fitted.fit_sketch(sketch_of(data)) if from_sketch else fitted.fit(data.h, data.y)
    assert 0.1 < fitted.noise_interval_[0] < 0.27 < fitted.noise_interval_[1]
    assert fitted.temperature_interval_[0] < 2 < fitted.temperature_interval_[1]
    assert fitted.report_.cannot_tell
    clean = draw(4000, 10)
    assert not BayesianTemperatureScaling(noise="unknown").fit(clean.h, clean.y).report_.cannot_tell


def test_never_changes_a_prediction_and_is_finite_without_errors():
    h = draw(40).h
    fitted = BayesianTemperatureScaling().fit(h, h.argmax(axis=1))
    assert 0 < fitted.temperature_interval_[0] < fitted.temperature_ < fitted.temperature_interval_[1] < 1
    assert (fitted.predict(h) == h.argmax(axis=1)).all()
    assert fitted.map_.keeps_arg_max


def test_wrong_labels_warn_of_an_edge():
    h = draw(2000).h
    with pytest.warns(EdgeWarning):
        BayesianTemperatureScaling().fit(h, h.argmin(axis=1))


@pytest.mark.parametrize("noise", ["some", -0.1, 0.8, True])
def test_errors(noise):
    with pytest.raises(InputError) as error:
        BayesianTemperatureScaling(noise=noise).fit(draw(50).h, draw(50).y)
    assert error.value.param == "noise"


def test_confusions_are_found():
    data = draw(3000, 6)
    moved = (data.y == 0) & (np.random.default_rng(2).uniform(size=3000) < 0.5)
    fitted = BayesianTemperatureScaling(noise="unknown").fit(2 * data.h, np.where(moved, 1, data.y))
    assert fitted.noise_interval_[0] < moved.mean() < fitted.noise_interval_[1]
    assert fitted.confusions_.worst()[0][:2] == (0, 1)


def test_a_biased_network_is_not_taken_for_bad_labels():
    data = draw(3000, 5)
    fitted = BayesianTemperatureScaling(noise="unknown").fit(data.h + np.array([2.0, 0, 0, 0, -2.0]), data.y)
    assert fitted.noise_ < 0.02


@pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")
def test_logits_that_say_nothing_give_a_uniform_prediction():
    h, y = draw(300, 4, t=1e9)
    p = BayesianTemperatureScaling().fit(h, y).predict_proba(h)
    assert np.abs(p - 0.25).max() < 0.1
    fitted = BayesianTemperatureScaling(noise="unknown").fit(h, y)  # nor do labels that may be wrong make them useful
    assert fitted.report_.nll < np.log(4) + 0.05


@pytest.mark.parametrize("from_sketch", [False, True])
def test_of_two_classes_a_floor_may_be_the_networks(from_sketch):
    """A network that errs where it is confident keeps part of that floor; beside usual logits the labels err."""

    def mass(scale, share):
        h, y = draw(4000, 2, t=1.5, noise=share / 2)
        h = scale / 1.5 * h
        fitted = BayesianTemperatureScaling(noise="unknown")
        fitted = fitted.fit_sketch(Sketch.of(Scores.of(h, y))) if from_sketch else fitted.fit(h, y)
        assert fitted.report_.cannot_tell
        assert fitted.noise_interval_[0] <= share / 2 <= fitted.noise_interval_[1]
        return mass_of(fitted)

    assert mass(2.0, 0.2) < 0.02  # as networks are: over-confident, and labels of which a tenth is wrong
    assert mass(0.2, 0.6) > 0.1  # T = 0.2 beside a floor of 0.6


def test_wrong_labels_do_not_change_the_unit_of_t():
    """With labels of which 30 % are wrong, confidence equals accuracy at T = 35 only: no reason to expect that."""
    h, y = draw(1000, 2, t=0.3, noise=0.3)
    scores = Scores.of(10 * h, y)
    assert scale_of(scores)[0] > 1
    assert scale_of(scores, None)[0] == scale_of(scores, 0.6)[0] == 1


@pytest.mark.parametrize("method", [BayesianTemperatureScaling, StructuredScaling])
@pytest.mark.parametrize("noise", [0.2, "unknown"])
def test_a_random_label_is_one_of_those_classes_that_are_not_masked(method, noise):
    rng, data = np.random.default_rng(0), draw(20_000, 10)
    k = rng.integers(2, 11, len(data.y))
    h = np.where(np.arange(10) < k[:, None], data.h, -np.inf)
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    y = np.where(rng.random(len(y)) < 0.2, (y + 1 + (rng.random(len(y)) * (k - 1)).astype(int)) % k, y)
    low, high = method(noise=noise).fit(h, y).temperature_interval_
    assert low < 2 < high < 1.3 * low


@pytest.mark.parametrize("noise", [0.2, "unknown"])
def test_columns_that_are_masked_throughout_do_not_count(noise):
    data = draw(5000, 3, noise=0.2)
    h = np.concatenate([data.h, np.full((5000, 5), -np.inf)], axis=1)
    few, many = (
        BayesianTemperatureScaling(noise=noise).fit_sketch(Sketch.of(Scores.of(x, data.y))) for x in (data.h, h)
    )
    assert few.noise_ == pytest.approx(0.2, abs=0.03)
    for name in ("temperature_", "noise_"):
        assert getattr(many, name) == pytest.approx(getattr(few, name), rel=1e-6)


def test_few_clusters_widen_the_interval_as_students_quantile():
    (h, y), case = draw(3000), np.arange(3000) % 6
    w = with_effective_weights(Scores.of(h, y, clusters=case)).weights
    rows, cases = BayesianTemperatureScaling().fit(h, y, w), BayesianTemperatureScaling().fit(h, y, clusters=case)
    by_row, by_case = (np.log(np.array(each.temperature_interval_) / each.temperature_) for each in (rows, cases))
    np.testing.assert_allclose(by_case, by_row * student.ppf(0.975, 5) / Z95, rtol=1e-6)


def test_rows_with_one_possible_class_need_no_noise():
    h = np.where(np.eye(3)[np.arange(60) % 3] > 0, 1.0, -np.inf)
    assert error_rate(0, Scores.of(h, np.arange(60) % 3).chance) == 0


def test_the_interval_of_the_share_of_confused_labels_lies_around_it():
    data = draw(3000, 6)
    moved = np.arange(3000) % 5 == 0
    fitted = BayesianTemperatureScaling(noise="unknown").fit(2 * data.h, np.where(moved, (data.y + 1) % 6, data.y))
    low, high = fitted.noise_interval_
    assert fitted.confusions_ is not None
    assert low < fitted.noise_ < high
    assert fitted.noise_ == pytest.approx(0.2, abs=0.015)


@pytest.mark.parametrize("scale", [1e-6, 0.01, 30.0, 40.0, 1e4])
@pytest.mark.parametrize("k", [2, 10])
def test_wrong_labels_are_found_on_logits_of_any_scale(scale, k):
    data = draw(1000, k, t=2.0, noise=0.2)
    found, usual = (attemper.fit(s * data.h, data.y, noise="unknown") for s in (scale, 1.0))
    assert 0.4 < found.temperature_ / (scale * usual.temperature_) < 2.5  # the prior knows the usual scale
    worse = metrics.nll(data.y, found.predict_proba(scale * data.h)) - metrics.nll(data.y, usual.predict_proba(data.h))
    assert worse < 0.02


@pytest.mark.parametrize("noise", [0, 0.1, "unknown"])
@pytest.mark.parametrize("scale", [1000.0, 1e-4])
def test_a_temperature_beyond_the_grid_of_sketches_warns(noise, scale):
    data = draw(1000, 3, t=2.0)
    with pytest.warns(attemper.EdgeWarning):
        fitted = attemper.fit(attemper.sketch(scale * data.h, data.y), noise=noise)
    assert fitted.report_.edge == ("high" if scale > 1 else "low")
    assert not fitted.report_.converged
