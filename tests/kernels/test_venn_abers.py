"""Isotonic regression with one more sample: all at once against one regression for each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.venn_abers import with_one_more_sample

from oracles import isotonic

WEIGHTS = st.one_of(st.integers(0, 3).map(float), st.floats(0.01, 5))


@given(st.lists(st.tuples(WEIGHTS, WEIGHTS).filter(any), min_size=1, max_size=12))
def test_one_regression_for_each_place_and_label(pairs):
    positive, negative = np.array(pairs).T
    lower, upper = with_one_more_sample(positive, negative)
    for i in range(len(pairs)):
        one = np.arange(len(pairs)) == i
        for found, more in ((lower, (positive, negative + one)), (upper, (positive + one, negative))):
            np.testing.assert_allclose(found[i], isotonic(*more)[i], rtol=1e-9, atol=1e-12)
    assert (lower <= upper + 1e-12).all()
    assert (np.diff(lower) >= -1e-12).all()
    assert (np.diff(upper) >= -1e-12).all()


def test_many_blocks():
    rng = np.random.default_rng(0)
    p = np.sort(rng.random(400))
    positive = (rng.random(400) < p).astype(float)
    lower, upper = with_one_more_sample(positive, 1 - positive)
    for i in range(0, 400, 7):
        one = np.arange(400) == i
        np.testing.assert_allclose(lower[i], isotonic(positive, 1 - positive + one)[i], rtol=1e-12)
        np.testing.assert_allclose(upper[i], isotonic(positive + one, 1 - positive)[i], rtol=1e-12)
