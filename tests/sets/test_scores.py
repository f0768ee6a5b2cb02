"""The scores of classes and the thresholds, against loops over their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from attemper.decisions import prediction_sets
from attemper.decisions.sets import order_of, units_needed
from attemper.kernels.conformal import PENALTIES, best_penalty, one_per_cluster, order_for, score_classes

from data import cases, draw, softmax


def slow_score(score, row, k, share=0.0, penalty=0.0, k_reg=0):
    """The definition, class by class."""
    if score == "lac":
        return 1 - row[k]
    above = [p for p in row if p > row[k]]
    found = math.fsum(above) + share * row[k]
    return found + penalty * max(0, len(above) + 1 - k_reg) if score == "raps" else found


def slow_threshold(scores, coverage):
    """The smallest score that at least coverage · (n + 1) of the scores reach; infinite where none is."""
    n = len(scores)
    enough = [s for s in sorted(scores) if sum(t <= s for t in scores) >= coverage * (n + 1) - 1e-9]
    return enough[0] if enough else math.inf


@given(cases(), st.floats(0, 1), st.floats(0, 1), st.integers(0, 4))
def test_scores_are_those_of_the_definition(case, share, penalty, k_reg):
    p = softmax(case[0])
    for score in ("lac", "aps", "raps"):
        found = score_classes(score, p, np.full(len(p), share), penalty, k_reg)
        slow = [[slow_score(score, row, k, share, penalty, k_reg) for k in range(len(row))] for row in p.tolist()]
        np.testing.assert_allclose(found, slow, atol=1e-12)


@given(cases(max_rows=4), st.randoms(use_true_random=False))
def test_the_order_of_the_columns_does_not_matter_even_where_they_are_tied(case, random):
    p = softmax(np.round(case[0] / 4))  # many ties
    order = list(range(p.shape[1]))
    random.shuffle(order)
    for score in ("lac", "aps", "raps"):
        found = score_classes(score, p, 1.0, 0.1, 1)
        np.testing.assert_array_equal(
            score_classes(score, np.ascontiguousarray(p[:, order]), 1.0, 0.1, 1), found[:, order]
        )


@given(st.integers(1, 60), st.sampled_from([0.5, 0.7, 0.8, 0.9, 0.95, 0.99]), st.integers(0, 99))
def test_the_threshold_is_that_of_the_definition(n, coverage, seed):
    scores = np.round(np.random.default_rng(seed).random(n), 1 + seed % 3)
    k = order_of(n, coverage)
    assert (math.inf if k is None else np.sort(scores)[k - 1]) == slow_threshold(scores.tolist(), coverage)
    assert (n < units_needed(coverage)) == (k is None)


@given(st.integers(1, 300), st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from([0.1, 0.05, 0.001]))
def test_a_threshold_with_confidence_is_the_first_that_the_exact_law_allows(n, coverage, delta):
    allowed = [k for k in range(order_for(n, coverage), n + 1) if beta.cdf(coverage, k, n + 1 - k) <= delta]
    assert order_of(n, coverage, delta) == (allowed[0] if allowed else None)
    assert (n < units_needed(coverage, delta)) == (not allowed)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize(("n", "coverage"), [(9, 0.5), (10, 0.7), (20, 0.9), (20, 0.33)])
def test_each_of_n_plus_1_samples_left_out_in_turn_is_covered_as_often_as_proven(score, n, coverage):
    """Exchangeable samples: each is the new one equally often, so the coverage is exactly ⌈(n+1)(1−α)⌉/(n+1)."""
    h, y = draw(n + 1, 4, seed=n)
    p, options = softmax(h), {"penalty": 0.1, "k_reg": 1} if score == "raps" else {}
    covered = 0
    for i in range(n + 1):
        rest = np.arange(n + 1) != i
        policy = prediction_sets(p[rest], y[rest], coverage, score=score, allow_empty=True, **options)
        covered += int(policy.sets(p[[i]]).mask[0, y[i]])
    right = int((p.argmax(axis=1) == y).sum())  # whose APS scores are all 0, so that they are covered together
    assert covered == (order_for(n, coverage) if score == "lac" else max(order_for(n, coverage), right))


def test_with_ties_and_the_most_probable_class_it_is_covered_no_less():
    h, y = draw(21, 3, seed=1)
    p = np.round(softmax(h), 1)
    p[:, 0] += 1 - p.sum(axis=1)
    p = np.abs(p)
    p /= p.sum(axis=1, keepdims=True)
    rows = range(21)
    left_out = [prediction_sets(np.delete(p, i, 0), np.delete(y, i), 0.8).sets(p[[i]]).mask[0, y[i]] for i in rows]
    assert sum(left_out) >= order_for(20, 0.8)


def test_by_class_every_class_is_covered_as_often_as_proven():
    h, y = draw(90, 3, seed=3)
    p = softmax(h)
    for k in range(3):
        own = np.flatnonzero(y == k)
        n = len(own) - 1
        covered = 0
        for i in own:
            policy = prediction_sets(np.delete(p, i, 0), np.delete(y, i), 0.8, by="class", allow_empty=True)
            covered += int(policy.sets(p[[i]]).mask[0, k])
        assert covered == order_for(n, 0.8)


def uniform_scores(rng, n):
    """Two classes, label 0, whose LAC score is uniform: the coverage of a threshold is the threshold itself."""
    s = rng.random(n)
    return np.column_stack([1 - s, s]), np.zeros(n, dtype=int)


@pytest.mark.parametrize("n", [30, 100])
def test_the_coverage_given_the_samples_has_the_exact_law(n):
    rng = np.random.default_rng(n)
    policies = [prediction_sets(*uniform_scores(rng, n), 0.9) for _ in range(1000)]
    k = order_for(n, 0.9)
    thresholds = [policy.thresholds[0] for policy in policies]
    assert kstest(thresholds, beta(k, n + 1 - k).cdf).pvalue > 0.001
    (low, high) = policies[0].coverage_range[0]
    assert 0.85 < np.mean([low <= t <= high for t in thresholds]) < 0.95


def test_with_confidence_the_coverage_is_seldom_too_low():
    rng = np.random.default_rng(0)
    found = [prediction_sets(*uniform_scores(rng, 100), 0.9, confidence_level=0.95).thresholds[0] for _ in range(1000)]
    assert np.mean(np.array(found) < 0.9) < 0.05
    assert np.mean([prediction_sets(*uniform_scores(rng, 100), 0.9).thresholds[0] < 0.9 for _ in range(500)]) > 0.3


def test_one_row_of_each_cluster_is_drawn_as_often_as_it_occurred():
    rng = np.random.default_rng(0)
    cluster, counts = np.array([0, 0, 1, 2, 2, 2]), np.array([1.0, 3.0, 1.0, 1.0, 1.0, 0.0])
    drawn = np.array([one_per_cluster(cluster, counts, rng) for _ in range(4000)])
    assert (cluster[drawn] == [0, 1, 2]).all()
    assert np.bincount(drawn.ravel(), minlength=6) / 4000 == pytest.approx([0.25, 0.75, 1, 0.5, 0.5, 0], abs=0.03)


def test_the_penalty_is_the_best_of_the_grid():
    h, y = draw(80, 8, t=1.0, seed=5)
    p, ones = softmax(h), np.ones(80)
    penalty, k_reg = best_penalty(p, y, ones, 0.9)
    ranks = sorted(1 + sum(other > row[k] for other in row) for row, k in zip(p.tolist(), y))
    assert k_reg == ranks[math.ceil(0.9 * 81) - 1]
    sizes = {}
    for lam in PENALTIES:
        scores = [[slow_score("raps", row, k, 0.0, lam, k_reg) for k in range(8)] for row in p.tolist()]
        q = slow_threshold([scores[i][y[i]] for i in range(80)], 0.9)
        sizes[lam] = sum(s <= q + 1e-12 for own in scores for s in own)
    assert sizes[penalty] == min(sizes.values())
    twice = best_penalty(p[:40], y[:40], np.full(40, 2.0), 0.9)
    assert twice == best_penalty(*(np.repeat(a, 2, axis=0) for a in (p[:40], y[:40])), np.ones(80), 0.9)
