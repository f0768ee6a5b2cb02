"""What users print is one line, whatever it holds."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import attemper
from attemper import Scores, Sketch, datasets
from attemper.calibrators import METHODS
from attemper.comparison import compare
from attemper.metrics import referral_curve, reliability, risk_coverage_curve

from data import draw


@pytest.fixture(scope="module")
def scores():
    return Scores.from_logits(*draw(300, 4))


@pytest.mark.parametrize("method", METHODS)
def test_maps(scores, method):
    shown = repr(METHODS[method]().fit(scores).map_)
    assert "\n" not in shown
    assert len(shown) < 600


def test_results(scores):
    p = np.exp(scores.logits) / np.exp(scores.logits).sum(axis=1, keepdims=True)
    result = compare(scores, Scores.from_logits(*draw(200, 4, seed=1)), ["ts"], confidence_level=None)
    bayes = attemper.BayesianTemperatureScaling().fit(scores)
    for thing in (
        datasets.load(),
        scores,
        Sketch.of(scores),
        reliability(scores.labels, p),
        referral_curve(scores.labels, p),
        risk_coverage_curve(scores.labels, p),
        attemper.AttendedTemperatureScaling().fit(scores).path_,
        bayes.posterior_,
        attemper.planning.labels_for_coverage(0.9, within=0.1),
        result,
        *result.rows,
    ):
        shown = repr(thing)
        assert shown.startswith(type(thing).__name__)
        assert "\n" not in shown
        assert len(shown) < 1000
    assert "<array of shape (300, 4)>" in repr(scores)


def test_calibrators_and_states(scores):
    names = [f"class-{k}" for k in range(12)]
    for thing in (
        attemper.TemperatureScaling(input="probs", zeros_as=1e-8, classes=names),
        attemper.BayesianTemperatureScaling(labels="noisy", noise="classwise", classes=names),
        attemper.drift.DriftTest(2.0).update(scores),
    ):
        shown = repr(thing)
        assert shown.startswith(f"{type(thing).__name__}(")
        assert "\n" not in shown


def test_wrappers_show_in_one_line():
    wrapped = attemper.CalibratedClassifier(
        LogisticRegression(max_iter=500, C=0.12), attemper.PlattScaling(zeros_as=1e-8)
    )
    assert repr(wrapped).startswith("CalibratedClassifier(estimator=LogisticRegression(")
    assert "\n" not in repr(wrapped)


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_notebook_shows_what_a_wrapper_fitted(ensemble):
    x, y = load_iris(return_X_y=True)
    unfitted = attemper.CalibratedClassifier(
        GaussianNB(), method=attemper.BayesianTemperatureScaling(labels="noisy", noise="classwise"), ensemble=ensemble
    )
    assert "\n" not in repr(unfitted)
    assert "T = " not in unfitted._repr_html_()
    fitted = attemper.CalibratedClassifier(GaussianNB(), method="bayes", ensemble=ensemble).fit(x, y)
    facts = fitted.calibrators_[-1].describe() if ensemble else fitted.calibrator_.describe()
    assert facts[0] in fitted._repr_mimebundle_()["text/html"]
    assert facts[0] in fitted._repr_html_()
