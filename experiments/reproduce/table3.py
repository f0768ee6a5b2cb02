"""Table 3: MC dropout and deep ensembles, and what calibration adds to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attemper.torch import average
from experiments.reproduce import networks, paper
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit
from experiments.reproduce.networks import ROWS, Samples, label
from experiments.reproduce.pages import beside, gather, n_repeats, spread, table

__all__ = ["STUDY"]

NETWORKS = ("lenet5-fashion_mnist", "lenet5-mnist", "vgg16-cifar10", "vgg16-cifar100")
SOURCES = {
    "single": "one network",
    "dropout-off": "trained with dropout, off in the test",
    "mc": "MC dropout, 100 passes",
    "ensemble": "ensemble of 3",
}
METHODS = ("none", "ts", "ats", "bayes")
LEAST = 2.0**-21  # mean probabilities are stored at a resolution of 2^-20: 0 means less than this


def jobs(repeats: int) -> list[Job]:
    return [(stem, i) for stem in reversed(NETWORKS) for i in range(repeats)]


def run(stem: str, repeat: int, seed: int) -> list[Row]:
    """Evaluate single networks, MC dropout and the ensemble, before and after calibration."""
    members = [networks.load(f"{stem}-s{i}") for i in range(3)]
    dropout = networks.load(f"{stem}-dropout-s0")
    logits = {
        "single": members[0].samples.logits,
        "dropout-off": dropout.samples.logits,
        "mc": np.log(np.maximum(dropout.extra["mc_mean_probs"].astype(np.float64), LEAST)),
        "ensemble": average([member.samples.logits for member in members]).log_probs,
    }
    parts = networks.split_rows(members[0].name, repeat, seed)
    rows = []
    for source, h in logits.items():
        val, test = (Samples(np.asarray(h), members[0].samples.labels).take(part) for part in parts)
        for method in METHODS:
            case = {"network": members[0].name, "repeat": repeat, "source": source, "method": method}
            fitted = fit(method, val)
            rows.append(case | evaluate(fitted, test) | {"temperature": fitted.temperature})
    return rows


def files(rows: Sequence[Row]) -> dict[str, str]:
    names = list(dict.fromkeys(row["network"] for row in rows))[::-1]
    first = {(r["network"], r["source"]): r for r in rows if r["repeat"] == 0 and r["method"] == "none"}
    lines = []
    for name in names:
        line, papers = [label(name)], paper.TABLE_3.get(ROWS.get(name, ""), {})
        for source in ("mc", "ensemble"):
            for measure, digits in (("accuracy", 2), ("nll", 4), ("ece", 2)):
                line.append(beside(first[name, source][measure], getattr(papers.get(source), measure, None), digits))
        lines.append(line)
    head = ["network", *(f"{what} {measure}" for what in ("MC", "ensemble") for measure in ("ACC", "NLL", "ECE"))]
    n = n_repeats(rows)
    text = f"""# Table 3: MC dropout and ensembles

MC dropout: a rate of 0.5 in training and test, mean of 100 passes. Ensemble: mean of three networks that differ in
their seed. A fifth of the test set is the validation set; all is evaluated on the rest. ECE (15 bins) and accuracy are
in per cent. The paper does not calibrate the averages; the tables below do.

## Split 0, uncalibrated, with the paper's numbers in brackets

{table(head, lines)}

## NLL: mean ± standard deviation over {n} splits

{_means(rows, names, "nll", 4)}

## ECE, %: mean ± standard deviation over {n} splits

{_means(rows, names, "ece", 2)}

*`python -m experiments.reproduce table3`; every number is in [table3.csv](table3.csv).*
"""
    return {"table3.md": text}


STUDY = Study("table3", 10, jobs, run, files)


def _means(rows: Sequence[Row], names: Sequence[str], measure: str, digits: int) -> str:
    values = gather(rows, ("network", "source", "method"), measure)
    lines = [
        [f"{label(name)}: {title}", *(spread(values[name, source, m], digits) for m in METHODS)]
        for name in names
        for source, title in SOURCES.items()
    ]
    return table(["network", *(TITLES[m] for m in METHODS)], lines)
