"""Fits on samples that come in clusters: intervals, weights, folds; the oracles are loops over clusters."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    CalibratedClassifier,
    InputError,
    Scores,
    StructuredScaling,
    TemperatureScaling,
)
from attemper.calibrators import METHODS
from attemper.calibrators.clustering import fit_effect, tempered
from attemper.calibrators.samples import Samples
from attemper.calibrators.structured import _folds
from attemper.kernels.clusters import cluster_sums, design_effect

K, T = 4, 1.6


def draw(n_clusters=60, size=6, seed=0, shared=0.8):
    rng = np.random.default_rng(seed)
    case = np.repeat(np.arange(n_clusters), size)
    h = 2 * (rng.normal(size=(n_clusters, K))[case] + 0.7 * rng.normal(size=(len(case), K)))
    together = (rng.random(n_clusters) < shared)[case]
    noise = np.where(together[:, None], rng.gumbel(size=(n_clusters, K))[case], rng.gumbel(size=h.shape))
    return h, (h / T + noise).argmax(axis=1), case


H, Y, CASE = draw()
NAMES = np.array([f"patient {c}" for c in CASE])
PLAIN = TemperatureScaling().fit(H, Y)


def test_the_interval_of_t_is_the_sandwich_by_cluster():
    found = TemperatureScaling().fit(H, Y, clusters=NAMES)
    assert found.temperature_ == PLAIN.temperature_
    beta = 1 / found.temperature_
    p = softmax(beta * H, axis=1)
    slopes, curvature = {}, 0.0
    for i in range(len(H)):
        mean = sum(p[i, k] * H[i, k] for k in range(K))
        slopes[CASE[i]] = slopes.get(CASE[i], 0.0) + mean - H[i, Y[i]]
        curvature += sum(p[i, k] * H[i, k] ** 2 for k in range(K)) - mean**2
    n = len(slopes)
    variance = n / (n - 1) * sum(s * s for s in slopes.values()) / curvature**2  # of β
    half = stats.t.ppf(0.975, n - 1) * np.sqrt(variance) / beta  # of log T
    low, high = found.temperature_interval_
    assert np.log(high / found.temperature_) == pytest.approx(half, rel=1e-3)
    assert np.log(found.temperature_ / low) == pytest.approx(half, rel=1e-3)
    assert "60 clusters" in found.fit_report_.message


@pytest.mark.parametrize(
    "make", [TemperatureScaling, AttendedTemperatureScaling, BayesianTemperatureScaling, StructuredScaling]
)
def test_correlated_clusters_widen_the_interval_and_order_does_not_matter(make):
    plain = make().fit(H, Y).temperature_interval_
    found = make().fit(H, Y, clusters=NAMES)
    widths = [np.log(high / low) for low, high in (plain, found.temperature_interval_)]
    assert widths[1] > 1.3 * widths[0]
    order = np.random.default_rng(3).permutation(len(Y))
    again = make().fit(H[order], Y[order], clusters=NAMES[order])
    np.testing.assert_allclose(again.temperature_interval_, found.temperature_interval_, rtol=1e-5)
    numbers = make().fit(H, Y, clusters=1000 - CASE)
    np.testing.assert_allclose(numbers.temperature_interval_, found.temperature_interval_, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("ensemble_ts",)])
def test_every_method_takes_clusters_and_scores_bring_them(name):
    cls = METHODS[name]
    one = cls().fit(H, Y, clusters=CASE)
    two = cls().fit(Scores.from_logits(H, Y, clusters=CASE))
    assert one.to_document() == two.to_document()
    with pytest.raises(InputError):
        cls().fit(Scores.from_logits(H, Y), clusters=CASE)
    with pytest.raises(InputError):
        cls().fit(H, Y, clusters=[1.0, 2.0, 3.0, float("nan"), *CASE[4:]])


@pytest.mark.parametrize("make", [BayesianTemperatureScaling, StructuredScaling])
def test_a_fit_counts_samples_by_the_design_effect(make):
    scores = Scores.from_logits(H, Y, clusters=CASE)
    biases = make is StructuredScaling
    _, effect = tempered(scores, biases=biases)
    assert effect > 1.5
    found = make().fit(scores)
    if not biases:  # folds of `structured` go by cluster
        weighted = make().fit(H, Y, np.full(len(Y), 1 / effect))
        assert found.map_ == weighted.map_
    assert f"1/{effect:.3g}" in found.fit_report_.message
    # Samples that are clusters of their own count fully, but for chance.
    assert fit_effect(scores, np.arange(len(Y)), biases=biases) == pytest.approx(1, abs=0.01)


def test_the_design_effect_slowly():
    rng = np.random.default_rng(5)
    values, case, w = rng.normal(size=(40, 3)), rng.integers(0, 9, 40), rng.integers(1, 4, 40).astype(float)
    case = np.unique(case, return_inverse=True)[1]
    mean = (w[:, None] * values).sum(axis=0) / w.sum()
    together = alone = 0.0
    for c in range(case.max() + 1):
        total = sum(w[i] * (values[i] - mean) for i in range(40) if case[i] == c)
        together += total @ total
        alone += sum(w[i] * (values[i] - mean) @ (values[i] - mean) for i in range(40) if case[i] == c)
    m, n = case.max() + 1, w.sum()
    expected = max(1.0, together * m / (m - 1) / (alone * n / (n - 1)))
    assert design_effect(values, case, w, repeats=True) == pytest.approx(expected)
    repeated = np.repeat(np.arange(40), w.astype(int))
    assert design_effect(values[repeated], case[repeated]) == pytest.approx(expected)
    assert design_effect(values, case, 7 * w) == pytest.approx(design_effect(values, case, w))
    np.testing.assert_allclose(cluster_sums(w, case), [w[case == c].sum() for c in range(m)])
    assert np.isnan(design_effect(np.ones(4), np.array([0, 0, 1, 1])))
    assert np.isnan(design_effect(values[:, 0], np.zeros(40, dtype=int)))


def test_folds_of_structured_keep_clusters_together():
    samples = Samples.of(Scores.from_logits(H, Y, clusters=CASE))
    folds = _folds(samples.x, samples.case)
    for c in np.unique(CASE):
        assert len(set(folds[c == CASE])) == 1
    assert len(set(folds)) == 5


@pytest.mark.parametrize("cv", [None, 3, GroupKFold(3)])
def test_the_wrapper_keeps_clusters_together(cv):
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append(X[:, -1])
            return super().fit(X, y, sample_weight)

    X = np.column_stack([H, CASE / 1e6])
    clf = CalibratedClassifier(Watched(), "ts", cv=cv).fit(X, Y, clusters=NAMES)
    for cases in seen[:-1]:
        _, count = np.unique(cases, return_counts=True)
        assert (count == 6).all()
    assert "clusters" in clf.calibrator_.fit_report_.message


@pytest.mark.parametrize("make", [TemperatureScaling, StructuredScaling])
def test_maps_of_groups_count_cases(make):
    h, y, _ = draw(n_clusters=400, size=1, seed=4)
    groups = np.arange(400) % 4
    h[groups == 0] *= 1.5
    copies = np.tile(np.arange(400), 6)  # which are of the case of their row
    one = make().fit(h, y, groups=groups)
    same = make().fit(h[copies], y[copies], groups=groups[copies], clusters=copies)
    apart = make().fit(h[copies], y[copies], groups=groups[copies])
    widths = [np.log(c.groups_.ratio_high / c.groups_.ratio_low) for c in (one, same, apart)]
    np.testing.assert_allclose(widths[1], widths[0], rtol=0.25)
    assert (widths[2] < 0.7 * widths[0]).all()
