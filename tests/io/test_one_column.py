"""Files with one score for each row: the same as two columns."""

import json
import sys

import numpy as np
import pytest

import attemper
from attemper import InputError, TemperatureScaling
from attemper.cli import main
from attemper.fitting import fit_source
from attemper.io import ProbRows, open_scores, write_probs

from data import FORMATS, save

RNG = np.random.default_rng(3)
Z = 3 * RNG.normal(size=60)
Y = (RNG.random(60) < 1 / (1 + np.exp(-Z / 2))).astype(np.int64)
BOTH = np.column_stack([np.zeros_like(Z), Z])
NAMES = np.where(Y == 1, "yes", "no")
FITTED = TemperatureScaling().fit(BOTH, Y)


@pytest.fixture
def run(capsys, monkeypatch):
    def command(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["attemper", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert end.value.code == code, err
        return out + err

    return command


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("labels", [Y, 2 * Y - 1, NAMES], ids=["numbers", "signs", "names"])
def test_every_format(tmp_path, form, labels):
    if form == "safetensors" and labels is NAMES:
        return  # this format has no text
    how = save(tmp_path, form, Z[:, None], labels)
    if labels is NAMES:
        how["pos_label"] = "yes"
    files = open_scores(**how)
    assert files.n_classes == 2
    assert files.one_column
    scores = files.load()
    np.testing.assert_array_equal(scores.labels, Y)
    np.testing.assert_array_equal(scores.logits, BOTH)
    assert fit_source(TemperatureScaling(), files).temperature_ == FITTED.temperature_


def test_vectors_of_arrays(tmp_path):
    np.savez(tmp_path / "val.npz", logits=Z, labels=Y == 1)
    np.save(tmp_path / "z.npy", Z)
    np.save(tmp_path / "y.npy", 2 * Y - 1)
    for files in (open_scores(tmp_path / "val.npz"), open_scores(tmp_path / "z.npy", labels=tmp_path / "y.npy")):
        np.testing.assert_array_equal(files.load().logits, BOTH)
        np.testing.assert_array_equal(files.load().labels, Y)
    np.savez(tmp_path / "probs.npz", probs=1 / (1 + np.exp(-Z)), labels=Y)
    found = fit_source(TemperatureScaling(input="probs"), tmp_path / "probs.npz")
    assert found.temperature_ == pytest.approx(FITTED.temperature_, rel=1e-6)


def test_names_of_a_fit_from_files(tmp_path):
    """Names in the options are those of the calibrator, also where a sketch was fitted."""
    np.savez(tmp_path / "a.npz", logits=Z, labels=NAMES)
    np.savez(tmp_path / "b.npz", logits=Z, labels=NAMES)
    for paths in ([tmp_path / "a.npz"], [tmp_path / "a.npz", tmp_path / "b.npz"]):
        fitted = fit_source(TemperatureScaling(), paths, classes=["no", "yes"])
        assert fitted.classes_.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(fitted.predict(Z), np.where(Z > 0, "yes", "no"))
    assert fit_source(TemperatureScaling(), tmp_path / "a.npz", pos_label="yes").classes_.tolist() == ["no", "yes"]


def test_names_that_do_not_fit(tmp_path):
    np.savez(tmp_path / "a.npz", logits=Z, labels=NAMES)
    np.savez(tmp_path / "b.npz", logits=Z, labels=np.where(Y == 1, "yes", "nein"))
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.npz").load()
    with pytest.raises(InputError):
        open_scores([tmp_path / "a.npz", tmp_path / "b.npz"], pos_label="yes").load()
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.npz", pos_label="maybe").load()


@pytest.mark.parametrize("form", ["csv", "npy", "npz", "parquet", "safetensors"])
def test_what_is_written_is_read_again(tmp_path, form):
    p = FITTED.predict_proba(Z)
    path = tmp_path / f"p.{form}"
    write_probs(path, [ProbRows(p[:30], Y[:30]), ProbRows(p[30:], Y[30:])], classes=["no", "yes"], positive=True)
    files = open_scores(path, input="probs", need_labels=False)
    assert files.one_column
    np.testing.assert_array_equal(files.load().values[:, 1], p[:, 1])
    with pytest.raises(InputError):
        write_probs(path, [ProbRows(np.full((2, 3), 1 / 3))], positive=True)


def test_commands(tmp_path, run):
    lines = [f"{z!r},{name}" for z, name in zip(Z.tolist(), NAMES)]
    for name in ("val.csv", "test.csv"):
        rows = lines[:40] if name == "val.csv" else lines[40:]
        (tmp_path / name).write_text("\n".join(["score,label", *rows]) + "\n")
    val, test, where = tmp_path / "val.csv", tmp_path / "test.csv", tmp_path / "map.json"
    run("fit", val, "-o", where, code=2)
    run("fit", val, "-o", where, "--classes", "no,yes", "--method", "ts")
    fitted = attemper.load(where)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.temperature_ == TemperatureScaling().fit(BOTH[:40], Y[:40]).temperature_
    found = json.loads(run("evaluate", test, "--map", where, "--json"))
    expected = attemper.metrics.nll(Y[40:], fitted.predict_positive(Z[40:]))
    assert f"{expected:.6f}"[:6] in json.dumps(found)
    run("apply", where, test, "-o", tmp_path / "p.csv", "--positive", "--labels-key", "label")
    head, first, *_ = (tmp_path / "p.csv").read_text().splitlines()
    assert head == "label,prediction,prob_yes"
    assert float(first.split(",")[2]) == fitted.predict_positive(Z[40:41])[0]
    run("apply", where, test, "-o", tmp_path / "two.csv", "--labels-key", "label")
    assert (tmp_path / "two.csv").read_text().startswith("label,prediction,prob_no,prob_yes\n")
    assert "yes" in run("refer", val, test, "--classes", "no,yes", "--budget", "0.2").partition("true class")[2]
    run("export", where, "-o", tmp_path / "map.onnx", "--positive")
    (tmp_path / "new.csv").write_text("score\n1.5\n-2.0\n")
    run("apply", where, tmp_path / "new.csv", "-o", tmp_path / "new.npz", "--positive")
    np.testing.assert_array_equal(np.load(tmp_path / "new.npz")["probs"], fitted.predict_positive([1.5, -2.0]))
