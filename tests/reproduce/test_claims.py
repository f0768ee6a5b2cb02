"""The figures of docs/claims.md are those of docs/results."""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from attemper.reproduce import PAGES, paper

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "claims.md").read_text()

NETWORKS = {
    "LeNet5, MNIST": "lenet5-mnist-s0",
    "VGG16, CIFAR-10": "vgg16-cifar10-s0",
    "VGG16, CIFAR-100": "vgg16-cifar100-s0",
    "skin lesions": "resnet200-skin-randomsplit-s0",
}
METHODS = {"uncalibrated": "none", "TS": "ts", "ATS": "ats", "Bayesian": "bayes", "structured": "structured"}


def values(page, keys, measure="nll"):
    found = defaultdict(list)
    with (DOCS / "results" / f"{page}.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row.get(measure):
                found[tuple(row[key] for key in keys)].append(float(row[measure]))
    return {key: np.array(v) for key, v in found.items()}


def section(number):
    return re.split(r"^### ", TEXT, flags=re.M)[number].split("\n## ")[0]


def rows(text):
    lines = [line[1:-1].replace("*", "").split("|") for line in text.splitlines() if line.startswith("|")]
    head, _, *rest = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, line)) for line in rest]


def test_every_claim_has_a_verdict_a_command_and_the_same_verdict_twice():
    summary = {row["#"]: row[""] for row in rows(TEXT.split("Where ATS helps")[0])}
    titles = re.findall(r"^### (\d+)\. .*: (holds|holds in part|does not hold)$", TEXT, flags=re.M)
    assert dict(titles) == summary
    assert list(summary) == [str(i) for i in range(1, len(summary) + 1)]
    for i in range(1, len(summary) + 1):
        commands = re.findall(r"`(attemper reproduce [\w ]+|make bench|tests/contract.py)`", section(i))
        assert commands, i
        for command in commands:
            if command.startswith("attemper"):
                assert set(command.split()[2:]) <= set(PAGES)


def test_the_figures_about_noise():
    nll = values("noise", ("network", "kind", "share", "method"))
    table = rows(section(11))
    assert len(table) == 12
    for row in table:
        name = NETWORKS[row["network"]]
        for title, method in METHODS.items():
            assert float(row[title]) == pytest.approx(nll[name, row["noise"], "0.3", method].mean(), abs=5.1e-4), row
        assert float(row["TS, right labels"]) == pytest.approx(nll[name, "none", "0", "ts"].mean(), abs=5.1e-4)


def test_the_figures_about_size():
    nll = values("size", ("network", "labels", "method"))
    table = rows(section(12))
    assert len(table) == 9
    for row in table:
        for title in ("uncalibrated", "TS", "ATS", "Bayesian"):
            found = nll[NETWORKS[row["network"]], row["labels"], METHODS[title]]
            told = [float(word) for word in row[title].split("±")]
            assert told == pytest.approx([found.mean(), found.std(ddof=1)][: len(told)], abs=5.1e-4), row


def test_the_figures_about_table_1():
    by = ("network", "division", "method")
    nll, ece = values("table1", by), values("table1", by, "ece")
    cases = sorted({key[:2] for key in nll})

    def of(measure, method):
        return np.concatenate([measure[*case, method] for case in cases])

    ats, best = of(nll, "ats") - of(nll, "ts"), of(nll, "best") - of(nll, "ts")
    assert len(ats) == 480
    assert abs(ats.mean()) < 5e-5
    assert np.abs(ats).max() == pytest.approx(0.0007, abs=5.1e-5)
    assert np.mean(ats < 0) == pytest.approx(0.5, abs=0.05)
    assert best.mean() == pytest.approx(-0.0003, abs=5.1e-5)
    assert [of(ece, m).mean() for m in ("none", "ts", "ats")] == pytest.approx([6.6, 1.3, 1.3], abs=0.051)
    assert [of(nll, m).mean() for m in ("none", "ts")] == pytest.approx([0.571, 0.459], abs=5.1e-4)
    gap = [s["ts"].nll - s["ats"].nll for s in paper.TABLE_1.values()]
    assert [np.mean(gap), max(gap)] == pytest.approx([0.013, 0.030], abs=5.1e-4)
    # How the paper's gap comes about
    run = [(of(nll, m) - of(nll, "ts")).mean() for m in ("ts-run", "ats-run")]
    assert run == pytest.approx([0.068, 0.010], abs=5.1e-4)
    assert [of(ece, m).mean() for m in ("ts-run", "ats-run")] == pytest.approx([4.7, 2.7], abs=0.051)
    assert np.mean(of(nll, "ats-run") < of(nll, "ts-run")) == pytest.approx(0.86, abs=0.006)


def test_the_figures_about_vectors_and_matrices():
    nll, accuracy = (values("table1", ("network", "method"), measure) for measure in ("nll", "accuracy"))
    names = sorted({key[0] for key in nll})

    def count(measure, method, other):
        return sum(measure[n, method].mean() > measure[n, other].mean() for n in names)

    assert len(names) == 24
    assert (count(nll, "matrix", "ts"), count(accuracy, "none", "matrix")) == (24, 24)
    assert (count(nll, "vector", "ts"), count(accuracy, "none", "vector")) == (18, 21)
    assert count(nll, "none", "vector") == 18
    assert sum(s["vector"].nll > s["none"].nll for s in paper.TABLE_1.values()) == 12
    means = [np.mean([accuracy[n, m].mean() for n in names]) for m in ("none", "vector")]
    assert means == pytest.approx([86.4, 86.1], abs=0.051)


def test_the_figures_about_the_skin_network():
    name = "resnet200-skin-randomsplit-s0"
    told = {"nll": (0.5696, 0.5696), "ece": (1.94, 1.91), "area_paper": (0.844, 0.844), "area": (0.845, 0.845)}
    for measure, pair in told.items():
        page = "referral" if measure.startswith("area") else "table4"
        v = values(page, ("network", "what", "method"), measure)
        found = [v[name, "division", m].mean() for m in ("ts", "ats")]
        assert found == pytest.approx(pair, abs=5.1e-3 if measure == "ece" else 5.1e-4)
    v = values("referral", ("network", "what", "method"), "area_paper")[name, "division", "none"]
    assert v.mean() == pytest.approx(0.809, abs=5.1e-4)
