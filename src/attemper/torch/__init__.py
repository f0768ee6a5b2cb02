"""What runs on torch: modules, ensembles and losses; and the sums of a fit where the logits are, on a GPU.

`rows` is the backend: `fused` reads the logits in one Triton kernel per pass, `plain` in chunks where there is no
Triton. torch is imported when a name is first used, not with this package.
"""

from __future__ import annotations

import importlib
from typing import Any

NAMES = {
    "ensembles": ("DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"),
    "losses": ("MMCELoss", "mmce_loss"),
}


def __getattr__(name: str) -> Any:
    for module, names in NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"attemper.torch.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
