"""Advice followed to the letter leads to the right result, and is given in the words of whoever reads it."""

from __future__ import annotations

import re
import sys
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

import attemper
from attemper import MultiLabelCalibrator, Scores, Sketch, TemperatureScaling, metrics
from attemper.cli import main
from attemper.io import open_scores

from data import draw

N, K = 300, 4
H, Y = draw(N, K)
TS = TemperatureScaling().fit(H, Y)


def error_of(function, *args, **parameters):
    with pytest.raises(attemper.AttemperError) as error:
        function(*args, **parameters)
    return str(error.value)


def advised(message, pattern):
    """The code in a message that this matches."""
    found = re.search(pattern, message)
    assert found, message
    return found[0]


@pytest.mark.parametrize("torch_tensor", [False, True])
def test_images_with_the_classes_second(torch_tensor):
    logits = np.moveaxis(H.reshape(3, 10, 10, K), -1, 1)
    labels = Y.reshape(3, 10, 10)
    if torch_tensor:
        logits, labels = torch.from_numpy(logits.copy()), torch.from_numpy(labels)
    message = error_of(TemperatureScaling().fit, logits, labels)
    axis = {"axis": int(advised(message, r"axis=1")[-1])}
    assert TemperatureScaling(**axis).fit(logits, labels).temperature_ == TS.temperature_


def test_reshaping_images_without_moving_the_classes_is_what_the_advice_prevents():
    logits = np.moveaxis(H.reshape(3, 10, 10, K), -1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attemper.AttemperWarning)  # of labels at chance level
        wrong = TemperatureScaling().fit(logits.reshape(-1, K), Y).temperature_
    assert wrong > 2 * TS.temperature_
    message = error_of(TemperatureScaling().fit, logits, Y.reshape(3, 10, 10))
    assert "reshape" not in message
    axis = int(advised(message, r"axis=1")[-1])
    assert TemperatureScaling(axis=axis).fit(logits, Y.reshape(3, 10, 10)).temperature_ == TS.temperature_


def test_sequences_with_the_classes_last():
    logits = H.reshape(30, 10, K)
    message = error_of(Scores.from_logits, logits, Y)
    scores = Scores.from_logits(logits, Y.reshape(30, 10), axis=int(advised(message, r"axis=-1")[5:]))
    np.testing.assert_array_equal(scores.logits, H)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_score_of_two_classes(shape):
    z = draw(500, 1)[0].ravel()
    labels = (np.random.default_rng(1).random(500) < expit(z / 2)).astype(int)
    expected = TemperatureScaling().fit(np.column_stack([0 * z, z]), labels).temperature_
    p = expit(z)
    for name, scores in (("logits", z), ("probs", p)):
        fitted = TemperatureScaling(input=name).fit(scores.reshape(shape), labels)
        assert fitted.temperature_ == pytest.approx(expected, rel=1e-6)


def test_labels_that_are_one_hot():
    assert TemperatureScaling().fit(H, np.eye(K)[Y]).map_ == TS.map_


def test_several_labels_for_a_row_are_not_one_hot():
    labels = (np.random.default_rng(0).random((N, K)) < 0.5).astype(int)
    for rows in (labels, np.zeros((N, K)), labels.astype(bool)):
        message = error_of(TemperatureScaling().fit, H, rows)
        assert "argmax" not in message
        assert "use MultiLabelCalibrator" in message
    assert MultiLabelCalibrator().fit(H, labels).predict_proba(H).shape == (N, K)


def test_soft_labels_are_not_one_hot():
    labels = softmax(H / 1.7, axis=1)
    best = minimize_scalar(lambda t: -(labels * log_softmax(H / t, axis=1)).sum(), bounds=(0.5, 5), method="bounded")
    assert TemperatureScaling().fit(H, labels).temperature_ == pytest.approx(best.x, rel=1e-3)
    for counts in (np.round(20 * labels), 20 * labels):
        message = error_of(TemperatureScaling().fit, H, counts)
        assert "argmax" not in message
        shares = eval(advised(message, r"labels / labels\.sum\(axis=1, keepdims=True\)"), {"labels": counts})
        assert TemperatureScaling().fit(H, shares).temperature_ == pytest.approx(best.x, rel=0.1)


def test_names_of_classes():
    names = ["cat", "dog", "eel", "fox"]
    labels = np.array(names)[Y]
    probs = softmax(H, axis=1)
    for metric in (metrics.ece, metrics.nll, metrics.evaluate, metrics.reliability):
        assert "classes=[…]" in error_of(metric, labels, probs)
        assert str(metric(labels, probs, classes=names)) == str(metric(Y, probs))
    for takes in (TemperatureScaling().fit, Scores.from_logits, Sketch.of):
        assert "classes=[…]" in error_of(takes, H, labels)
    assert TemperatureScaling(classes=names).fit(H, labels).map_ == TS.map_


