"""A calibrator of another package: found by its entry point, it is a method like any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import attemper

from data import draw
from onnx_models import K, mlp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "third_party"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that holds the installed package, beside data to work on."""
    folder = tmp_path_factory.mktemp("third_party")
    for name, seed in (("val", 1), ("test", 2)):
        h, y = draw(400, K, seed=seed)
        np.savez(folder / f"{name}.npz", logits=h, labels=y)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder / "packages", PACKAGE], check=True, capture_output=True, text=True)
    return folder


def run(folder, *command, packages=True):
    source = str(Path(attemper.__file__).parents[1])
    paths = [str(folder / "packages"), source] if packages else [source]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)


def command(folder, *words, **options):
    done = run(folder, "-m", "attemper", *words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_a_method_of_the_command_line(installed):
    methods = json.loads(command(installed, "methods", "--json"))
    assert "ts" in methods
    assert methods["power"]["class"] == "PowerScaling"
    assert methods["power"]["package"] == "attemper-power"
    fitted = json.loads(command(installed, "fit", "val.npz", "--method", "power", "-p", "power=1.2", "--json"))
    assert fitted["power"] == 1.2
    command(installed, "apply", "attemper.json", "test.npz", "-o", "probs.npz")
    rows = json.loads(command(installed, "compare", "val.npz", "test.npz", "--methods", "ts,power", "--json"))["rows"]
    assert [row["method"] for row in rows] == ["none", "ts", "power"]
    assert rows[2]["metrics"]["nll"]
    command(installed, "report", "val.npz", "test.npz", "--methods", "ts,power", "-o", "report.html")
    assert "power scaling" in (installed / "report.html").read_text()


def test_its_map_exports(installed):
    """The map of the package runs in a network, written by the command."""
    onnx.save(mlp(ending=None), installed / "net.onnx")
    command(installed, "fit", "val.npz", "--method", "power", "-o", "power.json")
    command(installed, "export", "power.json", "net.onnx", "-o", "calibrated.onnx", "--output-kind", "probs")
    before, after = (ort.InferenceSession(installed / name) for name in ("net.onnx", "calibrated.onnx"))
    x = {before.get_inputs()[0].name: np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)}
    np.savez(installed / "net.npz", logits=before.run(None, x)[0])
    command(installed, "apply", "power.json", "net.npz", "-o", "expected.npz")
    expected = np.load(installed / "expected.npz")
    np.testing.assert_allclose(after.run(None, x)[0], expected[expected.files[0]], atol=1e-5)


def test_its_file_names_the_package_where_that_is_missing(installed):
    command(installed, "fit", "val.npz", "--method", "power", "-o", "power.json")
    done = run(installed, "-m", "attemper", "apply", "power.json", "test.npz", "-o", "probs.npz", packages=False)
    assert done.returncode != 0
    assert "'power'" in done.stderr
    assert "attemper-power" in done.stderr


def test_it_keeps_the_contract(installed):
    code = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "pytest", "hypothesis"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Without())
from attemper.testing import check_calibrator
from attemper_power import PowerScaling
check_calibrator(PowerScaling)
"""
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr


def test_an_instance_needs_no_entry_point(installed):
    code = """
import numpy as np
from attemper import Scores, compare
from attemper_power import PowerScaling
val, test = (Scores.from_logits(f["logits"], f["labels"]) for f in (np.load("val.npz"), np.load("test.npz")))
rows = compare(val, test, [PowerScaling(power=1.5), "ts", PowerScaling()], confidence_level=None).rows
print([row.method for row in rows])
"""
    done = run(installed, "-c", code)
    assert done.stdout.strip() == "['none', 'power(power=1.5)', 'ts', 'power']", done.stderr
