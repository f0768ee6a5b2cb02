"""What stands where: help in groups, --quiet and --verbose, progress, widths, completion in the shell."""

import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from click.shell_completion import BashComplete

from attemper.cli import compare as command
from attemper.cli import progress
from attemper.cli.commands import SECTIONS, group_of
from attemper.cli.commands import cli as group
from attemper.cli.options import GROUPS
from attemper.errors import InputError

from commands import strict_json

# Help


@pytest.mark.parametrize("width", [80, 100])
def test_help_is_grouped_and_no_summary_is_cut(good, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = good("--help")
    assert max(map(len, text.splitlines())) <= width
    assert [line[:-1] for line in text.splitlines() if line[:-1] in SECTIONS] == list(SECTIONS)
    words = " ".join(text.split())
    for name, each in group.commands.items():
        summary = " ".join(each.get_short_help_str(limit=1000).split())
        assert f"{name} {summary}" in words
        assert not summary.endswith("…")
        assert not summary.endswith("...")


@pytest.mark.parametrize("command", group.commands)
def test_every_option_stands_in_one_group(good, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    text = good(command, "--help")
    assert max(map(len, text.splitlines())) <= 80
    heads = [line[:-1] for line in text.splitlines() if line[:-1] in GROUPS]
    assert heads == [name for name in GROUPS if name in heads]
    assert heads[-2:] == ["Output", "General"]
    general = text[text.index("\nGeneral:") :]
    for flag in ("--quiet", "--verbose", "--config", "--no-config", "--debug", "--help"):
        assert flag in general
    for parameter in group.commands[command].params:
        assert group_of(parameter) in GROUPS


# --quiet, --verbose


@pytest.mark.parametrize("before", [True, False])
def test_quiet_prints_no_summary_of_a_file(cli, val, before):
    def run(*flags, line):
        return cli(*flags, *line) if before else cli(*line, *flags)

    fit = ("fit", "val.npz", "--method", "ts", "-o", "m.json")
    assert run("-q", line=fit) == (0, "", "")
    assert run("--quiet", line=("apply", "m.json", "val.npz", "-o", "p.npz")) == (0, "", "")
    assert run("-q", line=("sketch", "val.npz", "-o", "s.json")) == (0, "", "")
    assert "wrote state.json" not in run("-q", line=("drift", "m.json", "val.npz", "--state", "state.json")).out
    assert strict_json(run("-q", line=(*fit, "--json")).out)["method"] == "ts"
    assert "ece" in run("-q", line=("evaluate", "val.npz")).out  # which is the result


def test_warnings_stay_unless_q_is_there_twice(cli, val, fitted, tmp_path):
    h, _ = val
    np.savez(tmp_path / "perfect.npz", logits=h, labels=h.argmax(axis=1))
    line = ("fit", "perfect.npz", "--method", "ts", "-o", "n.json")
    assert cli(*line, "-q").err.startswith("warning: ")
    for quiet in (["-qq"], ["-q", "-q"]):
        assert cli(*line, *quiet) == (0, "", "")
    assert cli("-q", *line, "-q") == (0, "", "")
    assert cli("fit", "none.npz", "-qq").err == "attemper: none.npz: there is no such file\n"


def test_notes_are_left_out_with_quiet(cli, tmp_path, val):
    h, y = val
    header = ",".join([f"logit_{k}" for k in range(4)] + ["label"])
    np.savetxt(tmp_path / "a.csv", np.column_stack([h, y]), delimiter=",", header=header, comments="")
    assert "logits are the columns" in cli("evaluate", "a.csv").err
    assert cli("evaluate", "a.csv", "-q").err == ""


def test_verbose_prints_files_and_times(cli, val):
    err = cli("evaluate", "val.npz", "--verbose").err
    assert "reading val.npz: 200 rows, 4 classes, as logits" in err
    assert re.search(r"finished after \d+\.\d s", err)
    assert cli("-v", "evaluate", "val.npz", "-q").err == ""  # one takes back the other


# Progress


@pytest.fixture
def eager(monkeypatch):
    """Show progress at once."""
    monkeypatch.setattr(progress, "FIRST_LINE", 0.05)


def test_lines_of_progress_where_there_is_no_terminal(eager, capsys):
    with progress.metered("reading", "rows", 1000) as meter:
        time.sleep(0.08)
        meter.done = 250
        time.sleep(0.15)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading: 0 of 1 000 rows, 1 s"
    assert lines[1].startswith("reading: 250 of 1 000 rows, 1 s, about 1 s left")
    assert not [thread for thread in threading.enumerate() if "_print_lines" in thread.name]


def test_what_is_quick_prints_nothing(capsys):
    with progress.metered("reading", "rows", 10) as meter:
        meter.done = 10
    assert capsys.readouterr().err == ""


def test_estimates_are_the_mean_rate(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    meter = progress.Meter("fitting", "files", 40)
    assert meter.remaining is None  # nothing to go by
    now[0], meter.done = 130.0, 10
    assert meter.remaining == pytest.approx(90)
    assert meter.times() == "30 s, about 1 min 30 s left"
    meter.done = 40
    assert meter.times() == "30 s"
    meter.total = None
    assert meter.counted() == "40 files"
    assert meter.remaining is None


def test_commands_show_progress_with_totals(cli, eager, val, unseen, monkeypatch):
    original = command.compare

    def slow(*args, tick, **more):
        def slowly(method):
            tick(method)
            time.sleep(0.1)

        return original(*args, tick=slowly, **more)

    monkeypatch.setattr(command, "compare", slow)
    line = ("compare", "val.npz", "test.npz", "--methods", "ts,vector", "--cv", "0")
    code, out, err = cli(*line, "--json")
    assert code == 0
    assert "of 3 methods" in err
    strict_json(out)  # stdout has nothing but the JSON
    assert cli(*line, "-q").err == ""


def test_an_error_ends_the_progress(cli, eager, val, monkeypatch):
    def fail(*_, **__):
        time.sleep(0.1)
        raise InputError("no luck")

    monkeypatch.setattr("attemper.cli.fit.fit_and_return_data", fail)
    code, _, err = cli("fit", "val.npz")
    assert code == 2
    assert err.splitlines()[-1] == "attemper: no luck"


# Completion


def complete(*words):
    """What the shell is offered for the last word."""
    completer = BashComplete(group, {}, "attemper", "_ATTEMPER_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


def test_completion():
    assert {"fit", "apply", "check"} <= set(complete(""))
    assert complete("ev") == ["evaluate"]
    assert "--fail-if" in complete("evaluate", "--fa")
    assert complete("fit", "val.npz", "--method", "struct") == ["structured"]
    assert complete("compare", "--methods", "ts,ba") == ["ts,bayes"]
    assert "ts,ts" not in complete("compare", "--methods", "ts,t")
    assert complete("fit", "--engine", "pro") == ["processes"]
    assert "evaluate" in complete("schema", "e")
    completer = BashComplete(group, {}, "attemper", "_ATTEMPER_COMPLETE")
    (item,) = completer.get_completions(["fit"], "va")
    assert (item.type, item.value) == ("file", "va")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_the_shell(tmp_path, shell):
    def run(instruction, **more):
        return subprocess.run(
            [sys.executable, "-c", "from attemper.cli import main; main()"],
            cwd=tmp_path,
            env={**os.environ, "_ATTEMPER_COMPLETE": instruction, **more},
            capture_output=True,
            text=True,
        ).stdout

    assert f"_ATTEMPER_COMPLETE={shell}_complete" in run(f"{shell}_source")
    last = {"COMP_CWORD": "eva" if shell == "fish" else "1"}
    assert "evaluate" in run(f"{shell}_complete", COMP_WORDS="attemper eva", **last)
