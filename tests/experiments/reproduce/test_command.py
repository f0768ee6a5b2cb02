"""`python -m experiments.reproduce` as its users meet it: files, exit codes, what stands on stdout and on stderr."""

import json
import re
import sys

import pytest

from attemper.cli import main
from experiments.reproduce.__main__ import reproduce


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run the command in a folder of its own; return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reproduce", *args])
        with pytest.raises(SystemExit) as end:
            main(reproduce, "python -m experiments.reproduce")
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_pages_are_written_and_named(command, tmp_path):
    options = ["table4", "-o", "out", "--repeats", "1", "--workers", "1"]
    code, out, err = command(*options)
    assert code == 0
    assert re.fullmatch(r"skin: 0 of 4 jobs are done\nCPU time of all processes: \d+\.\d minutes\n", err)
    assert out == "wrote out/table4.md\nAll pages: out/README.md\n"
    _, out, _ = command(*options, "--json")
    assert all((tmp_path / file).is_file() for file in json.loads(out)["files"])


@pytest.mark.parametrize(
    "args, message",
    [
        (["table9"], "'table9' is no table or figure; there are table1, table2, table3, table4,"),
        ([], "Usage: python -m experiments.reproduce "),
        (["all", "--repeats", "0"], "--repeats"),
        (["all", "--seed", "-1"], "--seed"),
    ],
)
def test_what_is_refused(command, tmp_path, args, message):
    code, _, err = command(*args)
    assert code == 2
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_without_the_networks_it_says_where_they_are(command, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTEMPER_DATA", str(tmp_path))
    code, _, err = command("all")
    assert code == 2
    assert "data/ folder of the repository" in err
    assert list(tmp_path.iterdir()) == []
