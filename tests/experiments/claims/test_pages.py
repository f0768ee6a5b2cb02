"""The committed pages are what the committed numbers give, and no number in them is typed."""

import ast
import csv
import json
import re
import shlex
import shutil
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import cli
from claim_rows import METHODS, MNIST, SKIN, size, table1
from experiments.claims import CLAIMS, Results, benchmarks, figures
from experiments.claims.__main__ import claims
from experiments.claims.grid import HIGHER, OURS, depends_on_the_grid
from experiments.claims.page import TEXTS, claims_page
from experiments.claims.summary import COMMANDS, Situation, above_best, choose, command, situations, summary_page
from experiments.claims.wording import label
from experiments.reproduce import PAGES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SOURCES = TEXTS.parent


@pytest.fixture(scope="module")
def committed():
    return Results.read(DOCS / "results")


@pytest.mark.parametrize("name, page", [("claims", claims_page), ("ats", summary_page)])
def test_the_committed_pages_are_what_the_numbers_give(committed, name, page):
    assert page(committed) == (DOCS / f"{name}.md").read_text(encoding="utf-8"), (
        "the numbers in docs/results have changed: run `python -m experiments.claims`"
    )


def run(capsys, monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["claims", *args])
    with pytest.raises(SystemExit) as end:
        cli.main(claims, "python -m experiments.claims")
    return end.value.code or 0, *capsys.readouterr()


@pytest.mark.slow
def test_the_command_writes_the_same_bytes_each_time(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code, out, _ = run(capsys, monkeypatch, "-o", str(tmp_path / "a"))
    assert code == 0
    assert out.splitlines()[0] == f"wrote {tmp_path / 'a' / 'claims.md'}"
    _, out, _ = run(capsys, monkeypatch, "-o", str(tmp_path / "b"), "--json")
    files = [Path(path) for path in json.loads(out)["files"]]
    names = [
        "claims.md",
        "ats.md",
        *(f"images/ats-{stem}.{form}" for stem in ("labels", "wrong") for form in ("svg", "png")),
    ]
    assert [str(path.relative_to(tmp_path / "b")) for path in files] == names
    pinned = f"matplotlib=={version('matplotlib')}\n" in (ROOT / "constraints.txt").read_text()
    for name in names:
        written = (tmp_path / "b" / name).read_bytes()
        assert written == (tmp_path / "a" / name).read_bytes()
        if pinned and not name.endswith(".png"):  # zlib packs pictures in ways of its own
            assert written == (DOCS / name).read_bytes(), name


@pytest.mark.parametrize("missing", ["table1.csv", "speed.md"])
def test_what_is_missing_is_named(tmp_path, capsys, monkeypatch, missing):
    shutil.copytree(DOCS / "results", tmp_path / "results", ignore=shutil.ignore_patterns("*.svg", "*.png", "*.md"))
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "speed.md").write_text("| a |\n| --- |\n| 1 |\n")
    if missing == "table1.csv":
        (tmp_path / "results" / missing).unlink()
    code, _, err = run(capsys, monkeypatch, "--results", str(tmp_path / "results"), "-o", str(tmp_path / "out"))
    assert code == 2
    assert missing in err
    assert ("make results" if missing == "table1.csv" else "no table has the columns") in re.sub(r"\s+", " ", err)
    assert not (tmp_path / "out").exists()


def test_the_axes_of_the_plots_name_their_scale_and_have_numbers_below_zero(committed):
    labels, wrong = figures.against_labels(committed), figures.against_wrong_labels(committed)
    for figure in (labels, wrong):
        figure.canvas.draw()
        for ax in figure.axes:
            assert ax.get_yscale() == "symlog"
            ticks = ax.get_yticks()
            assert min(ticks) < 0 < max(ticks)
            drawn = [y for line in ax.lines for y in line.get_ydata()]
            low, high = (ax.transData.transform((1, y))[1] for y in ax.get_ylim())
            shown = [ax.transData.transform((1, y))[1] for y in drawn]
            assert low + 3 < min(shown)  # markers are not cut
            assert max(shown) < high - 3
        assert "−0.001" in [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels.axes[0].get_ylabel() == "NLL above the best T,\nsymmetric log scale"
    assert wrong.get_supylabel() == "NLL above the best T, symmetric log scale"


def rows_of(text):
    lines = [line[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
    head, _, *rest = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, line)) for line in rest]


