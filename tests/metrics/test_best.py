"""Comparisons with the best hold together, and agree with slow ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from attemper.metrics.best import compare_with_best, means_and_covariance

RNG = np.random.default_rng(0)
SHARED = RNG.exponential(size=(300, 1))
LOSSES = SHARED + RNG.normal(size=(300, 4)) * [0.1, 0.2, 0.3, 0.2] + [0.0, 0.01, 0.05, 0.3]
NAMES = ("a", "b", "c", "d")


def best(losses=LOSSES, **more):
    return compare_with_best(dict(zip(NAMES, losses.T)), **more)


def slow_set(losses, level, n_draws=4000, seed=1):
    """Draw samples with replacement, as the definition of a bootstrap has it."""
    n, m = losses.shape
    rng = np.random.default_rng(seed)
    means = losses.mean(axis=0)
    errors = np.array([losses[rng.integers(n, size=n)].mean(axis=0) for _ in range(n_draws)]) - means
    members = []
    for i in range(m):
        others = [j for j in range(m) if j != i]
        s = np.array([(losses[:, i] - losses[:, j]).std(ddof=1) / n**0.5 for j in others])
        d = np.quantile(((errors[:, [i]] - errors[:, others]) / s).max(axis=1), level)
        if all(means[i] - means[j] - d * s_j <= 0 for j, s_j in zip(others, s)):
            members.append(NAMES[i])
    return tuple(members)


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.1])
def test_the_set_is_that_of_a_bootstrap_that_draws(shift):
    losses = LOSSES + shift * np.arange(4)
    assert best(losses).members == slow_set(losses, 0.95)


def test_two_methods_are_a_paired_test():
    """With one other there is one quantile, that of the normal distribution."""
    for shift in (0.0, 0.02, 0.05):
        x, y = LOSSES[:, 0] + shift, LOSSES[:, 1]
        found = compare_with_best({"x": x, "y": y})
        difference, error = (x - y).mean(), (x - y).std(ddof=1) / 300**0.5
        assert found.above["x"].value == pytest.approx(difference)
        low, high = difference - norm.ppf(0.95) * error, difference + norm.ppf(0.95) * error
        assert found.above["x"].low == pytest.approx(min(0, low), abs=0.1 * error)
        assert found.above["x"].high == pytest.approx(max(0, high), abs=0.1 * error)
        assert ("x" in found.members) == (low <= 0)
        assert ("y" in found.members) == (high >= 0)


def test_many_methods_have_the_quantile_of_dunnett():
    """Independent losses of one variance: errors of differences are correlated by a half, as in Dunnett's test."""
    losses = np.random.default_rng(1).normal(size=(200_000, 5))
    found = compare_with_best({str(i): column for i, column in enumerate(losses.T)}, confidence_level=0.9)

    def held(d):
        return quad(lambda z: norm.pdf(z) * norm.cdf(z + 2**0.5 * d) ** 4, -8, 8)[0]

    d = brentq(lambda d: held(d) - 0.9, 1, 3)
    means = losses.mean(axis=0)
    error = (2 / 200_000) ** 0.5
    for i in range(5):
        others = np.delete(means, i)
        low = min(0.0, (means[i] - others - d * error).max())
        assert found.above[str(i)].low == pytest.approx(low, abs=0.05 * error)


def test_the_intervals_hold_together():
    """In 95 % of draws all of them contain the truth, and the set has the best one; and not in all."""
    truth = np.array([0.0, 0.02, 0.05, 0.2])
    above = np.array([t - np.delete(truth, i).min() for i, t in enumerate(truth)])
    rng, hold, has_best = np.random.default_rng(2), 0, 0
    for draw in range(300):
        losses = truth + rng.exponential(size=(200, 1)) + 0.3 * (rng.exponential(size=(200, 4)) - 1)
        found = best(losses, seed=draw)
        hold += all(e.low <= a <= e.high for e, a in zip(found.above.values(), above))
        has_best += "a" in found.members
    assert 0.92 <= hold / 300 <= 0.995
    assert has_best >= hold


def test_weights_are_repeats_of_a_share_and_clusters_are_sums():
    w = RNG.random(300)
    means, covariance = means_and_covariance(LOSSES, w)
    np.testing.assert_allclose(means, np.average(LOSSES, axis=0, weights=w))
    np.testing.assert_allclose(means_and_covariance(LOSSES, 7 * w)[1], covariance)
    even = means_and_covariance(LOSSES, np.ones(300))[1]
    np.testing.assert_allclose(even, np.cov(LOSSES.T) / 300)
    alone = means_and_covariance(LOSSES, np.ones(300), np.arange(300))[1]
    np.testing.assert_allclose(alone, even)
    copies = means_and_covariance(np.repeat(LOSSES, 3, axis=0), np.ones(900), np.repeat(np.arange(300), 3))[1]
    np.testing.assert_allclose(copies, even)


def test_the_order_and_unit_of_samples_change_nothing():
    order = np.random.default_rng(4).permutation(300)
    one, two = best(), best(LOSSES[order])
    assert one.members == two.members
    for name in NAMES:
        np.testing.assert_allclose(one.above[name], two.above[name], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(best(LOSSES * 1e-6).above[name], np.multiply(one.above[name], 1e-6), rtol=1e-6)


def test_a_margin_keeps_what_no_other_beats_by_more():
    losses = {"a": LOSSES[:, 0], "b": LOSSES[:, 0] + 0.01, "c": LOSSES[:, 0] + 0.03}
    for margin, members in ((0.0, "a"), (0.011, "ab"), (0.05, "abc")):
        assert compare_with_best(losses, margin=margin).members == tuple(members)


@pytest.mark.parametrize(
    "case",
    [
        {"losses": {"a": [0.1], "b": [0.3]}},
        {"losses": {"a": [0.1, 0.2, 0.1], "b": [0.3, 0.5, 0.1]}, "clusters": ["x", "x", "x"]},
        {"losses": {"a": [0.1, 0.2, 0.1], "b": [0.3, 0.5, 0.1]}, "sample_weight": [1, 0, 0]},
        {"losses": {"a": [0.1, 0.2], "b": [0.3, 0.5]}, "sample_weight": [1, 1000]},
    ],
)
def test_one_case_shows_no_winner(case):
    found = compare_with_best(**case)
    assert found.members == ("a", "b")
    for name, sign in (("a", -1), ("b", 1)):
        above = found.above[name]
        assert sign * above.value > 0
        assert not above.has_interval


def test_an_infinite_loss_leaves_the_others_as_they_are():
    columns = dict(zip(NAMES, LOSSES.T))
    e = np.where(np.arange(300) == 7, np.inf, LOSSES[:, 0] - 1)
    with_e, without = compare_with_best({"e": e, **columns}), compare_with_best(columns)
    assert with_e.members == without.members
    assert {name: with_e.above[name] for name in NAMES} == without.above
    assert with_e.above["e"] == (np.inf, 0, np.inf)
    # A sample of weight zero is not there.
    w = np.ones(300)
    w[7] = 0
    assert compare_with_best({"e": e, **columns}, w).members == ("e",)
