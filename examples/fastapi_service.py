"""Serve a calibrator and its decision rule over HTTP: logits in, probabilities and who to refer out.

pip install attemper fastapi uvicorn
ATTEMPER_NET=net.attemper.json uvicorn --app-dir examples --factory fastapi_service:create_app
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field

import attemper


class Request(BaseModel):
    """Logits of the classifier, a list of numbers for each case."""

    model_config = ConfigDict(strict=True, extra="forbid")
    logits: list[list[float]] = Field(min_length=1, max_length=1024)


def create_app(path: str | None = None) -> FastAPI:
    """Load the calibrator once; a file that is missing or wrong ends the start, not a request."""
    net = attemper.load(path or os.environ["ATTEMPER_NET"])
    app = FastAPI(title="calibrated classifier")

    @app.post("/predict")
    def predict(request: Request) -> list[dict[str, Any]]:
        try:
            table = attemper.apply(net, np.array(request.logits))
        except ValueError as error:  # every error of attemper is one, and names what to change
            raise HTTPException(422, str(error)) from None
        columns = {name: column.tolist() for name, column in table.items()}
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"method": net.method, "classes": net.classes_.tolist(), "report": vars(net.report_)}

    return app
