"""Tables 1 and 2: every method for every network, over random divisions into a fifth for validation and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.reproduce import networks, paper
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Floats, Page, beside, gather, spread, summary, table
from experiments.reproduce.recipes import ALL, AS_RUN, TITLES, fit, judge

__all__ = ["STUDY", "divisions", "methods_of", "table1", "table2"]

MANY, DIVISIONS_OF_MANY = 100, 10  # classes, with which everything takes ten times as long
# The authors' optimiser ends where its start has it, in every division; with so many classes a matrix separates the
# labels in every division, which takes seconds to find.
FEWER = 5


def jobs(settings: Settings) -> list[Job]:
    """One for each network and division; the largest networks first, so that no process waits for one in the end."""
    names = sorted(networks.names(), key=lambda name: (-about(name).n_classes, name))
    return [
        Job(f"{name} division {i}", (name, i, settings.seed), (name,))
        for name in names
        for i in range(divisions(name, settings))
    ]


def divisions(name: str, settings: Settings) -> int:
    """Return how many divisions a network has."""
    return min(settings.repeats, DIVISIONS_OF_MANY) if about(name).n_classes >= MANY else settings.repeats


def methods_of(n_classes: int, number: int) -> tuple[str, ...]:
    """Methods that are run on a division."""
    first_only = (*AS_RUN, *(["matrix"] if n_classes >= MANY else []))
    return tuple(m for m in ALL if number < FEWER or m not in first_only)


def run(name: str, number: int, seed: int) -> list[Row]:
    """Fit all methods on the validation part, and judge them on the test part."""
    network = networks.load(name)
    val, test = networks.split(network, number, seed)
    rows: list[Row] = []
    for method in methods_of(network.about.n_classes, number):
        found = fit(method, test if method == "best" else val)
        rows.append(
            {
                "network": name,
                "division": number,
                "method": method,
                **judge(found.map, test),
                "temperature": found.temperature,
                "theta": found.theta,
                "converged": int(found.converged),
            }
        )
    return rows


STUDY = Study("networks", jobs, run)


def table1(rows: Sequence[Row], settings: Settings) -> Page:
    """NLL, ECE and accuracy."""
    names = _ordered(rows)
    values = {m: gather(rows, ("network", "method"), m) for m in ("nll", "ece", "accuracy", "brier")}
    tables = {
        "n_networks": str(len(names)),
        "as_in_the_paper": _as_in_the_paper(rows, names),
        "not_here": _not_here(names),
        "chosen": _chosen(names),
        "nll": _means(values["nll"], names, ALL, 4, settings),
        "above_ts": _above_ts(values["nll"], names),
        "ece": _means(values["ece"], names, ALL, 2, settings),
        "accuracy": _means(values["accuracy"], names, ("none", "vector", "matrix", "structured"), 2, settings),
    }
    shown = {
        f"{name} {method}": {m: summary(v[name, method]) for m, v in values.items() if (name, method) in v}
        for name in names
        for method in ALL
    }
    return Page(tables, rows, {"means": shown})


def table2(rows: Sequence[Row], _: Settings) -> Page:
    """Temperatures and thresholds."""
    names = _ordered(rows)
    first = {(row["network"], row["method"]): row for row in rows if row["division"] == 0}
    lines = []
    for name in names:
        papers = _papers(paper.TABLE_2, name)
        ts, ats = first[name, "ts"], first[name, "ats"]
        lines.append(
            [
                about(name).label,
                beside(ts["temperature"], papers.get("ts"), 3),
                beside(ats["temperature"], papers.get("ats"), 3),
                beside(ats["theta"], papers.get("theta"), 3),
                _t(first[name, "best"]),
            ]
        )
    t = gather(rows, ("network", "method"), "temperature")
    theta = gather(rows, ("network", "method"), "theta")
    methods = [m for m in ALL if m not in ("none", "vector", "matrix", "structured")]
    tables = {
        "as_in_the_paper": table(["network", "T of TS", "T of ATS", "θ", "best T for the test part"], lines),
        "means": table(
            ["network", *(TITLES[m] for m in methods), "θ", "θ, loss of the code", "θ, as run"],
            [
                [
                    about(name).label,
                    *(spread(t.get((name, m)), 3) for m in methods),
                    *(spread(theta.get((name, m)), 3) for m in ("ats", "ats-code", "ats-run")),
                ]
                for name in names
            ],
        ),
    }
    shown = {
        f"{name} {method}": {"temperature": summary(t[name, method])}
        | ({"theta": summary(theta[name, method])} if (name, method) in theta else {})
        for name in names
        for method in methods
        if (name, method) in t
    }
    kept = [{k: row[k] for k in ("network", "division", "method", "temperature", "theta", "converged")} for row in rows]
    return Page(tables, kept, {"means": shown})


def _ordered(rows: Sequence[Row]) -> list[str]:
    """Networks in the order of the paper, then the others."""
    papers = {key: i for i, key in enumerate(paper.TABLE_1)}

    def place(name: str) -> tuple[int, str]:
        return papers.get(about(name).key, len(papers)) if about(name).stands_for_papers else len(papers), name

    return sorted({row["network"] for row in rows}, key=place)


def _as_in_the_paper(rows: Sequence[Row], names: Sequence[str]) -> str:
    first = {(row["network"], row["method"]): row for row in rows if row["division"] == 0}
    head = ["network", "ACC", "NLL", "ECE"]
    for method in ("TS", "ATS"):
        head += [f"{method} NLL", f"{method} ECE"]
    for method in ("matrix", "vector"):
        head += [f"{method} ACC", f"{method} NLL", f"{method} ECE"]
    lines = []
    for name in names:
        papers = _papers(paper.TABLE_1, name)
        line = [about(name).label]
        for method in ("none", "ts", "ats", "matrix", "vector"):
            row, score = first[name, method], papers.get(method)
            if method not in ("ts", "ats"):
                line.append(beside(row["accuracy"], score and score.accuracy, 2))
            line += [beside(row["nll"], score and score.nll, 4), beside(row["ece"], score and score.ece, 2)]
        lines.append(line)
    return table(head, lines)


def _not_here(names: Sequence[str]) -> str:
    here = {about(name).key for name in names}
    return "; ".join(paper.title(*network) for network in paper.TABLE_1 if network not in here) or "none"


def _chosen(names: Sequence[str]) -> str:
    """Of which runs the paper's rows are, where there are several."""
    several = [name for name in names if about(name).stands_for_papers and len(networks.runs(about(name).key)) > 1]
    return "; ".join(about(name).label for name in several) or "none"


