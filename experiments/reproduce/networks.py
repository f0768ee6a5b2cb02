"""The networks, and how their held-out samples are divided into a validation and a test part.

As in the paper, a fifth of the test images is the validation set and the others judge. Divisions are numbered: number
0 is the one that single figures are of, and means are over the first twenty.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper import datasets
from attemper.errors import FileError
from experiments.reproduce import paper

__all__ = [
    "About",
    "Network",
    "Part",
    "about",
    "digest",
    "load",
    "members",
    "names",
    "runs",
    "split",
    "split_rows",
    "stands_for",
    "with_dropout",
]

Rows = NDArray[np.int64]

# Probabilities are stored at a resolution of 2^-20: what is 0 there is less than half of that.
LEAST_PROBABILITY = 2.0**-21


VARIANTS = {"randomsplit": "", "lesionsplit": "lesions apart", "long": "long run", "startone": "branches from one"}


@dataclass(frozen=True)
class About:
    """Which network it is."""

    name: str
    arch: str
    dataset: str
    seed: int
    n_classes: int
    val_accuracy: float | None = None  # on the training images that were held out, where there are any

    @property
    def variant(self) -> str:
        """What its name tells beside architecture, data and seed, such as dropout."""
        return self.name.removeprefix(f"{self.arch}-{self.dataset}").rpartition("-s")[0].strip("-")

    @property
    def key(self) -> paper.Network:
        """Which row of the paper it belongs to."""
        return paper.Network(self.arch, self.dataset)

    @property
    def stands_for_papers(self) -> bool:
        """Tell whether the paper's figures are set beside this one (`stands_for`)."""
        return self.name == stands_for(self.key)

    @property
    def could_stand(self) -> bool:
        """Tell whether it was trained as the paper's networks: the first seed, no dropout, images divided at random."""
        return self.seed == 0 and not self.lesions_apart and "dropout" not in self.variant

    @property
    def lesions_apart(self) -> bool:
        """Tell whether pictures of one lesion are kept on one side of every division."""
        return "lesionsplit" in self.name

    @property
    def label(self) -> str:
        """Return its name for readers of the paper."""
        plain = "first run" if self.could_stand and len(runs(self.key)) > 1 else ""
        variant = {"": plain, **VARIANTS}.get(self.variant, self.variant)
        return ", ".join(filter(None, [paper.title(*self.key), variant, f"seed {self.seed}" if self.seed else ""]))


@dataclass(frozen=True, eq=False)
class Network:
    """What a network says about the test images of its data set."""

    about: About
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    extra: dict[str, NDArray[Any]]

    def dropout_logits(self) -> NDArray[np.float64]:
        """Logarithms of the mean probabilities of 100 passes with dropout."""
        return np.asarray(np.log(np.maximum(self.extra["mc_mean_probs"].astype(np.float64), LEAST_PROBABILITY)))


@dataclass(frozen=True, eq=False)
class Part:
    """Logits and labels of one side of a division."""

    logits: NDArray[Any]
    labels: NDArray[np.int64]

    def take(self, rows: Rows) -> Part:
        """Return some of the samples."""
        return Part(self.logits[rows], self.labels[rows])


@lru_cache(maxsize=4)  # a job needs few, and the next one often the same
def load(name: str) -> Network:
    """Read a network of ``data/``."""
    arrays = datasets.stored(name)
    del arrays["config"]
    class_names = tuple(str(c) for c in arrays.pop("class_names"))
    return Network(about(name), arrays.pop("logits"), arrays.pop("labels"), class_names, arrays)


@lru_cache
def about(name: str) -> About:
    """Read which network it is, and how many of its validation images are classified right."""
    path = datasets.path_of(name)
    try:
        with np.load(path, allow_pickle=False) as archive:
            config, n_classes = json.loads(str(archive["config"])), len(archive["class_names"])
            right = archive["val_logits"].argmax(axis=1) == archive["val_labels"] if "val_logits" in archive else None
        val_accuracy = None if right is None else float(right.mean())
        found = About(name, config["arch"], config["dataset"], int(config["seed"]), n_classes, val_accuracy)
    except (KeyError, ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: no network of the form that the data card tells: {error}") from None
    if not re.fullmatch(rf"{re.escape(found.arch)}-{re.escape(found.dataset)}(-[\w-]+)?-s{found.seed}", name):
        raise FileError(
            f"{path}: the name of a network's file is <arch>-<dataset>[-variant]-s<seed>.npz, here "
            f"{found.arch}-{found.dataset}-s{found.seed}.npz"
        )
    return found


def names() -> list[str]:
    """Names of all networks that are here."""
    found = datasets.names()
    if len(found) < 2:
        raise FileError(
            "the networks that the tables need are not here: they are in the data/ folder of the repository, not in "
            "the installed package. Run this in a clone of the repository, or set ATTEMPER_DATA to that folder."
        )
    return found


def runs(key: paper.Network) -> list[About]:
    """Return the networks that could stand for a row of the paper."""
    return [network for network in map(about, names()) if network.key == key and network.could_stand]


def stands_for(key: paper.Network) -> str | None:
    """Name of the network that stands for a row of the paper: of several runs the best on validation images."""
    found = max(runs(key), key=lambda network: (network.val_accuracy or 0.0, not network.variant), default=None)
    return found and found.name


def members(name: str) -> list[str]:
    """Networks that differ from this one by their seed alone."""
    stem = name.rpartition("-s")[0]
    found = [other for other in names() if other.rpartition("-s")[0] == stem]
    return sorted(found, key=lambda other: about(other).seed)


def with_dropout(name: str) -> str | None:
    """Name of the network that was trained the same way but with dropout, if it is here."""
    stem, _, seed = name.rpartition("-s")
    other = f"{stem}-dropout-s{seed}"
    return other if other in names() else None


def split(network: Network, number: int, seed: int) -> tuple[Part, Part]:
    """Divide the samples at random, a fifth for validation; the same rows for all networks of one data set."""
    val, test = split_rows(network, number, seed)
    whole = Part(network.logits, network.labels)
    return whole.take(val), whole.take(test)


def split_rows(network: Network, number: int, seed: int) -> tuple[Rows, Rows]:
    """Rows of the two sides; the pictures of one lesion stay on one side where the network was trained that way."""
    rng, n = np.random.default_rng([seed, number]), len(network.labels)
    if not network.about.lesions_apart:
        order = rng.permutation(n)
        return order[: n // 5], order[n // 5 :]
    _, group = np.unique(network.extra["lesion_id"], return_inverse=True)
    rank = rng.permutation(group.max() + 1)[group]
    order = np.argsort(rank, kind="stable")
    cut = n // 5
    while rank[order[cut]] == rank[order[cut - 1]]:
        cut += 1
    return order[:cut], order[cut:]


def digest(name: str) -> str:
    """Fingerprint of a network's file."""
    return hashlib.sha256(datasets.path_of(name).read_bytes()).hexdigest()
