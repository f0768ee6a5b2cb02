"""Table 4: skin lesions."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.reproduce import networks, paper
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit
from experiments.reproduce.networks import SKIN
from experiments.reproduce.pages import beside, gather, spread, table

__all__ = ["STUDY"]

METHODS = ("none", "ts", "ats", "ats-code", "bayes", "structured")
MEASURES = {"accuracy": 2, "nll": 4, "ece": 2, "temperature": 3, "theta": 3}  # and their digits
HEAD = ["method", "ACC, %", "NLL", "ECE, %", "T", "θ"]


def jobs(repeats: int) -> list[Job]:
    return [(name, i) for name in SKIN for i in range(repeats)]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Fit and evaluate each method on one split."""
    val, test = networks.split(name, repeat, seed)
    rows = []
    for method in METHODS:
        fitted = fit(method, val)
        found = {"temperature": fitted.temperature, "theta": fitted.theta}
        rows.append({"network": name, "repeat": repeat, "method": method, **evaluate(fitted, test), **found})
    return rows


def files(rows: Sequence[Row]) -> dict[str, str]:
    parts = []
    for name, title in SKIN.items():
        of = [row for row in rows if row["network"] == name]
        first = {row["method"]: row for row in of if row["repeat"] == 0}
        values = {measure: gather(of, ("method",), measure) for measure in MEASURES}
        papers = {} if "lesionsplit" in name else paper.TABLE_4
        ours = [
            [
                TITLES[m],
                *(beside(first[m][key], p, MEASURES[key]) for key, p in zip(MEASURES, papers.get(m, [None] * 5))),
            ]
            for m in METHODS
        ]
        means = [
            [TITLES[m], *(spread(values[key].get((m,)), digits) for key, digits in MEASURES.items())] for m in METHODS
        ]
        heading = f"## {title[0].upper()}{title[1:]}"
        parts += [f"{heading}: split 0{', with the paper in brackets' if papers else ''}", table(HEAD, ours)]
        parts += [f"{heading}: mean ± standard deviation over {len(of) // len(METHODS)} splits", table(HEAD, means)]
    text = """# Table 4: skin lesions

A ResNet200 for skin lesions (HAM10000, seven classes), trained from scratch on 6009 images. Of the other 4006 a fifth
(801) is for validation and the rest (3205) for test. The paper splits images at random, so images of one lesion are in
both parts; the second network keeps all images of a lesion in one part, in training and here. Our networks are less
accurate than the paper's, so compare methods, not levels.

{}

Single lesions, as in Figures 1 and 6: [examples](examples.md). Which cases to refer: [referral](referral.md).

*`python -m experiments.reproduce table4`; every number is in [table4.csv](table4.csv).*
"""
    return {"table4.md": text.format("\n\n".join(parts))}


STUDY = Study("table4", 20, jobs, run, files)
