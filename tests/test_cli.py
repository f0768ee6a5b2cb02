"""Each command on real files: its JSON, its exit code, one refusal. Text is read by people, not by tests."""

import csv
import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import datasets
from attemper.cli import COMMANDS, main
from attemper.cli.demo import FILES, _write_data
from attemper.cli.gates import Condition
from attemper.cli.options import OPTIONS, READ, as_flags
from attemper.data.reading import Read
from attemper.errors import InputError

CLASSES = ",".join(datasets.load().class_names)
READING = ["--labels", "diagnosis", "--columns", CLASSES]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    _write_data(folder)
    attemper.fit(folder / "val.csv", "diagnosis", columns=CLASSES.split(","), clusters="lesion", method="ts").save(
        folder / "net.attemper.json"
    )
    return folder


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder, capsys):
    def call(*tokens, code=0):
        with pytest.raises(SystemExit) as found:
            main([*map(str, tokens)])
        out, err = capsys.readouterr()
        assert found.value.code == code, (out, err)
        return json.loads(out) if "--json" in tokens else (out if code in (0, 1) else err)

    return call


def rows(path):
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def write_rows(path, found):
    with Path(path).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(found[0]))
        writer.writeheader()
        writer.writerows(found)


def test_check(run):
    found = run("check", "val.csv", *READING, "--clusters", "lesion", "--json")
    assert found["holds"]["rows"] == 801
    assert found["holds"]["classes"] == 7
    assert found["findings"] == []
    assert found["next"].startswith("attemper fit val.csv --labels diagnosis")
    assert run("check", "val.csv", "--json", code=1)["findings"][0]["level"] == "error"


def test_fit(run):
    found = run("fit", "val.csv", *READING, "--clusters", "lesion", "-o", "own.json", "--json")
    assert found["method"] == "bayes"
    assert found["read"]["columns"] == CLASSES.split(",")
    assert found["read"]["clusters"] == "lesion"
    assert found["values"]["temperature"] == pytest.approx(1.96, abs=0.01)
    assert len(found["values"]["fitted_on"][0]) == 64
    assert attemper.load("own.json").temperature_ == found["values"]["temperature"]
    assert "--labels" in run("fit", "val.csv", "--columns", CLASSES, "--labels", "no", "-o", "x.json", code=2)


def test_parameters_and_noise_of_fit(run):
    found = run("fit", "val.csv", *READING, "--method", "ats", "-p", "theta=0.01", "-o", "own.json", "--json")
    assert found["params"]["theta"] == 0.01
    found = run("fit", "val.csv", *READING, "--noise", "unknown", "-o", "own.json", "--json")
    assert found["params"]["noise"] == "unknown"
    assert run("fit", "val.csv", *READING, "--noise", "0.1", "-o", "own.json", "--json")["params"]["noise"] == 0.1
    run("fit", "val.csv", *READING, "-p", "theta=0.01", "-o", "own.json", code=2)


def test_sketch(run):
    found = run("sketch", "val.csv", *READING, "-o", "s.json", "--json")
    assert found["rows"] == 801
    ts = run("fit", "s.json", "--method", "ts", "-o", "own.json", "--json")["values"]["temperature"]
    whole = attemper.fit("val.csv", "diagnosis", columns=CLASSES.split(","), method="ts").temperature_
    assert ts == pytest.approx(whole, rel=1e-8)
    run("sketch", "val.csv", "-o", "s.json", code=2)


def test_apply(run):
    assert run("apply", "net.attemper.json", "new.csv", "-o", "list.csv", "--json") == {"rows": 100}
    found, before = rows("list.csv"), rows("new.csv")
    assert [row["image"] for row in found] == [row["image"] for row in before]
    made = [name for name in found[0] if name not in before[0]]
    assert made == ["prediction", "confidence", *(f"prob_{name}" for name in CLASSES.split(","))]
    h = np.array([[float(row[name]) for name in CLASSES.split(",")] for row in before])
    p = attemper.load("net.attemper.json").predict_proba(h)
    np.testing.assert_allclose([float(row["confidence"]) for row in found], p.max(axis=1), rtol=1e-12)
    assert set(run("apply", "net.attemper.json", "new.csv", "--json")) == set(found[0])
    equal = ",".join(["1"] * 7)
    run("apply", "net.attemper.json", "new.csv", "--priors", ",".join(["0.142857142857142857"] * 7), "-o", "b.csv")
    assert [row["confidence"] for row in rows("b.csv")] != [row["confidence"] for row in found]
    facts = run("apply", "net.attemper.json", "new.csv", "--priors", "estimate", "-o", "b.csv", "--json")
    assert facts.pop("rows") == 100
    assert sum(facts.values()) == pytest.approx(1, abs=1e-3)
    assert len(facts) == 7
    run("apply", "net.attemper.json", "new.csv", "--priors", equal, "-o", "b.csv", code=2)
    run("apply", "net.attemper.json", "new.csv", "-o", "new.csv", code=2)
    assert rows("new.csv") == before


