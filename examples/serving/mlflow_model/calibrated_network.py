"""A network and its map as one thing that predicts. Needs onnxruntime; MLflow is not needed here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

import attemper


class CalibratedNetwork:
    """An ONNX network that gives logits, followed by a map: both files stay what they were."""

    def __init__(self, network: str | Path, calibration: str | Path) -> None:
        self.session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
        self.calibrator = attemper.load(calibration)

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """Return calibrated probabilities, N×K."""
        (logits,) = self.session.run(None, {self.session.get_inputs()[0].name: np.asarray(inputs, dtype=np.float32)})
        return np.asarray(self.calibrator.predict_proba(logits))
