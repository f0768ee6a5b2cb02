import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from attemper.kernels import chebyshev
from attemper.kernels.channel import Channel
from attemper.kernels.group_biases import pool_biases
from attemper.kernels.group_scales import RANGE, SPREADS, _modes, pool, spread_prior
from attemper.kernels.joint import Rows

from oracles import softmax


def draw(scales, sizes, seed=0, k=4):
    """Log-probabilities and labels of groups, drawn at scales of their own."""
    rng = np.random.default_rng(seed)
    found = []
    for a, n in zip(scales, sizes):
        h = 2 * rng.normal(size=(n, k))
        y = (math.exp(a) * h + rng.gumbel(size=h.shape)).argmax(axis=1)
        found.append((h - np.log(np.exp(h).sum(axis=1, keepdims=True)), y))
    return found


def log_likelihood(a, group):
    """Log-likelihood of one group, sample by sample."""
    return sum(math.log(softmax(row, math.exp(-a))[y]) for row, y in zip(group[0].tolist(), group[1]))


def table_of(groups, n_nodes=64):
    return np.array([[log_likelihood(a, group) for group in groups] for a in chebyshev.nodes(n_nodes, RANGE)])


def integrated(groups, spreads, prior):
    """Posterior means and standard deviations of a by sums over a fine grid, for each s; and the posterior of s."""
    a = np.linspace(-3, 3, 1201)
    likelihoods = np.array([[log_likelihood(at, group) for at in a] for group in groups])
    likelihoods -= likelihoods.max(axis=1, keepdims=True)
    evidence, first, second = [], [], []
    for s in spreads:
        density = np.exp(-0.5 * (a / s) ** 2) / s / math.sqrt(2 * math.pi)
        joint = np.exp(likelihoods) * density * (a[1] - a[0])
        total = joint.sum(axis=1)
        evidence.append(np.log(total).sum())
        first.append((joint * a).sum(axis=1) / total)
        second.append((joint * a * a).sum(axis=1) / total)
    weights = np.exp(np.array(evidence) - max(evidence)) * prior
    weights /= weights.sum()
    mean = weights @ np.array(first)
    return mean, np.sqrt(weights @ np.array(second) - mean**2), weights


@pytest.mark.parametrize("sizes", [(5, 5), (4, 20, 60), (1, 1, 1, 1)])
def test_scales_are_those_of_sums_over_a_fine_grid(sizes):
    groups = draw(np.linspace(-0.4, 0.5, len(sizes)), sizes)
    spreads = SPREADS[(SPREADS > 0.03) & (SPREADS < 0.8)]  # which that grid resolves, and holds
    prior = spread_prior(spreads=spreads)
    found = pool(table_of(groups), spreads=spreads, prior=prior)
    mean, std, weights = integrated(groups, spreads, prior)
    np.testing.assert_allclose(found.weights, weights, atol=2e-4)
    np.testing.assert_allclose(found.mean, mean, atol=5e-4)
    np.testing.assert_allclose(found.std, std, atol=1e-3)


def test_modes_are_where_the_slope_is_zero():
    c = chebyshev.coefficients(table_of(draw([0.3, -0.6], [30, 80])))
    for s in (0.01, 0.2, 2.0):
        mode, width = (found[0] for found in _modes(c, RANGE, np.array([[s]])))

        def objective(a, s=s):
            return np.diag(chebyshev.evaluate(c, RANGE, a)) - 0.5 * (a / s) ** 2

        slope = (objective(mode + 1e-4) - objective(mode - 1e-4)) / 2e-4
        bend = (objective(mode + 1e-3) + objective(mode - 1e-3) - 2 * objective(mode)) / 1e-6
        np.testing.assert_allclose(slope, 0, atol=1e-3 / s)
        np.testing.assert_allclose(width**-2, -bend, rtol=1e-3)


def test_without_a_spread_all_are_common_and_with_a_wide_one_each_is_its_own():
    groups = draw([0.5, -0.5], [400, 400])
    table = table_of(groups)
    alike = pool(table, spreads=np.array([1e-4]), prior=np.ones(1))
    np.testing.assert_allclose(alike.mean, 0, atol=1e-5)
    np.testing.assert_allclose(alike.own_share, 0, atol=1e-4)
    apart = pool(table, spreads=np.array([100.0]), prior=np.ones(1))
    best = chebyshev.minima(chebyshev.coefficients(-table), RANGE).at
    np.testing.assert_allclose(apart.mean, best, atol=0.02)
    assert (apart.own_share > 0.99).all()


