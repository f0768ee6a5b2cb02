"""Agreement with others: scikit-learn and its own tests of calibration, SciPy, mpmath."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from attemper import CalibratedClassifier, IsotonicCalibration, MatrixScaling, PlattScaling, TemperatureScaling
from conftest import draw

HERE = Path(__file__).parent
REQUIRED = 90  # tests that a version of scikit-learn must have for this to mean anything
DATA = draw(700, 4, bias=0.4)


@pytest.mark.slow
def test_scikit_learns_own_tests_pass(tmp_path):
    """A deviation that is listed must fail: one that passes is an error of the list (`attemper_shim`)."""
    paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "pytest", "-p", "attemper_shim", "--pyargs", "sklearn.tests.test_calibration"]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--junitxml=found.xml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    cases = list(ElementTree.parse(tmp_path / "found.xml").iter("testcase"))
    deviating = [case for case in cases if any(part.get("type") == "pytest.xfail" for part in case)]
    assert len([case for case in cases if not len(case)]) >= REQUIRED
    assert len(deviating) <= 1


def test_temperature_of_scipy():
    def nll(log_t):
        return -log_softmax(DATA.h / np.exp(log_t), axis=1)[np.arange(700), DATA.y] @ (DATA.w / DATA.w.sum())

    best = minimize_scalar(nll, bounds=(-3, 3), options={"xatol": 1e-9})
    fitted = TemperatureScaling().fit(DATA.h, DATA.y, DATA.w)
    assert np.log(fitted.temperature_) == pytest.approx(best.x, abs=1e-6)
    assert fitted.report_.nll == pytest.approx(best.fun, abs=1e-12)


def test_matrix_scaling_is_multinomial_regression():
    """Without a ridge it is scikit-learn's, on the logits as features."""
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(DATA.h, DATA.y)
    ours = MatrixScaling(l2=0, centring="none").fit(DATA.h, DATA.y)
    np.testing.assert_allclose(ours.predict_proba(DATA.h), theirs.predict_proba(DATA.h), atol=2e-5)


class Logits(LogisticRegression):
    """A classifier that is fitted: its decision function is its input."""

    def __init__(self):
        super().__init__()
        self.classes_, self.n_features_in_ = np.arange(2), 2

    def decision_function(self, X):
        return X[:, 1] - X[:, 0]


@pytest.mark.parametrize(("theirs", "ours", "tolerance"), [
    ("sigmoid", PlattScaling(), 1e-5),
    ("isotonic", IsotonicCalibration(), 1e-6),
    ("temperature", TemperatureScaling(), 1e-5),
])  # fmt: skip
def test_two_classes_are_those_of_scikit_learn(theirs, ours, tolerance):
    data = draw(600, 2, bias=0.5)
    frozen = FrozenEstimator(Logits())
    their = CalibratedClassifierCV(frozen, method=theirs).fit(data.h, data.y)
    our = CalibratedClassifier(frozen, ours).fit(data.h, data.y)
    np.testing.assert_allclose(our.predict_proba(data.h), their.predict_proba(data.h), atol=tolerance)
