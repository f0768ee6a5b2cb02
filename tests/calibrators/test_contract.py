"""Every method of the registry passes every check of `attemper.testing`."""

import pytest

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