def test_the_table_on_top_has_the_verdicts_of_the_sections():
    text = (DOCS / "claims.md").read_text()
    top = rows_of(text.split("## The claims")[0])
    sections = re.findall(r"^### (\d+)\. (.*): (holds|holds in part|does not hold)$", text, flags=re.M)
    assert [(row["#"], row["The paper's claim"], row["verdict"].strip("*")) for row in top] == sections
    assert [title for _, title, _ in sections] == [claim.title for claim in CLAIMS]
    for claim, row in zip(CLAIMS, top):
        assert row["command"] == f"`{claim.made_by}`"
        assert row["the number"]


def test_figures_by_network_are_the_means_of_the_rows():
    """An oracle: numpy on the CSV itself."""
    values = defaultdict(list)
    with (DOCS / "results" / "table1.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            for measure in ("nll", "ece", "accuracy", "temperature"):
                if row[measure]:
                    values[label(row["network"]), row["method"], measure].append(float(row[measure]))
    table = rows_of((DOCS / "claims.md").read_text().split("## By network")[1].split("\n## ")[0])
    assert len(table) == len({key[0] for key in values})
    for row in table:

        def mean(method, measure, name=row["network"]):
            return np.mean(values[name, method, measure])

        assert float(row["accuracy"]) == pytest.approx(mean("none", "accuracy"), abs=0.051)
        assert float(row["T of ATS"]) == pytest.approx(mean("ats", "temperature"), abs=0.0051)
        assert float(row["NLL, TS"]) == pytest.approx(mean("ts", "nll"), abs=5.1e-5)
        assert float(row["vector − TS"]) == pytest.approx(mean("vector", "nll") - mean("ts", "nll"), abs=5.1e-5)
        assert float(row["ATS"]) == pytest.approx(mean("ats", "ece"), abs=0.0051)


def test_no_measured_number_is_typed():
    """A number with a decimal point in strings and templates is a setting, a section or a quotation."""
    known = {"1810.11586", "0.01"}  # the paper, and the learning rate of the authors' notebook
    texts = [path.read_text() for path in TEXTS.glob("*.md")]
    for path in SOURCES.glob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and isinstance(node.body[0], ast.Expr)
        }
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts += [node.value for node in strings if " " in node.value and node not in docstrings]
    words = [re.sub(r"Section [\d.]+", "", text) for text in texts]
    assert len(words) > 100
    assert {number for text in words for number in re.findall(r"\d+\.\d+", text)} <= known


def test_benchmarks_are_read_from_their_page():
    rows = benchmarks.rows(DOCS / "benchmarks" / "speed.md")
    assert {row["what"] for row in rows} == {"time", "memory"}
    assert all(row["ts"] > 0 and row["ats"] > 0 for row in rows)
    text = (DOCS / "benchmarks" / "speed.md").read_text()
    memory = next(row for row in rows if row["what"] == "memory" and row["type"] == "float64")
    assert f"| {memory['ts']:g} MiB | {memory['ats']:g} MiB |" in text


def made_up(networks, **nll):
    rows = table1(lambda row: {"nll": nll.get(row["method"], 1.0)}, networks)
    return Results({"table1": rows}), Situation("", "", situations_of(rows))


def situations_of(rows):
    results = Results({"table1": rows, "size": size(lambda row: 1.0), "noise": [{"kind": "none", "share": 0}]})
    return situations(results)[2].cases


def test_the_method_that_is_closest_to_the_best_is_chosen_and_of_ties_the_simplest():
    results, situation = made_up([MNIST, SKIN], structured=0.5)
    assert choose(results, situation) == "structured"
    assert above_best(results, situation) == {m: [0.5 * (m != "structured")] * 2 for m in METHODS}
    for nll, method in ((0.9995, "none"), (0.9985, "bayes")):
        results, situation = made_up([MNIST, SKIN], structured=nll, bayes=nll)
        assert choose(results, situation) == method
    nll = {"ats": {MNIST: 0.1, SKIN: 1.3}, "bayes": {MNIST: 0.7, SKIN: 0.9}}
    rows = table1(lambda row: {"nll": nll.get(row["method"], {}).get(row["network"], 1.0)}, [MNIST, SKIN])
    case = Situation("", "", situations_of(rows))
    assert above_best(Results({"table1": rows}), case)["ats"] == pytest.approx([0, 0.4])
    assert above_best(Results({"table1": rows}), case)["bayes"] == pytest.approx([0.6, 0])
    assert choose(Results({"table1": rows}), case) == "ats"  # 0.2 in the mean, 0.3 for bayes
    assert choose(Results({"table1": rows}), case, max) == "ats"
    nll["ats"][SKIN] = 1.55
    rows = table1(lambda row: {"nll": nll.get(row["method"], {}).get(row["network"], 1.0)}, [MNIST, SKIN])
    case = Situation("", "", situations_of(rows))
    assert choose(Results({"table1": rows}), case, max) == "bayes"  # 0.65 and 0.6 at worst
    assert choose(Results({"table1": rows}), case) == "bayes"  # 0.325 and 0.3


