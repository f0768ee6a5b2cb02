"""One way to fit, whatever the source; the command line does what Python does, to the last bit."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from attemper import (
    BayesianTemperatureScaling,
    InputError,
    PlattScaling,
    Scores,
    Sketch,
    TemperatureScaling,
    VectorScaling,
    fit_source,
)
from attemper.calibrators import METHODS
from attemper.cli import cli
from attemper.io import InputSpec, open_scores
from attemper.sharded import fit_sharded


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 4))
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.fixture
def val(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("val.npz", logits=data[0], labels=data[1])
    return "val.npz"


def run(line):
    cli.main(line.split(), standalone_mode=False)


OPENED: list[str] = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" else None)


@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1, 1000])
def test_the_command_line_does_what_python_does(val, data, method, scale):
    logits, labels = data[0] * scale, data[1]
    np.savez(val, logits=logits, labels=labels)
    run(f"fit {val} --method {method} -o cli.json")
    METHODS[method].for_labels(noisy=False).fit(logits, labels).save("arrays.json")
    fit_source(METHODS[method].for_labels(noisy=False), val).save("files.json")
    cli_map, arrays, files = (json.loads(Path(f"{n}.json").read_text()) for n in ("cli", "arrays", "files"))
    assert cli_map["map"] == arrays["map"] == files["map"]


def test_every_kind_of_source(val, data, tmp_path):
    logits, labels = data
    exact = TemperatureScaling().fit(logits, labels).temperature_
    parts = [(logits[:150], labels[:150]), (logits[150:], labels[150:])]
    for i, (h, y) in enumerate(parts):
        np.savez(f"part{i}.npz", logits=h, labels=y)
        Sketch.of(h, y).save(f"part{i}.sketch.json")
    same = [data, Scores.from_logits(*data), val, tmp_path / val, [val], open_scores(val)]
    assert {fit_source(TemperatureScaling(), source).temperature_ for source in same} == {exact}
    sketched = [
        *(parts, [Scores.from_logits(*part) for part in parts], "part?.npz", ["part0.npz", "part1.npz"]),
        *(Sketch.of(*data), "part*.sketch.json", iter(["part0.npz", "part1.npz"]), iter(parts)),
    ]
    for source in sketched:
        assert fit_source(TemperatureScaling(), source).temperature_ == pytest.approx(exact, rel=1e-6)
    vector = fit_source(VectorScaling(), "part?.npz")
    np.testing.assert_allclose(vector.predict_proba(logits), VectorScaling().fit(*data).predict_proba(logits))
    with pytest.raises(InputError):
        fit_source(VectorScaling(), parts)


def test_a_large_file_is_read_piece_by_piece(val, data, monkeypatch):
    monkeypatch.setattr("attemper.fitting.IN_MEMORY_BYTES", 1000)
    seen = []
    found = fit_source(TemperatureScaling(), val, progress=lambda done, total: seen.append((done, total)))
    assert found.sketch_.n_samples == 400
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(*data).temperature_, rel=1e-6)
    assert seen[-1] == (400, 400)


def test_what_the_calibrator_knows_is_honoured(val, data):
    probs = np.exp(data[0]) / np.exp(data[0]).sum(axis=1, keepdims=True)
    names = ["a", "b", "c", "d"]
    np.savez(val, probs=probs, labels=[names[k] for k in data[1]])
    found = fit_source(TemperatureScaling(input="probs", zeros_as=1e-9, classes=names), val)
    expected = TemperatureScaling(input="probs", zeros_as=1e-9).fit(probs, data[1])
    assert found.temperature_ == expected.temperature_
    with pytest.raises(InputError):
        fit_source(TemperatureScaling(), val, InputSpec(input="probs"))
    with pytest.raises(InputError):
        fit_source(TemperatureScaling(input="probs", zeros_as=1e-9), val, InputSpec(input="probs", zeros_as=0.1))
    with pytest.raises(InputError):
        fit_source(TemperatureScaling(input="probs", classes=names), val, InputSpec(classes=["x", "y"]))


@pytest.mark.parametrize(
    "source, spec, sharding",
    [
        (Sketch.of([[2.0, 0.0], [0.0, 1.0]], [0, 0]), InputSpec(logits_key="z"), {}),
        (([[2.0, 0.0], [0.0, 1.0]], [0, 0]), None, {"workers": 2}),
        (["a.json", "b.npz"], None, {}),
    ],
)
def test_options_that_have_no_meaning(source, spec, sharding):
    with pytest.raises(InputError):
        fit_source(BayesianTemperatureScaling(), source, spec, **sharding)


def test_the_spec_travels():
    spec = InputSpec(logits_key="z", labels="y.npy", classes=np.array([1, 2]), columns=[3, 4])
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_fields_of_the_spec_are_keywords(tmp_path, data):
    val = tmp_path / "val.npz"
    np.savez(val, h=data[0], labels=data[1])
    for calibrator in (TemperatureScaling(), PlattScaling()):
        found = fit_source(calibrator, val, logits_key="h")
        expected = type(calibrator)().fit(*data)
        np.testing.assert_array_equal(found.predict_proba(data[0]), expected.predict_proba(data[0]))
    with pytest.raises(TypeError):
        fit_source(TemperatureScaling(), val, floor=1e-8)


def test_zeros_of_the_files_are_those_of_the_calibrator(tmp_path, data):
    val = tmp_path / "val.npz"
    probs = np.exp(data[0]) / np.exp(data[0]).sum(axis=1, keepdims=True)
    np.savez(val, probs=probs, labels=data[1])
    for source in (val, [val]):
        with pytest.raises(InputError):
            fit_source(TemperatureScaling(input="probs"), source, InputSpec(zeros_as=1e-6))
    with pytest.raises(InputError):
        fit_sharded(TemperatureScaling(input="probs"), [val], zeros_as=1e-6)


def test_options_of_files_that_are_open_are_refused(tmp_path, data):
    val = tmp_path / "val.npz"
    np.savez(val, logits=data[0], labels=data[1])
    with pytest.raises(InputError):
        fit_source(TemperatureScaling(), open_scores(val), InputSpec(labels_key="y"))


def test_columns_in_any_order_give_the_same_bits(tmp_path, data):
    logits, labels = data
    names, order = ["ant", "bat", "cat", "eel"], [2, 0, 3, 1]
    lines = [",".join([f"logit_{names[k]}" for k in order] + ["label"])]
    lines += [",".join([*(repr(float(row[k])) for k in order), names[y]]) for row, y in zip(logits, labels)]
    (tmp_path / "val.csv").write_text("\n".join(lines))
    found = fit_source(BayesianTemperatureScaling(classes=names), tmp_path / "val.csv")
    expected = BayesianTemperatureScaling().fit(logits, labels)
    np.testing.assert_array_equal(found.predict_proba(logits), expected.predict_proba(logits))
