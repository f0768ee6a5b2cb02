"""Exports: a fitted map where the model runs, as a torch module, in a linear layer, or in an ONNX graph.

torch and onnx are imported when one of these names is first asked for, not with this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attemper.export.onnx import Export, map_to_onnx, onnx_calibrate
    from attemper.export.torch import to_torch
    from attemper.export.torch_folding import Folded, fold_into_linear, unfold

__all__ = ["Export", "Folded", "fold_into_linear", "map_to_onnx", "onnx_calibrate", "to_torch", "unfold"]

HOMES = {
    "Export": "attemper.export.onnx",
    "map_to_onnx": "attemper.export.onnx",
    "onnx_calibrate": "attemper.export.onnx",
    "to_torch": "attemper.export.torch",
    "Folded": "attemper.export.torch_folding",
    "fold_into_linear": "attemper.export.torch_folding",
    "unfold": "attemper.export.torch_folding",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
