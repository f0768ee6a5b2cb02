"""Tensors on the CPU are treated as if they lay on a GPU; Triton's kernels run in its interpreter."""

from __future__ import annotations

import pytest

from attemper.data import arrays


def choose(monkeypatch, way):
    from attemper.torch import fused, rows

    monkeypatch.setattr(rows, "_has_triton", lambda device: way != "plain")
    if way == "triton, many strides":  # as rows of many columns are walked along
        monkeypatch.setattr(fused, "FEW_ROWS", 0)
        for tile in ("SCAN", "NLL", "RESTS"):
            monkeypatch.setattr(fused, tile, fused.Tile(32, 4))
    return way


TRITON, STRIDES = (pytest.param(way, marks=pytest.mark.slow) for way in ("triton", "triton, many strides"))


@pytest.fixture(params=["plain", TRITON, STRIDES])
def sums(request, monkeypatch):
    """Choose one of the ways to go through the logits."""
    return choose(monkeypatch, request.param)


@pytest.fixture(params=["plain", TRITON])
def device(request, monkeypatch):
    """Let fits of torch tensors take the road of `attemper.torch`."""
    monkeypatch.setattr(arrays, "GPUS", ("cpu",))
    return choose(monkeypatch, request.param)
