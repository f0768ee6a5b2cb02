"""DenseNet and DenseNet-BC for CIFAR (Huang et al., arXiv 1608.06993)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.zoo.networks.layers import AveragedBody, conv


class DenseLayer(nn.Module):
    """Adds ``growth`` channels to those it is given."""

    def __init__(self, n_in: int, growth: int, bottleneck: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = n_in
        if bottleneck:
            layers, width = [nn.BatchNorm2d(n_in), nn.ReLU(inplace=True), conv(n_in, 4 * growth, 1)], 4 * growth
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True), conv(width, growth))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


class DenseNet(AveragedBody):
    """Three dense blocks; with ``bottleneck`` the BC kind (1 × 1 bottlenecks, transitions that halve the width)."""

    def __init__(self, n_channels: int, n_classes: int, depth: int, growth: int, bottleneck: bool) -> None:
        layers_per_block = (depth - 4) // (6 if bottleneck else 3)
        width = 2 * growth if bottleneck else 16
        layers: list[nn.Module] = [conv(n_channels, width)]
        for block in range(3):
            for _ in range(layers_per_block):
                layers.append(DenseLayer(width, growth, bottleneck))
                width += growth
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            if block < 2:
                n_out = width // 2 if bottleneck else width
                layers += [conv(width, n_out, 1), nn.AvgPool2d(2)]
                width = n_out
        super().__init__(layers, width, n_classes)
