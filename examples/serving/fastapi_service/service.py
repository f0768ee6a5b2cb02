"""A service that answers with calibrated probabilities, and with whom to refer. Needs fastapi, uvicorn, onnxruntime.

ATTEMPER_MODEL=calibrated.onnx ATTEMPER_POLICY=policy.json \
    uvicorn --app-dir examples/serving/fastapi_service --factory service:create_app
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from attemper.decisions import Policy

MAX_ROWS = 1024


class Question(BaseModel):
    """Inputs of the network, a list of numbers each. Text and true/false are no numbers."""

    model_config = ConfigDict(strict=True, extra="forbid")
    rows: list[list[float]] = Field(min_length=1, max_length=MAX_ROWS)


class Answer(BaseModel):
    """What the network thinks of each row."""

    probabilities: list[list[float]]  # calibrated
    prediction: list[str]  # the most probable class
    confidence: list[float]  # its probability
    refer: list[bool]  # to a specialist; the others are decided as predicted


class CalibratedModel:
    """What `attemper export` wrote, in onnxruntime."""

    def __init__(self, path: str) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        told = self.session.get_modelmeta().custom_metadata_map
        self.calibration = {k.removeprefix("attemper."): v for k, v in told.items() if k.startswith("attemper.")}
        if not self.calibration:
            raise RuntimeError(f"{path}: is not calibrated; make it so with: attemper export MAP {path} -o NEW.onnx")
        (self.input,) = self.session.get_inputs()
        self.width = self.input.shape[1]

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Return probabilities, also where the calibrated output holds logits or log-probabilities."""
        (out,) = self.session.run([self.calibration["output"]], {self.input.name: x})
        out = out.astype(np.float64)
        if self.calibration["output_kind"] == "probs":
            return out
        e = np.exp(out - out.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def as_inputs(rows: list[list[float]], width: int) -> np.ndarray:
    """Return the rows as an array, or tell which of them is wrong, and how."""
    for i, row in enumerate(rows):
        if len(row) != width:
            raise HTTPException(422, f"rows: row {i} has {len(row)} numbers; the network takes {width}")
    with np.errstate(over="ignore"):
        x = np.array(rows, dtype=np.float32)
    if not np.isfinite(x).all():
        i, j = np.argwhere(~np.isfinite(x))[0]
        raise HTTPException(422, f"rows: row {i}, column {j} is {rows[i][j]}; expected a number of single precision")
    return x


def create_app(model_path: str | None = None, policy_path: str | None = None) -> FastAPI:
    """Load the model and the policy, once; a file that is missing or wrong ends the start, not a request."""
    model = CalibratedModel(model_path or os.environ["ATTEMPER_MODEL"])
    policy = Policy.load(policy_path or os.environ["ATTEMPER_POLICY"])
    n_classes = int(model.calibration["n_classes"])
    if policy.n_classes != n_classes:
        raise RuntimeError(f"the policy is for {policy.n_classes} classes, the model has {n_classes}")
    app = FastAPI(title="calibrated classifier")

    @app.exception_handler(RequestValidationError)
    def tell(request: Request, error: RequestValidationError) -> JSONResponse:
        """Say where and what, without the input: it may be long, or hold NaN, which JSON has not."""
        found = [f"{'.'.join(str(part) for part in e['loc'][1:]) or 'body'}: {e['msg']}" for e in error.errors()]
        return JSONResponse({"detail": "; ".join(found[:3])}, status_code=422)

    # Without `async`: FastAPI runs these on threads, so that a long batch does not hold up the others.
    @app.post("/predict")
    def predict(question: Question) -> Answer:
        probs = model.probabilities(as_inputs(question.rows, model.width))
        decisions = policy.refer_or_decide(probs)
        return Answer(
            probabilities=probs.tolist(),
            prediction=[policy.name(k) for k in decisions.prediction],
            confidence=decisions.confidence.tolist(),
            refer=decisions.refer.tolist(),
        )

    @app.get("/health")
    def health() -> dict[str, Any]:
        told = {"rule": policy.rule(), "promise": policy.promise(), "rationale": policy.rationale}
        return {"status": "ok", "calibration": model.calibration, "policy": told}

    return app
