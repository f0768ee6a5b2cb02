"""Residual networks (He et al., arXiv 1512.03385): the narrow one for CIFAR, and bottlenecks for large images."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - its customary name
from torch import Tensor, nn

from experiments.zoo.networks.layers import AveragedBody, conv_bn


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions; the shortcut is parameter-free (subsample, pad with zero channels)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = conv_bn(n_in, n_out, 3, stride), conv_bn(n_out, n_out)
        self.stride, self.new_channels = stride, n_out - n_in

    @property
    def last_norm(self) -> nn.Module:
        """The batch norm that ends the residual branch."""
        return self.second[1]

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.new_channels:
            shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(self.second(F.relu(self.first(x), inplace=True)) + shortcut)


class CifarResNet(AveragedBody):
    """Three stages of basic blocks, 16, 32 and 64 channels wide."""

    def __init__(self, n_channels: int, n_classes: int, blocks_per_stage: int) -> None:
        layers: list[nn.Module] = [conv_bn(n_channels, 16), nn.ReLU(inplace=True)]
        width = 16
        for n_out in (16, 32, 64):
            for _ in range(blocks_per_stage):
                layers.append(BasicBlock(width, n_out, 1 if n_out == width else 2))
                width = n_out
        super().__init__(layers, width, n_classes)


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions; the shortcut is a convolution where the shape changes."""

    EXPANSION = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = self.EXPANSION * width
        self.body = nn.Sequential(
            conv_bn(n_in, width, 1), nn.ReLU(inplace=True), conv_bn(width, width, 3, stride), nn.ReLU(inplace=True),
            conv_bn(width, n_out, 1),
        )  # fmt: skip
        self.shortcut = nn.Identity() if n_in == n_out and stride == 1 else conv_bn(n_in, n_out, 1, stride)

    @property
    def last_norm(self) -> nn.Module:
        """The batch norm that ends the residual branch."""
        return self.body[-1][1]

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class BottleneckResNet(AveragedBody):
    """A 7 × 7 stem, max pooling, four stages of bottlenecks."""

    def __init__(self, n_channels: int, n_classes: int, blocks: tuple[int, ...]) -> None:
        layers: list[nn.Module] = [conv_bn(n_channels, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        n_in = 64
        for stage, n_blocks in enumerate(blocks):
            width = 64 * 2**stage
            for block in range(n_blocks):
                layers.append(Bottleneck(n_in, width, 2 if stage and not block else 1))
                n_in = Bottleneck.EXPANSION * width
        super().__init__(layers, n_in, n_classes)
