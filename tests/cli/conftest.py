"""Commands, run in a folder of their own as the console script runs them, and files for them."""

import sys
from typing import NamedTuple

import numpy as np
import pytest

from attemper import TemperatureScaling
from attemper.cli import main

from data import draw


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run a command in a folder of its own, as the console script does."""
    monkeypatch.chdir(tmp_path)

    def run(*args) -> Result:
        monkeypatch.setattr(sys, "argv", ["attemper", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def good(cli):
    """Run a command that must succeed, silently on stderr; return what it printed."""

    def run(*args) -> str:
        result = cli(*args)
        silent = all(" are the column" in line for line in result.err.splitlines())  # of tables
        assert (result.code, silent) == (0, True), result.err
        return result.out

    return run


@pytest.fixture
def bad(cli):
    """Run a command that must fail with exit code 2 and one message; return the message."""

    def run(*args) -> str:
        code, out, err = cli(*args)
        assert (code, out) == (2, "")
        assert err.startswith("attemper: ")
        assert len(err.splitlines()) == 1
        return err

    return run


@pytest.fixture
def val(tmp_path):
    h, y = draw(200, 4)
    np.savez(tmp_path / "val.npz", logits=h, labels=y)
    return h, y


@pytest.fixture
def unseen(tmp_path):
    h, y = draw(200, 4, seed=1)
    np.savez(tmp_path / "test.npz", logits=h, labels=y)
    return h, y


@pytest.fixture
def fitted(tmp_path, val):
    """A map for the data of ``val``, in m.json."""
    calibrator = TemperatureScaling().fit(*val)
    calibrator.save(tmp_path / "m.json")
    return calibrator
