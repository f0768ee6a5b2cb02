"""The wager of the drift test, against loops and full enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attemper.kernels.drift import (
    Wager,
    advance,
    average_by_cluster,
    log_factors,
    log_prior,
    log_ratios,
    log_unspent,
)

from oracles import softmax


def naive(log_p, y, tolerance, log_prior_of):
    """Wealth after each sample: every factor and every beginning multiplied out."""
    factors = np.exp(log_factors(tolerance))
    wealth = []
    for n in range(1, len(y) + 1):
        total = 1 - sum(math.exp(log_prior_of(s)) for s in range(n))
        for factor in factors:
            edge = tolerance if factor > 1 else 1 / tolerance
            for s in range(n):
                ratio = 1.0
                for i in range(s, n):
                    ratio *= softmax(log_p[i], factor)[y[i]] / softmax(log_p[i], edge)[y[i]]
                total += math.exp(log_prior_of(s)) * ratio / len(factors)
        wealth.append(total)
    return np.array(wealth)


def prior(s):
    """Differences of 1 / (1 + log(1 + t/100))."""
    left = [1 / (1 + math.log(1 + t / 100)) for t in (s, s + 1)]
    return math.log(left[0] - left[1])


def log_probs(n, k, seed, scale=2.0):
    h = scale * np.random.default_rng(seed).normal(size=(n, k))
    return h - np.log(np.exp(h).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("tolerance", [1.0, 1.1, 2.0])
def test_wealth_is_the_loop(tolerance):
    log_p = log_probs(12, 3, 0)
    y = np.random.default_rng(1).integers(0, 3, 12)
    found = advance(Wager.new(), log_ratios(log_p, y, tolerance))[1]
    np.testing.assert_allclose(np.exp(found), naive(log_p, y, tolerance, prior), rtol=1e-10)


@pytest.mark.parametrize("k, n", [(2, 8), (3, 5), (4, 4)])
@pytest.mark.parametrize("tolerance, truth", [(1.0, 1.0), (1.25, 1.0), (1.25, 1.25), (1.25, 0.8), (1.25, 1.1)])
def test_the_wager_is_fair_to_every_map_in_the_band(k, n, tolerance, truth):
    """The mean over all sequences of labels, each with its probability: never above 1, and 1 where it should be."""
    log_p = log_probs(n, k, k)
    p = np.array([softmax(row, truth) for row in log_p])
    mean = np.zeros(n)
    for y in itertools.product(range(k), repeat=n):
        probability = math.prod(p[i, label] for i, label in enumerate(y))
        mean += probability * np.exp(advance(Wager.new(), log_ratios(log_p, np.array(y), tolerance))[1])
    if tolerance == truth == 1:
        np.testing.assert_allclose(mean, 1, rtol=0, atol=1e-12)  # a martingale
    else:
        assert (np.diff(mean, prepend=1.0) <= 1e-12).all()  # a supermartingale
        assert mean[-1] < 1


@pytest.mark.parametrize("truth", [1.25, 0.8])
def test_against_the_edge_itself_its_own_side_is_exactly_fair(truth):
    log_p = log_probs(1, 4, 7)
    p = np.array(softmax(log_p[0], truth))
    ratios = np.exp(log_ratios(np.repeat(log_p, 4, axis=0), np.arange(4), 1.25))
    half = slice(0, 8) if truth > 1 else slice(8, 16)
    np.testing.assert_allclose(p @ ratios[:, half], 1, rtol=1e-13)
    assert (p @ ratios <= 1 + 1e-13).all()


def test_a_temperature_that_wanders_within_the_band_is_no_drift():
    """The mean of each ratio, given anything before it, is at most 1 for every truth in the band and every row."""
    log_p = np.concatenate([log_probs(40, k, k, scale) for k in (3,) for scale in (0.1, 1.0, 8.0)])
    for truth in np.exp(np.linspace(-np.log(1.2), np.log(1.2), 9)):
        means = sum(
            np.array([softmax(row, truth)[c] for row in log_p])[:, None]
            * np.exp(log_ratios(log_p, np.full(len(log_p), c), 1.2))
            for c in range(3)
        )
        assert means.max() <= 1 + 1e-12


def test_prior_adds_up_to_one_with_what_is_unspent():
    for n in (1, 10, 100_000):
        assert np.exp(log_prior(0, n)).sum() + np.exp(log_unspent(n)) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(log_prior(5, 3), [prior(5), prior(6), prior(7)], rtol=1e-9)
    assert np.isfinite(log_prior(10**12, 2)).all()


@given(
    ratios=hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(16)), elements=st.floats(-30, 30)),
    cut=st.integers(0, 40),
)
def test_batches_make_no_difference(ratios, cut):
    whole, wealth = advance(Wager.new(), ratios)
    if not 0 < cut < len(ratios):
        return
    first, a = advance(Wager.new(), ratios[:cut])
    second, b = advance(first, ratios[cut:])
    np.testing.assert_allclose(np.concatenate([a, b]), wealth, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(second.log_stake, whole.log_stake, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(second.log_best, whole.log_best, rtol=1e-9, atol=1e-9)
    assert second.t == whole.t


def test_the_best_beginning_is_the_largest_term():
    log_p = log_probs(300, 3, 2)
    rng = np.random.default_rng(0)
    y = np.where(np.arange(300) < 200, (log_p + rng.gumbel(size=log_p.shape)).argmax(axis=1), rng.integers(0, 3, 300))
    ratios = log_ratios(log_p, y, 1.1)
    wager = advance(advance(Wager.new(), ratios[:130])[0], ratios[130:])[0]
    for j in (0, 4, 12):
        terms = [prior(s) + ratios[s:, j].sum() for s in range(300)]
        assert wager.start[j] == np.argmax(terms)
        assert wager.log_best[j] == pytest.approx(max(terms))
    assert 180 < wager.start[7] < 220  # labels that know nothing of the logits, from the 200th on


def test_the_average_of_a_cluster_is_that_of_its_rows_whatever_the_order_of_names():
    ratios = np.arange(12.0).reshape(6, 2)
    means, case = average_by_cluster(ratios, np.array(["b", "a", "b", "c", "b", "a"]))
    assert case.tolist() == [0, 1, 0, 2, 0, 1]
    for number, name in enumerate("bac"):
        np.testing.assert_array_equal(means[number], ratios[[n == name for n in "babcba"]].mean(axis=0))
