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
    assert (found["alpha"], found["tolerance"]) == (0.001, 1.0)
    assert found["p_value"] <= 0.001


def test_a_daily_job(run, tmp_path):
    assert run("m.json", "good.npz", "--state", "d.json")[0] == 0
    code, out, _ = run("m.json", "bad.npz", "--state", "d.json", "--json")
    found = json.loads(out)
    assert (code, found["n_samples"], found["new_samples"]) == (1, 6000, 3000)
    assert found["alarm_at"] == json.loads(run("m.json", "good.npz", "bad.npz", "--json")[1])["alarm_at"]
    code, out, _ = run("m.json", "good.npz", "--state", "d.json")
    assert code == 1  # the alarm stays
    assert "wrote d.json" in out
    assert DriftTest.load(tmp_path / "d.json").n_samples == 9000


def test_errors_leave_the_state_alone(run, tmp_path):
    run("m.json", "good.npz", "--state", "d.json")
    before = (tmp_path / "d.json").read_bytes()
    np.savez("other.npz", logits=np.zeros((5, 3)), labels=np.zeros(5, dtype=int))
    np.savez("nan.npz", logits=np.full((5, 4), np.nan), labels=np.zeros(5, dtype=int))
    with np.load("good.npz") as good:
        IsotonicCalibration().fit(good["logits"], good["labels"]).save("iso.json")
    for args, why in [
        (["m.json", "other.npz", "--state", "d.json"], "3 columns of logits, but m.json was fitted for 4"),
        (["m.json", "good.npz", "nan.npz", "--state", "d.json"], "nan.npz: logits: row 0, column 0 is NaN"),
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
        assert why in err
        assert (tmp_path / "d.json").read_bytes() == before
    (tmp_path / "d.json").write_text("{")
    code, _, err = run("m.json", "good.npz", "--state", "d.json")
    assert code == 2
    assert "d.json: not valid JSON" in err
