"""VGG-16 (Simonyan and Zisserman, arXiv 1409.1556) with batch norm, for 32 × 32 images."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.zoo.networks.layers import Dropout, conv_bn

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
WIDTH = 512  # of the classifier, instead of 4096 for large images


class VGG16(nn.Module):
    """Thirteen 3 × 3 convolutions and three fully connected layers."""

    def __init__(self, n_channels: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = n_channels
        for stage in STAGES:
            for n_out in stage:
                layers += [conv_bn(width, n_out), nn.ReLU(inplace=True)]
                width = n_out
            layers.append(nn.MaxPool2d(2))
        layers.append(nn.Flatten())
        for _ in range(2):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU(), Dropout(dropout)]
        self.body = nn.Sequential(*layers, nn.Linear(WIDTH, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)
