"""The programs of experiments/ and benchmarks/ run; the numbers of the paper's tables come back."""

import csv
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attemper import TemperatureScaling, datasets
from experiments.reproduce import published, reproduce
from experiments.reproduce.figure2 import subsets

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*words, cwd):
    """Run a program as its users do; return what it prints."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("src", "benchmarks", "."))
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "ATTEMPER_DATA": str(ROOT / "data")}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def division_0(path):
    """Return T and NLL of every method on the first division of a page."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "division" and row["division"] == "0"]
    numbers = {(r["network"], r["method"], key): r[key] for r in rows for key in ("temperature", "nll")}
    return {key: float(value) for key, value in numbers.items() if value}


def test_pages_of_the_paper(tmp_path):
    names = ["table4", "figure2", "examples", "consistency"]
    written = reproduce(names, tmp_path, repeats=1, workers=1)
    assert {tmp_path / f"{name}.csv" for name in names} <= set(written)
    for name in ("figure2", "examples"):  # these do not depend on the number of divisions
        assert (tmp_path / f"{name}.csv").read_bytes() == (ROOT / "docs" / "results" / f"{name}.csv").read_bytes()
    ours, committed = (division_0(folder / "table4.csv") for folder in (tmp_path, ROOT / "docs" / "results"))
    assert ours == pytest.approx(committed, rel=1e-4)
    again = reproduce(["table4"], tmp_path / "again", repeats=1, workers=1)
    assert again[0].read_bytes() == (tmp_path / "table4.md").read_bytes()


def test_members_of_equation_7():
    member = subsets(np.log([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9]]), np.array([1, 1]), 0.15)
    assert member.tolist() == [[True, True, False], [False, True, True]]


def test_the_published_search_with_a_cleared_gradient_finds_t():
    skin = datasets.load()
    best = TemperatureScaling().fit(skin.val_logits, skin.val_labels).temperature_
    loss = published.mean_nll(skin.val_logits.astype(float), skin.val_labels)
    assert loss(best)[1] == pytest.approx(0, abs=1e-6)
    end = published.lbfgs(loss, 3.0, clear=True, lr=1.0).at
    assert end == pytest.approx(best, rel=1e-3)


def test_a_network_is_trained(tmp_path):
    words = shlex.split("--dataset digits --device cpu --limit 64 --batch 16 --epochs 2 --arch lenet5 --lr 0.02")
    run("-m", "experiments.zoo", *words, "--out", str(tmp_path), cwd=ROOT)
    with np.load(next(tmp_path.glob("*.npz"))) as z:
        assert z["val_logits"].shape[1] == 10


@pytest.mark.parametrize(
    "words",
    [
        ["levels.py", "--draws", "1"],
        ["coverage.py", "--draws", "2", "--resamples", "20"],
        ["families.py", "sets", "--out", "families.csv", "--jobs", "1", "--methods", "ts,bayes"],
        ["same_numbers.py", "record", "sets", "-o", "before.npz"],
    ],
    ids=lambda words: words[0],
)
def test_benchmarks(words, tmp_path):
    (tmp_path / "sets").mkdir()
    skin = datasets.load()
    h = np.concatenate([skin.val_logits, skin.test_logits])
    np.savez(tmp_path / "sets" / "skin--one.npz", logits=h, labels=np.concatenate([skin.val_labels, skin.test_labels]))
    run(str(ROOT / "benchmarks" / words[0]), *words[1:], cwd=tmp_path)
    if words[0] == "same_numbers.py":
        run(str(ROOT / "benchmarks" / words[0]), "compare", "before.npz", "before.npz", "--brief", cwd=tmp_path)
