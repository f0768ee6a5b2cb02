import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper.kernels import chebyshev
from attemper.kernels.group_scales import RANGE, SPREADS, _modes, pool, spread_prior

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
