"""The networks that come with the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attemper import datasets

CARD = Path(__file__).parents[1] / "data" / "README.md"


@pytest.mark.parametrize("name", datasets.names())
def test_each_network_loads(name):
    data = datasets.load(name)
    n_classes = len(data.class_names)
    assert data.name == name
    assert n_classes >= 2
    for logits, labels in ((data.val_logits, data.val_labels), (data.test_logits, data.test_labels)):
        assert logits.shape == (len(labels), n_classes)
        assert logits.dtype == np.float32
        assert labels.dtype == np.int64
        assert np.isfinite(logits).all()
        assert ((labels >= 0) & (labels < n_classes)).all()
        assert (logits.argmax(axis=1) == labels).mean() > 0.5
    assert data.config["arch"] in name
    n = len(data.val_labels) + len(data.test_labels)
    assert all(len(values) in (n, len(data.test_labels), len(data.val_labels)) for values in data.extra.values())


def test_the_skin_networks_are_split_by_seed():
    first, again, other = (datasets.load(seed=seed) for seed in (0, 0, 1))
    assert first.val_logits.shape == (801, 7)
    assert first.test_logits.shape == (3205, 7)
    for part in ("val_logits", "val_labels", "test_logits", "test_labels"):
        np.testing.assert_array_equal(getattr(first, part), getattr(again, part))
    assert not np.array_equal(first.val_logits, other.val_logits)

    def rows(data):
        return np.unique(np.concatenate([data.val_logits, data.test_logits]), axis=0)

    np.testing.assert_array_equal(rows(first), rows(other))  # the same images, dealt in another way


@pytest.mark.parametrize("name", [n for n in datasets.names() if "skin" in n])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_lesion_is_in_both_parts(name, seed):
    data = datasets.load(name, seed=seed)
    lesions = data.extra["lesion_id"]
    assert len(data.val_labels) == 801
    assert not set(lesions[:801]) & set(lesions[801:])
    stored = datasets.stored(name)
    where = {image: i for i, image in enumerate(stored["image_id"])}
    rows = [where[image] for image in data.extra["image_id"]]
    np.testing.assert_array_equal(stored["logits"][rows], np.concatenate([data.val_logits, data.test_logits]))
    np.testing.assert_array_equal(stored["lesion_id"][rows], lesions)


def test_the_folder_can_be_told(tmp_path, monkeypatch):
    source = datasets.BUNDLED / f"{datasets.DEMO}.npz"
    (tmp_path / "mine.npz").write_bytes(source.read_bytes())
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    assert datasets.names() == ["mine", datasets.DEMO]
    np.testing.assert_array_equal(datasets.load("mine").val_logits, datasets.load().val_logits)
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path / "none"))
    assert datasets.names() == [datasets.DEMO]  # what comes with the package is always there
