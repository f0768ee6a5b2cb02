"""Every method of the registry passes every check of `attemper.testing`."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.exceptions import DataConversionWarning

from attemper import AttemperError, AttemperWarning
from attemper.calibrators import METHODS
from attemper.testing import CHECKS

# Without a penalty some of the checks have no finite optimum: test_affine.py.
PENALTY = {"l2": 0.01, "prior_mean": "temperature"}
SETTINGS = {
    "ats": [{}, {"loss": "reference"}, {"theta": 0.02}],
    "bayes": [{}, {"labels": "noisy"}, {"labels": "noisy", "noise": "classwise"}],
    "structured": [{}, {"labels": "noisy"}],
    "platt": [{}, {"targets": "labels"}],
    "histogram": [{}, {"strategy": "uniform"}],
    "vector": [PENALTY],
    "matrix": [PENALTY],
}
SLOW = [("bayes", "classwise"), ("structured", "noisy")]  # half of the time of all checks
CALIBRATORS = [
    pytest.param(
        cls(**parameters),
        id=str(cls(**parameters)),
        marks=pytest.mark.slow if any(name == of and word in parameters.values() for of, word in SLOW) else (),
    )
    for name, cls in METHODS.items()
    for parameters in SETTINGS.get(name, [{}])
]


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
def test_contract(check, calibrator):
    check(calibrator)


ANYTHING = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.integers(-3, 3),
    st.lists(st.one_of(st.floats(), st.integers(), st.text(max_size=2), st.none()), max_size=4),
    st.lists(st.lists(st.floats(), max_size=3), max_size=3),
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.bool_, np.complex64, np.dtype("U2")]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
)


@pytest.mark.parametrize("calibrator", [*CALIBRATORS[:2], *CALIBRATORS[5:]])
@given(X=ANYTHING, y=ANYTHING, w=ANYTHING)
def test_only_attemper_errors_escape(calibrator, X, y, w):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        warnings.simplefilter("ignore", DataConversionWarning)
        try:
            fitted = calibrator.fit(X, y, w)
        except AttemperError:
            return
        assert np.isfinite(fitted.predict_proba(X)).all()


@pytest.mark.parametrize("calibrator", [*CALIBRATORS[:2], *CALIBRATORS[5:]])
@given(
    h=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 5), st.integers(2, 4)),
        elements=st.floats(width=16),
    ),
    seed=st.integers(0, 1000),
    w=st.one_of(st.none(), st.lists(st.floats(), min_size=5, max_size=5)),
)
def test_any_floats_fit_or_are_told(calibrator, h, seed, w):
    y = np.random.default_rng(seed).integers(0, h.shape[1], len(h))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        try:
            fitted = calibrator.fit(h, y, None if w is None else w[: len(h)])
        except AttemperError as error:
            assert not np.isfinite(h).all() or "sample_weight" in str(error) or "(a masked class)" in str(error)
            return
        p = fitted.predict_proba(h)
    assert np.isfinite(p).all()
    if fitted.map_.keeps_arg_max:
        assert (p.argmax(axis=1) == h.argmax(axis=1)).all()
