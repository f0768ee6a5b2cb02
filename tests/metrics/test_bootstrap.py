import copy

import numpy as np
import pytest

from attemper.metrics import Estimate, accuracy, brier, classwise_ece, ece, evaluate, mce, mmce, nll
from attemper.metrics.bins import Binned
from attemper.metrics.bootstrap import _resamples
from attemper.metrics.intervals import proportion
from attemper.metrics.predictions import Predictions

METRICS = [accuracy, nll, brier, ece, classwise_ece, mce, mmce]


def draw(n, k=4, seed=0, sharpen=1.0):
    """Probabilities, labels and the truth that the labels were drawn from."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, k)) * 2
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    q = p**sharpen
    return q / q.sum(axis=1, keepdims=True), y, p


@pytest.mark.parametrize("metric", METRICS)
def test_estimate(metric):
    p, y, _ = draw(200)
    estimate = metric(y, p, confidence_level=0.9, n_resamples=100)
    assert isinstance(estimate, Estimate)
    assert isinstance(metric(y, p), float)
    assert estimate.value == metric(y, p)
    assert estimate == metric(y, p, confidence_level=0.9, n_resamples=100)
    if metric in (mce, classwise_ece):  # few samples in a bin: no interval, and the reason
        assert np.isnan([estimate.low, estimate.high]).all()
        assert not estimate.has_interval
        return
    assert estimate.note == ""
    assert 0 <= estimate.low <= estimate.value <= estimate.high
    wide = metric(y, p, confidence_level=0.99, n_resamples=100)
    assert wide.low <= estimate.low <= estimate.high <= wide.high
    other = metric(y, p, confidence_level=0.9, n_resamples=100, seed=1)
    assert (estimate != other) == (metric in (ece, mmce))  # the others need no resamples


def test_with_few_errors_only_accuracy_has_an_interval():
    p, y, _ = draw(200, sharpen=2.0)
    y = p.argmax(axis=1)
    y[:19] = (y[:19] + 1) % 4
    found = evaluate(y, p, confidence_level=0.9, n_resamples=50)
    assert found["accuracy"].has_interval
    for name in ("nll", "brier", "ece", "ece_quantile", "mmce"):
        assert np.isnan(found[name].low)
    y[19] = (y[19] + 1) % 4
    for name in ("nll", "brier", "ece", "ece_quantile", "mmce"):
        assert evaluate(y, p, confidence_level=0.9, n_resamples=50)[name].has_interval
    w = np.ones(200)
    w[:10] = 0.01  # errors that hardly count
    assert not nll(y, p, confidence_level=0.9, sample_weight=w).has_interval


def test_chance_is_the_error_of_perfect_calibration():
    p, y, _ = draw(300, seed=3)  # labels drawn from p
    found = evaluate(y, p, confidence_level=0.9, n_resamples=300)
    again = [evaluate((p.cumsum(axis=1) < u).sum(axis=1), p) for u in np.random.default_rng(1).random((60, 300, 1))]
    for name in ("ece", "ece_quantile", "classwise_ece", "mce", "mmce"):
        values = np.array([other[name] for other in again])
        assert found[name].chance == pytest.approx(values.mean(), abs=5 * values.std() / np.sqrt(60))
        assert found[name].p_value == pytest.approx((values >= found[name].value).mean(), abs=0.3)
    for name in ("accuracy", "nll", "brier"):
        assert found[name].chance is None
    # Too sure: the error is more than chance, whatever its interval.
    q, y, _ = draw(300, seed=3, sharpen=3.0)
    assert ece(y, q, confidence_level=0.9, n_resamples=300).p_value == pytest.approx(1 / 301)
    # A calibrated forecast is rejected as often as p says.
    p_values = [ece(*draw(80, seed=s)[1::-1], confidence_level=0.9, n_resamples=99).p_value for s in range(60)]
    assert 0.3 < np.mean(p_values) < 0.7


def test_weights_count_as_their_effective_number():
    p, y, _ = draw(400, sharpen=2.0)
    plain, equal = (
        accuracy(y, p, confidence_level=0.9),
        accuracy(y, p, confidence_level=0.9, sample_weight=np.full(400, 7.0)),
    )
    assert equal == pytest.approx(plain)  # the unit does not matter
    w = np.where(np.arange(400) % 2, 9.0, 1.0)
    # Two exceptions, where weights count as repeats.
    options = {"norm": 2, "debiased": True, "confidence_level": 0.9}
    once, twice = ece(y, p, **options), ece(y, p, **options, sample_weight=np.full(400, 2.0))
    assert twice == pytest.approx(ece(y.repeat(2), p.repeat(2, axis=0), **options))
    assert twice.high - twice.low < once.high - once.low
    assert proportion(20, 100, 0.9).high < proportion(10, 50, 0.9).high
    for metric in (accuracy, nll, brier):
        alike, apart = metric(y, p, confidence_level=0.9), metric(y, p, confidence_level=0.9, sample_weight=w)
        wider = (apart.high - apart.low) / (alike.high - alike.low)
        assert wider == pytest.approx(np.sqrt(400 * (w @ w)) / w.sum(), rel=0.2)


def test_estimates_are_tuples_that_explain_themselves():
    value, low, high = Estimate(0.5, 0.4, 0.6)
    assert (value, low, high) == Estimate(0.5, 0.4, 0.6) == (0.5, 0.4, 0.6)
    assert Estimate(0.5, 0.4, 0.6).to_dict() == {"value": 0.5, "low": 0.4, "high": 0.6}
    without = Estimate.without(0.5, "why")
    assert without.to_dict() == {"value": 0.5, "low": None, "high": None, "note": "why"}
    for text in ("why", "nan"):
        assert text in repr(without)
    drawn = without.with_chance(np.array([0.1, 0.2, 0.6]))
    assert (drawn.chance, drawn.p_value, drawn.note) == (pytest.approx(0.3), 0.5, "why")
    assert copy.copy(drawn).to_dict() == drawn.to_dict()
    assert drawn != without
    assert drawn == copy.copy(drawn)


def test_evaluate_gives_what_each_function_gives():
    p, y, _ = draw(100)
    w = np.linspace(0, 2, 100)
    options = {"confidence_level": 0.9, "n_resamples": 60, "seed": 3, "sample_weight": w}
    together = evaluate(y, p, **options)
    for metric in METRICS:
        assert together[metric.__name__] == pytest.approx(metric(y, p, **options), nan_ok=True)
    assert evaluate(y, p)["ece"] == ece(y, p)


def test_resamples_are_counts_times_weights():
    w = np.array([1.0, 2.0, 0.5])
    counts = np.concatenate(list(_resamples(w, 4000, 0)), axis=1) / w[:, None]
    assert counts.shape == (3, 4000)
    assert (counts == counts.round()).all()
    assert (counts.sum(axis=0) == 3).all()
    assert counts.mean(axis=1) == pytest.approx([1, 1, 1], abs=0.05)
    assert counts.var(axis=1) == pytest.approx([2 / 3] * 3, abs=0.05)  # of a binomial of 3 draws at 1/3


def test_interval_of_a_mean_is_its_standard_error():
    p, y, _ = draw(2000)
    share, low, high = accuracy(y, p, confidence_level=0.95)
    half = 1.96 * np.sqrt(share * (1 - share) / 2000)
    assert (low, high) == pytest.approx((share - half, share + half), abs=0.15 * half)
    losses = -np.log(p[np.arange(2000), y])
    value, low, high = nll(y, p, confidence_level=0.95)
    half = 1.96 * losses.std() / np.sqrt(2000)
    assert (low, high) == pytest.approx((value - half, value + half), abs=0.15 * half)


def true_ece(p, truth):
    """ECE in 15 bins of equal width with each outcome at its true probability."""
    best = np.arange(len(p)), p.argmax(axis=1)
    bins = np.ceil(p[best] * 15).astype(int)
    return np.abs(np.bincount(bins, truth[best] - p[best])).sum() / len(p)


def true_mmce(p, truth):
    best = np.arange(len(p)), p.argmax(axis=1)
    r, gap = p[best], truth[best] - p[best]
    kernel = np.exp(-np.abs(r[:, None] - r) / 0.4)
    return np.sqrt(gap @ kernel @ gap) / len(p)


@pytest.mark.slow
@pytest.mark.parametrize("sharpen", [1.0, 1.2, 2.0])
@pytest.mark.parametrize("metric, truth_of", [(ece, true_ece), (mmce, true_mmce)])
def test_interval_covers_the_true_calibration_error(metric, truth_of, sharpen):
    # Plain percentiles would cover an ECE of 0 never, and one of 0.05 rarely.
    many, _, truth = draw(3000 if metric is mmce else 100_000, seed=999, sharpen=sharpen)
    target = truth_of(many, truth)
    missed = 0
    for seed in range(100):
        p, y, _ = draw(400, seed=seed, sharpen=sharpen)
        _, low, high = metric(y, p, confidence_level=0.9, n_resamples=200)
        missed += not low <= target <= high
    assert missed <= 20  # 10 are due; more than 20 have a chance of 1 in 1000
    if sharpen == 2.0:
        assert missed >= 1
        assert 0 < low < high < 0.4  # covers because it is right, not because it is wide


@pytest.mark.parametrize("sharpen", [1.0, 1.5, 2.0])
def test_interval_of_the_debiased_error_covers(sharpen):
    many, _, truth = draw(100_000, seed=999, sharpen=sharpen)
    best = np.arange(len(many)), many.argmax(axis=1)
    bins = np.ceil(many[best] * 15).astype(int)
    gap, size = np.bincount(bins, truth[best] - many[best]), np.bincount(bins)
    target = np.sqrt((gap[size > 0] ** 2 / size[size > 0]).sum() / len(many))
    missed = 0
    for seed in range(100):
        p, y, _ = draw(300, seed=seed, sharpen=sharpen)
        found = ece(y, p, norm=2, debiased=True, confidence_level=0.9, n_resamples=2)
        assert found.low <= found.value <= found.high
        missed += not found.low <= target <= found.high
    assert missed <= 20  # 10 are due
    if sharpen == 2.0:
        assert found.high - found.low < 0.2


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("kind", ["classwise", "full"])
def test_drawn_labels_are_counted_in_the_bins_of_their_class(kind, strategy, monkeypatch):
    p, y, _ = draw(200, 7)
    w = np.random.default_rng(2).integers(1, 4, 200).astype(float)
    p = p.round(2) / p.round(2).sum(axis=1, keepdims=True)  # with ties
    predictions = Predictions.of(y, p, w)
    monkeypatch.setattr("attemper.data.arrays.CHUNK_ELEMENTS", 100)
    binned = Binned(predictions, kind, 5, strategy)
    labels = predictions.draw_labels(np.random.default_rng(4), 3)
    assert (p[np.arange(200), labels] > 0).all()
    tables = [table[..., 0] for table in binned.sums(w[:, None])]
    drawn = list(binned.drawn(np.random.default_rng(4), 3, w, tables))
    for i, again in enumerate(labels):
        other = Binned(Predictions.of(again, p, w), kind, 5, strategy)
        for table, expected in zip(drawn, other.sums(w[:, None])):
            np.testing.assert_allclose(table[..., i], expected[..., 0], atol=1e-12)
