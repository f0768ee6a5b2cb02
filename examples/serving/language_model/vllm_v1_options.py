"""The same as `vllm_options.py` for older vLLM (its V1 interface, documented from 0.11 to 0.29). NOT RUN with vLLM."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from options import CalibratedOptions
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class CalibratedOptionsProcessor(AdapterLogitsProcessor):
    """One map and one list of options for the whole server; each request says whether it wants them."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        options = [int(token) for token in os.environ["ATTEMPER_OPTIONS"].split(",")]
        self.calibrated = CalibratedOptions(os.environ["ATTEMPER_MAP"], options)

    def is_argmax_invariant(self) -> bool:
        """All other tokens are forbidden, so the most likely token may be another."""
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
        """Return a function of one request's logits, V, if the request asks for it."""
        if not (params.extra_args or {}).get("calibrated_options"):
            return None
        return lambda output_ids, logits: self.calibrated(None, logits[None])[0]
