"""The size study: how many validation labels are enough."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.reproduce import figures, networks
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.noise import METHODS, NETWORKS
from experiments.reproduce.pages import Page, gather, spread, summary, table
from experiments.reproduce.recipes import TITLES, fit, judge

__all__ = ["STUDY", "run_methods", "size"]

SIZES = (10, 20, 50, 100, 200, 500, 1000, None)  # None: the whole fifth


def jobs(settings: Settings) -> list[Job]:
    """One for each network, size and repeat; large ones first."""
    order = sorted(NETWORKS, key=lambda name: -about(name).n_classes)
    return [
        Job(f"{name} {n or 'all'} labels repeat {i}", (name, n, i, settings.seed), (name,))
        for name in order
        for n in reversed(SIZES)
        for i in range(settings.repeats)
        if n is None or n < len(networks.load(name).labels) // 5
    ]


def run(name: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Fit on the first n samples of a validation part that is in random order."""
    return run_methods(METHODS, name, n, repeat, seed)


def run_methods(methods: Sequence[str], name: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Run some of the methods."""
    network = networks.load(name)
    val, test = networks.split(network, repeat, seed)
    part = val.take(np.arange(n if n is not None else len(val.labels)))
    rows: list[Row] = []
    for method in methods:
        found = fit(method, part)
        case = {"network": name, "labels": len(part.labels), "repeat": repeat, "method": method}
        rows.append({**case, **judge(found.map, test), "temperature": found.temperature})
    return rows


STUDY = Study("size", jobs, run)


def size(rows: Sequence[Row], _: Settings) -> Page:
    """NLL and ECE against the number of labels."""
    values = {m: gather(rows, ("network", "labels", "method"), m) for m in ("nll", "ece")}
    tables = {}
    for measure, digits in (("nll", 4), ("ece", 2)):
        v = values[measure]
        lines = [
            [about(name).label, str(n), *(spread(v.get((name, n, m)), digits) for m in METHODS)]
            for name in NETWORKS
            for n in sorted({key[1] for key in v if key[0] == name})
        ]
        tables[measure] = table(["network", "labels", *(TITLES[m] for m in METHODS)], lines)
    shown = {measure: {" ".join(map(str, key)): summary(x) for key, x in v.items()} for measure, v in values.items()}
    figure = figures.against_size(values["nll"], NETWORKS, METHODS)
    return Page(tables, rows, {"means": shown}, {"size": figure})
