"""Other packages' calibrators, called quietly and in one thread; peers.txt has their versions."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path

import numpy as np


def load(name):
    """Import a peer's module. numba looks for the package coverage, and must not find benchmarks/coverage.py."""
    here, before = Path(__file__).resolve().parent, sys.path[:]
    sys.path[:] = [folder for folder in before if Path(folder or ".").resolve() != here]
    try:
        module = importlib.import_module(name)
        with contextlib.suppress(ImportError):
            importlib.import_module("numba")
        return module
    finally:
        sys.path[:] = before


def probmetrics_on_logits(name, h, y, **settings):
    """Fit one of probmetrics' calibrators to logits; return the function of its log-probabilities."""
    calibrators, distributions = load("probmetrics.calibrators"), load("probmetrics.distributions")
    torch = load("torch")
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        fitted = calibrators.get_calibrator(name, **settings)
        fitted.fit_torch(distributions.CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))

    def predict_log_proba(logits):
        said = fitted.predict_proba_torch(distributions.CategoricalLogits(torch.as_tensor(logits)))
        return np.log(np.maximum(said.get_probs().numpy(), 1e-300))

    return predict_log_proba
