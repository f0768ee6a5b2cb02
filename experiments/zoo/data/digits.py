"""The 1797 digits of 8 × 8 pixels that come with scikit-learn, at MNIST's size: a data set that is always there."""

from __future__ import annotations

import numpy as np

from experiments.zoo.data.images import SPLIT_SEED, Dataset, ImageSet

N_TRAIN, N_VALIDATION = 1197, 200  # the other 400 are the test set
ENLARGEMENT, MARGIN = 3, 2  # 3 · 8 + 2 · 2 = 28
MOST = 16  # pixels are 0 to 16


def read_digits() -> Dataset:
    """Three fixed parts of the digits, each pixel made 3 × 3 and framed by 2 black ones."""
    from sklearn.datasets import load_digits

    small, labels = load_digits(return_X_y=True)
    bytes_ = np.rint(small.reshape(-1, 8, 8) * (255 / MOST)).astype(np.uint8)
    large = np.kron(bytes_, np.ones((1, ENLARGEMENT, ENLARGEMENT), np.uint8))
    images = np.pad(large, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    everything = ImageSet.checked(images, labels, "digits")
    order = np.random.RandomState(SPLIT_SEED).permutation(len(labels))
    train, validation, test = (
        everything.take(np.sort(rows)) for rows in np.split(order, [N_TRAIN, N_TRAIN + N_VALIDATION])
    )
    return Dataset(train, validation, test, [str(digit) for digit in range(10)])
