"""The page of errors says what really comes: each error is provoked, and its text begins as the page has it."""

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier

import attemper
from attemper import (
    AttemperError,
    AttemperWarning,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    CalibratedClassifier,
    ScaleMap,
    Scores,
    Sketch,
    StructuredScaling,
    TemperatureScaling,
    cli,
)
from attemper.comparison import compare
from attemper.decisions import prediction_sets
from attemper.drift import DriftTest
from attemper.export import fold_into_linear, onnx_calibrate
from attemper.io import open_scores
from attemper.planning import labels_for_certificate, labels_for_temperature
from attemper.report import summarise
from attemper.tokens import topk_scores
from attemper.torch.metrics import CalibrationError

import onnx_models as models
from data import draw

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"

LOGITS = np.array([[2.0, 0.5, 0.1], [0.3, 1.5, 0.2], [0.1, 0.4, 2.5]])
LABELS = np.array([0, 1, 1])
PROBS = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.1, 0.3, 0.6]])


def fit(logits, labels=LABELS, **parameters):
    return TemperatureScaling(**parameters).fit(logits, labels)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def read(classes=None, **arrays):
    np.savez("val.npz", **arrays)
    return open_scores("val.npz", classes=classes)


def bird():
    Path("val.csv").write_text("label,cat,dog\nbird,0.5,1.5\nbird,1.5,0.5\n")
    return open_scores("val.csv").load()


def empty_label():
    Path("val.csv").write_text("label,cat,dog\n0,0.5,1.5\n,1.5,0.5\n")
    return open_scores("val.csv").load()


def table(names, rows, **told):
    lines = [",".join(["label", *names]), *(",".join(map(str, [0, *row])) for row in rows)]
    Path("val.csv").write_text("\n".join(lines))
    return open_scores("val.csv", **told).load()


def some_in_both_sets():
    val = Scores.from_logits(LOGITS, LABELS)
    compare(val, Scores.from_logits([*LOGITS[:2], [0.0, 1.0, 7.0], [5.0, 1.0, 2.0]], [0, 1, 2, 0]), ["ts"])


def few_to_sketch():
    np.savez("val.npz", logits=LOGITS, labels=LABELS)
    cli.cli.main(["sketch", "val.npz", "-o", "a.sketch.json"], standalone_mode=False)


def key_that_is_unknown():
    np.savez("val.npz", logits=LOGITS, labels=LABELS)
    Path("attemper.toml").write_text('[fit]\nmetod = "ts"\n')
    cli.cli.main(["fit", "val.npz"], standalone_mode=False)


def condition_without_interval():
    data = attemper.datasets.load()
    np.savez("test.npz", logits=data.val_logits, labels=data.val_labels)
    cli.cli.main(["evaluate", "test.npz", "-qq", "--fail-if", "mce.low>0.5"], standalone_mode=False)


def sketch_loaded_as_map():
    Sketch.of(LOGITS, LABELS).save("a.sketch.json")
    attemper.load("a.sketch.json")


def map_of_the_future():
    fit(LOGITS).save("map.json")
    Path("map.json").write_text(json.dumps(json.loads(Path("map.json").read_text()) | {"schema": 99}))
    attemper.load("map.json")


def all_right():
    h, _ = draw(50, 3)
    return h, h.argmax(axis=1)


def lone_npy():
    np.save("logits.npy", LOGITS)
    open_scores("logits.npy")


