"""What `attemper check` advises, followed to the letter, gives the fit of the right columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import attemper
from attemper import TemperatureScaling

from commands import strict_json
from data import draw

RNG = np.random.default_rng(0)
H, Y = draw(400, 3)
Z, TWO = draw(400, 2)
Z = Z[:, 1] - Z[:, 0]
ODDS = 1 / (1 + np.exp(-Z))
AGE = RNG.integers(20, 80, 400)
NAMES = np.array(["cat", "dog", "fish"])
ILL = np.where(TWO == 1, "ill", "healthy")
IDS = [f"img_{i}" for i in range(400)]
CLASSES = dict(zip(NAMES, H.T))
T, T_TWO = TemperatureScaling().fit(H, Y).temperature_, TemperatureScaling().fit(Z, TWO).temperature_


def softmax(h):
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


P = softmax(H)


def save(name, columns):
    frame = pd.DataFrame(columns)
    frame.to_parquet(name) if name.endswith(".parquet") else frame.to_csv(name, index=False)


@pytest.fixture
def following(cli):
    """Check a file, run what is printed as the next command until it is a fit, and return T."""

    def run(*args):
        commands = []
        for _ in range(3):
            code, out, err = cli("check", *args, "--json")
            assert code < 2 or out, err
            command, *args = shlex.split(strict_json(out)["next"])[1:]
            commands.append(command)
            if command == "fit":
                break
        code, _, err = cli("fit", *args, "--method", "ts", "-o", "m.json")
        assert code == 0, err
        return commands, attemper.load("m.json").temperature_

    return run


@pytest.mark.parametrize(
    "columns, expected",
    [
        ({"age": AGE, "logit": Z, "label": TWO}, T_TWO),
        ({"age": AGE, **CLASSES, "label": Y}, T),
        ({"age": AGE, **CLASSES, "label": NAMES[Y]}, T),
        ({**CLASSES, "max_conf": P.max(axis=1), "label": Y}, T),
        ({**CLASSES, "max_conf": P.max(axis=1), "label": NAMES[Y]}, T),
        ({"hard": (ODDS > 0.5).astype(int), "p": ODDS, "label": TWO}, T_TWO),
        ({"age": AGE} | {f"z_{name}": h for name, h in CLASSES.items()} | {"label": Y}, T),
    ],
    ids=["binary", "numbers", "names", "confidence", "confidence-names", "prediction", "prefix"],
)
def test_extra_columns(cli, following, columns, expected):
    save("a.csv", columns)
    code, out, _ = cli("check", "a.csv")
    odd = next(name for name in columns if name in ("age", "max_conf", "hard"))
    assert code == 1
    assert f"warning: column {odd!r}" in out
    assert "nothing odd" not in out
    assert "next: attemper fit" not in out
    commands, temperature = following("a.csv")
    assert commands == ["check", "fit"]
    assert temperature == pytest.approx(expected, rel=1e-6)
    err = cli("fit", "a.csv", "--method", "ts", "-o", "m.json").err
    assert f"warning: a.csv: column {odd!r}" in err
    assert re.search(r"Use --(columns|logits-key) \S+ for the others alone", err)


def test_predictions_of_one_class(cli):
    np.savez("a.npz", logits=H + np.array([50, 0, 0]), labels=Y)
    code, out, _ = cli("check", "a.npz", "--json")
    found = strict_json(out)
    assert (code, found["next"]) == (1, None)
    assert [finding["code"] for finding in found["findings"]] == ["constant_predictions"]


def test_percentages(cli):
    save("a.csv", dict(zip(NAMES, 100 * P.T)) | {"label": Y})
    code, out, _ = cli("check", "a.csv")
    assert code == 1
    assert "each row sums to 100: percentages? Divide by 100 and use --probs" in out
    assert "next:" not in out
    assert "percentages, divide by 100 and use --probs" in cli("fit", "a.csv", "--method", "ts", "-o", "m.json").err
    assert "if these are percentages, divide by 100" in cli("check", "a.csv", "--probs").out
    err = cli("fit", "a.csv", "--probs", "-o", "m.json").err
    assert "if these are percentages, divide by 100" in err
    assert "leave out" not in err
    save("a.csv", dict(zip(NAMES, P.T)) | {"label": Y})
    cli("fit", "a.csv", "--probs", "--method", "ts", "-o", "m.json")
    assert attemper.load("m.json").temperature_ == pytest.approx(T, rel=1e-4)


@pytest.mark.parametrize("labels, options", [(TWO, []), (ILL, ["--pos-label", "ill"])], ids=["numbers", "names"])
def test_one_column_of_probabilities(cli, following, labels, options):
    save("b.csv", {"p": ODDS, "label": labels})
    out = cli("check", "b.csv").out
    assert "they look like probabilities of the second class" in out
    assert out.splitlines()[-1] == " ".join(["next: attemper fit b.csv", *options, "--probs"])
    commands, temperature = following("b.csv")
    assert commands == ["fit"]
    assert temperature == pytest.approx(T_TWO, rel=1e-4)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    "columns, key",
    [
        ({"score": Z, "y": ILL}, "y"),
        ({"score": Z, "y": TWO}, "y"),
        ({"score": Z, "finding": ILL}, "finding"),
        ({"logit": Z, "target": TWO}, "target"),
        ({"name": IDS, "logit": Z, "ground_truth": TWO}, "ground_truth"),
    ],
    ids=["y", "whole", "text", "target", "ids"],
)
def test_labels_under_another_name(bad, following, columns, key, form):
    save(f"a.{form}", columns)
    for command in (["check"], ["fit", "-o", "m.json"]):
        message = bad(*command, f"a.{form}")
        assert f"Use --labels-key {key} if that column holds the labels" in message
        assert "--columns" not in message
    more = ["--columns", "logit"] if "name" in columns else []
    more += ["--pos-label", "ill"] if columns[key] is ILL else []
    _, temperature = following(f"a.{form}", "--labels-key", key, *more)
    assert temperature == pytest.approx(T_TWO, rel=1e-6)


def test_labels_of_arrays_under_another_name(bad, following):
    np.savez("a.npz", logits=H, y=Y)
    assert "Use --labels-key y if that array holds the labels" in bad("check", "a.npz")
    assert following("a.npz", "--labels-key", "y")[1] == pytest.approx(T)


def test_a_class_called_as_labels_are_is_no_label(cli):
    save("a.csv", {"x": H[:, 0], "y": H[:, 1], "z": H[:, 2]})
    code, out, _ = cli("check", "a.csv", "--json")
    assert (code, strict_json(out)["n_classes"]) == (0, 3)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_column_of_text(bad, following, form):
    save(f"a.{form}", {"id": IDS, "age": AGE, **CLASSES, "label": Y})
    message = bad("check", f"a.{form}")
    assert "column 'id'" in message
    assert "--columns cat,dog,fish" in message
    assert "Fix or drop" not in message
    assert following(f"a.{form}", "--columns", "cat,dog,fish")[1] == pytest.approx(T)


def test_one_cell_that_is_no_number_is_an_error_of_its_line(bad):
    column = H[:, 0].astype(object)
    column[2] = "missing"
    save("a.csv", CLASSES | {"cat": column, "label": Y})
    assert "line 4, column 'cat' is 'missing', not a number. Fix or drop that line" in bad("check", "a.csv")


def test_an_empty_label(bad, following):
    labels = Y.astype(object)
    labels[3] = None
    save("a.csv", CLASSES | {"label": labels})
    for command in (["check"], ["fit", "-o", "m.json"]):
        message = bad(*command, "a.csv")
        assert "line 5, column 'label' is empty" in message
        assert "--ignore-index -100" in message
        assert "--classes" not in message
    rest = np.arange(400) != 3
    expected = TemperatureScaling().fit(H[rest], Y[rest]).temperature_
    save("b.csv", CLASSES | {"label": np.where(rest, Y, -100)})
    assert following("b.csv", "--ignore-index", "-100")[1] == pytest.approx(expected)


def test_errors_of_csv_name_the_line(bad, cli):
    labels = Y.copy()
    labels[[7, 9]] = 9, 8
    save("a.csv", CLASSES | {"label": labels})
    assert "the first in line 9 is 9" in cli("check", "a.csv").out
    assert "line 9 has label 9" in bad("fit", "a.csv", "-o", "m.json")
    text = Path("a.csv").read_text().split("\n")
    Path("b.csv").write_text("\n".join([text[0], "", "", *text[1:]]))
    assert "line 11 has label 9" in bad("fit", "b.csv", "-o", "m.json")


def test_probabilities_asked_of_a_file_of_logits(bad, cli):
    np.savez("a.npz", logits=H, labels=Y)
    np.savez("p.npz", logits=P, labels=Y)
    message = bad("fit", "a.npz", "--probs", "-o", "m.json")
    assert "it holds 'logits', 'labels'. Leave out --probs if these are logits" in message
    assert "Use --logits-key logits if they are probabilities" in message
    cli("fit", "p.npz", "--probs", "--logits-key", "logits", "--method", "ts", "-o", "m.json")
    assert attemper.load("m.json").temperature_ == pytest.approx(T, rel=1e-4)


def test_a_column_of_predictions(bad, cli, following):
    save("a.csv", {"pred": (ODDS > 0.5).astype(int), "p": ODDS, "label": TWO})
    for options in ([], ["--probs"]):
        message = bad("check", "a.csv", *options)
        assert "column 'pred'" in message
        assert "--columns p" in message
        assert "divide" not in message
    save("b.csv", {"hard": (ODDS > 0.5).astype(int), "p": ODDS, "label": TWO})
    code, out, _ = cli("check", "b.csv", "--probs")
    assert code == 2
    assert "without the column 'hard' 'p' lies from 0 to 1" in out
    for name in ("a.csv", "b.csv"):
        assert following(name, "--columns", "p", "--probs")[1] == pytest.approx(T_TWO, rel=1e-4)
    assert following("b.csv", "--probs") == (["check", "fit"], pytest.approx(T_TWO, rel=1e-4))


@pytest.mark.parametrize("form", ["csv", "npz"])
def test_labels_that_start_at_one(cli, following, form):
    if form == "csv":
        save("a.csv", CLASSES | {"label": Y + 1})
    else:
        np.savez("a.npz", logits=H, labels=Y + 1)
    code, out, _ = cli("check", f"a.{form}")
    assert code == 2
    assert "Use --classes 1,2,3." in out
    assert following(f"a.{form}") == (["fit"], pytest.approx(T))


def test_labels_that_start_at_one_with_one_column(following):
    np.savez("a.npz", logits=Z, labels=TWO + 1)
    assert following("a.npz") == (["fit"], pytest.approx(T_TWO))


def test_notes_have_names_and_numbers_agree(cli):
    save("a.csv", CLASSES | {"label": np.where(Y == 2, 0, Y)})
    assert "note: 1 class has no samples: 'fish'" in cli("check", "a.csv").out
    save("b.csv", CLASSES | {"label": 0 * Y})
    assert "note: 2 classes have no samples: 'dog', 'fish'" in cli("check", "b.csv").out
    save("p.csv", {"p": ODDS, "label": TWO})
    assert "p.csv: probabilities are the column 'p'" in cli("check", "p.csv", "--probs").err
    assert "a.csv: logits are the columns 'cat', 'dog', 'fish'" in cli("check", "a.csv").err
