import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, logit

from attemper import (
    BayesianTemperatureScaling,
    EdgeWarning,
    Sketch,
    TemperatureScaling,
)
from attemper.calibrators.posterior import Model

from data import classwise, draw
from oracles import noisy_log_likelihood, similar_log_likelihood, softmax


def prior_t(u, h):
    """Student-t density of log T, up to a constant, as the module's docstring says it."""
    c = np.clip(np.mean([max(softmax(row)) for row in h]), 0.01, 0.95)
    return stats.t(4, loc=0.15 + logit(c) / 8, scale=0.4).pdf(u)


def brute_force(h, y, labels, n_u=120, n_v=120):
    """Posterior by loops over T, the two floors and both laws, without tables: (T, weight, e_m, e_a)."""
    k = h.shape[1]
    us = np.linspace(np.log(0.2), np.log(12), n_u)
    es = expit(np.linspace(logit(1e-5), logit(0.98), n_v))
    jac = es * (1 - es) * (logit(0.98) - logit(1e-5)) / (n_v - 1)
    floor = [(0.0, 0.9 + 0.1 * stats.beta(0.25, 20).cdf(1e-5))] + [
        (e, 0.1 * stats.beta(0.25, 20).pdf(e) * j) for e, j in zip(es, jac)
    ]
    points = []
    for u in us:
        s = np.array([softmax(row, np.exp(u))[label] for row, label in zip(h, y)])
        soft = np.array([softmax(row, 3 * np.exp(u))[label] for row, label in zip(h, y)])
        p = prior_t(u, h)
        if labels == "clean":
            points += [(u, p * w * np.prod((1 - e) * s + e / k), e, 0.0) for e, w in floor]
            continue
        for e_a, j in zip(es, jac):
            points.append((u, 0.1 * p * 4 * (1 - e_a) ** 3 * j * np.prod((1 - e_a) * s + e_a * soft), 0.0, e_a))
            for e_m, w in [floor[0], *((e, 4 * w) for e, w in floor[1::4])]:  # every fourth stands for four
                e = 1 - (1 - e_m) * (1 - e_a)
                points.append((u, 0.9 * p * w * j * np.prod((1 - e) * s + e / k), e_m, e_a))
    points = np.array(points)
    points[:, 1] /= points[:, 1].sum()
    return points


@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_the_grid_is_the_brute_force_posterior(labels):
    h, y = draw(25, 3, seed=3)
    y[:4] = (y[:4] + 1) % 3
    sizes = {"clean": (150, 150), "noisy": (50, 60)}[labels]
    u, w, e_m, e_a = brute_force(h, y, labels, *sizes).T
    noise = "uniform" if labels == "noisy" else "auto"  # which has no account with biases of the network
    found = BayesianTemperatureScaling(labels=labels, noise=noise).fit(h, y)
    order = np.argsort(u, kind="stable")
    quantiles = np.exp(np.interp([0.025, 0.5, 0.975], np.cumsum(w[order]), u[order]))
    low, high = found.temperature_interval_
    np.testing.assert_allclose([low, found.temperature_, high], quantiles, rtol=0.05)
    assert found.noise_rate_ == pytest.approx(w @ e_a, abs=0.01)
    new = draw(10, 3, seed=9)[0]
    expected = np.zeros((10, 3))
    for i, row in enumerate(new):
        for value in np.unique(u):
            here = u == value
            expected[i] += (w[here] @ (1 - e_m[here])) * np.array(softmax(row, np.exp(value)))
        expected[i] += w @ e_m / 3
    np.testing.assert_allclose(found.predict_proba(new), expected, atol=2e-3)


def test_the_closed_form_of_the_two_floors_is_the_convolution():
    model = Model("noisy", 0.15, 0.125, 0.4, 4.0, 0.4, (0.7, 9.0), 0.1, 4.0)
    law = stats.beta(0.7, 9.0)
    for e in (0.01, 0.1, 0.5, 0.9):
        v = np.array([logit(e)])
        # 1 − e = (1 − e_m)(1 − e_a), e_a uniform: given e_m the density of e is 1/(1 − e_m) on (e_m, 1).
        mass = 0.6 + 0.4 * integrate.quad(lambda m: law.pdf(m) / (1 - m), 0, e)[0]
        own = 0.4 * integrate.quad(lambda m: m * law.pdf(m) / (1 - m), 0, e)[0]
        density, share = model.floors(v)
        np.testing.assert_allclose(density, mass * e * (1 - e), rtol=1e-6)
        np.testing.assert_allclose(share, own / mass, rtol=1e-6)
        t = 0.6 * e
        at_least = (e - t) / (1 - t)
        below = 0.4 * integrate.quad(lambda m: law.pdf(m) / (1 - m), at_least, e)[0] / mass
        np.testing.assert_allclose(model.noise_below_with_floor(t, np.array([e])), below, rtol=1e-6)
        parts = model.noise_below_with_floor(e, np.array([e])) + model.no_floor(np.array([e]))
        assert parts == pytest.approx(1)


def test_noise_is_found_and_does_not_move_t():
    h, y = draw(2000, 6)
    rng = np.random.default_rng(1)
    y[:600] = rng.integers(0, 6, 600)
    found = BayesianTemperatureScaling(labels="noisy").fit(h, y)
    assert found.noise_interval_[0] < 0.3 < found.noise_interval_[1]
    assert found.temperature_interval_[0] < 2 < found.temperature_interval_[1]
    assert TemperatureScaling().fit(h, y).temperature_ > 3
    assert found.similar_ < 0.1


