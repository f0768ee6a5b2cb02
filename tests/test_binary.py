"""One column of two classes is the same as two, everywhere."""

import warnings

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone

import attemper
from attemper import AttemperWarning, InputError, Scores, TemperatureScaling, metrics
from attemper.calibrators import METHODS
from attemper.onnx import map_to_onnx
from attemper.torch import to_torch

METRICS = ["accuracy", "aurc", "brier", "classwise_ece", "ece", "mce", "mmce", "nll", "smooth_ece"]


def draw_binary(n=400, t=2.0, seed=0):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=n)
    return z, (rng.random(n) < 1 / (1 + np.exp(-z / t))).astype(np.int64)


Z, Y = draw_binary()
BOTH = np.column_stack([np.zeros_like(Z), Z])
P = 1 / (1 + np.exp(-Z))
NAMES = np.where(Y == 1, "yes", "no")
FORMS = [Y, Y.astype(bool), Y.astype(float), 2 * Y - 1, 2.0 * Y - 1, list(Y), pd.Series(Y), torch.as_tensor(2 * Y - 1)]


@pytest.mark.parametrize("labels", FORMS, ids=lambda y: f"{type(y).__name__}-{getattr(y, 'dtype', '')}")
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_labels_of_two_classes(labels, shape):
    scores = Scores.from_logits(Z.reshape(shape), labels)
    np.testing.assert_array_equal(scores.labels, Y)
    np.testing.assert_array_equal(scores.logits, BOTH)
    assert metrics.nll(labels, P.reshape(shape)) == metrics.nll(Y, np.column_stack([1 - P, P]))


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_every_method_is_fitted_as_on_two_columns(method, kind):
    calibrator = METHODS[method](input=kind)
    one, two = (Z, BOTH) if kind == "logits" else (P, np.column_stack([1 - P, P]))
    expected = clone(calibrator).fit(two, Y)
    probs = expected.predict_proba(two)
    for x in (one, one[:, None]):
        fitted = clone(calibrator).fit(x, Y)
        for again in (one, one[:, None], two):  # a calibrator takes either form
            np.testing.assert_array_equal(fitted.predict_proba(again), probs)
            np.testing.assert_array_equal(fitted.predict_positive(again), probs[:, 1])
        np.testing.assert_array_equal(fitted.predict(one), expected.predict(two))
    np.testing.assert_array_equal(expected.predict_positive(one), probs[:, 1])


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_that_of_two_columns(name):
    metric = getattr(metrics, name)
    two = np.column_stack([1 - P, P])
    expected = metric(Y, two, confidence_level=0.9, n_resamples=20)
    for labels, options in [(Y, {}), (2 * Y - 1, {}), (Y == 1, {}), (NAMES, {"classes": ["no", "yes"]})]:
        assert repr(metric(labels, P, confidence_level=0.9, n_resamples=20, **options)) == repr(expected)
    with np.errstate(divide="ignore"):
        logs = metric(Y, np.log(P), input="log_probs")
    np.testing.assert_allclose(logs, metric(Y, np.log(two), input="log_probs"), rtol=1e-9)
    assert metric(Y, Z, input="logits") == metric(Y, BOTH, input="logits")


@given(
    z=hnp.arrays(
        np.float64, st.integers(1, 12), elements=st.floats(-30, 30).map(lambda v: v if abs(v) > 1e-20 else 0.0)
    ),
    seed=st.integers(0, 99),
)
def test_any_vector(z, seed):
    y = np.random.default_rng(seed).integers(2, size=len(z))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        one = TemperatureScaling().fit(z, 2 * y - 1 if (y == 0).any() else y)
        two = TemperatureScaling().fit(np.column_stack([np.zeros_like(z), z]), y)
        assert one.temperature_ == two.temperature_
        np.testing.assert_array_equal(one.predict_positive(z), two.predict_positive(z))


def test_names_stay_in_files(tmp_path):
    for fitted in (TemperatureScaling(classes=["no", "yes"]).fit(Z, NAMES), TemperatureScaling().fit(Z, 2 * Y - 1)):
        fitted.save(tmp_path / "map.json")
        again = attemper.load(tmp_path / "map.json")
        np.testing.assert_array_equal(again.predict(Z), fitted.predict(Z))
        np.testing.assert_array_equal(again.predict_positive(Z), fitted.predict_positive(BOTH))


@pytest.mark.parametrize("method", ["ts", "platt", "isotonic"])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_a_module_of_one_column(method, kind):
    x = Z if kind == "logits" else P
    fitted = METHODS[method](input=kind).fit(x, Y)
    module, tensor = to_torch(fitted, positive=True), torch.as_tensor(x)
    for found in (module(tensor), module(tensor[:, None])[:, 0]):
        np.testing.assert_allclose(found.numpy(), fitted.predict_positive(x), rtol=1e-12)
    with pytest.raises(InputError):
        to_torch(METHODS["vector"](l2=1.0).fit(np.eye(3), [0, 1, 2]), positive=True)


@pytest.mark.parametrize("method", ["ts", "platt", "isotonic"])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_an_onnx_model_of_one_column(method, kind, tmp_path):
    x = (Z if kind == "logits" else P).astype(np.float32)
    fitted = METHODS[method](input=kind).fit(x, Y)
    model = map_to_onnx(fitted, tmp_path / "map.onnx", positive=True)
    session = onnxruntime.InferenceSession(tmp_path / "map.onnx")
    [found] = session.run([model.tensor], {model.logits: x})
    assert found.shape == x.shape
    np.testing.assert_allclose(found, fitted.predict_positive(x), rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError):
        map_to_onnx(attemper.ScaleMap(0.5), n_classes=3, positive=True)


def test_zeros_and_ones_of_votes():
    votes = np.round(10 * P) / 10  # of ten trees
    with pytest.raises(InputError):
        TemperatureScaling(input="probs").fit(np.where(Y == 1, 0.0, votes), Y)
    fitted = TemperatureScaling(input="probs", zeros_as=1 / 20)
    one, two = clone(fitted).fit(votes, Y), clone(fitted).fit(np.column_stack([1 - votes, votes]), Y)
    assert one.temperature_ == two.temperature_
    low, high = one.predict_positive(np.array([0.0, 1.0]))
    assert 0 < low == pytest.approx(1 - high)
