"""What metrics take in place of labels and an array of probabilities."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attemper import Scores, TemperatureScaling, metrics
from attemper.metrics import aurc, brier, decompose, ece, evaluate, nll, referral_area, reliability

MEASURES = [nll, brier, ece, aurc, referral_area]


def sample(n=200, k=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return logits, probs, np.array([rng.choice(k, p=p) for p in probs])


@pytest.mark.parametrize("measure", MEASURES)
def test_scores_stand_for_labels_and_probabilities(measure):
    logits, probs, y = sample()
    expected = measure(y, logits, input="logits")
    scores = Scores.from_logits(logits, y)
    assert measure(scores) == measure(y, scores) == measure(y, Scores.from_logits(logits)) == expected
    assert measure(Scores.from_probs(probs, y)) == measure(y, probs)
    assert measure(scores, probs) == measure(y, probs)
    assert measure(Scores.from_logits(torch.tensor(logits), torch.tensor(y))) == expected


def test_weights_of_scores_count_unless_others_are_passed():
    logits, probs, y = sample()
    w, other = np.random.default_rng(1).random((2, len(y)))
    scores = Scores.from_logits(logits, y, sample_weight=w)
    assert nll(scores) == nll(y, scores) == nll(y, logits, input="logits", sample_weight=w)
    assert nll(scores, probs) == nll(y, probs, sample_weight=w)
    assert nll(scores, sample_weight=other) == nll(y, logits, input="logits", sample_weight=other)


def test_every_function_takes_scores():
    logits, _, y = sample()
    scores = Scores.from_logits(logits, y)
    calibrated = TemperatureScaling().fit(scores).predict_proba(scores)
    assert evaluate(scores) == evaluate(y, logits, input="logits")
    assert evaluate(scores, calibrated) == evaluate(y, calibrated)
    assert decompose(scores) == decompose(y, logits, input="logits")
    table, expected = reliability(scores), reliability(y, logits, input="logits")
    assert_allclose(table.accuracy, expected.accuracy)
    assert metrics.referral_area_difference(scores, scores, calibrated) == metrics.referral_area_difference(
        y, logits, np.log(calibrated), input="logits"
    )


def test_images_and_columns_of_scores():
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(4, 3, 5, 6)), rng.integers(3, size=(4, 5, 6))
    labels[0, 0] = 255
    options = {"axis": 1, "ignore_index": 255}
    z, y = rng.normal(size=60), rng.integers(2, size=60)
    for kind in ("top", "classwise", "full", "top_label"):
        scores = Scores.from_logits(images, labels, **options)
        assert ece(scores, kind=kind) == pytest.approx(ece(labels, images, kind=kind, input="logits", **options))
    for scores in (Scores.from_logits(z, y), Scores.from_logits(z[:, None], y)):
        assert ece(scores, kind="binary") == ece(y, z, kind="binary", input="logits")
    names = np.where(y == 1, "sick", "well")
    expected = ece(y, z, kind="binary", input="logits")
    assert ece(names, z, kind="binary", input="logits", classes=["well", "sick"]) == expected


def test_zeros_and_masks_are_those_of_the_scores():
    probs = np.array([[1.0, 0.0], [0.3, 0.7], [0.2, 0.8]])
    assert nll([1, 0, 1], probs) == np.inf
    scores = Scores.from_probs(probs, [1, 0, 1], zeros_as=1e-3)
    assert nll(scores) == pytest.approx(-np.log([1e-3 / 1.001, 0.3, 0.8]).mean())
    masked = np.array([[1.0, 2.0, -1e9], [0.0, 1.0, -1e9], [2.0, 1.0, 0.5]])
    scores = Scores.from_logits(masked, [0, 1, 2])
    assert ece(scores, n_bins=3) == pytest.approx(
        ece([0, 1, 2], np.where(masked < -1e8, -np.inf, masked), n_bins=3, input="logits")
    )


@pytest.mark.parametrize("measure", MEASURES)
def test_names_are_looked_up_in_column_order(measure):
    logits, probs, y = sample()
    names = ["pear", "apple", "fig", "date"]  # not sorted
    labels = np.array(names)[y]
    assert measure(labels, probs, classes=names) == measure(list(labels), probs, classes=names) == measure(y, probs)
    assert measure(labels, Scores.from_logits(logits), classes=names) == measure(y, logits, input="logits")
    assert measure(y + 1, probs, classes=[1, 2, 3, 4]) == measure(y, probs)