def small_file_of_many_zeros():
    np.savez_compressed("val.npz", logits=np.zeros((10**6, 2), np.uint8), labels=np.zeros(10**6, np.uint8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTEMPER_MAX_BYTES", "1000000")
        open_scores("val.npz")


def parquet_without_pyarrow():
    Path("val.parquet").write_bytes(b"PAR1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        open_scores("val.parquet")


def neighbours_that_are_sure():
    X, y = load_digits(return_X_y=True)
    CalibratedClassifier(KNeighborsClassifier(weights="distance"), cv=3).fit(X[:300], y[:300])


def folds_without_groups():
    X, y = load_digits(return_X_y=True)
    CalibratedClassifier(LogisticRegression(), cv=4).fit(X, y, groups=np.arange(len(y)))


def file_without_its_classifier():
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=2000).fit(X[:300], y[:300])
    CalibratedClassifier(model, cv="prefit").fit(X[300:600], y[300:600]).save("digits.json")
    attemper.load("digits.json")


def fitted_already():
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=2000).fit(X[:300], y[:300])
    CalibratedClassifier(model).fit(X[300:600], y[300:600])


def report_on_one_set():
    data = attemper.datasets.load()
    same = Scores.from_logits(data.val_logits, data.val_labels)
    summarise(same, same, methods=["ts"])


def attended_on_calibrated():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 2000)
    labels = (p.cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
    AttendedTemperatureScaling(input="probs").fit(p, labels)


def unseen_class():
    data = attemper.datasets.load()
    some = data.val_labels != 3
    StructuredScaling().fit(data.val_logits[some], data.val_labels[some])


def another_network():
    data = attemper.datasets.load()
    fit(data.val_logits, data.val_labels).adapt(3 * data.test_logits)


# Each heading of the page, and what brings that error or warning about.
def day_fed_twice():
    h = np.random.default_rng(0).normal(size=(60, 3))
    DriftTest(1.0).update(h, h.argmax(axis=1)).update(h[::-1], h[::-1].argmax(axis=1))


def patient_again():
    test = DriftTest(1.0).update(np.eye(8)[:, :3], np.arange(8) % 3, clusters=[1, 2, 3, 4, 17, 17, 18, 19])
    test.update(LOGITS, LABELS, clusters=[20, 21, 17])


PROVOKED = {
    "Labels that start at 1": lambda: fit(LOGITS, [1, 2, 3]),
    "Labels that are names": lambda: fit(LOGITS, ["cat", "dog", "dog"]),
    "Names of classes that are numbers": lambda: read(logits=LOGITS, labels=LABELS, classes=["1", "2", "3"]).load(),
    "A matrix of labels": lambda: fit(LOGITS, [[5, 1, 0], [0, 3, 2], [1, 4, 0]]),
    "Soft labels that do not sum to 1": lambda: fit(LOGITS, np.full((3, 3), 0.3)),
    "Uncertain entries of many labels": lambda: attemper.MultiLabelCalibrator().fit(
        LOGITS, [[1, 0, -1], [0, 1, 0], [1, 0, 0]]
    ),
    "Fewer labels than logits": lambda: fit(LOGITS, [0, 1]),
    "No labels at all": lambda: TemperatureScaling().fit(LOGITS),
    "A logit that is NaN": lambda: fit(changed(LOGITS, (1, 2), np.nan)),
    "A logit of 1e31": lambda: fit(changed(LOGITS, (0, 1), 1e31)),
    "A masked class that is the label": lambda: fit(changed(LOGITS, (1, 1), -np.inf)),
    "One column for more than two classes": lambda: fit(LOGITS[:, :1], [0, 1, 2]),
    "Two names without `pos_label`": lambda: fit(LOGITS[:, 0], ["yes", "no", "no"]),
    "Logits of tokens": lambda: fit(np.zeros((2, 5, 3)), np.zeros((2, 5))),
    "A different number of columns": lambda: fit(LOGITS).predict_proba(LOGITS[:, :2]),
    "Names that are not sorted": lambda: fit(
        LOGITS, ["nevus", "melanoma", "melanoma"], classes=["nevus", "melanoma", "bkl"]
    ),
    "Labels that do not belong to the logits": lambda: fit(np.tile(np.eye(3), (20, 1)) * 3, np.tile([1, 2, 0], 20)),
    "Predictions that are all one class": lambda: fit(
        np.tile(LOGITS + np.array([9, 0, 0]), (20, 1)), np.arange(60) % 3
    ),
    "Probabilities passed as logits": lambda: fit(PROBS),
    "Percentages passed as logits": lambda: fit(np.tile(100 * PROBS, (10, 1)), np.tile(LABELS, 10)),
    "Logits instead of probabilities": lambda: fit(LOGITS, input="probs"),
    "Logits in a metric of torchmetrics": lambda: CalibrationError().update(torch.tensor(LOGITS), torch.tensor(LABELS)),
    "Rows that do not sum to one": lambda: fit(0.5 * PROBS, input="probs"),
    "A probability of zero for the label": lambda: fit(PROBS, [0, 0, 2], input="probs"),
    "zeros_as for logits": lambda: fit(LOGITS, zeros_as=1e-8),
    "Another name for the array": lambda: read(scores=LOGITS, labels=LABELS),
    "A column of ids": lambda: table(["sample_id", "cat", "dog"], [(i, 0.5, 0.25 * i) for i in range(20)]),
    "A column that is hardly a class": lambda: table(
        ["age", "cat", "dog"], [(20 + i % 7, 0.5, 0.25 * i) for i in range(30)]
    ),
    "A table of probabilities with a column too many": lambda: table(
        ["cat", "dog", "top"], [(0.3, 0.7, 0.7), (0.8, 0.2, 0.8)], input="probs"
    ),
    "A label that is missing": empty_label,
    "A sample without an id": lambda: TemperatureScaling().fit(LOGITS, LABELS, clusters=["a", None, "b"]),
    "Rows without a group": lambda: TemperatureScaling().fit(LOGITS, LABELS, groups=["a", "b", "a"]).predict(LOGITS),
    "A cluster in both parts of a fold": lambda: CalibratedClassifier(LogisticRegression(), "ts", cv=KFold(2)).fit(
        np.tile(LOGITS, (4, 1)), np.tile(LABELS, 4), clusters=["a", "b", "c"] * 4
    ),
    "A column that does not exist": lambda: table(["cat", "dog"], LOGITS[:, :2], columns=["cat", "dogs"]),
    "A label that is not among the columns": lambda: bird(),
    "Log-probabilities that leave nothing for other tokens": lambda: topk_scores([{"a": 0.0, "b": -50.0}], ["a"]),
    "Columns that have the names of some classes": lambda: table(
        ["logit_cat", "logit_emu"], LOGITS[:, :2], classes=["cat", "dog"]
    ),
    "Pickled objects": lambda: read(logits=LOGITS, labels=np.array(["a", None, 1], dtype=object)),
    "A small file that needs gigabytes": small_file_of_many_zeros,
    "An .npy file by itself": lone_npy,
    "A pattern without files": lambda: open_scores("val-*.npz"),
    "An unsupported extension": lambda: open_scores("val.pt"),
    "A package that is missing": parquet_without_pyarrow,
    "A map of a newer version": map_of_the_future,
    "A sketch instead of a map": sketch_loaded_as_map,
    "Predicting before fitting": lambda: TemperatureScaling().predict_proba(LOGITS),
    "Every prediction is right": lambda: fit(LOGITS, LOGITS.argmax(axis=1)),
    "The logits contradict the labels": lambda: fit(LOGITS, LOGITS.argmin(axis=1)),
    "T on the edge of the range": lambda: BayesianTemperatureScaling(t_range=(0.05, 20)).fit(
        np.tile(1e4 * LOGITS, (50, 1)), np.tile(LABELS, 50)
    ),
    "A kind of noise for labels that are clean": lambda: StructuredScaling(noise="classwise").fit(LOGITS, LABELS),
    "A sketch whose range ends too early": lambda: TemperatureScaling().fit_sketch(
        Sketch.of(1e3 * LOGITS, LABELS, t_range=(0.05, 20))
    ),
    "An attended temperature that does harm": attended_on_calibrated,
    "A class without a label": unseen_class,
    "A method that needs the logits": lambda: StructuredScaling().fit_sketch(Sketch.of(LOGITS, LABELS)),
    "Sketches that do not add": lambda: Sketch.of(LOGITS, LABELS) + Sketch.of(LOGITS, LABELS, thetas=[0.01]),
    "A sketch of few samples": few_to_sketch,
    "A module whose output is unknown": lambda: CalibratedClassifier(torch.nn.Linear(3, 3)).fit(LOGITS, LABELS),
    "A scorer by the name of its metric": lambda: attemper.metrics.scorers["ece"],
    "A classifier that is fitted already": fitted_already,
    "A classifier that gives zeros": neighbours_that_are_sure,
    "Folds that ignore groups": folds_without_groups,
    "A file without its classifier": file_without_its_classifier,
    "One set for fitting and evaluation": report_on_one_set,
    "Samples that are in both sets": some_in_both_sets,
    "Shares that do not add up to 1": lambda: fit(LOGITS).with_priors([50, 30, 20]),
    "Predictions that no mix of the classes explains": another_network,
    "A calibrator without class priors": lambda: (
        TemperatureScaling().fit_sketch(Sketch.of(LOGITS, LABELS)).with_priors([0.5, 0.3, 0.2])
    ),
    "A pilot without a wrong prediction": lambda: labels_for_temperature(*all_right(), width=1.2),
    "A share that no number of labels can certify": lambda: labels_for_certificate(
        *draw(300, 5), max_miss=0.25, decided_share=0.95
    ),
    "A model whose logits are not clear": lambda: onnx_calibrate(models.mlp("LogSoftmax"), ScaleMap(0.5)),
    "A model that is calibrated already": lambda: onnx_calibrate(
        onnx_calibrate(models.mlp("Softmax"), ScaleMap(0.5)).model, ScaleMap(0.5)
    ),
    "A day that is fed twice": day_fed_twice,
    "A patient in two batches": patient_again,
    "A map that no layer can absorb": lambda: fold_into_linear(
        torch.nn.Linear(3, 3), BayesianTemperatureScaling().fit(LOGITS, LABELS)
    ),
    "Too few samples for prediction sets": lambda: prediction_sets(PROBS, LABELS),
    "An unknown key of attemper.toml": key_that_is_unknown,
    "A condition on a metric that has no interval": condition_without_interval,
}


def entries():
    """Return heading and text of each entry of the page."""
    found = re.findall(r"^### ([^\n]+)\n\n```output\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {heading: " ".join(text.split()) for heading, text in found}


def test_each_entry_of_the_page_is_provoked():
    headings = re.findall(r"^### (.+)", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert headings == list(entries())
    assert headings == list(PROVOKED)


@pytest.mark.parametrize("heading", PROVOKED)
def test_what_comes_begins_as_the_page_says(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), pytest.raises((AttemperError, AttemperWarning)) as came:
        warnings.simplefilter("error", AttemperWarning)
        PROVOKED[heading]()
    said = entries()[heading]
    kind, _, text = said.partition(": ")
    assert kind == type(came.value).__name__
    assert len(text) > 30
    assert " ".join(str(came.value).split()).startswith(text.removesuffix(" …"))
