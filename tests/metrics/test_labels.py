"""Metrics of labels that do not exclude each other."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import InputError
from attemper.metrics import Estimate, brier, ece, label_metrics, nll


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-2 * rng.normal(size=(n, 3)) + [0, 1, 2]))
    y = (rng.random(p.shape) < p**1.3).astype(float)
    y[rng.random(y.shape) < 0.2] = np.nan
    return y, p


def pairs(p):
    return np.column_stack([1 - p, p])


def oracle(y, p):
    """Each entry by itself."""
    known = [(i, k) for i in range(len(y)) for k in range(y.shape[1]) if not np.isnan(y[i, k])]
    losses = [-np.log(p[i, k] if y[i, k] else 1 - p[i, k]) for i, k in known]
    squares = [(p[i, k] - y[i, k]) ** 2 for i, k in known]
    return np.mean(losses), np.mean(squares)


def test_values_are_those_of_two_classes():
    y, p = draw()
    found = label_metrics(y, p, label_names=["a", "b", "c"])
    for k, name in enumerate("abc"):
        known = ~np.isnan(y[:, k])
        own, of = y[known, k].astype(int), pairs(p[known, k])
        row = found[name]
        assert row.n_known == known.sum()
        assert row.prevalence == pytest.approx(own.mean())
        assert row.nll == pytest.approx(nll(own, of), rel=1e-12)
        assert row.brier == pytest.approx(brier(own, of) / 2, rel=1e-12)
        assert row.ece == pytest.approx(ece(own, of, kind="binary"), rel=1e-12)
    assert (found.micro.nll, found.micro.brier) == pytest.approx(oracle(y, p), rel=1e-12)
    flat = ~np.isnan(y)
    assert found.micro.ece == pytest.approx(ece(y[flat].astype(int), pairs(p[flat]), kind="binary"), rel=1e-9)
    for name in ("nll", "brier", "ece", "prevalence"):
        assert getattr(found.macro, name) == pytest.approx(np.mean([getattr(found[k], name) for k in "abc"]), rel=1e-9)


def test_intervals_of_labels_are_those_of_two_classes():
    y, p = draw(600)
    found = label_metrics(y, p, confidence_level=0.9, n_resamples=100, seed=3)
    known = ~np.isnan(y[:, 0])
    own, of = y[known, 0].astype(int), pairs(p[known, 0])
    assert found["0"].nll == nll(own, of, confidence_level=0.9)
    expected = ece(own, of, kind="binary", confidence_level=0.9, n_resamples=100, seed=3)
    assert tuple(found["0"].ece) == pytest.approx(tuple(expected), rel=1e-12)
    assert found["0"].brier.low < found["0"].brier.value < found["0"].brier.high
    for row in (found.micro, found.macro):
        for value in (row.nll, row.brier, row.ece):
            assert isinstance(value, Estimate)
            assert value.has_interval
            assert value.low <= value.value <= value.high


def test_samples_are_resampled_and_not_entries():
    """Labels that always agree are one label: micro has its interval, and not that of five times as many samples."""
    y, p = draw(500)
    y, p = np.nan_to_num(y[:, :1]), p[:, :1]
    one = label_metrics(y, p, confidence_level=0.95, n_resamples=400)
    five = label_metrics(np.repeat(y, 5, axis=1), np.repeat(p, 5, axis=1), confidence_level=0.95, n_resamples=400)
    width = one["0"].nll.high - one["0"].nll.low
    for row in (five.micro, five.macro):
        assert row.nll.high - row.nll.low == pytest.approx(width, rel=0.15)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_weights_are_repeats_and_unknown_entries_are_absent(seed):
    y, p = draw(60, seed)
    w = np.random.default_rng(seed).integers(1, 4, size=len(y))
    found = label_metrics(y, p, sample_weight=w)
    other = label_metrics(np.repeat(y, w, axis=0), np.repeat(p, w, axis=0))
    for a, b in zip(found.rows, other.rows):
        assert a[0] == b[0]
        assert a[1:] == pytest.approx(b[1:], rel=1e-9, nan_ok=True)
    masked = label_metrics(np.nan_to_num(y), p, mask=~np.isnan(y))
    assert masked == label_metrics(y, p)


def test_soft_labels_are_expectations():
    y, p = draw(100)
    y[:30, 1] = -1
    found = label_metrics(y, p, uncertain=0.3)
    both = [label_metrics(y, p, uncertain=u)["1"] for u in ("negative", "positive")]
    assert found["1"].nll == pytest.approx(0.7 * both[0].nll + 0.3 * both[1].nll, rel=1e-9)
    assert found["1"].n_known == pytest.approx(both[0].n_known)
    assert label_metrics(y, p, uncertain=0.3, confidence_level=0.9, n_resamples=50).micro.nll.has_interval


def test_log_odds_and_data_frames():
    y, p = draw()
    frame = pd.DataFrame(y, columns=["a", "b", "c"])
    by_logits = label_metrics(frame, np.log(p) - np.log1p(-p), input="logits")
    assert by_logits["b"].nll == pytest.approx(label_metrics(frame, p)["b"].nll, rel=1e-9)
    table = label_metrics(frame, p, confidence_level=0.9, n_resamples=20).to_pandas()
    assert table["label"].tolist() == ["a", "b", "c", "micro", "macro"]
    assert {"nll", "nll_low", "ece_high"} <= set(table.columns)
    assert "micro" in label_metrics(frame, p)._repr_html_()


def test_labels_without_entries():
    y, p = draw()
    y[:, 2] = np.nan
    found = label_metrics(y, p)
    assert found["2"].n_known == 0
    assert np.isnan(found["2"].nll)
    assert found.macro.nll == pytest.approx((found["0"].nll + found["1"].nll) / 2)
    assert found.to_dict()["micro"]["n_known"] == found.micro.n_known
    with pytest.raises(KeyError):
        found["x"]
    with pytest.raises(InputError):
        label_metrics(np.nan * y, p)
