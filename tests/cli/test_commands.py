"""The commands: files in, files out, the numbers of Python as JSON, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import attemper
from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    Scores,
    Sketch,
    TemperatureScaling,
    VectorScaling,
    metrics,
)
from attemper.calibrators import METHODS
from attemper.cli import flag_of
from attemper.cli.commands import cli as group
from attemper.comparison import compare
from attemper.errors import InputError
from attemper.metrics import effective_sample_size, nll

from commands import strict_json
from data import FORMATS, draw, save, softmax

NAMES = ["akiec", "bcc", "bkl", "mel"]


@pytest.mark.parametrize("command", group.commands)
def test_help_has_examples(good, command):
    text = good(command, "-h")
    assert f"  attemper {command}" in text
    assert "--json" in text
    assert f"  {command} " in good("--help")


# The keys of --json; pipelines read them.
KEYS = {
    "fit val.npz --method ts": "converged gradient_norm log_t_error message method n_classes n_samples n_shards nll "
    "nll_none objective_gap output temperature temperature_interval",
    "sketch val.npz -o s.json": "bytes n_classes n_samples n_shards output",
    "apply m.json val.npz -o p.npz": "n_samples output",
    "check val.npz": "accuracy dtype exit_code files findings input labels looks_like n_classes n_samples next numbers",
    "evaluate test.npz --map m.json --fail-if nll>9": "confidence_level fail_if n_classes n_samples rows",
    "compare val.npz test.npz --methods ts": "confidence_set n_folds reason recommended rows selected_by",
    "refer val.npz test.npz --budget 0.2": "map method n_chosen n_fitted output policy test",
    "sets val.npz test.npz": "coverage_range map method n_calibrated n_fitted output policy promise rule sets_output "
    "test",
    "drift m.json test.npz": "alarm alarm_at alpha e_value factor message n_rows n_samples new_samples p_value "
    "requested_tolerance since state temperature test tolerance tolerated_points",
    "export m.json -o m.onnx": "largest_difference logits not_run notes output output_kind sets tensor",
}


@pytest.mark.parametrize("line", KEYS)
def test_json(cli, fitted, unseen, line):
    code, out, _ = cli(*line.split(), "--json")
    found = strict_json(out)
    assert code == 0
    assert sorted(found) == KEYS[line].split()


# fit, sketch


@pytest.mark.parametrize("form", FORMATS)
def test_fit_reads_every_format(good, tmp_path, form):
    h, y = draw(150, 4)
    told = save(tmp_path, form, h, y)
    labels = ["--labels", told["labels"]] if "labels" in told else []
    found = strict_json(good("fit", told["paths"], *labels, "--json"))
    assert found["temperature"] == pytest.approx(BayesianTemperatureScaling().fit(h, y).temperature_, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_fit_is_the_fit_of_python(good, val, method):
    found = strict_json(good("fit", "val.npz", "--method", method, "-o", "m.json", "--json"))
    expected = METHODS[method]().fit(*val)
    assert found["nll"] == pytest.approx(expected.fit_report_.nll, rel=1e-6)
    assert found["nll_none"] == pytest.approx(metrics.nll(val[1], softmax(val[0])), rel=1e-9)
    assert (found["method"], found["n_samples"], found["n_classes"], found["output"]) == (method, 200, 4, "m.json")
    back = attemper.load("m.json")
    assert type(back) is type(expected)
    np.testing.assert_allclose(back.predict_proba(val[0]), expected.predict_proba(val[0]), atol=1e-9)
    assert "m2.json" in good("fit", "val.npz", "--method", method, "-o", "m2.json")


def test_parameters_of_a_method(good, bad, val):
    for method, params, expected in (
        ("vector", ["l2=0.5", "centring=none"], VectorScaling(l2=0.5, centring="none")),
        ("ats", ["theta=0.02", "loss=reference"], AttendedTemperatureScaling(theta=0.02, loss="reference")),
        ("bayes", ["t_range=[0.2,5]"], BayesianTemperatureScaling(t_range=(0.2, 5))),
    ):
        good("fit", "val.npz", "--method", method, *(word for param in params for word in ("-p", param)))
        back = attemper.load("attemper.json")
        np.testing.assert_allclose(back.predict_proba(val[0]), expected.fit(*val).predict_proba(val[0]), rtol=1e-6)
    for param in ("magic=1", "l2", "l2=much", "labels=noisy"):
        bad("fit", "val.npz", "--method", "vector", "-p", param)


def test_noise(good, bad, val):
    found = strict_json(good("fit", "val.npz", "--noisy", "--json"))
    assert found["temperature"] == BayesianTemperatureScaling(labels="noisy").fit(*val).temperature_
    assert {"noise_rate", "noise_interval"} <= set(found)
    good("fit", "val.npz", "--noisy", "--noise", "classwise")
    assert attemper.load("attemper.json").noise == "classwise"
    bad("fit", "val.npz", "--noise", "classwise")
    bad("fit", "val.npz", "--method", "vector", "--noisy")


@pytest.mark.parametrize("method", ["ts", "ats", "bayes"])
def test_parts_in_files_patterns_or_sketches_are_fitted_as_the_whole(good, val, tmp_path, method):
    h, y = val
    for i, part in enumerate(np.array_split(np.arange(200), 3)):
        np.savez(tmp_path / f"part{i}.npz", logits=h[part], labels=y[part])
        good("sketch", f"part{i}.npz", "-o", f"part{i}.sketch.json", "--allow-small")

    def t(*inputs):
        return strict_json(good("fit", *inputs, "--method", method, "--json", "-o", "m.json"))["temperature"]

    whole = pytest.approx(t("val.npz"), rel=1e-9)
    assert t("part0.npz", "part1.npz", "part2.npz") == whole
    assert t("part?.npz") == whole
    assert t("part*.sketch.json") == whole


def test_sketches(good, bad, val):
    good("sketch", "val.npz", "-o", "a.sketch.json", "--t-range", "0.2", "5")
    assert Sketch.load("a.sketch.json").t_range == (0.2, 5)
    good("sketch", "val.npz", "-o", "b.sketch.json", "--methods", "ts,bayes")
    assert set(Sketch.load("b.sketch.json").tables) == {"uniform", "similar"}
    good("fit", "b.sketch.json", "--classes", ",".join(NAMES))
    assert attemper.load("attemper.json").classes_.tolist() == NAMES
    bad("fit", "val.npz", "a.sketch.json")
    bad("fit", "b.sketch.json", "--method", "isotonic")
    bad("sketch", "val.npz", "-o", "c.json", "--methods", "vector")
    np.savez("few.npz", logits=val[0][:50], labels=val[1][:50])
    bad("sketch", "few.npz", "-o", "c.json")
    assert not Path("c.json").exists()


# How input is read


def test_names_of_arrays(good, val, tmp_path):
    h, y = val
    w = np.random.default_rng(0).uniform(size=200)
    np.savez(tmp_path / "odd.npz", scores=h, target=y, w=w)
    keys = ("--logits-key", "scores", "--labels-key", "target", "--weights-key", "w")
    found = strict_json(good("fit", "odd.npz", *keys, "--method", "ts", "--json"))
    assert found["temperature"] == pytest.approx(TemperatureScaling().fit(h, y, w).temperature_, rel=1e-6)
    before = strict_json(good("evaluate", "odd.npz", *keys, "--json"))["rows"][0]["metrics"]
    assert before["nll"]["value"] == pytest.approx(metrics.nll(y, softmax(h), sample_weight=w))


def test_class_names_by_list_and_by_file(good, val, tmp_path):
    h, y = val
    save(tmp_path, "csv", h, np.array(NAMES)[y], stem="named")
    (tmp_path / "names.txt").write_text("\n".join(NAMES) + "\n\n")
    (tmp_path / "names.csv").write_text("name,description\n" + "".join(f"{name},of {name}\n" for name in NAMES))
    (tmp_path / "names.json").write_text(json.dumps(dict.fromkeys(NAMES, "what it is")))
    for told in (", ".join(NAMES), "names.txt", "names.csv", "names.json"):
        good("fit", "named.csv", "--classes", told, "-o", "named.json")
        back = attemper.load("named.json")
        assert back.classes_.tolist() == NAMES
        assert back.temperature_ == pytest.approx(BayesianTemperatureScaling().fit(h, y).temperature_, rel=1e-9)
    good("apply", "named.json", "named.csv", "-o", "probs.csv")
    with (tmp_path / "probs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["prediction", *(f"prob_{name}" for name in NAMES)]
    assert [row["prediction"] for row in rows] == [NAMES[k] for k in h.argmax(axis=1)]


def test_probabilities_and_zeros(good, bad, val, tmp_path):
    h, y = val
    p = softmax(h)
    np.savez(tmp_path / "p.npz", probs=p, labels=y)
    found = strict_json(good("fit", "p.npz", "--probs", "--method", "ts", "--json", "-o", "p.json"))
    assert found["temperature"] == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=1e-6)
    good("apply", "p.json", "p.npz", "-o", "out.npz")  # the map knows that it takes probabilities
    expected = TemperatureScaling().fit(h, y).predict_proba(h)
    np.testing.assert_allclose(np.load("out.npz")["probs"], expected, atol=1e-6)
    p[7, y[7]] = 0
    np.savez(tmp_path / "zero.npz", probs=p / p.sum(axis=1, keepdims=True), labels=y)
    bad("fit", "zero.npz", "--probs")
    for floor in ("1e-3", "1e-8"):
        good("fit", "zero.npz", "--probs", "--zeros-as", floor, "-o", f"{floor}.json")
    assert attemper.load("1e-3.json").temperature_ < attemper.load("1e-8.json").temperature_
    good("apply", "1e-3.json", "zero.npz", "-o", "out.npz")
    assert (np.load("out.npz")["probs"] > 0).all()


def test_some_columns_and_rows_that_do_not_count(good, tmp_path):
    logits, labels = draw(300, 30)
    columns = [7, 21, 3]
    answers = logits[:, columns].argmax(axis=1)
    answers[::3] = labels[::3] % 3
    answers[::50] = -100
    np.savez(tmp_path / "val.npz", logits=logits, labels=answers)
    told = ("--columns", "7,21,3", "--ignore-index", "-100")
    counts = answers >= 0
    expected = TemperatureScaling().fit(logits[counts][:, columns], answers[counts])
    found = strict_json(good("fit", "val.npz", "--method", "ts", *told, "--json", "-o", "m.json"))
    assert found["temperature"] == pytest.approx(expected.temperature_, rel=1e-6)
    assert found["n_samples"] == counts.sum()
    good("apply", "m.json", "val.npz", "--columns", "7,21,3", "-o", "p.npz")
    np.testing.assert_allclose(np.load("p.npz")["probs"], expected.predict_proba(logits[:, columns]), rtol=1e-6)


# apply, evaluate


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "jsonl", "parquet"])
def test_apply_writes_every_format(good, val, fitted, ending, monkeypatch):
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 500)  # in pieces
    good("apply", "m.json", "val.npz", "-o", f"out.{ending}")
    read = {
        "npz": lambda: np.load("out.npz")["probs"],
        "npy": lambda: np.load("out.npy"),
        "csv": lambda: np.genfromtxt("out.csv", delimiter=",", skip_header=1)[:, 1:],
        "parquet": lambda: np.array(pq.read_table("out.parquet")["probs"].to_pylist()),
        "jsonl": lambda: np.array([json.loads(line)["probs"] for line in Path("out.jsonl").read_text().splitlines()]),
    }
    np.testing.assert_array_equal(read[ending](), fitted.predict_proba(val[0]))


@pytest.mark.parametrize("form", FORMATS)
def test_apply_reads_every_format_and_leaves_labels_alone(good, val, fitted, tmp_path, form):
    told = save(tmp_path, form, val[0], np.full(200, -1), stem="new")
    good("apply", "m.json", told["paths"], "-o", "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), fitted.predict_proba(val[0]))


def test_apply_copies_labels_and_ids(good, val, fitted, tmp_path):
    h, y = val
    np.savez(tmp_path / "new.npz", logits=h, target=y, name=[f"img {i}" for i in range(200)])
    good("apply", "m.json", "new.npz", "--labels-key", "target", "-o", "out.npz")
    np.testing.assert_array_equal(np.load("out.npz")["labels"], y)
    good("apply", "m.json", "new.npz", "--ids", "name", "-o", "out.csv")
    with Path("out.csv").open() as stream:
        assert [row["name"] for row in csv.DictReader(stream)] == [f"img {i}" for i in range(200)]


def test_evaluate_gives_the_metrics_of_python(good, val, fitted):
    told = ("--confidence-level", "0.9", "--seed", "3")
    found = strict_json(good("evaluate", "val.npz", "--map", "m.json", *told, "--json"))
    h, y = val
    assert (found["n_samples"], found["n_classes"], found["confidence_level"]) == (200, 4, 0.9)
    assert [(row["method"], row["map"]) for row in found["rows"]] == [("none", None), ("ts", "m.json")]
    for row, log_p in zip(found["rows"], (np.log(softmax(h)), fitted.predict_log_proba(h))):
        expected = metrics.evaluate(y, log_p, input="log_probs", confidence_level=0.9, seed=3)
        assert list(row["metrics"]) == list(expected)
        for measure, value in expected.items():
            assert row["metrics"][measure] == pytest.approx(value.to_dict(), abs=1e-12)
    assert good("evaluate", "val.npz", *told, "--json") == good("evaluate", "val.npz", *told, "--json")
    assert "accuracy" in good("evaluate", "val.npz", "--map", "m.json")


def test_bins_and_metrics(good, bad, val):
    def figures(*more):
        return strict_json(good("evaluate", "val.npz", *more, "--json"))["rows"][0]["metrics"]

    whole = figures()
    found = {n: figures("--n-bins", n) for n in ("6", "auto")}
    assert found["6"] == found["auto"]  # the cube root of 200
    assert found["auto"]["ece"] != whole["ece"]
    assert figures("--metrics", "smooth_ece, nll") == {name: whole[name] for name in ("smooth_ece", "nll")}
    bad("evaluate", "val.npz", "--n-bins", "0")
    bad("evaluate", "val.npz", "--metrics", "nll,luck")


def test_fit_apply_evaluate_go_round(good, val, unseen):
    good("fit", "val.npz", "-o", "m.json")
    good("apply", "m.json", "test.npz", "-o", "p.npz")
    mapped = strict_json(good("evaluate", "test.npz", "--map", "m.json", "--json"))["rows"][1]["metrics"]
    np.savez("again.npz", probs=np.load("p.npz")["probs"], labels=unseen[1])
    again = strict_json(good("evaluate", "again.npz", "--probs", "--json"))["rows"][0]["metrics"]
    for measure, value in mapped.items():
        assert again[measure] == pytest.approx(value, abs=1e-6), measure


# compare


def test_compare(good, val, unseen):
    found = strict_json(good("compare", "val.npz", "test.npz", "--methods", "ts, bayes", "--noisy", "--json"))
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "bayes"]
    expected = [TemperatureScaling(), BayesianTemperatureScaling(labels="noisy")]
    assert [row["temperature"] for row in found["rows"]] == [None, *(c.fit(*val).temperature_ for c in expected)]
    assert (found["recommended"], found["selected_by"], found["n_folds"]) == ("bayes", "first choice", 0)
    clean = strict_json(good("compare", "val.npz", "test.npz", "--methods", "ts", "--cv", "3", "--json"))
    assert clean["n_folds"] == 3
    assert set(clean["rows"][0]["cv"]) == {"nll", "above", "standard_error"}
    assert all(name in good("compare", "val.npz", "test.npz") for name in METHODS)


def test_clusters(good, val):
    h, y = val
    case = np.arange(len(y)) // 3
    np.savez("v.npz", logits=h, labels=y, patient=case)
    Path("ids.txt").write_text("".join(f"patient {c:03}\n" for c in case))
    names = Path("ids.txt").read_text().splitlines()
    for given, ids in (("patient", case), ("ids.txt", names)):  # resamples follow the order of ids
        found = strict_json(good("fit", "v.npz", "--method", "ts", "--clusters", given, "--json"))
        size = effective_sample_size(Scores.from_logits(h, y, clusters=case))
        assert found["clusters"]["n_clusters"] == case.max() + 1
        assert found["clusters"]["effective"] == pytest.approx(size.effective)
        expected = TemperatureScaling().fit(h, y, clusters=case)
        assert found["temperature_interval"] == pytest.approx(expected.temperature_interval_)
        figures = strict_json(good("evaluate", "v.npz", "--clusters", given, "--json"))
        expected = nll(y, h, input="logits", clusters=ids, confidence_level=0.95)
        assert figures["rows"][0]["metrics"]["nll"]["high"] == pytest.approx(expected.high)


def test_compare_by_cluster(good, bad, val, unseen):
    for name, (h, y) in (("v", val), ("t", unseen)):
        np.savez(f"{name}.npz", logits=h, labels=y, patient=np.arange(len(y)) // 3)
    line = ("compare", "v.npz", "t.npz", "--methods", "ts,vector", "--json")
    found = strict_json(good(*line, "--clusters", "patient"))
    data = [Scores.from_logits(h, y, clusters=np.arange(len(y)) // 3) for h, y in (val, unseen)]
    for row, other in zip(found["rows"], compare(*data, ["ts", "vector"]).rows):
        assert row["cv"] == pytest.approx(other.cv._asdict())
        assert row["above_best"]["high"] == pytest.approx(other.above_best.high)
    Path("ids.txt").write_text("".join(f"{c}\n" for c in range(200)))
    bad(*line, "--clusters", "ids.txt")  # of VAL or of TEST?
    bad(*line, "--clusters", "nothing")


def test_labels_of_val_and_test_in_their_order(good, bad, val, unseen):
    found = strict_json(good("compare", "val.npz", "test.npz", "--methods", "ts", "--json"))
    for name, (h, y) in (("val", val), ("test", unseen)):
        np.save(f"{name}.npy", h)
        np.save(f"{name}_y.npy", y)
    labels = ("--labels", "val_y.npy", "--labels", "test_y.npy", "--methods", "ts", "--json")
    again = strict_json(good("compare", "val.npy", "test.npy", *labels))
    mixed = strict_json(good("compare", "val.npz", "test.npy", *labels[2:]))
    assert again["rows"][1]["metrics"] == mixed["rows"][1]["metrics"] == found["rows"][1]["metrics"]
    bad("compare", "val.npz", "val.npz")
    np.savez("turned.npz", logits=val[0][::-1], labels=val[1][::-1])
    bad("compare", "val.npz", "turned.npz")


def test_a_method_that_fails_is_a_row(good, val, unseen, monkeypatch):
    def fail(*_):
        raise InputError("no luck [/red] today")

    monkeypatch.setattr(METHODS["ats"], "fit", fail)
    row = strict_json(good("compare", "val.npz", "test.npz", "--json"))["rows"][2]
    assert (row["method"], row["failure"], row["metrics"]) == ("ats", "no luck [/red] today", None)
    assert "no luck [/red] today" in good("compare", "val.npz", "test.npz")


# What goes wrong


@pytest.mark.parametrize(
    "line",
    [
        "fit none.npz",
        "fit none*.npz",
        "fit val.npz --logits-key z",
        "fit nan.npz",
        "evaluate nan.npz",
        "apply m.json nan.npz -o p.npz",
        "compare nan.npz val.npz",
        "sketch nan.npz -o s.json",
        "fit range.npz",
        "fit empty.npz",
        "fit cut.npz",
        "fit pickled.npz",
        "fit val.npz wide.npz",
        "fit val.npz --probs",
        "fit val.npz --classes nothing",
        "fit val.npz --classes a,a,b,c",
        "fit other.json",
        "apply val.npz val.npz -o p.npz",
        "apply future.json val.npz -o p.npz",
        "apply m.json wide.npz -o p.npz",
        "compare val.npz wide.npz",
        "compare val.npz nan.npz --methods ts,magic",
        "apply m.json val.npz -o p.pkl",
        "apply m.json val.npz -o none/p.npz",
        "fit val.npz -o none/m.json",
        "apply m.json val.npz -o val.npz",
        "drift m.json val.npz --state val.npz",
        "sketch val.npz -o ./val.npz",
        "sketch val.npz -o s.json --t-range 5 1",
        "evaluate val.npz --confidence-level 95",
        "evaluate val.npz --seed -1",
    ],
)
def test_bad_input_is_one_message_and_no_file_is_lost(bad, val, fitted, tmp_path, line):
    h, y = val
    np.savez("nan.npz", logits=np.where(np.arange(4) == 2, np.nan, h), labels=y)
    np.savez("range.npz", logits=h, labels=np.where(np.arange(200) == 5, 4, y))
    np.savez("pickled.npz", logits=h, labels=np.array([None] * 200, dtype=object))
    np.savez("empty.npz", logits=h[:0], labels=y[:0])
    np.savez("wide.npz", logits=np.c_[h, h], labels=y)
    whole = Path("val.npz").read_bytes()
    Path("cut.npz").write_bytes(whole[: len(whole) // 2])
    Path("other.json").write_text('{"hello": 1}')
    Path("future.json").write_text(json.dumps(json.loads(Path("m.json").read_text()) | {"schema": 2}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    bad(*line.split())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    ["fit val.npz --method magic", "fit", "apply m.json val.npz", "fit --thetas 1", "improve", "fit x -o ."],
)
def test_wrong_use(cli, line):
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("Usage: attemper")


def test_errors_name_the_option(bad, val, unseen):
    assert [flag_of(param) for param in ("groups_key", "input", "labels_key", "max_miss", "theta", None)] == [
        "--groups",
        "--probs",
        "--labels-key",
        "--max-miss",
        None,
        None,
    ]
    assert bad("compare", "val.npz", "test.npz", "--groups", "sites.txt").endswith("(option --groups)\n")


def test_a_crash_is_one_line_and_no_finding(cli, val, monkeypatch):
    monkeypatch.setattr("attemper.cli.check.Survey.of", lambda *_: 1 / 0)
    code, out, err = cli("check", "val.npz")
    assert (code, out, len(err.splitlines())) == (70, "", 1)
    assert "ZeroDivisionError" in err
    code, _, err = cli("check", "val.npz", "--debug")
    assert code == 70
    assert err.startswith("Traceback")
    code, _, err = cli("fit", "none.npz", "--debug")
    assert (code, err.splitlines()[0]) == (2, "Traceback (most recent call last):")


@pytest.mark.parametrize("error, code", [(KeyboardInterrupt, 130), (MemoryError, 2), (OSError(28, "full"), 2)])
def test_an_end_half_way_leaves_the_old_map(cli, fitted, tmp_path, monkeypatch, error, code):
    def fail(*_, **__):
        raise error

    before = (tmp_path / "m.json").read_bytes()
    monkeypatch.setattr("attemper.cli.fit.fit_and_return_data", fail)
    assert cli("fit", "val.npz", "-o", "m.json")[:2] == (code, "")
    assert (tmp_path / "m.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "val.npz"]


def test_warnings_notes_and_quiet(cli, tmp_path):
    h, _ = draw(50, 3)
    np.savez(tmp_path / "perfect.npz", logits=h, labels=h.argmax(axis=1))
    save(tmp_path, "csv", *draw(100, 3), stem="table")
    code, _, err = cli("fit", "perfect.npz", "--method", "ts")
    assert (code, len(err.splitlines())) == (0, 1)
    assert err.startswith("warning: ")
    found = strict_json(cli("fit", "perfect.npz", "--method", "ts", "--json").out)
    assert (found["converged"], found["temperature"]) == (False, 0.05)
    done = cli("fit", "table.csv")
    assert len(done.err.splitlines()) == 1
    assert "attemper.json" in done.out
    assert cli("fit", "table.csv", "-q") == (0, "", "")
    assert "columns" in strict_json(cli("fit", "table.csv", "-q", "--json").out)
