"""What every method has in common: METHODS × `attemper.testing.CHECKS`, and arrays of any library."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import attemper
from attemper import METHODS, GroupedCalibrator, Scores
from attemper.calibrators.temperature import with_effective_weights
from attemper.data.arrays import row_slices
from attemper.errors import InputError
from attemper.testing import CHECKS
from conftest import draw

OURS = [name for name, kind in METHODS.items() if kind.__module__.startswith("attemper.")]
ARRAYS = {
    "torch": torch.tensor,
    "torch32": lambda h: torch.tensor(h, dtype=torch.float32),
    "jax": jnp.asarray,
    "float32": lambda h: h.astype(np.float32),
    "list": lambda h: h.tolist(),
    "fortran": np.asfortranarray,
}
KEEP = {"ts", "ats", "bayes", "ets"}  # never change a prediction
WITH_T = [*sorted(KEEP), "structured"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", OURS)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
def test_contract(method, check):
    check(METHODS[method]())


@pytest.mark.parametrize("method", OURS)
def test_arrays_of_other_libraries(method):
    data = draw(400)
    fitted = METHODS[method]().fit(data.h, data.y)
    expected = fitted.predict_proba(data.h)
    for name, make in ARRAYS.items():
        with np.errstate(all="ignore"):
            x = make(data.h)
        p = fitted.predict_proba(x)
        exact = "32" not in name and name != "jax"
        assert isinstance(p, type(x) if hasattr(x, "dtype") else np.ndarray), name
        assert not hasattr(x, "dtype") or p.dtype == x.dtype, name
        np.testing.assert_allclose(np.asarray(p), expected, atol=1e-12 if exact else 2e-4, err_msg=name)
        again = clone(fitted).fit(x, data.y).predict_proba(data.h)
        np.testing.assert_allclose(again, expected, atol=1e-12 if exact else 2e-3, err_msg=name)


@pytest.mark.parametrize("method", OURS)
def test_predictions(method):
    data = draw(300, masks=0.2)
    fitted = METHODS[method]().fit(data.h, data.y)
    assert fitted.map_.keeps_arg_max == (method in KEEP)
    changed = (fitted.predict(data.h) != data.h.argmax(axis=1)).mean()
    assert fitted.report_.changed == pytest.approx(changed, abs=1e-12)
    log_p = fitted.predict_log_proba(data.h)
    if method not in ("bayes", "structured"):  # these report an NLL of the average over T
        assert fitted.report_.nll == pytest.approx(-log_p[np.arange(300), data.y].mean(), rel=1e-9)
    assert fitted.report_.n_samples == 300
    np.testing.assert_allclose(fitted.priors_, fitted.predict_proba(data.h).mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("method", OURS)
def test_groups(method):
    data = draw(900, groups=3)
    cal = GroupedCalibrator(method).fit(data.h, data.y, groups=data.group)
    ratio = np.array(cal.groups_.temperature_ratio)
    assert (np.diff(ratio) > 0).all()  # as drawn
    same = np.zeros(900, int)
    one = GroupedCalibrator(method).fit(data.h, data.y, groups=same)
    np.testing.assert_allclose(one.predict_proba(data.h, groups=same), one.common_.predict_proba(data.h), atol=1e-12)


@pytest.mark.parametrize("method", WITH_T)
def test_copies_of_a_case_count_once(method):
    data, case = draw(400), np.arange(400).repeat(4)
    alone = METHODS[method]().fit(data.h, data.y)
    copies = METHODS[method]().fit(data.h[case], data.y[case], clusters=case)
    assert copies.temperature_ == pytest.approx(alone.temperature_, rel=1e-4)
    np.testing.assert_allclose(np.log(copies.temperature_interval_), np.log(alone.temperature_interval_), atol=2e-3)
    scores = Scores.of(data.h[case], data.y[case], clusters=case)
    assert with_effective_weights(scores).weights == pytest.approx(np.full(1600, 1 / 4), rel=0.02)


@pytest.mark.parametrize("method", OURS)
def test_rows_of_weight_zero_are_as_if_removed(method):
    data = draw(600, clusters=3)
    some = data.cluster % 2 > 0
    w = np.where(some, 1.0, 0.0)
    fitted = METHODS[method]().fit(data.h, data.y, w, clusters=data.cluster)
    fewer = METHODS[method]().fit(data.h[some], data.y[some], w[some], clusters=data.cluster[some])
    np.testing.assert_array_equal(fitted.predict_proba(data.h), fewer.predict_proba(data.h))
    assert fitted.report_ == fewer.report_
    assert getattr(fitted, "temperature_interval_", None) == getattr(fewer, "temperature_interval_", None)


@pytest.mark.parametrize("method", WITH_T)
def test_the_scale_of_the_logits_is_the_scale_of_t(method):
    data = draw(1000)
    small, large = (METHODS[method]().fit(scale * data.h, data.y) for scale in (1, 1000))
    assert large.temperature_ == pytest.approx(1000 * small.temperature_, rel=1e-6)


def test_cases_that_differ_in_their_classes_alone_count_once_too():
    rng, case = np.random.default_rng(0), np.arange(2000) // 10
    z = np.where(np.arange(2000) % 2, 1.0, -1.0)  # so that the slopes in T of a case cancel
    y = (z + 2 * rng.normal(size=200)[case] + rng.logistic(size=2000) > 0).astype(int)
    scores = Scores.of(np.column_stack([0 * z, z]), y, clusters=case)
    assert 0.15 < with_effective_weights(scores).total_weight / 2000 < 0.35


def test_images_have_the_axis_of_the_fit(tmp_path):
    data = draw(600, 4)
    images, labels = np.moveaxis(data.h.reshape(20, 6, 5, 4), -1, 1), data.y.reshape(20, 6, 5)
    cal = attemper.fit(images, labels, axis=1, method="ts")
    p = cal.predict_proba(images)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(cal.predict_proba(np.moveaxis(images, 1, -1), axis=-1), np.moveaxis(p, 1, -1))
    cal.save(tmp_path / "a.json")
    np.testing.assert_array_equal(attemper.load(tmp_path / "a.json").predict_proba(images), p)
    with pytest.raises(InputError) as error:
        attemper.TemperatureScaling().fit(images[:, :, 0, 0], labels[:, 0, 0]).predict_proba(images)
    assert error.value.param == "axis"


def test_a_rule_goes_with_the_calibrator(tmp_path):
    from attemper.decisions import Referral

    data = draw(500, k=3)
    cal = attemper.TemperatureScaling().fit(data.h, data.y)
    with pytest.raises(InputError):
        cal.decide(data.h)
    cal.rule_ = Referral(3, 0.8)
    actions = cal.decide(data.h)
    np.testing.assert_array_equal(actions.refer, cal.predict_proba(data.h).max(axis=1) < 0.8)
    cal.save(tmp_path / "a.json")
    back = attemper.load(tmp_path / "a.json")
    assert back.rule_ == cal.rule_
    with pytest.warns(attemper.AttemperWarning):
        dropped = cal.with_priors([0.2, 0.3, 0.5])
    assert not hasattr(dropped, "rule_")
    assert cal.rule_ == Referral(3, 0.8)


@pytest.mark.parametrize("input", ["logits", "probs"])
def test_partial_fit_is_an_addition(input):
    data = draw(1200)
    x = data.h if input == "logits" else data.p
    whole = attemper.TemperatureScaling(input=input).fit(x, data.y).temperature_
    cal = attemper.TemperatureScaling(input=input)
    for part in np.array_split(np.arange(1200), 5):
        cal.partial_fit(x[part], data.y[part])
    assert cal.temperature_ == pytest.approx(whole, rel=1e-8)
    with pytest.warns(attemper.AttemperWarning):
        assert attemper.TemperatureScaling(input=input).fit(x, data.y).partial_fit(x, data.y).report_.n_samples == 1200
    for one in (attemper.PlattScaling(), attemper.AttendedTemperatureScaling(loss="reference")):
        assert not hasattr(one, "partial_fit")


@pytest.mark.parametrize(("method", "limit"), [
    ("vector", "multinomial.MAX_STEPS"), ("platt", "curves.MAX_STEPS"),
])  # fmt: skip
def test_a_fit_that_stops_too_early_warns(method, limit, monkeypatch):
    monkeypatch.setattr(f"attemper.kernels.{limit}", 1)
    data = draw(400)
    with pytest.warns(attemper.ConvergenceWarning):
        assert not METHODS[method]().fit(data.h, data.y).report_.converged


def test_a_step_of_a_pipeline_and_of_a_search():
    data = draw(400)
    pipe = make_pipeline(FunctionTransformer(np.exp), FunctionTransformer(np.log), attemper.PlattScaling())
    np.testing.assert_allclose(
        pipe.fit(data.h, data.y).predict_proba(data.h),
        attemper.PlattScaling().fit(data.h, data.y).predict_proba(data.h),
        atol=1e-9,
    )
    search = GridSearchCV(attemper.VectorScaling(), {"l2": [0.1, 1e6]}, scoring="neg_log_loss", cv=3)
    scores = search.fit(data.h, data.y).cv_results_["mean_test_score"]
    plain = cross_val_score(attemper.TemperatureScaling(), data.h, data.y, scoring="neg_log_loss", cv=3).mean()
    assert scores[1] == pytest.approx(plain, abs=1e-5)  # the ridge draws towards the temperature


def test_print():
    data = draw(500, noise=0.2)
    cal = attemper.BayesianTemperatureScaling(noise="unknown").fit(data.h, data.y)
    shown = [float(number) for number in re.findall(r"\d+\.\d+", str(cal))]
    for number in (cal.temperature_, *cal.temperature_interval_, 100 * cal.noise_, cal.report_.nll):
        assert np.abs(np.array(shown) / number - 1).min() < 0.01
    assert str(attemper.TemperatureScaling()) == "TemperatureScaling()"


def test_columns_of_a_frame_are_those_of_the_classes_in_any_order():
    data = draw(400, 12)
    order = sorted(range(12), key=str)
    cal = attemper.TemperatureScaling().fit(data.h, data.y)
    for prefix in ("logit_", ""):
        frame = pd.DataFrame(data.h[:, order], columns=[f"{prefix}{k}" for k in order])
        np.testing.assert_array_equal(cal.predict(frame), cal.predict(data.h))
        assert attemper.TemperatureScaling().fit(frame, data.y).temperature_ == cal.temperature_


def test_partial_fit_remembers_classes_and_columns():
    data, names = draw(600, 3), [1, 2, 3]
    later = data.y > 0
    whole = attemper.TemperatureScaling(classes=names).fit(data.h, data.y + 1)
    frame = pd.DataFrame(data.h, columns=["logit_1", "logit_2", "logit_3"])
    cal = attemper.TemperatureScaling().partial_fit(frame[~later], data.y[~later] + 1, classes=names)
    cal.partial_fit(data.h[later], data.y[later] + 1)
    assert cal.temperature_ == pytest.approx(whole.temperature_, rel=1e-8)
    assert cal.read_.columns == tuple(frame.columns)


def test_whether_a_low_logit_is_a_mask_does_not_depend_on_other_rows():
    data = draw(900, 3)
    masked, low = np.array([[2.0, -1e4, 1.0]]), np.array([[-9001.0, -9002.0, -8999.0]])
    for scale in (1.0, 1e4):  # in the fit nothing was so low; or much was
        cal = attemper.BayesianTemperatureScaling().fit(scale * data.h, data.y)
        alone, among = cal.predict_proba(masked), cal.predict_proba(np.concatenate([masked, scale * data.h]))
        np.testing.assert_array_equal(alone[0], among[0])
        assert (alone[0, 1] == 0) == (scale == 1)
        assert (cal.predict_proba(low) > 0).all()


# --- every method, with parameters that take other branches -----------------------------------------------------------

VARIANTS = {
    **{name: METHODS[name]() for name in OURS},
    "known noise": METHODS["bayes"](noise=0.1),
    "unknown noise": METHODS["bayes"](noise="unknown"),
    "structured, known noise": METHODS["structured"](noise=0.1),
    "structured, unknown noise": METHODS["structured"](noise="unknown"),
    "reference loss": METHODS["ats"](loss="reference"),
    "uniform bins": METHODS["histogram"](strategy="uniform"),
    "t_range": METHODS["ts"](t_range=(0.1, 1.5)),
}
KNOW_NOTHING_OF_MASKS = {"dirichlet", "unknown noise", "structured, unknown noise"}  # whose priors have all columns
quiet = pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
every = pytest.mark.parametrize("name", VARIANTS)


def mixed(k=4, **options):
    """Data with all that may go wrong together: masks, weights, clusters, wrong labels, biases."""
    return draw(300, k, **{"clusters": 3, "masks": 0.2, "noise": 0.1, "bias": 0.3, **options})


def fit_of(name, data, h=None, **other):
    given = {"y": data.y, "sample_weight": data.w, "clusters": data.cluster} | other
    return clone(VARIANTS[name]).fit(data.h if h is None else h, **given)


def numbers(fitted):
    """What a fit reports, as plain numbers."""
    report = fitted.report_
    names = ("nll", "changed", "left_alone", "too_few_classes", "cannot_tell", "converged", "n_cases")
    found = {name: getattr(report, name) for name in names} | {end: report.edge == end for end in ("low", "high")}
    for name in ("temperature_", "noise_", "theta_", "uniform_mass_", "temperature_interval_", "noise_interval_"):
        value = getattr(fitted, name, None)
        found |= {name: value} if not isinstance(value, tuple) else {f"{name}{i}": v for i, v in enumerate(value)}
    return {name: value for name, value in found.items() if value is not None}


def same_fit(a, b, x, p=None, rel=1e-5):
    np.testing.assert_allclose(a.predict_proba(x), b.predict_proba(x) if p is None else p, atol=rel)
    assert numbers(a) == pytest.approx(numbers(b), rel=rel, abs=1e-12)


@quiet
@every
@pytest.mark.parametrize("k", [2, 4])
def test_weights_are_repeats_with_clusters_and_masks_too(name, k):
    data = mixed(k)
    rows = np.repeat(np.arange(300), data.w.astype(int))
    repeated = fit_of(name, data, data.h[rows], y=data.y[rows], sample_weight=None, clusters=data.cluster[rows])
    same_fit(fit_of(name, data), repeated, data.h)


@quiet
@every
def test_the_order_of_the_classes_is_that_of_the_results(name):
    data, order = mixed(), np.array([2, 0, 3, 1])
    one, two = fit_of(name, data), fit_of(name, data, data.h[:, order], y=np.argsort(order)[data.y])
    same_fit(two, one, data.h[:, order], one.predict_proba(data.h)[:, order])
    assert getattr(one, "heldout_gain_", None) == pytest.approx(getattr(two, "heldout_gain_", None))


@quiet
@pytest.mark.parametrize("name", sorted(VARIANTS.keys() - KNOW_NOTHING_OF_MASKS))
def test_classes_that_are_masked_everywhere_are_as_if_removed(name):
    data = mixed(masks=0.0)
    h = np.insert(data.h, [1] * 36, -np.inf, axis=1)  # so many that rows are no longer short
    one, two = fit_of(name, data), fit_of(name, data, h, y=data.y + 36 * (data.y > 0))
    expected = np.insert(one.predict_proba(data.h), [1] * 36, 0.0, axis=1)
    same_fit(two, one, h, expected)


@quiet
@every
def test_single_precision_is_that_of_its_numbers(name):
    data = mixed()
    h = data.h.astype(np.float32)
    one, two = fit_of(name, data, h), fit_of(name, data, h.astype(float))
    same_fit(two, one, h.astype(float))
    assert one.predict_proba(h).dtype == np.float32
    np.testing.assert_allclose(one.predict_proba(h), two.predict_proba(h.astype(float)), atol=2e-6)


@quiet
@every
def test_one_column_is_the_second_of_two_with_weights_and_clusters(name):
    data = mixed(2, masks=0.0)
    z = data.h[:, 1] - data.h[:, 0]
    one, two = fit_of(name, data, z), fit_of(name, data)
    same_fit(one, two, z, two.predict_proba(data.h))
    same_fit(fit_of(name, data, z[:, None]), one, z)


@quiet
@every
def test_small_chunks_and_blocks_change_nothing(name, monkeypatch):
    data = mixed()
    whole = fit_of(name, data)
    expected = whole.predict_proba(data.h)
    monkeypatch.setattr(row_slices, "__defaults__", (60,))
    monkeypatch.setattr("attemper.data.scores.CHUNK_ELEMENTS", 60)
    monkeypatch.setattr("attemper.data.scores.BLOCK_ELEMENTS", 300)
    same_fit(fit_of(name, data), whole, data.h, expected, rel=1e-9)


@quiet
@every
def test_the_report_is_of_the_weighted_rows(name):
    data = mixed()
    fitted, some = fit_of(name, data), data.w > 0
    h, y, w = data.h[some], data.y[some], data.w[some]
    log_p = fitted.predict_log_proba(h)
    assert fitted.report_.nll == pytest.approx(-np.average(log_p[np.arange(len(y)), y], weights=w), rel=1e-8)
    changed = log_p.argmax(axis=1) != h.argmax(axis=1)
    assert fitted.report_.changed == pytest.approx(np.average(changed, weights=w), abs=1e-12)
    assert (fitted.report_.n_samples, fitted.report_.n_cases) == (some.sum(), len(set(data.cluster[some])))
    np.testing.assert_allclose(fitted.priors_, np.average(fitted.predict_proba(h), axis=0, weights=w), atol=1e-6)


@quiet
@every
def test_few_cases_have_students_quantile(name):
    data, case = draw(600), np.arange(600) % 4
    effective = with_effective_weights(Scores.of(data.h, data.y, clusters=case)).weights
    cases = fit_of(name, data, clusters=case, sample_weight=None)
    alone = fit_of(name, data, clusters=None, sample_weight=effective)
    if getattr(alone, "temperature_interval_", None) is not None:
        reach = [np.log(np.array(one.temperature_interval_) / one.temperature_) for one in (cases, alone)]
        np.testing.assert_allclose(reach[0], reach[1] * student.ppf(0.975, 3) / norm.ppf(0.975), rtol=1e-5)


@quiet
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", [name for name, one in VARIANTS.items() if one.sketch_parts is not None])
def test_weights_in_a_sketch_are_repeats(name, k):
    data = mixed(k)
    rows = np.repeat(np.arange(300), data.w.astype(int))
    sketches = [attemper.sketch(data.h, data.y, sample_weight=data.w), attemper.sketch(data.h[rows], data.y[rows])]
    one, two = (clone(VARIANTS[name]).fit_sketch(sketch) for sketch in sketches)
    same_fit(one, two, data.h)
    np.testing.assert_allclose(one.priors_, two.priors_)


@pytest.mark.parametrize("method", ["ts", "bayes", "structured", "vector"])
def test_weights_of_soft_labels_are_repeats(method):
    data = draw(200, 4, seed=3)
    shares, five = 0.9 * np.eye(4)[data.y] + 0.025, np.full(200, 5.0)
    weighted = attemper.fit(data.h, shares, method=method, sample_weight=five)
    repeated = attemper.fit(np.repeat(data.h, 5, axis=0), np.repeat(shares, 5, axis=0), method=method)
    np.testing.assert_allclose(weighted.predict_proba(data.h), repeated.predict_proba(data.h), atol=1e-5)


@pytest.mark.parametrize("method", OURS)
def test_what_is_no_distribution_is_no_probability(method):
    data = draw(200, 3)
    fitted = METHODS[method](input="probs").fit(data.p, data.y)
    for bad in ([0.9, 0.9, 0.9], [0.0, 0.0, 0.0], [1.5, -0.3, -0.2]):
        with pytest.raises(InputError) as error:
            fitted.predict_proba([bad])
        assert error.value.param == "X"


def test_zeros_after_a_sketch_without_zeros_are_small():
    data = draw(300, 3)
    for fitted in (
        attemper.fit(attemper.sketch(data.p, data.y, input="probs")),
        attemper.TemperatureScaling(input="probs").partial_fit(data.p, data.y),
    ):
        assert 0 < fitted.predict_proba([[0.5, 0.5, 0.0]])[0, 2] < 0.01
