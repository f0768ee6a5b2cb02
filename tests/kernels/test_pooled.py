import math

import numpy as np
import pytest
from scipy.optimize import minimize

from attemper.kernels import pooled
from attemper.kernels.pooled import CommonLaw, Expected, Problems
from attemper.kernels.shrinkage import ScalePrior

EXPECTED = Expected(ScalePrior(0.15, 0.6, 4.0), ScalePrior(0.0, 1.0, 4.0), np.diag([0.01, 0.05]), 3.0)


def draw(seed=0, labels=4, n=300, spread=(0.2, 0.4)):
    rng = np.random.default_rng(seed)
    x = 3 * rng.normal(size=(labels, n)) - np.linspace(0, 4, labels)[:, None]
    alpha = -0.5 + spread[0] * rng.normal(size=(labels, 1))
    b = 0.3 + spread[1] * rng.normal(size=(labels, 1))
    t = (rng.random((labels, n)) < 1 / (1 + np.exp(-np.exp(alpha) * x - b))).astype(float)
    w = (rng.random((labels, n)) < 0.8).astype(float)
    return Problems(x, t, w)


def oracle(theta, x, t, w):
    """Minus the log-likelihood of one label, sample by sample."""
    total = 0.0
    for i in range(len(x)):
        z = math.exp(theta[0]) * x[i] + theta[1]
        total += w[i] * (math.log1p(math.exp(-abs(z))) + max(z, 0) - t[i] * z)
    return total


def log_evidence(law, data, at):
    """Laplace's approximation of the marginal likelihood of all labels, with the law's own prior: the obvious way."""
    mean, covariance = law
    total = EXPECTED.log_t.log_density(-mean[0]) + EXPECTED.bias.log_density(mean[1])
    inverse = np.linalg.inv(covariance)
    total -= 0.5 * EXPECTED.worth * (np.linalg.slogdet(covariance)[1] + np.trace(inverse @ EXPECTED.covariance))
    point = pooled.evaluate(at, data)
    for k in range(len(at)):
        h = point.information[k]
        own = at[k] - np.linalg.solve(h, point.gradient[k])  # mode of the likelihood, if it is normal
        spread = covariance + np.linalg.inv(h)
        apart = own - mean
        total -= 0.5 * (np.linalg.slogdet(spread)[1] + apart @ np.linalg.solve(spread, apart))
    return total


def test_likelihood_and_derivatives():
    data = draw()
    theta = np.random.default_rng(1).normal(size=(4, 2)) * 0.3
    point = pooled.evaluate(theta, data)
    for k in range(4):
        x, t, w = (a[k] for a in data)
        assert point.loss[k] == pytest.approx(oracle(theta[k], x, t, w), rel=1e-12)
        for i in range(2):
            step = np.eye(2)[i] * 1e-6
            numeric = (oracle(theta[k] + step, x, t, w) - oracle(theta[k] - step, x, t, w)) / 2e-6
            assert point.gradient[k, i] == pytest.approx(numeric, rel=1e-5, abs=1e-5)
        z = np.exp(theta[k, 0]) * x + theta[k, 1]
        features = np.stack([np.exp(theta[k, 0]) * x, np.ones_like(x)])
        information = (features * (w / (2 + 2 * np.cosh(z)))) @ features.T  # of labels drawn by the model itself
        information[0, 0] += max(point.gradient[k, 0], 0)  # the rest of the second derivative, where it is positive
        np.testing.assert_allclose(point.information[k], information, rtol=1e-10)
        if point.gradient[k, 0] > 0:
            up, down = (pooled.evaluate(theta + d, data).gradient for d in (np.full(2, 1e-6), np.full(2, -1e-6)))
            numeric = ((up - down) / 2e-6)[k]
            np.testing.assert_allclose(point.information[k].sum(axis=1), numeric, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_modes_are_those_of_a_general_optimiser(seed):
    """Given the law that was found, the curve of each label is the best one for the penalised likelihood."""
    data = draw(seed)
    found = pooled.fit(data, EXPECTED)
    assert found.converged
    inverse = np.linalg.inv(found.law.covariance)
    for k in range(4):
        x, t, w = (a[k] for a in data)

        def objective(theta, x=x, t=t, w=w):
            apart = theta - found.law.mean
            return oracle(theta, x, t, w) + 0.5 * apart @ inverse @ apart

        best = minimize(objective, found.law.mean, method="BFGS", options={"gtol": 1e-7})
        np.testing.assert_allclose(found.at[k], best.x, atol=2e-5)


def test_the_law_maximises_the_evidence():
    data = draw(3, labels=8)
    found = pooled.fit(data, EXPECTED)
    best = log_evidence(found.law, data, found.at)
    mean, covariance = found.law
    for step in (0.05, -0.05):
        for i in range(2):
            assert log_evidence((mean + step * np.eye(2)[i], covariance), data, found.at) < best
    # What is unknown of the common mean is counted in, so that Σ is a little larger than the best for a fixed one.
    for factor in (0.4, 2.5):
        assert log_evidence((mean, factor * covariance), data, found.at) < best


def test_the_common_covariance_maximises_the_marginal_likelihood():
    """Of labels whose likelihoods are normal, with the common mean integrated out, and the expected covariance."""
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(7, 2, 2))
    information = 4 * roots @ roots.transpose(0, 2, 1) + np.eye(2)
    mode = rng.normal(size=(7, 2)) * [0.6, 1.0]
    at = pooled._Point(mode, np.zeros(7), np.zeros((7, 2)), information)
    law, _ = pooled.common_law(at, EXPECTED, CommonLaw(np.zeros(2), np.eye(2)))
    of_prior, centre = EXPECTED.pull(law.mean)

    def minus_log_marginal(root):
        lower = np.array([[root[0], 0.0], [root[1], root[2]]])
        covariance = lower @ lower.T
        v = covariance + np.linalg.inv(information)
        weights = np.linalg.inv(v)
        total = weights.sum(axis=0) + np.diag(of_prior)
        mean = np.linalg.solve(total, (weights @ mode[..., None])[..., 0].sum(axis=0) + of_prior * centre)
        gap = mode - mean
        fit = np.einsum("li,lij,lj->", gap, weights, gap) + of_prior @ (mean - centre) ** 2
        spread = np.linalg.slogdet(v)[1].sum() + np.linalg.slogdet(total)[1]
        inverse = np.linalg.inv(covariance)
        prior = np.linalg.slogdet(covariance)[1] + np.trace(inverse @ EXPECTED.covariance)
        return fit + spread + EXPECTED.worth * prior

    best = minimize(
        minus_log_marginal,
        [0.5, 0.1, 0.5],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000, "maxfev": 5000},
    )
    lower = np.array([[best.x[0], 0.0], [best.x[1], best.x[2]]])
    np.testing.assert_allclose(law.covariance, lower @ lower.T, rtol=1e-4, atol=1e-6)
