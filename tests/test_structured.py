"""Structured scaling: frozen numbers of clean labels; classes without a label; wrong labels; the kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from attemper.calibrators.label_model import Samples
from attemper.calibrators.one_vs_rest import PlattScaling
from attemper.calibrators.structured import STRUCTURES, StructuredScaling
from attemper.calibrators.temperature import TemperatureScaling, with_effective_weights
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, InputError
from attemper.kernels import evidence
from attemper.kernels.annotators import Channel
from attemper.kernels.evidence import Optimum, Penalty, Rows
from attemper.kernels.temperature import information
from conftest import draw
from test_ats_ets import DATA, network

# T, mean NLL and two biases, as recorded
FROZEN = {
    ("densenet40-cifar10-s0", "matrix"): (1.3761536006889143, 0.15916488560371514, 0.09334697, -0.00930951),
    ("densenet40-cifar10-s0", "biases"): (1.3853147897531546, 0.163720171330016, 0.14999203, 0.02285965),
    ("lenet5-fashion_mnist-s0", "matrix"): (1.8376619667059815, 0.20924256167338892, -0.11782424, -0.09924019),
    ("lenet5-fashion_mnist-s0", "biases"): (1.853934259818287, 0.21183811765984226, -0.21519021, -0.12095762),
}


def rows_of(h, y, full):
    samples = Samples.of(Scores.of(h, y), 0.0)
    rows = samples.rows(0.5)
    features = np.concatenate([rows.x, np.ones((len(y), 1))], axis=1) if full else None
    return samples, Rows(rows.x, rows.y, rows.w, rows.masked, features)


@pytest.mark.parametrize(("name", "structure"), FROZEN)
def test_clean_labels_have_the_frozen_numbers(name, structure):
    fitted = StructuredScaling(structure=structure).fit(*network(name))
    found = (fitted.temperature_, fitted.report_.nll, *fitted.bias_[:2])
    assert found == pytest.approx(FROZEN[name, structure], abs=5e-6)
    assert fitted.report_.converged
    assert fitted.report_.error < 1e-10


def test_two_classes_have_a_curve():
    h, y = draw(4000, 2)
    m = h[:, 1] - h[:, 0]  # the network bends it: its own is 0.7 m on one side, 1.3 m on the other
    bent = m - 0.3 * np.abs(m)
    fitted = StructuredScaling().fit(bent, y)
    assert set(fitted.prior_std_) == {"biases", "curve"}
    assert fitted.weight_[0, 0] == pytest.approx(0.5727484292942172, abs=1e-6)  # as recorded
    np.testing.assert_allclose(fitted.map_.stages[0].curve, [-0.21539661, 0.21539661], atol=1e-6)
    assert np.abs(fitted.predict_risk(bent) - expit(m / 2)).mean() < 0.02


def test_pixels_of_an_image_are_a_cluster():
    h, y = draw(60)
    images, labels = (np.repeat(a[:, None], 50, axis=1).reshape(60, 5, 10, *a.shape[1:]) for a in (h, y))
    scores = Scores.of(np.moveaxis(images, -1, 1), labels, axis=1)
    assert with_effective_weights(scores).total_weight == pytest.approx(60, rel=0.05)


def test_classes_without_a_label_get_no_parameters():
    h, y = draw(3000, 8, bias=-0.3)
    h[:, 6:] -= 12  # nor does the network expect them
    h, y = h[y < 6], y[y < 6]
    fitted = StructuredScaling().fit(h, y)
    assert (fitted.bias_[6:] == 0).all()
    assert fitted.bias_[0] - fitted.bias_[5] == pytest.approx(1.5, abs=0.5)
    np.testing.assert_allclose(fitted.weight_[6:], np.eye(8)[6:] / fitted.temperature_)
    assert len(fitted.report_.notes) == 1


@pytest.mark.parametrize("method", [StructuredScaling, PlattScaling])
def test_an_option_that_is_never_the_answer_gets_a_bias_with_a_warning(method):
    h, y = draw(2000, 6)
    kept = y < 4
    with pytest.warns(AttemperWarning):
        fitted = method().fit(h[kept], y[kept])
    p = fitted.predict_proba(h[kept])
    assert p[:, 4:].sum(axis=1).mean() < 0.02


def test_few_labelled_classes_leave_one_temperature():
    h, y = draw(2000, 8)
    h, y = h[y < 3], y[y < 3]
    with pytest.warns(AttemperWarning):
        fitted = StructuredScaling().fit(h, y)
    assert fitted.report_.too_few_classes
    assert fitted.report_.changed == 0
    assert fitted.prior_std_ == {}
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=0.05)


@pytest.mark.filterwarnings("ignore")
def test_accuracy_with_21_of_100_classes():
    fitted = StructuredScaling().fit(*network("densenet40-cifar100-s0"))
    with np.load(DATA / "densenet40-cifar100-s0.npz") as data:
        assert (fitted.predict(data["logits"]) == data["labels"]).mean() >= 0.727


def test_many_classes_need_several_labels_each():
    h, y = draw(150, 60)
    with pytest.warns(AttemperWarning):
        assert StructuredScaling().fit(h, y).report_.too_few_classes
    assert not StructuredScaling().fit(*draw(300, 60)).report_.too_few_classes


def test_a_known_share_of_wrong_labels():
    h, y = draw(3000)
    known, clean = StructuredScaling(noise=0.2).fit(*draw(3000, noise=0.2)), StructuredScaling().fit(h, y)
    assert known.noise_ == 0.2
    assert clean.noise_ == 0
    low, high = known.temperature_interval_
    assert low < 2 < high
    assert known.uniform_mass_ < 0.02
    assert np.abs(known.predict_proba(h) - clean.predict_proba(h)).mean() < 0.015


def test_what_is_not_the_labels_stays_in_the_prediction():
    fitted = StructuredScaling(noise=0.08).fit(*draw(6000, noise=0.16))  # ε = 0.2, of which 0.1 are the labels'
    assert fitted.uniform_mass_ == pytest.approx((0.2 - 0.1) / 0.9, abs=0.04)


def test_an_unknown_share_of_wrong_labels():
    fitted = StructuredScaling(noise="unknown").fit(*draw(3000, noise=0.2, seed=1))
    assert fitted.noise_ == pytest.approx(0.2, abs=0.06)
    assert fitted.noise_interval_[0] < 0.2 < fitted.noise_interval_[1]
    assert fitted.report_.cannot_tell


@pytest.mark.parametrize(("options", "param"), [({"structure": "all"}, "structure"), ({"noise": 0.9}, "noise"),
                                                ({"noise": "some"}, "noise")])  # fmt: skip
def test_errors_name_the_parameter(options, param):
    with pytest.raises(InputError) as caught:
        StructuredScaling(**options).fit(*draw(50))
    assert caught.value.param == param


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("channel", [Channel(), Channel(0.2), Channel(0.0, 0.8 * np.eye(4) + 0.05)])
def test_the_gradient_is_that_of_the_objective(full, channel):
    samples, rows = rows_of(*draw(60, 4), full)
    rng = np.random.default_rng(0)
    theta = 0.1 * rng.normal(size=(4, 5 if full else 2))
    penalty = Penalty(samples.prior.precisions(4).array(theta.shape), 0.5, samples.prior.log_t)

    def value(at):
        return rows.w @ channel.apply(rows.logits(at), rows.y).log_likelihood - penalty(at)

    gradient = rows.gradient(channel.apply(rows.logits(theta), rows.y)) - penalty.gradient(theta)
    for _ in range(3):
        v = rng.normal(size=theta.shape)
        slope = (value(theta + 1e-5 * v) - value(theta - 1e-5 * v)) / 2e-5
        assert np.vdot(gradient, v) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_curvature_is_the_slope_of_the_gradient(full):
    _, rows = rows_of(*draw(60, 4), full)
    theta = np.zeros((4, 5 if full else 2))
    state = Channel().apply(rows.logits(theta), rows.y)
    product = rows.curvature(state.p, rows.w)
    v = np.random.default_rng(0).normal(size=theta.shape)
    step = 1e-5
    more, less = (rows.gradient(Channel().apply(rows.logits(theta + s * v), rows.y)) for s in (step, -step))
    np.testing.assert_allclose(product(v), -(more - less) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("rounds", [3, 40])
def test_the_gradient_norm_is_that_of_the_result(rounds):
    samples, rows = rows_of(*draw(500, 4), False)
    start = Optimum.start(4, samples.prior)
    found = evidence.maximise(rows, samples.prior, start, {"biases"}, rounds=rounds)
    state = found.channel.apply(rows.logits(found.theta), rows.y)
    used = evidence.maximise(
        rows, samples.prior, Optimum.start(4, samples.prior), {"biases"}, rounds=rounds - 1
    ).precisions
    last = found.precisions if rounds == 40 else used
    penalty = Penalty(last.array(found.theta.shape), found.log_t, samples.prior.log_t)
    gradient = rows.gradient(state) - penalty.gradient(found.theta)
    assert found.gradient_norm == pytest.approx(np.sqrt(np.vdot(gradient, gradient)) / 500, rel=1e-9)


def test_of_many_samples_the_held_out_gain_is_below_that_of_the_fit():
    h, y = draw(12_000, 3, bias=0.3)  # too many to be held out in folds
    fitted = StructuredScaling().fit(h, y)
    gain = TemperatureScaling().fit(h, y).report_.nll - fitted.report_.nll
    assert gain - 20 / 12_000 < fitted.heldout_gain_ < gain


def test_weights_are_what_many_classes_need():
    h, y = draw(300, 60)
    with pytest.warns(AttemperWarning):
        assert StructuredScaling().fit(h, y, np.full(300, 0.4)).report_.too_few_classes


def test_weights_are_what_held_out_samples_need():
    h, y = draw(200, 3)
    assert StructuredScaling().fit(h, y).heldout_gain_ is not None
    assert StructuredScaling().fit(h, y, np.full(200, 0.4)).heldout_gain_ is None


def test_of_many_samples_the_interval_is_that_of_all():
    h, y = draw(70_000, 3, bias=0.3, seed=1)  # precisions are found on a fifth of these
    widths = []
    for method in (StructuredScaling(structure="biases"), TemperatureScaling()):
        low, high = method.fit(h, y).temperature_interval_
        widths.append(np.log(high / low))
    assert widths[0] == pytest.approx(widths[1], rel=0.2)


def test_one_case_counts_as_one_sample():
    scores = Scores.of(*draw(60), clusters=np.zeros(60))
    assert with_effective_weights(scores).total_weight == pytest.approx(1)


def test_the_interval_of_t_is_as_wide_as_noisy_labels_leave_it():
    h, y = draw(3000, 3, noise=0.3)
    fitted = StructuredScaling(structure="biases", noise=0.3).fit(h, y)
    low, high = fitted.temperature_interval_
    std = 1 / np.sqrt(information(h, fitted.temperature_, 0.3 * 3 / 2)[:, 0].sum())  # of log T
    assert np.log(high / low) / 2 == pytest.approx(1.96 * std, rel=0.1)


def test_rows_of_a_case_are_in_one_fold():
    scores = Scores.of(*draw(200, 3), clusters=np.arange(200) // 4)
    fold = Samples.of(scores, 0.0).folds().reshape(50, 4)
    assert (fold == fold[:, :1]).all()
    assert np.bincount(fold[:, 0]).tolist() == [10] * 5


def test_a_sample_of_weighted_rows_shows_what_all_of_them_would(monkeypatch):
    data, rows, w = draw(3000, 4, bias=0.3), np.repeat(np.arange(3000), 3), np.tile([1.0, 8.0, 8.0], 3000)
    h, y = data.h[rows], data.y[rows]
    whole = StructuredScaling(structure="biases").fit(h, y, w)
    monkeypatch.setattr("attemper.calibrators.label_model.MAX_ELEMENTS", 12_000)  # every third row
    part = StructuredScaling(structure="biases").fit(h, y, w)
    reach = [np.log(one.temperature_interval_[1] / one.temperature_interval_[0]) for one in (whole, part)]
    assert 1 <= reach[1] / reach[0] < 1.3  # the floor is known by these alone
    assert part.report_.nll == pytest.approx(whole.report_.nll, abs=1e-4)
    gain = TemperatureScaling().fit(h, y, w).report_.nll - part.report_.nll
    assert part.heldout_gain_ == pytest.approx(gain, abs=6e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_what_the_network_expects_is_weighted_and_knows_masks(masked):
    data, even = draw(3000, 4, bias=0.5), np.arange(3000) % 2 == 0
    h, y, w = data.h.copy(), data.y, np.where(even, 0.1, 1.0)
    h[:, 3] = np.where(even, -60.0 if masked else 2 * np.log(0.05 * np.exp(h[:, :3] / 2).sum(axis=1)), -60.0)
    h[~even & masked, 3] = -np.inf
    fitted = StructuredScaling().fit(h[y < 3], y[y < 3], w[y < 3])  # of class 3, expected of 0.5 %, is no label
    assert (fitted.bias_[3], len(fitted.report_.notes)) == (0, 1)


def test_which_map_is_left_when_it_is_better_and_simpler():
    for t, alone in ((1.0, True), (3.0, False)):
        fitted = StructuredScaling().fit(*draw(500, 5, t=t))
        assert (fitted.prior_std_, fitted.heldout_gain_) == ({}, 0.0)
        assert fitted.report_.left_alone == alone == (fitted.temperature_ == 1)


@pytest.mark.parametrize("k", [2, 4])
def test_the_held_out_gain_is_weighted(k):
    data = draw(400, k, masks=0.2 * (k > 2), noise=0.1, bias=1.0)
    rows = np.repeat(np.arange(400), data.w.astype(int))
    one, two = StructuredScaling().fit(data.h, data.y, data.w), StructuredScaling().fit(data.h[rows], data.y[rows])
    assert one.heldout_gain_ == pytest.approx(two.heldout_gain_, rel=1e-4)
    assert one.heldout_gain_ > 0


@pytest.mark.parametrize("structure", STRUCTURES)
def test_two_classes_bend_with_the_whole_structure_alone(structure):
    h, y = draw(3000, 2, bias=0.5)
    y = np.where(h[:, 1] - h[:, 0] > 4, 1 - y, y)  # no straight line fits
    stage = StructuredScaling(structure=structure).fit(h, y).map_.stages[0]
    assert (stage.curve is not None) == (structure == STRUCTURES[-1])
