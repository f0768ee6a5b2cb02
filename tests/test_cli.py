"""Each command on real files: its JSON, its exit code, one refusal. Text is read by people, not by tests."""

import csv
import inspect
import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pydantic  # noqa: F401 (the command line checks types by it, where it is loaded)
import pytest
from onnx import TensorProto, helper

import attemper
from attemper import datasets
from attemper.cli import COMMANDS, main
from attemper.cli.demo import FILES, _write_data
from attemper.cli.gates import Condition
from attemper.cli.options import OPTIONS, READ, REFUSED, as_flags
from attemper.data.files import write
from attemper.data.reading import Read
from attemper.errors import InputError
from conftest import draw

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
    spaced = ("--labels", "diagnosis", "--columns", CLASSES.replace(",", ", "))
    spaced = run("fit", "val.csv", *spaced, "-o", "x.json", "--json")
    assert spaced["read"]["columns"] == CLASSES.split(",")
    assert "--labels" in run("fit", "val.csv", "--columns", CLASSES, "--labels", "no", "-o", "x.json", code=2)


def test_parameters_and_noise_of_fit(run):
    found = run("fit", "val.csv", *READING, "--method", "ats", "-p", "theta=0.01", "-o", "own.json", "--json")
    assert found["params"]["theta"] == 0.01
    twice = ["-p", "theta=0.01", "-p", "loss=reference"]
    found = run("fit", "val.csv", *READING, "--method", "ats", *twice, "-o", "own.json", "--json")
    assert (found["params"]["theta"], found["params"]["loss"]) == (0.01, "reference")
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
    for pattern in ("new.csv", "n*w.csv"):
        run("apply", "net.attemper.json", pattern, "-o", "new.csv", code=2)
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
    assert found["of"] == ["all", *["class"] * 7]
    table = run("apply", "own.json", "new.csv", "-o", "list.csv", "--json")
    assert 0 < table["referred"] < table["rows"] == 100
    assert {row["refer"] for row in rows("list.csv")} == {"true", "false"}
    run("decide", *own, "--max-miss", "mel=0.001", "-o", "none.json", code=1)
    assert not (folder / "none.json").exists()
    write_rows("wrong.csv", [{**row, "diagnosis": "df"} for row in rows("test.csv")])
    wrong = ["val.csv", "wrong.csv", *own[2:], "--max-miss", "0.1", "-o", "rule.json", "--json"]
    assert "broken" in run("decide", *wrong, code=1)["verdict"]  # TEST contradicts the promise
    assert (folder / "rule.json").exists()
    fitted_on_val = ["--calibrator", "net.attemper.json"]
    run("decide", "val.csv", "test.csv", *fitted_on_val, "--max-miss", "0.1", "-o", "none.json", code=2)
    run("decide", *own, "--coverage", "0.9", "--guarantee-level", "none", "-o", "sets.json")
    assert attemper.load("sets.json").rule_.promise.level is None
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
    ["compare", "val.csv", "test.csv", "new.csv"], ["compare", "val.csv", "test.csv", "--card", "nothing.json"],
    ["fit", "val.csv", *READING, "-p", "theta", "-o", "a.json"],
    ["decide", "val.csv", *READING, "--coverage", "0.9", "--guarantee-level", "much", "-o", "a.json"],
])  # fmt: skip
def test_usage(run, tokens):
    run(*tokens, code=2)


def test_only_names_that_are_near_are_suggested(run):
    for flag, near in (("--label", True), ("--multi-label", False)):
        assert ("--labels" in run("compare", "val.csv", flag, code=2)) == near


def test_version(run):
    assert run("--version").strip() == attemper.__version__


