"""Columns of a table that are hardly classes: found wherever they come in, and never among the logits of a network."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from attemper import AttemperWarning, ChanceAccuracyWarning, ProbabilitiesAsLogitsWarning, Scores, TemperatureScaling
from attemper.data.plausibility import constant_share
from attemper.data.suspects import extra_probs, suspicious_columns
from attemper.errors import InputError, SuspiciousColumnWarning
from attemper.io import open_scores

from data import draw

RNG = np.random.default_rng(0)
H, Y = draw(400, 3)
AGE = RNG.integers(20, 80, 400)
NAMES = np.array(["cat", "dog", "fish"])
FILES = sorted((Path(__file__).parents[1] / "data").glob("*.npz"))


def softmax(h):
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


P = softmax(H)
EXTRA = {
    "age": AGE,  # whole numbers
    "income": 1000 * RNG.random(400) + 500,  # another scale
    "top": P.max(axis=1),  # from 0 to 1
    "entropy": -(P * np.log(P)).sum(axis=1),  # by its name
}


def table(path, names, columns, labels):
    lines = [",".join(map(str, row)) for row in zip(*columns, labels)]
    path.write_text("\n".join([",".join([*names, "label"]), *lines]) + "\n")
    return path


@pytest.mark.filterwarnings("ignore::attemper.ChanceAccuracyWarning")
@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["numbers", "names"])
@pytest.mark.parametrize("name", EXTRA)
def test_a_stranger_among_the_classes_warns_and_the_option_in_the_warning_is_right(tmp_path, name, labels):
    expected = TemperatureScaling().fit(H, Y).temperature_
    frame = pd.DataFrame({name: EXTRA[name]} | dict(zip(NAMES, H.T)) | {"label": labels})
    path = table(tmp_path / "a.csv", [name, *NAMES], [EXTRA[name], *H.T], labels)
    with pytest.warns(SuspiciousColumnWarning) as found:
        open_scores(path).load()
    assert ("no label is" in str(found[0].message)) == (labels is not Y)
    with pytest.warns(SuspiciousColumnWarning):
        Scores.from_table(frame, "label")
    for scores in (
        open_scores(path, columns=["cat", "dog", "fish"]).load(),
        Scores.from_table(frame, "label", columns=["cat", "dog", "fish"]),
    ):
        assert TemperatureScaling().fit(scores).temperature_ == pytest.approx(expected)


def test_several_strangers():
    found = suspicious_columns(["age", "top", *NAMES], np.column_stack([AGE, P.max(axis=1), H]))
    assert list(found) == ["age", "top"]


def test_a_column_that_a_label_names_is_a_class(tmp_path):
    columns = [np.round(H[:, 0]), *H.T[1:]]
    path = table(tmp_path / "a.csv", ["age", "dog", "fish"], columns, np.array(["age", "dog", "fish"])[Y])
    open_scores(path).load()
    assert suspicious_columns(["age", "dog", "fish"], np.column_stack(columns))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_logits_of_networks_are_never_suspicious(file):
    with np.load(file) as arrays:
        key = "val_" if "val_logits" in arrays.files else ""
        h, y = arrays[f"{key}logits"], arrays[f"{key}labels"]
    names = [f"class {k}" for k in range(h.shape[1])]
    middle = np.sort(np.median(np.abs(h), axis=0))
    assert middle[-1] < 2 * middle[-2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttemperWarning)
        for n in (20, 100, len(y)):
            rows = np.random.default_rng(n).integers(len(y), size=n)
            assert suspicious_columns(names, h[rows]) == {}
            Scores.from_logits(h[rows], y[rows])


@pytest.mark.parametrize(
    "columns",
    [
        np.column_stack([np.zeros(400), H[:, 1] - H[:, 0]]),  # the first class is the reference
        np.round(H),
        np.where(H < -2, -np.inf, H),
        H[:10],
        np.column_stack([0.1 + 0.2 * P[:, 0], -0.1 - 0.2 * P[:, 0]]),
        P,
    ],
    ids=["reference", "whole", "masks", "few", "weak", "probs"],
)
def test_what_is_not_suspicious(columns):
    assert suspicious_columns([f"c{k}" for k in range(columns.shape[1])], columns) == {}


def test_rare_classes_bring_no_warning(tmp_path):
    labels = np.where(Y == 2, 0, Y)
    open_scores(table(tmp_path / "a.csv", NAMES, H.T, labels)).load()


def test_predictions_of_one_class():
    h = H + np.array([50, 0, 0])
    with pytest.warns(ChanceAccuracyWarning):
        TemperatureScaling().fit(h, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttemperWarning)
        Scores.from_logits(h, np.where(np.arange(400) % 20, 0, Y))  # the others are rare
        Scores.from_logits(h[:15], Y[:15])
        Scores.from_logits(np.zeros((400, 3)), Y)
        Scores.from_logits(-np.sort(-H), np.minimum(Y, 1))  # columns are ranks, as of the most likely tokens
    assert constant_share(np.array([70.0, 30]), np.array([100.0, 0]), 100) is None
    assert constant_share(np.array([30.0, 70]), np.array([100.0, 0]), 100) == 0.3


@pytest.mark.parametrize("percentages", [100 * P, (100 * P).round(1), (100 * P).astype(np.float32)])
def test_percentages_passed_as_logits(percentages):
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        Scores.from_logits(percentages, Y)
    expected = TemperatureScaling().fit(H, Y).temperature_
    advised = TemperatureScaling(input="probs", zeros_as=1e-4).fit(percentages / 100, Y)
    assert advised.temperature_ == pytest.approx(expected, rel=0.05)
    with pytest.raises(InputError):
        Scores.from_probs(percentages, Y)


def test_counts_passed_as_logits():
    votes = np.random.default_rng(0).multinomial(10, P)
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        Scores.from_logits(votes, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttemperWarning)
        Scores.from_logits(10 * np.eye(3)[np.where(np.arange(400) % 9, Y, 0)], Y)  # of one class each
        Scores.from_logits(100 * P[:1])
        Scores.from_logits(H + 1e5)  # a constant in all logits


def test_probabilities_with_one_column_more(tmp_path):
    assert extra_probs(NAMES.tolist(), P) is None
    assert extra_probs(["top", *NAMES], np.column_stack([P.max(axis=1), P])) == NAMES.tolist()
    path = table(tmp_path / "a.csv", [*NAMES, "top"], [*P.T, P.max(axis=1)], Y)
    with pytest.raises(InputError):
        open_scores(path, input="probs").load()
    assert open_scores(path, input="probs", columns=["cat", "dog", "fish"]).load().n_classes == 3


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=1000), GaussianNB()], ids=str)
@pytest.mark.parametrize("load", [load_breast_cancer, load_iris, load_wine])
def test_log_probabilities_are_no_strangers(model, load):
    """One class is often far less likely than all others."""
    X, y = load(return_X_y=True)
    log_p = model.fit(StandardScaler().fit_transform(X), y).predict_log_proba(StandardScaler().fit_transform(X))
    assert suspicious_columns([f"class_{k}" for k in range(log_p.shape[1])], log_p) == {}


def test_a_rare_class_and_the_second_of_two_columns_are_no_strangers():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(300, 3))
    h[:, 2] -= 40
    assert suspicious_columns(["a", "b", "rare"], h) == {}
    pair = np.stack([0.1 * h[:, 0], 3 + np.abs(h[:, 1])], axis=1)
    assert suspicious_columns(["neg", "pos"], pair) == {}
    assert list(suspicious_columns(["neg", "pos", "third"], np.c_[pair, 0.1 * h[:, 1]])) == ["pos"]
