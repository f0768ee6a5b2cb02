"""Exports: a fitted map where the model runs, as a torch module or in an ONNX graph.

torch and onnx are imported when one of these names is first asked for, not with this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attemper.onnx.calibrate import Export, map_to_onnx, onnx_calibrate
    from attemper.onnx.sets import SetExport, sets_to_onnx
    from attemper.torch.module import to_torch
    from attemper.torch.sets import sets_to_torch

__all__ = [
    "Export",
    "SetExport",
    "map_to_onnx",
    "onnx_calibrate",
    "sets_to_onnx",
    "sets_to_torch",
    "to_torch",
]

HOMES = {
    "Export": "attemper.onnx.calibrate",
    "map_to_onnx": "attemper.onnx.calibrate",
    "onnx_calibrate": "attemper.onnx.calibrate",
    "SetExport": "attemper.onnx.sets",
    "sets_to_onnx": "attemper.onnx.sets",
    "sets_to_torch": "attemper.torch.sets",
    "to_torch": "attemper.torch.module",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
