"""`pip install attemper` without extras: all that needs none works, and the rest says which one it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from environments import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRAS = set(DECLARED) - {"docs", "test"}

# What a user asks for, and the extra that it takes.
COMMANDS = [
    ("parquet", ["apply", "map.json", "test.npz", "-o", "p.parquet"]),
    ("parquet", ["evaluate", "table.parquet"]),
    ("report", ["report", "val.npz", "test.npz", "-o", "report.html"]),
    ("onnx", ["export", "map.json", "-o", "map.onnx"]),
    ("remote", ["evaluate", "s3://bucket/test.npz"]),
]
STATEMENTS = [
    ("plots", "from attemper import plots; plots.plot_reliability([0] * 9, [[0.9, 0.1]] * 9)"),
    ("torch", "import attemper.torch.losses"),
    ("torch", "import attemper.torch.rows"),
    ("torch", "from attemper.torch import DeepEnsemble; DeepEnsemble([None])"),
]

IMPORT_ALL = """
import importlib, json, pathlib
import attemper

root = pathlib.Path(attemper.__file__).parents[1]
names = [".".join(p.relative_to(root).with_suffix("").parts) for p in sorted(root.glob("attemper/**/*.py"))]
told = {}
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name.removesuffix(".__init__"))
            told[name] = None
        except attemper.MissingExtraError as error:
            told[name] = str(error)
print(json.dumps(told))
"""

PROGRAM = """
from numpy.typing import NDArray

import numpy as np

import attemper
from attemper import BayesianTemperatureScaling, Scores, Sketch, TemperatureScaling

data = attemper.datasets.load("resnet200-skin-lesionsplit-s0")
bts = BayesianTemperatureScaling(labels="noisy").fit(data.val_logits, data.val_labels)
temperature: float = bts.temperature_
interval: tuple[float, float] = bts.temperature_interval_
sketch: Sketch = Sketch.of(data.val_logits, data.val_labels) + Sketch.of(data.test_logits, data.test_labels)
scores: Scores = Scores.from_logits(data.test_logits, data.test_labels)
labels: NDArray[np.int64] = data.test_labels
bts.save("net.attemper.json")
print(attemper.load("net.attemper.json").describe(), temperature, interval, sketch, scores, labels)

wrong: str = TemperatureScaling().fit_sketch(sketch).temperature_
BayesianTemperatureScaling(lables="noisy")
"""


@pytest.fixture(scope="module")
def folder(clean, tmp_path_factory):
    """Logits, and what `attemper fit` makes of them."""
    folder = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(0)
    for name in ("val", "test"):
        logits = 3 * rng.normal(size=(300, 4)).astype(np.float32)
        labels = (logits / 3 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    (folder / "table.parquet").write_bytes(b"PAR1")
    done = clean.run("fit", "val.npz", "-o", "map.json", cwd=folder, program="attemper")
    assert done.returncode == 0, done.stderr
    return folder


def test_only_what_is_required_is_there(clean, tmp_path):
    listed = clean.run(
        "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))", cwd=tmp_path
    )
    names = set(listed.stdout.lower().split())
    assert {"attemper", "numpy", "scipy", "scikit-learn"} <= names
    assert not names & {"torch", "matplotlib", "pandas", "jinja2", "pyarrow", "fsspec", "pytest"}


def test_the_commands_work(clean, folder):
    def run(*command):
        done = clean.run(*command, cwd=folder, program="attemper")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "bayes" in run("methods")
    assert json.loads(run("evaluate", "test.npz", "--map", "map.json", "--json"))
    run("apply", "map.json", "test.npz", "-o", "p.csv")
    assert len((folder / "p.csv").read_text().splitlines()) == 301
    said = run("demo", "-o", "demo")
    assert "structured" in said
    assert (folder / "demo" / "attemper.json").is_file()
    assert "attemper" in clean.run("-m", "attemper", "--version", cwd=folder).stdout


@pytest.mark.parametrize("extra, command", COMMANDS, ids=lambda told: told if isinstance(told, str) else " ".join(told))
def test_a_command_names_the_extra_that_it_needs(clean, folder, extra, command):
    done = clean.run(*command, cwd=folder, program="attemper")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f'Use: pip install "attemper[{extra}]"' in said
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra, statement", STATEMENTS)
def test_a_statement_names_the_extra_that_it_needs(clean, folder, extra, statement):
    done = clean.run("-c", statement, cwd=folder)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("attemper.errors.MissingExtraError: ")
    assert last.endswith(f'Use: pip install "attemper[{extra}]"')


def test_every_extra_is_asked_for_above():
    assert {extra for extra, _ in COMMANDS + STATEMENTS} == EXTRAS


def test_every_module_can_be_imported_or_says_what_it_needs(clean, tmp_path):
    done = clean.run("-c", IMPORT_ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["attemper.cli.commands"] is told["attemper.plots.__init__"] is None
    missing = {name: error for name, error in told.items() if error}
    assert missing
    for name, error in missing.items():
        assert any(error.endswith(f'"attemper[{extra}]"') for extra in EXTRAS), name


def test_users_programs_are_checked_against_the_types(clean, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    told = ["--strict", "--python-executable", clean.python, "--config-file="]
    mypy = [sys.executable, "-m", "mypy", *told, "program.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    lines = PROGRAM.splitlines()
    first, second = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert first.startswith(f"program.py:{len(lines) - 1}: error: Incompatible types in assignment")
    assert second.startswith(f'program.py:{len(lines)}: error: Unexpected keyword argument "lables"')
