"""What is written is read again the same, and appears whole or not at all."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from attemper.errors import FileError, InputError
from attemper.io import ProbRows, open_scores, write_probs

ENDINGS = ["npz", "npy", "csv", "jsonl", "parquet"]
CLASSES = ["cat", 'd"o,g', "hündin"]


@pytest.fixture(params=[np.float32, np.float64])
def rows(request):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=50).astype(request.param)
    return ProbRows(probs, rng.integers(0, 3, 50), probs.argmax(axis=1))


def in_pieces(rows: ProbRows, size: int = 7):
    for i in range(0, 50, size):
        yield ProbRows(*(None if part is None else part[i : i + size] for part in rows))


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


@pytest.mark.parametrize("ending", ENDINGS)
def test_one_column_of_two_classes(tmp_path, ending):
    p = np.random.default_rng(0).dirichlet(np.ones(2), size=20)
    path = tmp_path / f"p.{ending}"
    write_probs(path, [ProbRows(p[:9]), ProbRows(p[9:])], classes=["no", "yes"], positive=True)
    files = open_scores(path, input="probs", need_labels=False)
    assert files.one_column
    np.testing.assert_array_equal(files.load().values[:, 1], p[:, 1])


def test_other_libraries_read_it_too(tmp_path, rows):
    write_probs(tmp_path / "a.npy", in_pieces(rows))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), rows.probs)
    write_probs(tmp_path / "a.npz", in_pieces(rows), classes=CLASSES)
    with np.load(tmp_path / "a.npz") as arrays:
        assert set(arrays) == {"probs", "labels", "predictions", "classes"}
        np.testing.assert_array_equal(arrays["predictions"], rows.predictions)
        assert arrays["classes"].tolist() == CLASSES
    write_probs(tmp_path / "a.parquet", in_pieces(rows), classes=CLASSES)
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["label", "prediction", "probs"]
    assert table["prediction"].to_pylist() == [CLASSES[k] for k in rows.predictions]
    np.testing.assert_array_equal(table["probs"].to_pylist(), rows.probs)
    assert json.loads(table.schema.metadata[b"classes"]) == CLASSES


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_half_way_leaves_what_was_there(tmp_path, rows, ending):
    def broken():
        yield from in_pieces(rows)
        raise KeyboardInterrupt("half-way")

    path = tmp_path / f"a.{ending}"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_probs(path, broken())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written(tmp_path, rows):
    def fails(*args, kind=InputError, name="a.npz", **kwargs):
        with pytest.raises(kind):
            write_probs(tmp_path / name, *args, **kwargs)
        assert not list(tmp_path.iterdir())

    fails([rows], kind=FileError, name="a.txt")
    fails([rows], kind=FileError, name="no/folder/a.npz")
    fails([])
    fails([ProbRows(rows.probs[0])])
    fails([rows], classes=["a", "b"])
    fails([rows, ProbRows(rows.probs[:, :2], *rows[1:])])
    fails([rows, ProbRows(rows.probs)])
    fails([rows._replace(labels=rows.labels + 1)])
    fails([rows._replace(labels=rows.labels[1:])])
