"""Prediction sets as a torch module: logits to a boolean mask, after the map.

Importing this module needs torch; ``import attemper`` does not import it.
"""

from __future__ import annotations

import importlib
from typing import Any

from attemper._checks import same_classes
from attemper.calibrators.exportable import Exportable, source_of
from attemper.errors import require
from attemper.kernels.set_mask import SetRule
from attemper.torch.module import CalibrationModule

torch: Any = require("torch", extra="torch", why="to make torch modules")
xp: Any = importlib.import_module("array_api_compat.torch")

__all__ = ["SetsModule", "sets_to_torch"]


def sets_to_torch(policy: Any, calibration: Exportable, *, group: Any = None, dim: int = -1) -> Any:
    """Return a module that turns logits into prediction sets: True for each class that is in the set.

    Parameters
    ----------
    policy : SetPolicy
        Without ``randomized``; with ``by="class"`` of the score "lac" alone.
    calibration : fitted calibrator, map, or path of a saved map
        The map whose probabilities the policy was fitted on.
    group : of a policy with thresholds of groups: the one whose threshold is taken
    dim : where the classes are

    Examples
    --------
    >>> import torch
    >>> from attemper import ScaleMap
    >>> from attemper.decisions import SetPolicy
    >>> policy = SetPolicy("lac", 0.9, (0.75,), (99,), n_classes=3, n_samples=99)
    >>> sets_to_torch(policy, ScaleMap(1.0))(torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    source = source_of(calibration)
    same_classes(source.n_classes, policy.n_classes, of="the map", where="the policy")
    return SetsModule(CalibrationModule(source, False, -1), policy.exported(group), int(dim), int(policy.n_classes))


class SetsModule(torch.nn.Module):  # type: ignore[misc]
    """A map and the rule of the sets: what `sets_to_torch` makes."""

    def __init__(self, calibration: CalibrationModule, rule: SetRule, dim: int, n_classes: int) -> None:
        super().__init__()
        self.calibration, self.rule, self.dim, self.n_classes = calibration, rule, dim, n_classes

    def forward(self, x: Any) -> Any:
        """Return which classes are in the set."""
        h = x.movedim(self.dim, -1)
        if h.shape[-1] != self.n_classes:
            raise ValueError(f"{h.shape[-1]} classes along dim {self.dim}; the policy is for {self.n_classes}")
        # Probabilities in half precision would be too coarse for a threshold.
        p = self.calibration(h if h.dtype == torch.float64 else h.to(torch.float32))
        return self.rule.mask(p, xp).movedim(-1, self.dim)

    def extra_repr(self) -> str:
        """Name the score."""
        return f"{self.rule.score}, {self.n_classes} classes"
