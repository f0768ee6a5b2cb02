import mpmath
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.softmax import BOTTOM, log_rest, rest, split

from data import cases
from oracles import softmax


@given(cases(), st.floats(0.05, 20))
def test_the_split_gives_softmax_back(case, beta):
    h, _ = case
    rows = split(h, masked=False)
    e, total = rest(rows, beta)
    n = np.arange(len(h))
    e[n, rows.top] = 1.0
    expected = [softmax(row, 1 / beta) for row in h]
    np.testing.assert_allclose(e / (1 + total)[:, None], expected, rtol=1e-12, atol=1e-300)


def test_log_of_one_minus_the_largest_against_mpmath():
    # 1 − S is far below the spacing of numbers at 1, and at β = 20 below the smallest double.
    h = np.array([[0.0, -5.0, -7.0], [1e4, 0.0, -3.0], [50.0, -20.0, -900.0], [0.0, 0.0, -1.0]])
    rows = split(h, masked=False)
    for beta in (0.05, 1.0, 20.0):
        _, total = rest(rows, beta)
        found = log_rest(rows, beta, total) - np.log1p(total)
        for i, row in enumerate(h):
            with mpmath.workdps(60):
                e = [mpmath.exp(beta * (mpmath.mpf(float(v)) - max(row))) for v in row]
                others = sum(v for k, v in enumerate(e) if k != rows.top[i])
                expected = mpmath.log(others / sum(e))
            np.testing.assert_allclose(found[i], float(expected), rtol=1e-13)


def test_a_masked_class_weighs_nothing():
    h = np.array([[1.0, -np.inf, 0.0], [-np.inf, 2.0, -np.inf]])
    rows = split(h, masked=True)
    assert rows.possible.tolist() == [2, 1]
    assert rows.d[1, 0] == BOTTOM
    _, total = rest(rows, 2.0)
    np.testing.assert_allclose(total, [np.exp(-2.0), 0.0])
    assert log_rest(rows, 2.0, total)[1] == -np.inf


def test_gap_is_zero_where_the_label_is_the_maximum():
    rows = split(np.array([[1.0, 3.0], [4.0, 2.0]]), masked=False)
    assert rows.gap(np.array([1, 1])).tolist() == [0.0, -2.0]
