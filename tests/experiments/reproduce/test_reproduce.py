"""The committed tables are what the commands write, and pages say what their rows say."""

import csv
import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attemper import FileError, InputError, MissingExtraError
from experiments.reproduce import (
    PAGES,
    consistency,
    figures,
    grid,
    networks,
    noise,
    pages,
    recipes,
    reproduce,
    size,
    skin,
    supplement,
    table1,
    table3,
)
from experiments.reproduce.journal import Settings

from data import draw

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"

# How far numbers may differ between machines: BLAS rounds in its own way, and optimisers stop a step apart.
RTOL, ATOL = 2e-3, 2e-4


def committed(name):
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def same(ours, theirs):
    """Compare one row with its line in a CSV."""
    for key, value in ours.items():
        told = theirs[key]
        if value is None or isinstance(value, str):
            assert told == (value or ""), (key, ours)
        elif isinstance(value, float):
            assert math.isclose(value, float(told), rel_tol=RTOL, abs_tol=ATOL), (key, value, told, ours)
        else:
            assert value == int(told), (key, ours)


def check(rows, name, keys):
    """Find each row in the committed file and compare."""
    lines = {tuple(line[key] for key in keys): line for line in committed(name)}
    assert rows
    for row in rows:
        same(row, lines[tuple(pages._cell(row.get(key)) for key in keys)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "lenet5-mnist-s0",
        "resnet110-cifar10-startone-s0",
        "resnet110-cifar100-cosine-s0",
        "resnet200-skin-randomsplit-s0",
    ],
)
def test_table_1_comes_out_again(name):
    rows = table1.run(name, 1, 0)
    # Where labels are separated nothing but rounding decides where the search ends.
    steady = [row for row in rows if row["converged"] or row["method"] not in ("vector", "matrix")]
    check(steady, "table1", ("network", "division", "method"))


@pytest.mark.slow
def test_table_3_comes_out_again():
    jobs = [job for job in table3.jobs(Settings()) if job.key.endswith("division 2")]
    assert len(jobs) == 4
    for job in jobs:
        check(table3.run(*job.arguments), "table3", ("network", "division", "source", "method"))


@pytest.mark.slow
@pytest.mark.parametrize("name", skin.NETWORKS.values())
def test_table_4_and_the_referral_curve_come_out_again(name):
    division, detail = skin.run(name, 3, 0), skin.run(name, None, 0)
    for page, left_out in (("table4", skin.AREA_COLUMNS), ("referral", (*skin.MEASURES, "brier"))):
        check([skin._without(row, left_out) for row in division], page, ("network", "what", "division", "method"))
        limits = [row for row in detail if row["what"] == "interval" and skin._of_area(row) == (page == "referral")]
        assert len(limits) == 7 * (4 if page == "referral" else 2)
        check(limits, page, ("network", "what", "method", "measure"))
    curve = [row for row in detail if row["what"] == "curve, 21"]
    assert len(curve) == 4 * 21
    check(curve, "referral", ("network", "what", "method", "threshold"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, share", [("none", 0.0), ("uniform", 0.3), ("confusable", 0.1), ("instance", 0.5), ("annotators", 0.3)]
)
def test_noise_comes_out_again(kind, share):
    for name in ("lenet5-mnist-s0", "resnet200-skin-randomsplit-s0"):
        check(noise.run(name, kind, share, 1, 0), "noise", ("network", "kind", "share", "repeat", "method"))


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 100, None])
def test_size_comes_out_again(n):
    for name in ("vgg16-cifar10-s0", "resnet200-skin-randomsplit-s0"):
        check(size.run(name, n, 0, 0), "size", ("network", "labels", "repeat", "method"))


@pytest.mark.slow
def test_the_supplement_comes_out_again():
    name = "resnet110-cifar10-startone-s0"
    keys = ("network", "share", "repeat", "method")
    for share in (0.0, 0.3):
        check(supplement.run_noise(name, share, 1, 0), "supplement-noise", keys)
    check(supplement.run_size(name, 30, 1, 0), "supplement-size", ("network", "labels", "repeat", "method"))


def test_the_supplement_has_the_rows_of_the_paper_and_fashion_mnist():
    names = supplement.standing()
    assert len(names) == len(set(names)) == 13
    assert {networks.about(name).dataset for name in names} == {"mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"}
    assert all(networks.about(name).stands_for_papers for name in names)


