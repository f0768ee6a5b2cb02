"""`attemper report`: files in, a page out."""

import json
import sys

import numpy as np
import pytest

from attemper import cli as command_line

N = 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = np.array(["benign", "<malignant>", "unclear"])
    for name in ("val", "test"):
        y = rng.integers(3, size=N)
        h = 3 * rng.normal(size=(N, 3))
        h[np.arange(N), y] += 3
        np.savez(f"{name}.npz", logits=h, labels=y, case=np.arange(N) // 2, class_names=names)
    return tmp_path


@pytest.fixture
def cli(folder, monkeypatch, capsys):
    def run(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_it_writes_a_page(cli, folder):
    code, out, err = cli("report val.npz test.npz --methods ts,bayes -o page.html")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].endswith("page.html")
    text = (folder / "page.html").read_text()
    assert "&lt;malignant&gt;" in text  # the names that the file holds
    assert str(folder) not in text


def test_json_for_machines(cli, folder):
    code, out, _ = cli("report val.npz test.npz --methods ts --json")
    found = json.loads(out)
    assert code == 0
    assert found["bytes"] == (folder / "report.html").stat().st_size
    assert (found["n_test"], found["recommended"]) == (N, "ts")
    assert [row["method"] for row in found["rows"]] == ["none", "ts"]
    assert [len(file["sha256"]) for file in found["provenance"]["files"]] == [64, 64]
    assert all(len(finding) == 2 for finding in found["verdict"])


@pytest.mark.parametrize(
    "line",
    [
        "val.npz gone.npz",
        "val.npz test.npz --classes a,b",
        "val.npz test.npz --methods nothing",
        "val.npz test.npz --catch 2",
        "val.npz test.npz --focus nothing",
        "val.npz test.npz --card gone.txt",
        "val.npz test.npz --sets sets.json",
        "val.npz val.npz --methods ts",
    ],
)
def test_what_goes_wrong_is_one_message(cli, folder, line):
    code, out, err = cli(f"report {line}")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert not (folder / "report.html").exists()


@pytest.mark.filterwarnings("ignore")
def test_prediction_sets_and_cases_have_sections(cli, folder):
    code, out, _ = cli("sets val.npz test.npz -o sets.json --save-map map.json --coverage 0.8 --json")
    expected = json.loads(out)["test"]
    assert cli("report val.npz test.npz --methods ts --sets sets.json --sets-map map.json --clusters case")[0] == code
    text = (folder / "report.html").read_text()
    section = text[text.index('<section id="sets"') : text.index('<section id="clusters"')]
    for row in expected["by_class"]:
        assert f"<td>{row['decided']:.0f}</td><td>{row['listed']:.0f}</td><td>{row['referred']:.0f}</td>" in section
