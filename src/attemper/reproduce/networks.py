"""The networks, and how their held-out samples are divided into a validation and a test part.

As in the paper, a fifth of the test images is the validation set and the others judge. Divisions are numbered: number
0 is the one that single figures are of, and means are over the first twenty.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper import datasets
from attemper.errors import FileError
from attemper.reproduce import paper

__all__ = [
    "About",
    "Network",
    "Part",
    "about",
    "digest",
    "load",
    "members",
    "names",
    "split",
    "split_rows",
    "with_dropout",
]

Rows = NDArray[np.int64]

# Probabilities are stored at a resolution of 2^-20: what is 0 there is less than half of that.
LEAST_PROBABILITY = 2.0**-21


@dataclass(frozen=True)
class About:
    """Which network it is."""

    name: str
    arch: str
    dataset: str
    dropout: bool
    seed: int

    @property
    def key(self) -> paper.Network:
        """Which row of the paper it belongs to."""
        return paper.Network(self.arch, self.dataset)

    @property
    def stands_for_papers(self) -> bool:
        """Tell whether the paper's figures are set beside this one: the first seed, without dropout."""
        return self.seed == 0 and not self.dropout

    @property
    def lesions_apart(self) -> bool:
        """Tell whether pictures of one lesion are kept on one side of every division."""
        return "lesionsplit" in self.name

    @property
    def label(self) -> str:
        """Return its name for readers of the paper."""
        more = [word for word, said in (("dropout", self.dropout), (f"seed {self.seed}", self.seed)) if said]
        return ", ".join([paper.title(*self.key), *more, *(["lesions apart"] if self.lesions_apart else [])])


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
    """Read which network it is, and nothing more."""
    with np.load(datasets.path_of(name), allow_pickle=False) as archive:
        config = json.loads(str(archive["config"]))
    return About(name, config["arch"], config["dataset"], bool(config.get("dropout")), int(config.get("seed", 0)))


def names() -> list[str]:
    """Names of all networks that are here."""
    found = datasets.names()
    if len(found) < 2:
        raise FileError(
            "the networks that the tables need are not here: they are in the data/ folder of the repository, not in "
            "the installed package. Run this in a clone of the repository, or set ATTEMPER_DATA to that folder."
        )
    return found


def members(name: str) -> list[str]:
    """Networks that differ from this one by their seed alone."""
    stem = name.rsplit("-s", 1)[0]
    return [other for other in names() if other.rsplit("-s", 1)[0] == stem]


def with_dropout(name: str) -> str | None:
    """Name of the network that was trained the same way but with dropout, if it is here."""
    stem, seed = name.rsplit("-s", 1)
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
