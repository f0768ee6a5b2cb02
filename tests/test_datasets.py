"""The networks that come with the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from attemper import FileError, InputError, TemperatureScaling, datasets, metrics

CARD = Path(__file__).parents[1] / "data" / "README.md"


def test_the_data_card_has_a_line_for_each_network_and_no_other():
    assert datasets.names() == re.findall(r"^\| ([\w-]+)\.npz \|", CARD.read_text(), flags=re.M)
    assert datasets.DEMO in datasets.names()
    assert f"held-out logits of {len(datasets.names())} networks" in CARD.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", datasets.names())
def test_the_data_card_has_the_figures_of_the_file(name):
    line = re.search(rf"^\| {name}\.npz \|.*$", CARD.read_text(), flags=re.M)
    assert line is not None
    *about, accuracy, nll, ece, best, ece_there, _ = line[0].split(" |")
    stored = datasets.stored(name)
    h, y, config = stored["logits"].astype(np.float64), stored["labels"], json.loads(str(stored["config"]))
    t = TemperatureScaling().fit(h, y).temperature_
    assert float(accuracy) == pytest.approx(100 * metrics.accuracy(y, h, input="logits"), abs=0.006)
    assert float(nll) == pytest.approx(metrics.nll(y, h, input="logits"), abs=6e-5)
    assert float(best) == pytest.approx(t, abs=1e-3)
    for told, logits in ((ece, h), (ece_there, h / t)):
        assert float(told) == pytest.approx(100 * metrics.ece(y, logits, input="logits"), abs=0.02)
    n_train, n_val, n_test = re.findall(r"\d+", about[3])
    assert (int(n_train), int(n_test)) == (config["n_train"], len(y))
    assert int(n_val) == len(stored.get("val_labels", ()))
    recipe = f"{config['epochs']} ep, batch {config['batch']}, lr {config['lr']} {config['schedule']}"
    assert about[4].strip().startswith(recipe)
    assert ("wd 1e-4" in about[4]) == (config["weight_decay"] == 1e-4)


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


def test_a_data_set_is_shown_in_one_line():
    assert repr(datasets.load()).count("\n") == 0
    assert len(repr(datasets.load())) < 120


def test_a_split_of_its_own_does_not_depend_on_the_seed():
    a, b = (datasets.load("lenet5-mnist-s0", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(a.val_logits, b.val_logits)


@pytest.mark.parametrize("name", ["", "../secret", "a/b", "/etc/passwd", 3, None])
def test_what_is_no_name(name):
    with pytest.raises(InputError):
        datasets.load(name)


def test_unknown_names_are_told_with_the_known():
    with pytest.raises(FileError):
        datasets.load("alexnet")


def test_the_folder_can_be_told(tmp_path, monkeypatch):
    source = datasets.BUNDLED / f"{datasets.DEMO}.npz"
    (tmp_path / "mine.npz").write_bytes(source.read_bytes())
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    assert datasets.names() == ["mine", datasets.DEMO]
    np.testing.assert_array_equal(datasets.load("mine").val_logits, datasets.load().val_logits)
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path / "none"))
    assert datasets.names() == [datasets.DEMO]  # what comes with the package is always there


def test_a_damaged_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    (tmp_path / "cut.npz").write_bytes((datasets.BUNDLED / f"{datasets.DEMO}.npz").read_bytes()[:5000])
    np.savez(tmp_path / "other.npz", logits=np.zeros((3, 2)))
    np.savez(tmp_path / "pickled.npz", logits=np.array([None], dtype=object))
    for name in ("cut", "other", "pickled"):
        with pytest.raises(FileError):
            datasets.load(name)
