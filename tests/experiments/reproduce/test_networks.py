"""Divisions of the held-out samples."""

import json

import numpy as np
import pytest

from attemper import FileError, datasets
from experiments.reproduce import networks, paper
from experiments.reproduce.networks import about, load, split, split_rows

RANDOM, LESION = "resnet200-skin-randomsplit-s0", "resnet200-skin-lesionsplit-s0"


@pytest.mark.parametrize("name, sizes", [("lenet5-mnist-s0", (2000, 8000)), (RANDOM, (801, 3205))])
def test_a_fifth_is_for_validation_and_every_sample_is_used_once(name, sizes):
    network = load(name)
    val, test = split_rows(network, 0, 0)
    assert (len(val), len(test)) == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate([val, test])), np.arange(len(network.labels)))
    part, rest = split(network, 0, 0)
    np.testing.assert_array_equal(part.logits, network.logits[val])
    np.testing.assert_array_equal(rest.labels, network.labels[test])


def test_divisions_differ_by_number_and_seed_and_come_again():
    network = load("lenet5-mnist-s0")
    first = split_rows(network, 0, 0)[0]
    np.testing.assert_array_equal(first, split_rows(network, 0, 0)[0])
    for other in (split_rows(network, 1, 0)[0], split_rows(network, 0, 1)[0]):
        assert not np.array_equal(first, other)


def test_members_of_an_ensemble_are_divided_alike():
    a, b = (split_rows(load(f"lenet5-mnist-s{i}"), 3, 0) for i in (0, 2))
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_array_equal(load("lenet5-mnist-s0").labels, load("lenet5-mnist-s2").labels)


def test_no_lesion_is_on_both_sides_where_they_are_kept_apart():
    lesions = load(LESION).extra["lesion_id"]
    for number in range(20):
        val, test = split_rows(load(LESION), number, 0)
        assert not set(lesions[val]) & set(lesions[test])
        assert 801 <= len(val) < 810
    mixed = load(RANDOM).extra["lesion_id"]
    val, test = split_rows(load(RANDOM), 0, 0)
    assert set(mixed[val]) & set(mixed[test])  # the paper's way


def test_names_tell_members_and_dropout():
    assert networks.members("vgg16-cifar10-s0") == [f"vgg16-cifar10-s{i}" for i in range(3)]
    assert networks.members("vgg16-cifar10-dropout-s0") == ["vgg16-cifar10-dropout-s0"]
    assert networks.with_dropout("vgg16-cifar10-s0") == "vgg16-cifar10-dropout-s0"
    assert networks.with_dropout("resnet110-cifar10-s0") is None


def test_who_stands_for_the_papers_network():
    assert about("vgg16-cifar10-s0").stands_for_papers
    assert not about("vgg16-cifar10-s1").stands_for_papers
    assert not about("vgg16-cifar10-dropout-s0").stands_for_papers
    assert about("vgg16-cifar10-s1").label == "VGG16, CIFAR-10, seed 1"
    assert about(LESION).label == "ResNet200, skin lesions, lesions apart"
    assert about(RANDOM).stands_for_papers


def test_of_several_runs_the_best_on_validation_images_stands_for_the_papers():
    for key in paper.TABLE_1:
        runs = [
            name
            for name in networks.names()
            if name.startswith(f"{key.arch}-{key.dataset}-") and name.endswith("-s0") and "dropout" not in name
        ]
        right = {}
        for name in runs:
            data = datasets.load(name)
            right[name] = (data.val_logits.argmax(axis=1) == data.val_labels).sum()
        assert networks.stands_for(key) == max(runs, key=right.__getitem__, default=None)
    standing = {key: networks.stands_for(key) for key in paper.TABLE_1}
    assert [key for key, name in standing.items() if name is None] == [("vgg16", "birds"), ("resnet152", "imagenet")]
    assert standing["resnet110", "cifar10"] == "resnet110-cifar10-startone-s0"
    assert standing["resnet110", "cifar100"] == "resnet110-cifar100-cosine-s0"


def test_no_two_networks_have_one_label():
    labels = [about(name).label for name in networks.names()]
    assert len(set(labels)) == len(labels)
    assert about("resnet110-cifar100-cosine-s0").label == "ResNet110, CIFAR-100, cosine"
    assert about("resnet110-cifar100-s0").label == "ResNet110, CIFAR-100, first run"


def tiny(folder, name, **config):
    arrays = {"logits": np.zeros((10, 2), np.float32), "labels": np.zeros(10, int), "class_names": np.array(["a", "b"])}
    np.savez(folder / f"{name}.npz", **arrays, config=np.array(json.dumps(config)))


def test_variants_are_told_apart_and_only_the_plain_network_stands_for_the_papers(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    for name in ("lenet5-mnist-s10", "lenet5-mnist-s2", "lenet5-mnist-s0", "lenet5-mnist-nodecay-s0"):
        tiny(tmp_path, name, arch="lenet5", dataset="mnist", seed=int(name.rpartition("s")[2]))
    networks.about.cache_clear()
    try:
        assert about("lenet5-mnist-nodecay-s0").label == "LeNet5, MNIST, nodecay"
        assert not about("lenet5-mnist-nodecay-s0").stands_for_papers
        assert about("lenet5-mnist-s0").stands_for_papers
        assert networks.members("lenet5-mnist-s0") == ["lenet5-mnist-s0", "lenet5-mnist-s2", "lenet5-mnist-s10"]
    finally:
        networks.about.cache_clear()


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("net", {"arch": "net", "dataset": "x", "seed": 0}, r"<arch>-<dataset>\[-variant\]-s<seed>.npz, here net-x-s0"),
        ("net-x-s1", {"arch": "net", "dataset": "x", "seed": 0}, "here net-x-s0.npz"),
        (
            "net-x-s0",
            {"dataset": "x", "seed": 0},
            "net-x-s0.npz: no network of the form that the data card tells: 'arch'",
        ),
        ("net-x-s0", {"arch": "net", "dataset": "x", "seed": "first"}, "no network of the form"),
    ],
)
def test_a_file_of_another_form_is_told(tmp_path, monkeypatch, name, config, message):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    tiny(tmp_path, name, **config)
    with pytest.raises(FileError):
        about(name)


def test_dropout_means_are_probabilities_whose_zeros_stand_for_little():
    network = load("vgg16-cifar100-dropout-s0")
    p = np.exp(network.dropout_logits())
    assert p.min() == pytest.approx(2**-21)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(p.argmax(axis=1), network.extra["mc_mean_probs"].argmax(axis=1))


def test_without_the_data_folder_it_is_said_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    with pytest.raises(FileError):
        networks.names()


def test_a_fingerprint_is_of_the_file():
    import hashlib

    path = datasets.path_of("lenet5-mnist-s0")
    assert networks.digest("lenet5-mnist-s0") == hashlib.sha256(path.read_bytes()).hexdigest()
