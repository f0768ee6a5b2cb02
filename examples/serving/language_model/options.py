"""Calibrate the choice among answer options while a language model generates. Needs torch, and nothing else.

`CalibratedOptions` is a logits processor for transformers (`generate.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from attemper.calibrators import Calibrator
from attemper.maps import Map
from attemper.torch import to_torch


class CalibratedOptions:
    """Allow the options alone, with calibrated log-probabilities as their scores.

    Parameters
    ----------
    calibration : fitted calibrator, map, or path of a saved map
        Fitted on the logits of the same tokens, in the same order (`attemper.tokens.option_scores`).
    options : token ids, such as those of A, B, C, D
    """

    def __init__(self, calibration: Calibrator | Map | str | os.PathLike[str], options: Sequence[int]) -> None:
        if len(options) < 2 or len(set(options)) < len(options) or min(options) < 0:
            raise ValueError(f"options: {list(options)} came; expected two token ids or more, none twice")
        self.map = to_torch(calibration, log=True)
        if self.map.takes_probs:
            raise ValueError("the map was fitted on probabilities; fit it on logits")
        if self.map.n_classes not in (0, len(options)):  # 0: any number
            raise ValueError(f"options: {len(options)} came, but the map is for {self.map.n_classes}")
        self.options = torch.tensor(list(options))

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Return new scores, N×V: log-probabilities of the options, −inf for all other tokens."""
        if int(self.options.max()) >= scores.shape[1]:
            raise ValueError(f"options: token {int(self.options.max())}, but there are {scores.shape[1]} tokens")
        self.map.to(scores.device)
        self.options = self.options.to(scores.device)
        out = torch.full_like(scores, float("-inf"))
        out[:, self.options] = self.map(scores[:, self.options].float()).to(scores.dtype)
        return out
