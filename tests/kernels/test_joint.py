"""The joint fit against loops over samples and classes, numerical derivatives and numerical integrals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from attemper.kernels import joint, shrinkage
from attemper.kernels.channel import Channel
from attemper.kernels.joint import Fit, Rows, maximise_evidence, polish
from attemper.kernels.shrinkage import Expected, Group, Precisions, ScalePrior
from attemper.maps.affine import bend

from oracles import softmax

LAYOUTS = ["diagonal", "matrix", "curve"]
MASKED = [("diagonal", True), ("matrix", True)]  # of two classes, one of them masked, nothing is to be learned
LOG_T = 0.3
PRIOR = ScalePrior(0.2, 0.5, 4.0)
CLEAN = Channel()
FREE, FIRM = 1e-2, 1e12  # worth of a prior that hardly counts, and of one that nothing changes
ALL = {"diagonal": {"biases", "scales"}, "matrix": {"biases", "scales", "matrix"}, "curve": {"biases", "curve"}}


def make_rows(layout="diagonal", n=40, k=3, masked=False, seed=0, theta=None):
    """Rows of one layout; labels of softmax(x + Θ[φ, 1])."""
    rng = np.random.default_rng(seed)
    k = 2 if layout == "curve" else k
    x = 2 * rng.normal(size=(n, k))
    mask = None
    if masked:
        mask = np.zeros((n, k), dtype=bool)
        mask[::3, 0] = True
        x[mask] = 0.0
    x -= x.mean(axis=1, keepdims=True)
    features = {
        "diagonal": None,
        "matrix": x,
        "curve": np.concatenate([x, bend(x[:, 1:] - x[:, :1], np)], axis=1) if k == 2 else None,
    }[layout]
    rows = Rows(x, np.zeros(n, dtype=np.int64), rng.uniform(0.5, 2, n), mask, features)
    z = rows.logits(np.zeros(shape_of(rows)) if theta is None else theta)
    return replace(rows, y=(z + rng.gumbel(size=z.shape)).argmax(axis=1))


def shape_of(rows):
    k = rows.x.shape[1]
    return (k, 2 if rows.features is None else rows.features.shape[1] + 1)


def make_theta(rows, seed=1, size=0.2):
    return size * np.random.default_rng(seed).normal(size=shape_of(rows))


def make_channel(kind, k):
    if kind == "matrix":
        return Channel(0.0, 0.8 * np.eye(k) + 0.2 * np.random.default_rng(2).dirichlet(np.ones(k), k))
    return Channel({"clean": 0.0, "uniform": 0.2}[kind])


def make_precisions(k):
    return Precisions(3.0, 20.0, 50.0, 7.0, np.linspace(0.5, 1.5, k))


def fixed(variances=(1 / 3, 1 / 20, 1 / 50, 1 / 7)):
    """Priors that data do not change."""
    return Expected(*(Group(v, FIRM) for v in variances), tail=FIRM)


def flexible(variances=(1.0, 0.1, 0.1, 0.1), tail=FIRM):
    """Priors that follow the data."""
    return Expected(*(Group(v, FREE) for v in variances), tail=tail)


def start_at(rows, expected, channel=CLEAN):
    return Fit.start(rows.x.shape[1], LOG_T, expected)._replace(theta=np.zeros(shape_of(rows)), channel=channel)


def naive_logits(rows, theta, i):
    k = rows.x.shape[1]
    z = []
    for c in range(k):
        if rows.features is None:
            v = rows.x[i, c] * (1 + theta[c, 0]) + theta[c, 1]
        else:
            v = rows.x[i, c] + sum(a * f for a, f in zip(theta[c], [*rows.features[i], 1.0]))
        z.append(-math.inf if rows.masked is not None and rows.masked[i, c] else v)
    return z


def naive_label(channel, z, y):
    """P(label) given the true logits."""
    s = softmax(z)
    if channel.matrix is not None:
        return sum(p * channel.matrix[c, y] for c, p in enumerate(s))
    return (1 - channel.rate) * s[y] + channel.rate / len(z)


def naive_objective(rows, theta, channel, precisions, log_t=LOG_T, prior=PRIOR):
    """Log-likelihood plus log-prior, the latter up to a constant."""
    k, size = theta.shape
    value = sum(
        w * math.log(naive_label(channel, naive_logits(rows, theta, i), y))
        for i, (y, w) in enumerate(zip(rows.y, rows.w))
    )
    s = [theta[c, 0 if size == 2 else c] for c in range(k)]
    mean = sum(s) / k
    value += stats.t.logpdf(log_t - math.log(1 + mean), prior.df, prior.centre, prior.scale)
    for c in range(k):
        value -= 0.5 * precisions.scales * (s[c] - mean) ** 2
        value -= 0.5 * precisions.biases * precisions.local[c] * theta[c, -1] ** 2
        for j in range(size - 1 if size > 2 else 0):
            if j != c:
                value -= 0.5 * (precisions.matrix if j < k else precisions.curve) * theta[c, j] ** 2
    return value


def differences(function, at, step=1e-5):
    """Derivatives of a function with respect to every element, by central differences."""
    slopes = []
    for index in np.ndindex(at.shape):
        move = np.zeros_like(at)
        move[index] = step
        slopes.append((np.asarray(function(at + move)) - np.asarray(function(at - move))) / (2 * step))
    return np.reshape(slopes, (*at.shape, *np.shape(slopes[0])))


def objective_gradient(rows, theta, channel, penalty):
    d = channel.apply(rows.logits(theta), rows.y)[2]
    return rows.adjoint(d * rows.w[:, None]) - penalty.gradient(theta)


def dense(product, shape):
    """Matrix of a linear map of arrays of this shape."""
    size = math.prod(shape)
    return np.array([product(unit.reshape(shape)).ravel() for unit in np.eye(size)])


# How labels come about


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
def test_channels_are_their_formulas(kind, masked):
    rows = make_rows(masked=masked)
    z, channel = rows.logits(make_theta(rows)), make_channel(kind, 3)
    value, p, d, info = channel.apply(z, rows.y)
    np.testing.assert_allclose(channel.log_likelihood(z, rows.y), value, rtol=1e-12)
    for i, y in enumerate(rows.y):
        plain = [-math.inf if v < -1e99 else v for v in z[i]]
        s, label = softmax(plain), naive_label(channel, plain, y)
        assert value[i] == pytest.approx(math.log(label), rel=1e-12)
        np.testing.assert_allclose(p[i], s, rtol=1e-12)
        how = np.eye(3) * (1 - channel.rate) + channel.rate / 3 if channel.matrix is None else channel.matrix
        if channel.matrix is None:  # a label drawn at random says nothing of z
            right = (1 - channel.rate) * s[y] / label
            expected = right * (np.eye(3)[y] - s)
            assert info[i] == pytest.approx(right, rel=1e-12)
        else:
            true = np.array([s[c] * how[c, y] / label for c in range(3)])
            expected = true - s
            left = 1 - sum(q * (1 - q) for q in true) / sum(q * (1 - q) for q in s)
            assert info[i] == pytest.approx(min(max(left, 0.05), 1), rel=1e-9)
        np.testing.assert_allclose(d[i], expected, atol=1e-14)


@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
def test_slopes_of_channels_are_those_of_differences(kind):
    rng = np.random.default_rng(3)
    z, y, channel = rng.normal(size=(6, 3)), rng.integers(0, 3, 6), make_channel(kind, 3)
    slopes = differences(lambda v: channel.log_likelihood(v, y).sum(), z)
    np.testing.assert_allclose(channel.apply(z, y)[2], slopes, atol=1e-9)


# Objective, gradient and curvature


each_layout_and_mask = pytest.mark.parametrize("layout, masked", [(name, False) for name in LAYOUTS] + MASKED)


@each_layout_and_mask
@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
def test_objective_and_gradient_are_those_of_loops(layout, kind, masked):
    rows = make_rows(layout, n=25, masked=masked)
    k, theta = rows.x.shape[1], make_theta(rows)
    channel, precisions = make_channel(kind, k), make_precisions(k)
    penalty = shrinkage.Penalty.of(theta.shape, precisions, LOG_T, PRIOR)

    def value(at):
        return rows.w @ channel.log_likelihood(rows.logits(at), rows.y) - penalty(at)

    zero = np.zeros_like(theta)
    naive = [naive_objective(rows, at, channel, precisions) for at in (theta, zero)]
    assert value(theta) - value(zero) == pytest.approx(naive[0] - naive[1], rel=1e-10)
    slopes = differences(lambda at: naive_objective(rows, at, channel, precisions), theta)
    np.testing.assert_allclose(objective_gradient(rows, theta, channel, penalty), slopes, rtol=1e-6, atol=1e-6)


def test_the_prior_of_the_scale_is_students():
    for log_t in (-3.0, 0.0, 0.2, 5.0):
        exact = stats.t.logpdf([log_t, PRIOR.centre], PRIOR.df, PRIOR.centre, PRIOR.scale)
        assert PRIOR.log_density(log_t) == pytest.approx(exact[0] - exact[1], rel=1e-12)
        slope = differences(lambda v: -PRIOR.log_density(float(v[0])), np.array([log_t]))
        assert PRIOR.slope(log_t)[0] == pytest.approx(slope[0], abs=1e-8)
        assert PRIOR.slope(log_t)[1] > 0


@each_layout_and_mask
def test_the_curvature_of_clean_labels_is_exact(layout, masked):
    rows = make_rows(layout, masked=masked)
    theta = make_theta(rows)
    p = Channel().apply(rows.logits(theta), rows.y)[1]
    found = dense(lambda v: rows.curvature(p, rows.w)(v), theta.shape)

    def gradient(at):
        return rows.adjoint(Channel().apply(rows.logits(at), rows.y)[2] * rows.w[:, None])

    expected = -differences(gradient, theta).reshape(theta.size, theta.size)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_curvature_of_the_prior_is_exact_at_its_centre(layout):
    rows = make_rows(layout)
    theta = make_theta(rows)
    diagonal = shrinkage.diagonal(theta.shape)
    log_t = PRIOR.centre + math.log1p(theta[diagonal].mean())  # so that the Student law has no slope there
    penalty = shrinkage.Penalty.of(theta.shape, make_precisions(len(theta)), log_t, PRIOR)
    expected = differences(penalty.gradient, theta).reshape(theta.size, theta.size)
    np.testing.assert_allclose(dense(lambda v: penalty.product(theta, v), theta.shape), expected, atol=1e-7)


@each_layout_and_mask
def test_the_whole_hessian_is_that_of_products(layout, masked):
    rows = make_rows(layout, masked=masked)
    theta = make_theta(rows)
    _, p, _, info = Channel(0.2).apply(rows.logits(theta), rows.y)
    r = rows.w * info
    expected = dense(lambda v: rows.curvature(p, r)(v), theta.shape)
    np.testing.assert_allclose(rows.hessian(p, r), expected, rtol=1e-10, atol=1e-12)


def naive_blocks(rows, p, r):
    """Curvature of each class alone; the classes share one degree of freedom."""
    k, size = shape_of(rows)
    blocks = np.zeros((k, size, size))
    for i in range(len(p)):
        for c in range(k):
            f = [rows.x[i, c], 1.0] if rows.features is None else [*rows.features[i], 1.0]
            blocks[c] += r[i] * p[i, c] * (1 - p[i, c]) * k / (k - 1) * np.outer(f, f)
    return blocks


# Fits


def check_stationary(rows, fit, groups, prior=PRIOR, tolerance=1e-4):
    """All derivatives of the naive objective vanish, but those of groups that are held fast."""
    slopes = differences(lambda at: naive_objective(rows, at, fit.channel, fit.precisions, prior=prior), fit.theta)
    held = fit.precisions.array(fit.theta.shape) > 1e8
    diagonal = shrinkage.diagonal(fit.theta.shape)
    if "scales" not in groups:  # their mean is free
        assert slopes[diagonal].mean() == pytest.approx(0, abs=tolerance)
        assert np.ptp(fit.theta[diagonal]) < 1e-6
    np.testing.assert_allclose(slopes[~held], 0, atol=tolerance)
    held[diagonal] = False
    np.testing.assert_allclose(fit.theta[held], 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fits_are_stationary_where_precisions_are_given(layout, kind):
    rows = make_rows(layout, n=60)
    k = rows.x.shape[1]
    expected = fixed()
    start = start_at(rows, expected, make_channel(kind, k))
    fit = maximise_evidence(
        rows, expected, PRIOR, groups=frozenset(ALL[layout]), start=start, rounds=100, tolerance=1e-12
    )
    opened = [g for g in shrinkage.GROUPS if g in ALL[layout]]
    np.testing.assert_allclose(
        [getattr(fit.precisions, g) for g in opened], [1 / getattr(expected, g).variance for g in opened], rtol=1e-6
    )
    np.testing.assert_allclose(fit.precisions.local, 1, rtol=1e-6)
    check_stationary(rows, fit, ALL[layout])
    value = naive_objective(rows, fit.theta, fit.channel, fit.precisions)
    constant = stats.t.logpdf(PRIOR.centre, PRIOR.df, PRIOR.centre, PRIOR.scale)
    assert fit.value == pytest.approx(value - constant, abs=1e-3)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_polishing_ends_at_the_maximum_whatever_the_sample(layout, kind, whole, monkeypatch):
    monkeypatch.setattr(joint, "DENSE", 1000 if whole else 0)  # the whole Hessian, or conjugate gradients
    rows = make_rows(layout, n=90)
    k = rows.x.shape[1]
    groups, expected = frozenset(ALL[layout]), flexible()
    start = start_at(rows, expected, make_channel(kind, k))
    rough = maximise_evidence(rows.only(slice(None, None, 2)), expected, PRIOR, groups=groups, start=start, rounds=4)
    fit = polish(rows, rough, PRIOR)
    least = 1e-8 if kind == "clean" else 1e-6  # with noise the curvature is approximate, and steps are many
    assert fit.gradient_norm < least
    assert fit.rounds > rough.rounds
    penalty = shrinkage.Penalty.of(fit.theta.shape, fit.precisions, LOG_T, PRIOR)
    g = objective_gradient(rows, fit.theta, fit.channel, penalty)
    assert np.linalg.norm(g) / rows.w.sum() == pytest.approx(fit.gradient_norm, rel=1e-3, abs=1e-12)
    check_stationary(rows, fit, groups)
    assert fit.value == pytest.approx(
        rows.w @ fit.channel.log_likelihood(rows.logits(fit.theta), rows.y) - penalty(fit.theta)
    )
    other = polish(rows, rough, PRIOR, sample=rows.only(slice(None, None, 3)))
    assert other.gradient_norm < least
    np.testing.assert_allclose(other.theta, fit.theta, atol=1e-5)
    assert fit.precisions is rough.precisions


def marginal_likelihood(rows, channel, precision):
    """Log of the integral over biases, by a grid of all but the mean of them, which the softmax does not see."""
    k = rows.x.shape[1]
    basis = np.linalg.svd(np.eye(k) - 1 / k)[0][:, : k - 1]
    axis = np.linspace(-6, 6, 49) / math.sqrt(precision)
    grid = np.stack(np.meshgrid(*[axis] * (k - 1), indexing="ij"), axis=-1).reshape(-1, 1, k - 1)
    z = rows.x + grid @ basis.T
    value = channel.log_likelihood(z.reshape(-1, k), np.tile(rows.y, len(grid))).reshape(len(grid), -1) @ rows.w
    prior = stats.norm.logpdf(grid, 0, 1 / math.sqrt(precision)).sum(axis=(1, 2))
    return logsumexp(value + prior) + (k - 1) * math.log(axis[1] - axis[0])


@pytest.mark.parametrize("kind", ["clean", "uniform", "matrix"])
@pytest.mark.parametrize("k, n", [(2, 15), (2, 150), (3, 40)])
def test_the_evidence_for_biases_is_that_of_a_grid(k, n, kind):
    rows = make_rows(n=n, k=k, theta=np.column_stack([np.zeros(k), np.linspace(-1, 1, k)]))
    firm = ScalePrior(LOG_T, 1e-5, 4.0)  # the overall scale stays
    expected = fixed()
    start = start_at(rows, expected, make_channel(kind, k))
    fit = maximise_evidence(rows, expected, firm, groups=frozenset({"biases"}), start=start, tolerance=1e-9)
    np.testing.assert_allclose(fit.theta[:, 0], 0, atol=1e-5)
    exact = marginal_likelihood(rows, fit.channel, 3.0)
    assert fit.evidence == pytest.approx(exact, abs=0.05 if kind == "clean" else 0.3)
    none = maximise_evidence(rows, expected, firm, groups=frozenset(), start=start, tolerance=1e-9)
    assert none.evidence == pytest.approx(rows.w @ fit.channel.log_likelihood(rows.x, rows.y), abs=1e-3)


@pytest.mark.parametrize("kind", ["clean", "uniform"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_spread_of_the_temperature_is_that_of_the_dense_hessian(layout, kind):
    rows = make_rows(layout, n=200)
    expected = fixed()
    start = start_at(rows, expected, make_channel(kind, rows.x.shape[1]))
    fit = maximise_evidence(rows, expected, PRIOR, groups=frozenset(ALL[layout]), start=start, tolerance=1e-9)
    penalty = shrinkage.Penalty.of(fit.theta.shape, fit.precisions, LOG_T, PRIOR)
    _, p, _, info = fit.channel.apply(rows.logits(fit.theta), rows.y)
    hessian = dense(lambda v: rows.curvature(p, rows.w * info)(v) + penalty.product(fit.theta, v), fit.theta.shape)
    direction = np.zeros_like(fit.theta)
    direction[shrinkage.diagonal(fit.theta.shape)] = 1 / len(fit.theta)
    variance = direction.ravel() @ np.linalg.solve(hessian, direction.ravel())
    mean = fit.theta[shrinkage.diagonal(fit.theta.shape)].mean()
    assert fit.log_t_std == pytest.approx(math.sqrt(variance) / (1 + mean), rel=0.05)


# Precisions of the priors


def test_precisions_are_those_of_determined_parameters_over_squares():
    # MacKay's update; one of three classes is not seen by the softmax.
    theta = np.column_stack([0.4 * np.random.default_rng(4).normal(size=(3, 3)), np.zeros(3)])
    rows, expected = make_rows("matrix", n=600, theta=theta), flexible((1.0, 0.1, 0.05, 1.0))
    fit = maximise_evidence(
        rows, expected, PRIOR, groups=frozenset(ALL["matrix"]), start=start_at(rows, expected), rounds=200, tolerance=0
    )
    p = fit.channel.apply(rows.logits(fit.theta), rows.y)[1]
    array = fit.precisions.array(fit.theta.shape)
    inverses = [np.linalg.inv(b + np.diag(a)) for b, a in zip(naive_blocks(rows, p, rows.w), array)]
    determined = 1 - array * [np.diag(v) for v in inverses]
    scales, off = np.diag(fit.theta), ~np.eye(3, dtype=bool)
    for name, squares, count in (
        ("scales", ((scales - scales.mean()) ** 2).sum(), 2 / 3 * np.trace(determined)),
        ("matrix", (fit.theta[:, :3][off] ** 2).sum(), 2 / 3 * determined[:, :3][off].sum()),
    ):
        group = getattr(expected, name)
        explained = (count + group.worth) / (squares + group.worth * group.variance)
        assert getattr(fit.precisions, name) == pytest.approx(explained, rel=0.01)


# Properties


layouts, seeds = st.sampled_from(LAYOUTS), st.integers(0, 2**32 - 1)
