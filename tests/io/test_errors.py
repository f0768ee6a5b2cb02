"""Whatever is wrong with a file is an error of attemper."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attemper.errors import AttemperError, FileError, InputError
from attemper.io import open_scores

LOGITS = np.arange(12.0).reshape(6, 2)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def fails(*args, kind=AttemperError, **told):
    with pytest.raises(kind) as found:
        open_scores(*args, **told).load()
    return str(found.value)


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "jsonl", "safetensors", "parquet"])
def test_files_that_cannot_be_read(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    fails(path, kind=FileError, need_labels=False)
    path.touch()
    fails(path, kind=FileError, need_labels=False)
    path.write_bytes(b"\xff\x00 no such format")
    fails(path, need_labels=False)
    path.unlink()
    path.mkdir()
    fails(path, kind=FileError, need_labels=False)


def test_paths(tmp_path):
    good = tmp_path / "good.npz"
    np.savez(good, logits=LOGITS, labels=LABELS)
    (tmp_path / "a.pkl").touch()
    (tmp_path / "link.npz").symlink_to(good)
    for paths in (tmp_path, tmp_path / "*.parquet", [], [good, tmp_path / "*.npz"], tmp_path / "a.pkl"):
        fails(paths, kind=FileError)
    fails([good, tmp_path / "link.npz"], kind=FileError)


def test_labels_in_files_of_their_own(tmp_path):
    x, y, table = tmp_path / "x.npy", tmp_path / "y.npy", tmp_path / "a.csv"
    np.save(x, LOGITS)
    np.save(y, LABELS)
    table.write_text("logit_a,logit_b\n1,2\n")
    fails(x, kind=FileError)
    fails(x, labels=[y, x])
    fails(x, labels=y, weights_key="w")
    fails(table, labels=y)
    np.save(y, LABELS[:5])
    fails(x, labels=y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"logits": LOGITS.ravel()},
        {"logits": np.float64(3)},
        {"logits": np.zeros((6, 2, 2))},
        {"logits": LOGITS[:, :1], "labels": [0, 1, 7, 0, 1, 0]},
        {"logits": LOGITS[:, :0]},
        {"logits": LOGITS + 0j},
        {"logits": LOGITS.astype(str)},
        {"labels": LABELS.astype("M8[s]")},
        {"labels": np.ones((6, 2))},
        {"labels": ["0", "1", "0", "1", "cat", "1"]},
        {"labels": np.array(["a", None] * 3, dtype=object)},  # not unpickled
        {"classes": ["1", "2"]},
        {"classes": ["cat", "dog", "eel"]},
        {"labels": [0, 1, 7, 0, 1, 0]},
        {"logits": LOGITS - 1, "input": "probs", "logits_key": "logits"},
        {"logits": np.where(LOGITS == 9, np.nan, LOGITS)},
        {"zeros_as": 0.1},
        {"weights_key": "w"},
        {"logits_key": "x"},
    ],
)
def test_shapes_types_and_keys(tmp_path, wrong):
    arrays = {"logits": LOGITS, "labels": LABELS} | {k: wrong.pop(k) for k in ("logits", "labels") if k in wrong}
    np.savez(tmp_path / "a.npz", **arrays)
    assert "a.npz" in fails(tmp_path / "a.npz", **wrong) or "zeros_as" in wrong


def test_files_that_do_not_go_together(tmp_path):
    texts = {"a": "label,logit_a,logit_b\n0,1,2\n", "b": "label,logit_b,logit_a\n0,1,2\n"}
    texts["c"] = "label,logit_a,logit_b,logit_c\n0,1,2,3\n"
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    for other in ("b", "c"):
        fails([tmp_path / "a.csv", tmp_path / f"{other}.csv"], kind=InputError)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("label,logit_a,logit_b\n0,1,2\n1,x,2\n", 3),
        ("label,logit_a,logit_b\n0,1,2\n1,3,\n", 3),
        ("label,logit_a,logit_b\n0,1,2\n\n1,2\n", 4),
        ("label,logit_a,logit_b\n0,1,2,3\n", 2),
        ("label,logit_a,logit_b\n0,1,2\ncat,1,2\n", 3),
        ("label,logit_a,logit_b\n0,1,2\n,1,2\n", 3),
        ("label,logit_a,logit_b\n0,1,2\n0,nan,2\n", 3),
        ("label,logit_a,logit_b\n0,1,2\n0,1_0,2\n", 3),
        ("label,logit_a\n0,1\n2,1\n", 3),
        ("0,1.5,2\n1,2,3\n", None),
        ("label;logit_a;logit_b\n0;1;2\n", None),
        ("label,logit_a,logit_a\n0,1,2\n", None),
        ("label,prediction\n0,1\n", None),
        ("label,logit_a,logit_b\n", None),
        ("\n\n", None),
        ('label,logit_a,logit_b\n0,"1,2\n0,1,2\n', None),
    ],
)
def test_csv(tmp_path, content, line):
    (tmp_path / "a.csv").write_text(content)
    assert f"line {line}" in fails(tmp_path / "a.csv") or line is None


@pytest.mark.parametrize(
    "second",
    [
        "{]",
        "[1, 2]",
        '{"label": 0, "logits": [1.0]}',
        '{"label": 0, "logits": 3}',
        '{"label": 0, "logits": [1.0, null]}',
        '{"label": 0, "logits": [1.0, true]}',
        '{"label": 0, "logits": [1.0, "2"]}',
        '{"label": 0}',
        '{"logits": [1.0, 2.0]}',
        '{"label": null, "logits": [1.0, 2.0]}',
    ],
)
def test_jsonl(tmp_path, second):
    (tmp_path / "a.jsonl").write_text('{"label": 0, "logits": [1.0, 2.0]}\n' + second + "\n")
    assert "line 2" in fails(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "columns",
    [
        {"label": [0, 1, None] * 2},
        {"logit_a": [0.5, 1.0, None] * 2},
        {"logit_a": ["x"] * 6},
        {"label": [[1]] * 6},
        {"label": ["cat"] * 6},
        {"logits": [[1.0, 2.0], [1.0, 2.0, 3.0]] * 3},
        {"logits": [[1.0, 2.0], [1.0, None]] * 3},
        {"logits": [None, [1.0, 2.0]] * 3},
        {"logits": [["x", "y"]] * 6},
    ],
)
def test_parquet(tmp_path, columns):
    base = {"label": LABELS, "logit_a": LOGITS[:, 0], "logit_b": LOGITS[:, 1]}
    pq.write_table(pa.table(base | columns), tmp_path / "a.parquet", row_group_size=2)
    fails(tmp_path / "a.parquet", kind=InputError)
