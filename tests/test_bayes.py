"""Bayesian temperature scaling: frozen numbers, brute force, the share of wrong labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta
from scipy.stats import t as student

from attemper.calibrators.base import load
from attemper.calibrators.bayesian import BayesianTemperatureScaling
from attemper.calibrators.label_model import error_rate
from attemper.data.scores import Scores
from attemper.errors import EdgeWarning, InputError
from attemper.sketches import Sketch
from conftest import draw
from test_ats_ets import network

# T, its interval and the mean NLL, recorded from version 0.2
FROZEN = {
    "densenet40-cifar10-s0": (1.383708795051795, 1.2307042437136748, 1.547945661986459, 0.1655753448894943),
    "lenet5-fashion_mnist-s0": (1.8917590090229572, 1.710489598162745, 2.0856131224212646, 0.22514034155464382),
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


@pytest.mark.parametrize("noise", [0, 0.2])
def test_posterior_is_that_of_brute_force(noise):
    data = draw(60, 3, noise=0.2)
    h, y = data.h, data.y
    fitted = BayesianTemperatureScaling(noise=noise).fit(h, y)
    u = np.linspace(-2, 3, 1501)
    s = np.exp(h[None] / np.exp(u)[:, None, None])
    top = s / s.sum(axis=2, keepdims=True)
    label = top[:, np.arange(60), y]
    confidence = np.exp(h - h.max(axis=1, keepdims=True))
    c = min(float((1 / confidence.sum(axis=1)).mean()), 0.95)
    prior = student.pdf((u - 0.15 - 0.125 * np.log(c / (1 - c))) / 0.4, 4)
    known = noise * 3 / 2
    quantile = (np.arange(2000) + 0.5) / 2000
    floors = beta.ppf(quantile, 0.25, 20)

    def likelihood(floor):
        e = 1 - (1 - floor) * (1 - known)
        return np.prod((1 - e) * label + e / 3, axis=1)

    weight = prior * (0.9 * likelihood(0.0) + 0.1 * np.mean([likelihood(f) for f in floors], axis=0))
    below = np.cumsum(weight) / weight.sum()
    low, middle, high = np.exp(np.interp([0.025, 0.5, 0.975], below, u))
    assert fitted.temperature_ == pytest.approx(middle, rel=5e-3)
    assert fitted.temperature_interval_ == pytest.approx((low, high), rel=1e-2)


def mass_of(fitted):
    return fitted.map_.stages[0].uniform_mass


def test_noise_counts_labels_that_are_actually_wrong():
    assert error_rate(0.1, 5) == pytest.approx(0.125)
    assert error_rate(0, 5) == 0
    assert error_rate("unknown", 5) is None


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
    assert fitted.noise_interval_[0] < 0.27 < fitted.noise_interval_[1]
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


def test_clusters_widen_the_interval_as_copies_do():
    data = draw(400)
    case = np.repeat(np.arange(400), 5)
    alone = BayesianTemperatureScaling().fit(data.h, data.y)
    rows = BayesianTemperatureScaling().fit(data.h[case], data.y[case], clusters=case)
    assert np.log(rows.temperature_interval_) == pytest.approx(np.log(alone.temperature_interval_), abs=0.02)


def test_wrong_labels_warn_of_an_edge():
    h = draw(2000).h
    with pytest.warns(EdgeWarning):
        BayesianTemperatureScaling().fit(h, h.argmin(axis=1))


@pytest.mark.parametrize("noise", ["some", -0.1, 0.8, True])
def test_errors(noise):
    with pytest.raises(InputError) as error:
        BayesianTemperatureScaling(noise=noise).fit(draw(50).h, draw(50).y)
    assert error.value.param == "noise"


def test_files(tmp_path):
    data = draw(300, noise=0.1)
    h, y = data.h, data.y
    fitted = BayesianTemperatureScaling(noise="unknown").fit(h, y)
    fitted.save(tmp_path / "net.attemper.json")
    again = load(tmp_path / "net.attemper.json")
    assert str(again) == str(fitted)
    assert again.noise_interval_ == fitted.noise_interval_
    np.testing.assert_array_equal(again.predict_proba(h), fitted.predict_proba(h))
    np.testing.assert_array_equal(again.posterior_.temperature, fitted.posterior_.temperature)


def test_confusions_are_found():
    data = draw(3000, 6)
    moved = (data.y == 0) & (np.random.default_rng(2).uniform(size=3000) < 0.5)
    fitted = BayesianTemperatureScaling(noise="unknown").fit(2 * data.h, np.where(moved, 1, data.y))
    assert fitted.noise_interval_[0] < moved.mean() < fitted.noise_interval_[1]
    assert fitted.confusions_.worst()[0][:2] == (0, 1)
    assert not fitted.report_.cannot_tell


def test_a_biased_network_is_not_taken_for_bad_labels():
    data = draw(3000, 5)
    fitted = BayesianTemperatureScaling(noise="unknown").fit(data.h + np.array([2.0, 0, 0, 0, -2.0]), data.y)
    assert fitted.noise_ < 0.02