def test_evaluate(run):
    found = run("evaluate", "test.csv", "--calibrator", "net.attemper.json", "--metrics", "nll,ece", "--json")
    nll = {when: found[when]["metrics"]["nll"]["value"] for when in ("before", "after")}
    assert nll == pytest.approx({"before": 0.890, "after": 0.672}, abs=1e-3)
    assert found["after"]["n"] == 3205
    assert run("evaluate", "test.csv", *READING, "--metrics", "nll", "--json")["after"] is None
    run("evaluate", "test.csv", "--calibrator", "net.attemper.json", "--calibrator", "net.attemper.json", code=2)


@pytest.mark.parametrize(("condition", "code"), [
    ("nll > 0.5", 1), ("nll > 0.7", 0), ("before:nll > 0.7", 1), ("nll.low > 0.672", 0), ("nll.high>=0.7", 1),
    ("ece > 0.1", 2), ("nll.chance > 1", 2), ("nll = 1", 2), ("nll.mean > 1", 2),
])  # fmt: skip
def test_conditions(run, condition, code):
    run(
        "evaluate",
        "test.csv",
        "--calibrator",
        "net.attemper.json",
        "--metrics",
        "nll",
        "--fail-if",
        condition,
        code=code,
    )


def test_compare(run):
    found = run("compare", "val.csv", "test.csv", *READING, "--methods", "ts,ets", "--cv", "2", "--json")
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "ets"]
    assert found["chosen"] in ("ts", "ets")
    assert found["rows"][1]["test"]["metrics"]["nll"]["value"] == pytest.approx(0.672, abs=1e-3)
    run("compare", "val.csv", "val.csv", *READING, "--methods", "ts", "--cv", "0", code=2)
    run("compare", "val.csv", *READING, "-o", "page.pdf", code=2)


def test_decide(run, folder):
    own = ["val.csv", "test.csv", *READING, "--clusters", "lesion", "--method", "ts"]
    found = run("decide", *own, "--max-miss", "mel=0.1", "-o", "own.json", "--json")
    assert isinstance(found, dict)
    table = run("apply", "own.json", "new.csv", "-o", "list.csv", "--json")
    assert 0 < table["referred"] < table["rows"] == 100
    assert {row["refer"] for row in rows("list.csv")} == {"true", "false"}
    run("decide", *own, "--max-miss", "mel=0.001", "-o", "none.json", code=1)
    assert not (folder / "none.json").exists()
    fitted_on_val = ["--calibrator", "net.attemper.json"]
    run("decide", "val.csv", "test.csv", *fitted_on_val, "--max-miss", "0.1", "-o", "none.json", code=2)
    run("decide", *own, "--coverage", "0.9", "-o", "sets.json")
    run("apply", "sets.json", "new.csv", "-o", "sets.csv")
    assert all(row["prediction"] in row["set"].split(";") for row in rows("sets.csv"))


def test_monitor(run):
    found = rows("test.csv")
    write_rows("june.csv", found[:200])
    write_rows("july.csv", found[200:400])
    write_rows("wrong.csv", [{**row, "diagnosis": "df"} for row in found[400:800]])
    assert run("monitor", "net.attemper.json", "june.csv", "--state", "monitor.json", "--json")["n"] == [200]
    assert run("monitor", "net.attemper.json", "july.csv", "--state", "monitor.json", "--json")["n"] == [200, 200]
    run("monitor", "net.attemper.json", "june.csv", "--state", "monitor.json", code=2)  # fed before
    run("monitor", "net.attemper.json", "val.csv", code=2)  # fitted on it
    run("monitor", "net.attemper.json", "wrong.csv", code=1)


