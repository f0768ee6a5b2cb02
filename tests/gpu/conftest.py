"""Tensors on the CPU are treated as if they lay on a GPU; Triton's kernels run in its interpreter."""

from __future__ import annotations

import pytest

from attemper import arrays


@pytest.fixture(params=["plain", "triton"])
def sums(request, monkeypatch):
    """Which of the two ways to go through the logits is taken."""
    from attemper.gpu import rows

    monkeypatch.setattr(rows, "_has_triton", lambda device: request.param == "triton")
    return request.param


@pytest.fixture
def device(sums, monkeypatch):
    """Fits of torch tensors take the road of `attemper.gpu`."""
    monkeypatch.setattr(arrays, "GPUS", ("cpu",))
    return sums
