"""What several networks are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Inverted dropout from a generator of its own; `sampling` keeps it active at test time (MC dropout)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None
        self.sampling = False

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0 or not (self.training or self.sampling):
            return x
        keep = torch.rand(x.shape, device=x.device, generator=self.generator) >= self.rate
        return x * keep / (1 - self.rate)


def conv(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Convolution that keeps the size (or divides it by the stride), without bias: batch norm follows."""
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


def conv_bn(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    return nn.Sequential(conv(n_in, n_out, size, stride), nn.BatchNorm2d(n_out))


class AveragedBody(nn.Module):
    """Convolutions, the mean over all pixels, one linear layer."""

    def __init__(self, body: list[nn.Module], width: int, n_classes: int) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(*body), nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))
