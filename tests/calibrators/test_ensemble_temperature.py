import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import softmax

from attemper import EnsembleTemperatureScaling, TemperatureScaling
from attemper.calibrators.ensemble_temperature import mix

from data import draw


def noisy(n=4000, k=5, seed=0, share=0.1):
    """Labels drawn at T = 2, some of them then replaced at random."""
    h, y = draw(n, k, scale=6.0, seed=seed)
    rng = np.random.default_rng(seed + 1)
    wrong = rng.uniform(size=n) < share
    y[wrong] = rng.integers(0, k, wrong.sum())
    return h, y


def naive(h, y, t, weights, w=None):
    p = weights[0] * softmax(h / t, axis=1) + weights[1] * softmax(h, axis=1) + weights[2] / h.shape[1]
    return -np.average(np.log(p[np.arange(len(y)), y]), weights=w)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_weights_are_those_of_scipy(weighted):
    h, y = noisy(500)
    w = np.random.default_rng(0).uniform(0, 2, 500) if weighted else None
    found = EnsembleTemperatureScaling().fit(h, y, w)
    t = TemperatureScaling().fit(h, y, w).temperature_
    assert found.temperature_ == t
    other = minimize(
        lambda v: naive(h, y, t, v, w),
        [0.4, 0.3, 0.3],
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda v: sum(v) - 1},
        tol=1e-12,
    )
    assert found.fit_report_.nll <= other.fun + 1e-12
    np.testing.assert_allclose(found.fit_report_.nll, naive(h, y, t, found.weights_, w), rtol=1e-12)
    np.testing.assert_allclose(found.weights_, other.x, atol=1e-3)
    assert found.fit_report_.objective_gap < 1e-10
    assert found.fit_report_.converged


def test_never_worse_than_its_parts_and_keeps_the_arg_max():
    h, y = noisy()
    found = EnsembleTemperatureScaling().fit(h, y)
    assert found.fit_report_.nll < TemperatureScaling().fit(h, y).fit_report_.nll - 0.01
    assert found.weights_[2] > 0.03
    assert (found.predict_proba(h).argmax(axis=1) == h.argmax(axis=1)).all()
    np.testing.assert_allclose(found.weights_.sum(), 1, rtol=1e-12)
    assert set(found.summary()) == {"temperature", "temperature_interval", "tempered", "plain", "uniform"}


def test_where_temperature_scaling_is_enough_it_is_all_there_is():
    # No labels but their probabilities at T = 2: the tempered part alone is exact.
    h, _ = draw(200, 4)
    p = softmax(h / 2, axis=1)
    rows, y, w = np.repeat(h, 4, axis=0), np.tile(np.arange(4), 200), p.ravel()
    found = EnsembleTemperatureScaling().fit(rows, y, w)
    np.testing.assert_allclose(found.temperature_, 2, rtol=1e-8)
    np.testing.assert_allclose(found.weights_, [1, 0, 0], atol=1e-5)


@given(st.integers(0, 1000), st.integers(1, 60), st.floats(0.1, 30), st.integers(2, 4))
@example(seed=165, n=6, spread=24.0, m=4)  # the first step takes all weight from a part that one row needs
def test_the_certificate_holds(seed, n, spread, m):
    rng = np.random.default_rng(seed)
    log_parts = spread * np.log(rng.dirichlet(np.ones(m + 1), n)[:, :m])
    w = rng.uniform(0, 1, n) + 1e-3
    found = mix(log_parts, w)
    assert found.error < 1e-9
    np.testing.assert_allclose(sum(found.at), 1, rtol=1e-12)

    def nll(omega):
        with np.errstate(divide="ignore"):
            return -np.average(np.logaddexp.reduce(log_parts + np.log(omega), axis=1), weights=w)

    np.testing.assert_allclose(nll(found.at), found.value, rtol=1e-9, atol=1e-12)
    for omega in rng.dirichlet(np.ones(m), 30):
        near = 0.999 * np.array(found.at) + 0.001 * omega
        assert nll(near) >= found.value - found.error - 1e-13
        assert nll(omega) >= found.value - found.error - 1e-13
