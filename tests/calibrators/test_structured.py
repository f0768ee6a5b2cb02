import json
import warnings

import numpy as np
import pytest
from scipy.special import betaincinv, expit

import attemper
from attemper import (
    AttemperWarning,
    BayesianTemperatureScaling,
    BetaCalibration,
    EdgeWarning,
    FileError,
    InputError,
    Sketch,
    StructuredScaling,
    TemperatureScaling,
)
from attemper.calibrators import explanations, structured
from attemper.calibrators.empirical_bayes import STRUCTURES
from attemper.calibrators.explanations import rate_law, shortest_interval
from attemper.calibrators.samples import LOG_T, Samples
from attemper.maps import AffineMap, MixtureMap, ScaleMap

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


def quietly(calibrator, *data):
    """Fit without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        return calibrator.fit(*data)


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


def test_fifty_labels_show_a_strong_bias():
    h, y = structure(50, bias=4 * BIASES, seed=3)
    found = quietly(StructuredScaling(), h, y)
    new = structure(4000, bias=4 * BIASES, seed=5)
    assert nll(found, *new) < nll(quietly(TemperatureScaling(), h, y), *new) - 0.5


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


@pytest.mark.parametrize("level", STRUCTURES)
def test_a_level_caps_what_is_changed(level):
    found = StructuredScaling(structure=level).fit(*structure(800))
    assert tuple(found.prior_std_) == STRUCTURES[: STRUCTURES.index(level) + 1]
    assert found.weight_.ndim == (2 if level == "matrix" else 1)
    if level == "biases":
        np.testing.assert_allclose(found.weight_ * found.temperature_, 1, atol=1e-6)


def test_with_more_than_two_hundred_classes_the_matrix_is_left_out(tmp_path):
    h, y = structure(400, bias=np.linspace(-2, 2, 201))
    with pytest.warns(EdgeWarning):
        found = StructuredScaling().fit(h, y)
    assert found.weight_.shape == (201,)
    assert set(found.prior_std_) == {"biases", "scales"}
    found.save(tmp_path / "s.json")
    new = h[:20]
    np.testing.assert_array_equal(attemper.load(tmp_path / "s.json").predict_proba(new), found.predict_proba(new))


def test_the_floor_of_the_network_is_found_beneath_strong_biases():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(3000, 4))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    lost = rng.random(3000) < 0.08
    y[lost] = rng.integers(0, 4, lost.sum())
    found = StructuredScaling().fit(z + np.array([4, 0, 0, -4]), y)
    assert found.map_.then.uniform_mass == pytest.approx(0.08, abs=0.03)


# What does no harm


@pytest.mark.parametrize("labels", ["clean", "noisy"])
@pytest.mark.parametrize("seed", range(3))
def test_where_a_temperature_is_all_there_is_next_to_nothing_is_lost(seed, labels):
    h, y = draw(1000, 5, seed=seed)
    found = StructuredScaling(labels=labels).fit(h, y)
    new = draw(4000, 5, seed=99)
    assert nll(found, *new) - nll(TemperatureScaling().fit(h, y), *new) < 0.006
    assert found.heldout_gain_ < 0.005


@pytest.mark.parametrize("n", [1, 5, 19])
@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_few_labels_have_a_careful_answer(n, labels):
    h, y = draw(n, 4, seed=2)
    found = quietly(StructuredScaling(labels=labels), h, y)
    assert found.heldout_gain_ is None
    assert "too few samples" in " ".join(found.describe())
    assert 0.5 < found.temperature_ < 6
    low, high = found.temperature_interval_
    assert low < 0.75 * found.temperature_
    assert high > found.temperature_ / 0.75
    new = draw(4000, 4, seed=7)
    assert nll(found, *new) < nll(quietly(BayesianTemperatureScaling(), h, y), *new) + 0.1


@pytest.mark.parametrize("method", [StructuredScaling, BayesianTemperatureScaling])
def test_clean_labels_of_a_sure_classifier_near_chance_may_be_called_noisy(method):
    """It looks like a sharp network with random labels."""

    def classifier(n, seed):
        rng = np.random.default_rng(seed)
        h = 4 * rng.normal(size=(n, 4))
        return h, (h / 16 + [0.8, 0.2, -0.2, -0.8] + rng.gumbel(size=h.shape)).argmax(axis=1)

    h, y = classifier(1000, 0)
    new = classifier(5000, 1)
    best = nll(TemperatureScaling().fit(*new), *new)
    assert nll(method(labels="noisy").fit(h, y), *new) < best + 0.02


def test_a_calibrated_classifier_is_left_alone_where_structure_does_not_help():
    h, y = draw(2000, 10, scale=2.0, t=1.0, seed=11)
    found = StructuredScaling().fit(h, y)
    new = draw(8000, 10, scale=2.0, t=1.0, seed=12)
    as_it_is = -(new[0] - np.log(np.exp(new[0]).sum(axis=1, keepdims=True)))[np.arange(8000), new[1]].mean()
    assert nll(found, *new) < as_it_is + 0.004


def test_better_left_alone_is_said(monkeypatch):
    h, y = draw(600, 5, t=1.0, seed=1)
    monkeypatch.setattr(structured, "WORSE", -100.0)  # whatever is simpler is better
    found = StructuredScaling().fit(h, y)
    assert found.map_ == ScaleMap(1.0)
    assert found.describe()[0].startswith("better left alone: on held-out samples the classifier as it is")
    assert (found.temperature_, found.heldout_gain_, found.prior_std_) == (1.0, 0.0, {})
    assert found.fit_report_.changed == 0
    assert found.fit_report_.left_alone
    assert "better left alone" in found.fit_report_.message
    np.testing.assert_array_equal(found.weight_, 1)
    other = quietly(StructuredScaling(t_range=(1.1, 1.5)), h, y)  # a range without it
    assert other.map_ != ScaleMap(1.0)
    assert other.temperature_ >= 1.1


def test_one_temperature_takes_the_place_of_a_structure_that_is_worse(monkeypatch, tmp_path):
    h, y = draw(600, 5)
    monkeypatch.setattr(structured, "WORSE", -100.0)
    found = StructuredScaling().fit(h, y)
    assert isinstance(found.map_, MixtureMap)
    assert (found.prior_std_, found.fit_report_.gradient_norm, found.fit_report_.changed) == ({}, None, 0)
    assert "class structure is left out" in found.describe()[-1]
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
    assert sum("are labelled" in line for line in found.describe()) == 5
    assert all((c["true"] + 1) % 5 == c["label"] for c in found.summary()["confusions"])


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


def test_uniform_noise_has_no_confusions():
    h, y = structure(600)
    found = StructuredScaling(labels="noisy", noise="uniform").fit(h, y)
    assert found.confusions_ is None
    assert found.noise_interval_[0] <= found.noise_rate_ <= found.noise_interval_[1]


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


def test_the_shortest_interval_reaches_zero_where_the_law_does():
    rates = np.linspace(0, 1, 2001)
    assert shortest_interval(rates, 1 - (1 - rates) ** 20, 0.95) == pytest.approx((0, 1 - 0.05 ** (1 / 20)), abs=1e-3)
    low, high = shortest_interval(rates, np.clip((rates - 0.2) / 0.4, 0, 1), 0.5)
    assert high - low == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("method", [StructuredScaling, BayesianTemperatureScaling])
@pytest.mark.parametrize("noise", ["uniform", "classwise"])
def test_a_kind_of_noise_without_noise_is_an_error(method, noise):
    with pytest.raises(InputError):
        method(noise=noise).fit(*draw())


# Data of every kind


def test_masked_classes_stay_masked_and_do_not_matter():
    h, y = structure(1500)
    hidden = np.random.default_rng(1).random(h.shape) < 0.2
    hidden[np.arange(len(y)), y] = False
    h = np.where(hidden, -np.inf, h)
    found = StructuredScaling().fit(h, y)
    p = found.predict_proba(h)
    assert (p[hidden] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert found.fit_report_.converged
    assert found.heldout_gain_ > 0.05


def test_a_class_that_is_always_masked_has_no_say():
    h, y = structure(800)
    keep = y != 4
    h, y = h[keep].copy(), y[keep]
    h[:, 4] = -np.inf
    found = StructuredScaling().fit(h, y)
    assert (found.predict_proba(h)[:, 4] == 0).all()
    four = StructuredScaling().fit(h[:, :4], y)
    np.testing.assert_allclose(found.predict_proba(h)[:, :4], four.predict_proba(h[:, :4]), atol=0.02)


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


def test_two_classes_and_a_curve_know_no_unit_either():
    h, y = beta_curve(500, 0)
    plain, scaled = (StructuredScaling().fit(c * h, y) for c in (1.0, 1e3))
    np.testing.assert_allclose(scaled.predict_proba(1e3 * h), plain.predict_proba(h), atol=1e-6)


@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_a_weight_counts_repeats(labels):
    h, y = structure(250)
    w = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = StructuredScaling(labels=labels).fit(h, y, w.astype(float))
    repeated = StructuredScaling(labels=labels).fit(np.repeat(h, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.predict_proba(h), repeated.predict_proba(h), atol=1e-6)
    assert weighted.temperature_interval_ == pytest.approx(repeated.temperature_interval_, rel=1e-6)
    assert weighted.noise_interval_ == pytest.approx(repeated.noise_interval_, abs=1e-6)
    assert weighted.heldout_gain_ == pytest.approx(repeated.heldout_gain_, abs=1e-6)


def test_a_weight_so_small_that_the_prior_rules_converges():
    h, y = draw(100, 4)
    with pytest.warns(EdgeWarning):
        found = StructuredScaling(labels="noisy", noise="uniform", structure="biases").fit(h, y, np.full(100, 1e-6))
    assert found.fit_report_.converged
    assert found.temperature_ == pytest.approx(np.exp(Samples.of(attemper.Scores.from_logits(h, y)).prior.centre))


@pytest.mark.parametrize("t_range", [(3.0, 4.0), (0.5, 1.2)])
@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_a_range_of_temperatures_is_kept(t_range, labels):
    with pytest.warns(EdgeWarning):
        found = StructuredScaling(labels=labels, t_range=t_range).fit(*structure(800))  # drawn at T = 2
    assert found.fit_report_.edge == ("low" if t_range[0] > 2 else "high")
    low, high = found.temperature_interval_
    assert t_range[0] <= low <= found.temperature_ <= high <= t_range[1]
    assert found.temperature_ == pytest.approx(min(max(2, t_range[0]), t_range[1]), rel=1e-3)
    assert np.diag(found.weight_).mean() == pytest.approx(1 / found.temperature_, rel=1e-3)
    assert found.fit_report_.converged


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


@pytest.mark.parametrize("n", [999, 1999, 2000, 5003, 30_000])
def test_rows_that_are_looked_at_meet_every_class_of_labels_in_a_cycle(n):
    x = np.zeros((n, 10))
    samples = Samples(x, np.arange(n) % 10, np.ones(n), None, LOG_T)
    seen = samples.y[samples.every(10_000, 1000)]
    assert len(seen) >= min(n, 500)
    assert set(seen.tolist()) == set(range(10))


def test_labels_of_one_class_alone_are_told_and_answered():
    h, _ = draw(60, 3)
    with pytest.warns(EdgeWarning):
        found = StructuredScaling().fit(h, np.zeros(60, dtype=int))
    p = found.predict_proba(h)
    assert np.isfinite(p).all()
    assert p[:, 0].mean() > 0.6
    assert p[:, 1:].min() > 0


@pytest.mark.parametrize(
    "h, y",
    [
        (np.zeros((60, 3)), np.arange(60) % 3),
        (np.repeat(draw(3, 3)[0], 30, axis=0), np.arange(90) % 3),
        (draw(60, 3)[0].astype(np.float16), draw(60, 3)[1]),
        (draw(60, 2)[0] * [1, 0], draw(60, 2)[1]),
        (100 * np.eye(4)[np.arange(200) % 4], np.arange(200) % 4),
    ],
    ids=["all the same", "duplicates", "half precision", "two classes", "no error"],
)
@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_odd_data_have_an_answer(h, y, labels):
    found = quietly(StructuredScaling(labels=labels, t_range=(1e-3, 1e3)), h, y)
    p = found.predict_proba(h)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=2e-3)


def test_half_precision_is_the_same_data():
    h, y = structure(400)
    h = h.astype(np.float16)
    a, b = StructuredScaling().fit(h, y), StructuredScaling().fit(h.astype(np.float64), y)
    np.testing.assert_array_equal(a.weight_, b.weight_)
    assert a.temperature_ == b.temperature_


def test_folds_are_told_by_the_sample_alone():
    x = np.random.default_rng(0).normal(size=(5000, 4))
    fold = structured._folds(x)
    assert np.bincount(fold, minlength=5).min() > 800
    np.testing.assert_array_equal(structured._folds(x[::-1]), fold[::-1])
    np.testing.assert_array_equal(structured._folds(np.zeros((3, 4))), structured._folds(np.zeros((1, 4)))[[0, 0, 0]])


def test_a_class_without_labels_is_told():
    h, y = draw(400, 4)
    with pytest.warns(EdgeWarning):
        StructuredScaling().fit(h, np.where(y == 3, 0, y))


def test_logits_hugely_below_the_others_are_named():
    h, y = draw(200, 5, scale=3.0)
    rng = np.random.default_rng(0)
    low = rng.random(h.shape) < 0.4
    low[np.arange(200), y] = False
    h = np.where(low, -(10.0 ** rng.uniform(2, 12, h.shape)), h)  # of every size, so none is a mask
    with pytest.raises(InputError):
        StructuredScaling().fit(h, y)


# The report


def test_the_report_is_about_what_is_given():
    h, y = structure()
    found = StructuredScaling().fit(h, y)
    report = found.fit_report_
    assert report.converged
    assert report.gradient_norm < 1e-6
    assert report.objective_gap < 1e-8
    assert report.nll == pytest.approx(nll(found, h, y))
    assert report.changed == pytest.approx(np.mean(found.predict_proba(h).argmax(axis=1) != h.argmax(axis=1)))
    assert 0.05 < report.changed < 0.6
    assert isinstance(found.map_, AffineMap)
    lines = found.describe()
    assert f"T = {found.temperature_:.4g}" in lines[0]
    assert "biases ±" in lines[-2]
    assert f"{found.heldout_gain_:.4f}" in lines[-2]
    assert "changes the prediction" in lines[-1]
    assert found.summary()["heldout_gain"] == found.heldout_gain_
    assert found.summary()["temperature"] == found.temperature_


# Files


@pytest.mark.parametrize("labels", ["clean", "noisy"])
@pytest.mark.parametrize("k", [2, 5])
def test_what_is_loaded_is_what_was_saved(tmp_path, labels, k):
    h, y = structure(600, bias=np.linspace(-1, 1, k))
    found = StructuredScaling(labels=labels).fit(h, y)
    found.save(tmp_path / "s.json")
    back = attemper.load(tmp_path / "s.json")
    np.testing.assert_array_equal(back.predict_proba(h), found.predict_proba(h))
    assert back.describe() == found.describe()
    assert back.prior_std_ == found.prior_std_
    assert (back.confusions_ is None) == (found.confusions_ is None)
    if found.confusions_ is not None:
        np.testing.assert_array_equal(back.confusions_.matrix, found.confusions_.matrix)
    np.testing.assert_array_equal(back.weight_, found.weight_)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "s.json"
    StructuredScaling(labels="noisy").fit(*draw(60, 3)).save(path)
    return path.read_text()


@pytest.mark.parametrize(
    "field, value",
    [
        ("bayes", None),
        ("temperature", None),
        ("noise_interval", [0.1]),
        ("uniform_mass", "none"),
        ("confusions", {}),
        ("confusions", {"columns": [[0]], "mean": [[1]], "low": [[1]], "high": [[1]]}),
        ("weight", [1, 1]),
        ("weight", [[1, 1], [1, 1]]),
        ("weight", [1, 1, 1]),
        ("bias", [0, 0]),
        ("bias", "none"),
        ("prior_std", 3),
        ("prior_std", {"biases": "wide"}),
        ("heldout_gain", "much"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, saved, field, value):
    content = json.loads(saved)
    content["fitted"][field] = value
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        attemper.load(tmp_path / "s.json")


# Parameters


@pytest.mark.parametrize(
    "parameters, why",
    [
        ({"structure": "everything"}, "'biases', 'scales', 'matrix'"),
        ({"structure": None}, "expected one of"),
        ({"labels": "dirty"}, "expected one of 'clean', 'noisy'"),
        ({"noise": "pairs"}, "expected one of 'auto', 'uniform', 'classwise'"),
        ({"t_range": (2, 1)}, "low < high"),
        ({"credible_level": 1.5}, "between 0 and 1"),
    ],
)
def test_parameters_are_checked(parameters, why):
    with pytest.raises(InputError):
        StructuredScaling(**parameters).fit(*draw(50, 3))


def test_a_sketch_is_not_enough():
    with pytest.raises(InputError):
        StructuredScaling().fit_sketch(Sketch.of(*draw(50, 3)))


def test_it_is_made_for_labels_of_either_kind():
    assert StructuredScaling.for_labels(noisy=True, structure="scales").labels == "noisy"
    assert StructuredScaling.for_labels(noisy=False).labels == "clean"


@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_weights_in_the_thousands_do_not_lead_astray(labels):
    h, y = draw(100, 5, seed=8)
    one, heavy = (StructuredScaling(labels=labels).fit(h, y, np.full(100, w)) for w in (1.0, 1e3))
    new = draw(4000, 5, seed=9)
    assert heavy.noise_rate_ < 0.15
    assert nll(heavy, *new) < nll(one, *new) + 0.3
    assert heavy.temperature_ == pytest.approx(one.temperature_, rel=0.5)


def test_equal_rows_are_in_one_fold_and_folds_are_even():
    x = np.random.default_rng(0).normal(size=(500, 4))
    fold = structured._folds(np.repeat(x, 2, axis=0))
    np.testing.assert_array_equal(fold[::2], fold[1::2])
    np.testing.assert_array_equal(np.bincount(fold), 200)
    np.testing.assert_array_equal(structured._folds(1000 * x), structured._folds(x))


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
