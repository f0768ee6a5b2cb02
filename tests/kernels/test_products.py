"""Logarithms of products are sums of logarithms, at every scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.products import sum_log1p, sum_log_plus
from attemper.sketch import ODDS


@given(st.integers(0, 2**32 - 1), st.integers(0, 300), st.sampled_from([-300, -20, -3, 0, 2]), st.integers(0, 6))
def test_sum_log1p_is_the_sum(seed, n, low, span):
    r = 10 ** np.random.default_rng(seed).uniform(low, low + span, n)
    assert sum_log1p(r) == pytest.approx(math.fsum(map(math.log1p, r)), rel=1e-13)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([1.0, 10.0, 1e3, 1e6, 1e12]))
def test_sum_log_plus_is_the_sum(seed, n, largest):
    rng = np.random.default_rng(seed)
    q = np.minimum(largest * rng.random(n) ** rng.choice([1, 5, 100]), largest)
    q[rng.random(n) < 0.1] = 0.0
    found = sum_log_plus(q, ODDS)
    for r, value in zip(ODDS, found):
        terms = [math.log(x + r) for x in q]
        assert value == pytest.approx(math.fsum(terms), abs=1e-13 * (1 + sum(map(abs, terms))))


@pytest.mark.parametrize("value", [0.0, 1e-320, 1e8])
def test_equal_factors_neither_overflow_nor_vanish(value):
    found = sum_log_plus(np.full(1000, value), ODDS)
    np.testing.assert_allclose(found, 1000 * np.log(value + ODDS), rtol=1e-12)
    assert sum_log1p(np.full(1000, value)) == pytest.approx(1000 * math.log1p(value), rel=1e-12)
