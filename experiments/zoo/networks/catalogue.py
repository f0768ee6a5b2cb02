"""All networks by name, and how their weights begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from attemper.errors import InputError
from experiments.zoo.networks.densenet import DenseNet
from experiments.zoo.networks.lenet import LeNet5
from experiments.zoo.networks.resnet import BasicBlock, Bottleneck, BottleneckResNet, CifarResNet
from experiments.zoo.networks.vgg import VGG16
from experiments.zoo.networks.wide_resnet import WideResNet


@dataclass(frozen=True)
class Architecture:
    """How to build a network from numbers of channels and classes and the dropout rate, and what it can take."""

    build: Callable[[int, int, float], nn.Module]
    has_dropout: bool = False
    sides: tuple[int, int] | None = None  # smallest and largest image side, where a fully connected layer fixes it


ARCHITECTURES: dict[str, Architecture] = {
    "lenet5": Architecture(LeNet5, has_dropout=True, sides=(28, 31)),
    "vgg16": Architecture(VGG16, has_dropout=True, sides=(32, 63)),
    "resnet110": Architecture(lambda c, k, _: CifarResNet(c, k, blocks_per_stage=18)),
    "densenet40": Architecture(lambda c, k, _: DenseNet(c, k, depth=40, growth=12, bottleneck=False)),
    "densenetbc100": Architecture(lambda c, k, _: DenseNet(c, k, depth=100, growth=12, bottleneck=True)),
    "wideresnet28x10": Architecture(lambda c, k, _: WideResNet(c, k, depth=28, factor=10)),
    "wideresnet28x4": Architecture(lambda c, k, _: WideResNet(c, k, depth=28, factor=4)),
    "resnet200": Architecture(lambda c, k, _: BottleneckResNet(c, k, blocks=(3, 24, 36, 3))),
}


def build_network(
    arch: str,
    n_channels: int,
    n_classes: int,
    size: tuple[int, int],
    *,
    dropout: float,
    seed: int,
    residual_start: str = "zero",
) -> nn.Module:
    """Build a network for images of this (height, width), its weights drawn with ``seed``.

    ``residual_start`` is the weight of the last batch norm of each residual branch: "zero", so that the network begins
    as if it had no branches, or "one".
    """
    architecture = ARCHITECTURES[arch]
    if dropout and not architecture.has_dropout:
        able = ", ".join(name for name, a in ARCHITECTURES.items() if a.has_dropout)
        raise InputError(f"{arch} has no dropout; a rate can be given for {able}")
    if architecture.sides is not None:
        low, high = architecture.sides
        if not all(low <= side <= high for side in size):
            raise InputError(
                f"{arch} takes images whose sides are {low} to {high} pixels; these are {size[0]} × {size[1]}. "
                f"Image folders can be resized with --image-size {low}x{low}"
            )
    torch.manual_seed(seed)
    net = architecture.build(n_channels, n_classes, dropout)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if residual_start == "zero" and isinstance(module, BasicBlock | Bottleneck):
            nn.init.zeros_(module.last_norm.weight)
    return net