def _means(
    values: dict[tuple[Any, ...], Floats], names: Sequence[str], methods: Sequence[str], digits: int, settings: Settings
) -> str:
    lines = [[about(n).label, *(spread(values[n, m], digits, of=settings.repeats) for m in methods)] for n in names]
    mean = ["mean of the networks", *(f"{np.mean([values[n, m].mean() for n in names]):.{digits}f}" for m in methods)]
    return table(["network", *(TITLES[m] for m in methods)], [*lines, mean])


def _above_ts(nll: dict[tuple[Any, ...], Floats], names: Sequence[str]) -> str:
    others = tuple(m for m in ALL if m not in ("none", "ts", "vector", "matrix"))
    above = {(n, m): nll[n, m] - nll[n, "ts"][: len(nll[n, m])] for n in names for m in others}
    lines = [
        [about(n).label, *(f"{spread(above[n, m], 4, '+')}, {_share(above[n, m])}" for m in others)] for n in names
    ]
    whole = ["all networks"]
    for m in others:
        d = np.concatenate([above[n, m] for n in names])
        whole.append(f"{d.mean():+.4f}, {_share(d)}")
    return table(["network", *(TITLES[m] for m in others)], [*lines, whole])


def _share(above: Floats) -> str:
    return f"{np.mean(above < 0):.0%}"


def _papers(of: Mapping[paper.Network, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return of.get(about(name).key, {}) if about(name).stands_for_papers else {}


def _t(row: Row) -> str:
    return "–" if row["temperature"] is None else f"{row['temperature']:.3f}"
