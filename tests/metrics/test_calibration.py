import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve

from attemper.errors import InputError
from attemper.metrics import classwise_ece, ece, evaluate, mce, mmce, reliability

KINDS = ["top", "classwise", "full", "top_label"]  # "binary" is for two classes alone
STRATEGIES = ["uniform", "quantile"]


def draw(n, k, seed=0, sharpen=1.0):
    """Labels follow the probabilities before these are sharpened."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, k)) * 2
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    q = p**sharpen
    return q / q.sum(axis=1, keepdims=True), y, rng.uniform(0.1, 3, size=n)


def draw_coarse(n, k, seed):
    """Many ties, zeros and ones; whole weights, some 0."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=(n, k)) * (rng.random((n, k)) < 0.7)
    counts[np.arange(n), rng.integers(k, size=n)] += 1
    w = rng.integers(0, 4, size=n)
    w[0] = 2
    return counts / counts.sum(axis=1, keepdims=True), rng.integers(k, size=n), w


def pairs_of(p, y, kind):
    """Lists of (sample, probability, right or wrong), one for each set of bins."""
    tops = [max(range(len(row)), key=lambda k: row[k]) for row in p]
    top = [(i, row[k], float(k == y[i])) for i, (row, k) in enumerate(zip(p, tops))]
    by_class = [[(i, p[i, k], float(y[i] == k)) for i in range(len(p))] for k in range(p.shape[1])]
    return {
        "top": [top],
        "classwise": by_class,
        "full": [[pair for pairs in by_class for pair in pairs]],
        "binary": by_class[1:],
        "top_label": [[pair for pair, of in zip(top, tops) if of == k] for k in range(p.shape[1])],
    }[kind]


def bin_of(confidence, pairs, w, n_bins, strategy):
    if strategy == "uniform":
        return next((b for b in range(n_bins) if confidence <= (b + 1) / n_bins), n_bins - 1)
    below = sum(w[i] for i, c, _ in pairs if c < confidence)
    tied = sum(w[i] for i, c, _ in pairs if c == confidence)
    return math.floor((below + tied / 2) * n_bins / (sum(w[i] for i, _, _ in pairs) or 1))


def ece_oracle(p, y, w, kind="top", n_bins=15, strategy="uniform", norm=1, debiased=False):
    terms = []
    for pairs in pairs_of(p, y, kind):
        bins = [bin_of(c, pairs, w, n_bins, strategy) for _, c, _ in pairs]
        for b in range(n_bins):
            inside = [pair for pair, bin_ in zip(pairs, bins) if bin_ == b]
            weight = sum(w[i] for i, _, _ in inside)
            if weight == 0:
                continue
            confidence = sum(w[i] * c for i, c, _ in inside) / weight
            right = sum(w[i] * r for i, _, r in inside) / weight
            gap = abs(right - confidence)
            if debiased:
                gap2 = gap**2 - right * (1 - right) / (weight - 1) if weight > 1 else 0.0
                terms.append((weight, gap2))
            else:
                terms.append((weight, gap if norm == "max" else gap**norm))
    if norm == "max":
        return max(gap for _, gap in terms)
    mean = sum(weight * gap for weight, gap in terms) / sum(weight for weight, _ in terms)
    return max(mean, 0.0) ** (1 / norm)


def mmce_oracle(p, y, w):
    (pairs,) = pairs_of(p, y, "top")
    total = 0.0
    for i, r_i, c_i in pairs:
        for j, r_j, c_j in pairs:
            total += w[i] * w[j] * (c_i - r_i) * (c_j - r_j) * math.exp(-abs(r_i - r_j) / 0.4)
    return math.sqrt(max(0.0, total)) / sum(w)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("norm", [1, 1.5, 2, "max"])
