import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper._json import Fields
from attemper.maps import AffineMap, MixtureMap, ScaleMap, TiltedMap, map_from_fields, tilted

from exported import MAPS, random_logits

BIAS = np.array([0.3, -0.5, 0.0, 0.7, -0.2])
BASES = [name for name in MAPS if not name.startswith("tilted")]


def oracle(base, scale, bias, h):
    p = base.apply(h) ** scale * np.exp(bias)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("bias", [None, BIAS])
def test_a_correction_is_its_formula_on_top_of_every_map(name, bias):
    h = random_logits().astype(np.float64)
    for made in (TiltedMap(MAPS[name], 1.4, bias), tilted(MAPS[name], 1.4, bias)):
        expected = oracle(MAPS[name], 1.4, 0.0 if bias is None else bias, h)
        np.testing.assert_allclose(made.apply(h), expected, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(np.exp(made.log_apply(h)), expected, rtol=1e-9, atol=1e-14)
        assert made.keeps_arg_max == (MAPS[name].keeps_arg_max and bias is None)


@pytest.mark.parametrize("name", BASES)
def test_corrections_come_back_from_their_fields(name):
    made = TiltedMap(MAPS[name], 0.7, BIAS)
    back = map_from_fields(Fields(made.to_dict(), "here"))
    np.testing.assert_array_equal(back.apply(random_logits()), made.apply(random_logits()))


def test_the_simplest_map_is_returned():
    assert tilted(ScaleMap(0.5)) == ScaleMap(0.5)
    assert tilted(ScaleMap(0.5), 2.0) == ScaleMap(1.0)
    assert isinstance(tilted(ScaleMap(0.5), 2.0, BIAS), AffineMap)
    assert isinstance(tilted(MAPS["scaled matrix"], 2.0), AffineMap)
    assert isinstance(tilted(MAPS["structured"], 2.0), TiltedMap)
    assert tilted(MAPS["odds"], 1.0, np.zeros(5)) is MAPS["odds"]


@given(
    first=st.tuples(st.floats(0.2, 5), st.floats(-2, 2).map(lambda b: round(b, 6))),
    second=st.tuples(st.floats(0.2, 5), st.floats(-2, 2).map(lambda b: round(b, 6))),
)
def test_two_corrections_are_one(first, second):
    h = random_logits().astype(np.float64)
    base = MixtureMap((0.6, 0.3), (1.0, 0.5), 0.1)
    once = tilted(base, first[0], first[1] * BIAS)
    twice = tilted(once, second[0], second[1] * BIAS)
    assert not isinstance(twice, TiltedMap) or not isinstance(twice.base, TiltedMap)
    np.testing.assert_allclose(twice.apply(h), TiltedMap(once, second[0], second[1] * BIAS).apply(h), rtol=1e-9)
