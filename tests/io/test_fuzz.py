"""No content of a file makes anything but an AttemperError escape."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attemper.data.columns import ColumnQuery, choose_columns
from attemper.errors import AttemperError
from attemper.io import open_scores

QUIET = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(path: Path, labels: Path | None, weights_key: str | None = None) -> None:
    """Read once as logits and once as probabilities; either may fail, in our own way."""
    for told in ({}, {"probs": True, "logits_key": "logits"}):
        try:
            for piece in open_scores(path, labels=labels, weights_key=weights_key, **told):
                assert piece.values.shape == (len(piece), piece.n_classes)
                assert piece.labels.shape == (len(piece),)
        except AttemperError as error:
            assert str(error)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def original(folder, form, save):
    """A good file, its bytes, and the file of labels where there is one."""
    rng = np.random.default_rng(0)
    weights = None if form == "npy" else rng.uniform(size=5)
    told = save(folder, form, rng.normal(size=(5, 3)).astype("f2"), rng.integers(0, 3, 5), weights)
    return told["paths"], told["paths"].read_bytes(), told.get("labels"), None if form == "npy" else "w"


@QUIET
@given(content=st.binary(max_size=300), keep=st.integers(0, 16))
def test_random_bytes(original, content, keep):
    path, good, *rest = original
    path.write_bytes(good[:keep] + content)
    read(path, *rest)


@QUIET
@given(part=st.floats(0, 1))
def test_truncated_files(original, part):
    path, good, *rest = original
    path.write_bytes(good[: int(part * len(good))])
    read(path, *rest)


@settings(QUIET, max_examples=150)
@given(data=st.data())
def test_flipped_bytes(original, data):
    path, good, *rest = original
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    read(path, *rest)


@QUIET
@given(place=st.floats(0, 1), insert=st.binary(min_size=1, max_size=20), remove=st.integers(0, 20))
def test_shifted_bytes(original, place, insert, remove):
    path, good, *rest = original
    at = int(place * len(good))
    path.write_bytes(good[:at] + insert + good[at + remove :])
    read(path, *rest)


@QUIET
@given(st.text(alphabet='label,0123456789.eE+-naif_"\n\r\0 é', max_size=200))
def test_csv_like_text(folder, content):
    path = folder / "text.csv"
    path.write_bytes(b"label,a,b\n" + content.encode())
    read(path, None)


@QUIET
@given(st.text(alphabet='{}[]":,0123456789.eE+-naifNIltru \\\n\0é', max_size=200))
def test_jsonl_like_text(folder, content):
    path = folder / "text.jsonl"
    path.write_bytes(b'{"label": 0, "a": 1.5, "b": 2}\n' + content.encode())
    read(path, None)


@QUIET
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["label", "a", "b", "logits", "c"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
                max_leaves=6,
            ),
        ),
        max_size=6,
    )
)
def test_rows_of_any_json(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) or "\n")
    read(path, None)


# Small files that claim gigabytes. Each is read in a child process that may take 1 GB and 10 s of CPU.

GIGA = 10**9
READERS = """if True:
    import json, os, resource, sys, traceback
    from attemper import load
    from attemper.cli.options import class_names
    from attemper.errors import AttemperError
    from attemper.io import open_scores
    from attemper.io.arrays import read_names
    from attemper.io.npz import NpzSource
    from attemper._paths import InputFile
    from pathlib import Path
    import pyarrow.parquet

    def read(path):
        open_scores(path).load()

    def of(key):
        return lambda path: read_names(NpzSource(InputFile(Path(path))), key)

    how = {"read": read, "load": load, "classes": class_names, "names": of("class_names"), "ids": of("image_id")}
    for name, which, path in json.loads(sys.argv[1]):
        told, tell = os.pipe()
        if not os.fork():
            status = 1
            try:
                in_use = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_AS, (in_use + 10**9,) * 2)
                resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
                how[which](path)
                text, status = "read", 0
            except AttemperError as error:
                text, status = str(error), 0
            except BaseException:
                text = traceback.format_exc()
            finally:
                os.write(tell, text[-4000:].encode("utf-8", "replace"))
                os._exit(status)
        os.close(tell)
        text = open(told).read()
        print(json.dumps([name, os.waitstatus_to_exitcode(os.wait()[1]), text]))
