"""What runs on torch: ensembles, losses and metrics; sums on a GPU, maps as modules and folding behind the scenes.

`rows` and `table` are the sums of the kernels where the logits already are: `fused` reads them in one Triton kernel per
pass, `plain` in chunks where there is no Triton. torch is imported when a name is first used, not with this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attemper.torch import metrics as metrics
    from attemper.torch.ensembles import DeepEnsemble, EnsemblePrediction, MCDropout, average
    from attemper.torch.folding import Folded, fold_into_linear, unfold
    from attemper.torch.losses import MMCELoss, mmce_loss
    from attemper.torch.module import to_torch
    from attemper.torch.sets import sets_to_torch

__all__ = [
    "DeepEnsemble",
    "EnsemblePrediction",
    "Folded",
    "MCDropout",
    "MMCELoss",
    "average",
    "fold_into_linear",
    "mmce_loss",
    "sets_to_torch",
    "to_torch",
    "unfold",
]

HOMES = {
    "Folded": "folding",
    "MMCELoss": "losses",
    "fold_into_linear": "folding",
    "mmce_loss": "losses",
    "sets_to_torch": "sets",
    "to_torch": "module",
    "unfold": "folding",
}


def __getattr__(name: str) -> Any:
    if name == "metrics":  # needs torchmetrics too
        return importlib.import_module("attemper.torch.metrics")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"attemper.torch.{HOMES.get(name, 'ensembles')}"), name)


def __dir__() -> list[str]:
    return __all__