def test_rows_that_do_not_sum_to_one_are_not_to_be_divided_in_general():
    """[0, p] and sigmoids of several labels would become something else."""
    for bad in (lambda p: Scores.from_probs(p, [0, 1]), lambda p: metrics.ece([0, 1], p)):
        message = error_of(bad, [[0.0, 0.3], [0.0, 0.6]])
        assert "row 0 sums to 0.3" in message
        assert "use MultiLabelCalibrator and label_metrics" in message
        assert "Divide each row" not in message


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = np.array(["cat", "dog", "eel", "fox"])
    np.savez("val.npz", logits=H, labels=Y)
    np.savez("names.npz", logits=H, labels=names[Y])
    np.savez("from_one.npz", logits=H, labels=Y + 1)
    np.savez("other.npz", scores=H, labels=Y)
    probs = softmax(H, axis=1)
    probs[0, Y[0]] = 0.0
    probs[0] /= probs[0].sum()
    np.savez("zero.npz", probs=probs, labels=Y)
    np.save("logits.npy", H)
    np.save("labels.npy", Y)
    table = "label,id_a,logit_0,logit_1\n" + "".join(f"{y % 2},7,{a},{b}\n" for y, (a, b, *_) in zip(Y, H))
    (tmp_path / "table.csv").write_text(table)
    np.savez("images.npz", logits=np.moveaxis(H.reshape(3, 10, 10, K), -1, 1), labels=Y.reshape(3, 10, 10))
    np.savez("empty.npz", logits=H[:0], labels=Y[:0])


@pytest.fixture
def bad(capsys, monkeypatch, files):
    def run(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        return " ".join(capsys.readouterr().err.split())

    return run


# A command and what it advises; the same in Python; the command with the advice, where that is one option more.
MISTAKES = [
    ("fit names.npz", "--classes A,B,…", lambda: open_scores("names.npz").load(), "classes=[…]"),
    ("fit from_one.npz", "--classes 1,2,3,4", lambda: open_scores("from_one.npz").load(), "labels - 1"),
    ("fit other.npz", "--logits-key", lambda: open_scores("other.npz"), "logits_key"),
    ("fit other.npz --logits-key scores --labels-key y", "--labels-key", None, ""),
    ("fit zero.npz --probs", "--zeros-as 1e-8", lambda: open_scores("zero.npz", input="probs").load(), "zeros_as=1e-8"),
    ("fit val.npz --zeros-as 1e-8", "--probs", lambda: open_scores("val.npz", zeros_as=1e-8), "input='probs'"),
    ("fit logits.npy", "--labels labels.npy", lambda: open_scores("logits.npy"), "labels='labels.npy'"),
    ("fit table.csv", "--logits-key logit_", lambda: open_scores("table.csv"), "logits_key='logit_'"),
    ("fit empty.npz", "--skip-empty", lambda: open_scores("empty.npz"), "skip_empty=True"),
    ("fit val.npz --t-range 3 2", "--t-range 3.0 2.0", lambda: Sketch.of(H, Y, t_range=(3, 2)), "t_range=(3.0, 2.0)"),
    ("fit val.npz --ignore-index 1.5", "--ignore-index", None, ""),
    ("fit val.npz --labels-are tokens", "--columns", lambda: open_scores("val.npz", labels_are="tokens"), "columns=["),
    ("fit val.npz --workers 0", "--workers 0", None, ""),
    (
        "evaluate val.npz --confidence-level 95",
        "--confidence-level 95",
        lambda: metrics.ece(Y, softmax(H, axis=1), confidence_level=95),
        "confidence_level=95",
    ),
    ("evaluate val.npz --seed -1", "--seed -1", None, ""),
]


@pytest.mark.parametrize("line, flag, python, keyword", MISTAKES)
def test_errors_name_flags_to_commands_and_keywords_to_python(bad, line, flag, python, keyword):
    message = bad(line)
    assert flag in message
    assert not re.search(r"\b[a-z_]+=(\[|'|True|1e-8)", message), message
    if python is not None:
        message = error_of(python)
        assert keyword in message
        assert "--" not in message


@pytest.mark.parametrize(
    "line",
    [
        "fit names.npz --classes cat,dog,eel,fox",
        "fit from_one.npz --classes 1,2,3,4",
        "fit other.npz --logits-key scores",
        "fit logits.npy --labels labels.npy",
        "fit empty.npz val.npz --skip-empty",
    ],
)
def test_a_command_with_the_flag_that_is_advised(capsys, monkeypatch, files, line):
    monkeypatch.setattr(sys, "argv", ["attemper", *line.split(), "--method", "ts", "-o", "m.json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert attemper.load("m.json").temperature_ == pytest.approx(TS.temperature_, rel=1e-6)


@pytest.mark.slow
def test_a_worker_names_flags_too(bad):
    np.savez("ok.npz", logits=H, labels=Y)
    message = bad("fit names.npz ok.npz --workers 2 --method ts")
    assert "--classes" in message
    assert "classes=" not in message


def test_python_is_named_again_after_a_command(bad):
    bad("fit names.npz")
    assert "--" not in error_of(open_scores("names.npz").load)


def test_files_of_images_are_told_apart_from_tables(bad):
    message = bad("fit images.npz")
    assert "--axis 1 if the classes are the second dimension" in message


def test_help_names_the_default_of_probabilities(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["attemper", "fit", "--help"])
    with pytest.raises(SystemExit):
        main()
    text = " ".join(capsys.readouterr().out.split())
    assert "logits, or probs with --probs" in text


def test_a_label_file_of_rows_is_not_called_one_hot(tmp_path):
    np.savez(tmp_path / "soft.npz", logits=H, labels=softmax(H / 1.7, axis=1))
    assert open_scores(tmp_path / "soft.npz").load().n_samples == N
    np.savez(tmp_path / "counts.npz", logits=H, labels=np.full((N, K), 3))
    message = error_of(open_scores(tmp_path / "counts.npz").load)
    assert "argmax" not in message
    assert "counts of votes" in message
