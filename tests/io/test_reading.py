"""Every format gives the same scores, in pieces of bounded size."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attemper.data.scores import LabelledScores, Scores
from attemper.io import open_scores, reading
from attemper.io.parquet_footer import column_chunks


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


@pytest.mark.parametrize("dtype, numpy_dtype", [("F16", "<f2"), ("F64", "<f8"), ("I8", "<i1")])
def test_safetensors_types(tmp_path, data, raw_safetensors, dtype, numpy_dtype):
    logits, labels = data[0].astype(numpy_dtype), data[1].astype("<i4")
    raw_safetensors(
        tmp_path / "a.safetensors",
        {"labels": ("I32", (101,), labels.tobytes()), "logits": (dtype, (101, 4), logits.tobytes())},
    )
    same(open_scores(tmp_path / "a.safetensors").load(), logits.astype(np.float64), labels)


def test_bfloat16_is_the_upper_half_of_float32(tmp_path, data, raw_safetensors):
    upper = (data[0].view(np.uint32) >> 16).astype("<u2")
    expected = (upper.astype(np.uint32) << 16).view(np.float32)
    raw_safetensors(tmp_path / "a.safetensors", {"logits": ("BF16", (101, 4), upper.tobytes())})
    scores = open_scores(tmp_path / "a.safetensors", need_labels=False).load()
    assert scores.values.dtype == np.float32
    np.testing.assert_array_equal(scores.values, expected)
    np.testing.assert_allclose(scores.values, data[0], rtol=2**-7)


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


def test_a_prefix_picks_the_columns_of_a_table(tmp_path, data):
    logits, labels = data[0].astype(np.float64), data[1]
    columns = {
        "id": np.arange(101),
        "target": labels,
        "label": 0 * labels,
        "z_a": logits[:, 0],
        "z_b": logits[:, 1],
    }
    columns = {"z_a.0": logits[:, 3]} | columns | {"target": labels % 3}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n\n")
    for name in ("a.parquet", "a.csv"):
        scores = open_scores(tmp_path / name, labels_key="target", logits_key="z_").load()
        same(scores, logits[:, [3, 0, 1]], labels % 3)


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


def test_other_kinds_of_named_labels(tmp_path, data):
    logits, labels, _ = data
    names = np.array(["katze", "hündin", "emu", "fuchs"])
    np.savez(tmp_path / "bytes.npz", logits=logits, labels=np.strings.encode(names[labels], "utf-8"))
    table = {"logits": logits.tolist(), "label": pa.array(names[labels].tolist()).dictionary_encode()}
    pq.write_table(pa.table(table), tmp_path / "dictionary.parquet")
    for name in ("bytes.npz", "dictionary.parquet"):
        same(open_scores(tmp_path / name, classes=names).load(), logits, labels)


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


def test_an_empty_shard_is_an_error_unless_it_is_to_be_passed_over(tmp_path, form, data, save):
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
    same(open_scores(**told, skip_empty=True).load(), logits, labels)
    with pytest.raises(ValueError):
        open_scores(**empty, skip_empty=True).load()


def test_csv_as_others_write_it(tmp_path):
    text = '\ufefflabel , "cat, tame",dog\r\n1, 1.5,-inf\r\n"0",2e-3 ,"4"\r\n'.replace(', "cat', ',"cat')
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
@pytest.mark.parametrize("name", ["big.npy", "big.npz", "big.parquet"])
def test_memory_is_bounded_by_the_piece(tmp_path, name):
    """The file takes 200 MB, the process not half of that beyond what importing takes."""
    n, n_classes = 500_000, 100
    logits = np.broadcast_to(np.linspace(0, 1, n_classes, dtype=np.float32), (n, n_classes))
    if name == "big.npy":
        np.save(tmp_path / name, logits)
    elif name == "big.npz":
        np.savez(tmp_path / name, logits=logits)
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


def test_the_footer_of_a_parquet_file_is_read_as_arrow_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"label": ["cat", "dog", "eel"] * 40, "x": rng.random(120), "h": [[1.0, 2.0, 3.0]] * 120}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=50, compression="zstd")
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    with (tmp_path / "a.parquet").open("rb") as stream:
        found = column_chunks(stream)
    parts = [metadata.row_group(g).column(c) for g in range(3) for c in range(3)]
    assert found == [(part.path_in_schema, part.num_values, part.total_uncompressed_size) for part in parts]


@pytest.mark.slow
def test_a_damaged_footer_of_parquet_is_an_error_not_an_abort(tmp_path):
    """In a child: Arrow would end the process where the description of a part is missing."""
    program = """
import sys
from attemper import AttemperError
from attemper.io import open_scores
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(0)
pq.write_table(pa.table({"label": ["a", "b"] * 20, "u": rng.random(40), "v": rng.random(40)}), "a.parquet")
data = open("a.parquet", "rb").read()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
for at in range(start, start + 400):
    for bit in range(8):
        open("b.parquet", "wb").write(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            open_scores("b.parquet", classes=["a", "b"])
        except AttemperError:
            pass
print("alive")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "alive\n", done.stderr[-500:]
