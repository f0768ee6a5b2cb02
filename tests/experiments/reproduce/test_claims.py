"""Each figure that docs/claims.md tells is computed again from docs/results and looked for in its section."""

import csv
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments.reproduce import PAGES, paper

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "claims.md").read_text()

NETWORKS = {
    "LeNet5, MNIST": "lenet5-mnist-s0",
    "VGG16, CIFAR-10": "vgg16-cifar10-s0",
    "VGG16, CIFAR-100": "vgg16-cifar100-s0",
    "skin lesions": "resnet200-skin-randomsplit-s0",
}
MNIST, CIFAR10, CIFAR100, SKIN = NETWORKS.values()
LESIONS = "resnet200-skin-lesionsplit-s0"
METHODS = {"uncalibrated": "none", "TS": "ts", "ATS": "ats", "Bayesian": "bayes", "structured": "structured"}
PAPERS = ("none", "ts", "ats", "vector", "matrix")


@cache
def values(page, keys, measure="nll"):
    found = defaultdict(list)
    with (DOCS / "results" / f"{page}.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row.get(measure):
                found[tuple(row[key] for key in keys)].append(float(row[measure]))
    return {key: np.array(v) for key, v in found.items()}


def table1(method, measure="nll", names=None):
    """One number for each network and division, in an order that is the same for all methods."""
    found = values("table1", ("network", "division", "method"), measure)
    cases = sorted({key[:2] for key in found})
    return np.concatenate([found[*case, method] for case in cases if names is None or case[0] in names])


def mean(method, measure="nll"):
    """Mean of each network."""
    found = values("table1", ("network", "method"), measure)
    return {name: found[name, method].mean() for name in sorted({key[0] for key in found})}


def noise(network, kind, share, method):
    return values("noise", ("network", "kind", "share", "method"))[network, kind, share, method]


def size(network, labels, method):
    return values("size", ("network", "labels", "method"))[network, str(labels), method]


def table3(network, source, method, measure="nll"):
    return values("table3", ("network", "source", "method"), measure)[network, source, method].mean()


def referral(method, measure, network=SKIN):
    return values("referral", ("network", "what", "method"), measure)[network, "division", method]


def section(number):
    return re.split(r"^### ", TEXT, flags=re.M)[number].split("\n## ")[0]


def gap_section():
    return TEXT.split("## How the paper's gap")[1].split("\n## ")[0]


def says(text, *figures):
    """Assert that each figure, a number with its digits, stands in the text."""
    for value, digits in figures:
        assert re.search(rf"(?<![\d.]){re.escape(f'{value:.{digits}f}')}(?!\d)", text), (
            f"{value:.{digits}f}",
            text[:90],
        )


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
        commands = re.findall(
            r"`(python -m experiments.reproduce [\w ]+|make bench|src/attemper/testing.py)`", section(i)
        )
        assert commands, i
        for command in commands:
            if command.startswith("attemper"):
                assert set(command.split()[2:]) <= set(PAGES)


def test_claims_1_to_4_about_ts():
    t = list(mean("ts", "temperature").values())
    says(section(1), (min(t), 2), (max(t), 2), (table1("ts", "temperature").min(), 2), (len(t), 0))
    says(
        section(1),
        *((table1(m).mean(), 3) for m in ("none", "ts")),
        *((table1(m, "ece").mean(), 1) for m in ("none", "ts")),
    )
    fashion = "lenet5-fashion_mnist-s0"
    says(section(1), *((table3(fashion, "mc", m), 3) for m in ("ats", "ts")))
    says(section(1), *((table3(n, "mc", "ts", "temperature"), 2) for n in (fashion, MNIST)))
    says(section(2), (noise(MNIST, "none", "0", "ts").mean(), 4))
    says(section(2), *((noise(n, "none", "0", "ts").mean(), 3) for n in (CIFAR10, CIFAR100, SKIN)))
    says(section(2), *((noise(n, "uniform", "0.1", "ts").mean(), 3) for n in NETWORKS.values()))
    for name, share in ((MNIST, "0.1"), (CIFAR10, "0.2"), (SKIN, "0.2"), (CIFAR100, "0.3")):
        assert noise(name, "uniform", share, "ts").mean() > noise(name, "none", "0", "none").mean()
    assert noise(CIFAR100, "uniform", "0.2", "ts").mean() < noise(CIFAR100, "none", "0", "none").mean()
    for name in (CIFAR10, SKIN):
        says(section(3), (size(name, 10, "ts").mean(), 2), (size(name, 10, "ts").std(ddof=1), 2))
    for name, every in ((CIFAR10, 2000), (CIFAR100, 2000), (SKIN, 801)):
        assert size(name, 100, "ts").mean() - size(name, every, "ts").mean() < 0.004
    says(section(3), (size(CIFAR100, 20, "ts").mean() - size(CIFAR100, 2000, "ts").mean(), 3))
    few = size(MNIST, 500, "ts")
    says(section(4), (few.mean(), 3), (few.std(ddof=1), 3), (size(MNIST, 500, "none").mean(), 3))
    names = [name for name in mean("ts") if "-mnist" in name and "fashion" not in name]
    excess = [mean("ts")[name] - mean("best")[name] for name in names]
    assert max(excess) < 0.0003
    says(section(4), ((table1("ts", names=names) - table1("best", names=names)).max(), 4))


def test_claims_5_to_7_about_table_1():
    ats, best = table1("ats") - table1("ts"), table1("best") - table1("ts")
    assert f"Over {len(ats)} divisions" in section(5)
    assert abs(ats.mean()) < 5e-5
    assert np.mean(ats < 0) == pytest.approx(0.5, abs=0.05)
    says(section(5), (np.abs(ats).max(), 4), (-best.mean(), 4), *((table1(m, "ece").mean(), 2) for m in ("ts", "ats")))
    ece = {m: mean(m, "ece") for m in PAPERS}
    lower = [name for name in ece["ts"] if ece["ats"][name] < ece["ts"][name]]
    assert f"for {len(lower)} of {len(ece['ts'])} networks" in section(5)
    says(section(5), (max(abs(ece["ats"][n] - ece["ts"][n]) for n in ece["ts"]), 2))
    nll = {m: mean(m) for m in PAPERS}
    least = Counter(min(PAPERS, key=lambda m, n=n: round(nll[m][n], 4)) for n in nll["ts"])
    assert f"of TS for {least['ts']} networks" in section(5)
    assert f"of vector scaling for {least['vector']};" in section(5)
    least = Counter(min(PAPERS, key=lambda m, n=n: ece[m][n]) for n in ece["ts"])
    assert f"of ATS for {least['ats']}, of vector scaling for {least['vector']} and of TS for {least['ts']}" in section(
        5
    )
    gap = [s["ts"].nll - s["ats"].nll for s in paper.TABLE_1.values()]
    says(section(5), (np.mean(gap), 3), (max(gap), 3))
    names = [name for name in mean("ts") if "-mnist" in name and "fashion" not in name]
    says(section(6), *((table1(m, "ece", names).mean(), 2) for m in ("ts", "ats", "none")))
    assert abs((table1("ats", names=names) - table1("ts", names=names)).mean()) < 1e-4
    for name in (MNIST, "lenet5-fashion_mnist-dropout-s0"):
        says(section(7), *((mean(m, "temperature")[name], 2) for m in ("ts", "ats")))
        assert round(mean("ts")[name], 4) == round(mean("ats")[name], 4)


def test_claim_10_about_the_loss():
    t = values("consistency", ("network", "method", "theta"), "temperature")
    says(section(10), *((f([t[n, "ts", ""].mean() for n in NETWORKS.values()]), 2) for f in (min, max)))
    for theta in ("0.001", "0.5"):
        found = [t[n, "ats", theta].mean() for n in NETWORKS.values()]
        says(section(10), (min(found), 1), (max(found), 1))


def test_claim_11_about_noise():
    table = rows(section(11))
    assert len(table) == 36
    for row in table:
        share = f"{int(row['share'].strip('%')) / 100:g}"
        for title, method in METHODS.items():
            found = noise(NETWORKS[row["network"]], row["noise"], share, method).mean()
            assert float(row[title]) == pytest.approx(found, abs=5.1e-4), row
    text = section(11).split("Where ours does not win")[1]
    says(text, *((noise(MNIST, "instance", "0.3", m).mean(), 3) for m in ("ats", "bayes", "structured")))
    says(text, *((noise(SKIN, "instance", "0.5", m).mean(), 3) for m in ("structured", "ts", "none")))
    says(text, *((noise(CIFAR10, "instance", "0.2", m).mean(), 3) for m in ("ats", "ts")))
    says(text, *((noise(n, "confusable", "0.5", m).mean(), 3) for n in (CIFAR10, MNIST) for m in ("bayes", "ats")))
    says(text, *((noise(MNIST, "none", "0", m).mean(), 4) for m in ("structured", "ts")))
    structured, ts = (noise(CIFAR100, "confusable", "0.1", m)[:10] for m in ("structured", "ts"))
    says(text, ((structured - ts).mean(), 3))
    assert np.sum(structured < ts) == 3


def test_claim_12_about_size():
    table = rows(section(12))
    assert len(table) == 31
    for row in table:
        for title, method in METHODS.items():
            found = size(NETWORKS[row["network"]], row["labels"], method).mean()
            assert float(row[title]) == pytest.approx(found, abs=5.1e-5), row
    for name in (CIFAR10, CIFAR100):
        worse = [size(name, n, "bayes").mean() - size(name, n, "ts").mean() for n in (100, 200, 500, 1000)]
        assert -2e-5 < min(worse) < max(worse) < 0.001
    worse = [size(CIFAR100, n, "structured").mean() - size(CIFAR100, n, "ts").mean() for n in (50, 100, 200, 500, 1000)]
    says(section(12), (min(worse), 4), (max(worse), 4))


def test_claim_13_about_vectors_and_matrices():
    nll, accuracy = ({m: mean(m, measure) for m in PAPERS} for measure in ("nll", "accuracy"))
    names = list(nll["ts"])

    def above(measure, method, other):
        return sum(measure[method][n] > measure[other][n] for n in names)

    assert above(nll, "matrix", "ts") == above(accuracy, "none", "matrix") == len(names)
    assert f"for all {len(names)};" in section(13)
    assert (
        f"TS for {above(nll, 'vector', 'ts')} of {len(names)}, accuracy lower for {above(accuracy, 'none', 'vector')}"
        in section(13)
    )
    assert f"lower one for {above(nll, 'none', 'vector')} of {len(names)}" in section(13)
    assert f"in {sum(s['vector'].nll > s['none'].nll for s in paper.TABLE_1.values())} of 14 rows" in section(13)
    says(section(13), *((np.mean(list(accuracy[m].values())), 1) for m in ("none", "vector")))


def test_claim_14_about_ensembles():
    names = ("lenet5-fashion_mnist-s0", MNIST, CIFAR10, CIFAR100)
    gain = [table3(n, "ensemble", "none", "accuracy") - table3(n, "single", "none", "accuracy") for n in names]
    says(section(14), (min(gain), 1), (max(gain), 1))
    for name in names:
        assert table3(name, "ensemble", "none") < table3(name, "single", "ts")
        assert table3(name, "ensemble", "none", "ece") > table3(name, "single", "ts", "ece")
        assert abs(table3(name, "mc", "none", "accuracy") - table3(name, "dropout-off", "none", "accuracy")) < 0.05
        says(section(14), (table3(name, "mc", "none"), 3), (table3(name, "dropout-off", "ts"), 3))
        for source in ("mc", "ensemble"):
            lower = table3(name, source, "ts") < table3(name, source, "none")
            assert lower == ((name, source) != (MNIST, "ensemble"))
    says(section(14), *((table3(CIFAR100, "ensemble", m), 3) for m in ("none", "ts")))
    says(section(14), (table3(CIFAR100, "ensemble", "none", "ece"), 1), (table3(CIFAR100, "single", "ts", "ece"), 1))


def test_claims_15_to_18_about_skin_lesions():
    for name in (SKIN, LESIONS):
        for measure, digits in (("nll", 4), ("ece", 2)):
            found = values("table4", ("network", "what", "method"), measure)
            says(section(15), *((found[name, "division", m].mean(), digits) for m in ("ts", "ats", "structured")))
        for measure, digits in (("area_paper", 3), ("area", 4)):
            gain = referral("ts", measure, name) - referral("none", measure, name)
            says(section(16), (gain.mean(), digits))
            assert np.all(gain > 0)
    for measure in ("area_paper", "area"):
        says(section(16), *((referral(m, measure).mean(), 3) for m in ("none", "ts")))
        says(section(17), *((referral(m, measure).mean(), 4) for m in ("ts", "ats")))
    says(section(16), ((referral("ts", "area") - referral("none", "area")).std(ddof=1), 4))
    says(section(17), *((referral(m, "area").mean(), 4) for m in ("bayes", "structured")))
    says(section(17), *((referral(m, "area", LESIONS).mean(), 4) for m in ("ts", "structured")))
    right, wrong = (
        {m: referral(m, f"confidence_{w}").mean() for m in ("none", "ts", "ats")} for w in ("right", "wrong")
    )
    says(
        section(18),
        *((right[m] - wrong[m], 3) for m in right),
        *((v[m], 2) for v in (right, wrong) for m in ("none", "ts")),
    )


def test_how_the_gap_may_come_about():
    told = {row[""].split(",")[0] + row[""].split(",")[1][:13]: row for row in rows(gap_section())}
    for title, method in {
        "TS as run from T = 3 (": "ts-run",
        "TS as run from T = 1.5": "ts-run-1.5",
        "TS as run best of five": "ts-run-best",
        "ATS as run best of five": "ats-run",
        "TS converged": "ts",
        "ATS converged": "ats",
    }.items():
        row = told[title]
        assert float(row["NLL above converged TS"]) == pytest.approx((table1(method) - table1("ts")).mean(), abs=5.1e-5)
        assert float(row["ECE, %"]) == pytest.approx(table1(method, "ece").mean(), abs=0.051)
        if row["ATS as run has the lower NLL"]:
            share = 100 * np.mean(table1("ats-run") < table1(method))
            assert float(row["ATS as run has the lower NLL"].strip(" %")) == pytest.approx(share, abs=0.51)
    t = values("table1", ("network", "division", "method"), "temperature")
    cases = {key[:2] for key in t}
    above = [t.get((*c, "ts-run"), [np.inf])[0] > t.get((*c, "ats-run"), [0.0])[0] for c in cases]
    says(gap_section(), (100 * np.mean(above), 0))
    assert f"in {sum(row['ts'] > row['ats'] for row in paper.TABLE_2.values())} of 14 rows" in gap_section()