@pytest.mark.parametrize(
    "methods, words",
    [
        (["ts", "ts"], "No: in none of the 2 situations"),
        (["ats", "ts", "ts"], "Seldom: of the 3 situations below, it is the method to choose in 1 (a)."),
        (["ats", "ats", "ts"], "Often: of the 3 situations below, it is the method to choose in 2 (a and b)."),
        (["ats"], "Yes: of the 1 situations"),
    ],
)
def test_the_first_sentence_follows_from_the_choices(methods, words):
    from experiments.claims.summary import _instead, _verdict

    chosen = [(Situation("abc"[i], "", []), method) for i, method in enumerate(methods)]
    assert _verdict(chosen).startswith(words)
    others = [f"`{method}`" for method in methods if method != "ats"]
    assert ("nothing better" in _instead(chosen)) == (not others)
    assert all(other in _instead(chosen) for other in others)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")
@pytest.mark.parametrize("method", [method for method in COMMANDS if COMMANDS[method]])
def test_the_commands_of_the_table_run(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = attemper.datasets.load()
    np.savez("val.npz", logits=data.val_logits[:300], labels=data.val_labels[:300])
    for wrong in (False, True):
        shown = command(method, Situation("", "", [], wrong))
        monkeypatch.setattr(sys, "argv", shlex.split(shown.strip("`")))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code in (0, None), shown


def test_the_summary_has_a_row_for_every_kind_of_wrong_labels(committed):
    text = (DOCS / "ats.md").read_text()
    for situation in situations(committed):
        assert text.count(f"| {situation.title}") == 2
    assert set(PAGES) >= {page for claim in CLAIMS for page in claim.pages}


def test_fits_at_the_end_of_the_range_are_counted_from_the_rows(committed):
    """An oracle: the CSV itself, with the least T that a fit may have."""
    least = attemper.sketch.DEFAULT_T_RANGE[0] * 1.01
    found = defaultdict(list)
    for page in ("size", "supplement-size"):
        counts = defaultdict(list)
        with (DOCS / "results" / f"{page}.csv").open(newline="") as stream:
            for row in csv.DictReader(stream):
                if row["labels"] == "10" and row["method"] in ("ts", "ats"):
                    counts[row["network"], row["method"]].append(float(row["temperature"]) <= least)
        for key, values in counts.items():
            found.setdefault(key, values)
    text = (DOCS / "claims.md").read_text().split("### 3.")[1].split("### 4.")[0]
    table = rows_of(text)
    assert {row["network"] for row in table} == {label(network) for network, _ in found}
    column = next(name for name in table[0] if name.startswith("repeats with T at"))
    shown = {row["network"]: row[column] for row in table}
    for network in {network for network, _ in found}:
        ts, ats = (found[network, method] for method in ("ts", "ats"))
        assert shown[label(network)] == f"{sum(ts)} / {sum(ats)} of {len(ts)}"
    assert f"LeNet5, MNIST: {sum(found[MNIST, 'ts'])} and {sum(found[MNIST, 'ats'])}" in (DOCS / "ats.md").read_text()


def test_cases_that_the_grid_changes_are_counted_from_the_rows(committed):
    """An oracle: numpy on the CSV itself."""
    values = defaultdict(list)
    with (DOCS / "results" / "grid.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row["kind"] != "none":
                values[row["network"], row["kind"], row["method"]].append(float(row["nll"]))
    ends = {title: tuple(map(float, re.findall(r"[\d.]+", title))) for title in (OURS, HIGHER)}
    assert ends == {OURS: (0.001, 0.1), HIGHER: (0.01, 0.1)}
    cases = sorted({key[:2] for key in values})
    lower = sum(np.mean(values[*case, HIGHER]) < np.mean(values[*case, OURS]) - 0.001 for case in cases)
    below = [sum(np.mean(values[*c, g]) < np.mean(values[*c, "bayes"]) - 0.001 for c in cases) for g in (HIGHER, OURS)]
    n = len(cases)
    text = depends_on_the_grid(committed)
    assert f"in {lower} of {n} cases" in text
    assert f"in {below[0]} of {n} instead of {below[1]} of {n}:" in text
    assert text in (DOCS / "claims.md").read_text()
