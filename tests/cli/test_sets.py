"""`attemper sets`, and what other commands do with its policies."""

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from attemper import TemperatureScaling
from attemper.decisions import SetPolicy

from data import draw


@pytest.fixture
def files(tmp_path):
    for name, seed in (("val", 0), ("test", 1)):
        h, y = draw(400, 4, seed=seed)
        ids = {"patient": np.arange(400) // 2, "site": np.array(["a", "b"])[np.arange(400) % 2]}
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, **ids)
    return "val.npz", "test.npz"


@pytest.fixture
def as_json(cli):
    def run(*args):
        done = cli(*args, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return run


def test_sets_are_evaluated_saved_and_applied(good, files, tmp_path):
    good("sets", *files, "--method", "ts", "-o", "s.json", "--save-map", "m.json", "--sets-out", "s.csv")
    assert SetPolicy.load("s.json").n_samples == 320
    good("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "again.csv", "--labels-key", "labels")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "s.csv").read_text()
    with Path("s.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 400
    for row in rows:
        assert len(row["set"].split("; ")) == int(row["size"])
        assert row["action"] == ("decide" if row["size"] == "1" else "list" if int(row["size"]) <= 3 else "refer")
    held = np.mean([row["label"] in row["set"].split("; ") for row in rows])
    assert 0.9 < held < 0.99


def test_formats_of_sets(good, files):
    good("sets", *files, "-o", "s.json", "--save-map", "m.json", "--sets-out", "s.npz")
    good("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.jsonl")
    with np.load("s.npz") as arrays:
        assert arrays["sets"].shape == (400, 4)
        assert arrays["sets"].dtype == bool
        sizes = arrays["sets"].sum(axis=1)
    with Path("s.jsonl").open() as stream:
        rows = [json.loads(line) for line in stream]
    assert [row["size"] for row in rows] == sizes.tolist()
    assert [len(row["set"]) for row in rows] == sizes.tolist()


def test_json(as_json, files):
    found = as_json("sets", *files, "--score", "raps", "-o", "s.json", "--save-map", "m.json")
    assert found["test"]["n"] == 400
    assert found["policy"]["score"] == "raps"
    assert (found["n_fitted"], found["n_calibrated"]) == (80, 320)
    as_json("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")
    by_class = as_json("sets", *files, "--by", "class", "--coverage", "0.9", "--guarantee-level", "0.9")
    assert len(by_class["policy"]["thresholds"]) == 4
    by_case = as_json("sets", *files, "--clusters", "patient")
    assert by_case["policy"]["n_units"] == [160]
    assert by_case["n_calibrated"] == 320
    assert by_case["test"]["n_clusters"] == 200


def test_groups(as_json, good, bad, files):
    found = as_json("sets", *files, "--by", "group", "--groups", "site", "-o", "s.json", "--save-map", "m.json")
    assert found["policy"]["groups"] == ["a", "b"]
    assert [row["name"] for row in found["test"]["by_group"]] == ["a", "b"]
    good("apply", "m.json", "test.npz", "--sets", "s.json", "--groups", "site", "-o", "s.csv")
    bad("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")
    bad("sets", *files, "--by", "group")
    good("sets", *files, "--groups", "site")  # coverage by group, with one threshold
    bad("export", "m.json", "-o", "s.onnx", "--sets", "s.json")
    good("export", "m.json", "-o", "s.onnx", "--sets", "s.json", "--sets-group", "b")


def test_a_map_with_groups(good, bad, files, tmp_path):
    h, y = draw(400, 4, seed=2)
    np.savez(tmp_path / "fit.npz", logits=h, labels=y, site=np.array(["a", "b"])[np.arange(400) % 2])
    good("fit", "fit.npz", "--groups", "site", "-o", "g.json")
    bad("sets", *files, "--map", "g.json")
    good("sets", *files, "--map", "g.json", "--no-groups")
    good("sets", *files, "--map", "g.json", "--groups", "site", "-o", "sg.json")
    bad("export", "g.json", "--sets", "sg.json", "-o", "x.onnx")
    good("export", "g.json", "--sets", "sg.json", "--group", "a", "-o", "x.onnx")


def test_export(good, bad, as_json, files):
    good("sets", *files, "--score", "aps", "-o", "s.json", "--save-map", "m.json")
    found = as_json("export", "m.json", "-o", "s.onnx", "--sets", "s.json")
    assert found["sets"] in [output.name for output in onnx.load("s.onnx").graph.output]
    bad("export", "m.json", "-o", "s.onnx", "--sets", "s.json", "--positive")


def test_a_map_must_not_be_fitted_on_the_samples_of_the_thresholds(bad, cli, good, files):
    good("fit", "val.npz", "--method", "ts", "-o", "m.json")
    bad("sets", *files, "--map", "m.json")
    h, y = draw(300, 4, seed=7)
    TemperatureScaling().fit(h, y).save("other.json")
    good("sets", *files, "--map", "other.json", "-o", "s.json")
    done = cli("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")  # sets of another map
    assert (done.code, done.err.startswith("warning: ")) == (0, True)
    bad("sets", *files, "--map", "other.json", "--method", "ts")


def test_too_few_samples_are_reported(cli, files):
    done = cli("sets", *files, "--coverage", "0.999")
    assert (done.code, done.err.startswith("warning: ")) == (0, True)


def test_errors(bad, files):
    for wrong in (["--coverage", "95"], ["--penalty", "0.1"], ["--sets-out", "s.xlsx"], ["--sets-out", "s.npy"]):
        bad("sets", *files, *wrong)
