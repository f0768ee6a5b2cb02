"""The most likely mixture of classes: against plain EM, its certificate, and what shrinks it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from attemper.kernels.priors import em_step, evidence, most_likely_priors, shrunk_priors


def plain_em(likelihoods, weights=None, pseudo=None, steps=5000):
    """Thousands of steps of Saerens et al., from equal shares."""
    w = np.ones(len(likelihoods)) if weights is None else weights
    priors = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(steps):
        joint = likelihoods * priors
        counts = (w[:, None] * joint / joint.sum(axis=1, keepdims=True)).sum(axis=0)
        counts = counts if pseudo is None else counts + pseudo
        priors = counts / counts.sum()
    return priors


def mean_log(likelihoods, priors, weights=None):
    return np.average(np.log(likelihoods @ priors), weights=weights)


def drawn(n, k, seed, scale=2.0):
    rng = np.random.default_rng(seed)
    priors = rng.dirichlet(np.ones(k))
    y = rng.choice(k, n, p=priors)
    x = rng.normal(size=(n, k)) + scale * np.eye(k)[y]
    return np.exp(scale * x - (scale * x).max(axis=1, keepdims=True)), priors


@pytest.mark.parametrize(("n", "k", "scale"), [(300, 3, 2.0), (200, 6, 1.0), (50, 8, 0.7), (30, 2, 0.1)])
def test_it_is_the_fixed_point_of_em(n, k, scale):
    likelihoods, _ = drawn(n, k, 0, scale)
    found = most_likely_priors(likelihoods)
    slow = plain_em(likelihoods)
    assert found.gap <= 1e-10
    assert mean_log(likelihoods, found.priors) >= mean_log(likelihoods, slow) - 1e-12
    assert np.abs(found.priors - slow).max() < 1e-3  # where EM still creeps towards zero
    step = em_step(likelihoods, np.ones(n), found.priors)
    assert np.abs(step - found.priors).max() < 1e-6


def test_with_pseudo_counts_it_is_the_mode():
    likelihoods, _ = drawn(200, 5, 1)
    pseudo = np.array([3.0, 1.0, 0.5, 2.0, 4.0])
    assert most_likely_priors(likelihoods, pseudo=pseudo).priors == pytest.approx(
        plain_em(likelihoods, pseudo=pseudo, steps=3000), abs=1e-8
    )


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(5, 60))
def test_the_gap_bounds_the_loss_of_any_priors(seed, k, n):
    likelihoods, _ = drawn(n, k, seed)
    rng = np.random.default_rng(seed)
    found = most_likely_priors(likelihoods, tolerance=1e-3)
    for other in rng.dirichlet(np.full(k, 0.5), 20):
        assert (
            mean_log(likelihoods, np.maximum(other, 1e-300)) <= mean_log(likelihoods, found.priors) + found.gap + 1e-12
        )
    assert found.priors.sum() == pytest.approx(1)
    assert (found.priors >= 0).all()


def test_the_evidence_is_the_integral():
    likelihoods, _ = drawn(40, 2, 3)
    scaled = likelihoods / likelihoods.max(axis=1, keepdims=True)
    mean = np.array([0.3, 0.7])
    best = most_likely_priors(scaled).priors
    at_best = np.log(scaled @ best).sum()
    for concentration in (3.0, 30.0):
        a, b = concentration * mean

        def density(p, a=a, b=b):
            return np.exp(np.log(scaled @ np.array([p, 1 - p])).sum() - at_best) * beta.pdf(p, a, b)

        exact = np.log(quad(density, 0, 1, limit=200)[0]) + at_best
        assert evidence(scaled, np.ones(40), mean, concentration)[0] == pytest.approx(exact, abs=0.05)
    assert evidence(scaled, np.ones(40), mean, np.inf)[0] == pytest.approx(np.log(scaled @ mean).sum())
    near = evidence(scaled, np.ones(40), mean, 1e7)[0]  # tends to that of no shift
    assert near == pytest.approx(evidence(scaled, np.ones(40), mean, np.inf)[0], abs=1e-3)


def test_no_shift_leaves_the_priors_and_a_shift_is_found():
    for seed in range(5):
        likelihoods, priors = drawn(200, 10, seed)
        stays = shrunk_priors(likelihoods, np.ones(200), priors).priors
        assert np.abs(stays - priors).sum() < np.abs(most_likely_priors(likelihoods).priors - priors).sum() / 2
        equal = np.full(10, 0.1)
        likelihoods, priors = drawn(5000, 10, seed)
        moves = shrunk_priors(likelihoods, np.ones(5000), equal)
        assert np.isfinite(moves.concentration)
        assert np.abs(moves.priors - priors).sum() < 0.1
