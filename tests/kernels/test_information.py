"""What a label is worth, against loops and numerical derivatives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import Sketch
from attemper.kernels.information import information, of_temperature

from data import cases, draw, draw_masked
from oracles import softmax


def slow(h, t, noise):
    """Σ_y ∂p_y ∂p_y' / p_y by numerical derivatives, over the classes that are possible."""
    possible = [k for k, v in enumerate(h) if np.isfinite(v)]
    h = [h[k] for k in possible]

    def probs(u, e):
        return [(1 - e) * s + e / len(h) for s in softmax(h, np.exp(u))]

    u, d = np.log(t), 1e-6
    by_u = [(b - a) / (2 * d) for a, b in zip(probs(u - d, noise), probs(u + d, noise))]
    by_e = [(b - a) / (2 * d) for a, b in zip(probs(u, noise - d), probs(u, noise + d))]
    p = probs(u, noise)
    return [sum(x * y / q for x, y, q in zip(a, b, p)) for a, b in ((by_u, by_u), (by_u, by_e), (by_e, by_e))]


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_information_of_the_formula(noise, masked):
    h, _ = draw_masked(20, 4, masked=masked)
    for row, found in zip(h, information(h, 1.7, noise)):
        expected = np.array(slow(row, 1.7, noise or 1e-300))
        assert found[0] == pytest.approx(expected[0], abs=1e-6)
        if noise:
            assert found == pytest.approx(expected, abs=1e-5)


def test_a_sketch_knows_the_same():
    h, y = draw(400, 6)
    sketch = Sketch.of(h, y)
    assert information(h, 1.3)[:, 0].sum() == pytest.approx(1 / sketch.log_t_std(1.3) ** 2, rel=1e-6)


@given(cases(), st.floats(0.2, 5), st.floats(0, 0.9))
def test_wrong_labels_never_add_information(case, t, noise):
    h, _ = case
    clean, noisy = information(h, t).mean(axis=0), information(h, t, noise).mean(axis=0)
    assert noisy[0] <= clean[0] + 1e-12
    assert 0 <= of_temperature(noisy) <= noisy[0] + 1e-12