def test_options_are_those_of_the_functions():
    from attemper.cli import commands

    assert set(READ) == {"labels", *Read.__annotations__}
    for name in set(COMMANDS) - {"demo", "export"}:
        verb, command = (inspect.signature(getattr(each, name)).parameters for each in (attemper, commands))
        own = {key: each for key, each in verb.items() if each.kind is not each.VAR_KEYWORD}
        assert set(command) - {*READ, "json", "debug", "output", "params", "fail_if", "card"} == set(own) - set(READ)
        assert all(command[key].default == each.default for key, each in own.items() if key not in READ)
        assert set(READ) & set(command) == set(READ) - set(REFUSED.get(name, ()))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Tables with right, wrong and no labels; images, several labels, and a model."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, options in (("a", {}), ("b", {"seed": 1}), ("wrong", {"noise": 0.5, "seed": 1})):
        data = draw(400, 3, groups=2, **options)
        columns = {f"logit_{name}": data.h[:, k] for k, name in enumerate("xyz")}
        ids = {"site": data.group, "id": np.array([f"{name} {i}" for i in range(400)])}
        write(folder / f"{name}.csv", {**columns, "label": np.array(list("xyz"))[data.y], "w": data.w, **ids})
    write(folder / "unsure.csv", {name: column / 4 for name, column in columns.items()})
    attemper.fit(folder / "a.csv", method="ts").save(folder / "own.json")
    images, labels = np.moveaxis(data.h.reshape(4, 100, 3), -1, 1), data.y.reshape(4, 100)
    np.savez(folder / "images.npz", logits=images, labels=np.where(np.arange(100) < 9, 255, labels))
    np.savez(folder / "several.npz", logits=data.h, labels=np.eye(3)[data.y])
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in "xyz")
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y, z]), opset_imports=opset, ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return folder


IMAGES = "fit images.npz -o out.json --method ts --axis 1"
EFFECTS = [  # a command, a flag, and the field of the JSON that it changes
    ("fit a.csv -o out.json", "--sample-weight w", "values.temperature"),
    ("fit a.csv -o out.json", "--groups site", "values.groups.temperature_ratio"),
    ("fit several.npz -o out.json", "--multi-label", "values.slope"),
    ("fit images.npz -o out.json --method ts --ignore-index 255", "--axis 1", "read.axis"),
    (IMAGES, "--ignore-index 255", "report.n_samples"),
    (f"{IMAGES} --ignore-index 255", "--max-pixels 50", "report.n_samples"),
    ("evaluate b.csv", "--confidence-level 0.5", "before.metrics.nll.low"),
    ("evaluate b.csv", "--by site", "before.parts"),
    ("decide a.csv b.csv -o out.json --max-miss 0.3", "--guarantee-level 0.5", "referred"),
    ("decide a.csv b.csv -o out.json --max-miss 0.3", "--seed 1", "referred"),
    ("decide a.csv b.csv -o out.json", "--budget 0.2", "referred"),
    ("decide a.csv b.csv -o out.json", "--costs refer=1,miss=4", "referred"),
    ("decide a.csv b.csv -o out.json --coverage 0.8", "--by class", "coverage"),
    ("decide a.csv b.csv -o out.json --max-miss 0.3", "--by class", "miss_rate"),
    ("monitor own.json wrong.csv", "--alpha 1e-60", "verdict"),
    ("monitor own.json unsure.csv", "--reference a.csv", "verdict"),
    ("export own.json -o out.onnx", "model.onnx --tensor y", "tensor"),
    ("export own.json model.onnx -o out.onnx", "--tensor z", "tensor"),
]


@pytest.mark.parametrize(("command", "flag", "field"), EFFECTS)
def test_a_flag_has_an_effect(drawn, monkeypatch, capsys, command, flag, field):
    monkeypatch.chdir(drawn)
    found = []
    for tokens in (command, f"{command} {flag}"):
        with pytest.raises(SystemExit):
            main([*tokens.split(), "--json"])
        content = json.loads(capsys.readouterr().out or "{}")  # without a flag that it needs a command may refuse
        for name in field.split("."):
            content = content.get(name, {})
        found.append(content)
    assert found[1]
    assert found[0] != found[1]


def test_the_card_is_in_the_report_and_jobs_change_nothing(drawn, monkeypatch, run):
    monkeypatch.chdir(drawn)
    Path("card.json").write_text(json.dumps({"model": "net 2"}))
    run("compare", "a.csv", "b.csv", "--methods", "ts", "--cv", "0", "-o", "page.html", "--card", "card.json")
    assert "net 2" in Path("page.html").read_text(encoding="utf-8")
    one, two = (run("fit", "?.csv", "-o", "out.json", "--n-jobs", n, "--json") for n in (1, 2))
    assert one["values"]["temperature"] == two["values"]["temperature"]