def test_errors_among_similar_classes_are_told_from_errors_anywhere():
    h, y = draw(3000, 10, scale=3.0)
    rng = np.random.default_rng(1)
    y[:900] = (h[:900] / 6 + rng.gumbel(size=(900, 10))).argmax(axis=1)
    found = BayesianTemperatureScaling(labels="noisy").fit(h, y)
    assert found.similar_ > 0.9
    assert found.temperature_ == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_no_error_in_sight_gives_a_finite_answer_without_a_warning(labels):
    y = np.arange(200) % 4
    h = np.random.default_rng(0).normal(size=(200, 4)) + 9 * np.eye(4)[y]  # sure and right, as on digits
    found = BayesianTemperatureScaling(labels=labels).fit(h, y)
    assert 0.3 < found.temperature_ < 2
    assert found.temperature_interval_[0] > 0.05
    with pytest.warns(EdgeWarning):
        BayesianTemperatureScaling(labels=labels, t_range=(0.05, 20)).fit(h / 100, y)


def test_intervals_cover():
    inside = 0
    for seed in range(60):
        h, y = draw(80, 4, t=1.6, seed=seed)
        low, high = BayesianTemperatureScaling(credible_level=0.9).fit(h, y).temperature_interval_
        inside += low <= 1.6 <= high
    assert 48 <= inside <= 60


def test_from_a_sketch_any_noise_is_uniform_noise():
    h, y = draw(300, 4)
    sketch = Sketch.of(h, y)
    auto, uniform = (
        BayesianTemperatureScaling(labels="noisy", noise=noise).fit_sketch(sketch) for noise in ("auto", "uniform")
    )
    assert auto.summary() == uniform.summary()
    assert auto.confusions_ is None


def test_likelihood_oracles_are_what_the_module_says():
    h, y = draw(5, 3)
    a = sum(np.log(0.8 * softmax(r, 2)[k] + 0.2 / 3) for r, k in zip(h, y))
    assert noisy_log_likelihood(h, y, 2, 0.2) == pytest.approx(a)
    b = sum(np.log(0.8 * softmax(r, 2)[k] + 0.2 * softmax(r, 6)[k]) for r, k in zip(h, y))
    assert similar_log_likelihood(h, y, 2, 0.2) == pytest.approx(b)


def paired(n=2000, k=5, rate=0.3, **more):
    """Labels of which a share is that of the next class; and those before."""
    h, y = draw(n, k, **({"scale": 5.0} | more))
    flip = np.random.default_rng(1).random(n) < rate
    return h, np.where(flip, (y + 1) % k, y), y


def test_classes_that_annotators_confuse_do_not_move_t():
    h, observed, clean = paired()
    found = classwise().fit(h, observed)
    at = TemperatureScaling().fit(h, clean).temperature_
    assert found.temperature_ == pytest.approx(at, rel=0.1)
    assert TemperatureScaling().fit(h, observed).temperature_ > 2 * at
    assert found.classwise_ > 0.99
    assert found.noise_interval_[0] < 0.3 < found.noise_interval_[1]
    truth = 0.7 * np.eye(5) + 0.3 * np.roll(np.eye(5), 1, axis=1)
    np.testing.assert_allclose(found.confusions_.matrix, truth, atol=0.06)
    assert np.mean((found.confusions_.low <= truth) & (truth <= found.confusions_.high) | (truth == 0)) > 0.9
    worst = found.summary()["confusions"]
    assert len(worst) == 5
    assert all((c["true"] + 1) % 5 == c["label"] for c in worst)


def test_clean_labels_cost_little_where_they_might_be_wrong():
    h, y = draw(2000, 5, scale=5.0)
    found, plain = classwise().fit(h, y), BayesianTemperatureScaling().fit(h, y)
    assert found.temperature_ == pytest.approx(plain.temperature_, rel=0.05)
    assert found.noise_rate_ < 0.03
    new, label = draw(4000, 5, scale=5.0, seed=7)
    cost = [-np.log(m.predict_proba(new)[np.arange(4000), label]).mean() for m in (found, plain)]
    assert cost[0] - cost[1] < 1e-3


def test_biases_of_the_network_are_not_taken_for_confusions_of_annotators():
    h, y = draw(1500, 5)
    found = BayesianTemperatureScaling(labels="noisy").fit(h + np.array([3, 0, 0, 0, -3]), y)
    assert found.classwise_ < 0.95  # without errors the data leave open what they would depend on
    assert found.noise_rate_ < 0.05
    assert found.confusions_.matrix[~np.eye(5, dtype=bool)].max() < 0.05


@pytest.mark.parametrize("labels", ["clean", "noisy"])
@pytest.mark.parametrize("n", [30, 300])
def test_the_report_has_the_nll_of_the_map(labels, n):
    """A wide posterior, and a chance of a uniform guess, are part of the map."""
    h, y = draw(n, 5, seed=3)
    wrong = np.random.default_rng(0).random(n) < 0.2
    y = np.where(wrong, (y + 1) % 5, y)
    found = BayesianTemperatureScaling(labels=labels).fit(h, y)
    p = found.predict_proba(h)
    assert found.fit_report_.nll == pytest.approx(-np.log(p[np.arange(n), y]).mean(), rel=1e-9)
