"""`attemper drift` as its users meet it."""

import json
import sys

import numpy as np
import pytest

from attemper import IsotonicCalibration, TemperatureScaling
from attemper.cli import main
from attemper.drift import DriftTest


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(3000, 4))
    for name, t in (("good", 2.0), ("bad", 5.0)):
        np.savez(f"{name}.npz", logits=h, labels=(h / t + rng.gumbel(size=h.shape)).argmax(axis=1))
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
    assert out.startswith("no alarm: 3000 labels")
    code, out, err = run("m.json", "good.npz", "bad.npz")
    assert (code, err) == (1, "")
    assert out.startswith("ALARM at sample 3")
    assert "over-confident" in out


def test_json(run):
    code, out, _ = run("m.json", "bad.npz", "--json", "--alpha", 0.001, "--tolerance", 1)
    found = json.loads(out)
    assert code == 1
    assert found["alarm"]
    assert found["new_samples"] == found["n_samples"] == 3000
    assert found["factor"] == pytest.approx(2.5, rel=0.2)
    assert (found["alpha"], found["requested_tolerance"]) == (0.001, 1.0)
    assert found["p_value"] <= 0.001


def test_a_daily_job(run, tmp_path):
    assert run("m.json", "good.npz", "--state", "d.json")[0] == 0
    code, out, _ = run("m.json", "bad.npz", "--state", "d.json", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["new_samples"]) == (1, 6000, 3000)
    assert found["alarm_at"] == json.loads(run("m.json", "good.npz", "bad.npz", "--json")[1])["alarm_at"]
    with np.load("good.npz") as good:
        np.savez("later.npz", logits=good["logits"] + 0.1 * good["logits"][::-1], labels=good["labels"])
    assert DriftTest.load(tmp_path / "d.json").n_samples == 6000
    code, out, _ = run("m.json", "later.npz", "--state", "d.json")
    assert code == 1  # the alarm stays
    assert "wrote d.json" in out
    assert DriftTest.load(tmp_path / "d.json").n_samples == 9000


def test_the_same_day_counts_once(run, tmp_path):
    run("m.json", "good.npz", "--state", "d.json")
    before = (tmp_path / "d.json").read_bytes()
    (tmp_path / "copy.npz").write_bytes((tmp_path / "good.npz").read_bytes())
    for args in (["good.npz"], ["bad.npz", "copy.npz"]):
        code, out, err = run("m.json", *args, "--state", "d.json")
        assert (code, out) == (2, "")
        assert f"{args[-1]}: was fed to d.json before" in err
        assert (tmp_path / "d.json").read_bytes() == before
    code, _, err = run("m.json", "good.npz", "copy.npz")
    assert code == 2
    assert "copy.npz: has the same content as another input" in err


def test_a_state_with_a_file_address_goes_on(run, tmp_path):
    address = f"file://{tmp_path}/d.json"
    run("m.json", "good.npz", "--state", address)
    found = json.loads(run("m.json", "bad.npz", "--state", address, "--json")[1])
    assert (found["n_samples"], found["new_samples"]) == (6000, 3000)


def test_the_tolerance_is_that_of_the_map(run):
    with np.load("good.npz") as good:
        TemperatureScaling().fit(good["logits"][:60], good["labels"][:60]).save("few.json")
    code, out, _ = run("few.json", "good.npz", "--state", "d.json")
    assert code == 0
    assert "raised from 1.1" in out
    found = json.loads(run("few.json", "bad.npz", "--state", "d.json", "--tolerance", 1.1, "--json")[1])
    assert found["requested_tolerance"] == 1.1
    assert found["tolerance"] > 1.2
    assert all(points > 0 for points in found["tolerated_points"])


def test_against_a_reference(run, tmp_path):
    with np.load("good.npz") as good:
        h, y = good["logits"], good["labels"]
    np.savez("val.npz", logits=h[:1000], labels=y[:1000])
    np.savez("day.npz", logits=h[1000:], labels=y[1000:])
    np.save("val.npy", h[:1000])
    np.save("val-labels.npy", y[:1000])
    code, out, err = run("m.json", "day.npz", "--reference", "val.npz", "--state", "d.json")
    assert (code, err) == (0, "")
    assert "1000 reference samples" in out
    code, out, _ = run("m.json", "bad.npz", "--reference", "val.npz", "--state", "d.json", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["n_reference"]) == (1, 5000, 1000)
    assert "less likely" in found["message"]
    same = run(
        "m.json", "day.npz", "bad.npz", "--reference", "val.npy", "--reference-labels", "val-labels.npy", "--json"
    )
    assert json.loads(same[1])["alarm_at"] == found["alarm_at"]
    np.savez("val2.npz", logits=3 * h[:1000], labels=y[:1000])
    for args, _ in [
        (["--reference", "val2.npz", "--state", "d.json"], "another --reference"),
        (["--state", "d.json"], "an exchangeability test, but these options ask for a drift test"),
        (["--reference-labels", "val-labels.npy"], "add --reference"),
        (["--reference", "val.npz", "--tolerance", "1.2"], "--tolerance"),
        (["--reference", "val.npz", "--state", "val.npz"], "val.npz: is one of the inputs"),
    ]:
        code, out, err = run("m.json", "good.npz", *args)
        assert (code, out) == (2, "")
    code, _, err = run("m.json", "val.npz", "--reference", "val.npz")
    assert code == 2
    assert "val.npz" in err


def test_errors_leave_the_state_alone(run, tmp_path):
    run("m.json", "good.npz", "--state", "d.json")
    before = (tmp_path / "d.json").read_bytes()
    np.savez("other.npz", logits=np.zeros((5, 3)), labels=np.zeros(5, dtype=int))
    np.savez("nan.npz", logits=np.full((5, 4), np.nan), labels=np.zeros(5, dtype=int))
    with np.load("good.npz") as good:
        IsotonicCalibration().fit(good["logits"], good["labels"]).save("iso.json")
    for args, _ in [
        (["m.json", "other.npz", "--state", "d.json"], "expected 4 classes, as m.json has, got 3"),
        (["m.json", "bad.npz", "nan.npz", "--state", "d.json"], "nan.npz: logits: row 0, column 0 is NaN"),
        (["iso.json", "good.npz", "--state", "d.json"], "another map than iso.json"),
        (["m.json", "good.npz", "--state", "d.json", "--alpha", 0.01], "begun with 0.05"),
        (["m.json", "good.npz", "--state", "m.json"], "m.json: is one of the inputs"),
        (["m.json", "good.npz", "--state", "nowhere/d.json"], "does not exist"),
        (["m.json", "good.npz", "--alpha", 2], "--alpha 2"),
        (["m.json", "good.npz", "--tolerance", 0.5], "--tolerance 0.5"),
        (["d.json", "good.npz"], "holds a drift test; expected a calibrator"),
        (["m.json", "missing.npz"], "no such file"),
    ]:
        code, out, err = run(*args)
        assert (code, out) == (2, "")
        assert (tmp_path / "d.json").read_bytes() == before
    (tmp_path / "d.json").write_text("{")
    code, _, err = run("m.json", "good.npz", "--state", "d.json")
    assert code == 2
    assert "d.json: not valid JSON" in err
