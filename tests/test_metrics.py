"""Metrics against loops straight from the formulas, numbers that other libraries publish, and closed forms."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import attemper.metrics as m
from attemper.errors import InputError
from attemper.metrics.best import can_be_best, means_and_covariance
from attemper.metrics.bins import Binned, error_of
from attemper.metrics.evaluation import METRICS, evaluate_predictions
from attemper.metrics.intervals import Spread, around_mean, enclosed, skewed, wilson
from attemper.metrics.predictions import Predictions
from conftest import draw

from oracles import isotonic

KINDS = ["top", "classwise", "full", "top_label"]  # "binary" is for two classes alone
STRATEGIES = ["uniform", "quantile"]


def predictions(n=400, k=5, t=2.0, seed=0):
    data = draw(n, k, t=t, seed=seed)
    return data.p, data.y, 1 + data.w


def coarse(n, k, seed):
    """Many ties, zeros and ones; whole weights, some 0; a prediction is right and one wrong."""
    data = draw(n, k, t=5.0, seed=seed)
    counts = np.floor(4 * data.p) + np.eye(k)[data.h.argmax(axis=1)]
    p, y, w = counts / counts.sum(axis=1, keepdims=True), data.y, data.w
    y[:2], w[:2] = p[:2].argmax(axis=1), 2
    y[1] = (y[1] + 1) % k
    return p, y, w


def two(p):
    p = np.asarray(p, dtype=float)
    return np.column_stack([1 - p, p])


# --- loops from the formulas -----------------------------------------------------------------------------


def loss_oracle(name, p, y, w):
    total = 0.0
    for row, label, weight in zip(p, y, w):
        losses = {
            "nll": -math.log(row[label]) if row[label] > 0 else math.inf,
            "brier": sum((value - (k == label)) ** 2 for k, value in enumerate(row)),
            "accuracy": float(max(range(len(row)), key=lambda k: row[k]) == label),
        }
        total += weight * losses[name] if weight else 0.0
    return total / sum(w)


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
            confidence, right = (sum(w[pair[0]] * pair[of] for pair in inside) / weight for of in (1, 2))
            gap = abs(right - confidence)
            if debiased:
                terms.append((weight, gap**2 - right * (1 - right) / (weight - 1) if weight > 1 else 0.0))
            else:
                terms.append((weight, gap if norm == "max" else gap**norm))
    if norm == "max":
        return max(gap for _, gap in terms)
    mean = sum(weight * gap for weight, gap in terms) / sum(weight for weight, _ in terms)
    return max(mean, 0.0) ** (1 / norm)


def mmce_oracle(p, y, w):
    [pairs] = pairs_of(p, y, "top")
    total = 0.0
    for i, r_i, c_i in pairs:
        for j, r_j, c_j in pairs:
            total += w[i] * w[j] * (c_i - r_i) * (c_j - r_j) * math.exp(-abs(r_i - r_j) / 0.4)
    return math.sqrt(max(0.0, total)) / sum(w)


def curve_oracle(p, y, w, thresholds):
    """Rows of correct decided, errors referred, referred, error rate of the decided."""
    rows = []
    for t in thresholds:
        weight = dict.fromkeys([(r, d) for r in (True, False) for d in (True, False)], 0.0)
        for row, label, wi in zip(p, y, w):
            weight[bool(row.argmax() == label), bool(row.max() > t)] += wi
        right, wrong = (weight[r, True] + weight[r, False] for r in (True, False))
        decided, referred = (weight[True, d] + weight[False, d] for d in (True, False))
        rate = weight[False, True] / decided if decided else math.nan
        rows.append((weight[True, True] / right, weight[False, False] / wrong, referred / (right + wrong), rate))
    return rows


def area_oracle(p, y, w, thresholds):
    rows = curve_oracle(p, y, w, sorted({0.0, 1.0, *thresholds}))
    return sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(rows))


def aurc_oracle(p, y, w):
    total = 0.0
    for row, wi in zip(p, w):
        above = [(wj, other.argmax() != label) for other, label, wj in zip(p, y, w) if other.max() >= row.max()]
        total += wi * sum(wj for wj, wrong in above if wrong) / sum(wj for wj, _ in above) if wi else 0.0
    return total / sum(w)


@given(n=st.integers(2, 25), k=st.integers(2, 4), n_bins=st.integers(1, 20), seed=st.integers(0, 1000))
def test_every_metric_is_the_loop_also_with_ties_zeros_and_ones(n, k, n_bins, seed):
    p, y, w = coarse(n, k, seed)
    for kind in [*KINDS, *(["binary"] if k == 2 else [])]:
        for strategy in STRATEGIES:
            options = {"kind": kind, "n_bins": n_bins, "strategy": strategy}
            for norm in (1, 2, "max"):
                expected = ece_oracle(p, y, w, **options, norm=norm)
                assert m.ece(y, p, sample_weight=w, **options, norm=norm) == pytest.approx(expected, abs=1e-7)
    assert m.mmce(y, p, sample_weight=w) == pytest.approx(mmce_oracle(p, y, w), abs=1e-7)
    for name in ("nll", "brier", "accuracy"):
        assert getattr(m, name)(y, p, sample_weight=w) == pytest.approx(loss_oracle(name, p, y, w), rel=1e-12)
    assert m.aurc(y, p, sample_weight=w) == pytest.approx(aurc_oracle(p, y, w), abs=1e-12)
    occurring = sorted({0.0, 1.0, *p[w > 0].max(axis=1)})
    for grid, t in ((None, occurring), ("paper", [j / 20 for j in range(21)]), ([0.3, 0.9, 0.5], [0.3, 0.5, 0.9])):
        curve = m.referral_curve(y, p, thresholds=grid, sample_weight=w)
        columns = np.transpose(list(curve.columns().values()))
        np.testing.assert_allclose(columns[:, 1:], curve_oracle(p, y, w, t), rtol=1e-12, atol=1e-14)
        area = m.referral_area(y, p, thresholds=grid, sample_weight=w)
        assert area == pytest.approx(area_oracle(p, y, w, t), abs=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_debiased_ece_and_other_norms_are_the_loop(kind, strategy):
    p, y, w = predictions(60, 3, t=3)
    options = {"kind": kind, "n_bins": 6, "strategy": strategy}
    for more in ({"norm": 2, "debiased": True}, {"norm": 1.5}):
        assert m.ece(y, p, sample_weight=w, **options, **more) == pytest.approx(ece_oracle(p, y, w, **options, **more))
    assert m.mce(y, p, **options) == m.ece(y, p, norm="max", **options)
    assert m.classwise_ece(y, p, norm=2) == m.ece(y, p, kind="classwise", norm=2)


FLOATS = {
    **{name: getattr(m, name) for name in ("nll", "brier", "accuracy", "mce", "mmce", "aurc", "smooth_ece")},
    "cost": partial(m.expected_cost, threshold=0.6, cost_refer=1, cost_miss=7),
    "smooth classwise": partial(m.smooth_ece, kind="classwise"),
    "paper area": partial(m.referral_area, thresholds="paper"),
    "score": lambda *a, **o: m.decompose(*a, **o).discrimination,
    **{f"{kind} {s}": partial(m.ece, kind=kind, strategy=s, n_bins=5) for kind in KINDS for s in STRATEGIES},
    "debiased": partial(m.ece, norm=2, debiased=True, n_bins=1),
}


@pytest.mark.parametrize("name", FLOATS)
def test_order_of_samples_and_classes_and_weights_as_repeats(name):
    metric = FLOATS[name]
    for seed in range(3):
        p, y, w = predictions(40, 4, seed=seed)
        rng = np.random.default_rng(seed)
        samples, classes, w[5] = rng.permutation(40), rng.permutation(4), 0.0
        value, twice = metric(y, p, sample_weight=w), np.repeat(np.arange(40), w.astype(int))
        assert isinstance(value, float)
        assert metric(y[samples], p[samples], sample_weight=w[samples]) == pytest.approx(value, abs=1e-7)
        assert metric(np.argsort(classes)[y], p[:, classes], sample_weight=w) == pytest.approx(value, abs=1e-7)
        assert metric(y[twice], p[twice]) == pytest.approx(value, abs=1e-6)
        logs = np.log(p) + rng.normal(size=(40, 1))  # logits have any constant
        assert metric(y, logs, sample_weight=w, input="logits") == pytest.approx(value, abs=1e-6)


def test_risk_coverage_and_cost_are_loops():
    p, y, w = predictions(80, 4)
    curve = m.risk_coverage_curve(y, p, sample_weight=w)
    expected = np.array(curve_oracle(p, y, w, curve.threshold))
    assert curve.coverage == pytest.approx(1 - expected[:, 2])
    assert curve.risk == pytest.approx(expected[:, 3])
    assert curve.threshold.tolist() == [0.0, *sorted(p.max(axis=1))[:-1]]
    rng = np.random.default_rng(0)
    at_one = float(p[0].max())  # a confidence at the threshold is referred
    for t, miss in ((0.5, 10.0), (rng.random(4), rng.random(4) * 50), (0.0, 3.0), (1.0, 3.0), (at_one, 3.0)):
        total = 0.0
        for row, label, wi in zip(p, y, w):
            decided, wrong = row.max() > np.broadcast_to(t, 4)[row.argmax()], row.argmax() != label
            total += wi * (wrong * np.broadcast_to(miss, 4)[label] if decided else 2.5)
        found = m.expected_cost(y, p, t, cost_refer=2.5, cost_miss=miss, sample_weight=w)
        assert found == pytest.approx(total / w.sum(), rel=1e-12)


def blurred(confidence, gap, width, cells=801):
    """Integral of the absolute value of the gaps, blurred by a Gaussian that is reflected at 0 and 1."""
    t = (np.arange(cells) + 0.5)[:, None] / cells
    images = [sign * confidence + 2 * k for k in range(-5, 6) for sign in (1, -1)]
    kernel = sum(np.exp(-((t - image) ** 2) / (2 * width**2)) for image in images) / (width * math.sqrt(2 * math.pi))
    return float(np.abs(kernel @ gap).mean())


@pytest.mark.parametrize(("n", "t", "weighted"), [(3, 1, False), (40, 2, True), (80, 1, False)])
def test_smooth_ece_is_the_integral_of_its_definition(n, t, weighted):
    p, y, w = predictions(n, 2, t)
    c, w = p.max(axis=1), w if weighted else np.ones(n)
    gap, low, high = w * ((p.argmax(axis=1) == y) - c) / w.sum(), 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if blurred(c, gap, middle) > middle else (low, middle)
    assert m.smooth_ece(y, p, sample_weight=w) == pytest.approx((low + high) / 2, abs=2e-4)


def test_smooth_ece_of_few_samples_and_of_classes():
    fixed = [([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], 0.096327), ([0.7], [1], 0.3), ([0.99, 0.99], [1, 0], 0.49)]
    for c, right, expected in fixed:  # by the integral, with 20 001 cells
        assert m.smooth_ece(1 - np.array(right), two(1 - np.array(c))) == pytest.approx(expected, rel=2e-4)
    p, y, _ = predictions(60, 3)
    each = [m.smooth_ece(y == k, p[:, k]) for k in range(3)]
    assert m.smooth_ece(y, p, kind="classwise") == pytest.approx(np.mean(each))


def recalibrated(confidence, right, w):
    values = sorted(set(confidence))
    weights = [[sum(w[(confidence == v) & (right == outcome)]) for v in values] for outcome in (1, 0)]
    fit = dict(zip(values, isotonic(*weights)))
    return np.array([fit[c] for c in confidence])


@given(
    n=st.integers(1, 20), k=st.integers(2, 4), seed=st.integers(0, 10**6), score=st.sampled_from(["brier", "log"]),
    kind=st.sampled_from(["top", "classwise"]),
)  # fmt: skip
def test_parts_of_a_score_are_those_of_isotonic_regression(n, k, seed, score, kind):
    p, y, w = predictions(n, k, seed=seed)
    tops = [(p.max(axis=1), (p.argmax(axis=1) == y).astype(int))]
    parts = np.zeros(3)
    for q, right in tops if kind == "top" else [(p[:, j], (y == j).astype(int)) for j in range(k)]:
        means = []
        for v in (q, recalibrated(q, right, w), np.full(n, w @ right / w.sum())):
            with np.errstate(divide="ignore"):
                losses = (v - right) ** 2 if score == "brier" else -np.log(np.where(right == 1, v, 1 - v))
            means.append(w @ losses / w.sum())
        parts += [means[0] - means[1], means[2] - means[1], means[2]]
    parts = parts / 2 if kind == "classwise" and k == 2 and score == "log" else parts
    found = m.decompose(y, p, score=score, kind=kind, sample_weight=w)
    np.testing.assert_allclose([found.miscalibration, found.discrimination, found.uncertainty], parts, atol=1e-12)
    assert found.score == pytest.approx(found.miscalibration - found.discrimination + found.uncertainty)
    if kind == "classwise" and (score == "brier" or k == 2):
        assert found.score == pytest.approx((m.brier if score == "brier" else m.nll)(y, p, sample_weight=w))


def test_corp_curve_bands_and_p_value():
    p, y, w = predictions(400, 3, t=2.0)
    curve = m.corp_reliability(y, p, sample_weight=w)
    confidence, right = p.max(axis=1), (p.argmax(axis=1) == y).astype(int)
    expected = recalibrated(confidence, right, w)
    np.testing.assert_allclose(np.interp(confidence, curve.confidence, curve.accuracy), expected, atol=1e-12)
    assert curve.weight.sum() == w.sum()
    table = curve.columns()
    out = (table["accuracy"] < table["low"]) | (table["accuracy"] > table["high"])
    assert table["weight"] @ out / w.sum() > 0.3  # overconfident
    around = m.corp_reliability(y, p, kind="top", band="confidence")
    accuracy = np.interp(around.band_confidence, around.confidence, around.accuracy)
    assert ((around.low <= accuracy) & (accuracy <= around.high)).all()
    assert m.decompose(y, p, kind="top").p < 0.01
    assert m.decompose(y, p).p is None
    fair, labels, _ = predictions(1000, 2, t=1.0)
    found = m.decompose(labels, fair)
    assert found.p > 0.01
    assert found.chance == pytest.approx(found.miscalibration, rel=0.6)


# --- what other libraries publish, and compute -----------------------------------------------------------


BINARY = [0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1]
MULTICLASS = [[0.25, 0.20, 0.55], [0.55, 0.05, 0.40], [0.10, 0.30, 0.60], [0.90, 0.05, 0.05]], [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("norm", "binary", "multiclass"), [(1, 0.29, 0.2), (2, 0.2918, 0.2082), ("max", 0.3167, 0.2333)]
)
def test_examples_of_torchmetrics(norm, binary, multiclass):
    assert m.ece(BINARY[1], BINARY[0], n_bins=2, norm=norm) == pytest.approx(binary, abs=5e-5)  # one column
    assert m.ece(BINARY[1], two(BINARY[0]), kind="binary", n_bins=2, norm=norm) == pytest.approx(binary, abs=5e-5)
    assert m.ece(MULTICLASS[1], MULTICLASS[0], n_bins=3, norm=norm) == pytest.approx(multiclass, abs=5e-5)


# uncertainty-calibration 0.1.4's tests: what Kumar et al. call top-label is kind="top" here.
@pytest.mark.parametrize(
    ("p", "y", "n_bins", "strategy", "expected"),
    [
        ([0.3, 0.6], [1, 0], 2, "uniform", 0.65), ([0.3, 0.6, 0.6], [1, 0, 1], 2, "uniform", 0.3),
        ([0.6, 0.7, 0.8, 0.9], [0, 0, 1, 1], 2, "uniform", 0.25), ([0.9, 0.1, 0.3], [0, 0, 0], 1, "uniform", 1.3 / 3),
        ([0.1], [1], 1, "quantile", 0.9), ([0.1], [0], 1, "quantile", 0.1), ([0.1, 0.7], [0, 1], 1, "quantile", 0.1),
        ([0.1, 0.7, 0.4], [0, 0, 0], 1, "quantile", 0.4), ([0.1, 0.9], [0, 1], 1, "quantile", 0.0),
        ([0.1, 0.7], [0, 1], 2, "quantile", 0.2), ([0.1, 0.1, 0.7], [0, 1, 1], 2, "quantile", 0.4 * 2 / 3 + 0.3 / 3),
        ([0.1, 0.1, 0.1, 0.1, 0.7], [0, 1, 0, 0, 1], 2, "quantile", 0.15 * 4 / 5 + 0.3 / 5),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 0, 1], 4, "quantile", 0.25),
        ([0.6, 0.7, 0.8, 0.9], [0, 0, 1, 1], 2, "quantile", 0.4),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 1, 1], 2, "quantile", 0.2),
    ],
)  # fmt: skip
def test_numbers_of_verified_calibration(p, y, n_bins, strategy, expected):
    assert m.ece(y, p, n_bins=n_bins, strategy=strategy) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_three_classes_of_verified_calibration(norm):
    rows = [[0.6, 0.3, 0.1]] * 6 + [[0.1, 0.8, 0.1]] * 4 + [[0.1, 0.0, 0.9]] * 4
    y = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]

    def mean(total, gaps):
        return sum(n / total * gap**norm for n, gap in gaps) ** (1 / norm)

    marginal = mean(42, [(4, 0.1), (6, 5 / 6 - 0.6), (8, 0.1), (4, 0.05), (6, 0.3 - 1 / 6)])
    assert m.ece(y, rows, kind="classwise", n_bins=20, norm=norm) == pytest.approx(marginal)
    top = mean(14, [(6, 5 / 6 - 0.6), (4, 0.05), (4, 0.1)])
    for kind in ("top", "top_label"):  # one class in each bin
        assert m.ece(y, rows, kind=kind, n_bins=20, norm=norm) == pytest.approx(top)


def netcal_ece(y, p, n_bins):
    """netcal's and probmetrics': mean of the labels and of one column in bins of [lo, hi)."""
    place = np.digitize(p, np.linspace(0, 1, n_bins + 1)[1:-1])
    return sum(abs(y[place == b].mean() - p[place == b].mean()) * (place == b).mean() for b in np.unique(place))


def test_one_column_is_the_positive_class():
    low = np.repeat([0.12, 0.88], 100)  # risks that are too low by 0.04; confidences are right on average
    y = np.r_[np.arange(100) < 16, np.arange(100) < 92].astype(int)
    assert m.ece(y, low) == pytest.approx(0.0400, abs=1e-12) == pytest.approx(netcal_ece(y, low, 15))
    assert m.ece(y, two(low)) == pytest.approx(0, abs=1e-12)
    gap = m.evaluate(y, low, ["gap"])["gap"]
    assert gap.value == pytest.approx(-0.04, abs=1e-12)
    assert gap.low < -0.04 < gap.high
    none = m.evaluate(np.zeros(300, int), np.linspace(0, 0.01, 300), ["gap"])["gap"]  # no positive among 300
    assert none.low < 0 < none.high
    assert none.high - none.low > 0.005
    p, y, _ = predictions(2000, 2)
    for n_bins in (10, 15):
        assert m.ece(y, p[:, 1], n_bins=n_bins) == pytest.approx(netcal_ece(y, p[:, 1], n_bins), rel=1e-12)
    assert m.brier(y, p[:, 1]) == pytest.approx(brier_score_loss(y, p[:, 1])) == pytest.approx(m.brier(y, p) / 2)
    assert m.nll(y, p[:, 1]) == pytest.approx(log_loss(y, p[:, 1])) == pytest.approx(m.nll(y, p))
    assert m.decompose(y, p[:, 1]).score == pytest.approx(m.brier(y, p[:, 1]))
    assert m.smooth_ece(y, p[:, 1]) == m.smooth_ece(y, p, kind="binary") != m.smooth_ece(y, p)
    assert m.mmce(y, p[:, 1]) != m.mmce(y, p)
    assert m.nll(y, np.log(p[:, 1] / p[:, 0]), input="logits") == pytest.approx(m.nll(y, p))
    share, mean = calibration_curve(y, p[:, 1], n_bins=9)
    table = m.reliability(y, p[:, 1], n_bins=9)
    np.testing.assert_allclose(table.accuracy, share, rtol=1e-12)
    np.testing.assert_allclose(table.confidence, mean, rtol=1e-12)


def test_agrees_with_scikit_learn():
    p, y, w = predictions(400, 7)
    assert m.nll(y, p, sample_weight=w) == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-12)
    by_class = [brier_score_loss(y == k, p[:, k], sample_weight=w) for k in range(7)]
    assert m.brier(y, p, sample_weight=w) == pytest.approx(sum(by_class), rel=1e-12)
    right = p.argmax(axis=1)
    assert m.accuracy(y, p, sample_weight=w) == pytest.approx(accuracy_score(y, right, sample_weight=w), rel=1e-12)
    area = roc_auc_score(right == y, p.max(axis=1), sample_weight=w)
    assert m.referral_area(y, p, sample_weight=w) == pytest.approx(area, abs=1e-12)


# --- forms -----------------------------------------------------------------------------------------------


def test_names_soft_labels_precisions_and_tensors():
    torch = pytest.importorskip("torch")
    p, y, w = predictions(200)
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    shares = 0.7 * np.eye(5)[y] + 0.3 * np.eye(5)[(y + 1) % 5]
    for metric in (m.nll, m.ece, m.aurc):
        assert metric(names[y], p, classes=list(names)) == metric(y, p)
        assert metric(torch.tensor(y), torch.tensor(p), sample_weight=torch.tensor(w)) == metric(y, p, sample_weight=w)
        assert metric(y, p.astype(np.float32)) == pytest.approx(metric(y, p), rel=1e-4)
    assert m.nll(shares, p) == pytest.approx(0.7 * m.nll(y, p) + 0.3 * m.nll((y + 1) % 5, p))
    assert m.nll([1, 0], [[0.0, -2000.0], [0.0, -1500.0]], input="logits") == 1000  # does not underflow
    logs = [[-1e-30, -69.0], [-1e-25, -57.0], [-1e-20, -46.0]]  # confidences that all round to 1
    assert m.referral_area([0, 0, 1], logs, input="logits") == 1
    assert m.referral_area([0, 0, 1], np.exp(logs)) == 0.5


def test_perfect_and_hopeless():
    sure = np.eye(3)
    assert [metric([0, 1, 2], sure) for metric in (m.nll, m.brier, m.accuracy)] == [0, 0, 1]
    assert math.copysign(1, m.nll([0, 1, 2], sure)) == 1  # not −0.0
    assert [metric([1, 2, 0], sure) for metric in (m.nll, m.brier, m.accuracy)] == [math.inf, 2, 0]
    assert m.nll([1, 0], [[1.0, 0.0], [0.5, 0.5]], sample_weight=[0, 1]) == pytest.approx(math.log(2))
    for n_bins in range(2, 60):  # an edge belongs to the bin below; np.linspace misses some by a rounding
        c = np.arange(1, n_bins + 1) / n_bins
        table = m.reliability(np.zeros(n_bins), np.column_stack([c, 1 - c]), kind="classwise", n_bins=n_bins)
        assert table.weight[0].tolist() == [1] * n_bins


P, Y, _ = predictions(50)


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (lambda: m.ece(P[:, 0], Y), "labels"), (lambda: m.ece(Y, P, kind="best"), "kind"),
        (lambda: m.ece(Y, P, kind="binary"), "kind"), (lambda: m.ece(Y, P, n_bins=0), "n_bins"),
        (lambda: m.ece(Y, P, n_bins="auto"), "n_bins"), (lambda: m.ece(Y, P, norm=0.5), "norm"),
        (lambda: m.ece(Y, P, debiased=True), "debiased"), (lambda: m.ece(Y, P, strategy="even"), "strategy"),
        (lambda: m.ece(Y, P, norm=2, debiased=True, sample_weight=np.full(50, 0.01)), "debiased"),
        (lambda: m.evaluate(Y, P, ["acc"]), "metrics"), (lambda: m.evaluate(Y, P, by="site"), "by"),
        (lambda: m.evaluate(Y, P, confidence_level=2), "confidence_level"), (lambda: m.nll(Y, 9 * P), "data"),
        (lambda: m.referral_area(Y, P, thresholds="papers"), "thresholds"), (lambda: m.nll(None, P), "labels"),
        (lambda: m.expected_cost(Y, P, 2, cost_refer=1, cost_miss=1), "threshold"),
        (lambda: m.get_scorer("ece"), "name"), (lambda: m.get_scorer("neg_ece", bogus=1), "bogus"),
        (lambda: m.expected_cost(Y, P, 0.5, cost_refer=1, cost_miss=[1, 2]), "cost_miss"),
        (lambda: m.corp_reliability(Y, P, kind="full"), "kind"), (lambda: m.decompose(Y, P, score="f1"), "score"),
        (lambda: m.referral_curve(P.argmax(axis=1), P), "labels"), (lambda: m.smooth_ece(Y, P, kind="full"), "kind"),
        *(
            (partial(of, Y, P, confidence_level=level), "confidence_level")
            for of in (m.evaluate, m.reliability, m.corp_reliability) for level in (0, 1, 95, math.nan, "0.95")
        ),
        (lambda: m.evaluate(P > 0.5, P, by="label", sample_weight=[1]), "sample_weight"),
        (lambda: m.evaluate(P > 0.5, P, by="label", clusters=[1]), "clusters"),
        (lambda: m.evaluate(P[:, 0] > 0.5, P, by="label"), "labels"),
    ],
)  # fmt: skip
def test_what_is_refused(call, param):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.param == param


@pytest.mark.parametrize("name", [each for each in m.__all__ if each.islower() and each != "get_scorer"])
def test_no_metric_takes_what_it_ignores(name):
    more = {"threshold": 0.5, "cost_refer": 1, "cost_miss": 1} if name == "expected_cost" else {}
    takes_clusters = name in ("corp_reliability", "decompose", "evaluate", "reliability")
    for keyword in ("ids", "groups", "weights") if takes_clusters else ("ids", "clusters"):
        with pytest.raises(TypeError) as error:
            getattr(m, name)(Y, P, **more, **{keyword: Y})
        assert str(error.value).startswith(f"{name}()")


# --- reliability -----------------------------------------------------------------------------------------


def test_reliability_tables_have_the_ece_and_wilson_intervals():
    p, y, w = predictions(200, 3, t=2)
    for kind, shape in (("top", (6,)), ("classwise", (3, 6)), ("full", (6,)), ("top_label", (3, 6))):
        for strategy in STRATEGIES:
            options = {"kind": kind, "n_bins": 6, "strategy": strategy, "sample_weight": w}
            table = m.reliability(y, p, **options)
            assert table.weight.shape == table.low.shape == shape
            assert table.edges.shape == (*shape[:-1], 7)
            assert table.weight.sum() == pytest.approx(w.sum() * (1 if "top" in kind else 3))
            assert m.ece(y, p, **options) == pytest.approx(table.mean(np.abs(table.accuracy - table.confidence)))
            full = table.weight > 0
            inside = (table.edges[..., :-1] <= table.confidence) & (table.confidence <= table.edges[..., 1:])
            assert inside[full].all()
            assert (np.isnan(table.accuracy) == ~full).all()
            assert all(len(column) == np.prod(shape) for column in table.columns().values())
    table = m.reliability(y, p, n_bins=5, confidence_level=0.9)
    for weight, accuracy, low, high in zip(table.weight, table.accuracy, table.low, table.high):
        if weight:
            test = stats.binomtest(round(weight * accuracy), int(weight)).proportion_ci(0.9, method="wilson")
            assert (low, high) == pytest.approx((test.low, test.high))
    four = np.repeat(np.arange(200), 4)  # copies in a cluster count once
    copied = m.reliability(y[four], p[four], n_bins=5, confidence_level=0.9, clusters=four)
    np.testing.assert_allclose(copied.low, table.low)


# --- intervals -------------------------------------------------------------------------------------------


BY_INFLUENCE = ("accuracy", "nll", "brier", "gap", "aurc", "referral_area")


def test_errors_of_weighted_clusters():
    p, w = np.tile([0.9, 0.1], (5, 1)), np.array([1.0, 2.0, 1.0, 5.0, 5.0])
    made = Predictions.of([1, 1, 1, 0, 0], p, w, clusters=["a", "a", "b", "b", "c"])
    assert made.errors == pytest.approx((3 + 1) ** 2 / (3**2 + 1**2))


@pytest.mark.parametrize("name", BY_INFLUENCE)
def test_influences_are_derivatives_in_the_weights(name):
    p, y, w = predictions(120, 3)
    made = Predictions.of(y, p, w)
    statistic, step = METRICS[name](made), 1e-5
    moved = w[:, None] + step * np.eye(120)
    derivative = (statistic.value(moved) - statistic.at(w)) / step * w.sum()
    influence = statistic.influence(w)
    influence = influence - w @ influence / w.sum()
    np.testing.assert_allclose(
        influence, derivative, atol=0.02 * np.abs(derivative).max() if name == "referral_area" else 2e-3
    )


def test_standard_error_skewness_and_students_quantile():
    x = np.random.default_rng(0).normal(size=50)
    spread = Spread.of(x, np.ones(50), None)
    found = around_mean(x.mean(), spread, 0.9)
    expected = stats.t.interval(0.9, 49, x.mean(), stats.sem(x))
    assert (found.low, found.high) == pytest.approx(expected, abs=0.05 * stats.sem(x))  # but for the skewness
    assert spread.error == pytest.approx(stats.sem(x))
    assert spread.skewness == pytest.approx(stats.skew(x) / 50**0.5)
    even = skewed(1.0, 0.1, 0.0, 2.0)
    assert (even.low, even.high) == pytest.approx((0.8, 1.2))
    right = skewed(1.0, 0.1, 0.3, 2.0)
    assert right.high - 1 > 0.2 > 1 - right.low


def test_accuracy_has_wilsons_interval_and_copies_count_once():
    p, y, w = predictions(600)
    found = m.evaluate(y, p, [*BY_INFLUENCE, "ece"])
    k = round(600 * found["accuracy"].value)
    test = stats.binomtest(k, 600).proportion_ci(0.95, method="wilson")
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx((test.low, test.high), rel=1e-6)
    four = np.repeat(np.arange(600), 4)
    others = (
        m.evaluate(y, p, BY_INFLUENCE, clusters=np.arange(600)),
        m.evaluate(y[four], p[four], BY_INFLUENCE, clusters=four),
        m.evaluate(
            y, p, BY_INFLUENCE, sample_weight=np.full(600, 4.0)
        ),  # weight 4 is the sample four times, in one case
    )
    for name in BY_INFLUENCE:
        for other in others:
            assert other[name].value == pytest.approx(found[name].value)
            assert (other[name].low, other[name].high) == pytest.approx((found[name].low, found[name].high), rel=2e-3)
    weighted = m.evaluate(y, p, ["nll", "ece"], sample_weight=w)
    rows = np.repeat(np.arange(600), w.astype(int))
    repeated = m.evaluate(y[rows], p[rows], ["nll", "ece"], clusters=rows)
    for name in ("nll", "ece"):
        ends = [(each[name].low, each[name].high) for each in (weighted, repeated)]
        assert ends[0] == pytest.approx(ends[1], rel=0.02)
    assert m.evaluate(y[four], p[four], ["nll"])["nll"].low > others[1]["nll"].low


@pytest.mark.parametrize("name", ["aurc", "referral_area", "gap"])
def test_intervals_are_as_wide_as_the_spread_of_resamples(name):
    p, y, w = predictions(300, 4)
    case, rng = np.arange(300) // 3, np.random.default_rng(3)
    found = m.evaluate(y, p, [name], clusters=case, sample_weight=w)[name]
    made = Predictions.of(y, p, w)
    drawn = np.stack([w * np.bincount(rng.integers(100, size=100), minlength=100)[case] for _ in range(400)], axis=1)
    spread = METRICS[name](made).value(drawn).std()
    assert found.high - found.low == pytest.approx(2 * 1.98 * spread, rel=0.2)


def test_resampled_intervals_slowly():
    p, y, _ = predictions(200, 3)
    rng, values = np.random.default_rng(0), []
    for _ in range(1000):
        rows = rng.integers(200, size=200)
        values.append(m.ece(y[rows], p[rows]))
    found, slow = m.evaluate(y, p, ["ece"])["ece"], enclosed(m.ece(y, p), np.array(values), 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((slow.value, slow.low, slow.high), rel=1e-9)
    squares = np.sort(np.array(values) ** 2)
    bias = squares.mean() - found.value**2
    assert found.high**2 == pytest.approx(squares[-25] - 2 * bias)


def test_resampled_intervals_of_few_clusters_have_students_quantile():
    n, (p, y, _) = 24, predictions(480, 3)
    case, rng = np.arange(480) % n, np.random.default_rng(0)
    drawn = (np.bincount(rng.integers(n, size=n), minlength=n)[case] for _ in range(1000))
    values = [m.ece(y, p, sample_weight=times) for times in drawn]
    level = 2 * stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)) - 1
    found, slow = m.evaluate(y, p, ["ece"], clusters=case)["ece"], enclosed(m.ece(y, p), np.array(values), level)
    assert (found.low, found.high) == pytest.approx((slow.low, slow.high), rel=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_chance_are_counted_in_the_bins_of_their_class(kind, strategy):
    p, y, w = predictions(80, 3)
    made = Predictions.of(y, p, w)
    binned = Binned(made, kind, 6, strategy)
    found = binned.drawn(np.random.default_rng(5), 7, w)
    if kind in ("classwise", "full"):
        labels = made.draw_labels(np.random.default_rng(5), 7)
        for column, drawn in enumerate(labels):
            expected = Binned(Predictions.of(drawn, p, w), kind, 6, strategy).sums(w[:, None])[..., 0]
            np.testing.assert_allclose(found[..., column], expected, atol=1e-12)
        shares = np.array([(made.draw_labels(np.random.default_rng(0), 4000) == k).mean(axis=0) for k in range(3)]).T
        np.testing.assert_allclose(shares, p, atol=0.05)
    else:
        mean = binned.drawn(np.random.default_rng(0), 4000, w)[2].mean(axis=1)
        np.testing.assert_allclose(mean, found[1, :, 0], atol=0.05 * w.sum())
    assert error_of(found).shape == (7,)


def test_chance_and_p():
    p, y, _ = predictions(800, t=1.0)
    names = ["ece", "smooth_ece", "classwise_ece", "mmce", "ece_debiased"]
    fair, bad = m.evaluate(y, p, names), m.evaluate(predictions(800, t=2.0)[1], p, names)
    for name in names:
        assert fair[name].p > 0.01
        assert bad[name].p == pytest.approx(1 / 1001)
        assert fair[name].chance == pytest.approx(fair[name].value, rel=0.8, abs=0.02)
    assert not m.evaluate(y, p, ["ece"], confidence_level=None)["ece"].has_interval


@pytest.mark.parametrize("name", ["ece", "smooth_ece", "classwise_ece", "mmce"])
def test_chance_of_copies_is_that_of_their_cases(name):
    p, y, _ = predictions(800, t=1.1)
    case = np.arange(800).repeat(3)
    rows, copies = m.evaluate(y, p, name)[name], m.evaluate(y[case], p[case], name, clusters=case)[name]
    assert copies.chance == pytest.approx(rows.chance, rel=0.1)
    assert copies.p == pytest.approx(rows.p, abs=0.1)


def test_outcomes_of_a_cluster_are_drawn_together():
    p, y, _ = predictions(120, 3)
    made, rng = Predictions.of(y, p, clusters=np.arange(120) // 4), np.random.default_rng(0)
    c, right = made.top
    signs = (made.drawing(rng, 500)(c, right) - c[:, None]) / (right - c)[:, None]
    np.testing.assert_allclose(np.abs(signs), 1)
    np.testing.assert_allclose(signs.reshape(30, 4, 500).std(axis=1), 0, atol=1e-9)
    assert np.abs(signs.mean(axis=1)).max() < 0.25
    alone = Predictions.of(y, p).drawing(rng, 4000)(c, right)
    np.testing.assert_allclose(alone.mean(axis=1), c, atol=0.05)


def test_copies_in_a_case_count_once_in_a_decomposition_and_in_bands():
    p, y, _ = predictions(400, 2, t=1.2)
    case = np.arange(400).repeat(3)
    for kind in ("top", "classwise"):
        rows, copies = m.decompose(y, p, kind=kind), m.decompose(y[case], p[case], kind=kind, clusters=case)
        assert copies.chance == pytest.approx(rows.chance, rel=0.2)
        assert copies.p == pytest.approx(rows.p, abs=0.2)
        assert m.decompose(y[case], p[case], kind=kind).chance < 0.6 * copies.chance
        assert dict(zip(*rows.columns().values())) == rows.to_dict()
    for band in ("consistency", "confidence"):
        rows, copies, alone = (
            m.corp_reliability(y[i], p[i], band=band, clusters=c)
            for i, c in ((np.arange(400), None), (case, case), (case, None))
        )
        widths = [(each.high - each.low).mean() for each in (rows, copies, alone)]
        assert widths[1] == pytest.approx(widths[0], rel=0.15)
        assert widths[2] < 0.8 * widths[1]


def test_few_errors_few_clusters_and_what_has_no_interval():
    found = m.evaluate([0, 1] * 10, [[0.9, 0.1], [0.2, 0.8]] * 10)
    assert [name for name, each in found.items() if each.has_interval] == ["accuracy", "gap"]
    assert found["accuracy"].low == pytest.approx(0.8389, abs=1e-4)
    assert math.isnan(m.evaluate([0, 1] * 10, [[0.9, 0.1], [0.2, 0.8]] * 10, ["referral_area"])["referral_area"].value)
    p, y, _ = predictions(400)
    few = m.evaluate(y, p, clusters=np.arange(400) // 100)
    assert not any(each.has_interval for each in few.values())
    assert all(each.note for each in few.values())
    none = m.evaluate(y, p, ["mce", "classwise_ece", "ece_debiased"])
    assert not any(each.has_interval for each in none.values())
    zero = m.evaluate(np.r_[1, y % 2][:300], np.r_[[[1.0, 0.0]], np.full((400, 2), 0.5)][:300], ["nll"])["nll"]
    assert zero.value == math.inf
    assert not zero.has_interval


# --- by group, by label, scorers, the best ---------------------------------------------------------------


def test_groups_have_sidaks_level_and_one_test():
    rng = np.random.default_rng(0)
    right, site = rng.random(900) < np.repeat([0.8, 0.8, 0.6], 300), np.repeat(["a", "b", "c"], 300)
    found = m.evaluate(right, np.full(900, 0.8), by=site)
    assert found.alike.p < 0.01
    assert found.parts["c"]["gap"].low > 0.05
    alone = m.evaluate(right[600:], np.full(300, 0.8), ["gap"], confidence_level=0.95 ** (1 / 3))["gap"]
    assert (found.parts["c"]["gap"].low, found.parts["c"]["gap"].high) == (alone.low, alone.high)
    assert found["gap"] == m.evaluate(right, np.full(900, 0.8), ["gap"])["gap"]
    same = m.evaluate(rng.random(900) < 0.6, np.full(900, 0.8), by=site)  # equally overconfident
    assert same.alike.p > 0.01
    by_case = m.evaluate(right, np.full(900, 0.8), by=site, clusters=np.arange(900) // 3)
    assert by_case.alike.p < 0.01
    assert m.evaluate(right, np.full(900, 0.8), by=np.zeros(900)).alike.p is None
    names = m.evaluate(right, np.full(900, 0.8), by=np.where(site == "a", "all", site)).columns()["part"]
    assert len(set(names)) == 4  # a group of any name has a row of its own
    assert m.evaluate(right, np.full(900, 0.8), ["ece"], by=site, confidence_level=None).alike is None


def test_groups_of_one_column_differ_in_the_risk():
    """Risks of group B are too low: confidences, those of both sides of 1/2, are right on average."""
    rng = np.random.default_rng(0)
    risk, b = rng.uniform(0.02, 0.98, 4000), np.arange(4000) % 2
    y = rng.random(4000) < np.clip(risk + 0.08 * b, 0, 1)
    assert m.evaluate(y, risk, ["gap"], by=b).alike.p < 0.01
    assert m.evaluate(rng.random(4000) < risk, risk, ["gap"], by=b).alike.p > 0.01
    assert m.evaluate(np.zeros(4000, int), risk, ["gap"], by=b).alike.p is None


def test_the_statistic_of_the_test_slowly():
    p, y, w = predictions(300, 3)
    group, made = np.arange(300) % 2, Predictions.of(y, p, w, groups=np.arange(300) % 2)
    found = evaluate_predictions(made, ["gap"]).alike
    n_strata = round((w.sum() ** 2 / (w @ w)) ** (1 / 3))
    c, right = made.top
    stratum = [bin_of(each, [(i, v, 0) for i, v in enumerate(c)], w, n_strata, "quantile") for each in c]
    left, variance = np.zeros(2), np.zeros(2)
    for b in set(stratum):
        rows = np.array(stratum) == b
        common = w[rows] @ (right - c)[rows] / w[rows].sum()
        v = w**2 * np.clip(c + common, 0, 1) * (1 - np.clip(c + common, 0, 1))
        for g in range(2):
            own = rows & (group == g)
            share = w[own].sum() / w[rows].sum()
            left[g] += w[own] @ (right - c - common)[own]
            variance[g] += v[own].sum() * (1 - share) ** 2 + v[rows & ~own].sum() * share**2
    assert found.value == pytest.approx((left**2 / variance).sum())


def test_labels_that_do_not_exclude_each_other():
    data = draw(1500, 2)
    p, y = data.p[:, 1].reshape(500, 3), data.y.reshape(500, 3).astype(float)
    y[:50, 0] = np.nan
    found = m.evaluate(y, p, by="label", classes=["cyst", "node", "scar"])
    assert found.n == 1450
    assert list(found.parts) == ["cyst", "node", "scar"]
    assert found.parts["node"]["nll"].value == pytest.approx(log_loss(y[:, 1], p[:, 1]))
    assert found.parts["cyst"]["brier"].value == pytest.approx(brier_score_loss(y[50:, 0], p[50:, 0]))
    known = ~np.isnan(y)
    assert found["nll"].value == pytest.approx(log_loss(y[known], p[known]))
    torch, w = pytest.importorskip("torch"), np.where(np.arange(500) < 100, 0.0, 1.0)
    rest = m.evaluate(y[100:], p[100:], by="label")
    tensors = m.evaluate(torch.tensor(y), torch.tensor(p, requires_grad=True), by="label", sample_weight=w)
    assert [tensors[name] for name in tensors] == [rest[name] for name in tensors]
    copied = np.repeat(np.arange(500), 2)  # copies of a sample in one case
    twice = m.evaluate(y[copied], p[copied], ["nll"], by="label", clusters=copied)
    assert twice["nll"].low == pytest.approx(found["nll"].low, rel=1e-3)


def test_scorers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = np.array(["no", "yes"])[(x[:, 0] + rng.normal(size=200) > 0).astype(int)]
    model = LogisticRegression().fit(x, y)
    own, theirs = (cross_val_score(model, x, y, scoring=s) for s in (m.get_scorer("neg_nll"), "neg_log_loss"))
    np.testing.assert_allclose(own, theirs)
    ece = m.ece(y, model.predict_proba(x), classes=list(model.classes_), n_bins=7)
    assert m.get_scorer("neg_ece", n_bins=7)(model, x, y) == -ece
    w = rng.integers(0, 4, 200)
    weighted = m.get_scorer("neg_nll")(model, x, y, sample_weight=w)
    assert weighted == pytest.approx(-log_loss(y, model.predict_proba(x), sample_weight=w))
    GridSearchCV(model, {"C": [0.1, 1.0]}, scoring=m.get_scorer("neg_smooth_ece")).fit(x, y)


LOSSES = np.random.default_rng(0).exponential(size=(300, 3)) + np.array([0.1, 0.0, 0.6])


def test_methods_that_can_be_the_best():
    columns, ones = dict(zip("abc", LOSSES.T)), np.ones(300)
    assert can_be_best(columns, ones) == ("a", "b")
    np.testing.assert_allclose(means_and_covariance(LOSSES, ones)[1], np.cov(LOSSES.T) / 300)
    three = np.repeat(np.arange(300), 3)
    copies = means_and_covariance(LOSSES[three], np.ones(900), three)[1]
    np.testing.assert_allclose(copies, np.cov(LOSSES.T) / 300)
    shifted = {"a": LOSSES[:, 0], "b": LOSSES[:, 0] + 0.01, "c": LOSSES[:, 0] + 0.03}
    for margin, members in ((0.0, "a"), (0.011, "ab"), (0.05, "abc")):
        assert can_be_best(shifted, ones, margin=margin) == tuple(members)
    assert can_be_best(columns, ones, np.zeros(300, int)) == ("a", "b", "c")  # one case shows no winner
    assert can_be_best({"a": LOSSES[:, 0]}, ones) == ("a",)
    close = {"b": LOSSES[:, 1], "c": LOSSES[:, 2] - 0.275}
    assert [len(can_be_best(close, ones, confidence_level=level)) for level in (0.95, 0.99)] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True])
def test_intervals_cover(clustered):
    """A short version of benchmarks/intervals.py."""
    names, held = ["accuracy", "nll", "brier", "gap", "ece", "aurc", "referral_area"], []
    p, y, _ = predictions(200_000, 4, seed=1)
    truth = m.evaluate(y, p, names, confidence_level=None)
    rng = np.random.default_rng(2)
    for _ in range(150):
        rows = rng.integers(len(y), size=400)
        case = np.arange(400) // 4 if clustered else None
        rows = rows[np.arange(400) // 4 * 4] if clustered else rows
        found = m.evaluate(y[rows], p[rows], names, clusters=case)
        held.append([found[n].low <= truth[n].value <= found[n].high or not found[n].has_interval for n in names])
    assert (np.mean(held, axis=0) > 0.88).all()


def test_copies_in_a_case_vary_as_the_case():
    v, three = np.random.default_rng(0).exponential(size=12), np.repeat(np.arange(12), 3)
    alone, copies = Spread.of(v, np.ones(12), None), Spread.of(v[three], np.ones(36), three)
    for name in ("error", "skewness", "n_cases"):
        assert getattr(copies, name) == pytest.approx(getattr(alone, name), rel=1e-9)


def test_clusters_widen_the_intervals_of_each_label():
    data, copied = draw(1500, 2), np.repeat(np.arange(500), 2)
    p, y = data.p[:, 1].reshape(500, 3), data.y.reshape(500, 3).astype(float)
    once = m.evaluate(y, p, ["nll"], by="label")
    twice = m.evaluate(y[copied], p[copied], ["nll"], by="label", clusters=copied)
    for k in range(3):
        assert twice.parts[k]["nll"].low == pytest.approx(once.parts[k]["nll"].low, rel=1e-3)


def test_groups_are_tested_alike_by_rows_and_by_clusters_of_one_row():
    site, right = np.repeat([0, 1], 450), np.arange(900) % 450 < np.repeat([242, 208], 450)
    by_row, by_case = (m.evaluate(right, np.full(900, 0.95), by=site, clusters=c).alike for c in (None, np.arange(900)))
    assert by_row.p < 0.05
    assert by_case.p == pytest.approx(by_row.p, abs=0.03)


@pytest.mark.parametrize("name", ["ece", "smooth_ece", "mmce"])
def test_chance_is_that_of_the_samples_with_weight(name):
    p, y, _ = predictions(600)
    w = np.where(np.arange(600) < 60, 1.0, 1e-9)
    of_weights, alone = m.evaluate(y, p, [name], sample_weight=w), m.evaluate(y[:60], p[:60], [name])
    assert of_weights[name].chance == pytest.approx(alone[name].chance, rel=0.1)


def test_few_cases_have_the_effective_number_of_korn_and_graubard():
    y, case = np.repeat([0, 0, 0, 1, 0, 0, 1, 0], 50), np.repeat(np.arange(8), 50)
    found = m.evaluate(y, np.tile([0.7, 0.3], (400, 1)), "accuracy", clusters=case)["accuracy"]
    n = 8 * (stats.t.ppf(0.975, 399) / stats.t.ppf(0.975, 7)) ** 2
    assert (found.low, found.high) == pytest.approx(wilson(0.75, n, 0.95))


CLUSTERED = {
    "metrics": lambda *a, **o: m.evaluate(*a, list(METRICS), **o),
    "two classes": lambda y, p, **o: m.evaluate(y == 1, p[:, 1], list(METRICS), **o),
    "groups": lambda y, p, **o: m.evaluate(
        y, p, ["nll", "gap", "ece"], by=np.where(p[:, 0] > 0.2, "a", "b"), **o
    ).parts["a"],
    "label": lambda y, p, **o: m.evaluate(np.eye(3)[y], p, ["nll", "brier"], by="label", **o).parts[2],
    **{f"reliability {kind}": partial(m.reliability, kind=kind, n_bins=5) for kind in KINDS},
    "reliability": partial(m.reliability, strategy="quantile", n_bins=5, confidence_level=0.8),
    "corp": partial(m.corp_reliability, confidence_level=0.8),
    "corp around": partial(m.corp_reliability, kind="top", band="confidence"),
    **{f"parts {kind}": partial(m.decompose, kind=kind) for kind in ("top", "classwise")},
    "parts of two": lambda y, p, **o: m.decompose(y == 1, p[:, 1], **o),
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_a_weight_in_a_cluster_is_so_many_rows_of_it(name):
    data, of = draw(600, 3, t=2.0, noise=0.2, clusters=4), CLUSTERED[name]
    w = data.w.astype(int)
    found = of(data.y, data.p, clusters=data.cluster, sample_weight=w)
    rows = np.repeat(np.arange(600), w)
    repeated = of(data.y[rows], data.p[rows], clusters=data.cluster[rows])
    pd.testing.assert_frame_equal(found.to_frame(), repeated.to_frame(), rtol=5e-3)
    assert getattr(found, "n", w.sum()) == getattr(repeated, "n", w.sum())


def test_few_unequal_clusters_have_the_error_and_the_quantile_of_their_effective_number():
    x, case, w = np.random.default_rng(0).normal(size=20), np.repeat(np.arange(4), [10, 6, 3, 1]), 1.0 + np.arange(20)
    share = np.bincount(case, w) / w.sum()
    n, sums = 1 / (share @ share), np.bincount(case, w * (x - w @ x / w.sum())) / w.sum()
    spread = Spread.of(x, w, case)
    assert spread.n_cases == pytest.approx(n)
    assert spread.error == pytest.approx(math.sqrt(n / (n - 1) * sums @ sums))
    assert spread.quantile(0.9) == pytest.approx(stats.t.ppf(0.95, n - 1))


@pytest.mark.parametrize(("least", "has"), [
    (20, lambda n: m.evaluate(np.arange(400) < n, np.full(400, 0.1), ["nll"])["nll"].has_interval),  # errors
    (5, lambda n: m.evaluate(Y, P, ["gap"], clusters=np.arange(50) % n)["gap"].has_interval),
    (10, lambda n: m.evaluate(Y, P, ["gap"], clusters=np.arange(50) % n, by=np.arange(50) // 25).alike.p is not None),
])  # fmt: skip
def test_where_there_are_just_enough_for_an_interval(least, has):
    assert [has(n) for n in (least - 1, least, least + 1)] == [False, True, True]


@pytest.mark.parametrize("weighted", [False, True])
def test_bins_have_wilsons_interval_of_the_effective_number_of_cases(weighted):
    data = draw(300, 3, clusters=3)
    w, c, right = data.w if weighted else np.ones(300), data.p.max(axis=1), data.p.argmax(axis=1) == data.y
    for case, ids in ((np.arange(300), None), (data.cluster, data.cluster)):
        table = m.reliability(data.y, data.p, n_bins=4, sample_weight=w, clusters=ids, confidence_level=0.8)
        for b in np.flatnonzero(table.weight):
            rows = (c > table.edges[b]) & (c <= table.edges[b + 1])
            share = np.bincount(case[rows], w[rows])
            n = share.sum() ** 2 / (share @ share)
            expected = wilson(w[rows] @ right[rows] / w[rows].sum(), n, 0.8)
            assert (table.low[b], table.high[b]) == pytest.approx(expected)


@pytest.mark.parametrize("clustered", [False, True])
def test_a_part_is_what_its_rows_are_alone(clustered):
    data = draw(900, 3, clusters=3, groups=2)
    group, names = np.where(data.cluster % 3 == 0, "a", "b"), [*m.evaluate(data.y, data.p), "mmce", "referral_area"]
    logits = np.where(np.arange(900)[:, None] % 5, data.h, 40 * data.h)  # some confidences round to 1

    def found(rows, **options):
        ids = {"clusters": data.cluster[rows]} if clustered else {}
        given = {"sample_weight": 0.5 * data.w[rows], "input": "logits", **ids, **options}
        return m.evaluate(data.y[rows], logits[rows], names, **given)

    parts, level = found(slice(None), by=group).parts, 0.95**0.5
    for name in "ab":
        alone = found(group == name, confidence_level=level)
        assert parts[name].metrics == alone.metrics
        assert parts[name].n == alone.n == data.w[group == name].sum() / 2


def test_levels_and_seeds_have_an_effect_everywhere():
    data = draw(300, 2)
    for of, levels in ((m.evaluate, True), (m.reliability, True), (m.corp_reliability, True), (m.decompose, False)):
        for y, p in ((data.y, data.p), (data.y, data.p[:, 1])):
            base = of(y, p).to_frame()
            changes = [{"confidence_level": 0.5}] * levels + [{"seed": 1}] * (of is not m.reliability)
            assert not any(base.equals(of(y, p, **change).to_frame()) for change in changes)
            assert base.equals(of(y, p).to_frame())


def test_every_option_of_a_metric_has_an_effect():
    for of in (m.ece, m.mce, m.classwise_ece, m.reliability):
        norms = [{"norm": 64}] if of in (m.ece, m.classwise_ece) else []
        for change in ({"n_bins": 4}, {"strategy": "quantile"}, *norms):
            assert str(of(Y, P)) != str(of(Y, P, **change))
    assert m.ece(Y, P, norm=64) <= m.mce(Y, P)
    assert m.ece(Y, P, n_bins=100_000) >= m.ece(Y, P, n_bins=1)


def test_costs_of_nothing_equal_counts_and_effective_cases():
    assert m.expected_cost(Y, P, 0.0, cost_refer=0, cost_miss=0) == 0
    right = np.arange(400) % 4 > 0  # three of four in every case but the last, which has all
    right[-4:] = True
    case, p = np.arange(400) // 4, np.full(400, 0.9)
    found = m.evaluate(right, np.column_stack([1 - p, p]), "accuracy", clusters=case, confidence_level=0.6)["accuracy"]
    n = 4 * 100 * (stats.t.ppf(0.8, 399) / stats.t.ppf(0.8, 99)) ** 2  # at most four times the cases
    assert (found.low, found.high) == pytest.approx(wilson(right.mean(), n, 0.6), rel=1e-9)
    w = 1.0 + np.arange(300) % 7
    share = np.bincount(np.arange(300) // 3, w) / w.sum()
    off = np.stack([np.bincount(np.arange(300) // 3, w * c) for c in (LOSSES - w @ LOSSES / w.sum()).T]) / w.sum()
    effective = 1 / (share @ share)
    expected = off @ off.T * effective / (effective - 1)
    np.testing.assert_allclose(means_and_covariance(LOSSES, w, np.arange(300) // 3)[1], expected)


def test_entries_of_a_row_are_one_case():
    data = draw(300, 2)
    y, p = data.y, data.p[:, 1]
    one = m.evaluate(y, p, ["brier"])["brier"]
    three = m.evaluate(np.stack([y] * 3, axis=1), np.stack([p] * 3, axis=1), ["brier"], by="label")["brier"]
    assert (three.low, three.high) == pytest.approx((one.low, one.high), rel=1e-6)
