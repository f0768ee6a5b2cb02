"""A method of one's own keeps the contract, and goes where attemper's own methods go."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from attemper import Scores, compare, testing
from attemper.onnx import map_to_onnx

from data import draw


@pytest.fixture(scope="module")
def power():
    path = Path(__file__).parents[2] / "examples" / "own_method.py"
    spec = importlib.util.spec_from_file_location("own_method", path)
    sys.modules["own_method"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PowerScaling


@pytest.mark.slow
def test_it_keeps_the_contract(power, monkeypatch):
    monkeypatch.setattr(testing, "libraries", lambda: [np.asarray])  # it is written for NumPy
    testing.check_calibrator(power)


def test_it_is_compared_and_exported(power):
    val, test = (Scores.from_logits(*draw(400, 5, seed=seed)) for seed in (1, 2))
    rows = compare(val, test, [power(power=1.5), "ts", power(power=1.0)], confidence_level=None).rows
    assert rows[3].metrics["nll"] == pytest.approx(rows[2].metrics["nll"], rel=1e-9)  # with γ = 1 it is ts
    assert rows[1].metrics["nll"] != rows[2].metrics["nll"]
    assert map_to_onnx(power().fit(val), n_classes=5).ran.difference < 1e-6
    assert np.isfinite(power().fit(val).temperature_)
