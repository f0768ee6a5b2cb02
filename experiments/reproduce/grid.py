"""How the grid of θ decides: ATS with the paper's three intervals and with θ from 0.01 on, for wrong and few labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from attemper import AttendedTemperatureScaling, Calibrator
from attemper.errors import AttemperWarning
from experiments.reproduce import networks
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import Part, about
from experiments.reproduce.noise import NETWORKS, noisy_labels
from experiments.reproduce.pages import Page, gather, spread, summary, table
from experiments.reproduce.recipes import T_RANGE, Fitted, fit, judge
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["GRIDS", "STUDY", "grid"]

GRIDS = {
    "θ from 0.0001 to 0.001": np.arange(1, 11) * 1e-4,
    "θ from 0.001 to 0.1": np.arange(1, 101) * 1e-3,
    "θ from 0.01 to 0.1": np.arange(1, 11) * 1e-2,
    "θ from 0.01 to 1": np.arange(1, 101) * 1e-2,
}
OTHERS = {"none": "uncalibrated", "ts": "TS", "bayes": "Bayesian"}
SHARE = 0.3
FEW = (10, 50)


def jobs(settings: Settings) -> list[Job]:
    """One for each network, repeat and kind of wrong labels, or number of right labels."""
    order = sorted(NETWORKS, key=lambda name: -about(name).n_classes)
    cases: list[tuple[str, int | None]] = [*((kind, None) for kind in KINDS), *(("none", n) for n in FEW)]
    return [
        Job(f"{name} {kind} {n or 'all'} labels repeat {i}", (name, kind, n, i, settings.seed), (name,))
        for name in order
        for kind, n in cases
        for i in range(settings.repeats)
    ]


def run(name: str, kind: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Fit ATS with each grid, and what it is compared with, to the labels of the studies of noise and of size."""
    network = networks.load(name)
    val, test = networks.split(network, repeat, seed)
    if kind == "none":
        val = val.take(np.arange(n))
    else:
        val = Part(val.logits, noisy_labels(name, val, kind, SHARE, repeat, seed))
    found = {method: fit(method, val, noisy=kind != "none") for method in OTHERS}
    for title, thetas in GRIDS.items():
        found[title] = _fitted(AttendedTemperatureScaling(theta_grid=thetas, t_range=T_RANGE), val)
    case = {"network": name, "kind": kind, "labels": len(val.labels), "repeat": repeat}
    return [
        {**case, "method": method, **judge(f.map, test), "temperature": f.temperature, "theta": f.theta}
        for method, f in found.items()
    ]


def _fitted(calibrator: Calibrator, val: Part) -> Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # ends of the grid are results here
        calibrator.fit(val.logits, val.labels)
    return Fitted(calibrator.map_, calibrator.temperature_, calibrator.theta_, calibrator.report_.converged)


STUDY = Study("grid", jobs, run)


def grid(rows: Sequence[Row], _: Settings) -> Page:
    """NLL of ATS by grid, and how often θ is at the lower end of it."""
    methods = [*GRIDS, *OTHERS]
    nll, tables = gather(rows, ("network", "kind", "labels", "method"), "nll"), {"share": f"{SHARE:.0%}"}
    wrong, few = (
        [case for case in dict.fromkeys(key[:3] for key in nll) if (case[1] == "none") == clean]
        for clean in (False, True)
    )
    head = [*GRIDS, *OTHERS.values()]
    tables["wrong"] = table(
        ["wrong labels", "network", *head],
        [
            [kind, about(name).label, *(spread(nll[name, kind, n, m], 3) for m in methods)]
            for kind in KINDS
            for name, of, n in wrong
            if of == kind
        ],
        texts=2,
    )
    tables["few"] = table(
        ["labels", "network", *head],
        [
            [str(n), about(name).label, *(spread(nll[name, kind, n, m], 3) for m in methods)]
            for name, kind, n in sorted(few, key=lambda case: (case[2], case[0]))
        ],
        texts=2,
    )
    tables["lowest"] = table(
        ["labels", *GRIDS],
        [
            [words, *(_lowest(rows, title, kinds) for title in GRIDS)]
            for words, kinds in (("wrong", tuple(KINDS)), ("few", ("none",)))
        ],
    )
    shown = {" ".join(map(str, key)): summary(v) for key, v in nll.items()}
    return Page(tables, rows, {"means": shown})


def _lowest(rows: Sequence[Row], title: str, kinds: Sequence[str]) -> str:
    """Share of fits whose θ is the least of the grid."""
    thetas = [row["theta"] for row in rows if row["method"] == title and row["kind"] in kinds]
    return f"{np.mean(np.isclose(thetas, GRIDS[title][0])):.0%}"