def test_export(run, folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    run("export", "net.attemper.json", "-o", "out.onnx")
    session = onnxruntime.InferenceSession("out.onnx", providers=["CPUExecutionProvider"])
    h = datasets.load().test_logits[:50]
    p = session.run(["probabilities"], {session.get_inputs()[0].name: h})[0]
    np.testing.assert_allclose(p, attemper.load("net.attemper.json").predict_proba(h), atol=1e-6)
    run("export", "net.attemper.json", "-o", "out.txt", code=2)


def test_shell_lines_of_the_readme(run):
    own = ["--labels", "diagnosis", "--columns", CLASSES]
    run("check", "val.csv", *own)
    run("fit", "val.csv", *own, "--clusters", "lesion", "-o", "net2.attemper.json")
    run("apply", "net2.attemper.json", "new.csv", "-o", "list.csv")
    run("evaluate", "test.csv", "--calibrator", "net2.attemper.json")
    run(
        "decide",
        "val.csv",
        "test.csv",
        *own,
        "--clusters",
        "lesion",
        "--max-miss",
        "mel=0.1",
        "-o",
        "net2.attemper.json",
    )
    assert "referred" in run("apply", "net2.attemper.json", "new.csv", "-o", "list.csv", "--json")
    run("monitor", "net2.attemper.json", "new.csv", "--state", "monitor.json")


@pytest.mark.slow
def test_demo(run, folder):
    pytest.importorskip("matplotlib")
    run("demo", "here")
    written = {path.name: path.read_bytes() for path in (folder / "here").iterdir()}
    assert set(written) == set(FILES)
    run("demo", "here", code=2)
    assert {path.name: path.read_bytes() for path in (folder / "here").iterdir()} == written


def test_crash(run, monkeypatch):
    monkeypatch.setattr("attemper.data.checking.read", lambda *a, **k: 1 / 0)
    assert len(run("check", "val.csv", code=70).splitlines()) == 1
    assert "Traceback" in run("check", "val.csv", "--debug", code=70)


@pytest.mark.parametrize("tokens", [
    ["nothing"], ["fit"], ["fit", "val.csv"], ["fit", "val.csv", "--nothing", "-o", "a.json"],
    ["fit", "nothing.csv", "-o", "a.json"], ["fit", "val.csv", "-o", "no/folder/a.json"],
    ["apply", "val.csv", "new.csv"], ["fit", "val.csv", *READING, "-o", "net.attemper.json", "-o", "b.json"],
    ["compare", "val.csv", "test.csv", "new.csv"],
])  # fmt: skip
def test_usage(run, tokens):
    run(*tokens, code=2)


def test_version(run):
    assert run("--version").strip() == attemper.__version__


def test_help_fits_a_screen(run):
    flags = set()
    for command in COMMANDS:
        lines = run(command, "--help").splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 80
        assert sum(line.startswith(f"  attemper {command}") for line in lines) == 2
        flags |= {flag for line in lines for flag in re.findall(r"^  (?:-\w, )?(--[\w-]+)", line)}
    assert 30 < len(flags) <= 50
    assert len(run("--help").splitlines()) <= 40


def test_options_are_those_of_the_functions():
    from attemper.cli import commands

    assert set(READ) == {"labels", *Read.__annotations__}
    for name in set(COMMANDS) - {"demo", "export"}:
        verb, command = (inspect.signature(getattr(each, name)).parameters for each in (attemper, commands))
        own = {key: each for key, each in verb.items() if each.kind is not each.VAR_KEYWORD}
        assert set(command) - {*READ, "json", "debug", "output", "params", "fail_if", "card"} == set(own) - set(READ)
        assert all(command[key].default == each.default for key, each in own.items() if key not in READ)
        assert set(READ) <= set(command)
    assert all(key in OPTIONS for key in ("json", "debug", "output"))


@pytest.mark.parametrize(("text", "expected"), [
    ("labels: no", "--labels: no"),
    ("a.csv: zeros_as: no", "a.csv: --zeros-as: no"),
    ("Use columns=[…].", "Use --columns A,B."),
    ('Use input="probs".', "Use --input probs."),
    ("Use classes=[1, 2, 3].", "Use --classes 1,2,3."),
    ("Use classes=['yes', 'no'].", "Use --classes yes,no."),
    ("Use allow_shared=True, or zeros_as=1e-8", "Use --allow-shared, or --zeros-as 1e-8"),
    ("data: no", "FILE: no"),
    ("method='no': expected one of max_miss, budget", "--method no: expected one of --max-miss, budget"),
    ("noise=2.0: expected less. Use zeros_as=….", "--noise 2.0: expected less. Use --zeros-as …."),
])  # fmt: skip
def test_messages_name_flags(text, expected):
    assert as_flags(text, "fit") == expected


def test_a_condition_that_is_none():
    with pytest.raises(InputError) as error:
        Condition.parse("ece")
    assert error.value.param == "fail_if"
