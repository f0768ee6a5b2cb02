"""LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, for 28 × 28 images."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.zoo.networks.layers import Dropout


class LeNet5(nn.Module):
    """Two convolutions and three fully connected layers."""

    def __init__(self, n_channels: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), Dropout(dropout),
            nn.Linear(120, 84), nn.ReLU(), Dropout(dropout),
            nn.Linear(84, n_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)
