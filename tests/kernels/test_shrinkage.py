import math

import numpy as np
import pytest

from attemper.kernels import shrinkage

from oracles import softmax


def made(n=30, k=3, d=None, seed=0):
    """Features, probabilities and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k if d is None else d))
    return x, rng.dirichlet(np.ones(k), n), rng.uniform(0.2, 2, n)


def naive_block(x, p, w, precisions, c):
    """Precision of the posterior of the parameters of class c, by loops."""
    k, size = precisions.shape
    block = np.diag(precisions[c].astype(float))
    for i in range(len(x)):
        features = [x[i, c], 1.0] if size == 2 else [*x[i], 1.0]
        curvature = w[i] * p[i, c] * (1 - p[i, c]) * k / (k - 1)
        for a in range(size):
            for b in range(size):
                block[a, b] += curvature * features[a] * features[b]
    return block


def test_true_classes_are_bayes_theorem():
    rng = np.random.default_rng(0)
    z, y = 3 * rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    channel = rng.dirichlet(np.ones(4), 4)
    q, value = shrinkage.true_classes(z, np.log(channel), y)
    for i in range(20):
        joint = [s * channel[c, y[i]] for c, s in enumerate(softmax(z[i]))]
        assert value[i] == pytest.approx(math.log(sum(joint)))
        np.testing.assert_allclose(q[i], np.array(joint) / sum(joint), rtol=1e-12)


def test_true_classes_of_huge_logits_stay_finite():
    z = np.array([[1e6, -1e6, 0.0], [-1e100, 0.0, 1.0]])
    q, value = shrinkage.true_classes(z, np.log(0.97 * np.eye(3) + 0.01), np.array([1, 1]))
    assert np.isfinite(q).all()
    np.testing.assert_allclose(q.sum(axis=1), 1)
    assert value[0] == pytest.approx(math.log(0.01))


@pytest.mark.parametrize("k, d, diagonal", [(3, None, False), (3, None, True), (4, 2, False), (2, None, True)])
def test_variances_and_volume_are_those_of_dense_blocks(k, d, diagonal):
    x, p, w = made(k=k, d=d)
    rng = np.random.default_rng(1)
    precisions = rng.uniform(1, 20, (k, 2 if diagonal else x.shape[1] + 1))
    blocks = [naive_block(x, p, w, precisions, c) for c in range(k)]
    variances = shrinkage.posterior_variances(x, p, w, precisions)
    np.testing.assert_allclose(variances, [np.diag(np.linalg.inv(b)) for b in blocks], rtol=1e-9)
    volume = sum(np.linalg.slogdet(b)[1] - np.log(precisions[c]).sum() for c, b in enumerate(blocks))
    assert shrinkage.log_volume(x, p, w, precisions) == pytest.approx(volume, rel=1e-10)


def test_two_classes_are_exact():
    # With a prior on both classes only differences are seen: θ_0 = −θ_1 = φ/√2. What is seen of the full Hessian has
    # the eigenvalues of one block, and one of K = 2 blocks' volumes is that of the whole.
    x, p, w = made(n=50, k=2)
    precision = 3.0
    features = np.column_stack([x, np.ones(50)])
    d = features.shape[1]
    hessian = np.zeros((2 * d, 2 * d))
    for f, q, v in zip(features, p, w):
        hessian += v * np.kron(np.diag(q) - np.outer(q, q), np.outer(f, f))
    differences = np.kron(np.array([[1.0], [-1.0]]) / np.sqrt(2), np.eye(d))
    seen = differences.T @ hessian @ differences + precision * np.eye(d)
    precisions = np.full((2, d), precision)
    np.testing.assert_allclose(
        shrinkage.posterior_variances(x, p, w, precisions)[0], np.diag(np.linalg.inv(seen)), rtol=1e-9
    )
    volume = np.linalg.slogdet(hessian + precision * np.eye(2 * d))[1] - 2 * d * np.log(precision)
    assert shrinkage.log_volume(x, p, w, precisions) / 2 == pytest.approx(volume, rel=1e-9)


def test_weights_count_repeats():
    x, p, _ = made()
    times = 1 + np.arange(30) % 3
    precisions = np.full((3, 4), 2.0)
    a = shrinkage.posterior_variances(x, p, times.astype(float), precisions)
    b = shrinkage.posterior_variances(*(np.repeat(v, times, axis=0) for v in (x, p)), np.ones(times.sum()), precisions)
    np.testing.assert_allclose(a, b, rtol=1e-10)


def test_some_of_the_rows_do_where_there_are_many(monkeypatch):
    x, p, w = made(n=20_000)
    precisions = np.full((3, 4), 2.0)
    exact = shrinkage.posterior_variances(x, p, w, precisions)
    monkeypatch.setattr(shrinkage, "BUDGET", 20_000 * 3 * 9 // 4)
    np.testing.assert_allclose(shrinkage.posterior_variances(x, p, w, precisions), exact, rtol=0.1)
    assert not np.array_equal(shrinkage.posterior_variances(x, p, w, precisions), exact)


def test_no_data_leave_the_prior():
    x, p, w = made()
    precisions = np.random.default_rng(0).uniform(1, 9, (3, 4))
    np.testing.assert_allclose(shrinkage.posterior_variances(x, p, 0 * w, precisions), 1 / precisions)
    assert shrinkage.log_volume(x, p, 0 * w, precisions) == pytest.approx(0, abs=1e-12)


def test_the_precision_that_is_found_makes_the_evidence_greatest():
    # θ observed with normal errors of variance v: N(θ̂; 0, 1/λ + v). At the fixed point its derivative in λ vanishes,
    # the pseudo-parameters counted as observed without error.
    rng = np.random.default_rng(0)
    v, count, variance = 0.3, 4.0, 0.5
    observed = rng.normal(scale=(0.8 + v) ** 0.5, size=200)
    found = 1.0
    for _ in range(500):
        posterior = 1 / (found + 1 / v)
        found = shrinkage.precision(observed * posterior / v, np.full(200, posterior), found, count, variance)

    def evidence(u):
        spread = math.exp(-u) + v
        of_data = -0.5 * np.sum(observed**2 / spread + math.log(spread))
        return of_data + 0.5 * count * (u - math.exp(u) * variance)

    at = math.log(found)
    assert (evidence(at + 1e-4) - evidence(at - 1e-4)) / 2e-4 == pytest.approx(0, abs=1e-4)
    assert evidence(at) > max(evidence(at - 0.3), evidence(at + 0.3))


def test_what_the_data_do_not_tell_leaves_the_expectation():
    # Posterior as wide as the prior, no deviation: only the pseudo-parameters speak.
    assert shrinkage.precision(np.zeros(50), np.full(50, 0.25), 4.0, 4.0, 0.25) == pytest.approx(4.0)
    assert shrinkage.precision(np.full(50, 1e9), np.zeros(50), 4.0, 4.0, 0.25) == 1e-3
    assert shrinkage.precision(np.zeros(50), np.zeros(50), 4.0, 4.0, 1e-12) == 1e9
