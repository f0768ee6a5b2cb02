"""The command line as its users meet it: files in, files out, exit codes, what stands on stdout and on stderr."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
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
from attemper.cli import comparison as comparison_table
from attemper.cli import output
from attemper.comparison import compare
from attemper.errors import InputError
from attemper.metrics import effective_sample_size, nll

from commands import strict_json
from data import FORMATS, draw, save

COMMANDS = [
    "apply",
    "check",
    "compare",
    "demo",
    "drift",
    "evaluate",
    "export",
    "fit",
    "inspect",
    "merge",
    "refer",
    "report",
    "schema",
    "sketch",
]
NAMES = ["akiec", "bcc", "bkl", "mel"]


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(good, command):
    for flag in ("--help", "-h"):
        text = good(command, flag)
        examples = [line for line in text.splitlines() if line.startswith(f"  attemper {command}")]
        assert examples
        assert all(line.count("attemper ") == 1 for line in examples)  # each on a line of its own
        assert "--json" in text
        assert "--debug" in text


def test_all_commands_are_listed(good, cli):
    assert all(f"  {command} " in good("--help") for command in COMMANDS)
    assert attemper.__version__ in good("--version")
    nothing = cli()
    assert nothing.code in (0, 2)  # 0 before click 8.2, which also prints it to the other stream
    assert all(command in nothing.out + nothing.err for command in COMMANDS)


# fit


@pytest.mark.parametrize("form", FORMATS)
def test_fit_reads_every_format(good, tmp_path, form):
    h, y = draw(150, 4)
    told = save(tmp_path, form, h, y)
    labels = ["--labels", told["labels"]] if "labels" in told else []
    found = strict_json(good("fit", told["paths"], *labels, "--json"))
    assert found["temperature"] == pytest.approx(BayesianTemperatureScaling().fit(h, y).temperature_, rel=1e-9)


@pytest.mark.parametrize(
    "method, noisy, calibrator, fields",
    [
        ("ts", [], TemperatureScaling(), set()),
        ("ats", [], AttendedTemperatureScaling(), {"theta", "loss"}),
        ("bayes", [], BayesianTemperatureScaling(), {"temperature_interval", "uniform_mass", "labels"}),
        (
            "bayes",
            ["--noisy"],
            BayesianTemperatureScaling(labels="noisy"),
            {"noise_rate", "noise_interval", "similar", "labels"},
        ),
    ],
)
def test_fit_is_the_fit_of_python(good, val, method, noisy, calibrator, fields):
    found = strict_json(good("fit", "val.npz", "--method", method, *noisy, "-o", "m.json", "--json"))
    calibrator.fit(*val)
    assert found["temperature"] == calibrator.temperature_  # to the last bit
    assert found["nll"] == calibrator.fit_report_.nll
    assert found["nll_none"] == pytest.approx(metrics.nll(val[1], softmax(val[0])), rel=1e-9)
    assert (found["method"], found["n_samples"], found["n_classes"], found["output"]) == (method, 200, 4, "m.json")
    assert found["converged"] is True
    assert fields <= set(found)
    back = attemper.load("m.json")
    assert type(back) is type(calibrator)
    assert back.temperature_ == found["temperature"]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("ts", "ats", "bayes")])
def test_every_method_can_be_fitted_from_files(good, val, method):
    found = strict_json(good("fit", "val.npz", "--method", method, "-o", "m.json", "--json"))
    expected = METHODS[method]().fit(*val)
    assert found["nll"] == pytest.approx(expected.fit_report_.nll, rel=1e-6)
    assert found["nll_none"] == pytest.approx(metrics.nll(val[1], softmax(val[0])), rel=1e-9)
    assert (found["method"], found["n_samples"], found["n_classes"]) == (method, 200, 4)
    np.testing.assert_allclose(attemper.load("m.json").predict_proba(val[0]), expected.predict_proba(val[0]), atol=1e-9)
    assert "wrote m2.json" in good("fit", "val.npz", "--method", method, "-o", "m2.json")
    good("apply", "m.json", "val.npz", "-o", "p.csv")


def test_parameters_of_a_method(good, bad, val):
    good("fit", "val.npz", "--method", "vector", "-p", "l2=0.5", "-p", "centring=none")
    back = attemper.load("attemper.json")
    assert (back.l2, back.centring) == (0.5, "none")
    np.testing.assert_allclose(
        back.predict_proba(val[0]), VectorScaling(l2=0.5, centring="none").fit(*val).predict_proba(val[0])
    )
    assert "vector knows bias_penalty, centring" in bad("fit", "val.npz", "--method", "vector", "-p", "magic=1")
    assert "expected NAME=VALUE" in bad("fit", "val.npz", "--method", "vector", "-p", "l2")
    assert "expected a number" in bad("fit", "val.npz", "--method", "vector", "-p", "l2=much")
    assert "no range of temperatures" in bad("fit", "val.npz", "--method", "vector", "--t-range", "0.1", "2")


def test_kinds_of_noise(good, bad, val):
    found = strict_json(good("fit", "val.npz", "--noisy", "--noise", "classwise", "--json"))
    assert 0 <= found["classwise"] <= 1
    assert attemper.load("attemper.json").noise == "classwise"
    assert "noise in the labels" in good("fit", "val.npz", "--method", "structured", "--noisy")
    assert "add --noisy" in bad("fit", "val.npz", "--noise", "classwise")
    assert "add --noisy" in bad("compare", "val.npz", "test.npz", "--noise", "classwise")
    assert "an option for that: --noisy" in bad("fit", "val.npz", "-p", "labels=noisy")
    assert "an option for that: --t-range" in bad("fit", "val.npz", "-p", "t_range=[1,3]")
    assert "half_life is for partial_fit" in bad("fit", "val.npz", "-p", "half_life=100")
    assert "an option for that: --theta" in bad("fit", "val.npz", "--method", "ats", "-p", "theta=0.1")
    assert "belongs to the methods bayes, structured" in bad("fit", "val.npz", "--method", "vector", "--noisy")
    good("sketch", "val.npz", "-o", "a.sketch.json")
    assert "needs the logits" in bad("fit", "a.sketch.json", "--noisy", "--noise", "classwise")
    assert "needs the logits" in bad("fit", "a.sketch.json", "--method", "isotonic")


def test_methods_are_listed(good):
    text = good("methods")
    assert all(name in text and cls.__name__ in text for name, cls in METHODS.items())
    found = strict_json(good("methods", "--json"))
    assert set(found) == set(METHODS)
    assert "l2" in found["matrix"]["parameters"]


def softmax(h):
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_fit_says_in_words_what_it_found(good, val, tmp_path):
    text = good("fit", "val.npz")
    assert "200 samples, 4 classes, method bayes" in text
    assert "95% credible interval" in text
    assert "validation NLL" in text
    assert text.splitlines()[-1] == "wrote attemper.json"  # the default
    assert (tmp_path / "attemper.json").is_file()
    assert "noise in the labels" in good("fit", "val.npz", "--noisy")
    assert "θ = 0.02" in good("fit", "val.npz", "--method", "ats", "--theta", "0.02")


def test_theta_and_loss_are_those_of_ats(good, bad, val):
    told = ("--theta", "0.02", "--loss", "reference")
    found = strict_json(good("fit", "val.npz", "--method", "ats", *told, "--json"))
    expected = AttendedTemperatureScaling(theta=0.02, loss="reference").fit(*val)
    assert (found["theta"], found["loss"]) == (0.02, "reference")
    assert found["temperature"] == pytest.approx(expected.temperature_, rel=1e-6)
    for option in (told[:2], told[2:]):
        for method in ("ts", "bayes"):
            assert "belong to --method ats" in bad("fit", "val.npz", "--method", method, *option)
    assert "between 0 and 1" in bad("fit", "val.npz", "--method", "ats", "--theta", "2")


@pytest.mark.parametrize("method", ["ts", "ats", "bayes"])
def test_parts_in_files_patterns_or_sketches_are_fitted_as_the_whole(good, val, tmp_path, method):
    h, y = val
    for i, part in enumerate(np.array_split(np.arange(200), 3)):
        np.savez(tmp_path / f"part{i}.npz", logits=h[part], labels=y[part])
        good("sketch", f"part{i}.npz", "-o", f"part{i}.sketch.json", "--allow-small")
    good("merge", "part*.sketch.json", "-o", "all.sketch.json")

    def t(*inputs):
        return strict_json(good("fit", *inputs, "--method", method, "--json", "-o", "m.json"))["temperature"]

    whole = pytest.approx(t("val.npz"), rel=1e-9)
    assert t("part0.npz", "part1.npz", "part2.npz") == whole
    assert t("part?.npz") == whole
    assert t("part*.sketch.json") == whole
    assert t("all.sketch.json") == whole


def test_sketch_and_merge_say_what_they_made(good, val, tmp_path):
    found = strict_json(good("sketch", "val.npz", "-o", "a.sketch.json", "--t-range", "0.2", "5", "--json"))
    assert found == {
        "n_samples": 200,
        "n_classes": 4,
        "n_shards": 1,
        "bytes": (tmp_path / "a.sketch.json").stat().st_size,
        "output": "a.sketch.json",
    }
    assert Sketch.load("a.sketch.json").t_range == (0.2, 5)
    merged = strict_json(good("merge", "a.sketch.json", "-o", "b.sketch.json", "--json"))
    assert (merged["n_samples"], merged["output"]) == (200, "b.sketch.json")
    assert "200 samples, 4 classes: wrote c.json" in good("sketch", "val.npz", "-o", "c.json")
    assert "400 samples" in good("merge", "b.sketch.json", "a.sketch.json", "-o", "d.sketch.json")


def test_what_the_options_of_a_sketch_cannot_do(good, bad, val):
    good("sketch", "val.npz", "-o", "a.sketch.json")
    assert "--labels-key is for files of logits" in bad("fit", "a.sketch.json", "--labels-key", "y")
    assert "a.sketch.json: a sketch cannot be mixed" in bad("fit", "val.npz", "a.sketch.json")
    assert "not in the grid of this sketch" in bad("fit", "a.sketch.json", "--method", "ats", "--theta", "0.0123")
    good("fit", "a.sketch.json", "--classes", ",".join(NAMES))
    assert attemper.load("attemper.json").classes_.tolist() == NAMES
    assert "3 names for 4 columns" in bad("fit", "a.sketch.json", "--classes", "a,b,c")


# How input is read


def test_keys_can_be_told(good, val, tmp_path):
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
    for told in (", ".join(NAMES), "names.txt"):
        good("fit", "named.csv", "--classes", told, "-o", "named.json")
        back = attemper.load("named.json")
        assert back.classes_.tolist() == NAMES
        assert back.temperature_ == pytest.approx(BayesianTemperatureScaling().fit(h, y).temperature_, rel=1e-9)
    good("apply", "named.json", "named.csv", "-o", "probs.csv")
    with (tmp_path / "probs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["prediction", *(f"prob_{name}" for name in NAMES)]
    assert [row["prediction"] for row in rows] == [NAMES[k] for k in h.argmax(axis=1)]


def test_probabilities_are_told_and_zeros_given_a_floor(good, bad, val, tmp_path):
    h, y = val
    p = softmax(h)
    np.savez(tmp_path / "p.npz", probs=p, labels=y)
    found = strict_json(good("fit", "p.npz", "--probs", "--method", "ts", "--json", "-o", "p.json"))
    assert found["temperature"] == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=1e-6)
    # apply knows from the map that it was fitted to probabilities.
    good("apply", "p.json", "p.npz", "-o", "out.npz")
    expected = TemperatureScaling().fit(h, y).predict_proba(h)
    np.testing.assert_allclose(np.load("out.npz")["probs"], expected, atol=1e-6)

    p[7, y[7]] = 0
    np.savez(tmp_path / "zero.npz", probs=p / p.sum(axis=1, keepdims=True), labels=y)
    assert "row 7 gives its own label" in bad("fit", "zero.npz", "--probs")
    assert "--zeros-as 1e-8" in bad("evaluate", "zero.npz", "--probs")
    for floor in ("1e-3", "1e-8"):
        good("fit", "zero.npz", "--probs", "--zeros-as", floor, "-o", f"{floor}.json")
    assert attemper.load("1e-3.json").temperature_ < attemper.load("1e-8.json").temperature_
    good("apply", "1e-3.json", "zero.npz", "-o", "out.npz")  # the map remembers the floor
    assert (np.load("out.npz")["probs"] > 0).all()
    assert "only probabilities take zeros_as" in bad("fit", "val.npz", "--zeros-as", "1e-8")
    assert "must lie between 0 and 1" in bad("fit", "zero.npz", "--probs", "--zeros-as", "-1")


# apply, evaluate


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "jsonl", "parquet"])
def test_apply_writes_every_format(good, val, fitted, ending):
    assert good("apply", "m.json", "val.npz", "-o", f"out.{ending}") == f"wrote 200 rows to out.{ending}\n"
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
    found = strict_json(good("apply", "m.json", told["paths"], "-o", "out.npy", "--json"))
    assert (found["n_samples"], found["output"]) == (200, "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), fitted.predict_proba(val[0]))


def test_apply_takes_labels_along_where_told(good, bad, val, fitted, tmp_path):
    h, y = val
    header = ",".join(f"logit_{k}" for k in range(h.shape[1])) + ",target"
    np.savetxt(tmp_path / "new.csv", np.column_stack([h, y]), delimiter=",", header=header, comments="")
    assert "is 'target' a class" in bad("apply", "m.json", "new.csv", "-o", "out.csv")
    good("apply", "m.json", "new.csv", "--labels-key", "target", "-o", "out.npz")
    np.testing.assert_array_equal(np.load("out.npz")["labels"], y)
    np.testing.assert_allclose(np.load("out.npz")["probs"], fitted.predict_proba(h), atol=1e-6)


def test_apply_in_pieces_is_apply_at_once(good, val, fitted, monkeypatch):
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 500)
    good("apply", "m.json", "val.npz", "-o", "out.npz")
    np.testing.assert_array_equal(np.load("out.npz")["probs"], fitted.predict_proba(val[0]))


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
        assert row["metrics"]["mce"]["low"] is None
        assert "bin" in row["metrics"]["mce"]["note"]
        assert 0 < row["metrics"]["ece"]["p_value"] <= 1
    assert good("evaluate", "val.npz", *told, "--json") == good("evaluate", "val.npz", *told, "--json")


def test_evaluate_takes_a_number_of_bins(good, bad, val):
    def figures(*more):
        return strict_json(good("evaluate", "val.npz", *more, "--json"))["rows"][0]["metrics"]

    found = {n: figures("--n-bins", n) for n in ("6", "auto")}
    assert found["6"] == found["auto"]  # the cube root of 200
    assert found["auto"]["ece"] != figures()["ece"]
    assert {"smooth_ece", "miscalibration", "discrimination", "uncertainty"} <= set(found["auto"])
    for wrong in ("many", "0"):
        assert "--n-bins" in bad("evaluate", "val.npz", "--n-bins", wrong)


def test_evaluate_shows_the_metrics_that_are_named(good, bad, val):
    whole = strict_json(good("evaluate", "val.npz", "--json"))["rows"][0]["metrics"]
    found = strict_json(good("evaluate", "val.npz", "--metrics", "smooth_ece, nll", "--json"))["rows"][0]["metrics"]
    assert found == {name: whole[name] for name in ("smooth_ece", "nll")}
    assert "brier" not in good("evaluate", "val.npz", "--metrics", "nll")
    assert "there is no 'luck'; use some of accuracy, nll" in bad("evaluate", "val.npz", "--metrics", "nll,luck")


def test_evaluate_prints_a_table(good, fitted, tmp_path):
    (tmp_path / "m.json").rename(tmp_path / "[red].json")  # what rich would take for markup
    text = good("evaluate", "val.npz", "--map", "[red].json")
    for word in (
        "200 samples, 4 classes, 95% intervals",
        "uncalibrated",
        "[red].json",
        "accuracy",
        "nll",
        "mmce",
        "(",
        "p: share",
        "(–) ",
    ):
        assert word in text


def test_fit_apply_evaluate_go_round(good, val, unseen):
    good("fit", "val.npz", "-o", "m.json")
    good("apply", "m.json", "test.npz", "-o", "p.npz")
    mapped = strict_json(good("evaluate", "test.npz", "--map", "m.json", "--json"))["rows"][1]["metrics"]
    np.savez("again.npz", probs=np.load("p.npz")["probs"], labels=unseen[1])
    again = strict_json(good("evaluate", "again.npz", "--probs", "--json"))["rows"][0]["metrics"]
    for measure, value in mapped.items():
        assert again[measure] == pytest.approx(value, abs=1e-6), measure


# compare


def test_compare_prints_every_method_and_a_sentence(good, val, unseen):
    text = good("compare", "val.npz", "test.npz")
    for word in (
        "uncalibrated",
        "ts",
        "ats",
        "bayes",
        "CV NLL",
        "accuracy",
        "NLL",
        "ECE (p)",
        "area",
        "95%",
        "*: ",
    ):
        assert word in text
    assert text.splitlines()[-1].startswith("Use ")
    assert "TEST (n = " in text


def test_compare_for_machines(good, val, unseen):
    found = strict_json(good("compare", "val.npz", "test.npz", "--methods", "ts, bayes", "--noisy", "--json"))
    assert set(found) == {"rows", "recommended", "reason", "selected_by", "n_folds", "confidence_set"}
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "bayes"]
    for row in found["rows"]:
        fitted = {"method", "temperature", "seconds", "changed", "metrics", "notes", "failure"}
        assert set(row) == fitted | {"cv", "referral_area", "above_best"}
        assert set(row["above_best"]) == {"value", "low", "high"}
        assert row["cv"] is None
        assert set(row["metrics"]["nll"]) == {"value", "low", "high"}
        assert (row["failure"], row["notes"]) == (None, [])
    t = [row["temperature"] for row in found["rows"]]
    expected = [TemperatureScaling(), BayesianTemperatureScaling(labels="noisy")]
    assert t == [None, *(c.fit(*val).temperature_ for c in expected)]
    assert (found["recommended"], found["selected_by"], found["n_folds"]) == ("bayes", "first choice", 0)
    assert found["reason"].startswith("Use bayes")
    clean = strict_json(good("compare", "val.npz", "test.npz", "--methods", "ts", "--cv", "3", "--json"))
    assert clean["n_folds"] == 3
    assert set(clean["rows"][0]["cv"]) == {"nll", "above", "standard_error"}


def test_fit_and_evaluate_by_cluster(good, val):
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
        assert figures["clusters"] == found["clusters"]
        expected = nll(y, h, input="logits", clusters=ids, confidence_level=0.95)
        assert figures["rows"][0]["metrics"]["nll"]["high"] == pytest.approx(expected.high)
    text = good("evaluate", "v.npz", "--clusters", "patient")
    assert f"{len(y)} samples of {case.max() + 1} clusters, worth about {size.effective:.0f} independent ones" in text


def test_compare_by_cluster(good, bad, val, unseen):
    for name, (h, y) in (("v", val), ("t", unseen)):
        np.savez(f"{name}.npz", logits=h, labels=y, patient=np.arange(len(y)) // 3)
    line = ("compare", "v.npz", "t.npz", "--methods", "ts,vector", "--json")
    found = strict_json(good(*line, "--clusters", "patient"))
    expected = compare(
        *(Scores.from_logits(h, y) for h, y in (val, unseen)),
        ["ts", "vector"],
        val_clusters=np.arange(len(val[1])) // 3,
        test_clusters=np.arange(len(unseen[1])) // 3,
    )
    for row, other in zip(found["rows"], expected.rows):
        assert row["cv"] == pytest.approx(other.cv._asdict())
        assert row["above_best"]["high"] == pytest.approx(other.above_best.high)
    Path("lines.txt").write_text("\n".join(map(str, np.arange(len(val[1])) // 3)))
    again = strict_json(good(*line, "--clusters", "patient", "--val-clusters", "lines.txt"))
    for row, other in zip(again["rows"], found["rows"]):
        assert row["above_best"] == other["above_best"]
    assert found["clusters"]["n_clusters"] == -(-len(unseen[1]) // 3)
    assert "no array 'nothing'" in (message := bad(*line, "--clusters", "nothing"))
    assert "Use --clusters" in message


def test_compare_two_parts_of_one_file(good, val, tmp_path):
    h, y = val
    np.savez(tmp_path / "net.npz", logits=h[:50], labels=y[:50], val_logits=h[50:], val_labels=y[50:])
    keys = ("--val-logits-key", "val_logits", "--val-labels-key", "val_labels", "--methods", "ts", "--json")
    found = strict_json(good("compare", "net.npz", "net.npz", *keys))
    assert found["rows"][1]["temperature"] == TemperatureScaling().fit(h[50:], y[50:]).temperature_
    assert found["rows"][0]["metrics"]["nll"]["value"] == pytest.approx(metrics.nll(y[:50], softmax(h[:50])))
    for name, part in (("val", slice(50, None)), ("test", slice(50))):
        np.save(tmp_path / f"{name}.npy", h[part])
        np.save(tmp_path / f"{name}_y.npy", y[part])
    labels = ("--val-labels", "val_y.npy", "--labels", "test_y.npy", "--methods", "ts", "--json")
    again = strict_json(good("compare", "val.npy", "test.npy", *labels))
    assert again["rows"][1]["metrics"] == found["rows"][1]["metrics"]


def test_a_method_that_fails_is_a_row_that_says_why(good, val, unseen, monkeypatch):
    def fail(*_):
        raise InputError("no luck [/red] today")

    monkeypatch.setattr(METHODS["ats"], "fit", fail)
    assert "failed: no luck [/red] today" in " ".join(good("compare", "val.npz", "test.npz").replace("│", "").split())
    row = strict_json(good("compare", "val.npz", "test.npz", "--json"))["rows"][2]
    assert (row["method"], row["failure"], row["metrics"]) == ("ats", "no luck [/red] today", None)


# What goes wrong: exit code 2, one message on stderr, no traceback


@pytest.fixture
def damaged(tmp_path, val, fitted):
    """One file for each kind of damage."""
    h, y = val
    nan = h.copy()
    nan[17, 2] = np.nan
    np.savez(tmp_path / "nan.npz", logits=nan, labels=y)
    np.savez(tmp_path / "range.npz", logits=h, labels=np.where(np.arange(200) == 5, 4, y))
    np.savez(tmp_path / "pickled.npz", logits=h, labels=np.array([None] * 200, dtype=object))
    np.savez(tmp_path / "empty.npz", logits=h[:0], labels=y[:0])
    np.savez(tmp_path / "others.npz", logits=h[::-1] + 0.5 * h, labels=y[::-1])
    np.savez(tmp_path / "wide.npz", logits=np.c_[h, h], labels=y)
    whole = (tmp_path / "val.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "data.pkl").write_bytes(b"\x80")
    (tmp_path / "other.json").write_text('{"hello": 1}')
    content = json.loads((tmp_path / "m.json").read_text())
    (tmp_path / "future.json").write_text(json.dumps(content | {"schema": 2}))
    (tmp_path / "nan.json").write_text(json.dumps(content | {"map": {"type": "scale", "beta": float("nan")}}))
    Sketch.of(h, y).save(tmp_path / "a.sketch.json")
    Sketch.of(h, y, n_nodes=32).save(tmp_path / "b.sketch.json")
    np.save(tmp_path / "h.npy", h)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\xff")
    return tmp_path


@pytest.mark.parametrize(
    "line, why",
    [
        ("fit none.npz", "none.npz: there is no such file"),
        ("fit none*.npz", "none*.npz: no file matches this pattern"),
        ("fit data.pkl", "data.pkl: unsupported extension '.pkl'; use one of .csv, .jsonl, .ndjson, .npy, .npz"),
        ("fit val.npz --logits-key z", "val.npz: holds no array 'z'; it holds 'logits', 'labels'. Use --logits-key"),
        ("fit nan.npz", "nan.npz: logits: row 17, column 2 is NaN"),
        ("evaluate nan.npz", "nan.npz: logits: row 17, column 2 is NaN"),
        ("apply m.json nan.npz -o p.npz", "nan.npz: logits: row 17, column 2 is NaN"),
        ("compare nan.npz val.npz", "nan.npz: logits: row 17, column 2 is NaN"),
        ("sketch nan.npz -o s.json", "nan.npz: logits: row 17, column 2 is NaN"),
        ("fit range.npz", "range.npz: labels: row 5 has label 4, but there are 4 columns"),
        ("fit empty.npz", "empty.npz: no rows"),
        ("fit cut.npz", "cut.npz: cannot be read as"),
        ("fit pickled.npz", "pickled.npz"),
        ("fit h.npy", "h.npy: has no labels; add --labels labels.npy"),
        ("fit val.npz val.npz", "val.npz: given twice"),
        ("fit val.npz wide.npz", "wide.npz: expected 4 classes, as val.npz has, got 8"),
        ("fit val.npz --probs", "val.npz: holds no array 'probs'"),
        ("fit val.npz --probs --logits-key logits", "If these are logits, leave out --probs"),
        ("fit val.npz --classes nothing", "--classes nothing: expected a list such as cat,dog or a readable file"),
        ("fit val.npz --classes 10", "For the number of classes use --n-classes (`attemper plan`)"),
        ("fit val.npz --classes binary.txt", "--classes binary.txt: expected a list"),
        ("fit val.npz --classes a,a,b,c", "'a' twice"),
        ("fit other.json", "other.json: JSON, but not a document of attemper"),
        ("apply other.json val.npz -o p.npz", "other.json: JSON, but not a document of attemper"),
        ("apply val.npz val.npz -o p.npz", "val.npz: not a JSON document, but binary data"),
        ("apply a.sketch.json val.npz -o p.npz", "a.sketch.json: holds a sketch; expected a calibrator"),
        (
            "apply future.json val.npz -o p.npz",
            "future.json: schema version 2, but this attemper knows versions up to 1",
        ),
        ("apply nan.json val.npz -o p.npz", "nan.json: not valid JSON, perhaps truncated: NaN is not allowed"),
        ("apply none.json val.npz -o p.npz", "none.json: there is no such file"),
        ("apply m.json wide.npz -o p.npz", "wide.npz: expected 4 classes, as m.json has, got 8"),
        ("evaluate wide.npz --map m.json", "wide.npz: expected 4 classes, as m.json has, got 8"),
        ("compare val.npz wide.npz", "expected 4 classes, as VAL (val.npz) has, got 8"),
        ("compare val.npz others.npz --methods ts,magic", "method 'magic' is unknown; known are ts, ats, bayes"),
        ("apply m.json val.npz -o p.pkl", "p.pkl: unsupported extension '.pkl'"),
        ("apply m.json val.npz -o none/p.npz", "none/p.npz: the folder none does not exist"),
        ("fit val.npz -o none/m.json", "none/m.json: the folder none does not exist"),
        ("sketch val.npz -o none/s.json", "none/s.json: the folder none does not exist"),
        ("merge a.sketch.json -o none/s.json", "none/s.json: the folder none does not exist"),
        ("fit val.npz -o " + "a" * 300, "File name too long"),
        ("fit " + "a" * 300 + ".npz", "File name too long"),
        ("fit val.npz -o .", ".: a folder; pass the name of a file"),
        ("demo -o val.npz", "val.npz: cannot be made: File exists"),
        ("apply m.json val.npz -o val.npz", "val.npz: is one of the inputs, which would be overwritten"),
        ("merge a.sketch.json -o ./a.sketch.json", "a.sketch.json: is one of the inputs, which would be overwritten"),
        ("sketch val.npz -o ./val.npz", "val.npz: is one of the inputs, which would be overwritten"),
        (
            "merge a.sketch.json b.sketch.json -o s.json",
            "b.sketch.json: these sketches cannot be added: 64 and 32 nodes",
        ),
        ("fit a.sketch.json b.sketch.json", "b.sketch.json: these sketches cannot be added: 64 and 32 nodes"),
        ("merge val.npz -o s.json", "val.npz: not a JSON document, but binary data"),
        ("sketch val.npz -o s.json --t-range 5 1", "--t-range 5.0 1.0: expected 0 < low < high"),
        ("evaluate val.npz --confidence-level 95", "--confidence-level 95.0: expected a number between 0 and 1"),
        ("evaluate val.npz --seed -1", "--seed -1: expected a whole number"),
    ],
)
def test_bad_input_is_one_message(bad, damaged, line, why):
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    assert why in bad(*line.split())
    # Nothing written, nothing lost; what was finished of several files may be kept for --resume.
    assert {path.name: path.read_bytes() for path in damaged.iterdir() if path.suffix != ".shards"} == before


@pytest.mark.parametrize(
    "line, why",
    [
        ("fit val.npz --method magic", "'magic' is not one of 'ts', 'ats', 'bayes'"),
        ("fit val.npz --loss mine", "'mine' is not one of 'paper', 'reference'"),
        ("fit", "Missing argument 'INPUT…'"),
        ("apply m.json val.npz", "Missing option '-o'"),
        ("fit val.npz --theta x", "'x' is not a valid float"),
        ("fit val.npz --thetas 1", "No such option"),
        ("improve val.npz", "No such command 'improve'"),
    ],
)
def test_wrong_use_shows_the_usage(cli, line, why):
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("Usage: attemper")
    assert why in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_folder_that_may_not_be_written_to(bad, val, fitted, monkeypatch):
    def refuse(*_, **__):  # in place of chmod: root may write everywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert "m.json: cannot be written there: Permission denied" in bad("fit", "val.npz", "-o", "m.json")
    assert "p.csv: cannot be written there: Permission denied" in bad("apply", "m.json", "val.npz", "-o", "p.csv")


def test_debug_shows_the_traceback(cli):
    code, out, err = cli("fit", "none.npz", "--debug")
    assert (code, out) == (2, "")
    assert err.startswith("Traceback")
    assert err.splitlines()[-1] == "attemper: none.npz: there is no such file"


# Warnings


def test_a_warning_is_one_line_on_stderr(cli, tmp_path):
    h, _ = draw(50, 3)
    np.savez(tmp_path / "perfect.npz", logits=h, labels=h.argmax(axis=1))
    np.savez(tmp_path / "other.npz", logits=h + 1, labels=h.argmax(axis=1))
    for args in (
        ["fit", "perfect.npz", "--method", "ts"],
        ["compare", "perfect.npz", "other.npz", "--methods", "ts"],
    ):
        code, out, err = cli(*args)
        assert code == 0
        assert len(err.splitlines()) == 1
        assert err.startswith("warning: TemperatureScaling: every label is the arg max of its logits")
        assert "warning" not in out
    found = strict_json(cli("fit", "perfect.npz", "--method", "ts", "--json").out)
    assert (found["converged"], found["temperature"]) == (False, 0.05)
    row = strict_json(cli("compare", "perfect.npz", "other.npz", "--methods", "ts", "--json").out)["rows"][1]
    assert "every label is the arg max" in row["notes"][0]


# Interrupts, pipes: real processes


def start(folder, *args, program="from attemper.cli import main; main()"):
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_an_interrupt_half_way_leaves_the_old_file(fitted, tmp_path):
    line = "0.1234,0.2345,0.3456,0.4567\n"
    (tmp_path / "big.csv").write_text("a,b,c,d\n" + line * 1_000_000)
    (tmp_path / "out.csv").write_text("the old file")
    program = """if True:
        import signal
        import attemper.io.reading
        from attemper.cli import main
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
        attemper.io.reading.BLOCK_BYTES = 1 << 16
        main()
    """
    process = start(tmp_path, "apply", "m.json", "big.csv", "-o", "out.csv", program=program)
    end = time.monotonic() + 600
    while not any(path.stat().st_size for path in tmp_path.glob(".out.csv.*.part")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "attemper: interrupted; no file was left half-written"
    assert (tmp_path / "out.csv").read_text() == "the old file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.csv", "m.json", "out.csv", "val.npz"]


def test_an_interrupt_while_fitting_leaves_the_old_map(cli, fitted, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    before = (tmp_path / "m.json").read_bytes()
    monkeypatch.setattr(Sketch, "of", interrupt)
    assert cli("fit", "val.npz", "-o", "m.json").code == 130
    assert (tmp_path / "m.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "val.npz"]


@pytest.mark.slow
def test_pipes_get_no_progress_bars_and_no_colours(val, unseen, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "attemper", "compare", "val.npz", "test.npz"],
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(re.fullmatch(r"method \w+: \d+ of \d+ methods, .*", line) for line in done.stderr.splitlines())
    assert "\nUse " in done.stdout
    assert not {"\x1b", "\r"} & set(done.stdout + done.stderr)


def test_a_stream_that_lacks_the_signs_is_no_reason_to_fail(cli, val, monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    assert cli("fit", "val.npz", "--method", "ats")[::2] == (0, "")
    ascii_only.flush()
    assert b"? = 0.0" in ascii_only.buffer.getvalue()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(val, tmp_path):
    process = start(tmp_path, "evaluate", "val.npz")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait(timeout=600) != 2
    process.stderr.close()


class Stream(io.StringIO):
    """Standard output that the system refuses to write to."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("args", [("evaluate", "val.npz"), ("evaluate", "val.npz", "--json"), ("--help",)])
