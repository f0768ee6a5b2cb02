"""Metrics by group: values of the rows of a group, intervals that hold together, the worst group, all alike or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax

from attemper import Scores, metrics
from attemper.metrics import by_group
from attemper.metrics.group_table import GROUP_METRICS

QUICK = {"n_resamples": 99}


def draw(sizes, temperatures=None, per_cluster=1, seed=0, k=4):
    """Draw labels from softmax(z / T) of each group; samples of a cluster share a part of z and, often, the noise."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    n = len(group)
    case = np.arange(n) // per_cluster
    common, own = rng.normal(size=(n, k))[case], rng.normal(size=(n, k))
    z = 2 * (common if per_cluster == 1 else np.sqrt(0.5) * (common + own))
    shared = (rng.random(n) < 0.5)[case] & (per_cluster > 1)
    noise = np.where(shared[:, None], rng.gumbel(size=(n, k))[case], rng.gumbel(size=(n, k)))
    t = np.ones(len(sizes)) if temperatures is None else np.asarray(temperatures)
    y = (z / t[group, None] + noise).argmax(axis=1)
    return y, softmax(z, axis=1), group, case


Y, P, G, C = draw([40, 300, 500], [1, 1, 2.5])
NAMES = np.array(["a", "b", "c"])[G]


def test_a_row_is_what_the_functions_return_for_the_rows_of_the_group():
    found = by_group(Y, P, groups=NAMES, simultaneous=False, confidence_level=0.9, **QUICK)
    assert [row.group for row in found.by_group] == ["a", "b", "c"]
    for row in (*found.by_group, found.all):
        rows = np.ones(len(Y), bool) if row.group == "all" else np.array([name == row.group for name in NAMES])
        y, p = Y[rows], P[rows]
        right, confidence = p.argmax(axis=1) == y, p.max(axis=1)
        assert row.n == rows.sum()
        assert row.confidence == pytest.approx(confidence.mean())
        assert row.gap.value == pytest.approx(confidence.mean() - right.mean())
        assert row.accuracy.value == pytest.approx(right.mean())
        exact = stats.binomtest(int(right.sum()), int(rows.sum())).proportion_ci(0.9)
        assert row.accuracy[1:] == pytest.approx((exact.low, exact.high))
        for name in ("nll", "brier"):
            alone = getattr(metrics, name)(y, p, confidence_level=0.9)
            assert row.metrics[name] == pytest.approx(alone, nan_ok=True)
            assert row.metrics[name].note == alone.note
        plain = metrics.ece(y, p, confidence_level=0.9, **QUICK)
        assert (row.ece.value, row.ece.chance, row.ece.p_value) == (plain.value, plain.chance, plain.p_value)
        debiased = metrics.ece(y, p, norm=2, debiased=True, confidence_level=0.9, **QUICK)
        assert row.ece_debiased == pytest.approx(debiased, nan_ok=True)


def test_simultaneous_intervals_have_the_level_of_sidak():
    together = by_group(Y, P, groups=G, confidence_level=0.9, **QUICK)
    each = by_group(Y, P, groups=G, confidence_level=0.9 ** (1 / 3), simultaneous=False, **QUICK)
    for one, two in zip(together.by_group, each.by_group):
        for name in GROUP_METRICS:
            np.testing.assert_array_equal(one.metrics[name], two.metrics[name])
    assert together.all.accuracy == by_group(Y, P, groups=G, confidence_level=0.9, simultaneous=False).all.accuracy


def test_the_interval_of_the_gap_slowly():
    found = by_group(Y, P, groups=G, simultaneous=False)[2].gap
    rows = G == 2
    right, confidence = (P.argmax(axis=1) == Y)[rows], P.max(axis=1)[rows]
    variance = np.var(confidence - right) / rows.sum()
    n = right.mean() * (1 - right.mean()) / variance
    k = right.mean() * n
    low, high = stats.beta.ppf(0.025, k, n - k + 1), stats.beta.ppf(0.975, k + 1, n - k)
    assert found[1:] == pytest.approx((confidence.mean() - high, confidence.mean() - low))
    assert n > rows.sum()  # confidence explains some of the errors