@pytest.mark.slow
def test_consistency_comes_out_again():
    rows = consistency.run("resnet200-skin-randomsplit-s0", 4, 0)
    check(rows, "consistency", ("network", "repeat", "method", "theta"))
    found = [row["temperature"] for row in rows if row["method"] == "ats"]
    assert found == sorted(found, reverse=True)  # T falls as θ grows
    assert rows[0]["temperature"] == pytest.approx(1.5, abs=0.1)  # TS


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_committed_whole(name):
    about = json.loads((RESULTS / f"{name}.json").read_text())
    assert (about["seed"], about["repeats"]) == (0, PAGES[name].repeats)
    text = (RESULTS / f"{name}.md").read_text()
    assert "$" not in text
    assert f"`python -m experiments.reproduce {name}`" in text
    assert f"({name}.md)" in (RESULTS / "README.md").read_text()
    for picture in re.findall(r"\]\(([\w-]+\.svg)\)", text):
        assert (RESULTS / picture).read_bytes().startswith(b"<?xml")
        assert (RESULTS / picture).with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    pictured = name in ("examples", "figure2", "noise", "size", "supplement-noise", "supplement-size", "referral")
    assert (RESULTS / f"{name}.svg").exists() == pictured


def typed(line):
    """Return a line of a CSV as the row that it was."""
    whole = ("division", "repeat", "labels", "converged")
    words = ("network", "method", "source", "kind", "what", "measure", "group", "image", "label", "predicted")
    return {
        key: None if value == "" else value if key in words else int(value) if key in whole else float(value)
        for key, value in line.items()
    }


def agree(text, other):
    """Compare two texts word by word; numbers may differ by rounding in their last digit."""
    number = re.compile(r"[-+]?\d+\.?\d*")
    text, other = (re.sub(r", \d+%", "", t) for t in (text, other))  # how often differences, often zero, are below zero
    assert number.sub("#", text) == number.sub("#", other)
    for a, b in zip(number.findall(text), number.findall(other)):
        digits = len(a.partition(".")[2])
        assert float(a) == pytest.approx(float(b), rel=RTOL, abs=1.5 * 10.0**-digits), (a, b)


