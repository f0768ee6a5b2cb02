"""Intervals hold as often as they should, or are not given: a short version of benchmarks/coverage.py."""

import numpy as np
import pytest

from attemper.metrics import accuracy, aurc, brier, ece, expected_cost, mce, nll, referral_area

METRICS = {
    "accuracy": accuracy,
    "nll": nll,
    "brier": brier,
    "debiased ece": lambda y, p, **options: ece(y, p, norm=2, debiased=True, **options),
    "mce": mce,
    "area": referral_area,
    "aurc": aurc,
    "cost": lambda y, p, **options: expected_cost(y, p, 0.7, cost_refer=1, cost_miss=10, **options),
}


def population(sharpness):
    """Predictions, and labels drawn from somewhat softer ones: the sharper, the more accurate."""
    rng = np.random.default_rng(7)
    h = sharpness * rng.normal(size=(5000, 4))
    y = (h / 1.3 + rng.gumbel(size=h.shape)).argmax(axis=1)
    p = np.exp(h - h.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), y


def covered(metric, p, y, n, repeats):
    """How many draws have an interval, and what share of these hold the value of all samples."""
    rng = np.random.default_rng(1)
    truth, found = metric(y, p), []
    for _ in range(repeats):
        rows = rng.integers(len(y), size=n)
        right = p[rows].argmax(axis=1) == y[rows]
        if metric is referral_area and (right.all() or not right.any()):
            continue
        estimate = metric(y[rows], p[rows], confidence_level=0.95, n_resamples=2)
        if estimate.has_interval:
            found.append(estimate.low <= truth <= estimate.high)
    return len(found), np.mean(found) if found else None


def test_a_very_accurate_network():
    p, y = population(100.0)
    assert 0.98 < accuracy(y, p) < 0.995
    given, share = covered(accuracy, p, y, 100, 300)
    assert given == 300
    assert share >= 0.9  # bootstrap percentiles are a point where no error is drawn, in a third of cases
    for name in METRICS.keys() - {"accuracy"}:  # fewer than 20 errors
        assert covered(METRICS[name], p, y, 100, 50)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["top", "binary"])
def test_calibration_errors_of_two_classes(kind):
    rng = np.random.default_rng(7)
    h = 2 * rng.normal(size=(5000, 2))
    y = (h / 1.3 + rng.gumbel(size=h.shape)).argmax(axis=1)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    truth, found = ece(y, p, kind=kind), []
    for _ in range(120):
        rows = rng.integers(len(y), size=300)
        estimate = ece(y[rows], p[rows], kind=kind, confidence_level=0.95, n_resamples=100)
        found.append(estimate.low <= truth <= estimate.high)
    assert np.mean(found) >= 0.89


@pytest.mark.slow
@pytest.mark.parametrize("sharpness, n", [(3.0, 150), (8.0, 400)])
def test_networks_that_err(sharpness, n):
    p, y = population(sharpness)
    for name, metric in METRICS.items():
        given, share = covered(metric, p, y, n, 200)
        if name == "mce":
            assert given == 0
        elif given >= 100:
            assert share >= 0.89, name  # 95 % are due, and 1.5 points are a standard deviation
        else:
            assert name == "cost"  # errors that are not referred are few
