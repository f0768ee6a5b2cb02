import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels.attended import pairs, terms, theta_path
from attemper.kernels.nll import sums
from attemper.kernels.softmax import rest, split

from data import cases, draw
from oracles import attended_loss, reference_loss

ORACLE = {"paper": attended_loss, "reference": reference_loss}


def losses(h, y, t, thetas, loss, w=None):
    rows = split(h, masked=bool(np.isneginf(h).any()))
    reference = loss == "reference"
    _, total = rest(rows, 1 / t)
    found = pairs(rows, y, w, thetas, reference=reference)
    by_bin = terms(rows, y, w, found, 1 / t, total, reference=reference)
    nll = sums(h, y, w, 1 / t, masked=bool(np.isneginf(h).any()))[:1]
    return theta_path(nll, by_bin[None, :])[0]


@pytest.mark.parametrize("loss", ["paper", "reference"])
@given(case=cases(bound=5.0), t=st.floats(0.4, 10))
def test_every_theta_is_the_double_loop_of_eq_8(loss, case, t):
    h, y = case
    thetas = np.array([0.0013, 0.0117, 0.051, 0.23, 0.61, 0.97])
    w = np.linspace(0.5, 2, len(y))
    expected = [ORACLE[loss](h, y, t, theta, w) for theta in thetas]
    np.testing.assert_allclose(losses(h, y, t, thetas, loss, w), expected, rtol=1e-10, atol=1e-10)


def test_theta_zero_attends_to_every_possible_class():
    h, y = draw(20, 4)
    np.testing.assert_allclose(losses(h, y, 1.7, np.array([0.0]), "paper"), attended_loss(h, y, 1.7, 0.0), rtol=1e-10)
    masked = np.column_stack([h, np.full(20, -np.inf)])
    np.testing.assert_allclose(
        losses(masked, y, 1.7, np.array([0.0]), "paper"),
        losses(h, y, 1.7, np.array([0.0]), "paper"),
        rtol=1e-12,
    )


def test_above_every_probability_the_attended_loss_is_the_nll():
    h, y = draw(50, 4)
    np.testing.assert_allclose(losses(h, y, 2.0, np.array([1.0]), "paper")[0], sums(h, y, None, 0.5)[0])


def test_membership_is_at_least_theta_not_above():
    h = np.zeros((1, 4))  # S_k = 1/4 exactly
    y = np.array([0])
    with_it, without = losses(h, y, 2.0, np.array([0.25, 0.2500001]), "paper")
    np.testing.assert_allclose(with_it, attended_loss(h, y, 2.0, 0.25))
    np.testing.assert_allclose(without, np.log(4))