@pytest.mark.parametrize(("text", "expected"), [
    ("labels: no", "--labels: no"),
    ("a.csv: zeros_as: no", "a.csv: --zeros-as: no"),
    ("seed=0/a.csv: labels: no input=1. Use seed=1.", "seed=0/a.csv: --labels: no input=1. Use --seed 1."),
    ("Use columns=[…].", "Use --columns A,B."),
    ('Use input="probs".', "Use --input probs."),
    ("Use classes=[1, 2, 3].", "Use --classes 1,2,3."),
    ("Use classes=['yes', 'no'].", "Use --classes yes,no."),
    ("Use allow_shared=True, or zeros_as=1e-8", "Use --allow-shared, or --zeros-as 1e-8"),
    ("val.csv: data: row 0 is NaN", "val.csv: row 0 is NaN"),
    ("method='no': expected max_miss=2, budget", "--method 'no': expected max_miss=2, budget"),
    ("noise=2.0: expected less. Use zeros_as=….", "--noise 2.0: expected less. Use --zeros-as …."),
])  # fmt: skip
def test_messages_name_flags(text, expected):
    param = next((name for name in ("method", "noise") if text.startswith(name)), None)
    assert as_flags(text, "fit", param) == expected


@pytest.mark.parametrize(("tokens", "flags"), [
    (["decide", "val.csv", *READING, "-o", "a.json"], {"--max-miss", "--budget", "--costs", "--coverage"}),
    (["decide", "val.csv", *READING, "--budget", "0.2", "--by", "class", "-o", "a.json"], {"--by", "class"}),
    (["decide", "val.csv", *READING, "--budget", "0.2", "--max-miss", "0.1", "-o", "a.json"], {"--budget"}),
    (["fit", "val.csv", "--columns", CLASSES, "-o", "a.json"], {"--labels"}),
    (["compare", "val.csv", "--columns", CLASSES], {"VAL"}),
    (["fit", "val.csv", *READING, "--method", "ats", "-p", "theta=2", "-o", "a.json"], {"theta", "2"}),
    (["evaluate", "test.csv", *READING, "--metrics", "nll", "--fail-if", "ece > 0.1"], {"--metrics"}),
    (["evaluate", "test.csv", *READING, "--fail-if", "ecee > 0.1"], {"--fail-if", "ece"}),
])  # fmt: skip
def test_errors_are_in_the_words_of_the_shell(run, tokens, flags):
    text = run(*tokens, code=2)
    assert not re.search(rf"({'|'.join({*READ, *OPTIONS})})=(…|')", text)
    assert "None" not in text
    assert set(re.findall(r"--[\w-]+", text)) <= set(re.findall(r"--[\w-]+", run(tokens[0], "--help")))
    assert flags <= set(re.findall(r"[\w.-]+", text))


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_can_be_copied(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    examples = run(command, "--help").partition("Examples:\n")[2].splitlines()
    assert len(examples) == sum(map(bool, COMMANDS[command][2:])) or command == "demo"
    assert all(line.startswith(f"  attemper {command}") and len(line) <= 80 for line in examples)


def test_what_a_command_refuses_is_no_option_of_it(run):
    for flag in (["--axis", "1"], ["--max-pixels", "9"], ["--multi-label"]):
        run("decide", "val.csv", *READING, "--max-miss", "0.1", *flag, "-o", "a.json", code=2)
        assert flag[0] not in run("decide", "--help")
    assert "--axis" in run("compare", "--help")


def test_results_are_not_rewritten(run, folder):
    (folder / "seed=0").mkdir()
    assert "seed=0/max_miss=1.json" in run("fit", "val.csv", *READING, "-o", "seed=0/max_miss=1.json")
    found = run("check", "val.csv", *READING, "--clusters", "no", code=1)
    assert "--clusters" in found
    assert "seed=0/x.csv: " in run("evaluate", "seed=0/x.csv", code=2)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo"}))
def test_messages_name_the_arguments_of_each_command(run, command):
    from attemper.cli import commands

    known = set(re.findall(r"[\w-]+", run(command, "--help")))
    for name in set(inspect.signature(getattr(commands, command)).parameters) - {"data"}:
        flag = as_flags(f"{name}: no", command).removesuffix(": no")
        assert flag in known, name
        assert flag.startswith("--") or flag.isupper(), name


@pytest.mark.parametrize("text", ["ece", "ecee > 0.1", "ece.mean > 0.1"])
def test_a_condition_that_is_none(text):
    with pytest.raises(InputError) as error:
        Condition.parse(text)
    assert error.value.param == "fail_if"


def test_referred_are_counted_over_all_files(run):
    run("decide", "val.csv", "test.csv", *READING, "--method", "ts", "--budget", "0.3", "-o", "own.json")
    shutil.copy("new.csv", "more.csv")
    facts = run("apply", "own.json", "new.csv", "more.csv", "-o", "list.csv", "--json")
    assert facts["rows"] == 200
    assert facts["referred"] == sum(row["refer"] == "true" for row in rows("list.csv")) > 0


def test_a_column_that_is_remembered_may_be_missing(run):
    run("fit", "val.csv", *READING, "--clusters", "lesion", "-o", "cases.json")
    pd.read_csv("test.csv").drop(columns="lesion").to_csv("less.csv", index=False)
    found = run("evaluate", "less.csv", "--calibrator", "cases.json", "--clusters", "none", "--json")
    assert found == run("evaluate", "test.csv", "--calibrator", "cases.json", "--clusters", "none", "--json")


CODES = [  # a command, its exit code, and a field of its JSON
    ("check a.csv", 0, "holds"), ("check own.json", 1, "findings"),
    ("monitor own.json b.csv", 0, "verdict"), ("monitor own.json wrong.csv", 1, "verdict"),
    ("decide a.csv b.csv -o out.json --max-miss 0.3", 0, "verdict"),
    ("decide a.csv wrong.csv -o out.json --max-miss 0.3", 1, "verdict"),
    ("decide a.csv b.csv -o out.json --max-miss 0.001", 1, "more"), ("decide a.csv b.csv -o out.json", 2, None),
    ("evaluate b.csv --fail-if nll<0", 0, "fail_if"), ("evaluate b.csv --fail-if nll>0 --fail-if nll<0", 1, "fail_if"),
    ("evaluate b.csv --fail-if nll<0 --fail-if nll>0", 1, "fail_if"), ("evaluate b.csv --fail-if after:nll<0", 2, None),
    ("evaluate b.csv --calibrator own.json --fail-if after:nll>0", 1, "after"),
    ("evaluate b.csv --metrics mce --fail-if mce.low<9", 2, None),
    ("compare a.csv b.csv --methods ts --cv 0", 0, "chosen"), ("apply own.json unsure.csv", 0, "prediction"),
    ("compare a.csv a.csv --methods ts --cv 0", 2, None), ("compare wrong.csv b.csv --methods none", 2, None),
    ("fit a.csv -o out.json --method vector", 0, "values"), ("sketch a.csv b.csv -o out.json", 0, "rows"),
    ("export own.json -o out.onnx", 0, "difference"), ("apply own.json unsure.csv -o own.json", 2, None),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "field"), CODES)
