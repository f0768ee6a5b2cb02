"""What makes a run what it is: with the same recipe a half-trained network may go on, a trained one is not repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.zoo.data import SPLIT_SEED, Dataset


@dataclass(frozen=True)
class RunOptions:
    """The options of one run, as on the command line or in a line of a plan."""

    dataset: str
    arch: str
    split: str
    dropout: float
    epochs: int
    batch: int
    lr: float
    schedule: str
    warmup_epochs: float
    weight_decay: float
    seed: int
    view: str
    residual_start: str = "zero"
    priority: int = 0

    @property
    def name(self) -> str:
        """Of the run and its files."""
        variant = "-dropout" if self.dropout else ""
        if self.residual_start != "zero":
            variant += f"-start{self.residual_start}"
        if self.dataset == "skin":
            variant += f"-{self.split}split"
        return f"{self.arch}-{self.dataset}{variant}-s{self.seed}"


def recipe(options: RunOptions, data: Dataset, batch: int, augmentation: str) -> dict[str, Any]:
    """All that decides what is trained; part of the `config` of a results file."""
    return {
        **{key: value for key, value in asdict(options).items() if key not in ("view", "priority")},
        "batch": batch,
        "optimizer": "SGD, Nesterov momentum 0.9",
        "augmentation": augmentation,
        "n_train": len(data.train.labels),
        "split_seed": SPLIT_SEED,
        "data_sha256": data.sha256,
    }


def differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """In which entries two recipes differ, as a phrase; empty if in none.

    Entries that the older one lacks are passed over: files of earlier days have no `data_sha256`.
    """
    return "; ".join(
        f"{key} {there[key]!r} there, {value!r} asked for"
        for key, value in asked.items()
        if key in there and there[key] != value
    )
