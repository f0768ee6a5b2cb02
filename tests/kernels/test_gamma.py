"""The gamma function and its derivative are those of SciPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from attemper.kernels.gamma import log_gamma_and_digamma


@given(st.lists(st.floats(1e-12, 1e9), min_size=1, max_size=20))
def test_both_are_those_of_scipy(values):
    x = np.array(values)
    value, slope = log_gamma_and_digamma(x)
    np.testing.assert_allclose(value, gammaln(x), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(slope, digamma(x), rtol=1e-11, atol=1e-10)


def test_they_agree_with_factorials_and_differences():
    value, slope = log_gamma_and_digamma(np.arange(1.0, 30))
    np.testing.assert_allclose(value, np.concatenate([[0], np.cumsum(np.log(np.arange(1, 29)))]), atol=1e-10)
    np.testing.assert_allclose(np.diff(slope), 1 / np.arange(1, 29), atol=1e-10)  # ψ(x + 1) = ψ(x) + 1 / x
