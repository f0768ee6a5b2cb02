import array_api_strict
import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attemper import FileError
from attemper._json import Fields
from attemper.maps import MixtureMap, ScaleMap, map_from_fields

from oracles import softmax

MAPS = [
    ScaleMap(0.37),
    ScaleMap(19.0),
    MixtureMap((0.5, 0.3), (0.4, 1.7), 0.2),
    MixtureMap((0.7, 0.3), (0.05, 20.0), 0.0),
    MixtureMap((0.0,), (1.0,), 1.0),
]


def oracle(m, row):
    parts = [(1.0, m.beta)] if isinstance(m, ScaleMap) else list(zip(m.weights, m.betas))
    floor = getattr(m, "uniform_mass", 0.0) / len(row)
    return np.sum([w * np.array(softmax(row, 1 / b)) for w, b in parts], axis=0) + floor


@pytest.mark.parametrize("m", MAPS)
def test_maps_are_their_formulas(m):
    h = 5 * np.random.default_rng(0).normal(size=(50, 6))
    expected = np.array([oracle(m, row) for row in h])
    np.testing.assert_allclose(m.apply(h), expected, rtol=1e-12)
    np.testing.assert_allclose(m.log_apply(h), np.log(expected), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(m.apply(h).sum(axis=1), 1, rtol=1e-12)


def test_log_probabilities_do_not_underflow():
    h = np.array([[0.0, -3000.0, -1e4]])
    m = MixtureMap((0.5, 0.5), (1.0, 2.0), 0.0)
    with mpmath.workdps(50):
        expected = [float(mpmath.log((mpmath.exp(v) + mpmath.exp(2 * mpmath.mpf(v))) / 2)) for v in h[0]]
    np.testing.assert_allclose(m.log_apply(h)[0], expected, rtol=1e-13)
    np.testing.assert_allclose(ScaleMap(3.0).log_apply(h)[0], 3 * h[0], rtol=1e-13)


@pytest.mark.parametrize("m", MAPS[:4])
def test_a_masked_class_has_probability_zero(m):
    h = np.array([[1.0, -np.inf, 0.5]])
    p = m.apply(h)
    assert p[0, 1] == 0
    np.testing.assert_allclose(p[:, [0, 2]], m.apply(h[:, [0, 2]]), rtol=1e-12)
    assert m.log_apply(h)[0, 1] == -np.inf


logits = hnp.arrays(
    np.float16,
    (4, 5),
    elements=st.one_of(st.sampled_from([0.0, 1.0, 1.001, -1.0]), st.floats(-60000, 60000, width=16)),
)


@pytest.mark.parametrize("m", MAPS[:4])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "jax", "jax16", "strict"])
@given(h=logits)
def test_the_arg_max_never_changes_and_the_type_stays(m, kind, h):
    array = {
        "float16": lambda: h,
        "bfloat16": lambda: torch.tensor(h.astype(np.float32)).to(torch.bfloat16),
        "float32": lambda: h.astype(np.float32),
        "float64": lambda: h.astype(np.float64),
        "jax": lambda: jnp.asarray(h, dtype=jnp.float32),
        "jax16": lambda: jnp.asarray(h, dtype=jnp.bfloat16),
        "strict": lambda: array_api_strict.asarray(h.astype(np.float64)),
    }[kind]()
    for p in (m.apply(array), m.log_apply(array)):
        assert type(p) is type(array)
        assert p.dtype == array.dtype
        before, after = (
            np.asarray(a.to(torch.float32) if kind == "bfloat16" else a, dtype=np.float64) for a in (array, p)
        )
        assert (before.argmax(axis=1) == after.argmax(axis=1)).all()


@pytest.mark.parametrize("m", MAPS)
def test_maps_come_back_from_their_fields(m):
    assert map_from_fields(Fields(m.to_dict(), "here")) == m


@pytest.mark.parametrize(
    "content",
    [
        {"type": "scale", "beta": 0.0},
        {"type": "scale", "beta": -1.0},
        {"type": "scale", "beta": "1"},
        {"type": "scale"},
        {"type": "neural"},
        {"type": "mixture", "weights": [0.5], "betas": [1.0, 2.0], "uniform_mass": 0.5},
        {"type": "mixture", "weights": [0.5], "betas": [1.0], "uniform_mass": 0.1},
        {"type": "mixture", "weights": [-0.5, 1.0], "betas": [1.0, 1.0], "uniform_mass": 0.5},
        {"type": "mixture", "weights": [], "betas": [], "uniform_mass": 1.0},
    ],
)
def test_maps_that_make_no_sense_are_not_read(content):
    with pytest.raises(FileError):
        map_from_fields(Fields(content, "here"))


@pytest.mark.parametrize("m", MAPS[:4])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_the_arg_max_stays_among_the_smallest_numbers(m, dtype):
    h = np.random.default_rng(0).normal(scale=1e-3, size=(4, 60_000)).astype(dtype)  # as in a large vocabulary
    for p in (m.apply(h), m.log_apply(h)):
        assert p.dtype == dtype
        assert (p.astype(np.float32).argmax(axis=1) == h.astype(np.float32).argmax(axis=1)).all()