"""


def npz_of(path: Path, header: dict, data: Iterable[bytes] = (), name: str = "logits", **more: np.ndarray) -> None:
    """Write an array by hand, whose header says what it likes."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"fortran_order": False, **header})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(f"{name}.npy", "w") as member:
            for part in (head.getvalue(), *data):
                member.write(part)
        for key, array in more.items():
            with archive.open(f"{key}.npy", "w") as member:
                np.save(member, array)


def zeros(n: int) -> Iterator[bytes]:
    part = bytes(1 << 20)
    return (part[: min(1 << 20, n - at)] for at in range(0, n, 1 << 20))


def claiming_more(path: Path) -> None:
    """Let an archive's directory say that a member which is not compressed has 3 GB."""
    np.savez(path, logits=np.zeros((4, 2)))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\1\2") + 24
    content[at : at + 4] = (3 * GIGA).to_bytes(4, "little")
    path.write_bytes(content)


def parquet_of(path: Path, columns: dict) -> None:
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)


def one_long_list(n: int, dtype: str = "u1", more_rows: int = 0) -> pa.Array:
    """Write n zeros in the first row, and one in each of the others."""
    ends = np.concatenate([[0], n + np.arange(more_rows + 1)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.zeros(n + more_rows, dtype)))


def one_long_name(n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), ["n" * 20_000])


def safetensors_of(path: Path, text: bytes) -> None:
    path.write_bytes(len(text).to_bytes(8, "little") + text)


WIDE = 150 * 10**6
OBJECTS = b"{}," * (2 * 10**7) + b"{}"
# What writes it, what reads it, what the error names.
BOMBS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "list.parquet": (
        lambda p: parquet_of(p, {"logits": one_long_list(10**8), "label": [0]}),
        "read",
        "100000000 columns",
    ),
    # Small enough for the limit of memory in the footer.
    "doubles.parquet": (
        lambda p: parquet_of(p, {"logits": one_long_list(2 * 10**7, "f8"), "label": [0]}),
        "read",
        "20000000 columns",
    ),
    "first.parquet": (
        lambda p: parquet_of(p, {"logits": one_long_list(2 * 10**7, "f8", 999), "label": np.zeros(1000, np.int8)}),
        "read",
        "20000000 columns",
    ),
    "lists.parquet": (
        lambda p: parquet_of(p, {"logits": one_long_list(3 * 10**7, "f8", 999), "label": np.zeros(1000, np.int8)}),
        "read",
        "ATTEMPER_MAX_BYTES=720",
    ),
    "rows.parquet": (
        lambda p: parquet_of(p, {name: np.zeros(5 * 10**7, np.int8) for name in ("a", "b", "label")}),
        "read",
        "ATTEMPER_MAX_BYTES",
    ),
    "name.parquet": (
        lambda p: parquet_of(p, {"a": np.zeros(10**5), "b": np.zeros(10**5), "label": one_long_name(10**5)}),
        "read",
        "row 0 is 'nnn",
    ),
    "rows.npz": (
        lambda p: npz_of(p, {"descr": "|u1", "shape": (WIDE, 2)}, zeros(2 * WIDE)),
        "read",
        "'logits'.*ATTEMPER_MAX_BYTES=2400000000",
    ),
    "row.npz": (
        lambda p: npz_of(p, {"descr": "|u1", "shape": (1, 5 * 10**7)}, zeros(5 * 10**7), labels=np.array([0])),
        "read",
        "50000000 columns",
    ),
    "header.npz": (lambda p: npz_of(p, {"descr": "<f4", "shape": (10**9, 1000)}), "read", "'logits'.*bytes"),
    "stored.npz": (claiming_more, "read", "'logits' claims to unpack"),
    "names.npz": (lambda p: npz_of(p, {"descr": "<U1", "shape": (10**13,)}, name="class_names"), "names", "truncated"),
    "ids.npz": (
        lambda p: npz_of(p, {"descr": "<U1000000", "shape": (150,)}, zeros(6 * 10**8), name="image_id"),
        "ids",
        "'image_id'.*ATTEMPER_MAX_BYTES",
    ),
    "objects.json": (lambda p: p.write_bytes(b"[" + OBJECTS + b"]"), "load", "ATTEMPER_MAX_BYTES"),
    "digits.json": (lambda p: p.write_bytes(b"[" + (b"1" * 299 + b",") * 200_000 + b"1]"), "load", "not a document"),
    "objects.safetensors": (lambda p: safetensors_of(p, b'{"a":[' + OBJECTS + b"]}"), "read", "ATTEMPER_MAX_BYTES"),
    "commas.csv": (lambda p: p.write_bytes(b"ab," * 10**7 + b"\n"), "read", "line 1 is longer"),
    "columns.csv": (lambda p: p.write_bytes(b"a," * (7 * 10**6) + b"\n1\n"), "read", "7000001 columns"),
    "line.jsonl": (lambda p: p.write_bytes(b"[" * (20 * 10**6) + b"\n"), "read", "line 1 is longer"),
    "deep.jsonl": (lambda p: p.write_bytes(b"[" * 10**6 + b"\n"), "read", "line 1 is not JSON"),
    "objects.jsonl": (
        lambda p: p.write_bytes(b'{"a":[' + OBJECTS[: 15 << 20] + b"{}]}\n"),
        "read",
        "ATTEMPER_MAX_BYTES",
    ),
    "keys.jsonl": (
        lambda p: p.write_text("{" + ",".join(f'"{k:x}":1' for k in range(1_100_000)) + "}\n"),
        "read",
        "1100000 columns|ATTEMPER_MAX_BYTES",
    ),
    "digits.jsonl": (
        lambda p: p.write_bytes(b'{"label":0,"logits":[' + b"1" * 10**6 + b",0]}\n"),
        "read",
        "line 1 is not JSON",
    ),
    "names.txt": (lambda p: p.write_bytes(b"ab\n" * (12 * 10**6)), "classes", "more than"),
}


