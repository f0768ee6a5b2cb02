"""scikit-learn's own tests of its calibration, run with attemper's classes in their place (`attemper_shim`)."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import sklearn
from sklearn.isotonic import IsotonicRegression

from attemper import IsotonicCalibration

HERE = Path(__file__).parent
REQUIRED = 90  # tests that a version of scikit-learn must have for this to mean anything


VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))


@pytest.mark.slow
@pytest.mark.skipif(VERSION < (1, 9), reason="the deviations are listed for the tests of scikit-learn 1.9 and later")
def test_scikit_learns_tests_of_calibration_pass(tmp_path):
    """A deviation that is listed must fail: one that passes is an error of the list."""
    paths = [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "pytest", "-p", "attemper_shim", "--pyargs", "sklearn.tests.test_calibration"]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--junitxml=found.xml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    cases = list(ElementTree.parse(tmp_path / "found.xml").iter("testcase"))
    passed = [case for case in cases if not len(case)]
    deviating = [case for case in cases if any(part.get("type") == "pytest.xfail" for part in case)]
    assert len(passed) >= REQUIRED, f"{len(passed)} tests of scikit-learn {sklearn.__version__}"
    assert len(deviating) <= 3


def test_isotonic_is_scikit_learns_on_the_rows_it_was_fitted_to():
    rng = np.random.default_rng(0)
    d = rng.normal(size=300)
    y = (d + rng.logistic(size=300) > 0).astype(int)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(d, y).predict(d)
    ours = IsotonicCalibration().fit(np.column_stack([0 * d, d]), y).predict_proba(np.column_stack([0 * d, d]))[:, 1]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
