import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attemper import BinMap
from attemper._json import Fields
from attemper.maps import map_from_fields

from oracles import softmax

SIZES = np.array([3, 1, 4])
KNOTS = np.array([0.0, 0.2, 0.55, 0.0, 0.0, 0.1, 0.3, 0.9])
VALUES = np.array([0.0, 0.2, 0.7, 0.3, 0.05, 0.1, 0.6, 1.0])
MAPS = [BinMap(SIZES, KNOTS, VALUES, linear) for linear in (False, True)]
TWO = [BinMap(np.array([3]), np.array([0.0, 0.3, 0.7]), np.array([0.1, 0.4, 0.8]), linear) for linear in (False, True)]


def function(m, k, p):
    """Look the probability up in the table of class k, from the left."""
    start = int(m.sizes[:k].sum())
    table = list(zip(m.knots, m.values))[start : start + m.sizes[k]]
    if m.linear:
        return float(np.interp(p, *zip(*table)))
    return next((v for x, v in reversed(table) if p >= x), table[0][1])


def oracle(m, row):
    p = softmax(row)
    if m.n_classes == 2:
        q1 = function(m, 0, p[1])
        return np.array([1 - q1, q1])
    q = np.array([function(m, k, p[k]) for k in range(len(row))])
    q[np.isneginf(row)] = 0
    return q / q.sum() if q.sum() > 0 else np.isfinite(row) / np.isfinite(row).sum()


@pytest.mark.parametrize("m", [*MAPS, *TWO], ids=str)
def test_the_map_is_its_table(m):
    h = 2 * np.random.default_rng(0).normal(size=(200, m.n_classes))
    expected = np.array([oracle(m, row) for row in h])
    np.testing.assert_allclose(m.apply(h), expected, rtol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(m.log_apply(h), np.log(expected), rtol=1e-12)


def test_a_knot_belongs_to_the_right():
    h = np.log([[0.5, 0.5], [0.7, 0.3], [0.25, 0.75]])
    m = BinMap(np.array([2]), np.array([0.0, 0.5]), np.array([0.1, 0.6]), False)
    np.testing.assert_array_equal(m.apply(h)[:, 1], [0.6, 0.1, 0.6])
    p = m.apply(array_api_strict.asarray(h))  # by bisection
    np.testing.assert_array_equal(np.asarray(p)[:, 1], [0.6, 0.1, 0.6])


def test_a_tie_is_left_to_the_classifier_in_any_precision():
    flat = BinMap(np.array([1, 1, 2]), np.array([0.0, 0.0, 0.0, 0.5]), np.array([0.5, 0.5, 0.5, 0.0]), False)
    h = np.array([[0.0, 1.0, 0.5], [0.0, 0.1, 5.0]])
    for array in (h, h.astype(np.float32), h.astype(np.float16), jnp.asarray(h), torch.tensor(h, dtype=torch.bfloat16)):
        for p in (flat.apply(array), flat.log_apply(array)):
            # In the second row the classifier's own answer is not among the tied: the first of them is taken.
            assert np.asarray(p.float() if isinstance(p, torch.Tensor) else p).argmax(axis=1).tolist() == [1, 0]


def arrays(h):
    yield torch.tensor(h), 1e-14
    yield torch.tensor(h, dtype=torch.float32), 1e-6
    yield torch.tensor(h).to(torch.bfloat16), 0.01
    yield jnp.asarray(h, dtype=jnp.float32), 1e-6
    yield jnp.asarray(h, dtype=jnp.bfloat16), 0.01
    yield array_api_strict.asarray(h), 1e-14
    yield h.astype(np.float16), 1e-3


@pytest.mark.parametrize("m", [*MAPS, *TWO], ids=str)
def test_array_libraries_give_the_same(m):
    h = np.round(8 * np.random.default_rng(3).normal(size=(60, m.n_classes))) / 8  # exact in every type
    h[3, 1] = -np.inf
    expected = m.apply(h)
    for array, tolerance in arrays(h):
        for p in (m.apply(array), m.log_apply(array)):
            assert type(p) is type(array)
            assert p.dtype == array.dtype
        p = m.apply(array)
        p = np.asarray(p.float() if isinstance(p, torch.Tensor) and p.dtype == torch.bfloat16 else p, dtype=np.float64)
        np.testing.assert_allclose(p, expected, atol=tolerance)


def test_single_precision_logits_are_looked_up_in_double():
    """The two knots lie closer than single precision can tell near one; the logits can."""
    close = 1 - np.array([2e-8, 1e-8])
    m = BinMap(np.array([2]), close, np.array([0.0, 1.0]), True)
    z = np.log(close / (1 - close)).astype(np.float32)
    h = np.stack([np.zeros(2, dtype=np.float32), z], axis=1)
    for array in (h, torch.tensor(h), jnp.asarray(h)):
        np.testing.assert_allclose(np.asarray(m.apply(array))[:, 1], [0.0, 1.0], atol=1e-5)


@pytest.mark.parametrize("m", [*MAPS, *TWO], ids=str)
def test_the_map_comes_back_from_its_fields(m):
    back = map_from_fields(Fields(m.to_dict(), "here"))
    assert back.to_dict() == m.to_dict()
    assert (back.n_classes, back.keeps_arg_max) == (max(2, len(m.sizes)), False)