@pytest.mark.parametrize("k, kind", [*((k, kind) for k in (2, 4) for kind in KINDS), (2, "binary")])
def test_ece_is_the_obvious_loop(kind, strategy, norm, k):
    p, y, w = draw(60, k, sharpen=2)
    for n_bins, weights in ((15, w), (4, np.ones(60))):
        options = {"kind": kind, "n_bins": n_bins, "strategy": strategy, "norm": norm}
        assert ece(y, p, sample_weight=weights, **options) == pytest.approx(ece_oracle(p, y, weights, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_debiased_ece_is_the_obvious_loop(kind, strategy):
    p, y, w = draw(60, 3, sharpen=3)
    options = {"kind": kind, "n_bins": 6, "strategy": strategy, "norm": 2, "debiased": True}
    assert ece_oracle(p, y, w, **options) > 0
    assert ece(y, p, sample_weight=w, **options) == pytest.approx(ece_oracle(p, y, w, **options))
    assert ece(y, p, **options) == pytest.approx(ece_oracle(p, y, np.ones(60), **options))


@settings(deadline=None)
@given(n=st.integers(1, 25), k=st.integers(2, 4), n_bins=st.integers(1, 20), seed=st.integers(0, 1000))
def test_ties_zeros_and_ones_fall_where_the_loop_says(n, k, n_bins, seed):
    p, y, w = draw_coarse(n, k, seed)
    for kind in [*KINDS, *(["binary"] if k == 2 else [])]:
        for strategy in STRATEGIES:
            options = {"kind": kind, "n_bins": n_bins, "strategy": strategy}
            assert ece(y, p, sample_weight=w, **options) == pytest.approx(ece_oracle(p, y, w, **options), abs=1e-12)
    assert mmce(y, p, sample_weight=w) == pytest.approx(mmce_oracle(p, y, w), abs=1e-7)


def test_named_functions_are_ece():
    p, y, w = draw(80, 4, sharpen=2)
    options = {"n_bins": 7, "strategy": "quantile", "sample_weight": w}
    assert mce(y, p, **options) == ece(y, p, norm="max", **options)
    assert classwise_ece(y, p, norm=2, **options) == ece(y, p, kind="classwise", norm=2, **options)
    each = evaluate(y, p, n_bins=7, sample_weight=w)
    assert each["mce"] == mce(y, p, n_bins=7, sample_weight=w)
    assert each["ece_quantile"] == ece(y, p, **options)


@settings(deadline=None)
@given(n=st.integers(1, 30), k=st.integers(2, 5), seed=st.integers(0, 1000))
def test_properties(n, k, seed):
    p, y, _ = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    samples, classes = rng.permutation(n), rng.permutation(k)
    repeats = rng.integers(0, 3, size=n)
    repeats[0] = 2
    metrics = [
        mmce,
        mce,
        *(
            lambda *a, kind=kind, strategy=strategy, norm=norm, **o: ece(
                *a, kind=kind, strategy=strategy, norm=norm, n_bins=5, **o
            )
            for kind in KINDS
            for strategy in STRATEGIES
            for norm in (1, 2)
        ),
        lambda *a, **o: ece(*a, norm=2, debiased=True, n_bins=1, **o),
    ]
    for metric in metrics[: len(metrics) if n > 1 else -1]:
        value = metric(y, p)
        assert 0 <= value <= 1
        assert metric(y[samples], p[samples]) == pytest.approx(value, abs=1e-7)
        assert metric(np.argsort(classes)[y], p[:, classes]) == pytest.approx(value, abs=1e-7)
        assert metric(y, p, sample_weight=repeats) == pytest.approx(
            metric(np.repeat(y, repeats), np.repeat(p, repeats, axis=0)), abs=1e-7
        )


def test_an_edge_belongs_to_the_bin_below():
    for n_bins in range(2, 60):  # np.linspace misses some of these edges by a rounding
        confidences = np.arange(1, n_bins + 1) / n_bins
        p = np.column_stack([confidences, 1 - confidences])
        table = reliability(np.zeros(n_bins), p, kind="classwise", n_bins=n_bins)
        assert table.weight[0].tolist() == [1] * n_bins


def test_reliability_table():
    p, y, w = draw(200, 3, sharpen=2)
    for kind, shape in (("top", (6,)), ("classwise", (3, 6)), ("full", (6,)), ("top_label", (3, 6))):
        for strategy in STRATEGIES:
            options = {"kind": kind, "n_bins": 6, "strategy": strategy, "sample_weight": w}
            table = reliability(y, p, **options)
            assert table.weight.shape == table.low.shape == shape
            assert table.edges.shape == (*shape[:-1], 7)
            assert table.weight.sum() == pytest.approx(w.sum() * (1 if "top" in kind else 3))
            full = table.weight > 0
            assert (np.isnan(table.accuracy) == ~full).all()
            gap = np.abs(table.accuracy - table.confidence)[full]
            assert ece(y, p, **options) == pytest.approx((table.weight[full] * gap).sum() / table.weight.sum())
            inside = (table.edges[..., :-1] <= table.confidence) & (table.confidence <= table.edges[..., 1:])
            assert inside[full].all()


def test_reliability_has_wilson_intervals():
    p, y, _ = draw(300, 3)
    table = reliability(y, p, n_bins=5, confidence_level=0.9)
    for weight, accuracy, low, high in zip(table.weight, table.accuracy, table.low, table.high):
        if weight:
            test = binomtest(round(weight * accuracy), int(weight)).proportion_ci(0.9, method="wilson")
            assert (low, high) == pytest.approx((test.low, test.high))
    w = np.where(np.arange(300) % 2, 3.0, 1.0)  # worth 240 samples
    weighted = reliability(y, p, n_bins=1, confidence_level=0.9, sample_weight=w)
    share = float(w @ (p.argmax(axis=1) == y) / w.sum())
    z, n = 1.6448536, w.sum() ** 2 / (w @ w)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    assert weighted.high[0] - weighted.low[0] == pytest.approx(2 * half)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_automatic_number_of_bins_is_the_cube_root_of_the_samples(kind, strategy):
    p, y, _ = draw(1000, 3)
    options = {"kind": kind, "strategy": strategy}
    assert ece(y, p, n_bins="auto", **options) == ece(y, p, n_bins=10, **options)
    assert len(reliability(y, p, n_bins="auto", **options).edges.T) == 11
    w = np.where(np.arange(1000) < 500, 1.0, 1e-9)  # half of the samples hardly count
    assert ece(y, p, n_bins="auto", sample_weight=w, **options) == ece(y, p, n_bins=8, sample_weight=w, **options)
    assert len(reliability(y[:1], p[:1], n_bins="auto", kind="top").edges) == 2
    with pytest.raises(InputError):
        ece(y, p, n_bins="many", **options)


def test_binary_is_the_curve_of_scikit_learn():
    p, y, _ = draw(500, 2, sharpen=2)
    for strategy in STRATEGIES:
        table = reliability(y, p, kind="binary", n_bins=9, strategy=strategy)
        share, mean = calibration_curve(y, p[:, 1], n_bins=9, strategy=strategy)
        if strategy == "uniform":  # scikit-learn's quantiles lie between samples, ours are samples
            full = table.weight > 0
            np.testing.assert_allclose(table.accuracy[full], share, rtol=1e-12)
            np.testing.assert_allclose(table.confidence[full], mean, rtol=1e-12)
            expected = np.average(np.abs(share - mean), weights=table.weight[full])
            assert ece(y, p, kind="binary", n_bins=9) == pytest.approx(expected, rel=1e-12)
        else:
            np.testing.assert_allclose(table.accuracy, share, atol=0.05)


def test_kinds_of_two_classes():
    """Of two classes both have the same error; positive class and confidence are two questions."""
    p, y, w = draw(300, 2, sharpen=2)
    assert ece(y, p, kind="classwise", sample_weight=w) == pytest.approx(ece(y, p, kind="binary", sample_weight=w))
    assert mce(y, p, kind="binary", n_bins=6) == pytest.approx(mce(y, p, kind="classwise", n_bins=6))
    # All risks are too low by 0.1, so that confidences in the positive class are too low, the others too high.
    low = np.repeat([[0.4, 0.6], [0.6, 0.4]], 10, axis=0)
    labels = np.array([1] * 7 + [0] * 3 + [1] * 5 + [0] * 5)
    assert ece(labels, low, kind="binary") == pytest.approx(0.1)
    assert ece(labels, low, kind="top_label") == pytest.approx(0.1)
    assert ece(labels, low, kind="top") == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_zeros_and_ones_count_in_every_kind(kind):
    """Votes of forests: probabilities of exactly 0 and 1 lie in the first and the last bin, and none is dropped."""
    p = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    y = np.array([0, 1, 1, 0])
    assert (
        ece(y, p, kind=kind)
        == pytest.approx(ece_oracle(p, y, np.ones(4), kind=kind))
        == pytest.approx(0.25 if kind == "full" else 0.375)
    )
    assert reliability(y, p, kind=kind).weight.sum() == (4 if "top" in kind else 8)
    assert ece(y, p, kind="binary") == pytest.approx(0.375)
    assert ece(y, p.astype(np.float16), kind=kind) == pytest.approx(ece(y, p, kind=kind))
