"""Divisions of the held-out samples."""

import numpy as np
import pytest

from attemper import FileError, datasets
from attemper.reproduce import networks
from attemper.reproduce.networks import about, load, split, split_rows

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
    for number in range(3):
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


def test_dropout_means_are_probabilities_whose_zeros_stand_for_little():
    network = load("vgg16-cifar100-dropout-s0")
    p = np.exp(network.dropout_logits())
    assert p.min() == pytest.approx(2**-21)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(p.argmax(axis=1), network.extra["mc_mean_probs"].argmax(axis=1))


def test_without_the_data_folder_it_is_said_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"data/ folder of the repository.*ATTEMPER_DATA"):
        networks.names()


def test_a_fingerprint_is_of_the_file():
    import hashlib

    path = datasets.path_of("lenet5-mnist-s0")
    assert networks.digest("lenet5-mnist-s0") == hashlib.sha256(path.read_bytes()).hexdigest()
