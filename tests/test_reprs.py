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
    result = compare(scores, Scores.from_logits(*draw(200, 4, seed=1)), ["ts"], interval=None)
    bayes = attemper.BayesianTemperatureScaling().fit(scores)
    for thing in (
        datasets.load(),
        scores,
        Sketch.of(scores),
        reliability(p, scores.labels),
        referral_curve(p, scores.labels),
        risk_coverage_curve(p, scores.labels),
        attemper.AttendedTemperatureScaling().fit(scores).path_,
        bayes.posterior_,
        result,
        *result.rows,
    ):
        shown = repr(thing)
        assert shown.startswith(type(thing).__name__)
        assert "\n" not in shown
        assert len(shown) < 1000
    assert "<array of shape (300, 4)>" in repr(scores)
