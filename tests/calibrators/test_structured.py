import numpy as np
import pytest
from scipy.special import betaincinv, expit

import attemper
from attemper import (
    BayesianTemperatureScaling,
    BetaCalibration,
    StructuredScaling,
    TemperatureScaling,
)
from attemper.calibrators import explanations, structured
from attemper.calibrators.explanations import rate_law, shortest_interval
from attemper.calibrators.samples import Samples
from attemper.maps import AffineMap, MixtureMap

from data import draw

BIASES = np.array([1.0, 0.5, 0.0, -0.5, -1.0])


def structure(n=2500, weight=None, bias=BIASES, scale=3.0, seed=0):
    """Logits, and labels drawn from softmax(weight h / 2 + bias)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, len(bias)))
    x = h - h.mean(axis=1, keepdims=True)
    z = x / 2 if weight is None else (x / 2) @ np.asarray(weight).T
    return h, (z + bias + rng.gumbel(size=h.shape)).argmax(axis=1)


def nll(calibrator, h, y):
    return -np.log(calibrator.predict_proba(h)[np.arange(len(y)), y]).mean()


# What is found


def test_biases_are_found():
    h, y = structure()
    found = StructuredScaling().fit(h, y)
    np.testing.assert_allclose(found.bias_ - found.bias_.mean(), BIASES, atol=0.15)
    assert found.heldout_gain_ > 0.1
    new = structure(4000, seed=5)
    assert nll(found, *new) < nll(TemperatureScaling().fit(h, y), *new) - 0.1
    assert found.prior_std_["biases"] > 0.3
    assert found.temperature_interval_[0] < 2 < found.temperature_interval_[1]


def test_scales_are_found():
    scales = np.array([0.6, 0.8, 1.0, 1.2, 1.4])
    h, y = structure(4000, weight=np.diag(scales), bias=np.zeros(5))
    found = StructuredScaling(structure="scales").fit(h, y)
    ratio = found.weight_ / found.weight_.mean()
    np.testing.assert_allclose(ratio, scales, atol=0.15)
    assert found.heldout_gain_ > 0.01
    assert set(found.prior_std_) == {"biases", "scales"}


def test_a_matrix_is_found():
    rng = np.random.default_rng(1)
    weight = np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    h, y = structure(4000, weight=weight, bias=np.zeros(5))
    found = StructuredScaling().fit(h, y)
    seen = np.eye(5) - 1 / 5  # the softmax does not feel the rest
    off, before = (np.linalg.norm(seen @ (m - weight) @ seen) for m in (found.weight_ * 2, np.eye(5)))
    assert off < 0.5 * before
    new = structure(4000, weight=weight, bias=np.zeros(5), seed=5)
    assert nll(found, *new) < nll(TemperatureScaling().fit(h, y), *new) - 0.02


def saturated(n, seed, bias=8.0):
    """Two classes, scores as naive Bayes gives them: nearly all at the ends, and off by a constant."""
    rng = np.random.default_rng(seed)
    margin = 9 * rng.normal(size=n)
    y = (rng.random(n) < expit(margin / 3)).astype(int)
    return np.stack([np.zeros(n), margin - bias], axis=1), y


@pytest.mark.parametrize("labels", ["clean", "noisy"])
@pytest.mark.parametrize("bias", [-8.0, 8.0])
def test_a_strong_bias_of_saturated_scores_is_found(labels, bias):
    h, y = saturated(300, 0, bias)
    found = StructuredScaling(labels=labels).fit(h, y)
    new, label = saturated(4000, 1, bias)
    best = -np.mean(np.log(expit((2 * label - 1) * (new[:, 1] + bias) / 3)))
    assert nll(found, new, label) < best + 0.03
    assert nll(TemperatureScaling().fit(h, y), new, label) > best + 0.05
    assert found.noise_rate_ < 0.1


def beta_curve(n, seed):
    """Probabilities that are off by a curve of the log-odds that bends, as beta calibration has it."""
    rng = np.random.default_rng(seed)
    q = np.clip(rng.beta(0.5, 0.5, n), 1e-6, 1 - 1e-6)
    y = (rng.random(n) < expit(0.3 * np.log(q) - 1.5 * np.log1p(-q) - 1.0)).astype(int)
    return np.stack([np.log1p(-q), np.log(q)], axis=1), y


def test_a_curve_is_found_where_there_are_two_classes():
    h, y = beta_curve(2000, 0)
    found = StructuredScaling().fit(h, y)
    assert isinstance(found.map_, AffineMap)
    assert found.map_.curve is not None
    assert set(found.prior_std_) == {"biases", "curve"}
    new = beta_curve(8000, 1)
    straight = StructuredScaling(structure="scales").fit(h, y)
    assert straight.map_.curve is None
    assert nll(found, *new) < nll(straight, *new) - 0.004
    p = np.exp(h)
    beta = BetaCalibration(input="probs").fit(p, y).predict_proba(np.exp(new[0]))
    assert nll(found, *new) < -np.log(beta[np.arange(8000), new[1]]).mean() + 0.002


def test_the_floor_of_the_network_is_found_beneath_strong_biases():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(3000, 4))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    lost = rng.random(3000) < 0.08
    y[lost] = rng.integers(0, 4, lost.sum())
    found = StructuredScaling().fit(z + np.array([4, 0, 0, -4]), y)
    assert found.map_.then.uniform_mass == pytest.approx(0.08, abs=0.03)


# What does no harm


def test_a_calibrated_classifier_is_left_alone_where_structure_does_not_help():
    h, y = draw(2000, 10, scale=2.0, t=1.0, seed=11)
    found = StructuredScaling().fit(h, y)
    new = draw(8000, 10, scale=2.0, t=1.0, seed=12)
    as_it_is = -(new[0] - np.log(np.exp(new[0]).sum(axis=1, keepdims=True)))[np.arange(8000), new[1]].mean()
    assert nll(found, *new) < as_it_is + 0.004


def test_one_temperature_takes_the_place_of_a_structure_that_is_worse(monkeypatch, tmp_path):
    h, y = draw(600, 5)
    monkeypatch.setattr(structured, "WORSE", -100.0)
    found = StructuredScaling().fit(h, y)
    assert isinstance(found.map_, MixtureMap)
    assert (found.prior_std_, found.fit_report_.gradient_norm, found.fit_report_.changed) == ({}, None, 0)
    np.testing.assert_allclose(found.weight_, 1 / found.temperature_)
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=0.03)
    found.save(tmp_path / "s.json")
    back = attemper.load(tmp_path / "s.json")
    np.testing.assert_array_equal(back.predict_proba(h), found.predict_proba(h))
    assert back.describe() == found.describe()


# Labels that may be wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "anywhere"])
def test_noisy_labels_do_not_spoil_it(kind):
    h, y = structure(1800, scale=4.0)
    rng = np.random.default_rng(3)
    wrong = (y + 1) % 5 if kind == "pairs" else rng.integers(0, 5, len(y))
    observed = np.where(rng.random(len(y)) < 0.25, wrong, y)
    found = StructuredScaling(labels="noisy").fit(h, observed)
    new = structure(4000, scale=4.0, seed=9)
    clean, naive = StructuredScaling().fit(h, y), StructuredScaling().fit(h, observed)
    best, mine, spoilt = (nll(m, *new) for m in (clean, found, naive))
    assert mine - best < 0.6 * (spoilt - best)
    assert mine < nll(TemperatureScaling().fit(h, y), *new) - 0.05
    # Pairs of classes that are confused can be told from the network's own biases only in part.
    assert found.noise_rate_ == pytest.approx(0.25, abs=0.15 if kind == "pairs" else 0.08)
    assert found.confusions_ is not None
    assert found.fit_report_.gradient_norm < 1e-6


def paired(n, rate, seed, scale=6.0, k=5):
    """Labels of an accurate network; a share of them became those of the next class."""
    h, y = draw(n, k, scale=scale, seed=seed)
    wrong = np.random.default_rng(seed + 100).random(n) < rate
    return h, np.where(wrong, (y + 1) % k, y), wrong.mean()


def test_confusions_of_an_accurate_network_are_found():
    h, y, _ = paired(1500, 0.25, 0)
    found = StructuredScaling(labels="noisy").fit(h, y)
    assert found.classwise_ > 0.99
    assert found.noise_rate_ == pytest.approx(0.25, abs=0.05)
    truth = 0.75 * np.eye(5) + 0.25 * np.roll(np.eye(5), 1, axis=1)
    np.testing.assert_allclose(found.confusions_.matrix, truth, atol=0.08)
    worst = found.summary()["confusions"]
    assert len(worst) == 5
    assert all((c["true"] + 1) % 5 == c["label"] for c in worst)


def test_confusions_that_would_make_a_network_under_confident_are_not_believed():
    """A transition matrix is also a flexible map: it could explain a network's own ways by errors and a lower T."""
    h, y = draw(1500, 5, scale=3.0, t=0.3)
    y = np.where(np.random.default_rng(1).random(1500) < 0.25, (y + 1) % 5, y)
    found = StructuredScaling(labels="noisy").fit(h, y)
    assert found.classwise_ <= 0.5
    named = StructuredScaling(labels="noisy", noise="classwise").fit(h, y)  # unless the user says so
    assert named.classwise_ == 1
    assert named.temperature_ < 0.6
    assert named.noise_rate_ == pytest.approx(0.25, abs=0.06)


