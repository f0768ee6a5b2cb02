"""What MLflow runs when the model is loaded: code, not a pickle ("models from code")."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd
from calibrated_network import CalibratedNetwork


class CalibratedModel(mlflow.pyfunc.PythonModel):
    """Probabilities of each class, as a table."""

    def load_context(self, context: Any) -> None:
        """Open the two files that were logged."""
        self.network = CalibratedNetwork(context.artifacts["network"], context.artifacts["map"])

    # MLflow reads annotations as a schema; that of the input is logged instead.
    def predict(self, context, model_input, params=None) -> pd.DataFrame:
        """Return one row for each input, one column for each class."""
        probs = self.network.predict_proba(np.asarray(model_input))
        return pd.DataFrame(probs, columns=[str(name) for name in self.network.calibrator.classes_])


mlflow.models.set_model(CalibratedModel())
