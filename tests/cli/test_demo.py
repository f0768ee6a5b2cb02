"""The demo: three lines, a table, files that are all of the recommended method, and commands for one's own data."""

import json
import shlex

import numpy as np
import pytest

import attemper
from attemper import MissingExtraError, datasets
from attemper.calibrators import METHODS
from attemper.cli import demo as command
from attemper.comparison import Comparison, Row
from attemper.io import open_scores
from attemper.metrics.predictions import Predictions

pytestmark = pytest.mark.slow


@pytest.fixture
def reported(monkeypatch):
    """Return a list of the numbers of the reports that are written."""
    from attemper import report

    found, original = [], report.write_report
    monkeypatch.setattr(report, "write_report", lambda *args, **more: found.append(original(*args, **more)))
    return found


def test_the_demo_agrees_with_itself(cli, tmp_path, monkeypatch, reported):
    monkeypatch.setattr("attemper.cli.output.out._width", 100)
    code, out, _ = cli("demo", "-o", "here")
    lines = out.splitlines()
    assert code == 0
    [method] = {line.split()[1].rstrip(",") for line in lines if line.startswith("Use ")}
    # Three lines open it: what was found, what changed, what to do.
    assert [line.split(":")[0] for line in lines[:3]] == ["Found", "Changed", "To do"]
    assert max(map(len, lines[:3])) <= 80
    assert f"Changed: with {method}, " in out
    assert f"To do:   use {method}; open here/report.html" in out
    # The table fits, and so do the lines below it.
    head = next(i for i, line in enumerate(lines) if line.startswith("method "))
    end = next(i for i, line in enumerate(lines) if line.startswith("Use "))
    assert max(len(line.rstrip()) for line in lines[head:end]) <= 80
    assert max(map(len, lines[end + 1 :])) <= 80
    # Every file is of the recommended method.
    assert json.loads((tmp_path / "here/attemper.json").read_text())["method"] == method
    for name in ("attemper.json", "probabilities.csv", "reliability.png"):
        assert method in next(line for line in lines if line.startswith(f"  {name} "))
    [summary] = reported
    assert summary["recommended"] == method
    assert summary["referral"]["methods"][summary["referral"]["first_method"]] == method
    # It ends with what comes next, and the report.
    assert lines[-1] == "Report, to open in a browser: here/report.html"
    assert f"  attemper fit val.npz --method {method} -o net.attemper.json" in lines
    assert (tmp_path / "here/report.html").read_text().startswith("<!DOCTYPE html>")


def test_demo_writes_what_it_says(good, tmp_path):
    found = json.loads(good("demo", "-q", "-o", "here/there", "--json"))
    assert found["folder"] == "here/there"
    assert [row["method"] for row in found["rows"]] == ["none", *METHODS]
    folder = tmp_path / "here/there"
    assert sorted(found["files"]) == sorted(path.name for path in folder.iterdir())
    assert (folder / "reliability.png").read_bytes().startswith(b"\x89PNG")
    test = open_scores(folder / "test.npz").load()
    written = open_scores(
        folder / "probabilities.csv", input="probs", classes=np.load(folder / "test.npz")["class_names"]
    )
    calibrator = attemper.load(folder / "attemper.json")
    assert calibrator.method == found["recommended"]
    np.testing.assert_array_equal(written.load().values.astype(np.float32), calibrator.predict_proba(test))


def test_demo_without_extras_goes_on(cli, monkeypatch):
    def missing(name, **_):
        raise MissingExtraError(f"{name} is needed")

    monkeypatch.setattr("attemper.plots.require", missing)
    monkeypatch.setattr("attemper.report.page.require", missing)
    code, out, err = cli("demo", "-o", "here")
    assert code == 0
    assert "no picture: matplotlib is needed" in err
    assert "no report: jinja2 is needed" in err
    assert "fitted on 801 samples, evaluated on 3205 others" in out
    assert "attemper.json" in out
    assert "reliability.png" not in out
    assert "here/report.html" not in out  # only the command that writes one


def comparison(recommended):
    p = Predictions.of([0, 1, 1], [[0.8, 0.2], [0.9, 0.1], [0.3, 0.7]])
    metrics = {"accuracy": 2 / 3, "ece": 0.3, "nll": 0.9}
    rows = [Row(name, metrics=metrics, predictions=p) for name in ("none", "bayes", "structured")]
    return Comparison(tuple(rows), recommended, f"Use {recommended}.")


@pytest.mark.parametrize("recommended", ["structured", "none"])
def test_three_lines_and_the_files_are_of_one_method(recommended, tmp_path):
    lines = command._opening(comparison(recommended), tmp_path, ["report.html"])
    method = "bayes" if recommended == "none" else recommended
    assert lines[0] == "Found:   the network is over-confident: mean confidence 80.0%, accuracy 66.7%."
    assert lines[1].startswith(f"Changed: with {method}, ")
    assert ("it needs no calibration" in lines[2]) == (recommended == "none")
    shown = "\n".join(command._ending(comparison(recommended), tmp_path, ["attemper.json", "report.html"]))
    assert f"the fitted map of {method}" in shown
    assert f"--method {method} " in shown


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_the_commands_for_your_own_data_run_as_they_stand(good, tmp_path, kind):
    data = datasets.load()
    for name, h, y in (("val", data.val_logits, data.val_labels), ("test", data.test_logits, data.test_labels)):
        h, y = h[:300], y[:300]
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y)
        titles = ",".join([*(f"logit_{c}" for c in data.class_names), "label"])
        rows = (",".join([*map(str, row), data.class_names[k]]) for row, k in zip(h.tolist(), y))
        (tmp_path / f"{name}.csv").write_text("\n".join([titles, *rows]) + "\n")
    commands = [
        line.strip()
        for line in command._ending(comparison("structured"), tmp_path, [])
        if f"t.{kind}" in line or f"val.{kind}" in line
    ]
    commands = [line for line in commands if line.startswith("attemper ") and " compare " not in line]
    assert len(commands) == 3
    for line in commands:
        more = ["--methods", "ts,structured", "-q"] if " report " in line else ["-q"]
        good(*shlex.split(line)[1:], *more)
    for name in ("report.html", "net.attemper.json", "probabilities.csv"):
        assert (tmp_path / name).is_file()
