"""`attemper export` as users meet it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import attemper
import attemper.export
from attemper import TemperatureScaling
from attemper.cli import main

import onnx_models as models
from data import draw
from exported import K

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run a command in a folder with data, a map and models; return the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    h, y = draw(300, K)
    np.savez("val.npz", logits=h, labels=y)
    onnx.save(models.mlp(), "model.onnx")
    onnx.save(models.mlp("LogSoftmax"), "log.onnx")

    def run(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def good(cli):
    def run(line):
        code, out, err = cli(line)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def bad(cli, tmp_path):
    def run(line):
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
        code, out, err = cli(line)
        assert (code, out) == (2, "")
        assert err.startswith("attemper: ")
        assert len(err.splitlines()) == 1
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
        return err

    return run


@pytest.mark.parametrize("method", ["ts", "bayes", "vector", "isotonic", "beta"])
def test_export_is_the_map_after_the_model(good, method):
    good(f"fit val.npz --method {method} -o m.json")
    found = json.loads(good("export m.json model.onnx -o out.onnx --json"))
    assert (found["tensor"], found["output_kind"], found["not_run"]) == ("out", "probs", None)
    assert found["largest_difference"] < 1e-6
    net = models.mlp()
    feeds = models.feed(net)
    expected = attemper.load("m.json").predict_proba(models.logits_of(net, feeds))
    np.testing.assert_allclose(models.run("out.onnx", feeds)[0], expected, atol=1e-6)
    good("export m.json -o alone.onnx")
    alone = models.run("alone.onnx", {"logits": models.logits_of(net, feeds)})[0]
    np.testing.assert_allclose(alone, expected, atol=1e-6)
    good("export m.json log.onnx -o out.onnx --logits logits")


def test_code_that_applies_a_softmax_to_the_output_gets_the_probabilities(good, cli):
    onnx.save(models.mlp(None), "logits.onnx")
    good("fit val.npz --method bayes -o m.json")
    assert cli("export m.json logits.onnx -o out.onnx")[0] == 0
    feeds = models.feed(models.mlp(None))
    expected = attemper.load("m.json").predict_proba(models.logits_of(models.mlp(None), feeds))
    z = models.run("out.onnx", feeds)[0].astype(np.float64)
    np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(1, keepdims=True), expected, atol=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "m.json log.onnx -o out.onnx",  # which tensor?
        "m.json model.onnx -o model.onnx",
        "m.json model.onnx -o m.json",
        "m.json -o out.onnx --logits logits",
        "m.json -o out.onnx --sets-group a",
        "m.json model.onnx -o out.onnx --positive",
        "m.json -o out.pt",
        "m.json none.onnx -o out.onnx",
        "m.json val.npz -o out.onnx",
        "model.onnx model.onnx -o out.onnx",
        "m.json model.onnx -o nowhere/out.onnx",
        "seven.json model.onnx -o out.onnx",
    ],
)
def test_export_errors_are_one_message(good, bad, line):
    good("fit val.npz -o m.json")
    TemperatureScaling().fit(*draw(50, 7)).save("seven.json")
    bad(f"export {line}")


def test_a_map_records_its_data_and_the_date_is_the_only_thing_that_changes(good, monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in "ab":
        good(f"fit val.npz --method ts -o {name}.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    good("fit val.npz --method ts -o now.json")
    one, other = (json.loads((tmp_path / f).read_text()) for f in ("a.json", "now.json"))
    assert other["provenance"].pop("fitted_at") > "2023-11-14T22:13:20Z"
    assert one["provenance"].pop("fitted_at") == "2023-11-14T22:13:20Z"
    assert one == other
    (file,) = one["provenance"]["files"]
    data = Path("val.npz").read_bytes()
    assert (file["name"], file["sha256"], file["bytes"]) == ("val.npz", hashlib.sha256(data).hexdigest(), len(data))


def test_without_onnx_one_line_says_how_to_get_it(good, bad, monkeypatch):
    good("fit val.npz --method ts -o m.json")
    for name in [name for name in sys.modules if name.startswith("attemper.onnx.calibrate")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "[onnx]" in bad("export m.json model.onnx -o out.onnx")


@pytest.mark.slow
def test_the_package_imports_neither_torch_nor_onnx():
    program = (
        "import sys, attemper.export; print(dir(attemper.export), {'torch', 'onnx', 'onnxruntime'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")
    assert "to_torch" in done.stdout
    with pytest.raises(AttributeError):
        _ = attemper.export.nothing
