"""What every method has in common: METHODS × `attemper.testing.CHECKS`, and arrays of any library."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import attemper
from attemper import METHODS, GroupedCalibrator, Scores
from attemper.calibrators.temperature import independent
from attemper.errors import InputError, LabelShiftError
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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", OURS)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
def test_contract(method, check):
    check(METHODS[method]())


def test_all_methods_are_here():
    assert len(OURS) == 14
    assert set(OURS) >= {"ts", "ats", "bayes", "structured", "ets", "vector", "matrix", "dirichlet", "platt"}


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
    np.testing.assert_allclose(fitted.priors_, np.bincount(data.y, minlength=5) / 300)


@pytest.mark.parametrize("method", OURS)
def test_groups(method):
    data = draw(900, groups=3)
    cal = GroupedCalibrator(method).fit(data.h, data.y, groups=data.group)
    ratio = np.array(cal.groups_.temperature_ratio)
    assert (np.diff(ratio) > 0).all()  # as drawn
    one = GroupedCalibrator(method).fit(data.h, data.y, groups=np.zeros(900, int))
    np.testing.assert_allclose(one.predict_proba(data.h, groups=0), one.common_.predict_proba(data.h), atol=1e-12)


def test_clusters_count_once_for_every_method():
    data = draw(1200, clusters=4)
    widths = {}
    for method in ("ts", "ats", "bayes", "structured", "ets"):
        alone = METHODS[method]().fit(data.h, data.y)
        cases = METHODS[method]().fit(data.h, data.y, clusters=data.cluster)
        widths[method] = [np.ptp(np.log(each.temperature_interval_)) for each in (alone, cases)]
    for method, (narrow, wide) in widths.items():
        assert 1.5 < wide / narrow < 2.6, method  # four rows that nearly agree: a factor of two


def test_cases_that_differ_in_their_classes_alone_count_once_too():
    rng, case = np.random.default_rng(0), np.arange(2000) // 10
    z = np.where(np.arange(2000) % 2, 1.0, -1.0)  # so that the slopes in T of a case cancel
    y = (z + 2 * rng.normal(size=200)[case] + rng.logistic(size=2000) > 0).astype(int)
    scores = Scores.of(np.column_stack([0 * z, z]), y, clusters=case)
    assert 0.15 < independent(scores).total_weight / 2000 < 0.35


def test_images_have_the_axis_of_the_fit(tmp_path):
    rng = np.random.default_rng(0)
    images = 3 * rng.normal(size=(20, 4, 6, 5))
    labels = (images / 2 + rng.gumbel(size=images.shape)).argmax(axis=1)
    cal = attemper.fit(images, labels, axis=1, method="ts")
    p = cal.predict_proba(images)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(cal.predict_proba(np.moveaxis(images, 1, -1), axis=-1), np.moveaxis(p, 1, -1))
    cal.save(tmp_path / "a.json")
    np.testing.assert_array_equal(attemper.load(tmp_path / "a.json").predict_proba(images), p)
    with pytest.raises(InputError) as error:
        attemper.TemperatureScaling().fit(images[:, :, 0, 0], labels[:, 0, 0]).predict_proba(images)
    assert error.value.param == "axis"


def test_priors():
    data = draw(2000, k=3)
    old, new = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    cal = attemper.VectorScaling().fit(data.h, data.y)
    p = cal.predict_proba(data.h)
    expected = p * new / old
    changed = cal.with_priors(new, old)
    np.testing.assert_allclose(changed.predict_proba(data.h), expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(changed.with_priors(old).predict_proba(data.h), p, rtol=1e-9)
    by_name = cal.with_priors({0: 0.1, 1: 0.3, 2: 0.6})
    np.testing.assert_array_equal(
        by_name.predict_proba(data.h), cal.with_priors(new, cal.priors_).predict_proba(data.h)
    )
    none = cal.with_priors([0.5, 0.5, 0.0]).predict_proba(data.h)
    assert (none[:, 2] == 0).all()
    np.testing.assert_allclose(none.sum(axis=1), 1)
    with pytest.raises(InputError) as error:
        cal.with_priors(new, [0.5, 0.5, 0.0])
    assert error.value.param == "old"


def test_adapt_finds_the_shares_of_new_data_or_refuses():
    data = draw(6000, k=3, t=1.0)
    kept = np.random.default_rng(1).random(6000) < np.array([1.0, 1.0, 0.2])[data.y]
    val, new = np.arange(6000) < 3000, (np.arange(6000) >= 3000) & kept
    cal = attemper.TemperatureScaling().fit(data.h[val], data.y[val])
    adapted = cal.adapt(data.h[new], validation=(data.h[val], data.y[val]))
    truth = np.bincount(data.y[new]) / new.sum()
    assert (adapted.adapted_.low - 0.01 <= truth).all()
    assert (adapted.adapted_.high + 0.01 >= truth).all()
    np.testing.assert_allclose(cal.adapt(data.h[new]).priors_, truth, atol=0.05)
    rows = np.arange(new.sum()), data.y[new]
    assert np.log(adapted.predict_proba(data.h[new])[rows]).mean() > np.log(cal.predict_proba(data.h[new])[rows]).mean()
    with pytest.raises(LabelShiftError):
        cal.adapt(4 * data.h[new], validation=(data.h[val], data.y[val]))


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
    x = data.h if input == "logits" else softmax(data.h, axis=1)
    whole = attemper.TemperatureScaling(input=input).fit(x, data.y).temperature_
    cal = attemper.TemperatureScaling(input=input)
    for part in np.array_split(np.arange(1200), 5):
        cal.partial_fit(x[part], data.y[part])
    assert cal.temperature_ == pytest.approx(whole, rel=1e-8)
    assert not hasattr(attemper.PlattScaling(), "partial_fit")


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
