"""Kernels: each against a naive loop, numerical derivatives, mpmath at extremes, or a general optimiser."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import betaln, digamma, gammaln, log_softmax
from scipy.stats import beta as beta_law

from attemper.data.scores import Scores
from attemper.kernels import annotators, attended, chebyshev, clusters, curves, groups, softmax, table, temperature
from attemper.kernels.chebyshev import Interval
from attemper.kernels.evidence import ScalePrior
from attemper.sketches import ODDS, Sketch
from conftest import draw

import oracles

HERE = Interval(-3.0, 2.0)


@st.composite
def cases(draw_from):
    n, k = draw_from(st.integers(1, 6)), draw_from(st.integers(2, 5))
    rng = np.random.default_rng(draw_from(st.integers(0, 1000)))
    h = draw_from(st.sampled_from([0.1, 1.0, 10.0])) * rng.normal(size=(n, k))
    return h, rng.integers(0, k, n)


# --- softmax ---------------------------------------------------------------------------------------------------------


@given(cases(), st.floats(0.05, 20))
def test_split_rows_give_softmax_back(case, beta):
    h, _ = case
    rows = softmax.split(h, masked=False)
    e, total = softmax.rest(rows, beta)
    e[np.arange(len(h)), rows.top] = 1.0
    expected = [oracles.softmax(row, 1 / beta) for row in h]
    np.testing.assert_allclose(e / (1 + total)[:, None], expected, rtol=1e-12, atol=1e-300)


def test_log_of_one_minus_the_largest_against_mpmath():
    # 1 − S is far below the spacing of numbers at 1, and at β = 20 and 100 below the smallest double.
    h = np.array([[0.0, -5.0, -7.0], [1e4, 0.0, -3.0], [50.0, -20.0, -900.0], [0.0, 0.0, -1.0]])
    rows = softmax.split(h, masked=False)
    for beta in (0.01, 1.0, 20.0, 100.0):
        _, total = softmax.rest(rows, beta)
        found = softmax.log_rest(rows, beta, total) - np.log1p(total)
        for i, row in enumerate(h):
            with mpmath.workdps(60):
                e = [mpmath.exp(beta * (mpmath.mpf(float(v)) - max(row))) for v in row]
                others = sum(v for k, v in enumerate(e) if k != rows.top[i])
                expected = mpmath.log(others / sum(e))
            np.testing.assert_allclose(found[i], float(expected), rtol=1e-13)


def test_exponents_never_make_denormals():
    d = -np.array([[0.0, 6.9, 7.3, 700.0, 1e6, 1e100]])
    e = softmax.powers(d, 100.0, -1e6)
    assert (e >= np.finfo(float).smallest_normal).all()
    np.testing.assert_allclose(e[0, :2], np.exp(100 * d[0, :2]))


def test_masked_classes_weigh_nothing():
    h = np.array([[1.0, -np.inf, 0.0], [-np.inf, 2.0, -np.inf]])
    rows = softmax.split(h, masked=True)
    assert rows.possible.tolist() == [2, 1]
    _, total = softmax.rest(rows, 2.0)
    np.testing.assert_allclose(total, [np.exp(-2.0), 0.0], atol=1e-300)
    assert softmax.log_rest(rows, 2.0, total)[1] == -np.inf
    assert rows.gap(np.array([2, 1])).tolist() == [-1.0, 0.0]


# --- one temperature -------------------------------------------------------------------------------------------------


@given(cases(), st.floats(0.1, 10))
def test_nll_is_the_loop_and_derivatives_are_numerical_ones(case, beta):
    h, y = case
    w = np.linspace(0.5, 2, len(y))
    found, step = temperature.sums(h, y, w, beta), 1e-4 * beta
    np.testing.assert_allclose(found[0], oracles.nll(h, y, 1 / beta, w), rtol=1e-10, atol=1e-12)
    for order in (1, 2):
        below, above = (temperature.sums(h, y, w, beta + s)[order - 1] for s in (-step, step))
        scale = 1 + np.abs(h).max() ** (order + 1) * len(y)
        np.testing.assert_allclose(found[order], (above - below) / (2 * step), rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masks_and_huge_logits_stay_finite(dtype):
    h = np.array([[1e4, -1e4, 0.0], [-np.inf, 3.0, 2.0], [5.0, -np.inf, 1.0]], dtype=dtype)
    found = temperature.sums(h, np.array([1, 1, 2]), None, 2.0, bound=1e4, masked=True)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], 4e4 + np.log1p(np.exp(-2.0)) + 8 + np.log1p(np.exp(-8.0)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("start", [1e-3, 1.0, 30.0])
def test_newton_arrives_from_any_start_on_any_scale(scale, start):
    data = draw(60, 4)
    found = temperature.minimise(lambda b: temperature.sums(scale * data.h, data.y, None, b) / 60, start)
    error = abs(math.log(1 / found.beta / float(oracles.exact_temperature(scale * data.h, data.y, 30))))
    assert found.converged
    assert error <= found.error < 1e-7


def test_error_of_newton_holds_where_the_nll_is_all_but_flat():
    tried = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        k = int(rng.choice([2, 5, 50]))
        h, y = rng.choice([0.3, 3.0]) * rng.normal(size=(50, k)), rng.integers(0, k, 50)
        if temperature.limits(h, y, None)[0] >= 0:
            continue
        tried += 1
        found = temperature.minimise(lambda b: temperature.sums(h, y, None, b) / 50)  # noqa: B023 (called at once)
        beta = found.beta
        for _ in range(4):
            _, slope, curvature = temperature.sums(h, y, None, beta)
            beta -= slope / curvature
        assert abs(math.log(beta / found.beta)) <= found.error
    assert tried > 100


def test_limits_of_the_slope():
    h, y = draw(50, 4)
    low, high = temperature.limits(h, y, None)
    np.testing.assert_allclose(temperature.sums(h, y, None, 1e-12)[1], low, rtol=1e-6)
    np.testing.assert_allclose(temperature.sums(h, y, None, 1e3)[1], high, rtol=1e-6)
    assert temperature.limits(h, h.argmax(axis=1), None)[1] == 0
    with_mask = np.column_stack([h, np.full(len(h), -np.inf)])
    np.testing.assert_allclose(temperature.limits(with_mask, y, None), (low, high), rtol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("masks", [0.0, 0.2])
def test_information_is_that_of_numerical_derivatives(noise, masks):
    def slow(row, t, e, d=1e-6):
        row = [v for v in row if np.isfinite(v)]

        def probs(u, rate):
            return np.array([(1 - rate) * s + rate / len(row) for s in oracles.softmax(row, math.exp(u))])

        u = math.log(t)
        by_u, by_e = (probs(u + d, e) - probs(u - d, e)) / (2 * d), (probs(u, e + d) - probs(u, e - d)) / (2 * d)
        return [(a * b / probs(u, e)).sum() for a, b in ((by_u, by_u), (by_u, by_e), (by_e, by_e))]

    h = draw(20, 4, masks=masks).h
    for row, found in zip(h, temperature.information(h, 1.7, noise)):
        expected = slow(row, 1.7, noise)
        assert found[: 3 if noise else 1] == pytest.approx(expected[: 3 if noise else 1], abs=1e-5)
    mean = temperature.information(h, 1.7, noise).mean(axis=0)
    assert 0 < temperature.information_of_t(mean) <= mean[0]


# --- the table of a sketch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reference", [False, True])
def test_theta_path_is_the_double_loop_of_eq_8(reference, weighted, masks):
    data = draw(40, 4, masks=masks)
    w = np.random.default_rng(1).uniform(0.5, 2, 40) if weighted else None
    thetas, part = np.array([0.0, 0.0008, 0.05, 0.3, 0.9]), "reference" if reference else "attended"
    scores = Scores.of(data.h, data.y, sample_weight=w)
    sketch = Sketch.of(scores, thetas=thetas, t_range=(0.3, 4), n_nodes=8, parts=(part,))
    losses = attended.theta_path(sketch.nll, sketch.tables[part])
    of = oracles.reference_loss if reference else oracles.attended_loss
    kept = [[v for v in row if np.isfinite(v)] for row in data.h]
    place = [int(np.isfinite(row[:label]).sum()) for row, label in zip(data.h, data.y)]
    for j, t in enumerate(np.exp(chebyshev.nodes(8, sketch.interval))):
        for b, theta in enumerate(thetas):
            rows = zip(kept, place, np.ones(40) if w is None else w)
            loop = sum(of([row], [label], t, theta, [weight]) for row, label, weight in rows if len(row) > 1)
            assert losses[j, b] == pytest.approx(loop, rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_of_noise_are_the_loop(weighted):
    data = draw(40, 4)
    w = np.random.default_rng(1).uniform(0.5, 2, 40) if weighted else None
    sketch = Sketch.of(Scores.of(data.h, data.y, sample_weight=w), t_range=(0.3, 4), n_nodes=8, parts=("uniform",))
    for j, t in enumerate(np.exp(chebyshev.nodes(8, sketch.interval))):
        for r, found in zip(ODDS[::13], sketch.tables["uniform"][j, ::13]):
            eps, total = r / (1 + r), 40 if w is None else w.sum()
            expected = oracles.noisy_log_likelihood(data.h, data.y, t, eps, w) - total * math.log(1 - eps)
            assert found == pytest.approx(expected, rel=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([1.0, 10.0, 1e3, 1e12]))
def test_sum_log_plus_is_the_sum(seed, n, largest):
    rng = np.random.default_rng(seed)
    q = np.minimum(largest * rng.random(n) ** rng.choice([1, 5, 100]), largest)
    q[rng.random(n) < 0.1] = 0.0
    for r, value in zip(ODDS, table.sum_log_plus(q, ODDS)):
        terms = [math.log(x + r) for x in q]
        assert value == pytest.approx(math.fsum(terms), abs=1e-13 * (1 + sum(map(abs, terms))))


# --- Chebyshev and Gauss ---------------------------------------------------------------------------------------------


def known_at_nodes(*functions, count=64):
    return chebyshev.coefficients(np.column_stack([f(chebyshev.nodes(count, HERE)) for f in functions]))


def test_polynomials_come_back_exactly():
    u = np.linspace(-3, 2, 50)
    c = known_at_nodes(lambda v: v**5 - 2 * v + 1, lambda v: np.ones_like(v), count=8)
    found = chebyshev.evaluate(c, HERE, u)
    np.testing.assert_allclose(found, np.column_stack([u**5 - 2 * u + 1, np.ones(50)]), atol=1e-11)


@given(st.floats(-2.9, 1.9), st.floats(0.3, 3))
def test_minimum_and_its_bound(centre, width):
    found = chebyshev.minima(known_at_nodes(lambda u: np.log(np.cosh((u - centre) / width))), HERE)
    assert found.edge[0] == 0
    assert abs(found.at[0] - centre) <= found.error[0] < 1e-3


def test_minimum_is_global_and_edges_are_reported():
    grid = np.linspace(-3, 2, 200001)
    found = chebyshev.minima(known_at_nodes(lambda u: np.cos(4 * u) - 0.3 * u, np.exp, lambda u: -np.exp(u)), HERE)
    assert abs(found.at[0] - grid[np.argmin(np.cos(4 * grid) - 0.3 * grid)]) < 1e-4
    assert found.edge.tolist() == [0, -1, 1]
    assert found.at[1:].tolist() == pytest.approx([-3, 2])


def test_too_few_nodes_make_a_large_bound():
    def spiky(u):
        return -1 / (1 + 40 * (u - 0.3) ** 2)

    rough, fine = (chebyshev.minima(known_at_nodes(spiky, count=n), HERE) for n in (16, 400))
    assert abs(rough.at[0] - 0.3) <= rough.error[0]
    assert abs(fine.at[0] - 0.3) <= fine.error[0] < 1e-6 < rough.error[0]


def test_few_nodes_stand_for_a_measure():
    x = np.linspace(-1, 3, 200)
    w = np.exp(-((x - 0.5) ** 2) * 3)
    at, weights = chebyshev.gauss(x, w, 6)
    for power in range(12):  # a Gauss rule of 6 nodes is exact to degree 11
        np.testing.assert_allclose(weights @ at**power, w @ x**power, rtol=1e-9)
    np.testing.assert_allclose(chebyshev.quantiles(np.array([0.0, 1.0]), np.ones(2), [0.25, 0.5, 0.75]), [0, 0.5, 1])


# --- clusters, groups ------------------------------------------------------------------------------------------------


def test_design_effect_of_copies_and_of_independent_rows():
    rng = np.random.default_rng(0)
    v = rng.normal(size=400)
    copies = clusters.design_effect(np.repeat(v, 3), np.repeat(np.arange(400), 3))
    assert copies == pytest.approx(3, rel=0.02)
    assert clusters.design_effect(v, rng.integers(0, 80, 400)) < 1.4
    assert math.isnan(clusters.design_effect(np.ones(4), np.array([0, 0, 1, 1])))


def test_group_scales_are_those_of_sums_over_a_fine_grid():
    a = np.linspace(-3, 3, 1201)
    found = [draw(n, 4, t=math.exp(-scale), seed=n) for scale, n in ((-0.4, 4), (0.1, 20), (0.5, 60))]

    def log_likelihoods(at):
        values = [[log_softmax(math.exp(v) * h, axis=1)[np.arange(len(y)), y].sum() for h, y in found] for v in at]
        return np.array(values)

    spreads = groups.SPREADS[(groups.SPREADS > 0.03) & (groups.SPREADS < 0.8)]  # which that grid resolves, and holds
    prior = groups.spread_prior(spreads)
    pooled = groups.pool(log_likelihoods(chebyshev.nodes(64, groups.RANGE)), spreads=spreads)
    likelihood = np.exp(log_likelihoods(a) - log_likelihoods(a).max(axis=0))
    joint = [likelihood * (np.exp(-0.5 * (a / s) ** 2) / s)[:, None] for s in spreads]
    weights = prior * np.array([j.sum(axis=0).prod() for j in joint])
    weights /= weights.sum()
    mean = weights @ [(j * a[:, None]).sum(axis=0) / j.sum(axis=0) for j in joint]
    np.testing.assert_allclose(pooled.weights, weights, atol=2e-4)
    np.testing.assert_allclose(pooled.mean, mean, atol=5e-4)
    second = weights @ [(j * a[:, None] ** 2).sum(axis=0) / j.sum(axis=0) for j in joint]
    np.testing.assert_allclose(pooled.std, np.sqrt(second - mean**2), atol=1e-3)


# --- curves of many labels -------------------------------------------------------------------------------------------

EXPECTED = curves.Expected(ScalePrior(0.15, 0.6, 4.0), ScalePrior(0.0, 1.0, 4.0), np.diag([0.01, 0.05]), 3.0)


def problems(seed=0, n_labels=4, n=300):
    found = [draw(n, 2, t=1.5 + 0.3 * k, bias=0.5 * k - 0.5, seed=10 * seed + k) for k in range(n_labels)]
    return curves.Problems(*(np.array(a, dtype=float) for a in zip(*((d.h @ [-1, 1], d.y, d.w > 0) for d in found))))


def minus_log_likelihood(theta, x, t, w):
    z = np.exp(theta[0]) * x + theta[1]
    return float(w @ (np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - t * z))


def test_pooled_likelihood_and_derivatives():
    data = problems()
    theta = np.random.default_rng(1).normal(size=(4, 2)) * 0.3
    point = curves.log_slopes(theta, data)
    for k in range(4):
        own = [a[k] for a in data]
        assert point.loss[k] == pytest.approx(minus_log_likelihood(theta[k], *own), rel=1e-12)
        for i in range(2):
            step = np.eye(2)[i] * 1e-6
            above, below = (minus_log_likelihood(theta[k] + s, *own) for s in (step, -step))
            assert point.gradient[k, i] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_pooled_modes_are_those_of_a_general_optimiser(seed):
    data = problems(seed)
    found = curves.fit_pooled(data, EXPECTED)
    inverse = np.linalg.inv(found.law.covariance)
    assert found.converged
    for k in range(4):

        def objective(theta, k=k):
            apart = theta - found.law.mean
            return minus_log_likelihood(theta, *(a[k] for a in data)) + 0.5 * apart @ inverse @ apart

        best = minimize(objective, found.law.mean, method="BFGS", options={"gtol": 1e-7})
        np.testing.assert_allclose(found.at[k], best.x, atol=2e-5)


# --- annotators ------------------------------------------------------------------------------------------------------


def naive_step(s, y, w, base, b, found):
    """One step of variational Bayes by loops; ``found[c][j]``: expected number of samples of class c with label j."""
    n, k = s.shape
    wrong = [sum(found[c][j] for j in range(k) if j != c) for c in range(k)]
    right = [found[c][c] for c in range(k)]
    rate = (sum(wrong) + 1) / (sum(w) + 5)
    r0, w0 = 10 * (1 - rate), 10 * rate
    log_right = [digamma(right[c] + r0) - digamma(right[c] + wrong[c] + 10) for c in range(k)]
    log_wrong = [digamma(wrong[c] + w0) - digamma(right[c] + wrong[c] + 10) for c in range(k)]
    evidence, log_c = 3 * math.log(1 - rate), np.zeros((k, k))
    for c in range(k):  # minus the Kullback–Leibler divergences of ε_c and of D_c from their priors
        evidence += betaln(wrong[c] + w0, right[c] + r0) - betaln(w0, r0)
        evidence -= wrong[c] * log_wrong[c] + right[c] * log_right[c]
        evidence += gammaln(b) - gammaln(b + wrong[c])
        log_c[c, c] = log_right[c]
        for j in set(range(k)) - {c}:
            where = digamma(b * base[c, j] + found[c][j]) - digamma(b + wrong[c])
            log_c[c, j] = log_wrong[c] + where
            evidence += gammaln(b * base[c, j] + found[c][j]) - gammaln(b * base[c, j]) - found[c][j] * where
    after = np.zeros((k, k))
    for i in range(n):
        joint = s[i] * np.exp(log_c[:, y[i]])
        evidence += w[i] * math.log(joint.sum())
        after[:, y[i]] += w[i] * joint / joint.sum()
    return after, evidence, rate


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_steps_and_their_evidence_are_those_of_plain_loops(steps):
    data, rng = draw(40, 3, t=1.0, noise=0.3), np.random.default_rng(5)
    w, base = rng.uniform(0.2, 3, 40), rng.dirichlet(np.ones(3), 3) * (1 - np.eye(3))
    base /= base.sum(axis=1, keepdims=True)
    log_s = log_softmax(data.h, axis=1)
    found = np.zeros((3, 3))
    for i, label in enumerate(data.y):
        found[:, label] += w[i] * np.exp(log_s[i])
    for _ in range(steps - 1):
        found, *_ = naive_step(np.exp(log_s), data.y, w, base, 2.0, found)
    _, evidence, rate = naive_step(np.exp(log_s), data.y, w, base, 2.0, found)
    pairs = annotators.candidates(data.h, data.y, w)
    none = np.full(40, -np.inf)
    of_pairs = base[pairs.true, pairs.label]
    (got,) = annotators.estimate(log_s, none, pairs, of_pairs, [2.0], steps=steps, tolerance=-np.inf)
    matrix = np.diag(got.right)
    matrix[pairs.true, pairs.label] += got.counts
    np.testing.assert_allclose(matrix, found, rtol=1e-9, atol=1e-12)
    assert got.evidence == pytest.approx(evidence, abs=1e-8)
    assert got.rate == pytest.approx(rate, rel=1e-12)


def test_rates_and_destinations_are_found():
    n, k, rng = 4000, 5, np.random.default_rng(1)
    h, y = draw(n, k, t=1.0)
    rates = np.array([0.0, 0.1, 0.2, 0.3, 0.5])
    observed = np.where(rng.random(n) < rates[y], (y + 1) % k, y)
    mean, _ = annotators.Annotators.fit(h, observed, np.ones(n)).moments()
    np.testing.assert_allclose(1 - np.diag(mean), rates, atol=0.05)
    np.testing.assert_allclose(mean[np.arange(k), (np.arange(k) + 1) % k], rates, atol=0.06)


def test_design_effect_of_weights_is_that_of_repeated_rows():
    rng = np.random.default_rng(0)
    w, case = rng.integers(1, 4, 300), np.arange(300) // 3
    v = rng.normal(size=100)[case] + rng.normal(size=300)
    expected = clusters.design_effect(np.repeat(v, w), np.repeat(case, w), repeats=True)
    assert clusters.design_effect(v, case, w.astype(float), repeats=True) == pytest.approx(expected, rel=1e-9)
    assert expected > 2


def test_of_two_classes_what_is_not_right_is_the_other_label():
    data = draw(400, 2, noise=0.2)
    mean, square = annotators.Annotators.fit(np.log(data.p), data.y, np.ones(400)).moments()
    wrong, of_wrong = mean[[0, 1], [1, 0]], square[[0, 1], [1, 0]]
    np.testing.assert_allclose(np.diag(mean), 1 - wrong, rtol=1e-9)
    np.testing.assert_allclose(np.diag(square), 1 - 2 * wrong + of_wrong, rtol=1e-9)


def test_moments_of_confusions_are_those_of_their_laws():
    data, a, off = draw(300, 4, noise=0.3), annotators.POOLING, ~np.eye(4, dtype=bool)
    found = annotators.Annotators.fit(np.log(data.p), data.y, np.ones(300))
    expected = np.zeros((2, off.sum()))
    for share, b, errors in zip(found.weights, annotators.SPREADS, found.found):
        d = b * found.base
        np.add.at(d, (found.data.true, found.data.label), errors.counts)
        rate = beta_law(errors.wrong + a * errors.rate, errors.right + a * (1 - errors.rate))
        there = beta_law(d[off], (d.sum(axis=1, keepdims=True) - d)[off])
        first, second = (np.repeat(v, 3) for v in (rate.mean(), rate.var() + rate.mean() ** 2))
        expected += share * np.stack([first * there.mean(), second * (there.var() + there.mean() ** 2)])
    np.testing.assert_allclose([v[off] for v in found.moments()], expected, rtol=1e-4)


def test_the_spread_of_labels_that_are_known_exactly():
    """Their scatter and the expected covariance, which counts as so many labels more; one is lost to the mean."""
    theta, flat = np.random.default_rng(0).normal(size=(9, 2)), ScalePrior(0.0, 1e6, 4.0)
    expected = curves.Expected(flat, flat, np.diag([0.4, 0.9]), 3.0)
    at = curves.Point(theta, np.zeros(9), np.zeros((9, 2)), np.tile(1e9 * np.eye(2), (9, 1, 1)))
    law = curves.common_law(at, expected, curves.CommonLaw(np.zeros(2), np.eye(2)))
    apart = theta - theta.mean(axis=0)
    np.testing.assert_allclose(law.mean, theta.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(law.covariance, (apart.T @ apart + 3 * expected.covariance) / (9 + 3 - 1), atol=1e-5)


def test_the_interval_of_the_spread_of_groups_lies_around_its_middle():
    spreads, weights = np.exp(np.arange(-2.0, 3.0)), np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    scales = groups.PooledScales(np.zeros(1), np.ones(1), np.ones(1), spreads, weights, np.zeros(1))
    low, high = np.log(scales.spread_interval)
    assert low == pytest.approx(-high)
    assert high == pytest.approx(2)  # half of the last weight, 5 %, is above
