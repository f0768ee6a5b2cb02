"""Metrics of images: the values of N×K rows, and intervals that resample whole images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax

from attemper import InputError, metrics
from attemper.metrics import bootstrap
from attemper.metrics.bootstrap import LEAST_CLUSTERS

IGNORE = 255


def draw_images(n=60, k=4, size=8, seed=0):
    rng = np.random.default_rng(seed)
    h = 1.5 * rng.normal(size=(n, k, size, size)) + rng.normal(size=(n, k, 1, 1))
    shared = rng.random((n, 1, 1, 1)) < 0.5
    y = (h + np.where(shared, rng.gumbel(size=(n, k, 1, 1)), rng.gumbel(size=h.shape))).argmax(axis=1)
    y[:, 0] = IGNORE
    return softmax(h, axis=1), y


P, Y = draw_images()
KEEP = Y.ravel() != IGNORE
ROWS, LABELS = np.moveaxis(P, 1, -1).reshape(-1, 4)[KEEP], Y.ravel()[KEEP]
IMAGES = np.repeat(np.arange(60), 64)[KEEP]
NAMES = ("accuracy", "nll", "brier", "ece", "mmce", "smooth_ece", "classwise_ece", "mce", "referral_area")


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_rows_and_intervals_those_of_clusters(name):
    metric = getattr(metrics, name)
    assert metric(Y, P, axis=1, ignore_index=IGNORE) == metric(LABELS, ROWS)
    settings = {"confidence_level": 0.9, "n_resamples": 50}
    one = metric(Y, P, axis=1, ignore_index=IGNORE, **settings)
    two = metric(LABELS, ROWS, clusters=IMAGES, **settings)
    np.testing.assert_array_equal(one, two)
    assert one.chance is None  # labels of one image are not drawn independently
    plain = metric(LABELS, ROWS, **settings)
    if plain.has_interval and name in ("accuracy", "nll", "brier"):
        assert one.high - one.low > 1.5 * (plain.high - plain.low)


def test_an_interval_is_that_of_resampled_images_slowly():
    rng, values = np.random.default_rng(0), []
    wrong = ROWS.argmax(axis=1) != LABELS
    for _ in range(50):
        drawn = np.bincount(rng.integers(60, size=60), minlength=60)[IMAGES]
        values.append(1 - (drawn * wrong).sum() / drawn.sum())
    found = metrics.accuracy(LABELS, ROWS, clusters=IMAGES, confidence_level=0.9, n_resamples=50, seed=0)
    assert {round(found.low, 12), round(found.high, 12)} <= {round(v, 12) for v in values}
    assert found.low <= np.quantile(values, 0.06)
    assert found.high >= np.quantile(values, 0.94)


def test_clusters_may_be_of_pixels_of_images_or_names():
    settings = {"axis": 1, "ignore_index": IGNORE, "confidence_level": 0.9, "n_resamples": 20}
    patients = np.arange(60) // 2
    one = metrics.nll(Y, P, clusters=patients, **settings)
    two = metrics.nll(Y, P, clusters=np.broadcast_to(patients[:, None, None], Y.shape), **settings)
    three = metrics.nll(
        LABELS, ROWS, clusters=[f"{i:02d}" for i in patients[IMAGES]], confidence_level=0.9, n_resamples=20
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)
    with pytest.raises(InputError):
        metrics.nll(LABELS, ROWS, clusters=[1, 2])


def test_few_clusters_have_no_interval():
    few = IMAGES < LEAST_CLUSTERS - 1
    found = metrics.accuracy(LABELS[few], ROWS[few], clusters=IMAGES[few], confidence_level=0.9)
    assert not found.has_interval
    assert "clusters" in found.note


def test_reliability_counts_an_image_once_in_a_bin():
    one = metrics.reliability(Y, P, axis=1, ignore_index=IGNORE)
    two = metrics.reliability(LABELS, ROWS)
    np.testing.assert_array_equal(one.accuracy, two.accuracy)
    used = two.weight > 0
    assert (one.high[used] - one.low[used] >= two.high[used] - two.low[used]).all()
    cells = np.unique(np.stack([IMAGES, np.ceil(ROWS.max(axis=1) * 15).astype(int) - 1]), axis=1, return_counts=True)
    last = cells[1][cells[0][1] == 14]
    share, n = one.accuracy[14], last.sum() ** 2 / (last**2).sum()
    z = 1.959964
    low = (share + z * z / (2 * n) - z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    assert one.low[14] == pytest.approx(low, rel=1e-6)


def test_the_level_of_few_clusters_is_that_of_student():
    level = bootstrap.student_level(0.95, 6)
    assert stats.norm.ppf((1 + level) / 2) == pytest.approx(np.sqrt(6 / 5) * stats.t.ppf(0.975, 5))


def test_the_effective_sample_size_slowly():
    rng = np.random.default_rng(8)
    case, w = rng.integers(0, 30, 120), rng.uniform(0.5, 2, 120)
    v = (rng.random(30)[case] + rng.random(120) > 1).astype(float)
    names = [f"case {c}" for c in case]
    found = metrics.effective_sample_size(v, names, w)
    mean = sum(w * v) / sum(w)
    together = alone = pairs = products = 0.0
    for c in set(case):
        rows = [i for i in range(120) if case[i] == c]
        together += sum(w[i] * (v[i] - mean) for i in rows) ** 2
        alone += sum((w[i] * (v[i] - mean)) ** 2 for i in rows)
        pairs += sum(w[i] * w[j] for i in rows for j in rows if i != j)
        products += sum(w[i] * w[j] * (v[i] - mean) * (v[j] - mean) for i in rows for j in rows if i != j)
    m = len(set(case))
    effect = together * m / (m - 1) / (alone * 120 / 119)
    assert effect > 1
    assert (found.n_samples, found.n_clusters) == (120, m)
    assert found.design_effect == pytest.approx(effect)
    assert found.effective == pytest.approx(120 / effect)
    assert found.correlation == pytest.approx(products / pairs / (sum(w * (v - mean) ** 2) / sum(w)))
    order = rng.permutation(120)
    again = metrics.effective_sample_size(v[order], case[order], 5 * w[order])
    assert again.effective == pytest.approx(found.effective)


@given(st.integers(0, 10_000), st.integers(2, 12))
def test_copies_of_samples_in_their_cluster_add_nothing(seed, copies):
    rng = np.random.default_rng(seed)
    v, case = rng.random(20), rng.integers(0, 8, 20)
    one = metrics.effective_sample_size(v, case)
    more = metrics.effective_sample_size(np.tile(v, copies), np.tile(case, copies))
    if one.design_effect > 1:  # not cut at that of independent samples; then all but the correction n / (n − 1) agrees
        assert more.effective == pytest.approx(one.effective, rel=0.06)