@pytest.fixture(scope="module")
def exploded(folder):
    """What becomes of each bomb: exit code and message."""
    cases = []
    for name, (write, how, _) in BOMBS.items():
        write(folder / name)
        cases.append((name, how, str(folder / name)))
    command = [sys.executable, "-c", READERS, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: (code, text) for name, code, text in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("name", BOMBS)
def test_small_files_do_not_take_gigabytes(exploded, folder, name):
    code, text = exploded[name]
    assert code == 0, text  # -24: more than 10 s of CPU
    assert name in text
    assert re.search(BOMBS[name][2], text), text


def test_the_limit_of_memory_can_be_raised(folder, monkeypatch):
    path = folder / "small.npz"
    npz_of(path, {"descr": "|u1", "shape": (10**6, 2)}, zeros(2 * 10**6), labels=np.zeros(10**6, np.int8))
    monkeypatch.setenv("ATTEMPER_MAX_BYTES", "1000000")
    with pytest.raises(AttemperError, match=r"small\.npz: 'logits'.* set the environment .*ATTEMPER_MAX_BYTES=2000"):
        open_scores(path)
    monkeypatch.setenv("ATTEMPER_MAX_BYTES", "16000000")
    assert len(open_scores(path).load()) == 10**6
    for wrong in ("1e9", "-1", "²", "1_0"):
        monkeypatch.setenv("ATTEMPER_MAX_BYTES", wrong)
        with pytest.raises(AttemperError, match=r"ATTEMPER_MAX_BYTES is .*expected a number of bytes"):
            open_scores(path)


class Counted(str):
    """A name that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other):
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("twice", [False, True])
def test_headers_are_read_in_linear_time(twice):
    n = 3000
    names = [Counted(f"c{i}x") for i in range(n)] + [Counted(f"c{n - 1}x" if twice else "label"), Counted("last")]
    Counted.comparisons = 0
    try:
        choose_columns(Path("a.csv"), names, ColumnQuery())
    except AttemperError as error:
        assert twice
        assert f"two columns are named 'c{n - 1}x'" in str(error)
    assert Counted.comparisons < 20 * n


@pytest.mark.slow
def test_wide_headers_with_stems_of_their_own_are_read(folder):
    """Took time with the square of the number of columns: minutes here."""
    n = 100_000
    path = folder / "wide.csv"
    path.write_text(",".join(["label", *(f"c{i}x1" for i in range(n))]) + "\n0" + ",1" * n + "\n")
    assert open_scores(path).load().n_classes == n