def close(ours, committed):
    """Compare JSON: the same keys, numbers but for rounding."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if key != "versions":
                close(value, committed[key])
    elif isinstance(ours, list):
        assert len(ours) == len(committed)
        for pair in zip(ours, committed):
            close(*pair)
    elif isinstance(ours, float):
        assert ours == pytest.approx(committed, rel=RTOL, abs=ATOL)
    else:
        assert ours == committed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["table1", "table2", "table3", "noise", "size", "consistency", "grid", "supplement-noise", "supplement-size"],
)
def test_pages_say_what_their_rows_say(name):
    rows = [typed(line) for line in committed(name)]
    repeats = PAGES[name].repeats
    page = PAGES[name].page(rows, Settings(0, repeats))
    text = pages.filled(name, page.tables | {"repeats": str(repeats), "seed": "0"})
    agree(text, (RESULTS / f"{name}.md").read_text().rpartition("\n*")[0])
    close(pages._plain(page.summary), json.loads((RESULTS / f"{name}.json").read_text()))


@pytest.mark.slow
def test_table_4_and_the_referral_figure_are_written_again_in_full(tmp_path):
    reproduce(["table4", "referral"], tmp_path, workers=1)
    for name in ("table4", "referral"):
        agree((tmp_path / f"{name}.md").read_text(), (RESULTS / f"{name}.md").read_text())
        close(*(json.loads((folder / f"{name}.json").read_text()) for folder in (tmp_path, RESULTS)))


def test_the_rows_of_a_study_are_all_there():
    lines = {name: committed(name) for name in PAGES}
    counts = Counter((line["network"], line["method"]) for line in lines["table1"])
    assert counts == Counter((line["network"], line["method"]) for line in lines["table2"])
    assert sorted({name for name, _ in counts}) == networks.names()
    for (name, method), count in counts.items():
        many = "cifar100" in name
        first_five = method in recipes.AS_RUN or (many and method == "matrix")
        assert count == (5 if first_five else 10 if many else 20), (name, method)
    counts = Counter((line["network"], line["kind"], line["share"], line["method"]) for line in lines["noise"])
    assert set(counts.values()) == {30}
    assert len(counts) == 4 * (1 + 5 + 3 * 3) * 5  # networks, kinds with their shares, methods
    for name, cells in (("supplement-noise", 4), ("supplement-size", 6)):
        found = Counter((line["network"], line["method"]) for line in lines[name])
        assert set(found.values()) == {5 * cells}
        assert len(found) == 13 * 4


def test_no_temperature_beats_the_best_one():
    """A check on all of Table 1 at once: the last column is the least NLL that a temperature can have."""
    nll = {(r["network"], r["division"], r["method"]): float(r["nll"]) for r in committed("table1")}
    for (network, division, method), value in nll.items():
        if method not in ("vector", "matrix", "bayes", "structured"):
            assert value >= nll[network, division, "best"] * (1 - 1e-5), (network, division, method)


def test_the_table_shows_the_means_of_the_rows():
    values = [float(r["nll"]) for r in committed("table1") if (r["network"], r["method"]) == ("vgg16-cifar10-s0", "ts")]
    cell = f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}"
    section = (RESULTS / "table1.md").read_text().split("## NLL: mean")[1].split("## ")[0]
    row = next(line for line in section.splitlines() if line.startswith("| VGG16, CIFAR-10 |"))
    assert row.split(" | ")[2] == cell


def test_what_cannot_be_averaged_is_told(monkeypatch):
    other = replace(networks.load("lenet5-mnist-s2"), labels=np.zeros(10000, int))
    load = networks.load
    monkeypatch.setattr(networks, "load", lambda name: other if name == "lenet5-mnist-s2" else load(name))
    names = ("lenet5-mnist-s0", "lenet5-mnist-s1", "lenet5-mnist-s2", "lenet5-mnist-dropout-s0")
    with pytest.raises(InputError):
        table3.run(names, 0, 0)


@pytest.mark.slow
def test_a_page_is_written_whole_and_the_same_each_time(tmp_path):
    for folder in ("a", "b"):
        files = reproduce(["referral"], tmp_path / folder, repeats=1, workers=1)
        assert {path.name for path in files} == {
            "referral.md",
            "referral.csv",
            "referral.json",
            "referral.svg",
            "referral.png",
            "README.md",
        }
    for path in files:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()


@pytest.mark.slow
def test_fresh_does_everything_again(tmp_path):
    for fresh, done in ((False, 0), (False, 4), (True, 0)):
        seen: list[int] = []
        reproduce(["table4"], tmp_path, repeats=1, workers=1, fresh=fresh, tick=lambda *now, to=seen: to.append(now[1]))
        assert seen[0] == done
        assert seen[-1] == 4


@pytest.mark.slow
def test_a_network_is_added_by_dropping_in_its_file(tmp_path, monkeypatch):
    for name, arch, dataset in (("densenetbc100-svhn-s0", "densenetbc100", "svhn"), ("mlp-tiny-s0", "mlp", "tiny")):
        h, y = draw(200, 3)
        config = json.dumps({"arch": arch, "dataset": dataset, "seed": 0})
        arrays = {"logits": h.astype(np.float32), "labels": y, "class_names": np.array(list("abc"))}
        np.savez(tmp_path / f"{name}.npz", **arrays, config=np.array(config))
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    reproduce(["table1", "table2"], tmp_path / "out", repeats=1, workers=1)
    first, second = ((tmp_path / "out" / f"table{i}.md").read_text() for i in (1, 2))
    row = next(line for line in first.splitlines() if line.startswith("| DenseNet100, SVHN |"))
    assert "(95.72)" in row  # the paper's accuracy
    assert "(0.548)" in row
    assert "| mlp, tiny |" in first
    assert "DenseNet100, SVHN" not in first.split("without a network here:")[1].split("\n")[0]
    assert re.search(r"\| DenseNet100, SVHN \| [\d.]+ \(1.407\) \| [\d.]+ \(1.355\) \|", second)


@pytest.mark.parametrize(
    "told, message",
    [
        ({"pages": ["table5"]}, "'table5' is no table or figure; there are table1, table2"),
        ({"repeats": 0}, "repeats=0"),
        ({"seed": -1}, "seed=-1"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_what_cannot_be_asked(tmp_path, told, message):
    with pytest.raises(InputError):
        reproduce(**({"pages": ["table4"], "output": tmp_path} | told))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError):
        reproduce(["table4"], tmp_path / "file")


def test_without_matplotlib_nothing_is_begun(tmp_path, monkeypatch):
    def missing():
        raise MissingExtraError("matplotlib is needed")

    monkeypatch.setattr(figures, "need", missing)
    with pytest.raises(MissingExtraError):
        reproduce(["table4"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_numbers_that_are_none_are_told_as_such():
    assert pages.as_csv([{"a": 1, "b": None}, {"a": 0.123456789, "c": "x"}]) == "a,b,c\n1,,\n0.123457,,x\n"
    assert pages._plain({"a": math.nan, "b": [math.inf, 1.0]}) == {"a": None, "b": [None, 1.0]}
    assert pages.spread(None, 2) == "–"
    assert pages.spread(np.array([1.0, 2.0]), 2, "+") == "+1.50 ± 0.71"
    assert pages.spread(np.array([-1e-9, 0.0]), 2, "+") == "0.00 ± 0.00"
    assert pages.beside(1.2345, 1.3, 2) == "1.23 (1.3)"
    assert pages.beside(None, None, 2) == "–"
    assert pages.table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"


@pytest.mark.slow
def test_the_grid_comes_out_again():
    name = "resnet200-skin-randomsplit-s0"
    for kind, n in (("annotators", None), ("none", 50)):
        check(grid.run(name, kind, n, 1, 0), "grid", ("network", "kind", "labels", "repeat", "method"))


def test_a_grid_that_reaches_one_gives_the_temperature_of_ts():
    t = {(r["network"], r["kind"], r["labels"], r["repeat"], r["method"]): r for r in committed("grid")}
    for key, row in t.items():
        if key[-1] == "ts":
            to_one = t[*key[:-1], list(grid.GRIDS)[-1]]
            assert float(to_one["temperature"]) == pytest.approx(float(row["temperature"]), rel=0.02)
