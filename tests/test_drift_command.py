"""`attemper drift` as its users meet it."""

import json
import sys

import numpy as np
import pytest

from attemper import IsotonicCalibration, TemperatureScaling, load
from attemper.cli import main
from attemper.drift import DriftTest


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(3000, 4))
    for name, t in (("good", 2.0), ("bad", 5.0)):
        y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
        np.savez(f"{name}.npz", logits=h, labels=y, lesion=np.arange(3000) // 3)
    with np.load("good.npz") as good:
        TemperatureScaling().fit(good["logits"], good["labels"]).save("m.json")

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["attemper", "drift", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return call


def test_verdicts_and_exit_codes(run):
    code, out, err = run("m.json", "good.npz")
    assert (code, err) == (0, "")
    assert out.startswith("no alarm")
    code, out, err = run("m.json", "good.npz", "bad.npz")
    assert (code, err) == (1, "")
    assert out.startswith("ALARM")


def test_json(run):
    code, out, _ = run("m.json", "bad.npz", "--json", "--alpha", 0.001, "--tolerance", 1)
    found = json.loads(out)
    assert code == 1
    assert found["alarm"]
    assert found["new_samples"] == found["n_samples"] == 3000
    assert found["factor"] == pytest.approx(2.5, rel=0.2)
    assert (found["alpha"], found["requested_tolerance"]) == (0.001, 1.0)
    assert found["p_value"] <= 0.001
    with np.load("bad.npz") as bad:
        expected = DriftTest(load("m.json"), alpha=0.001, tolerance=1.0)
        assert found["alarm_at"] == expected.update(bad["logits"], bad["labels"]).alarm_at


def test_a_daily_job(run, tmp_path):
    assert run("m.json", "good.npz", "--state", "d.json")[0] == 0
    code, out, _ = run("m.json", "bad.npz", "--state", f"file://{tmp_path}/d.json", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["new_samples"]) == (1, 6000, 3000)
    assert found["alarm_at"] == json.loads(run("m.json", "good.npz", "bad.npz", "--json")[1])["alarm_at"]
    with np.load("good.npz") as good:
        np.savez("later.npz", logits=good["logits"] + 0.1 * good["logits"][::-1], labels=good["labels"])
    assert run("m.json", "later.npz", "--state", "d.json")[0] == 1  # the alarm stays
    assert DriftTest.load(tmp_path / "d.json").n_samples == 9000


def test_the_same_day_counts_once(run, tmp_path):
    run("m.json", "good.npz", "--state", "d.json")
    before = (tmp_path / "d.json").read_bytes()
    (tmp_path / "copy.npz").write_bytes((tmp_path / "good.npz").read_bytes())
    for args in (["good.npz", "--state", "d.json"], ["bad.npz", "copy.npz", "--state", "d.json"]):
        assert run("m.json", *args)[:2] == (2, "")
        assert (tmp_path / "d.json").read_bytes() == before
    assert run("m.json", "good.npz", "copy.npz")[0] == 2


def test_clusters(run):
    code, out, _ = run("m.json", "bad.npz", "--clusters", "lesion", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["n_rows"]) == (1, 1000, 3000)
    assert run("m.json", "bad.npz", "--clusters", "patient")[0] == 2


def test_groups_choose_their_maps(run):
    with np.load("good.npz") as good:
        site = np.array(["a", "b"])[np.arange(3000) % 2]
        np.savez("sites.npz", logits=good["logits"], labels=good["labels"], site=site)
        TemperatureScaling().fit(good["logits"], good["labels"], groups=site).save("g.json")
    assert run("g.json", "sites.npz", "--groups", "site", "--state", "d.json")[0] == 0
    assert run("g.json", "sites.npz", "--no-groups")[0] == 0
    assert run("g.json", "good.npz")[0] == 2


def test_the_tolerance_is_that_of_the_map(run):
    with np.load("good.npz") as good:
        TemperatureScaling().fit(good["logits"][:60], good["labels"][:60]).save("few.json")
    assert run("few.json", "good.npz", "--state", "d.json")[0] == 0
    found = json.loads(run("few.json", "bad.npz", "--state", "d.json", "--tolerance", 1.1, "--json")[1])
    assert found["requested_tolerance"] == 1.1
    assert found["tolerance"] > 1.2
    assert all(points > 0 for points in found["tolerated_points"])


def test_against_a_reference(run):
    with np.load("good.npz") as good:
        h, y = good["logits"], good["labels"]
    np.savez("val.npz", logits=h[:1000], labels=y[:1000])
    np.savez("val2.npz", logits=3 * h[:1000], labels=y[:1000])
    np.savez("day.npz", logits=h[1000:], labels=y[1000:])
    assert run("m.json", "day.npz", "--reference", "val.npz", "--state", "d.json")[0] == 0
    code, out, _ = run("m.json", "bad.npz", "--reference", "val.npz", "--state", "d.json", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["n_reference"]) == (1, 5000, 1000)
    for args in (
        ["good.npz", "--reference", "val2.npz", "--state", "d.json"],
        ["good.npz", "--state", "d.json"],
        ["good.npz", "--reference", "val.npz", "--tolerance", "1.2"],
        ["good.npz", "--reference", "val.npz", "--state", "val.npz"],
        ["val.npz", "--reference", "val.npz"],
    ):
        assert run("m.json", *args)[:2] == (2, "")


def test_errors_leave_the_state_alone(run, tmp_path):
    run("m.json", "good.npz", "--state", "d.json")
    before = (tmp_path / "d.json").read_bytes()
    np.savez("other.npz", logits=np.zeros((5, 3)), labels=np.zeros(5, dtype=int))
    np.savez("nan.npz", logits=np.full((5, 4), np.nan), labels=np.zeros(5, dtype=int))
    with np.load("good.npz") as good:
        IsotonicCalibration().fit(good["logits"], good["labels"]).save("iso.json")
    for line in (
        "m.json other.npz --state d.json",
        "m.json bad.npz nan.npz --state d.json",
        "iso.json bad.npz --state d.json",
        "m.json bad.npz --state d.json --alpha 0.01",
        "m.json bad.npz --state m.json",
        "m.json bad.npz --state nowhere/d.json",
        "m.json bad.npz --alpha 2",
        "m.json bad.npz --tolerance 0.5",
        "d.json bad.npz",
        "m.json missing.npz",
    ):
        assert run(*line.split())[:2] == (2, "")
        assert (tmp_path / "d.json").read_bytes() == before
    (tmp_path / "d.json").write_text("{")
    assert run("m.json", "bad.npz", "--state", "d.json")[0] == 2
