"""The networks, each a function of the numbers of channels and classes, the dropout rate and the side of the images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - its customary name
from torch import Tensor, nn

__all__ = ["NETWORKS", "build"]


def conv(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Convolution that keeps the size, or divides it by the stride."""
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


def conv_bn(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    return nn.Sequential(conv(n_in, n_out, size, stride), nn.BatchNorm2d(n_out))


def averaged(layers: list[nn.Module], width: int, n_classes: int, dropout: float = 0.0) -> nn.Sequential:
    """Convolutions, the mean over all pixels, one linear layer."""
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(width, n_classes)]
    return nn.Sequential(*layers, *head)


def lenet5(c: int, k: int, dropout: float, side: int) -> nn.Module:
    """LeNet-5 (LeCun et al. 1998) with ReLU and max pooling, for 28 × 28 images."""
    return nn.Sequential(
        nn.Conv2d(c, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(120, 84), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(84, k),
    )  # fmt: skip


def vgg16(c: int, k: int, dropout: float, side: int) -> nn.Module:
    """VGG-16 (arXiv 1409.1556) with batch norm; larger images than 32 × 32 are averaged, with a dropout of 0.5."""
    layers: list[nn.Module] = []
    for width, n in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(n):
            layers += [conv_bn(c, width), nn.ReLU(inplace=True)]
            c = width
        layers.append(nn.MaxPool2d(2))
    if side > 32:
        return averaged(layers, 512, k, 0.5)
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(512, 512), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(512, k))


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions; the shortcut has no parameters (subsample, pad with zero channels)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(n_in, n_out, 3, stride), nn.ReLU(inplace=True), conv_bn(n_out, n_out))
        self.stride, self.new_channels = stride, n_out - n_in

    def forward(self, x: Tensor) -> Tensor:
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(self.body(x) + shortcut)


def resnet110(c: int, k: int, dropout: float, side: int) -> nn.Module:
    """Residual network for CIFAR (arXiv 1512.03385): three stages of 18 blocks."""
    layers: list[nn.Module] = [conv_bn(c, 16), nn.ReLU(inplace=True)]
    width = 16
    for n_out in (16, 32, 64):
        for _ in range(18):
            layers.append(BasicBlock(width, n_out, 1 if n_out == width else 2))
            width = n_out
    return averaged(layers, width, k)


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions; the shortcut is a convolution where the shape changes."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        inner = (
            conv_bn(n_in, width, 1),
            nn.ReLU(inplace=True),
            conv_bn(width, width, 3, stride),
            nn.ReLU(inplace=True),
        )
        self.body = nn.Sequential(*inner, conv_bn(width, 4 * width, 1))
        self.shortcut = nn.Identity() if (n_in, stride) == (4 * width, 1) else conv_bn(n_in, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet200(c: int, k: int, dropout: float, side: int) -> nn.Module:
    """Residual network of bottlenecks (arXiv 1512.03385): 3, 24, 36 and 3 of them."""
    layers: list[nn.Module] = [conv_bn(c, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    n_in = 64
    for stage, n_blocks in enumerate((3, 24, 36, 3)):
        for block in range(n_blocks):
            layers.append(Bottleneck(n_in, 64 * 2**stage, 2 if stage and not block else 1))
            n_in = 256 * 2**stage
    return averaged(layers, n_in, k)


class DenseLayer(nn.Module):
    """Adds ``growth`` channels to its input."""

    def __init__(self, n_in: int, growth: int, bottleneck: bool) -> None:
        super().__init__()
        width = 4 * growth if bottleneck else n_in
        first = [nn.BatchNorm2d(n_in), nn.ReLU(inplace=True), conv(n_in, width, 1)] if bottleneck else []
        self.body = nn.Sequential(*first, nn.BatchNorm2d(width), nn.ReLU(inplace=True), conv(width, growth))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet(c: int, k: int, depth: int, bottleneck: bool, growth: int = 12) -> nn.Module:
    """DenseNet, or DenseNet-BC with bottlenecks (arXiv 1608.06993): three dense blocks."""
    width = 2 * growth if bottleneck else 16
    layers: list[nn.Module] = [conv(c, width)]
    for block in range(3):
        for _ in range((depth - 4) // (6 if bottleneck else 3)):
            layers.append(DenseLayer(width, growth, bottleneck))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        if block < 2:
            n_out = width // 2 if bottleneck else width
            layers += [conv(width, n_out, 1), nn.AvgPool2d(2)]
            width = n_out
    return averaged(layers, width, k)


class WideBlock(nn.Module):
    """Pre-activation block of two 3 × 3 convolutions."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU(inplace=True))
        second = (nn.BatchNorm2d(n_out), nn.ReLU(inplace=True), conv(n_out, n_out))
        self.body = nn.Sequential(conv(n_in, n_out, 3, stride), *second)
        self.project = None if n_in == n_out else conv(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        return self.body(active) + (x if self.project is None else self.project(active))


def wideresnet28x10(c: int, k: int, dropout: float, side: int) -> nn.Module:
    """Wide residual network (arXiv 1605.07146), without dropout: three stages of four blocks."""
    layers: list[nn.Module] = [conv(c, 16)]
    width = 16
    for stage, n_out in enumerate((160, 320, 640)):
        for block in range(4):
            layers.append(WideBlock(width, n_out, 2 if stage and not block else 1))
            width = n_out
    return averaged([*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True)], width, k)


NETWORKS: dict[str, Callable[[int, int, float, int], nn.Module]] = {
    "lenet5": lenet5,
    "vgg16": vgg16,
    "resnet110": resnet110,
    "resnet200": resnet200,
    "densenet40": lambda c, k, dropout, side: densenet(c, k, 40, bottleneck=False),
    "densenetbc100": lambda c, k, dropout, side: densenet(c, k, 100, bottleneck=True),
    "wideresnet28x10": wideresnet28x10,
}


def build(
    arch: str, c: int, k: int, side: int, *, dropout: float, seed: int, residual_start: str, weights: Path | None
) -> nn.Module:
    """Build a network with random weights; or "efficientnetlite0" with published weights and a new last layer.

    ``residual_start`` is the weight of the last batch norm of each residual branch, "zero" or "one".
    """
    torch.manual_seed(seed)
    if arch == "efficientnetlite0":
        from efficientnet_lite_pytorch import EfficientNet

        net = EfficientNet.from_name("efficientnet-lite0")
        net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        net._fc, net._dropout = nn.Linear(net._fc.in_features, k), nn.Dropout(0.3)
        return net
    net = NETWORKS[arch](c, k, dropout, side)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if residual_start == "zero" and isinstance(module, BasicBlock | Bottleneck):
            nn.init.zeros_(module.body[-1][1].weight)
    return net