def test_biases_are_not_taken_for_errors_of_the_labels():
    h, y = structure(1200, bias=3 * BIASES)
    found = StructuredScaling(labels="noisy").fit(h, y)
    assert found.noise_rate_ < 0.05
    assert found.noise_interval_[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "uniform", "classwise"])
def test_intervals_of_the_rate_hold_the_truth(kind):
    inside, runs = 0, 12
    for seed in range(runs):
        h, y = draw(500, 5, scale=6.0, seed=seed)
        rng = np.random.default_rng(seed + 100)
        if kind == "uniform":
            truth = 0.2
            y = np.where(rng.random(500) < truth, rng.integers(0, 5, 500), y)
        elif kind == "classwise":
            h, y, truth = paired(500, 0.2, seed)
        else:
            truth = 0.0
        low, high = StructuredScaling(labels="noisy").fit(h, y).noise_interval_
        inside += low <= truth <= high
    assert inside >= 10


def test_the_law_of_a_rate_is_the_conjugate_one():
    grid = -np.sort(-np.append(explanations.RATES, [0.07, 0.15, 0.22]))  # rates near the mean are added
    n, hits = 200, 30
    with np.errstate(divide="ignore"):
        evidence = hits * np.log(np.maximum(grid, 1e-6)) + (n - hits) * np.log1p(-grid)
    law = rate_law(grid, evidence, (1.0, 4.0), 1.0)
    assert law.weight.sum() == pytest.approx(1)
    assert law.mean == pytest.approx((hits + 1) / (n + 5), rel=0.02)
    low, high = shortest_interval(np.append(0, law.rate), np.append(0, np.cumsum(law.weight)), 0.9)
    tails = betaincinv(hits + 1, n - hits + 4, [0.05, 0.95])
    np.testing.assert_allclose([low, high], tails, atol=0.012)


