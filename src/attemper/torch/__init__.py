"""What runs on torch: ensembles and losses; sums on a GPU and maps as modules behind the scenes.

`rows` and `table` are the sums of the kernels where the logits already are: `fused` reads them in one Triton kernel per
pass, `plain` in chunks where there is no Triton. torch is imported when a name is first used, not with this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attemper.torch.ensembles import DeepEnsemble, EnsemblePrediction, MCDropout, average
    from attemper.torch.losses import MMCELoss, mmce_loss
    from attemper.torch.module import to_torch
    from attemper.torch.sets import sets_to_torch

__all__ = [
    "DeepEnsemble",
    "EnsemblePrediction",
    "MCDropout",
    "MMCELoss",
    "average",
    "mmce_loss",
    "sets_to_torch",
    "to_torch",
]

HOMES = {
    "MMCELoss": "losses",
    "mmce_loss": "losses",
    "sets_to_torch": "sets",
    "to_torch": "module",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"attemper.torch.{HOMES.get(name, 'ensembles')}"), name)


def __dir__() -> list[str]:
    return __all__
