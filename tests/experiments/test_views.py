"""What a network sees, against loops over single images."""

import numpy as np
import pytest
import torch

from attemper import InputError
from experiments.zoo.views import AffineView, CropFlipView, CropView, PlainView

CPU = torch.device("cpu")
rng = np.random.default_rng(3)
IMAGES = rng.integers(0, 256, (12, 10, 7, 3), dtype=np.uint8)
INDEX = torch.tensor([3, 0, 11, 3])


def normalised(view, image):
    return ((image / 255.0 - view.mean.numpy()) / view.std.numpy()).transpose(2, 0, 1)


def test_pixels_are_normalised():
    view = PlainView(IMAGES, CPU)
    seen = view.test_batch(torch.from_numpy(IMAGES))
    assert seen.shape == (12, 3, 10, 7)
    assert torch.allclose(seen.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(seen.std((0, 2, 3)), torch.ones(3), atol=1e-5)
    batch = view.train_batch(view.store(torch.from_numpy(IMAGES)), INDEX, torch.empty(4, 0))
    assert torch.equal(batch, seen[INDEX])


@pytest.mark.parametrize("kind", [CropFlipView, CropView])
def test_crops_and_flips(kind):
    view = kind(IMAGES, CPU)
    stored = view.store(torch.from_numpy(IMAGES))
    for draws in (torch.rand(4, kind.DRAWS), torch.zeros(4, kind.DRAWS), torch.full((4, kind.DRAWS), 1 - 2.0**-24)):
        batch = view.train_batch(stored, INDEX, draws)
        assert batch.shape == (4, 3, 10, 7)
        for row, (i, u) in enumerate(zip(INDEX, draws.tolist(), strict=True)):
            padded = np.zeros((18, 15, 3), np.uint8)
            padded[4:14, 4:11] = IMAGES[i]
            top, left = int(u[0] * 9), int(u[1] * 9)
            assert 0 <= top <= 8
            crop = padded[top : top + 10, left : left + 7]
            if kind is CropFlipView and u[2] >= 0.5:
                crop = crop[:, ::-1]
            np.testing.assert_allclose(batch[row].numpy(), normalised(view, crop), atol=1e-5)


def test_every_crop_is_as_likely():
    view = CropFlipView(IMAGES, CPU)
    places = (torch.arange(9) + 0.5) / 9  # the middles of nine equal shares
    numbered = torch.zeros(1, 18, 15, 3, dtype=torch.uint8)
    numbered[0, :, :, 0] = torch.arange(18)[:, None]
    draws = torch.stack([places, places, torch.zeros(9)], 1)
    view.mean, view.std = torch.zeros(3), torch.ones(3) / 255
    tops = view.train_batch(numbered, torch.zeros(9, dtype=torch.long), draws)[:, 0, 0, 0]
    assert torch.allclose(tops, torch.arange(9.0), atol=1e-3)


def positions():
    """An image whose pixels hold their own column and row: what is shown of it tells where it was taken from."""
    image = np.zeros((1, 150, 200, 3), np.uint8)
    image[0, :, :, 0], image[0, :, :, 1] = np.arange(200), np.arange(150)[:, None]
    image[0, ::2, :, 2] = 1
    view = AffineView(image, CPU)
    view.mean, view.std = torch.zeros(3), torch.ones(3) / 255
    return view, torch.from_numpy(image)


def assert_taken_from(seen, side, angle, mirror, shift_x, shift_y):
    """Turn, mirror and shift single points of a window in the middle of 150 × 200 pixels."""
    assert seen.shape == (1, 3, 96, 128)
    checked = 0
    for row in range(0, 96, 5):
        for column in range(0, 128, 5):
            x = ((column + 0.5) / 128 - 0.5) * 200 * side * mirror
            y = ((row + 0.5) / 96 - 0.5) * 150 * side
            turned = (x + 1j * y) * np.exp(1j * angle)
            from_column = 99.5 + turned.real + shift_x * (1 - side) * 100
            from_row = 74.5 + turned.imag + shift_y * (1 - side) * 75
            if 0 <= from_column <= 199 and 0 <= from_row <= 149:  # beyond, the image is reflected
                assert seen[0, 0, row, column] == pytest.approx(from_column, abs=0.02)
                assert seen[0, 1, row, column] == pytest.approx(from_row, abs=0.02)
                checked += 1
    assert checked > 200


def test_the_middle_is_shown_in_tests():
    view, image = positions()
    assert view.size == (96, 128)
    assert_taken_from(view.test_batch(image), side=0.9, angle=0, mirror=1, shift_x=0, shift_y=0)


@pytest.mark.parametrize("seed", range(4))
def test_turns_mirrors_and_shifts(seed):
    view, image = positions()
    draws = torch.rand(1, AffineView.DRAWS, generator=torch.Generator().manual_seed(seed))
    u = draws[0].tolist()
    assert_taken_from(
        view.train_batch(image, torch.tensor([0]), draws),
        side=np.sqrt(0.49 + 0.51 * u[0]),
        angle=2 * np.pi * u[1],
        mirror=-1 if u[2] < 0.5 else 1,
        shift_x=2 * u[3] - 1,
        shift_y=2 * u[4] - 1,
    )


def test_images_without_contents_are_refused():
    with pytest.raises(InputError):
        PlainView(np.zeros((4, 8, 8, 1), np.uint8), CPU)