# Data of every kind


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e6])
@pytest.mark.parametrize(
    "calibrator",
    [
        StructuredScaling(),
        StructuredScaling(labels="noisy"),
        BayesianTemperatureScaling(),
        BayesianTemperatureScaling(labels="noisy"),
    ],
    ids=str,
)
def test_the_unit_of_the_logits_changes_nothing(calibrator, factor):
    h, y = structure(500)
    plain, scaled = (attemper_clone(calibrator).fit(c * h, y) for c in (1.0, factor))
    np.testing.assert_allclose(scaled.predict_proba(factor * h), plain.predict_proba(h), atol=1e-6)
    assert scaled.temperature_ / factor == pytest.approx(plain.temperature_, rel=1e-6)
    assert scaled.noise_rate_ == pytest.approx(plain.noise_rate_, abs=1e-6)


def attemper_clone(calibrator):
    return type(calibrator)(**calibrator.get_params())


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_of_many_rows_some_tell_what_all_would(labels, monkeypatch):
    h, y = structure(12_000)
    some = StructuredScaling(labels=labels).fit(h, y)
    monkeypatch.setattr(Samples, "every", lambda *_: slice(None))
    every = StructuredScaling(labels=labels).fit(h, y)
    np.testing.assert_allclose(some.predict_proba(h), every.predict_proba(h), atol=0.02)
    assert some.temperature_ == pytest.approx(every.temperature_, rel=0.02)
    a, b = (np.log(m.temperature_interval_[1] / m.temperature_interval_[0]) for m in (some, every))
    assert a == pytest.approx(b, rel=0.15)


# The report


# Files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "s.json"
    StructuredScaling(labels="noisy").fit(*draw(60, 3)).save(path)
    return path.read_text()


# Parameters


@pytest.mark.slow
def test_the_interval_of_the_temperature_knows_that_the_rate_is_not_known():
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        h = 4 * rng.normal(size=(300, 5))
        y = (h / 1.6 + rng.gumbel(size=h.shape)).argmax(axis=1)
        y = np.where(rng.random(300) < 0.2, rng.integers(0, 5, 300), y)
        low, high = StructuredScaling(labels="noisy").fit(h, y).temperature_interval_
        inside += low <= 1.6 <= high
    assert inside >= 15