def test_groups_with_few_labels_are_near_the_common_map_and_large_ones_near_their_own():
    groups = draw([0.5, 0.5, -0.5, -0.5], [800, 6, 800, 6], seed=3)
    found = pool(table_of(groups))
    assert found.own_share[0] > 0.9 > 0.5 > found.own_share[1]
    assert found.mean[0] > 0.3
    assert abs(found.mean[1]) < abs(found.mean[0])
    assert (found.error < 1e-6).all()
    low, high = found.interval(0.95)
    assert low[0] < 0.5 < high[0]
    assert found.spread_interval(0.9)[0] < found.spread < found.spread_interval(0.9)[1]


def test_a_narrow_likelihood_is_no_problem():
    """As of millions of samples: narrower than any grid would be."""
    nodes = chebyshev.nodes(64, RANGE)
    table = np.stack([-0.5e7 * (nodes - 0.2) ** 2, -0.5e7 * (nodes + 0.1) ** 2], axis=1)
    found = pool(table)
    np.testing.assert_allclose(found.mean, [0.2, -0.1], atol=1e-5)
    np.testing.assert_allclose(found.std, 1e7**-0.5, rtol=0.01)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 100),
    order=st.permutations(range(3)),
    constants=st.lists(st.integers(-1000, 1000), min_size=3, max_size=3),
)
def test_order_and_constants_do_not_matter(seed, order, constants):
    rng = np.random.default_rng(seed)
    nodes = chebyshev.nodes(16, RANGE)[:, None]
    table = -rng.uniform(0.1, 50, size=3) * (nodes - rng.normal(size=3)) ** 2
    found, other = pool(table), pool(table[:, order] + np.array(constants))
    np.testing.assert_allclose(other.mean, found.mean[list(order)], atol=1e-5)
    np.testing.assert_allclose(other.weights, found.weights, atol=1e-5)
    assert ((found.own_share >= 0) & (found.own_share <= 1)).all()


def rows_of(groups):
    return [Rows(x - x.mean(axis=1, keepdims=True), y, np.ones(len(y)), None, None) for x, y in groups]


@pytest.mark.parametrize("channel", [Channel(), Channel(0.2)])
def test_biases_maximise_the_joint_posterior(channel):
    groups = draw([0.4, -0.3], [50, 20], k=3)
    s, sigma = 0.3, 0.5
    found = pool_biases(rows_of(groups), s, channel, sigmas=np.array([sigma]))

    def objective(theta, group):
        total = 0.5 * (theta[0] / s) ** 2 + 0.5 * np.sum(theta[1:] ** 2) / sigma**2
        for row, y in zip(*group):
            p = softmax((math.exp(theta[0]) * row + theta[1:]).tolist(), 1.0)
            total -= math.log((1 - channel.rate) * p[y] + channel.rate / len(p))
        return total

    for g, group in enumerate(groups):
        best = minimize(objective, np.zeros(4), args=(group,), tol=1e-10)
        np.testing.assert_allclose(found.scale[g], best.x[0], atol=0.02)
        np.testing.assert_allclose(found.bias[g], best.x[1:] - best.x[1:].mean(), atol=0.02)


def test_the_evidence_decides_about_biases():
    rng = np.random.default_rng(0)
    groups = draw([0.0] * 6, [300] * 6, seed=1)
    none = pool_biases(rows_of(groups), 0.1, Channel())
    assert none.sigma < 0.05
    assert np.abs(none.bias).max() < 0.1
    shifted = []
    for x, _ in groups:
        b = 0.8 * rng.normal(size=4)
        shifted.append((x, (x + b + rng.gumbel(size=x.shape)).argmax(axis=1)))
    found = pool_biases(rows_of(shifted), 0.1, Channel())
    assert 0.4 < found.sigma < 1.6
    assert np.abs(found.bias).max() > 0.5


def test_a_group_without_rows_gets_the_common_map():
    groups = [*draw([0.0, 0.0], [50, 50]), (np.zeros((0, 4)), np.zeros(0, dtype=int))]
    found = pool_biases(rows_of(groups), 0.1, Channel(), sigmas=np.array([0.5]))
    assert found.scale[2] == 0
    assert not found.bias[2].any()
