"""A table: call → class of the error and the parameter that it names. No sentences."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.naive_bayes import GaussianNB

import attemper
from attemper import FileError, InputError, MissingExtraError, Scores, read, tokens
from attemper.data.files import Writer, write
from attemper.errors import collected_warnings, warn
from conftest import draw

N, K = 60, 3
DATA = draw(N, K)
H, Y, P = DATA.h, DATA.y, DATA.p
NAMES = ["cat", "dog", "eel"]
WHO = np.array([f"p{i // 3}" for i in range(N)])
TABLE = {**{f"logit_{name}": H[:, k] for k, name in enumerate(NAMES)}, "label": np.array(NAMES)[Y], "who": WHO}
FRAME = pd.DataFrame(TABLE)


def second(value, of=H):
    return np.where(np.arange(K) == 1, value, of)


ON_PROBS = attemper.TemperatureScaling(input="probs").fit(P[:, 1], Y == 1)
SEVERAL = attemper.fit(H, np.eye(K)[Y], multi_label=True)
SEVERAL_OF_TWO = attemper.fit(H[:, :2], np.eye(K)[Y][:, :2], multi_label=True)
GROUPED = attemper.fit(H, Y, groups=WHO, method="ts")
CAL = attemper.TemperatureScaling(classes=NAMES).fit(H, np.array(NAMES)[Y])
INPUT = {
    "NaN": (lambda: read(second(np.nan), Y), "data"),
    "infinity": (lambda: read(second(np.inf), Y), "data"),
    "a row of -inf": (lambda: read(np.where(np.arange(N)[:, None] == 7, -np.inf, H), Y), "data"),
    "no rows": (lambda: read(H[:0], Y[:0]), "data"),
    "a number": (lambda: read(H[0, 0], Y), "data"),
    "too large": (lambda: read(1e31 * H, Y), "data"),
    "texts": (lambda: read([["a", "b"]], [0]), "data"),
    "complex": (lambda: read(H + 1j, Y), "data"),
    "logits as probabilities": (lambda: read(H, Y, input="probs"), "data"),
    "a probability of 1.2": (lambda: read([0.2, 1.2], [0, 1], input="probs"), "data"),
    "scores last": (lambda: read(Y == 1, P[:, 1]), "labels"),
    "files for a class": (lambda: attemper.TemperatureScaling().fit("val*.npz"), "y"),
    "no labels to compare": (lambda: attemper.compare(H), "val"),
    "log-odds for a calibrator of probabilities": (lambda: ON_PROBS.predict_risk(H[:, 1]), "X"),
    "Scores of probabilities to predict": (lambda: CAL.predict(Scores.of(P, input="probs")), "X"),
    "Scores of other classes to predict": (lambda: CAL.predict_proba(Scores.of(H, classes=NAMES[::-1])), "X"),
    "a row of -inf to predict": (lambda: CAL.predict(np.full((2, K), -np.inf)), "X"),
    "halves": (lambda: read(P / 2, Y, input="probs"), "data"),
    "labels from 1": (lambda: read(H, Y + 1), "labels"),
    "too few labels": (lambda: read(H, Y[:-1]), "labels"),
    "names without classes": (lambda: read(H, ["cat"] * N), "labels"),
    "an unknown name": (lambda: read(H, ["cow"] * N, classes=NAMES), "labels"),
    "a missing label": (lambda: read(H, np.where(Y == 0, np.nan, Y)), "labels"),
    "a missing name": (lambda: read(H, [None, *["cat"] * (N - 1)], classes=NAMES), "labels"),
    "half a label": (lambda: read(H, Y + 0.5), "labels"),
    "counts of votes": (lambda: read(H, 2 * np.eye(K)[Y]), "labels"),
    "shares of other classes": (lambda: read(H, np.ones((N, 2)) / 2), "labels"),
    "a masked label": (lambda: read(second(-np.inf), Y), "labels"),
    "nothing counts": (lambda: read(H, np.full(N, 255), ignore_index=255), "labels"),
    "labels of other pixels": (lambda: read(np.zeros((2, 3, 4, 5)), np.zeros((2, 4, 4)), axis=1), "labels"),
    "half of several labels": (lambda: read(H, np.full((N, K), 0.5), multi_label=True), "labels"),
    "several labels, 2": (lambda: read(H, np.full((N, K), 2), multi_label=True), "labels"),
    "two names": (lambda: read(H, Y, classes=["a", "b"]), "classes"),
    "a name twice": (lambda: read(H, Y, classes=["a", "b", "b"]), "classes"),
    "negative weights": (lambda: read(H, Y, sample_weight=-np.ones(N)), "sample_weight"),
    "two weights": (lambda: read(H, Y, sample_weight=[1, 2]), "sample_weight"),
    "weights of zero": (lambda: read(H, Y, sample_weight=np.zeros(N)), "sample_weight"),
    "two clusters": (lambda: read(H, Y, clusters=[1, 2]), "clusters"),
    "no group": (lambda: read(H, Y, groups=[None, *WHO[1:]]), "groups"),
    "no id": (lambda: read(H, Y, ids=["", *WHO[1:]]), "ids"),
    "odds": (lambda: read(P, Y, input="odds"), "input"),
    "zeros as 2": (lambda: read(P, Y, input="probs", zeros_as=2.0), "zeros_as"),
    "zeros of logits": (lambda: read(H, Y, zeros_as=1e-8), "zeros_as"),
    "pixels of rows": (lambda: read(H, Y, max_pixels=9), "max_pixels"),
    "no axis": (lambda: read(np.zeros((2, 3, 4, 5)), np.zeros((2, 4, 5))), "axis"),
    "axis 0": (lambda: read(np.zeros((2, 3, 4)), np.zeros((3, 4)), axis=0), "axis"),
    "axis 9": (lambda: read(np.zeros((2, 3, 4)), np.zeros((2, 4)), axis=9), "axis"),
    "columns of an array": (lambda: read(H, Y, columns=["a"]), "columns"),
    "no such column": (lambda: read(FRAME, columns=["nothing"]), "columns"),
    "which columns": (lambda: read(pd.DataFrame({"a": [1.0], "b": [2.0]})), "columns"),
    "columns of text": (lambda: read(FRAME, columns=["who", "label"]), "columns"),
    "no such label": (lambda: read(FRAME, "nothing"), "labels"),
    "no such cluster": (lambda: read(FRAME, clusters="nothing"), "clusters"),
    "logits in prob_": (lambda: read(FRAME, input="probs"), "input"),
    "logits and probs": (lambda: read({"logits": H, "probs": P, "label": Y}), "input"),
    "Scores of probs as logits": (lambda: read(Scores.of(P, Y, input="probs"), input="logits"), "input"),
    "a mask of other tokens": (lambda: tokens.token_scores(H, Y, mask=np.ones(3)), "mask"),
    "more ranks than tokens": (lambda: tokens.topk_scores([{"A": -0.1, "B": -3.0}, {"A": -0.1}], k=2), "k"),
    "a label too few": (lambda: tokens.topk_scores([{"A": -0.1, "B": -3.0}], []), "labels"),
    "labels of other responses": (
        lambda: tokens.option_scores([{"A": -0.1, "B": -3.0}], ["A", "B"], {"id-7": "A"}),
        "labels",
    ),
    "no labels of tokens": (lambda: tokens.token_scores(H), "labels"),
    "one option": (lambda: tokens.option_scores([{"A": -0.1}], ["A"]), "options"),
    "an option too many": (lambda: tokens.option_scores(H, [0, 1], [2] * N), "labels"),
    "no k": (lambda: tokens.topk_scores(H, Y), "k"),
    "a fit without labels": (lambda: attemper.fit(H), "labels"),
    "a sketch without labels": (lambda: attemper.sketch(H), "labels"),
    "labels for a calibrator": (lambda: attemper.evaluate(H, Y), "calibrator"),
    "groups of several labels": (lambda: attemper.fit(H, np.eye(K)[Y], multi_label=True, groups=WHO), "multi_label"),
    "priors of several labels": (lambda: SEVERAL.with_priors([0.2] * K, [0.3] * K), "new"),
    "by, of several labels": (lambda: attemper.evaluate((H, np.eye(K)[Y]), multi_label=True, by=WHO), "by"),
    "a range beyond a sketch": (lambda: attemper.fit(attemper.sketch(H, Y), method="ts", t_range=(1e-3, 9)), "t_range"),
    "folds of None": (lambda: attemper.compare((H, Y), cv=None), "cv"),
    "the labels twice": (lambda: attemper.fit((H, Y), Y), "labels"),
    "percentages": (lambda: read(100 * P, Y, input="probs"), "data"),
    "Scores of another input": (lambda: attemper.evaluate(Scores.of(H, Y), input="probs"), "input"),
    "Scores of other classes": (
        lambda: attemper.compare(Scores.of(H, Y, classes=NAMES), classes=NAMES[::-1]),
        "classes",
    ),
    "columns of Scores": (lambda: read(Scores.of(H, Y), columns=["a"]), "columns"),
    "no such part": (lambda: attemper.evaluate(FRAME, by="nothing"), "by"),
    "half a weight to monitor": (lambda: attemper.monitor(CAL, (H, Y), sample_weight=np.full(N, 0.5)), "sample_weight"),
    "a level of 7": (lambda: attemper.decide((H, Y), coverage=0.8, guarantee_level=7), "guarantee_level"),
    "a bound of text": (lambda: attemper.decide((H, Y), max_miss="mel"), "max_miss"),
    "a budget of text": (lambda: attemper.decide((H, Y), budget="x"), "budget"),
    "one cost": (lambda: attemper.decide((H, Y), costs=5), "costs"),
    "no responses": (lambda: tokens.option_scores([], ["A", "B"]), "data"),
    "noise of None": (lambda: attemper.fit(H, Y, noise=None), "noise"),
    "Scores of other classes for a fit": (lambda: CAL.fit(Scores.of(H, Y, classes=NAMES[::-1])), "classes"),
    "several labels to compare": (lambda: attemper.compare((H, np.eye(K)[Y]), multi_label=True), "multi_label"),
    "labels for a test set": (lambda: attemper.compare((H, Y), Y), "test"),
    "groups of a sketch": (lambda: attemper.sketch(H, Y, groups=WHO), "groups"),
    "no labels to adapt": (lambda: CAL.adapt(H, validation=H), "validation"),
    "a model that is no ONNX": (lambda: CAL.to_onnx("a.onnx", model=CAL), "model"),
    "weights of text": (lambda: read(H, Y, sample_weight=WHO), "sample_weight"),
    "no centre": (lambda: attemper.fit(H, Y, prior_centre=np.nan), "prior_centre"),
    "a misspelt method": (lambda: attemper.compare((H, Y), methods=["bayse"]), "methods"),
    "cases of a pilot alone": (lambda: attemper.planning.labels_for_temperature(H, width=2, clusters=WHO), "labels"),
    "rows of VAL": (lambda: attemper.compare((H, Y), (H, Y), allow_shared=True), "test"),
    "the one column of the first class": (lambda: read({"prob_cat": P[:, 0]}, classes=["cat", "dog"]), "classes"),
    "more wrong labels than chance": (
        lambda: attemper.planning.labels_for_temperature(H[:, :2], width=2, noise=0.6),
        "noise",
    ),
    "groups of a classifier": (
        lambda: attemper.CalibratedClassifier(GaussianNB(), attemper.GroupedCalibrator("ts")).fit(H, Y),
        "method",
    ),
    "noise of any method": (lambda: attemper.compare((H, Y), methods=["ts"], noise=2), "noise"),
    "a seed below 0": (lambda: attemper.compare((H, Y), methods=["ts"], seed=-1), "seed"),
    "a seed of text": (lambda: attemper.decide((H, Y), budget=0.2, seed="a"), "seed"),
    "one case to decide": (lambda: attemper.decide((H, Y), budget=0.2, clusters=np.zeros(N)), "val"),
    "a bound without a level": (lambda: attemper.decide((H, Y), max_miss=0.1, guarantee_level=None), "guarantee_level"),
    "a scale of text": (lambda: attemper.fit(H, Y, prior_scale="abc"), "prior_scale"),
    "a ridge of None": (lambda: attemper.fit(H, Y, method="vector", l2="abc"), "l2"),
    "bins of text": (lambda: attemper.fit(H, Y, method="histogram", n_bins="abc"), "n_bins"),
    "shares to monitor": (lambda: attemper.monitor(CAL, (H, P)), "labels"),
    "columns of several labels": (
        lambda: read(FRAME, labels="a,b", columns=["logit_cat", "logit_dog"], multi_label=True),
        "labels",
    ),
    "probabilities for a layer": (lambda: ON_PROBS.wrap(torch.nn.Linear(4, 2)), "module"),
    "pixels of Scores": (lambda: read(Scores.of(H, Y), max_pixels=9), "max_pixels"),
    "the second of two labels": (lambda: SEVERAL_OF_TWO.predict_risk(H[:, :2]), "X"),
    "a row of two groups": (lambda: GROUPED.predict_proba(H, groups="p1"), "groups"),
    "no such group": (lambda: GROUPED.predict_proba(FRAME, groups="nothing"), "groups"),
    "a list of labels": (
        lambda: read(FRAME, labels=["who", "label"], columns=list(TABLE)[:2], multi_label=True),
        "labels",
    ),
    "votes of nobody": (lambda: attemper.label_shares([[-1, -1]], n_classes=2), "votes"),
}


@pytest.mark.parametrize("case", INPUT)
def test_an_error_names_its_parameter(case):
    call, param = INPUT[case]
    with pytest.raises(InputError) as error:
        call()
    assert error.value.param == param


FILES = {
    "no such file": lambda: read("nothing.npz"),
    "no match": lambda: read("*.zip"),
    "unknown extension": lambda: read("val.pkl"),
    "unknown protocol": lambda: read("nowhere://val.csv"),
    "unknown extension to write": lambda: Writer("out.pkl"),
    "a file twice": lambda: read(["header.csv", "header.csv"]),
    "no folder for ONNX": lambda: CAL.to_onnx("nothing/out.onnx"),
    "semicolons and decimal commas": lambda: read("decimals.csv"),
    "no folder": lambda: write("nothing/out.npz", {"a": H}),
    "no calibrator": lambda: attemper.load("nothing.json"),
    "another document": lambda: attemper.load("other.json"),
    "no data set": lambda: attemper.datasets.load("nothing"),
    "an .npz of objects": lambda: read("objects.npz"),
    "semicolons": lambda: read("semicolons.csv"),
    "a table for a calibrator": lambda: attemper.load("header.csv"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_cannot_be_used_is_one_error(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "val.pkl").write_bytes(b"")
    (tmp_path / "other.json").write_text('{"attemper": ["x"]}')
    (tmp_path / "header.csv").write_text("logit_a,logit_b,label\n")
    (tmp_path / "semicolons.csv").write_text("a;b;label\n1;2;0\n")
    (tmp_path / "decimals.csv").write_text("a;b;label\n1,5;2,5;0\n")
    np.savez("objects.npz", logits=np.array([None, "a"], dtype=object))
    with pytest.raises(FileError):
        FILES[case]()


@pytest.mark.parametrize("name", ["val.csv", "val.parquet", "val.safetensors", "memory://val.npz"])
def test_without_the_extra_numpy_formats_work_and_others_name_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("pyarrow", "pyarrow.dataset", "safetensors", "safetensors.numpy", "fsspec"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name.rpartition("/")[2]).write_bytes(b"a,b\n1,2\n")
    with pytest.raises(MissingExtraError) as error:
        read(name)
    assert "attemper[files]" in str(error.value)
    assert isinstance(error.value, ImportError)
    write("val.npz", {"logits": H, "labels": Y})
    np.save("h.npy", H)
    np.save("y.npy", Y)
    for scores in (read("val.npz"), read("h.npy", labels="y.npy")):
        np.testing.assert_array_equal(scores.logits, H)


@pytest.mark.parametrize(("call", "name"), [
    (lambda: read(H, Y, cluster=WHO), "clusters"),
    (lambda: attemper.evaluate((H, Y), metric="nll"), "metrics"),
    (lambda: attemper.compare((H, Y), method=["ts"]), "methods"),
    (lambda: attemper.decide((H, Y), budgets=0.1), "budget"),
    (lambda: attemper.apply(CAL, H, prior="estimate"), "priors"),
    (lambda: attemper.monitor(CAL, (H, Y), states="a.json"), "state"),
])  # fmt: skip
def test_an_unknown_option_is_a_type_error_with_the_nearest_name(call, name):
    with pytest.raises(TypeError) as error:
        call()
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(("call", "name", "absent"), [
    (lambda: attemper.fit(H, Y, metod="ts"), "'method'", "None"),
    (lambda: read(FRAME, input="probs"), "input='logits'", "other names"),
    (lambda: read(H[:, :2], np.array(["-1", "1"])[Y % 2]), "0", "ignore_index"),
    (lambda: read(H[:, :2], 2 * (Y % 2) - 1, classes=["a", "b"]), "0", "ignore_index"),
    (lambda: read([0.1, 20.0, 70.0], [0, 1, 1], input="probs"), "100", "None"),
    (lambda: attemper.apply(GROUPED, FRAME, groups="site"), "site", "groups=False"),
    (lambda: attemper.evaluate((H[:, :2], Y % 2), CAL), "calibrator", "different"),
    (lambda: attemper.apply(H, CAL), "data", "labels"),
    (lambda: read(H, Y, classes="abc"), "1", "got 3"),
    (lambda: read(pl.DataFrame(TABLE).lazy()), "collect()", "attemper.fit"),
    (lambda: read(FRAME.assign(logit_dog=np.nan)), "dog", "column 1"),
])  # fmt: skip
def test_an_error_has_the_fix_that_helps(call, name, absent):
    with pytest.raises(InputError) as error:
        call()
    assert name in str(error.value)
    assert absent not in str(error.value)


def test_a_csv_file_is_described_by_its_columns(tmp_path):
    path = tmp_path / "val.csv"
    for text, words in (("", "empty"), ("id,logit_a,logit_b,label\n1,0.5,oops,a\n", "logit_b")):
        path.write_text(text)
        with pytest.raises(FileError) as error:
            read(path)
        assert words in str(error.value)
        assert "UTF-8" not in str(error.value)


def test_warnings_can_be_collected():
    with collected_warnings() as found:
        warn("a")
    assert [type(each) for each in found] == [attemper.AttemperWarning]
    with pytest.warns(attemper.AttemperWarning) as seen:
        warn("b")
    assert seen[0].filename == __file__
