"""How long an update of the classes in attemper.torch.metrics takes on a GPU, and how much memory, beside torchmetrics.

    python benchmarks/gpu_metrics.py

Rows of tables, pixels and tokens as they come out of a network; a copy of the same tensor for comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torchmetrics.classification import MulticlassCalibrationError

from attemper import metrics
from attemper.torch import metrics as classes
from attemper.torch.metrics import NLL, Accuracy, Brier, CalibrationError

REPEATS = 20


def milliseconds(work: Callable[[], Any]) -> float:
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPEATS):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEATS * 1e3


def check_that_nothing_waits() -> None:
    """Update metrics of every kind where a wait for the GPU is an error, and compare them with the functions."""
    logits, y, w = torch.randn(10_000, 5, dtype=torch.float64), torch.randint(5, (10_000,)), torch.rand(10_000)
    for kind in ("top", "classwise", "full", "top_label"):
        metric = CalibrationError(kind=kind, n_classes=5, input="logits").to("cuda")
        batches = [[part.cuda() for part in parts] for parts in zip(*(each.chunk(4) for each in (logits, y, w)))]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches:
                metric.update(*batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        expected = metrics.ece(y, logits, kind=kind, input="logits", sample_weight=w)
        assert abs(metric.compute().item() - expected) < 1e-12, kind


def main() -> None:
    check_that_nothing_waits()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    inputs = [
        ("rows", (1_000_000, 10), torch.float32, None),
        ("pixels", (8, 21, 512, 512), torch.float16, 1),
        ("tokens", (4, 1024, 32_000), torch.bfloat16, -1),
    ]
    print("| logits | shape | copy | ECE | class-wise ECE | NLL | Brier | accuracy | torchmetrics' ECE |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, shape, dtype, axis in inputs:
        dim = (1 if axis is None else axis) % len(shape)
        preds = torch.randn(shape, device="cuda", dtype=dtype)
        target = torch.randint(shape[dim], (*shape[:dim], *shape[dim + 1 :]), device="cuda")
        options = {"input": "logits", "axis": axis}
        made = [
            CalibrationError(**options),
            CalibrationError(kind="classwise", n_classes=shape[dim], **options),
            *(mean(**options) for mean in (NLL, Brier, Accuracy)),
            MulticlassCalibrationError(shape[dim], n_bins=15, validate_args=False),
        ]
        found = [milliseconds(preds.clone)]
        for metric in made:
            metric = metric.to("cuda")
            given = preds.movedim(dim, -1).flatten(0, -2) if metric is made[-1] else preds
            wanted = target.flatten() if metric is made[-1] else target
            found.append(milliseconds(lambda m=metric, g=given, w=wanted: m.update(g, w)))
            metric.reset()
        cells = " | ".join(f"{ms:.2f} ms" for ms in found)
        print(f"| {name}, {str(dtype).removeprefix('torch.')} | {shape} | {cells} |", flush=True)
    preds = torch.randn(1_000_000, 10, device="cuda")
    target = torch.randint(10, (1_000_000,), device="cuda")
    for spread in (1, 256, 1024, 4096, 16_384, 65_536):
        classes.SPREAD = spread
        metric = CalibrationError(input="logits").to("cuda")
        print(f"SPREAD = {spread}: {milliseconds(lambda m=metric: m.update(preds, target)):.2f} ms")


if __name__ == "__main__":
    main()
