"""Table 3: MC dropout and deep ensembles, and what temperature scaling adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attemper.errors import FileError, InputError
from attemper.torch import average
from experiments.reproduce import networks, paper
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Page, beside, gather, spread, summary, table
from experiments.reproduce.recipes import TITLES, fit, judge

__all__ = ["STUDY", "table3"]

MEMBERS = 3

SOURCES = {
    "single": "one network",
    "dropout-off": "trained with dropout, off in the test",
    "mc": "MC dropout, 100 passes",
    "ensemble": f"ensemble of {MEMBERS}",
}
METHODS = ("none", "ts", "ats", "bayes")
PAPERS = ("mc", "ensemble")


def jobs(settings: Settings) -> list[Job]:
    """One for each architecture and data set of which there are members and a network with dropout."""
    found: list[tuple[str, ...]] = []
    for name in networks.names():
        members, dropout = networks.members(name), networks.with_dropout(name)
        if name == members[0] and len(members) >= MEMBERS and dropout is not None:
            found.append((*members[:MEMBERS], dropout))
    if not found:
        raise FileError(
            f"no architecture is here with {MEMBERS} seeds and with dropout on one data set; the data/ folder of the "
            "repository has four"
        )
    return [
        Job(f"{names[0]} division {i}", (names, i, settings.seed), names)
        for names in found
        for i in range(settings.repeats)
    ]


def run(names: Sequence[str], number: int, seed: int) -> list[Row]:
    """Judge single networks, MC dropout and the ensemble, before and after calibration."""
    *members, dropout = map(networks.load, names)
    for other in (*members[1:], dropout):
        if not np.array_equal(other.labels, members[0].labels):
            raise InputError(f"{other.about.name} has other labels than {names[0]}: they cannot be averaged")
    averaged = average([member.logits for member in members]).log_probs
    sources = {
        "single": members[0].logits,
        "dropout-off": dropout.logits,
        "mc": dropout.dropout_logits(),
        "ensemble": averaged,
    }
    rows: list[Row] = []
    for source, logits in sources.items():
        val, test = networks.split(replace(members[0], logits=np.asarray(logits)), number, seed)
        for method in METHODS:
            found = fit(method, val)
            row = {"network": names[0], "division": number, "source": source, "method": method}
            rows.append({**row, **judge(found.map, test), "temperature": found.temperature})
    return rows


STUDY = Study("ensembles", jobs, run)


def table3(rows: Sequence[Row], _: Settings) -> Page:
    """MC dropout and ensembles as in the paper, and calibrated."""
    names = list(dict.fromkeys(row["network"] for row in rows))
    first = {(r["network"], r["source"], r["method"]): r for r in rows if r["division"] == 0}
    lines = []
    for name in names:
        papers = paper.TABLE_3.get(about(name).key, {})
        line = [about(name).label]
        for source in PAPERS:
            row, score = first[name, source, "none"], papers.get(source)
            line += [
                beside(row["accuracy"], score and score.accuracy, 2),
                beside(row["nll"], score and score.nll, 4),
                beside(row["ece"], score and score.ece, 2),
            ]
        lines.append(line)
    head = ["network", *(f"{what} {measure}" for what in ("MC", "ensemble") for measure in ("ACC", "NLL", "ECE"))]
    tables = {"as_in_the_paper": table(head, lines)}
    shown = {}
    for measure, digits in (("nll", 4), ("ece", 2), ("accuracy", 2)):
        values = gather(rows, ("network", "source", "method"), measure)
        shown[measure] = {" ".join(key): summary(v) for key, v in values.items()}
        methods = METHODS if measure != "accuracy" else ("none",)
        lines = [
            [f"{about(name).label}: {SOURCES[source]}", *(spread(values[name, source, m], digits) for m in methods)]
            for name in names
            for source in SOURCES
        ]
        tables[measure] = table(["network", *(TITLES[m] for m in methods)], lines)
    return Page(tables, rows, {"means": shown})
