"""Tables 1 and 2: every method for every network, over random splits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.reproduce import networks, paper
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit
from experiments.reproduce.networks import ROWS, label
from experiments.reproduce.pages import beside, gather, n_repeats, spread, table

__all__ = ["OTHER_NETWORKS", "STUDY"]

# A matrix of K × K numbers takes seconds to fit for 100 classes, half a minute for 200, eight minutes for 1000.
MATRICES = {100: 5, 200: 1, 1000: 1}  # splits that have one, by the number of classes

OTHER_NETWORKS = """\\* **Other networks than the paper's**, which has a pretrained VGG16 for Birds (CUB-200-2011)
and a ResNet152 for ImageNet. Ours: for Birds a VGG16 that was trained from scratch, and an EfficientNet-Lite0 that was
fine-tuned from ImageNet weights; for ImageNet an EfficientNet-Lite2 with published weights, on 5000 images. The paper
does not describe its WideResNet32; ours is a WideResNet-28-10. Compare methods, not levels."""


def jobs(repeats: int) -> list[Job]:
    order = sorted(networks.names(), key=lambda name: -networks.load(name).samples.logits.shape[1])
    return [(name, i) for name in order for i in range(repeats)]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Fit all methods to the validation part, and evaluate them on the test part."""
    val, test = networks.split(name, repeat, seed)
    rows = []
    for method in TITLES:
        if method == "matrix" and repeat >= MATRICES.get(val.logits.shape[1], repeat + 1):
            continue
        fitted = fit(method, test if method == "best" else val)
        found = {"temperature": fitted.temperature, "theta": fitted.theta}
        rows.append({"network": name, "repeat": repeat, "method": method, **evaluate(fitted, test), **found})
    return rows


def files(rows: Sequence[Row]) -> dict[str, str]:
    return {"table1.md": _table1(rows), "table2.md": _table2(rows)}


STUDY = Study("table1", 10, jobs, run, files)


def _table1(rows: Sequence[Row]) -> str:
    first = {(row["network"], row["method"]): row for row in rows if row["repeat"] == 0}
    head = ["network", "ACC", "NLL", "ECE", "TS NLL", "TS ECE", "ATS NLL", "ATS ECE"]
    head += [f"{method} {measure}" for method in ("matrix", "vector") for measure in ("ACC", "NLL", "ECE")]
    lines = []
    for name, row_of_paper in ROWS.items():
        line = [label(name)]
        for method in ("none", "ts", "ats", "matrix", "vector"):
            ours, papers = first[name, method], paper.TABLE_1[row_of_paper][method]
            if method not in ("ts", "ats"):
                line.append(beside(ours["accuracy"], papers.accuracy, 2))
            line += [beside(ours["nll"], papers.nll, 4), beside(ours["ece"], papers.ece, 2)]
        lines.append(line)
    n = n_repeats(rows)
    return f"""# Table 1: calibration of {len({row["network"] for row in rows})} networks

A fifth of each test set is the validation set; the methods are evaluated on the rest. ECE (15 bins) and accuracy are in
per cent. TS and ATS (Eq. 8, θ tuned by the validation NLL) are fitted to convergence; *loss of the code* is the loss of
the authors' published code, which differs from Eq. (8). *Vector* and *matrix* scaling are Eq. (9) without a penalty.
*Bayesian* and *structured* are `bayes` and `structured` of attemper. *Best T* minimises the NLL of the test part: no
method with one temperature can be better.

{OTHER_NETWORKS}

## Split 0, with the paper's numbers in brackets

{table(head, lines)}

## NLL: mean ± standard deviation over {n} splits

{_means(rows)}

A matrix has {MATRICES[100]} splits for 100 classes, and one for 200 and 1000. With so many classes it separates the
validation labels, so there is no finite optimum, and the search ends where the gradient has faded. The same holds for
the vector of ImageNet, which has 2000 numbers for 1000 labels.

## All networks: NLL above that of TS on the same split, and ECE

{_above_ts(rows)}

*`python -m experiments.reproduce table1`; every number is in [table1.csv](table1.csv).*
"""


def _means(rows: Sequence[Row]) -> str:
    """Rows of the paper one by one, and the mean of all networks."""
    values = gather(rows, ("network", "method"), "nll")
    names = dict.fromkeys(row["network"] for row in rows)
    lines = [[label(name), *(spread(values[name, m], 4) for m in TITLES)] for name in ROWS]
    means = [f"{np.mean([values[name, m].mean() for name in names]):.4f}" for m in TITLES]
    return table(["network", *TITLES.values()], [*lines, [f"mean of all {len(names)} networks", *means]])


def _above_ts(rows: Sequence[Row]) -> str:
    nll, ece = (gather(rows, ("network", "method"), value) for value in ("nll", "ece"))
    names = dict.fromkeys(row["network"] for row in rows)
    lines = []
    for method, title in TITLES.items():
        above = [nll[name, method] - nll[name, "ts"][: len(nll[name, method])] for name in names]
        means, splits = np.array([a.mean() for a in above]), np.concatenate(above)
        line = [title, *(f"{value:+.4f}" for value in (means.mean(), means.min(), means.max()))]
        line += [f"{(means < 0).sum()} of {len(means)}", f"{(splits < 0).mean():.0%}"]
        lines.append([*line, f"{np.mean([ece[name, method].mean() for name in names]):.2f}"])
    head = ["method", "mean", "best network", "worst network", "networks below TS", "splits below TS", "mean ECE, %"]
    return table(head, lines)


def _table2(rows: Sequence[Row]) -> str:
    first = {(row["network"], row["method"]): row for row in rows if row["repeat"] == 0}
    t, theta = (gather(rows, ("network", "method"), value) for value in ("temperature", "theta"))
    lines = []
    for name, row_of_paper in ROWS.items():
        ts, ats, papers = first[name, "ts"], first[name, "ats"], paper.TABLE_2[row_of_paper]
        line = [label(name), beside(ts["temperature"], papers["ts"], 3), beside(ats["temperature"], papers["ats"], 3)]
        line.append(beside(ats["theta"], papers["theta"], 3))
        lines.append([*line, f"{first[name, 'best']['temperature']:.3f}"])
    methods = [m for m in TITLES if m in ("ts", "ats", "ats-code", "bayes", "best")]
    means = [
        [label(name), *(spread(t[name, m], 3) for m in methods), *(spread(theta[name, m], 3) for m in methods[1:3])]
        for name in ROWS
    ]
    n = n_repeats(rows)
    return f"""# Table 2: temperatures and θ

The temperatures behind [Table 1](table1.md). The grid of θ is 0.001, 0.002, … 0.1, and θ is tuned by the validation NLL
of the T that it gives. TS has the least validation NLL of all temperatures, so the best that any θ can give is the T of
TS. The T of the Bayesian fit is the median of its posterior.

{OTHER_NETWORKS}

## Split 0, with the paper's numbers in brackets

{table(["network", "T of TS", "T of ATS", "θ", "best T for the test part"], lines)}

## Mean ± standard deviation over {n} splits

{table(["network", *(TITLES[m] for m in methods), "θ", "θ, loss of the code"], means)}

*`python -m experiments.reproduce table1`; every number is in [table1.csv](table1.csv).*
"""
