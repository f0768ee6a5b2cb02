"""The noise study: validation labels of which 10 to 50 per cent are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce import figures, networks
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Page, gather, spread, summary, table
from experiments.reproduce.recipes import TITLES, fit, judge
from experiments.reproduce.wrong_labels import KINDS, most_confused, spoil

__all__ = ["FEW_SHARES", "NETWORKS", "SHARES", "STUDY", "noise", "noisy_labels", "run_methods", "shares_of"]

# From very accurate to hardly, from 7 to 100 classes.
NETWORKS = ("lenet5-mnist-s0", "vgg16-cifar10-s0", "vgg16-cifar100-s0", "resnet200-skin-randomsplit-s0")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
FEW_SHARES = (0.1, 0.3, 0.5)
METHODS = ("none", "ts", "ats", "bayes", "structured")


def shares_of(kind: str) -> tuple[float, ...]:
    """Shares of labels that are replaced; fewer of the kinds that the paper does not have."""
    return SHARES if kind == "uniform" else FEW_SHARES


def jobs(settings: Settings) -> list[Job]:
    """One for each network, kind and share of wrong labels, and repeat; large networks first."""
    order = sorted(NETWORKS, key=lambda name: -about(name).n_classes)
    cases = [("none", 0.0), *((kind, share) for kind in KINDS for share in shares_of(kind))]
    return [
        Job(f"{name} {kind} {share:.0%} repeat {i}", (name, kind, share, i, settings.seed), (name,))
        for name in order
        for kind, share in cases
        for i in range(settings.repeats)
    ]


def run(name: str, kind: str, share: float, repeat: int, seed: int) -> list[Row]:
    """Spoil the labels of the validation part; fit, and judge with the right labels of the test part."""
    return run_methods(METHODS, name, kind, share, repeat, seed)


def run_methods(methods: Sequence[str], name: str, kind: str, share: float, repeat: int, seed: int) -> list[Row]:
    """Run some of the methods."""
    network = networks.load(name)
    val, test = networks.split(network, repeat, seed)
    labels = noisy_labels(name, val, kind, share, repeat, seed)
    wrong = float((labels != val.labels).mean())
    rows: list[Row] = []
    for method in methods:
        found = fit(method, networks.Part(val.logits, labels), noisy=True)
        case = {"network": name, "kind": kind, "share": share, "repeat": repeat, "method": method}
        rows.append({**case, **judge(found.map, test), "temperature": found.temperature, "labels_wrong": wrong})
    return rows


def noisy_labels(name: str, val: networks.Part, kind: str, share: float, repeat: int, seed: int) -> NDArray[np.int64]:
    """Labels of the validation part of this repeat, with a share of them replaced."""
    if not share:
        return val.labels
    rng = np.random.default_rng([seed, repeat, round(100 * share), list(KINDS).index(kind)])
    return spoil(val.logits, val.labels, share, kind, _confused(name), rng)


@lru_cache
def _confused(name: str) -> NDArray[np.int64]:
    network = networks.load(name)
    return most_confused(network.logits, network.labels)


STUDY = Study("noise", jobs, run)


def noise(rows: Sequence[Row], _: Settings) -> Page:
    """NLL and ECE against the share of wrong labels."""
    values = {m: gather(rows, ("network", "kind", "share", "method"), m) for m in ("nll", "ece")}
    wrong = gather(rows, ("network", "kind", "share"), "labels_wrong")
    tables = {}
    for measure, digits in (("nll", 4), ("ece", 2)):
        for kind in KINDS:
            lines = []
            for name in NETWORKS:
                for share in (0.0, *shares_of(kind)):
                    cell = (kind, share) if share else ("none", 0.0)
                    found = [spread(values[measure].get((name, *cell, m)), digits) for m in METHODS]
                    lines.append([about(name).label, f"{share:.0%}", f"{wrong[name, *cell].mean():.0%}", *found])
            head = ["network", "noise", "labels wrong", *(TITLES[m] for m in METHODS)]
            tables[f"{measure}_{kind}"] = table(head, lines)
    shown = {measure: {" ".join(map(str, key)): summary(x) for key, x in v.items()} for measure, v in values.items()}
    figure = figures.against_noise(values["nll"], NETWORKS, tuple(KINDS), SHARES, METHODS)
    return Page(tables, rows, {"means": shown}, {"noise": figure})
