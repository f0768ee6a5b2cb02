import mpmath
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.noisy import log_likelihood

from data import cases
from oracles import noisy_log_likelihood, similar_log_likelihood, softmax


@given(cases(), st.floats(0.05, 20), st.floats(1e-5, 0.98))
def test_both_laws_are_their_loops(case, t, eps):
    h, y = case
    w = np.linspace(0.5, 2, len(y))
    odds = np.array([eps / (1 - eps)])
    log_s, log_soft = (np.log([max(softmax(row, s)[k], 1e-300) for row, k in zip(h, y)]) for s in (t, 3 * t))
    right = w.sum() * np.log1p(-eps)
    uniform = log_likelihood(log_s, np.full(len(y), -np.log(h.shape[1])), w, odds)[0] + right
    np.testing.assert_allclose(uniform, noisy_log_likelihood(h, y, t, eps, w), rtol=1e-10, atol=1e-10)
    similar = log_likelihood(log_s, log_soft, w, odds)[0] + right
    np.testing.assert_allclose(similar, similar_log_likelihood(h, y, t, eps, w), rtol=1e-10, atol=1e-10)


def test_nothing_underflows():
    found = log_likelihood(np.array([-3000.0]), np.array([-1000.0]), None, np.array([0.25]))[0]
    with mpmath.workdps(50):
        expected = mpmath.log(mpmath.exp(-3000) + mpmath.exp(-1000) / 4)
    np.testing.assert_allclose(found, float(expected), rtol=1e-14)
