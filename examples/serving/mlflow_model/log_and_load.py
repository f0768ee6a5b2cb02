"""Log a network and its map to MLflow, wherever MLFLOW_TRACKING_URI says; load them back and compare.

python examples/serving/mlflow_model/log_and_load.py network.onnx map.json test.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd

import attemper

HERE = Path(__file__).parent


def main(network: str, calibration: str, test: str) -> str:
    """Return the address of the logged model."""
    cal = attemper.load(calibration)
    mlflow.set_experiment("calibration")
    with np.load(test) as data:
        inputs, logits = data["inputs"], data["logits"]
    expected = pd.DataFrame(cal.predict_proba(logits), columns=[str(name) for name in cal.classes_])
    with mlflow.start_run():
        mlflow.log_params({"method": cal.method, **{k: v for k, v in cal.summary().items() if np.isscalar(v)}})
        mlflow.log_metric("val_nll", cal.fit_report_.nll)
        logged = mlflow.pyfunc.log_model(
            name="calibrated",
            python_model=str(HERE / "model.py"),
            code_paths=[str(HERE / "calibrated_network.py")],
            artifacts={"network": network, "map": calibration},
            signature=mlflow.models.infer_signature(inputs, expected),
            pip_requirements=[f"attemper=={attemper.__version__}", "onnxruntime", "pandas"],
        )
    loaded = mlflow.pyfunc.load_model(logged.model_uri)
    np.testing.assert_allclose(loaded.predict(inputs), expected, atol=1e-6)
    return str(logged.model_uri)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
