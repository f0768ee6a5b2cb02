"""The division of data sets that have no validation part of their own."""

import numpy as np
import pytest

from attemper import datasets


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_lesion_is_in_both_parts_and_each_has_its_share_of_every_class(seed):
    skin, stored = datasets.load(seed=seed), datasets.stored(datasets.DEMO)
    n = len(skin.val_labels)
    assert n == len(stored["labels"]) // 5
    assert not set(skin.extra["lesion_id"][:n]) & set(skin.extra["lesion_id"][n:])
    assert np.abs(np.bincount(skin.val_labels) - np.bincount(stored["labels"]) / 5).max() < 1
    order = [stored["image_id"].tolist().index(image) for image in skin.extra["image_id"]]
    assert sorted(order) == list(range(len(order)))
    np.testing.assert_array_equal(np.concatenate([skin.val_logits, skin.test_logits]), stored["logits"][order])
    np.testing.assert_array_equal(np.concatenate([skin.val_labels, skin.test_labels]), stored["labels"][order])
    np.testing.assert_array_equal(datasets.load(seed=seed).val_logits, skin.val_logits)
    assert set(skin.extra["image_id"][:n]) != set(datasets.load(seed=seed + 1).extra["image_id"][:n])
