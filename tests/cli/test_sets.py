"""`attemper sets`, and what other commands do with its policies."""

import csv
import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

from attemper import TemperatureScaling
from attemper.cli.schemas import schema_of
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
        found = json.loads(done.out)
        jsonschema.Draft202012Validator(schema_of(args[0])).validate(found)
        return found

    return run


def test_sets_are_evaluated_saved_and_applied(good, files, tmp_path):
    shown = good("sets", *files, "--method", "ts", "-o", "s.json", "--save-map", "m.json", "--sets-out", "s.csv")
    assert "fitted on 80 of 400" in shown
    assert "thresholds from 320" in shown
    assert "at least 0.95 of new samples" in shown
    policy = SetPolicy.load("s.json")
    assert policy.n_samples == 320
    assert "wrote 400 rows" in good(
        "apply", "m.json", "test.npz", "--sets", "s.json", "-o", "again.csv", "--labels-key", "labels"
    )
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
    assert as_json("inspect", "s.json")["promise"] == found["promise"]
    as_json("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")
    by_class = as_json("sets", *files, "--by", "class", "--coverage", "0.9", "--guarantee-level", "0.9")
    assert len(by_class["policy"]["thresholds"]) == 4
    by_case = as_json("sets", *files, "--clusters", "patient")
    assert by_case["policy"]["n_units"] == [160]
    assert by_case["n_calibrated"] == 320
    assert by_case["test"]["n_clusters"] == 200


def test_groups(as_json, good, bad, cli, files):
    found = as_json("sets", *files, "--by", "group", "--groups", "site", "-o", "s.json", "--save-map", "m.json")
    assert found["policy"]["groups"] == ["a", "b"]
    assert [row["name"] for row in found["test"]["by_group"]] == ["a", "b"]
    good("apply", "m.json", "test.npz", "--sets", "s.json", "--groups", "site", "-o", "s.csv")
    assert "--groups NAME" in bad("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")
    assert "--groups NAME" in bad("sets", *files, "--by", "group")
    shown = good("sets", *files, "--groups", "site")  # coverage by group, with one threshold
    assert "group" in shown
    assert "b: " in good("inspect", "s.json")
    assert "--sets-group NAME" in bad("export", "m.json", "-o", "s.onnx", "--sets", "s.json")
    good("export", "m.json", "-o", "s.onnx", "--sets", "s.json", "--sets-group", "b")


def test_export(good, bad, as_json, files):
    good("sets", *files, "--score", "aps", "-o", "s.json", "--save-map", "m.json")
    found = as_json("export", "m.json", "-o", "s.onnx", "--sets", "s.json")
    assert found["sets"] in [output.name for output in onnx.load("s.onnx").graph.output]
    assert "bool" in good("inspect", "s.onnx")
    assert "--sets" in bad("export", "m.json", "-o", "s.onnx", "--sets", "s.json", "--positive")


def test_a_map_must_not_be_fitted_on_the_samples_of_the_thresholds(bad, cli, good, files):
    good("fit", "val.npz", "--method", "ts", "-o", "m.json")
    assert "same sha256" in bad("sets", *files, "--map", "m.json")
    h, y = draw(300, 4, seed=7)
    TemperatureScaling().fit(h, y).save("other.json")
    assert "from other.json" in good("sets", *files, "--map", "other.json", "-o", "s.json")
    done = cli("apply", "m.json", "test.npz", "--sets", "s.json", "-o", "s.csv")
    assert (done.code, "another map" in done.err) == (0, True)
    assert "--method" in bad("sets", *files, "--map", "other.json", "--method", "ts")


def test_too_few_samples_are_reported(cli, files):
    done = cli("sets", *files, "--coverage", "0.999")
    assert done.code == 0
    assert "needs 999 samples, and there are 320" in done.err
    assert "every class is in every set" in done.out


def test_errors_name_flags(bad, files):
    assert "--coverage 95" in bad("sets", *files, "--coverage", "95")
    assert "--score raps" in bad("sets", *files, "--penalty", "0.1")
    assert "unsupported extension '.xlsx'" in bad("sets", *files, "--sets-out", "s.xlsx")
    assert "unsupported extension '.npy'" in bad("sets", *files, "--sets-out", "s.npy")


def test_sets_of_a_map_with_groups_are_exported_for_one(good, bad, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("fit", "val", "test"):
        y = rng.integers(4, size=300)
        h = rng.normal(size=(300, 4)) + 2 * np.eye(4)[y]
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, site=np.array(["a", "b"])[np.arange(300) % 2])
    good("fit", "fit.npz", "--groups", "site", "-o", "g.json")
    good("sets", "val.npz", "test.npz", "--map", "g.json", "--groups", "site", "-o", "sg.json")
    assert "--group NAME" in bad("export", "g.json", "--sets", "sg.json", "-o", "x.onnx")
    assert "and the same sets" in good("export", "g.json", "--sets", "sg.json", "--group", "a", "-o", "x.onnx")