def test_the_worst_group_has_the_interval_of_the_largest_true_value():
    found = by_group(Y, P, groups=NAMES, **QUICK)
    worst = found.worst("gap")
    group, largest = worst
    assert group == "c"
    assert largest.value == found["c"].gap.value
    sizes = [(max(0, g.low, -g.high), max(abs(g.low), abs(g.high))) for g in (row.gap for row in found.by_group)]
    assert largest[1:] == (max(low for low, _ in sizes), max(high for _, high in sizes))
    _, accuracy = found.worst("accuracy")
    assert accuracy.low == min(row.accuracy.low for row in found.by_group)
    assert accuracy.high == min(row.accuracy.high for row in found.by_group)
    assert found.worst("nll")[0] == "c"
    assert found.worst("ece") is None  # plain ECE has no interval
    single = by_group(Y, P, groups=NAMES, simultaneous=False, **QUICK).worst("gap")
    assert single[0] == "c"
    assert not single[1].has_interval


def test_alike_where_groups_are_equally_overconfident_and_not_where_one_differs():
    y, p, g, _ = draw([300, 300, 300], [2, 2, 2], seed=3)
    same = by_group(y, p, groups=g)
    assert same.alike.p_value > 0.05
    assert same.beyond_chance() == ([0, 1, 2], [])
    other = by_group(Y, P, groups=NAMES)
    assert other.alike.p_value == 1 / 1001
    assert other.alike.statistic > 20
    assert other.beyond_chance()[0] == ["c"]


def test_the_statistic_of_the_test_slowly():
    y, p, g, _ = draw([60, 90, 30], seed=5)
    right, confidence = (p.argmax(axis=1) == y).astype(float), p.max(axis=1)
    n_bins = round(180 ** (1 / 3))
    order = np.argsort(confidence)
    stratum = np.empty(180, int)
    for place, row in enumerate(order):
        stratum[row] = int((place + 0.5) * n_bins / 180)
    left, chance = np.empty(180), np.empty(180)
    for b in range(n_bins):
        common = np.mean([right[i] - confidence[i] for i in range(180) if stratum[i] == b])
        for i in range(180):
            if stratum[i] == b:
                left[i] = right[i] - confidence[i] - common
                chance[i] = min(max(confidence[i] + common, 0), 1)
    total = 0.0
    for group in range(3):
        variance = 0.0
        for i in range(180):
            share = np.mean(g[stratum == stratum[i]] == group)
            variance += ((g[i] == group) - share) ** 2 * chance[i] * (1 - chance[i])
        total += left[g == group].sum() ** 2 / variance
    assert by_group(y, p, groups=g, **QUICK).alike.statistic == pytest.approx(total)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), weighted=st.booleans(), clustered=st.booleans())
def test_neither_the_order_of_rows_nor_the_names_of_groups_matter(seed, weighted, clustered):
    rng = np.random.default_rng(seed)
    y, p, g, case = draw([15, 40, 60], per_cluster=5, seed=seed)
    w = rng.integers(1, 4, len(y)).astype(float) if weighted else None
    cases = case if clustered else None
    one = by_group(y, p, groups=g, sample_weight=w, clusters=cases, **QUICK)
    order = rng.permutation(len(y))
    new = np.array(["z", "y", "x"])[g]
    two = by_group(
        *(y[order], p[order]),
        groups=new[order],
        sample_weight=None if w is None else w[order],
        clusters=None if cases is None else cases[order],
        **QUICK,
    )
    assert [row.group for row in two.by_group] == ["x", "y", "z"]
    for a, b in zip(one.by_group, reversed(two.by_group)):
        for name in ("accuracy", "gap", "nll", "brier", "ece_debiased"):
            np.testing.assert_allclose(a.metrics[name], b.metrics[name], rtol=1e-9, atol=1e-12)
    assert one.alike.statistic == pytest.approx(two.alike.statistic)
    assert abs(one.alike.p_value - two.alike.p_value) < 0.25


def test_weights_are_the_effective_number_of_samples():
    ones = by_group(Y, P, groups=G, **QUICK)
    twos = by_group(Y, P, groups=G, sample_weight=np.full(len(Y), 2.0), **QUICK)
    for a, b in zip(ones.by_group, twos.by_group):
        assert (b.n, b.effective) == (2 * a.n, pytest.approx(a.effective))
        np.testing.assert_allclose(a.gap, b.gap)
    zero = np.where(G == 0, 0.0, 1.0)
    assert [row.group for row in by_group(Y, P, groups=G, sample_weight=zero, **QUICK).by_group] == [1, 2]


