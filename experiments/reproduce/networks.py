"""The networks of ``data/``, and random splits of their samples: a fifth for validation, the rest for test."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper import datasets

__all__ = ["MAIN", "MORE", "ROWS", "SKIN", "Network", "Samples", "label", "load", "names", "split", "split_rows"]

Rows = NDArray[np.int64]

# Our networks that stand for rows of the paper's Tables 1 and 2. ResNet110 on CIFAR has several runs: this is the one
# with the highest accuracy on validation images.
ROWS = {
    "vgg16-birds-s1": "VGG16 Birds",
    "efficientnetlite0-birds-s0": "VGG16 Birds",
    "efficientnetlite2-imagenet5k": "ResNet152 ImageNet",
    "densenet40-cifar10-s0": "DenseNet40 CIFAR10",
    "densenet40-cifar100-s0": "DenseNet40 CIFAR100",
    "densenetbc100-cifar10-s0": "DenseNet100 CIFAR10",
    "densenetbc100-cifar100-s0": "DenseNet100 CIFAR100",
    "densenetbc100-svhn-s0": "DenseNet100 SVHN",
    "resnet110-cifar10-startone-s0": "ResNet110 CIFAR10",
    "resnet110-cifar100-cosine-s0": "ResNet110 CIFAR100",
    "resnet110-svhn-s0": "ResNet110 SVHN",
    "wideresnet28x10-cifar100-s0": "WideResNet32 CIFAR100",
    "lenet5-mnist-s0": "LeNet5 MNIST",
    "vgg16-cifar10-s0": "VGG16 CIFAR10",
    "vgg16-cifar100-s0": "VGG16 CIFAR100",
}
SKIN = {
    "resnet200-skin-randomsplit-s0": "images split at random, as in the paper",
    "resnet200-skin-lesionsplit-s0": "all images of a lesion in one part",
}
# The four networks of the noise and the size study, from very accurate to hardly; their supplement has the others.
MAIN = ("lenet5-mnist-s0", "vgg16-cifar10-s0", "vgg16-cifar100-s0", "resnet200-skin-randomsplit-s0")
MORE = tuple(name for name in ROWS if name not in MAIN)

# An asterisk marks another network than the paper's.
MODELS = {
    "densenet40": "DenseNet40",
    "densenetbc100": "DenseNet100",
    "efficientnetlite0": "EfficientNet-Lite0*",
    "efficientnetlite2": "EfficientNet-Lite2*",
    "lenet5": "LeNet5",
    "resnet110": "ResNet110",
    "resnet200": "ResNet200",
    "vgg16": "VGG16",
    "wideresnet28x10": "WideResNet",
}
DATA = {
    "birds": "Birds",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "Fashion-MNIST",
    "imagenet5k": "ImageNet",
    "mnist": "MNIST",
    "skin": "skin lesions",
    "svhn": "SVHN",
}


class Samples(NamedTuple):
    """Logits and labels."""

    logits: NDArray[Any]
    labels: NDArray[np.int64]

    def take(self, rows: Rows) -> Samples:
        """Return some of the samples."""
        return Samples(self.logits[rows], self.labels[rows])


class Network(NamedTuple):
    """The test samples of a network, and what else its file has."""

    name: str
    samples: Samples
    extra: dict[str, NDArray[Any]]


@lru_cache(maxsize=4)  # the next job often needs the same network
def load(name: str) -> Network:
    """Read a network of ``data/``."""
    arrays = datasets.stored(name)
    logits = arrays.pop("logits")
    samples = Samples(logits.astype(np.float32) if logits.dtype == np.float16 else logits, arrays.pop("labels"))
    return Network(name, samples, arrays)


def names() -> list[str]:
    """All networks: the rows of the paper in its order, then the others."""
    return sorted(datasets.names(), key=lambda name: (list(ROWS).index(name) if name in ROWS else len(ROWS), name))


def label(name: str) -> str:
    """Return the name of a network for readers, such as ``VGG16, CIFAR-10, dropout, seed 1``."""
    found = re.fullmatch(r"([a-z0-9]+)-([a-z0-9_]+?)(?:-([a-z]+))?(?:-s(\d+))?", name)
    if found is None:
        raise ValueError(f"{name}: expected <architecture>-<data set>[-<variant>][-s<seed>]")
    arch, data, variant, seed = found.groups()
    model = MODELS.get(arch, arch) + ("*" if name == "vgg16-birds-s1" else "")
    variants = {"randomsplit": "", "lesionsplit": "lesions apart"}
    if name in ROWS:
        variant, seed = "", "0"
    elif arch == "resnet110" and not variant:
        variant = "first run"
    more = [variants.get(variant, variant or ""), f"seed {seed}" if int(seed or 0) else ""]
    return ", ".join(part for part in (model, DATA.get(data, data), *more) if part)


def split(name: str, repeat: int, seed: int) -> tuple[Samples, Samples]:
    """Return validation and test samples of one random split."""
    val, test = split_rows(name, repeat, seed)
    return load(name).samples.take(val), load(name).samples.take(test)


def split_rows(name: str, repeat: int, seed: int) -> tuple[Rows, Rows]:
    """Rows of the two parts. A network that was trained with lesions apart has them apart here too."""
    network, rng = load(name), np.random.default_rng([seed, repeat])
    n = len(network.samples.labels)
    cut = n // 5
    if "lesionsplit" not in name:
        order = rng.permutation(n)
        return order[:cut], order[cut:]
    _, lesion = np.unique(network.extra["lesion_id"], return_inverse=True)
    rank = rng.permutation(lesion.max() + 1)[lesion]
    order = np.argsort(rank, kind="stable")
    while rank[order[cut]] == rank[order[cut - 1]]:
        cut += 1
    return order[:cut], order[cut:]
