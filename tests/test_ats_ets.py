"""ATS and ETS: the paper's equations, frozen numbers, the fallback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm
from scipy.stats import t as student

from attemper.calibrators.attended import AttendedTemperatureScaling
from attemper.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling, with_effective_weights, z95
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, EdgeWarning, InputError
from attemper.sketches import Sketch
from conftest import draw

import oracles

DATA = Path(__file__).parents[1] / "data"


def network(name, n=1000):
    """Return the first validation rows of a network; the tests that need one are skipped without the data."""
    if not (DATA / f"{name}.npz").exists():
        pytest.skip("needs the logits of data/")
    with np.load(DATA / f"{name}.npz") as data:
        return data["val_logits"][:n], data["val_labels"][:n].astype(int)


# θ, T and the mean NLL, as recorded
FROZEN = {
    ("densenet40-cifar10-s0", "paper"): (0.092, 1.3832785704047326, 0.165500993067287),
    ("densenet40-cifar10-s0", "reference"): (0.076, 1.3759671803861182, 0.16549997773261638),
    ("lenet5-fashion_mnist-s0", "paper"): (0.046, 1.8977446798889654, 0.22505032674854447),
    ("lenet5-fashion_mnist-s0", "reference"): (0.032, 1.8938405717587785, 0.2250512229659974),
}


@pytest.mark.parametrize(("name", "loss"), FROZEN)
def test_ats_has_the_frozen_numbers(name, loss):
    fitted = AttendedTemperatureScaling(loss=loss).fit(*network(name))
    theta, t, nll = FROZEN[name, loss]
    assert fitted.theta_ == theta
    assert fitted.temperature_ == pytest.approx(t, rel=1e-8)
    assert fitted.report_.nll == pytest.approx(nll, rel=1e-8)


def test_ets_weights_are_those_of_a_general_optimiser():
    data = draw(2000, noise=0.1)
    h = 3 * data.h
    fitted = EnsembleTemperatureScaling().fit(h, data.y)
    ts = TemperatureScaling().fit(h, data.y)
    assert fitted.temperature_ == pytest.approx(ts.temperature_, rel=1e-12)
    assert fitted.temperature_interval_ == pytest.approx(ts.temperature_interval_, rel=1e-6)
    rows = np.arange(len(h))
    s = [np.array([oracles.softmax(row, t) for row in h])[rows, data.y] for t in (fitted.temperature_, 1.0)]
    parts = np.stack([*s, np.full(len(h), 1 / 5)], axis=1)

    def nll(z):
        w = np.exp(z - np.logaddexp.reduce(z))
        return -np.log(parts @ w).mean()

    best = minimize(nll, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    assert fitted.report_.nll <= best.fun + 1e-9
    np.testing.assert_allclose(fitted.weights_, np.exp(best.x - np.logaddexp.reduce(best.x)), atol=1e-3)
    assert fitted.report_.error < 1e-12


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["paper", "reference"])
@pytest.mark.parametrize("theta", [0.0008, 0.3])
def test_temperature_has_the_least_loss_of_eq_8(theta, loss):
    data = draw(60, 4)
    h, y = 3 * data.h, data.y  # over-confident
    fitted = AttendedTemperatureScaling(theta=theta, loss=loss).fit(h, y)
    of = oracles.attended_loss if loss == "paper" else oracles.reference_loss
    at = fitted.path_.temperature[0]
    least = of(h, y, at, theta)
    assert all(of(h, y, at * factor, theta) > least for factor in (0.2, 0.99, 1.01, 5))
    assert fitted.theta_ == theta


def test_sketch_gives_what_rows_give():
    h, y = draw(3000)
    sketch = Sketch.of(Scores.of(h[:1000], y[:1000])) + Sketch.of(Scores.of(h[1000:], y[1000:]))
    for params in ({}, {"theta": 0.05}, {"t_range": (0.5, 5)}):
        rows, made = (AttendedTemperatureScaling(**params) for _ in range(2))
        assert made.fit_sketch(sketch).temperature_ == pytest.approx(rows.fit(h, y).temperature_, rel=1e-6)
    for params, param in (({"theta": 0.0008}, "theta"), ({"loss": "reference"}, "parts")):
        with pytest.raises(InputError) as error:
            AttendedTemperatureScaling(**params).fit_sketch(sketch)
        assert error.value.param == param
    with pytest.warns(EdgeWarning):
        assert AttendedTemperatureScaling(t_range=(0.5, 1.2)).fit_sketch(sketch).temperature_ == 1.2


def test_falls_back_and_says_so_where_the_network_needs_t_below_1():
    data = draw(3000, t=0.5)
    with pytest.warns(AttemperWarning):
        fitted = AttendedTemperatureScaling().fit(data.h, data.y)
    assert fitted.theta_ == 1
    assert not fitted.report_.left_alone
    assert len(fitted.report_.notes) >= 3
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(data.h, data.y).temperature_, rel=1e-8)
    with pytest.warns(AttemperWarning):
        chosen = AttendedTemperatureScaling(theta=0.01).fit(data.h, data.y)
    assert chosen.theta_ == 0.01
    assert len(chosen.report_.notes) == 2


def test_a_range_without_1_has_no_fallback_to_1():
    data = draw(2000, t=1.0)
    with pytest.warns(EdgeWarning):
        fitted = AttendedTemperatureScaling(t_range=(2, 5)).fit(data.h, data.y)
    assert fitted.temperature_ == pytest.approx(2)
    assert not fitted.report_.left_alone


def test_edges_and_flat_logits():
    h = draw(50).h
    with pytest.warns(EdgeWarning):
        fitted = AttendedTemperatureScaling(theta=1.0).fit(h, h.argmax(axis=1))
    assert fitted.temperature_ == pytest.approx(0.05)
    assert fitted.report_.edge == "low"
    assert fitted.temperature_interval_ is None
    assert AttendedTemperatureScaling().fit(np.zeros((4, 3)), [0, 1, 2, 0]).temperature_ == 1


@pytest.mark.parametrize(
    ("params", "param"),
    [({"theta": 2}, "theta"), ({"theta_grid": [0.2, 0.1]}, "theta_grid"), ({"loss": "x"}, "loss"),
     ({"t_range": (2, 1)}, "t_range"), ({"theta": [0.1, 0.2]}, "theta")],
)  # fmt: skip
def test_errors(params, param):
    with pytest.raises(InputError) as error:
        AttendedTemperatureScaling(**params).fit(draw(50).h, draw(50).y)
    assert error.value.param == param


def test_ets_with_masks_has_the_nll_of_its_map():
    h, y = draw(800, masks=0.5, noise=0.2)
    fitted = EnsembleTemperatureScaling().fit(h, y)
    nll = -fitted.predict_log_proba(h)[np.arange(800), y].mean()
    assert fitted.weights_[2] > 0.01
    assert fitted.report_.nll == pytest.approx(nll, rel=1e-9)


def test_few_clusters_widen_the_interval_of_ats_as_that_of_ts():
    (h, y), case = draw(3000), np.arange(3000) % 6
    widths = []
    for method in (AttendedTemperatureScaling, TemperatureScaling):
        low, high = method().fit(h, y, clusters=case).temperature_interval_
        widths.append(np.log(high / low))
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


def test_intervals_of_few_cases_have_students_quantile():
    h, y = draw(60)
    for n_cases in (2, 4, 12):
        scores = Scores.of(h, y, clusters=np.arange(60) % n_cases)
        assert z95(scores) == pytest.approx(student.ppf(0.975, n_cases - 1))
    assert z95(Scores.of(h, y)) == pytest.approx(norm.ppf(0.975), rel=1e-6)


def test_weights_of_rows_of_a_case_are_repeats():
    data, counts = draw(300, clusters=3), np.random.default_rng(1).integers(1, 6, 300)
    rows = np.repeat(np.arange(300), counts)
    weighted = Scores.of(data.h, data.y, clusters=data.cluster, sample_weight=counts)
    repeated = Scores.of(data.h[rows], data.y[rows], clusters=data.cluster[rows])
    found = with_effective_weights(weighted).total_weight
    assert found == pytest.approx(with_effective_weights(repeated).total_weight, rel=1e-6)


def test_the_ends_of_the_range_are_in_it():
    h, y = draw(600)
    t = TemperatureScaling().fit(h, y).temperature_
    for t_range in ((t, 2 * t), (t / 2, t)):
        fitted = TemperatureScaling(t_range=t_range).fit(h, y)
        assert (fitted.temperature_, fitted.report_.edge) == (t, None)


def test_a_temperature_within_noise_of_1_is_left_alone():
    h, y = draw(600)
    found = TemperatureScaling().fit(h, y)
    std = np.log(found.temperature_interval_[1] / found.temperature_) / 1.959964
    for reach, alone in ((1.4, True), (1.43, False), (-1.4, True), (-1.43, False)):  # √2
        scaled = TemperatureScaling().fit(h * np.exp(reach * std) / found.temperature_, y)
        assert scaled.report_.left_alone == alone


def test_the_design_effect_of_many_rows_is_that_of_some_cases(monkeypatch):
    data = draw(240, 4, clusters=30)
    twice, case = np.tile(np.arange(240), 2), np.concatenate([2 * data.cluster, 2 * data.cluster + 1])
    alone = with_effective_weights(Scores.of(data.h, data.y, clusters=data.cluster))
    monkeypatch.setattr("attemper.calibrators.temperature.MOST_SLOPES", 240 * 4)  # every second case
    both = with_effective_weights(Scores.of(data.h[twice], data.y[twice], clusters=case))
    assert both.total_weight == pytest.approx(2 * alone.total_weight, rel=1e-6)


def test_one_case_counts_as_one_whatever_its_weights():
    h, y = draw(60)
    scores = Scores.of(h, y, clusters=np.zeros(60), sample_weight=np.full(60, 3.0))
    assert with_effective_weights(scores).total_weight == pytest.approx(1)


def test_a_calibrated_network_is_left_alone_by_ats():
    h, y = draw(3000, t=1.0)
    with pytest.warns(AttemperWarning):
        fitted = AttendedTemperatureScaling().fit(h, y)
    assert (fitted.temperature_, fitted.theta_, fitted.report_.left_alone) == (1, 1, True)
