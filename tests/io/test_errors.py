"""Whatever is wrong with a file, one sentence says what, where and how to mend it."""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attemper.errors import AttemperError, FileError, InputError, MissingExtraError
from attemper.io import open_scores, parquet

from data import draw

LOGITS = np.arange(12.0).reshape(6, 2)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def fails(match: str, *args, kind: type[AttemperError] = AttemperError, **told) -> None:
    with pytest.raises(kind):
        open_scores(*args, **told).load()


@pytest.fixture
def good(tmp_path) -> Path:
    np.savez(tmp_path / "good.npz", logits=LOGITS, labels=LABELS)
    return tmp_path / "good.npz"


def text(folder: Path, content: str | bytes) -> Path:
    path = folder / "a.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# What is not there, or is something else


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "jsonl", "safetensors", "parquet"])
def test_files_that_cannot_be_opened(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    fails(rf"a\.{ending}: there is no such file", path, kind=FileError, need_labels=False)
    path.touch()
    fails(r"is empty \(0 bytes\)", path, kind=FileError, need_labels=False)
    path.unlink()
    path.mkdir()
    fails("a directory; pass the files in it", path, kind=FileError, need_labels=False)
    path.rmdir()
    os.mkfifo(path)
    fails("not a regular file", path, kind=FileError, need_labels=False)


def test_paths(tmp_path, good):
    fails("a directory; pass the files in it", tmp_path, kind=FileError)
    fails("no file matches this pattern", tmp_path / "*.parquet", kind=FileError)
    fails("pattern", tmp_path / "**x", kind=FileError)
    fails("no file was given", [], kind=FileError)
    fails("given twice", [good, tmp_path / "*.npz"], kind=FileError)
    fails("cannot be read", str(tmp_path / "nul\0.npz"), kind=FileError)
    (tmp_path / "a.pkl").touch()
    fails(
        r"use one of \.csv, \.jsonl, \.ndjson, \.npy, \.npz, \.parquet, \.safetensors",
        tmp_path / "a.pkl",
        kind=FileError,
    )


def test_permission(good, monkeypatch):
    def refuse(*_):  # in place of chmod(0): root may read everything
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refuse)
    fails(r"good\.npz: cannot be read: Permission denied", good, kind=FileError)
    monkeypatch.setattr(Path, "stat", refuse)
    fails(r"good\.npz: cannot be read: Permission denied", good, kind=FileError)


def test_a_missing_package(tmp_path, monkeypatch):
    def missing(module, *, extra, why):
        raise MissingExtraError(f"{module} {extra} {why}")

    pq.write_table(pa.table({"label": LABELS, "a": LOGITS[:, 0], "b": LOGITS[:, 1]}), tmp_path / "a.parquet")
    monkeypatch.setattr(parquet, "require", missing)
    fails("pyarrow parquet to read parquet files", tmp_path / "a.parquet", kind=MissingExtraError)


# Keys, shapes and types


def test_keys_that_are_not_there(tmp_path, good, save):
    fails(r"no array 'x'; it holds 'logits', 'labels'\. .* logits_key", good, logits_key="x")
    fails(r"no array 'y'.* labels_key", good, labels_key="y")
    fails(r"no array 'w'.* weights_key", good, weights_key="w")
    fails("no array 'probs'", good, input="probs")
    told = save(tmp_path, "safetensors", LOGITS, LABELS)
    fails(r"no array 'x'; it holds 'l\w+', 'l\w+'\. .* logits_key", **told, logits_key="x")
    for form in ("csv", "parquet", "parquet-list"):
        told = save(tmp_path, form, LOGITS, LABELS)
        fails(r"no column 'y'; there are 'label', 'logit.*labels_key", **told, labels_key="y")
        fails(r"no column 'w'; .*weights_key", **told, weights_key="w")
    fails(r"no column that begins with 'x'; there are 'label', 'logits'.*logits_key", **told, logits_key="x")


def test_labels_in_files_of_their_own(tmp_path, good):
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, LOGITS)
    np.save(y, LABELS)
    fails("has no labels; add labels='labels.npy'", x, kind=FileError)
    fails("1 files of logits, but 2 files of labels", x, labels=[y, x])
    fails(r"so no weights; save .* as \.npz", x, labels=y, weights_key="w")
    fails(r"good\.npz: .* use one of \.npy", x, labels=good)
    fails("labels of a table are one of its columns", text(tmp_path, "a,b\n1,2\n"), labels=y)
    np.save(y, LABELS[:5])
    fails(r"y\.npy: 'labels' has shape \(5,\); expected one entry per row of logits, shape \(6,\)", x, labels=y)


