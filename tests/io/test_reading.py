"""Every format gives the same scores, in pieces of bounded size."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from attemper import InputError
from attemper.data.scores import LabelledScores, Scores
from attemper.io import open_scores, reading


def same(scores: Scores, logits, labels, weights=None) -> None:
    np.testing.assert_array_equal(scores.values, logits)
    np.testing.assert_array_equal(scores.labels, labels)
    if weights is None:
        assert scores.weights is None
    else:
        np.testing.assert_array_equal(scores.weights, weights)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 7 * 8 * 6)  # seven rows, or a few more


def test_each_format_gives_what_was_saved(tmp_path, form, data, save):
    logits, labels, weights = data
    told = save(tmp_path, form, logits, labels, None if form == "npy" else weights)
    files = open_scores(**told, weights_key=None if form == "npy" else "w")
    assert files.n_classes == 4
    assert files.n_rows == (None if form in ("csv", "jsonl", "jsonl-list") else 101)
    scores = files.load()
    same(scores, logits, labels, None if form == "npy" else weights)
    whole = Scores.from_logits(logits, labels)
    assert scores.bound == pytest.approx(whole.bound)


def test_pieces_are_bounded_and_make_the_whole(tmp_path, form, data, save, small_blocks):
    logits, labels, _ = data
    files = open_scores(**save(tmp_path, form, logits, labels))
    pieces = list(files)
    assert len(pieces) > 7
    assert max(map(len, pieces)) <= 10
    same(files.load(), logits, labels)
    assert files.load().bound == max(piece.bound for piece in pieces)
    assert [len(piece) for piece in files] == [len(piece) for piece in pieces]  # can be read again


@pytest.mark.parametrize("packed", [False, True])
def test_column_major_arrays(tmp_path, data, small_blocks, packed):
    logits, labels, _ = data
    np.save(tmp_path / "f.npy", np.asfortranarray(logits))
    np.save(tmp_path / "y.npy", labels)
    same(open_scores(tmp_path / "f.npy", labels=tmp_path / "y.npy").load(), logits, labels)
    saver = np.savez_compressed if packed else np.savez
    saver(tmp_path / "f.npz", logits=np.asfortranarray(logits), labels=labels)
    same(open_scores(tmp_path / "f.npz").load(), logits, labels)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8", "longdouble", "int16", "uint8"])
def test_number_types(tmp_path, data, dtype):
    logits = np.abs(data[0] * 10).astype(dtype)
    np.savez(tmp_path / "a.npz", logits=logits, labels=data[1].astype(">i4"))
    scores = open_scores(tmp_path / "a.npz").load()
    same(scores, logits.astype(np.float64), data[1])
    assert scores.values.dtype.isnative
    assert scores.values.dtype.itemsize <= 8


def test_bfloat16(tmp_path, data):
    half = torch.tensor(data[0]).bfloat16()
    save_file({"logits": half}, tmp_path / "a.safetensors")
    scores = open_scores(tmp_path / "a.safetensors", need_labels=False).load()
    np.testing.assert_array_equal(np.asarray(scores.logits, np.float32), half.float().numpy())


def test_keys_can_be_told(tmp_path, data):
    logits, labels, weights = data
    arrays = {
        "val_logits": logits,
        "val_labels": labels,
        "logits": -logits,
        "labels": 0 * labels,
        "w": weights,
    }
    np.savez(tmp_path / "a.npz", **arrays)
    keys = {"logits_key": "val_logits", "labels_key": "val_labels", "weights_key": "w"}
    same(open_scores(tmp_path / "a.npz", **keys).load(), logits, labels, weights)
    same(open_scores(tmp_path / "a.npz").load(), -logits, 0 * labels)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_of_a_table(tmp_path, data, ending):
    """Those named, those with a prefix, or those with the names of the classes; else an error."""
    logits, labels = data[0].astype(np.float64), data[1] % 3
    names = np.array(["cat", "dog", "eel"])
    table = {"id": np.arange(101), "target": names[labels], "label": labels, "z_eel": logits[:, 2]}
    table |= {"z_cat": logits[:, 0], "z_dog": logits[:, 1], "logit_0": logits[:, 3], "logit_1": logits[:, 0]}
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table(table), path)
    else:
        rows = [dict(zip(table, row)) for row in zip(*(np.asarray(column).tolist() for column in table.values()))]
        lines = [",".join(table), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines if ending == "csv" else map(json.dumps, rows)) + "\n\n")
    columns = ["z_dog", "z_cat", "z_eel"]
    same(open_scores(path, columns=columns).load(), logits[:, [1, 0, 2]], labels)
    found = open_scores(path, columns=columns, labels_key="target").load()
    same(found, logits[:, [1, 0, 2]], np.array([1, 0, 2])[labels])
    assert found.classes == ("dog", "cat", "eel")
    same(open_scores(path, logits_key="z_").load(), logits[:, [2, 0, 1]], labels)
    same(open_scores(path, logits_key="z_", classes=names, labels_key="target").load(), logits[:, :3], labels)
    same(open_scores(path, ignore_index=2).load(), logits[labels < 2][:, [3, 0]], labels[labels < 2])
    for told in (
        {"input": "probs"},
        {"columns": ["z_cow"]},
        {"columns": ["label", "z_cat"]},
        {"logits_key": "z_", "classes": ["cat", "dog", "emu"]},
        {"columns": columns, "classes": names, "labels_key": "target"},
        {"labels_key": "y"},
    ):
        with pytest.raises(InputError):
            open_scores(path, **told)


def test_numbered_columns_stand_in_order(tmp_path):
    (tmp_path / "a.csv").write_text("label,logit_0,logit_10,logit_2\n0,1,2,3\n")
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.csv")


def test_one_column_is_of_the_second_class(tmp_path, form, data, save):
    z, y = data[0][:, :1].copy(), data[1] % 2
    kinds = {"numbers": y, "signs": 2 * y - 1}
    if form != "safetensors":  # which has no text
        kinds["names"] = np.array(["no", "yes"])[y]
    for kind, labels in kinds.items():
        more = {"classes": ["no", "yes"]} if kind == "names" else {}
        scores = open_scores(**save(tmp_path, form, z, labels), **more).load()
        same(scores, np.column_stack([np.zeros(101), z[:, 0]]), y)


def test_rows_to_ignore_and_columns_of_options(tmp_path, form, data, save):
    logits, labels, _ = data
    ignored = np.where(np.arange(101) % 3 == 0, -100, labels)
    told = save(tmp_path, form, logits, ignored)
    keep = ignored >= 0
    same(open_scores(**told, ignore_index=-100).load(), logits[keep], labels[keep])
    files = open_scores(**save(tmp_path, form, logits, labels % 3), columns=[3, 0, 2])
    assert files.n_classes == 3
    same(files.load(), logits[:, [3, 0, 2]], labels % 3)


def test_ids_from_files_of_their_own(tmp_path, data):
    """A byte-order mark is no part of the first id."""
    np.savez(tmp_path / "a.npz", logits=data[0], labels=data[1], site=np.array(["b"] * 101))
    (tmp_path / "ids.txt").write_text("\n".join(["a"] * 101), encoding="utf-8-sig")
    scores = open_scores(tmp_path / "a.npz", groups_key="site", clusters_key=str(tmp_path / "ids.txt")).load()
    assert (set(scores.groups), set(scores.clusters)) == ({"b"}, {"a"})


def test_probabilities(tmp_path, form, data, save):
    probs = np.exp(data[0].astype(np.float64))
    probs = np.round(probs / probs.sum(axis=1, keepdims=True), 3)
    told = save(tmp_path, form, probs, data[1], key="probs")
    scores = open_scores(**told, input="probs", zeros_as=1e-4).load()
    assert (scores.input, scores.zeros_as) == ("probs", 1e-4)
    same(scores, probs, data[1])


def test_named_labels(tmp_path, form, data, save):
    logits, labels, _ = data
    kinds = [[7, 8, 9, 11], ["cat", "dog", "emu", "fox"]]
    for names in kinds[:1] if form == "safetensors" else kinds:  # which holds numbers only
        told = save(tmp_path, form, logits, np.array(names)[labels])
        same(open_scores(**told, classes=names).load(), logits, labels)


def test_labels_of_new_data_are_read_only_if_told(tmp_path, form, data, save):
    logits, labels, _ = data
    told = save(tmp_path, form, logits, np.full(101, -1))
    told.pop("labels", None)
    scores = open_scores(**told, need_labels=False).load()
    assert not isinstance(scores, LabelledScores)
    np.testing.assert_array_equal(scores.values, logits)
    told = save(tmp_path, form, logits, labels)
    key = {"csv": "label", "jsonl": "label", "parquet": "label", "npy": None}.get(form.partition("-")[0], "labels")
    same(open_scores(**told, labels_key=key, need_labels=False).load(), logits, labels)


def test_several_files_of_several_formats_are_one_data_set(tmp_path, data, save, monkeypatch):
    logits, labels, _ = data
    forms = ["csv", "npz", "parquet", "safetensors", "parquet-list", "jsonl-list"]
    parts = np.array_split(np.arange(101), len(forms))
    paths = [
        save(tmp_path, form, logits[part], labels[part], stem=f"{i}-shard")["paths"]
        for i, (form, part) in enumerate(zip(forms, parts))
    ]
    same(open_scores(paths).load(), logits, labels)
    same(open_scores(tmp_path / "?-shard.*").load(), logits, labels)
    same(open_scores([str(paths[0]), str(tmp_path / "[1-9]-shard.*")]).load(), logits, labels)
    monkeypatch.chdir(tmp_path)
    same(open_scores("*.*").load(), logits, labels)
    assert open_scores(paths[1:5]).n_rows == 101 - len(parts[0]) - len(parts[5])


def test_pairs_of_npy_files_by_pattern(tmp_path, data):
    logits, labels, _ = data
    for i, part in enumerate(np.array_split(np.arange(101), 3)):
        np.save(tmp_path / f"logits_{i}.npy", logits[part])
        np.save(tmp_path / f"labels_{i}.npy", labels[part][:, None])
    same(open_scores(tmp_path / "logits_*.npy", labels=tmp_path / "labels_*.npy").load(), logits, labels)


def test_an_empty_shard_is_an_error(tmp_path, form, data, save):
    logits, labels, _ = data
    empty = save(tmp_path, form, logits[:0], labels[:0], stem="a")
    if form.startswith("jsonl"):  # without rows it has no bytes, which is an error of its own
        with pytest.raises(ValueError):
            open_scores(**empty).load()
        return
    full = save(tmp_path, form, logits, labels, stem="b")
    told = {name: [empty[name], full[name]] for name in full}
    for given in (told, empty):
        with pytest.raises(ValueError):
            open_scores(**given).load()


def test_csv_as_others_write_it(tmp_path):
    text = '\ufefflabel , "logit_cat, tame",logit_dog\r\n1, 1.5,-inf\r\n"0",2e-3 ,"4"\r\n'.replace(
        ', "logit_cat', ',"logit_cat'
    )
    (tmp_path / "a.csv").write_bytes(text.replace("1, 1.5,-inf", "0, 1.5,-inf").encode())
    scores = open_scores(tmp_path / "a.csv").load()
    same(scores, [[1.5, -np.inf], [2e-3, 4]], [0, 0])
    assert scores.masked


def test_weights_may_be_zero_in_a_piece_but_not_everywhere(tmp_path, data, small_blocks):
    logits, labels, weights = data
    weights[:50] = 0
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, w=weights, zero=0 * weights)
    same(open_scores(tmp_path / "a.npz", weights_key="w").load(), logits, labels, weights)
    with pytest.raises(ValueError):
        open_scores(tmp_path / "a.npz", weights_key="zero").load()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["big.npy", "big.parquet"])
def test_memory_is_bounded_by_the_piece(tmp_path, name):
    """The file takes 200 MB, the process not half of that beyond what importing takes."""
    n, n_classes = 500_000, 100
    logits = np.broadcast_to(np.linspace(0, 1, n_classes, dtype=np.float32), (n, n_classes))
    if name == "big.npy":
        np.save(tmp_path / name, logits)
    else:
        rng = np.random.default_rng(0)
        piece = pa.array(rng.normal(size=20_000 * n_classes).astype(np.float32))
        table = pa.table({"logits": pa.FixedSizeListArray.from_arrays(piece, n_classes)})
        with pq.ParquetWriter(tmp_path / name, table.schema, use_dictionary=False) as writer:
            for _ in range(25):
                writer.write_table(table)
    assert (tmp_path / name).stat().st_size > 180e6
    program = f"""
        import resource, numpy as np
        import pyarrow.parquet
        from attemper.io import open_scores
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = sum(map(len, open_scores({str(tmp_path / name)!r}, need_labels=False)))
        print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    rows, kilobytes = map(int, done.stdout.split())
    assert rows == n
    assert kilobytes < 100_000


@pytest.mark.slow
def test_optional_packages_are_imported_only_when_needed():
    # scikit-learn imports pandas where there is one, and pandas imports pyarrow.
    program = (
        "import sys; sys.modules['pandas'] = None; import attemper.io;"
        "print({'pyarrow', 'safetensors', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