@pytest.mark.parametrize("number, code", [(errno.ENOSPC, 2), (errno.EIO, 2), (errno.EPIPE, 141)])
def test_an_output_that_cannot_be_written_is_no_traceback(cli, val, monkeypatch, args, number, code):
    monkeypatch.setattr(sys, "stdout", Stream(number))
    found = cli(*args)
    if args == ("--help",) and number == errno.EPIPE:  # click's own way
        assert found.code == 1
        return
    assert found.code == code
    assert found.err == (
        "" if code == 141 else f"attemper: standard output: cannot be written: {os.strerror(number)}\n"
    )
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    cli("fit", "val.npz", "--method", "ts")
    assert sys.stdout.getvalue().startswith("200 samples, 4 classes, method ts")  # nothing is left over


def test_an_output_that_is_closed_is_no_reason_to_fail(cli, val, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert cli("fit", "val.npz")[::2] == (0, "")
    assert cli("fit", "val.npz", "--json")[::2] == (0, "")
    assert (tmp_path / "attemper.json").exists()
    monkeypatch.setattr(sys, "stderr", None)
    assert cli("fit", "none.npz").code == 2
    sys.stdout.close()
    sys.stderr.close()


def test_too_little_memory_is_one_message(bad, val, monkeypatch):
    def allocate(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Sketch, "of", allocate)
    assert "not enough memory" in bad("fit", "val.npz")


def test_a_console_script_is_interrupted_while_it_loads(tmp_path):
    program = """if True:
        import os, signal, sys
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "attemper":
                    os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
        sys.meta_path.insert(0, Interrupt())
        from _attemper import main
        main()
    """
    process = start(tmp_path, "fit", "val.npz", program=program)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == ["attemper: interrupted; no file was left half-written"]


def test_a_job_that_is_ended_leaves_no_part_of_a_file(fitted, tmp_path):
    program = """if True:
        import os, signal
        import attemper.io.reading
        from attemper.cli import main
        from attemper.maps import ScaleMap
        apply, calls = ScaleMap.apply, []
        def ended(self, logits, **more):
            calls.append(1)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return apply(self, logits, **more)
        ScaleMap.apply = ended
        attemper.io.reading.BLOCK_BYTES = 1 << 10
        main()
    """
    (tmp_path / "out.csv").write_text("the old file")
    process = start(tmp_path, "apply", "m.json", "val.npz", "-o", "out.csv", program=program)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (143, "", "")
    assert (tmp_path / "out.csv").read_text() == "the old file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "out.csv", "val.npz"]


def test_handlers_of_signals_are_put_back(cli):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert cli("fit", "none.npz").code == 2
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_no_name_commands_the_terminal(cli, good, val, fitted, tmp_path):
    odd = "a\x1b]0;x\x07\nattemper: all is well\r\x9b2J\u202e"
    shown = r"a\x1b]0;x\x07\nattemper: all is well\r\x9b2J\u202e"
    for args in (["fit", f"{odd}.npz"], ["fit", "val.npz", "--classes", odd], [odd], ["fit", "val.npz", f"--{odd}"]):
        code, out, err = cli(*args)
        assert (code, out) == (2, "")
        assert shown in err
        assert err.replace("\n", "").isprintable()
        assert "\nattemper: all is well" not in err
    (tmp_path / "m.json").rename(tmp_path / f"{odd}.json")
    table = good("evaluate", "val.npz", "--map", f"{odd}.json")
    assert table.replace("\n", "").isprintable()
    assert shown in good("fit", "val.npz", "--method", "ts", "-o", f"{odd}.json")


def test_addresses_of_files_on_this_machine(good, val, fitted, tmp_path):
    here = f"file://{tmp_path}"
    assert "KiB" in good("sketch", f"{here}/val.npz", "--workers", "1", "-o", f"{here}/s.json")
    assert Sketch.load(tmp_path / "s.json").n_samples == 200
    good("fit", f"{here}/s.json", "-o", f"{here}/m.json", "--method", "ts")
    (tmp_path / "names.txt").write_text("0\n1\n2\n3\n")
    good("fit", f"{here}/val.npz", "--method", "ts", "-o", f"{here}/m.json", "--classes", f"{here}/names.txt")
    good("export", f"{here}/m.json", "-o", f"{here}/map.onnx")
    assert (tmp_path / "map.onnx").exists()
    assert not (tmp_path / "file:").exists()


@pytest.mark.parametrize(
    "line",
    [
        "apply pipe.json val.npz -o p.csv",
        "merge pipe.json -o a.json",
        "fit pipe.json",
        "fit val.npz --classes pipe.json",
        "drift m.json val.npz --state pipe.json",
    ],
)
def test_pipes_are_not_waited_for(bad, fitted, tmp_path, line):
    os.mkfifo(tmp_path / "pipe.json")
    assert "pipe.json: not a regular file, but a pipe" in bad(*line.split())


def test_an_npz_of_something_else_is_told(bad, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "a.npz: holds no array 'logits'" in bad("fit", "a.npz")


@pytest.fixture
def tokens(tmp_path):
    """Logits of 40 sequences of 12 positions over 9 tokens, the first of each left out by a mask."""
    logits, ids = draw(480, 9, seed=5)
    logits, ids = logits.reshape(40, 12, 9).astype(np.float32), ids.reshape(40, 12)
    mask = np.ones((40, 12), dtype=np.int64)
    mask[::2, :3], mask[1::2, 9:] = 0, 0
    labels, ids = np.where(mask == 1, ids, -100), np.roll(ids, 1, axis=1)
    np.savez(tmp_path / "tokens.npz", logits=logits, labels=labels, input_ids=ids, attention_mask=mask)
    return logits, labels, ids, mask


def test_a_sketch_for_some_methods_keeps_their_tables_alone(good, bad, val):
    for methods, kept in (("ts", set()), ("ts,bayes", {"uniform", "similar"}), ("ats", {"attended"})):
        good("sketch", "val.npz", "-o", "a.sketch.json", "--methods", methods)
        made = Sketch.load("a.sketch.json")
        assert set(made.tables) == kept
    assert "needs the 'uniform' part" in bad("fit", "a.sketch.json", "--method", "bayes")
    for wrong in ("vector", "nonsense", ""):
        assert "use some of ts, ats, bayes" in bad("sketch", "val.npz", "-o", "b.json", "--methods", wrong)


def test_a_sketch_of_sketches_keeps_what_is_asked_for(good, bad, val):
    good("sketch", "val.npz", "-o", "a.json")
    good("sketch", "a.json", "-o", "b.json", "--methods", "ts")
    assert Sketch.load("b.json").tables == {}
    assert "covers (0.05, 20.0)" in bad("sketch", "a.json", "-o", "c.json", "--t-range", 0.1, 10)
    good("sketch", "a.json", "-o", "d.json", "--t-range", 0.05, 20)


def test_the_state_of_a_drift_test_is_no_input(bad, fitted):
    assert "use --state another name" in bad("drift", "m.json", "val.npz", "--state", "val.npz")


@pytest.fixture(scope="module")
def comparison():
    data = attemper.datasets.load()
    val, test = (
        Scores.from_logits(*pair) for pair in ((data.val_logits, data.val_labels), (data.test_logits, data.test_labels))
    )
    return compare(val, test, ["ts", "structured", "histogram"])


@pytest.mark.parametrize("width", [80, 100, 178, 200])
def test_a_comparison_fits_the_terminal(comparison, capsys, monkeypatch, width):
    monkeypatch.setattr(comparison_table, "out", output.PlainConsole(width=width, highlight=False))
    comparison_table.print_comparison(comparison, 0.95)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    for name in ("uncalibrated", "ts", "structured", "histogram", "accuracy", "NLL", "ECE", "changed", "1.974"):
        assert name in printed
    assert ("Brier" in printed) == (width >= 178)


def test_spaces_and_letters_of_any_script_are_printed_as_they_are():
    for text in ("2\u202f000", "a\u00a0b", "क्\u200dष", "emoji 👩🏽\u200d⚕️", "全角\u3000"):
        assert output.visible(text) == text
    for text in ("\x1b[2J", "a\nb", "a\u2028b", "a\u202eb", "\ud800", "\x7f", "\x9b"):
        assert output.visible(text).isascii()
        assert len(output.visible(text)) > len(text)