def test_shapes_and_types(tmp_path):
    path = tmp_path / "a.npz"

    def wrong(match, logits=LOGITS, labels=LABELS, **told):
        np.savez(path, logits=logits, labels=labels)
        fails("a.npz: .*" + match, path, kind=InputError, **told)

    wrong(r"shape \(6,\); expected one entry per row of logits, shape \(12,\)", logits=LOGITS.ravel())
    wrong(r"shape \(\); expected two dimensions", logits=np.float64(3))
    wrong("row 2 has label 7, but there is 1 feature", logits=LOGITS[:, :1], labels=[0, 1, 7, 0, 1, 0])
    wrong("0 columns of logits; expected one per class", logits=LOGITS[:, :0])
    wrong("dtype complex128; expected numbers", logits=LOGITS + 0j)
    wrong("dtype <U4; expected numbers", logits=LOGITS.astype(str).astype("<U4"))
    wrong("dtype datetime64.*; expected numbers or names", labels=LABELS.astype("M8[s]"))
    wrong(r"several classes or none", labels=np.ones((6, 2)))
    wrong(r"labels: row 4 is 'cat', not a column number.*classes=", labels=["0", "1", "0", "1", "cat", "1"])
    wrong("row 0 is '0', which is not among .*labels_are='numbers'", classes=["1", "2"])
    wrong("row 0 is '0', which is not among", classes=["cat", "dog"], labels_are="names")
    wrong("classes: 3 names for 2 columns", classes=["cat", "dog", "eel"])
    wrong("1 names for 2 columns", classes=["cat"])
    wrong("row 2 has label 7, but there are 2 columns", labels=[0, 1, 7, 0, 1, 0])
    wrong("row 0 is .*no distribution|row 0, column 0 is -1", logits=LOGITS - 1, input="probs", logits_key="logits")
    wrong(r"zeros_as=2: must lie", input="probs", zeros_as=2, logits_key="logits")
    fails("only probabilities take zeros_as", path, zeros_as=0.1)


def test_the_row_is_that_of_its_file(tmp_path, good, monkeypatch):
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 50)
    bad = LOGITS.copy()
    bad[4, 1] = np.nan
    np.savez(tmp_path / "bad.npz", logits=bad, labels=LABELS)
    fails(r"bad\.npz: logits: row 4, column 1 is NaN", [good, tmp_path / "bad.npz"], kind=InputError)


def test_files_that_do_not_go_together(tmp_path, good, save):
    wide = save(tmp_path, "csv", np.ones((2, 3)), [0, 1], stem="wide")["paths"]
    fails(r"wide\.csv: expected 2 classes, as .*good\.npz has, got 3", [good, wide], kind=InputError)
    other = text(tmp_path, "label,logit_1,logit_0,logit_2\n0,1,2,3\n".replace("logit_", "z"))
    fails(r"the columns of logits are numbered but not in order", other)
    other = text(tmp_path, "label,logit_0,b,logit_2\n0,1,2,3\n")
    fails(r"a\.csv: is 'b' a class like 'logit_0'.*logits_key='logit_'", other)
    other = text(tmp_path, "label,a,b,c\n0,1,2,3\n")
    fails(r"a\.csv: class 0 is column 'a', but in .*wide\.csv it is 'logit_0'", [wide, other])


def test_signalling_nan_is_reported_without_a_warning(tmp_path):
    """The kind of NaN that damaged bytes make; numpy warns when it is only looked at."""
    nan = np.array([0x7D01] * 6, dtype="<u2").view("<f2")
    np.savez(tmp_path / "a.npz", logits=LOGITS, bad=np.stack([nan, nan], axis=1), labels=LABELS, w=nan)
    fails("sample_weight: row 0 is nan", tmp_path / "a.npz", weights_key="w")
    fails("labels: .* row 0 is nan", tmp_path / "a.npz", labels_key="w")
    fails("logits: row 0, column 0 is NaN", tmp_path / "a.npz", logits_key="bad")
    fails("row 0, column 0 is nan", tmp_path / "a.npz", logits_key="bad", input="probs")


# Arrays that lie about themselves


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + data


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 10)}"


