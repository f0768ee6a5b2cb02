"""How a network sees the images: normalised, and in training cropped, mirrored or turned at random.

Images stay on the device as bytes. `train_batch` takes its randomness as uniform numbers, `DRAWS` for each image, which
are drawn once an epoch: a step that is replayed as a CUDA graph then finds other numbers in the same place.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its customary name
from numpy.typing import NDArray
from torch import Tensor

from attemper.errors import InputError

STATISTICS_SAMPLE = 5000  # about so many images tell mean and deviation of the pixels


class PlainView:
    """Images as they are."""

    DRAWS: ClassVar[int] = 0

    def __init__(self, train_images: NDArray[np.uint8], device: torch.device) -> None:
        sample = np.ascontiguousarray(train_images[:: max(1, len(train_images) // STATISTICS_SAMPLE)])
        pixels = torch.from_numpy(sample).double() / 255
        self.mean = pixels.mean((0, 1, 2)).float().to(device)
        self.std = pixels.std((0, 1, 2)).float().to(device)
        if not bool((self.std > 0).all()):
            raise InputError(
                "all training images have the same value in every pixel of a channel: nothing to learn from"
            )
        self.height, self.width = train_images.shape[1:3]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what the network gets."""
        return self.height, self.width

    def normalise(self, images: Tensor) -> Tensor:
        """N × H × W × C in 0..255 to N × C × H × W with mean 0 and deviation 1 (still stored channels last)."""
        return ((images.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)

    def store(self, train_images: Tensor) -> Tensor:
        """Bring the training images into the form that `train_batch` takes."""
        return train_images

    def train_batch(self, stored: Tensor, index: Tensor, draws: Tensor) -> Tensor:
        """Show these of the stored images as a random view."""
        return self.normalise(stored[index])

    def test_batch(self, images: Tensor) -> Tensor:
        """Show images without randomness."""
        return self.normalise(images)


class CropFlipView(PlainView):
    """Random crop after padding by 4 black pixels, and random horizontal flip."""

    DRAWS = 3
    PADDING: ClassVar[int] = 4

    def store(self, train_images: Tensor) -> Tensor:
        """Pad once, rather than in every step."""
        return F.pad(train_images, (0, 0, self.PADDING, self.PADDING, self.PADDING, self.PADDING))

    def train_batch(self, stored: Tensor, index: Tensor, draws: Tensor) -> Tensor:
        """Draws: top, left, whether to flip."""
        top, left = (draws[:, :2] * (2 * self.PADDING + 1)).long().unbind(1)
        ys, xs = (torch.arange(n, device=stored.device) for n in (self.height, self.width))
        xs = torch.where(draws[:, 2:3] < 0.5, xs, self.width - 1 - xs)
        rows, columns = top[:, None] + ys, left[:, None] + xs
        return self.normalise(stored[index[:, None, None], rows[:, :, None], columns[:, None, :]])


class CropView(CropFlipView):
    """Random crop only, where a mirror image is another thing (digits)."""

    DRAWS = 2

    def train_batch(self, stored: Tensor, index: Tensor, draws: Tensor) -> Tensor:
        """Draws: top, left."""
        return super().train_batch(stored, index, F.pad(draws, (0, 1)))


class AffineView(PlainView):
    """Random flips, any rotation and a random resized crop, in one resampling to 96 × 128 pixels."""

    DRAWS = 6
    SIZE: ClassVar[tuple[int, int]] = (96, 128)
    CROP_SIDE: ClassVar[tuple[float, float]] = (0.7, 1.0)
    TEST_SIDE: ClassVar[float] = 0.9

    @property
    def size(self) -> tuple[int, int]:
        """One size, whatever came."""
        return self.SIZE

    def resample(
        self, images: Tensor, *, side: Tensor, angle: Tensor, mirror: Tensor, shift_x: Tensor, shift_y: Tensor
    ) -> Tensor:
        """Show a window of relative size ``side``, turned by ``angle`` and shifted within the image."""
        cos, sin, aspect = torch.cos(angle) * side, torch.sin(angle) * side, self.width / self.height
        theta = torch.stack(
            [
                torch.stack([mirror * cos, -sin / aspect, shift_x * (1 - side)], 1),
                torch.stack([mirror * sin * aspect, cos, shift_y * (1 - side)], 1),
            ],
            1,
        )
        grid = F.affine_grid(theta, [len(images), 3, *self.SIZE], align_corners=False)
        return F.grid_sample(self.normalise(images), grid, padding_mode="reflection", align_corners=False)

    def train_batch(self, stored: Tensor, index: Tensor, draws: Tensor) -> Tensor:
        """Draws: area, angle, mirror, horizontal and vertical shift (the sixth is not used)."""
        u = draws.unbind(1)
        small, large = self.CROP_SIDE
        return self.resample(
            stored[index],
            side=torch.sqrt(small**2 + (large**2 - small**2) * u[0]),  # area uniform
            angle=2 * math.pi * u[1],
            mirror=1 - 2 * (u[2] < 0.5).float(),
            shift_x=2 * u[3] - 1,
            shift_y=2 * u[4] - 1,
        )

    def test_batch(self, images: Tensor) -> Tensor:
        """Show the middle, upright."""
        zero = torch.zeros(len(images), device=images.device)
        return self.resample(
            images, side=zero + self.TEST_SIDE, angle=zero, mirror=zero + 1, shift_x=zero, shift_y=zero
        )


VIEWS: dict[str, type[PlainView]] = {
    "plain": PlainView,
    "crop": CropView,
    "cropflip": CropFlipView,
    "affine": AffineView,
}

# Data sets that are not named here are shown as they are, unless --view says otherwise.
USUAL_VIEWS = {"cifar10": "cropflip", "cifar100": "cropflip", "svhn": "crop", "skin": "affine"}
