"""Calibrated choice among options in vLLM 0.32 and newer (Model Runner V2). NOT RUN with vLLM; see docs/serving.md.

ATTEMPER_MAP=letters.json ATTEMPER_OPTIONS=31,41,35,42 PYTHONPATH=examples/serving/language_model \
    vllm serve MODEL --logits_processors vllm_options:CalibratedOptionsProcessor

A request asks for it with ``"vllm_xargs": {"calibrated_options": 1}``, and for one token.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from options import CalibratedOptions
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor


class CalibratedOptionsProcessor(LogitsProcessor):
    """One map and one list of options for the whole server; each request says whether it wants them."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        options = [int(token) for token in os.environ["ATTEMPER_OPTIONS"].split(",")]
        self.calibrated = CalibratedOptions(os.environ["ATTEMPER_MAP"], options)
        self.asked = torch.zeros(req_states.max_num_reqs, dtype=torch.bool)
        self.asked_there = self.asked.to(req_states.device)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Note whether the request in this slot asks; whoever had the slot before is forgotten."""
        asks = bool((sampling_params.extra_args or {}).get("calibrated_options"))
        self.asked[req_idx] = asks
        return asks

    def apply_staged_writes(self) -> None:
        """Bring to the device what `add_request` noted."""
        self.asked_there.copy_(self.asked)

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Calibrate the rows of the requests that ask; `expanded_idx_mapping` tells whose row it is."""
        rows = torch.nonzero(self.asked_there[ctx.expanded_idx_mapping.long()]).squeeze(1)
        if len(rows):
            logits[rows] = self.calibrated(None, logits[rows])
        return logits