@pytest.mark.parametrize(
    "content, match",
    [
        (npy(HUGE, b"12345678"), r"takes 40000000000000 bytes, but there are 8: truncated"),
        (npy(HUGE.replace("1000000000000", "-1")), "shape"),
        (npy(HUGE.replace("1000000000000", "1"), bytes(44)), "more than one array"),
        (npy(HUGE.replace("<f4", "|O")), "pickled Python objects, which could run code; not read"),
        (npy(HUGE.replace("<f4", "<q9")), "cannot be read as a NumPy array"),
        (npy("{" * 5000), "cannot be read as a NumPy array"),
        (npy(" " * 60000), "cannot be read as a NumPy array"),
        (npy(HUGE, version=b"\3\0"), "format version"),
        (b"\x93NUM", "cannot be read as a NumPy array"),
        (b"PK\3\4 no array", "cannot be read as a NumPy array"),
    ],
)
def test_npy_headers(tmp_path, content, match):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    fails(match, path, kind=FileError, need_labels=False)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("logits.npy", content)
    fails(match, tmp_path / "a.npz", kind=FileError, need_labels=False)


def test_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=np.array(["a", None] * 3, dtype=object))
    fails(r"'labels' holds pickled Python objects, which could run code; not read", tmp_path / "a.npz")
    open_scores(tmp_path / "a.npz", need_labels=False).load()  # what is not asked for does no harm


