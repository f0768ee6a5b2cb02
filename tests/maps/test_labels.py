"""Maps of labels that do not exclude each other."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch

from attemper import InputError, SigmoidMap
from attemper._json import Fields
from attemper.maps import map_from_fields
from attemper.torch import to_torch

A, B, C = np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.7, 2.0]), np.array([0.0, -1.0, 3.0])
H = np.array([[0.0, 1.0, -2.0], [30.0, -40.0, 5.0], [-700.0, 700.0, 1e-9]])
MAPS = {
    "curves": SigmoidMap(A, B, C),
    "lines": SigmoidMap(A, A, C),
}


def oracle(a, b, c, s):
    """σ(a log p − b log(1 − p) + c), with enough digits."""
    with mpmath.workdps(400):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(s)))
        z = a * mpmath.log(p) - b * mpmath.log(1 / (1 + mpmath.exp(mpmath.mpf(s)))) + c
        q = 1 / (1 + mpmath.exp(-z))
        return float(q), float(mpmath.log(q))


def test_sigmoid_map_is_its_formula():
    expected = np.array([[oracle(A[k], B[k], C[k], row[k]) for k in range(3)] for row in H])
    np.testing.assert_allclose(MAPS["curves"].apply(H), expected[..., 0], rtol=1e-12)
    np.testing.assert_allclose(MAPS["curves"].log_apply(H), expected[..., 1], rtol=1e-12)


def test_a_line_is_exact():
    lines = SigmoidMap(A, A, C)
    np.testing.assert_array_equal(lines.logits(H, lines.arrays(), np), A * H + C)


def test_the_same_of_probabilities():
    p = np.array([[0.5, 1e-9, 1 - 1e-9], [0.2, 0.999, 0.3]])
    of_probs = SigmoidMap(A, B, C, of_probs=True)
    np.testing.assert_allclose(
        of_probs.apply(np.log(p)), SigmoidMap(A, B, C).apply(np.log(p) - np.log1p(-p)), rtol=1e-7
    )
    with_zeros = SigmoidMap(A, B, C, True, 1e-6)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(
            with_zeros.apply(np.log([[1.0, 1e-6, 0.5]])),
            SigmoidMap(A, B, C).apply(np.array([[13.8155, -13.8155, 0]])),
            rtol=1e-5,
        )


@pytest.mark.parametrize("name", MAPS)
def test_every_array_library_and_a_torch_module(name):
    m = MAPS[name]
    h = H.clip(-30, 30)
    expected, logs = m.apply(h), m.log_apply(h)
    np.testing.assert_allclose(m.apply(torch.from_numpy(h)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(m.apply(jnp.asarray(h, dtype=jnp.float32))), expected, rtol=2e-4, atol=1e-7)
    np.testing.assert_allclose(to_torch(m)(torch.from_numpy(h)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(to_torch(m, log=True)(torch.from_numpy(h)).numpy(), logs, rtol=1e-12)
    half = to_torch(m)(torch.from_numpy(h).half())
    assert half.dtype == torch.float16
    images = torch.from_numpy(np.moveaxis(np.stack([h] * 4, axis=2), 1, 1))  # N×L×4
    np.testing.assert_allclose(to_torch(m, dim=1)(images)[..., 2].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_files(name):
    back = map_from_fields(Fields(MAPS[name].to_dict(), "map.json"))
    np.testing.assert_array_equal(back.apply(H), MAPS[name].apply(H))
    assert back.to_dict() == MAPS[name].to_dict()


def test_shapes():
    with pytest.raises(InputError):
        SigmoidMap(A, B[:2], C)
    with pytest.raises(InputError):
        SigmoidMap(A * np.nan, B, C)
