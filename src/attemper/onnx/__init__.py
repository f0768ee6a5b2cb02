"""Maps in ONNX models; onnx is imported when a name is first used, not with this package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attemper.onnx.calibrate import Export, map_to_onnx, onnx_calibrate
    from attemper.onnx.sets import SetExport, sets_to_onnx

__all__ = ["Export", "SetExport", "map_to_onnx", "onnx_calibrate", "sets_to_onnx"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"attemper.onnx.{'sets' if 'set' in name.lower() else 'calibrate'}"), name)


def __dir__() -> list[str]:
    return __all__