def test_a_zip_bomb(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", npy(HUGE, bytes(1000)))
    packed = bytearray(path.read_bytes())
    at = packed.rindex(b"PK\1\2") + 24  # the size that the directory declares
    packed[at : at + 4] = struct.pack("<I", 4_000_000_000)
    path.write_bytes(packed)
    fails(r"to 4000000000, which cannot be", path, kind=FileError, need_labels=False)


def test_zip_features_that_numpy_does_not_use(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, LOGITS)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("logits.npy", buffer.getvalue())
        fails("compressed in a way that numpy does not write", tmp_path / "a.npz", need_labels=False)


def test_damage_inside_a_member_is_noticed(good):
    content = bytearray(good.read_bytes())
    content[content.index(LOGITS.tobytes()) + 3] ^= 1
    good.write_bytes(content)
    fails("Bad CRC-32", good, kind=FileError)


def test_safetensors_headers(tmp_path, raw_safetensors):
    path = tmp_path / "a.safetensors"

    def wrong(match, shape=(6, 2), dtype="F64", cut=None):
        raw_safetensors(path, {"logits": (dtype, shape, LOGITS.tobytes())})
        path.write_bytes(path.read_bytes()[:cut])
        fails(match, path, need_labels=False)

    wrong("takes 160 bytes, but there are 96", shape=(10, 2))
    wrong("takes 80000000000000 bytes, but there are 96", shape=(10**12, 10))
    wrong("does not fit the file's", shape=(-6, -2))
    wrong("does not fit the file's", shape=(True, 12))
    wrong("does not fit the file's", shape="62")
    wrong("does not fit the file's", cut=-1)
    wrong("header would be", cut=20)
    wrong("header would be", cut=5)
    wrong("F8_E4M3, which is not supported; save it as float32", dtype="F8_E4M3")
    for header, match in [
        (b"[1]", "not a JSON object"),
        (b"[" * 99999, "not JSON"),
        (b"\xff\xff", "not JSON"),
    ]:
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        fails(match, path, kind=FileError)


# Tables


@pytest.mark.parametrize(
    "content, match",
    [
        ("label,a,b\n0,1,2\n1,x,2\n", r"a\.csv: line 3, column 'a' is 'x', not a number"),
        ("label,a,b\n0,1,2\n1,3,\n", r"line 3, column 'b' is '', not a number"),
        ("label,a,b\n0,1,2\n\n1,2\n", r"line 4 has 2 fields, but the header has 3"),
        ("label,a,b\n0,1,2,3\n", r"line 2 has 4 fields, but the header has 3"),
        ("0,1.5,2\n1,2,3\n", "first line holds numbers only; a line of column names"),
        ("label;a;b\n0;1;2\n", "holds one column, 'label;a;b'; separate columns by commas"),
        ("label,a,a\n0,1,2\n", "two columns are named 'a'"),
        ("label,prediction\n0,1\n", "no column other than the label"),
        (",label,a,b\n0,0,1,2\n", "a column without a name.*pandas writes its index"),
        ("label,a\n0,1\n2,1\n", "line 3 has label 2, but there is 1 feature"),
        ("label,a,b\n", "no rows"),
        ("\n\n", "nothing but blank lines"),
        ("label,a,b\n0,1,2\0\n", "line 2 holds a NUL byte"),
        (b"label,a,b\n0,1,2\n0,\xff,2\n", "line 3 is not UTF-8 text"),
        ("label,a,b\n0,1,2\n".encode("utf-16"), "line 1 is not UTF-8 text"),
        ('label,a,b\n0,"1,2\n0,1,2\n', "quotation mark that is not closed"),
        ('label,a,b\n0,"' + "1" * 200_000 + '",2\n', "line 2: field larger than field limit"),
        ("label,a,b\r0,1,2\r", "new-line character seen"),
        ("label,a,b\n0,1,2\ncat,1,2\n", "line 3 is 'cat', not a column number.*classes="),
        ("label,a,b\n0,1,2\n,1,2\n", "line 3, column 'label' is empty; expected a label. Fill it in or drop that line"),
        ("label,a,b\n0,1,2\n0,nan,2\n", "logits: line 3, column 0 is NaN"),
        ("label,a,b\n0,1,2\n1e999,1,2\n", "line 3 is inf"),
    ],
)
def test_csv(tmp_path, content, match):
    fails(match, text(tmp_path, content))


def test_csv_weights_must_be_numbers(tmp_path):
    fails("line 2, column 'w' is 'x'", text(tmp_path, "label,w,a,b\n0,x,1,2\n"), weights_key="w")


@pytest.mark.parametrize("number", ["1_0", "٣", "１", "²"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_python_alone_takes_for_a_number(tmp_path, number, place):
    cells = ["0", "1.5", "2"]
    cells[place] = number
    where = ["labels: line 3 is", "line 3, column 'a' is", "line 3, column 'w' is"][place]
    path = text(tmp_path, "label,a,w,b\n0,1,2,3\n" + ",".join([*cells, "1"]) + "\n")
    fails(where, path, weights_key="w")


def test_csv_lines_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("attemper.io.csv.MAX_LINE_BYTES", 20)
    fails("line 2 is longer than 20 bytes", text(tmp_path, "label,a,b\n0,1," + "2" * 50))


def nulls(values, at):
    return pa.array([None if i == at else v for i, v in enumerate(values)])


@pytest.mark.parametrize(
    "columns, match",
    [
        ({"label": nulls(LABELS.tolist(), 3)}, "column 'label': row 3 is null; fill in or drop"),
        ({"a": nulls(LOGITS[:, 0].tolist(), 4)}, "column 'a': row 4 is null"),
        ({"label": nulls(["0", "1"] * 3, 5).dictionary_encode()}, "column 'label': row 5 is null"),
        ({"a": ["x"] * 6}, "column 'a' is of type string, not numbers"),
        ({"a": [[1.0, 2.0]] * 6}, "column 'a' is of type list<.*>, not numbers"),
        ({"label": [[1]] * 6}, "column 'label' is of type list<.*>; expected labels"),
        ({"label": ["cat"] * 6}, "row 0 is 'cat', not a column number"),
        ({"__index_level_0__": LABELS}, "pandas writes its index"),
        ({"logits": [[1.0, 2.0], [1.0, 2.0, 3.0]] * 3}, "row 1 holds 3 numbers, but row 0 holds 2"),
        ({"logits": [[1.0, 2.0], [1.0, None]] * 3}, "column 'logits': row 1 is null"),
        ({"logits": [[1.0, 2.0], [1.0, 2.0], None] * 2}, "column 'logits': row 2 is null"),
        ({"logits": [None, [1.0, 2.0]] * 3}, "column 'logits': row 0 is null"),
        ({"logits": [["x", "y"]] * 6}, "not lists of numbers"),
        ({"logits": [[]] * 6}, "not lists of numbers|0 columns of logits"),
    ],
)
def test_parquet(tmp_path, columns, match):
    base = {"label": LABELS, "a": LOGITS[:, 0], "b": LOGITS[:, 1]}
    pq.write_table(pa.table(base | columns), tmp_path / "a.parquet", row_group_size=2)
    fails(r"a\.parquet: .*" + match, tmp_path / "a.parquet", kind=InputError)


def test_parquet_lists_of_fixed_size_that_are_null(tmp_path):
    lists = pa.array([None, [1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"label": LABELS, "logits": lists}), tmp_path / "a.parquet", row_group_size=2)
    # Old versions of pyarrow cannot read them at all, and say so.
    fails(r"a\.parquet: .*(row 0 is null|lists to be of size=2)", tmp_path / "a.parquet")


def test_parquet_that_is_none(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    fails(r"a\.parquet: cannot be read as parquet, perhaps damaged or truncated", tmp_path / "a.parquet")


def test_a_file_under_two_names_counts_once(tmp_path):
    h, y = draw(5, 3)
    np.savez(tmp_path / "a.npz", logits=h, labels=y)
    (tmp_path / "b.npz").symlink_to(tmp_path / "a.npz")
    with pytest.raises(FileError):
        open_scores([tmp_path / "a.npz", tmp_path / "b.npz"])
    with pytest.raises(FileError):
        open_scores(tmp_path / "x[1]/*.npz")
