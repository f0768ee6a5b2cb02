"""What users print is one line, whatever it holds."""

import numpy as np
import pytest

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
        attemper.planning.choose_samples(scores, 20),
        result,
        *result.rows,
    ):
        shown = repr(thing)
        assert shown.startswith(type(thing).__name__)
        assert "\n" not in shown
        assert len(shown) < 1000
    assert "<array of shape (300, 4)>" in repr(scores)


def test_calibrators_and_states(scores):
    running = attemper.metrics.RunningMetrics().partial_fit([0, 1], [[0.9, 0.1], [0.3, 0.7]])
    for thing in (
        running,
        attemper.drift.DriftTest(2.0).update(scores),
        attemper.drift.GroupedTest(2.0).update(scores, groups=[0, 1, 2] * (len(scores) // 3)),
        attemper.drift.UnlabelledMonitor(2.0).update(scores),
    ):
        shown = repr(thing)
        assert shown.startswith(f"{type(thing).__name__}(")
        assert "\n" not in shown
    assert "n_samples=2" in repr(running)
