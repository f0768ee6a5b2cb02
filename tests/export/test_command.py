"""`attemper export` and `attemper inspect` as users meet them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import attemper
import attemper.onnx
import attemper.torch
from attemper import Sketch, TemperatureScaling
from attemper.calibrators import METHODS
from attemper.cli import main
from attemper.decisions import policy_for_budget
from attemper.drift import DriftTest
from attemper.metrics import RunningMetrics

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
    assert found["how"] == ("folded" if method in ("ts", "vector") else "inserted")
    assert (found["tensor"], found["output_kind"], found["not_run"]) == ("out", "probs", None)
    assert found["largest_difference"] < 1e-6
    net = models.mlp()
    feeds = models.feed(net)
    expected = attemper.load("m.json").predict_proba(models.logits_of(net, feeds))
    np.testing.assert_allclose(models.run("out.onnx", feeds)[0], expected, atol=1e-6)
    good("export m.json -o alone.onnx")
    alone = models.run("alone.onnx", {"logits": models.logits_of(net, feeds)})[0]
    np.testing.assert_allclose(alone, expected, atol=1e-6)


def test_export_in_words(good, cli):
    good("fit val.npz --method ts -o ts.json")
    text = good("export ts.json model.onnx -o out.onnx")
    assert "folded into the layer that gives 'logits': no node more" in text
    assert "of NumPy" in text
    assert "inserted after 'logits'" in good("export ts.json model.onnx -o out.onnx --no-fold")
    assert "not compared with NumPy: --no-check" in good("export ts.json model.onnx -o out.onnx --no-check")
    assert "the map alone: logits → probabilities" in good("export ts.json -o out.onnx")
    assert "'calibrated_probs' holds probabilities" in good(
        "export ts.json model.onnx -o out.onnx --add --logits logits"
    )
    assert "'out' holds log-probabilities" in good("export ts.json log.onnx -o out.onnx --logits logits")
    code, _, err = cli("export ts.json model.onnx -o out.onnx --output-kind log_probs")
    assert code == 0
    assert "note: 'out' held probabilities and now holds log-probabilities, as asked" in err
    good("export ts.json model.onnx --in-place")
    assert "is calibrated already" in cli("export ts.json model.onnx -o again.onnx")[2]


def test_code_that_applies_a_softmax_to_the_output_gets_the_probabilities(good, cli):
    onnx.save(models.mlp(None), "logits.onnx")
    good("fit val.npz --method bayes -o m.json")
    code, out, err = cli("export m.json logits.onnx -o out.onnx")
    assert code == 0
    assert "'logits' holds log-probabilities" in out
    assert "held logits and now holds log-probabilities" in err
    assert "--output-kind probs" in err
    feeds = models.feed(models.mlp(None))
    expected = attemper.load("m.json").predict_proba(models.logits_of(models.mlp(None), feeds))
    z = models.run("out.onnx", feeds)[0].astype(np.float64)
    np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(1, keepdims=True), expected, atol=1e-6)
    cli("export m.json logits.onnx -o out.onnx --output-kind probs")
    np.testing.assert_allclose(models.run("out.onnx", feeds)[0], expected, atol=1e-6)


def test_files_beside_the_result_are_named(good, tmp_path):
    good("fit val.npz --method ts -o m.json")
    onnx.save_model(
        models.mlp(), "large.onnx", save_as_external_data=True, location="large.onnx.data", size_threshold=0
    )
    assert "large.onnx.data" in good("export m.json large.onnx -o out.onnx").splitlines()[-1]
    (tmp_path / "other").mkdir()
    found = json.loads(good("export m.json large.onnx -o other/out.onnx --json"))
    assert found["external_files"] == [str(Path("other", "large.onnx.data"))]
    assert Path(found["external_files"][0]).is_file()
    assert json.loads(good("export m.json model.onnx -o out.onnx --json"))["external_files"] == []


def test_export_errors_are_one_message(good, bad):
    good("fit val.npz -o m.json")
    assert "--logits NAME" in bad("export m.json log.onnx -o out.onnx")
    assert "no output file" in bad("export m.json model.onnx")
    assert "one of them" in bad("export m.json model.onnx -o out.onnx --in-place")
    assert "--in-place" in bad("export m.json model.onnx -o model.onnx")
    assert "is one of the inputs" in bad("export m.json model.onnx -o m.json")
    assert "--no-fold" in bad("export m.json model.onnx -o out.onnx --fold")
    assert "the map alone" in bad("export m.json -o out.onnx --logits logits")
    for given in ("export m.json -o out.pt", "export m.json model.onnx -o out.pt"):
        assert "ends in .onnx, as ONNX is what is written. Use -o out.onnx" in bad(given)
    assert not Path("out.pt").exists()
    assert "no such file" in bad("export m.json none.onnx -o out.onnx")
    assert "not an ONNX model" in bad("export m.json val.npz -o out.onnx")
    assert "not a JSON document" in bad("export model.onnx model.onnx -o out.onnx")
    assert "does not exist" in bad("export m.json model.onnx -o nowhere/out.onnx")
    h, y = draw(50, 7)
    TemperatureScaling().fit(h, y).save("seven.json")
    assert "'logits': expected 7 classes, as the map has, got 5" in bad("export seven.json model.onnx -o out.onnx")


@pytest.mark.parametrize("method", METHODS)
def test_inspect_maps(good, monkeypatch, method):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    good(f"fit val.npz --method {method} -o m.json")
    cal = attemper.load("m.json")
    found = json.loads(good("inspect m.json --json"))
    assert (found["kind"], found["method"], found["n_samples"], found["n_classes"]) == ("map", method, 300, K)
    assert found["nll"] == cal.fit_report_.nll
    assert found["provenance"]["fitted_at"] == "1970-01-02T00:00:00Z"
    assert found["provenance"]["attemper"] == attemper.__version__
    (file,) = found["provenance"]["files"]
    assert file["name"] == "val.npz"
    data = Path("val.npz").read_bytes()
    assert (file["sha256"], file["bytes"]) == (hashlib.sha256(data).hexdigest(), len(data))
    text = good("inspect m.json")
    for part in (f"fitted by {method}", "300 samples, 5 classes", "1970-01-02T00:00:00Z", file["sha256"], "NLL"):
        assert part in text
    assert all(line in text for line in cal.describe())


def test_the_date_is_the_only_thing_that_changes_a_map(good, monkeypatch, tmp_path):
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


def test_inspect_says_when_nothing_is_told(good, bad, monkeypatch):
    TemperatureScaling(classes=list("abcde")).fit(*draw(100, K)[:1], np.array(list("abcde"))[draw(100, K)[1]]).save(
        "m.json"
    )
    text = good("inspect m.json")
    assert "saved without provenance" in text
    assert "classes: a, b, c, d, e" in text
    assert json.loads(good("inspect m.json --json"))["provenance"] is None
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert "expected seconds since 1970" in bad("fit val.npz -o other.json")


def test_inspect_sketches_and_policies(good):
    h, y = draw(300, K)
    Sketch.of(h, y).save("s.json")
    found = json.loads(good("inspect s.json --json"))
    assert (found["kind"], found["n_samples"], found["n_classes"]) == ("sketch", 300, K)
    assert found["accuracy"] == np.mean(h.argmax(1) == y)
    assert "a sketch, from which" in good("inspect s.json")
    p = np.exp(h) / np.exp(h).sum(1, keepdims=True)
    policy = policy_for_budget(p, 0.2)
    policy.save("p.json")
    assert policy.rule() in good("inspect p.json")
    assert json.loads(good("inspect p.json --json"))["threshold"] == policy.threshold


def test_inspect_models(good, tmp_path):
    good("fit val.npz --method ts -o m.json")
    text = good("inspect model.onnx")
    for part in ("no calibration of attemper's", "logits: logits", "inputs: x float[batch, 6]", "opset 17"):
        assert part in text
    assert "not clear: out (output, from LogSoftmax), logits (input of LogSoftmax)" in good("inspect log.onnx")
    assert json.loads(good("inspect log.onnx --json"))["logits"] is None
    for fold, how in (("--fold", "folded into its last layer"), ("--no-fold", "inserted as nodes")):
        good(f"export m.json model.onnx -o out.onnx {fold}")
        text = good("inspect out.onnx")
        digest = json.loads(good("inspect m.json --json"))["sha256"]
        for part in (how, "fitted by ts on 300 samples, 5 classes, T = ", "data: val.npz", digest, "fitted 20"):
            assert part in text
        found = json.loads(good("inspect out.onnx --json"))
        assert found["kind"] == "calibrated model"
        assert found["calibration"]["map_sha256"] == digest
    model = onnx.load("out.onnx")
    for p in model.metadata_props:
        p.value = "[" * 9
    onnx.save(model, tmp_path / "crafted.onnx")
    assert "in a form that cannot be read" in good("inspect crafted.onnx")


def test_inspect_other_files(good, bad, tmp_path):
    assert "use `attemper check val.npz`" in bad("inspect val.npz")
    shutil.copy("val.npz", "broken.onnx")
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "what.xyz").write_text("hello")
    assert "not an ONNX model" in bad("inspect broken.onnx")
    assert "not valid JSON" in bad("inspect text.json")
    assert "not a document of attemper" in bad("inspect other.json")
    assert "what.xyz" in bad("inspect what.xyz")
    assert "none.npz" in bad("inspect none.npz")


def test_without_onnx_one_line_says_how_to_get_it(good, bad, monkeypatch):
    good("fit val.npz --method ts -o m.json")
    for name in [name for name in sys.modules if name.startswith("attemper.onnx.calibrate")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for line in ("export m.json model.onnx -o out.onnx", "inspect model.onnx"):
        assert "[onnx]" in bad(line)


@pytest.mark.slow
def test_the_package_imports_neither_torch_nor_onnx():
    program = "import sys, attemper.onnx, attemper.torch; print({'torch', 'onnx', 'onnxruntime'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")
    assert "to_torch" in dir(attemper.torch)
    assert "map_to_onnx" in dir(attemper.onnx)
    with pytest.raises(AttributeError):
        _ = attemper.onnx.nothing


def test_inspect_states_of_streams(good, tmp_path):
    h, y = draw(200, 4)
    cal = TemperatureScaling().fit(h, y)
    DriftTest(cal).update(h, y).save("d.json")
    assert "a drift test: no alarm so far" in good("inspect d.json")
    RunningMetrics(n_resamples=20).partial_fit(y, cal.predict_proba(h)).save("r.json")
    assert json.loads(good("inspect r.json --json"))["metrics"]["nll"]["value"] > 0
    cal.save("m.json")
    Path("m.json").rename("map.txt")
    assert "a map, fitted by ts" in good("inspect map.txt")
    assert "a map, fitted by ts" in good("inspect ma?.txt")


def test_inspect_does_not_wait_for_a_device(bad):
    assert "not a regular file" in bad("inspect /dev/zero")


def test_what_a_file_says_does_not_command_the_terminal(good):
    cal = TemperatureScaling(classes=["a\x1b[2J", "b\nforged", "c", "d"])
    h, y = draw(200, 4)
    cal.fit(h, np.array(cal.classes)[y]).save("m.json")
    text = good("inspect m.json")
    assert "\x1b" not in text
    assert "\nforged" not in text
    assert "a\\x1b[2J" in text