def test_exit_codes(drawn, monkeypatch, capsys, command, code, field):
    monkeypatch.chdir(drawn)
    with pytest.raises(SystemExit) as done:
        main([*command.split(), "--json"])
    out, err = capsys.readouterr()
    assert (done.value.code, out == "") == (code, code == 2), err
    assert code == 2 or field in json.loads(out)
    assert code != 2 or len(err.splitlines()) == 1


@pytest.mark.parametrize(("sign", "code"), [("<=", 1), (">=", 1), ("<", 0), (">", 0)])
@pytest.mark.parametrize("end", ["value", "low", "chance", "p"])
def test_a_condition_at_the_number_itself(run, drawn, monkeypatch, sign, code, end):
    monkeypatch.chdir(drawn)
    value = run("evaluate", "b.csv", "--metrics", "ece", "--json")["before"]["metrics"]["ece"][end]
    condition = f"ece.{end} {sign} {value!r}"
    found = run("evaluate", "b.csv", "--metrics", "ece", "--fail-if", condition, "--json", code=code)["fail_if"]
    assert found == [{"condition": condition, "value": value, "failed": bool(code)}]


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_interrupted_command(run, monkeypatch, error):
    def stopped(*_, **__):
        raise error

    monkeypatch.setattr("attemper.data.checking.read", stopped)
    assert run("check", "val.csv", code=130) == ""


def test_a_warning_is_one_line_however_often_it_is_given(drawn, monkeypatch, capsys):
    monkeypatch.chdir(drawn)
    columns = {f"logit_{k}": np.arange(9.0) for k in "xyz"} | {"refer": np.ones(9)}
    for name in ("taken1", "taken2"):
        write(drawn / f"{name}.csv", columns)
    with pytest.raises(SystemExit) as done:
        main(["apply", "own.json", "taken1.csv", "taken2.csv", "--json"])
    assert done.value.code == 0
    assert [each.split(":")[0] for each in capsys.readouterr().err.splitlines()] == ["warning"]