def test_clusters_widen_and_each_row_its_own_cluster_hardly_does():
    y, p, g, case = draw([300, 400], per_cluster=10, seed=2)
    plain, wide = by_group(y, p, groups=g, **QUICK), by_group(y, p, groups=g, clusters=case, **QUICK)
    own = by_group(y, p, groups=g, clusters=np.arange(len(y)), **QUICK)
    for a, b, c in zip(plain.by_group, wide.by_group, own.by_group):
        for name in ("accuracy", "gap", "nll", "brier"):
            widths = [row.metrics[name].high - row.metrics[name].low for row in (a, b, c)]
            assert widths[1] > 1.3 * widths[0]
            assert widths[2] == pytest.approx(widths[0], rel=0.25)
        assert b.effective < 0.6 * b.n
        assert (b.n_clusters, a.n_clusters) == (b.n / 10, None)
        assert b.ece.chance is None  # labels of a cluster are not drawn independently
    assert own.alike.statistic == pytest.approx(plain.alike.statistic)


def test_tiny_groups_and_groups_without_errors_have_reasons_instead_of_numbers():
    p = np.tile([[0.9, 0.1]], (60, 1))
    groups = np.array(["one"] * 1 + ["three"] * 3 + ["none wrong"] * 56)
    found = by_group(np.zeros(60, int), p, groups=groups, **QUICK)
    for row in found.by_group:
        assert row.accuracy.high == 1.0
        assert row.gap.has_interval
        assert row.gap.low == pytest.approx(-0.1)
        assert not row.nll.has_interval
    assert math.isnan(found["one"].ece_debiased.value)
    assert found["none wrong"].gap.high < 0.1 < found["one"].gap.high
    assert found.alike.p_value is None
    assert found.worst("nll") is None
    few = by_group(Y, P, groups=G, clusters=np.where(G == 0, C % 3, C), **QUICK)
    assert not few[0].gap.has_interval
    assert by_group(Y, P, groups=np.zeros(len(Y), int), **QUICK).alike.p_value is None
    assert by_group(Y, P, groups=G, clusters=C % 8, **QUICK).alike.p_value is None


def test_a_result_is_a_table_and_a_dict():
    found = by_group(Y, P, groups=NAMES, **QUICK)
    frame = found.to_pandas()
    assert list(frame["group"]) == ["a", "b", "c", "all"]
    assert list(frame.columns[:8]) == [
        *("group", "n", "effective", "confidence", "accuracy", "accuracy_low", "accuracy_high", "gap"),
    ]
    assert frame["ece_chance"][0] == found["a"].ece.chance
    content = found.to_dict()
    assert content["groups"][2]["metrics"]["gap"]["low"] == found["c"].gap.low
    assert content["worst"]["gap"]["group"] == "c"
    assert content["worst"]["ece"] is None
    with pytest.raises(KeyError):
        found["d"]
    hostile = by_group(Y, P, groups=np.array(["<b>a</b>", "b", "c"])[G], **QUICK)
    assert "<b>a" not in hostile._repr_html_()


def test_groups_of_scores_of_images_and_of_soft_labels():
    scores = Scores.from_probs(P, Y, groups=NAMES)
    assert by_group(scores, **QUICK)["c"].gap == by_group(Y, P, groups=NAMES, **QUICK)["c"].gap
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(12, 3, 4, 4)), axis=1)
    y = rng.integers(0, 3, (12, 4, 4))
    found = by_group(y, p, groups=np.repeat(["x", "y"], 6), axis=1, **QUICK)
    assert [(row.n, row.n_clusters) for row in found.by_group] == [(96, 6), (96, 6)]
    soft = rng.dirichlet(np.ones(4), len(Y))
    found = by_group(soft, P, groups=NAMES, **QUICK)
    assert [row.n for row in found.by_group] == pytest.approx([40, 300, 500])


@pytest.mark.slow
@pytest.mark.parametrize("per_cluster", [1, 5])
def test_intervals_of_all_groups_hold_together_and_the_test_keeps_its_level(per_cluster):
    """Limits far from chance."""
    sizes, draws = [100, 200, 300, 400], 150
    held, alone, alarms, found_out = 0, 0, 0, 0
    for seed in range(draws):
        y, p, g, case = draw(sizes, per_cluster=per_cluster, seed=seed)
        cases = None if per_cluster == 1 else case
        options = {"groups": g, "clusters": cases, "metrics": ["gap"], "n_resamples": 99}
        together, single = (by_group(y, p, simultaneous=way, **options) for way in (True, False))
        held += all(row.gap.low <= 0 <= row.gap.high for row in together.by_group)
        alone += all(row.gap.low <= 0 <= row.gap.high for row in single.by_group)
        alarms += together.alike.p_value <= 0.05
        y, p, g, case = draw(sizes, [1, 1, 1, 2], per_cluster=per_cluster, seed=seed)
        found_out += by_group(y, p, **options).alike.p_value <= 0.05
    assert held / draws > 0.91
    assert alone < held
    assert alarms / draws < 0.12
    assert found_out / draws > 0.7
