"""`attemper fit` and `attemper sketch` over many files, as their users meet them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from attemper import Sketch
from attemper.cli import main

from data import draw


@pytest.fixture
def run(capsys, monkeypatch, tmp_path, shards):
    """Run a command in the folder of the shards; return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return (end.value.code or 0, *capsys.readouterr())

    return command


@pytest.mark.slow
def test_workers_write_the_same_bytes(run, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, told in (("a", ""), ("b", "--workers 2")):
        for line in (f"fit s*.npz --method ats {told} -o {name}.json", f"sketch s*.npz {told} -o {name}.sketch.json"):
            code, out, err = run(f"{line} --json")
            assert (code, err) == (0, "")
            assert json.loads(out)["n_shards"] == 5
    for kind in (".json", ".sketch.json"):
        assert Path(f"a{kind}").read_bytes() == Path(f"b{kind}").read_bytes()


def test_small_sketches_are_not_written_unless_told(run):
    assert run("sketch s0.npz -o small.json")[0] == 2
    assert not Path("small.json").exists()
    assert run("sketch s0.npz -o small.json --allow-small")[0] == 0
    assert run("sketch s*.npz -o all.json --min-samples 301")[0] == 2
    assert not list(Path().glob("all.json*"))
    assert run("sketch s*.npz -o all.json --min-samples 300")[0] == 0
    assert run("sketch s0.npz -o x.json --min-samples 10")[0] == 2
    assert run("sketch s0.npz -o x.json --min-samples 200 --allow-small")[0] == 2


@pytest.mark.parametrize(
    "line",
    [
        "fit s*.npz --method matrix --workers 2",
        "fit s*.npz --workers 0",
        "fit a.sketch.json --workers 2",
        "fit s0.npz empty.npz",
    ],
)
def test_what_cannot_be_is_one_message(run, line):
    Sketch.of(*draw()).save("a.sketch.json")
    np.savez("empty.npz", logits=np.zeros((0, 4)), labels=np.zeros(0, int))
    code, out, err = run(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
