"""What a trained network says about held-out images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.zoo.data import ImageSet
from experiments.zoo.training import Run

BATCH = 500
MC_PASSES = 100


def held_out_outputs(run: Run) -> dict[str, NDArray[np.float32]]:
    """Logits of test and validation images and, with dropout, the mean probabilities of 100 dropout passes."""
    parts = {"": run.data.test, "val_": run.data.validation}
    found = {prefix: part for prefix, part in parts.items() if part is not None}
    outputs = {f"{prefix}logits": logits(run, part) for prefix, part in found.items()}
    if run.dropouts:
        outputs |= {f"{prefix}mc_mean_probs": mc_mean_probs(run, part) for prefix, part in found.items()}
    return {name: tensor.cpu().numpy() for name, tensor in outputs.items()}


@torch.no_grad()
def logits(run: Run, part: ImageSet, *, sampling: bool = False) -> Tensor:
    """Float32 logits, batch norm with its running statistics; dropout active only when sampling."""
    run.net.eval()
    for layer in run.dropouts:
        layer.sampling = sampling
    outputs = []
    for images in torch.from_numpy(part.images).split(BATCH):
        x = run.view.test_batch(images.to(run.device)).contiguous(memory_format=torch.channels_last)
        outputs.append(run.net(x).float())
    return torch.cat(outputs)


def mc_mean_probs(run: Run, part: ImageSet) -> Tensor:
    """Mean softmax of many passes with dropout active."""
    mean = torch.zeros(len(part.labels), len(run.data.class_names), device=run.device)
    for _ in range(MC_PASSES):
        mean = mean + logits(run, part, sampling=True).softmax(1) / MC_PASSES
    return mean
