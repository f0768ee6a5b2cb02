"""Exponentials by multiplication: the same sums as exponentials one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.kernels import chebyshev
from attemper.kernels.ladder import MAX_JUMP, ladder, resolving_nodes
from attemper.kernels.table import tabulate
from attemper.sketch import DEFAULT_THETAS, ODDS, TERMS


def betas_of(count, half, centre=0.5):
    return np.exp(-chebyshev.nodes(count, chebyshev.Interval(centre - half, centre + half)))


@given(st.floats(0.02, 2.0), st.floats(-60.0, 60.0), st.integers(0, 20))
def test_rungs_are_near_the_nodes_and_multiples_of_a_step_apart(half, centre, more):
    betas = betas_of(resolving_nodes(half) + more, half, centre)
    rungs, back = ladder(betas)
    at = np.array([rung.beta for rung in rungs])
    gaps = np.diff(betas[::-1])
    room = np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))
    assert (np.abs(at - betas[::-1]) <= 0.26 * room).all()
    assert (np.diff(at) > 0).all()
    for before, rung in itertools.pairwise(rungs):
        assert 0 <= rung.jump <= MAX_JUMP
        if rung.jump:
            assert rung.beta == pytest.approx(before.beta + rung.jump * rung.step, rel=1e-13)
    # Interpolation is well conditioned, and exact for polynomials.
    assert np.abs(back).sum(axis=1).max() < 20
    np.testing.assert_allclose(back @ np.log(at), np.log(betas), rtol=1e-11, atol=1e-11)


def test_few_nodes_stay_where_they_are():
    betas = betas_of(resolving_nodes(1.0) - 1, 1.0)
    rungs, back = ladder(betas)
    assert back is None
    assert [rung.beta for rung in rungs] == betas[::-1].tolist()
    assert not any(rung.jump for rung in rungs)


@pytest.mark.parametrize("half, n_classes", [(0.1, 10), (0.3, 3), (0.5, 50)])
@pytest.mark.parametrize("weighted", [False, True])
def test_tables_by_ladder_are_those_at_each_node(half, n_classes, weighted):
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(300, n_classes))
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    w = rng.uniform(0.5, 2, 300) if weighted else None
    betas = betas_of(resolving_nodes(half) + 4, half)
    kernels = [term.kernel for term in TERMS]
    found = tabulate(h, y, w, False, betas, DEFAULT_THETAS, ODDS, 1.0, kernels)
    one_by_one = [tabulate(h, y, w, False, np.array([b]), DEFAULT_THETAS, ODDS, 1.0, kernels)[0] for b in betas]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-10, atol=1e-10 * np.abs(one_by_one).max())
