"""What is written is read again the same, and appears whole or not at all."""

from __future__ import annotations

import csv
import json
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from attemper.errors import FileError, InputError
from attemper.io import ProbRows, open_scores, write_probs

ENDINGS = ["npz", "npy", "csv", "jsonl", "safetensors", "parquet"]
CLASSES = ["cat", 'd"o,g', "hündin"]


@pytest.fixture(params=[np.float32, np.float64])
def rows(request):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=50).astype(request.param)
    return ProbRows(probs, rng.integers(0, 3, 50), probs.argmax(axis=1))


def in_pieces(rows: ProbRows, size: int = 7):
    for i in range(0, 50, size):
        yield ProbRows(*(None if part is None else part[i : i + size] for part in rows))


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "'=1", "＝1", "'quoted'", "-1", "+1.5e3"]


def test_no_cell_of_text_is_a_formula(tmp_path):
    """OWASP: a spreadsheet runs what begins with =, +, - or @; an apostrophe makes it text. Numbers stay numbers."""
    n = len(FORMULAS)
    rows = ProbRows(np.eye(n), np.arange(n), np.arange(n))
    path = tmp_path / "probs.csv"
    write_probs(path, [rows], classes=FORMULAS)
    with path.open(newline="", encoding="utf-8") as stream:
        head, *lines = csv.reader(stream)
    assert head[2:] == [f"prob_{name}" for name in FORMULAS]
    for line, name in zip(lines, FORMULAS):
        assert line[0] == line[1]
        assert line[0].removeprefix("'") == name if line[0] != name else name in ("'quoted'", "-1", "+1.5e3")
        assert set(line[2:]) == {"0.0", "1.0"}
    scores = open_scores(path, input="probs", classes=FORMULAS).load()
    np.testing.assert_array_equal(scores.labels, rows.labels)


@pytest.mark.parametrize("classes", [None, CLASSES])
@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip(tmp_path, rows, ending, classes):
    path = tmp_path / f"probs.{ending.upper()}"
    write_probs(path, in_pieces(rows), classes=classes)
    named = classes if ending in ("csv", "jsonl", "parquet") else None
    files = open_scores(path, input="probs", classes=named, need_labels=ending != "npy")
    scores = files.load()
    np.testing.assert_array_equal(scores.values.astype(rows.probs.dtype), rows.probs)
    if ending != "npy":
        np.testing.assert_array_equal(scores.labels, rows.labels)
        assert files.n_classes == 3
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_other_libraries_read_it_too(tmp_path, rows):
    write_probs(tmp_path / "a.npy", in_pieces(rows))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), rows.probs)

    write_probs(tmp_path / "a.npz", in_pieces(rows), classes=CLASSES)
    with np.load(tmp_path / "a.npz") as arrays:
        assert set(arrays) == {"probs", "labels", "predictions", "classes"}
        np.testing.assert_array_equal(arrays["probs"], rows.probs)
        np.testing.assert_array_equal(arrays["predictions"], rows.predictions)
        assert arrays["classes"].tolist() == CLASSES

    write_probs(tmp_path / "a.safetensors", in_pieces(rows), classes=CLASSES)
    tensors = load_file(tmp_path / "a.safetensors")
    for name in ("probs", "labels", "predictions"):
        np.testing.assert_array_equal(tensors[name], getattr(rows, name))
    with safe_open(tmp_path / "a.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["classes"]) == CLASSES

    write_probs(tmp_path / "a.parquet", in_pieces(rows), classes=CLASSES)
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["label", "prediction", "probs"]
    assert table["prediction"].to_pylist() == [CLASSES[k] for k in rows.predictions]
    np.testing.assert_array_equal(table["probs"].to_pylist(), rows.probs)
    assert json.loads(table.schema.metadata[b"classes"]) == CLASSES


def test_without_labels_and_from_one_array(tmp_path, rows):
    for ending in ENDINGS:
        write_probs(tmp_path / f"a.{ending}", [ProbRows(rows.probs)])
        scores = open_scores(tmp_path / f"a.{ending}", input="probs", need_labels=False).load()
        np.testing.assert_array_equal(scores.values.astype(rows.probs.dtype), rows.probs)


def test_the_same_data_give_the_same_file(tmp_path, rows):
    for ending in ENDINGS:
        write_probs(tmp_path / f"a.{ending}", in_pieces(rows))
        write_probs(tmp_path / f"b.{ending}", in_pieces(rows))
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, InputError])
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_half_way_leaves_what_was_there(tmp_path, rows, ending, error):
    def broken():
        yield from in_pieces(rows)
        raise error("half-way")

    path = tmp_path / f"a.{ending}"
    path.write_text("old")
    with pytest.raises(error):
        write_probs(path, broken())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ["npz", "npy", "safetensors"])
def test_memory_is_bounded_by_the_piece(tmp_path, ending):
    piece = ProbRows(np.full((1000, 100), 0.01), np.zeros(1000, dtype=int))
    tracemalloc.start()
    write_probs(tmp_path / f"a.{ending}", (piece for _ in range(50)))  # 40 MB
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / f"a.{ending}").stat().st_size > 40e6
    assert peak < 8e6


def test_what_cannot_be_written(tmp_path, rows):
    def fails(match, *args, kind=InputError, name="a.npz", **kwargs):
        with pytest.raises(kind):
            write_probs(tmp_path / name, *args, **kwargs)
        assert not list(tmp_path.iterdir())

    fails(r"use one of \.csv, \.jsonl, \.ndjson, \.npy", [rows], kind=FileError, name="a.txt")
    fails("cannot be written there", [rows], kind=FileError, name="no/folder/a.npz")
    fails("no rows to write", [])
    fails("got shape", [ProbRows(rows.probs[0])])
    fails("2 names for 3 columns", [rows], classes=["a", "b"])
    fails("shape .* after one with 3 columns", [rows, ProbRows(rows.probs[:, :2], *rows[1:])])
    fails("every piece or with none", [rows, ProbRows(rows.probs)])
    fails("column numbers run from 0 to 2", [rows._replace(labels=rows.labels + 1)])
    fails(r"labels: shape \(49,\)", [rows._replace(labels=rows.labels[1:])])
    fails("predictions: .* dtype float64", [rows._replace(predictions=rows.predictions / 2)])
