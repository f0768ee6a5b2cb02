"""Wide residual networks (Zagoruyko and Komodakis, arXiv 1605.07146), without dropout."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.zoo.networks.layers import AveragedBody, conv


class WideBlock(nn.Module):
    """Pre-activation block of two 3 × 3 convolutions."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            conv(n_in, n_out, 3, stride), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True), conv(n_out, n_out)
        )
        self.project = None if n_in == n_out else conv(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        return self.body(active) + (x if self.project is None else self.project(active))


class WideResNet(AveragedBody):
    """Three stages, 16, 32 and 64 times ``factor`` channels wide."""

    def __init__(self, n_channels: int, n_classes: int, depth: int, factor: int) -> None:
        layers: list[nn.Module] = [conv(n_channels, 16)]
        width = 16
        for stage, n_out in enumerate((16 * factor, 32 * factor, 64 * factor)):
            for block in range((depth - 4) // 6):
                layers.append(WideBlock(width, n_out, 2 if stage and not block else 1))
                width = n_out
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        super().__init__(layers, width, n_classes)
