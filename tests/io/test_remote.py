"""Remote files: every format at an address, patterns, and errors that name the address but no secret."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import attemper
from attemper import Sketch, TemperatureScaling
from attemper._paths import Remote, as_path, expand_paths, local
from attemper.cli import main
from attemper.errors import FileError, InputError, MissingExtraError
from attemper.io import ProbRows, open_scores, reading, write_probs


@pytest.fixture(autouse=True)
def memory():
    """Begin and end with nothing in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


def uploaded(folder, told):
    """Put the files of ``told`` into memory; return where they are now."""
    moved = {}
    for name, value in told.items():
        if name in ("paths", "labels"):
            url = f"memory://shards/{value.name}"
            with fsspec.open(url, "wb") as target, value.open("rb") as source:
                shutil.copyfileobj(source, target)
            value = url
        moved[name] = value
    return moved


def test_every_format_is_read_by_pieces(tmp_path, form, data, save, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 7 * 8 * 6)
    logits, labels, _ = data
    told = save(tmp_path, form, logits, labels)
    here, there = open_scores(**told), open_scores(**uploaded(tmp_path, told))
    assert (there.n_rows, there.n_classes) == (here.n_rows, here.n_classes)
    pieces = list(there)
    assert len(pieces) > 7
    for one, other in zip(pieces, here, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.labels, other.labels)


class Watched(MemoryFileSystem):
    """Memory that notes the largest read."""

    protocol = "watched"
    most = 0
    store, pseudo_dirs = MemoryFileSystem.store, MemoryFileSystem.pseudo_dirs

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("watched://", "memory://"))

    def _open(self, *args, **kwargs):
        file = super()._open(*args, **kwargs)
        plain = file.read

        def read(n=-1):
            data = plain(n)
            Watched.most = max(Watched.most, len(data))
            return data

        return SimpleNamespace(read=read, seek=file.seek, tell=file.tell, close=file.close)


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors", "csv", "jsonl", "parquet"])
def test_no_file_is_read_whole(tmp_path, save, form, monkeypatch):
    fsspec.register_implementation("watched", Watched, clobber=True)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 1 << 16)
    rng = np.random.default_rng(0)
    told = save(tmp_path, form, rng.normal(size=(20_000, 8)), rng.integers(0, 8, 20_000))
    moved = uploaded(tmp_path, told)
    size = told["paths"].stat().st_size
    Watched.most = 0
    moved = {n: v.replace("memory:", "watched:") if n in ("paths", "labels") else v for n, v in moved.items()}
    assert sum(map(len, open_scores(**moved))) == 20_000
    assert 0 < Watched.most < size / 4


def test_patterns_are_sorted_keep_the_protocol_and_open_again(tmp_path, data):
    logits, labels, _ = data
    for k in (2, 0, 1):
        buffer = io.BytesIO()
        np.savez(buffer, logits=logits[k::3], labels=labels[k::3])
        fsspec.filesystem("memory").pipe(f"/deep/down/{k}.npz", buffer.getvalue())
    found = expand_paths("memory://deep/*/?.npz")
    assert [str(file) for file in found] == [f"memory://deep/down/{k}.npz" for k in range(3)]
    again = open_scores([str(file) for file in pickle.loads(pickle.dumps(found))])
    np.testing.assert_array_equal(again.load().labels, np.concatenate([labels[k::3] for k in range(3)]))
    with pytest.raises(FileError):
        expand_paths(["memory://deep/*/*.npz", "memory://deep/down/1.npz"])
    with pytest.raises(FileError):
        expand_paths("memory://deep/*.npz")


def test_what_is_stripped_from_an_address_is_put_back(monkeypatch):
    class Ftp:
        def glob(self, path):
            assert path == "/a/*.npz"
            return ["/a/2.npz", "/a/1.npz"]

    monkeypatch.setattr(fsspec, "url_to_fs", lambda url: (Ftp(), "/a/*.npz"))
    assert [str(f) for f in expand_paths("ftp://me:secret@host/a/*.npz")] == [
        "ftp://me:secret@host/a/1.npz",
        "ftp://me:secret@host/a/2.npz",
    ]


def test_names_and_endings():
    assert (as_path("s3://b/x.NPZ").suffix, as_path("https://h/a.npz?X-Sig=a.b/c").suffix) == (".NPZ", ".npz")
    assert as_path("https://h/a.npz?X-Sig=a.b/c").name == "a.npz"
    assert [str(f) for f in expand_paths("https://h/a.npz?sig=1")] == ["https://h/a.npz?sig=1"]
    assert as_path("file:///tmp/a.npz") == as_path("/tmp/a.npz") == local("file:///tmp/a.npz")
    assert pickle.loads(pickle.dumps(Remote("s3://b/x"))) == Remote("s3://b/x")


@pytest.mark.parametrize(
    "url, message",
    [
        ("memory://none.npz", "memory://none.npz: there is no such file"),
        ("nowhere://a.npz", "nowhere://a.npz: cannot be read: .*nowhere"),
        ("oci://bucket/a.npz", "oci://bucket/a.npz: a package for this protocol is missing: .*ocifs"),
        ("memory://folder.npz", "memory://folder.npz: a directory; pass the files in it"),
        ("memory://a.txt", "a.txt: unsupported extension '.txt'"),
        ("https://h/a.txt?X-Sig=a.b/c", "a.txt.*: unsupported extension '.txt'"),
        ("memory://empty.npz", r"the file is empty \(0 bytes\)"),
        ("memory://text.npz", "memory://text.npz: cannot be read as an .npz archive"),
        ("memory://text.parquet", "memory://text.parquet: cannot be read as parquet"),
    ],
)
def test_errors_name_the_address(memory, url, message):
    memory.pipe({"/folder.npz/a.npz": b"x", "/empty.npz": b"", "/text.npz": b"no archive", "/text.parquet": b"none"})
    with pytest.raises(FileError):
        open_scores(url)


@pytest.mark.parametrize(
    "error, message",
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (PermissionError("403 Forbidden"), "may not be read; check your credentials .403 Forbidden"),
        (RuntimeError("of its own\nwith details"), "cannot be read: of its own$"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_what_a_server_refuses_is_told(tmp_path, form, data, save, monkeypatch, error, message, late):
    told = uploaded(tmp_path, save(tmp_path, form, *data[:2]))

    class Refusing:
        def seek(self, offset, whence=0):
            return 1000 if whence == io.SEEK_END else offset

        def close(self):
            pass

        def read(self, n=-1):
            raise error

    def refuse(*args, **kwargs):
        raise error

    if late:
        files = open_scores(**told)
        monkeypatch.setattr(MemoryFileSystem, "_open", lambda *args, **kwargs: Refusing())
        with pytest.raises(FileError) as refused:
            files.load()
    else:
        monkeypatch.setattr(MemoryFileSystem, "info", refuse)
        with pytest.raises(FileError) as refused:
            open_scores(**told)
    assert str(refused.value).startswith(told["paths"])


@pytest.mark.parametrize(
    "url",
    ["ftp://me:secret@127.0.0.1:9/a.npz", "sftp://me:sec@ret@host/*.npz", "https://h/a.npz?sig=a:b,secret&more=1"],
)
def test_secrets_are_not_told(url, monkeypatch):
    def refuse(url):
        raise OSError(f"cannot connect to {url}")

    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    with pytest.raises(FileError) as told:
        open_scores(url)
    assert "sec" not in str(told.value)
    assert "***" in str(told.value)


def test_a_server_that_does_not_tell_the_size(memory, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "info", lambda *a, **k: {"type": "file", "size": None})
    with pytest.raises(FileError):
        open_scores("memory://a.npz")


def test_without_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError):
        open_scores("s3://bucket/a.npz")


def test_sketches_and_maps_are_read_from_afar(tmp_path, data, monkeypatch, capsys, memory):
    logits, labels = data[0], data[0].argmax(axis=1)
    labels[::5] = data[1][::5]
    parts = [Sketch.of(logits[k::2], labels[k::2]) for k in range(2)]
    for k, part in enumerate(parts):
        part.save(tmp_path / f"{k}.sketch.json")
        memory.pipe(f"/s/{k}.sketch.json", (tmp_path / f"{k}.sketch.json").read_bytes())
    assert Sketch.load("memory://s/1.sketch.json").to_dict() == parts[1].to_dict()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attemper", "fit", "memory://s/*.sketch.json", "--method", "ts", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    expected = TemperatureScaling().fit_sketch(parts[0] + parts[1]).temperature_
    assert json.loads(capsys.readouterr().out)["temperature"] == expected
    memory.pipe("/m.json", (tmp_path / "attemper.json").read_bytes())
    assert attemper.load("memory://m.json").temperature_ == expected
    with pytest.raises(FileError):
        Sketch.load("memory://none.json")


def test_nothing_is_written_afar(data, tmp_path, monkeypatch, capsys):
    sketch = Sketch.of(*data[:2])
    with pytest.raises(FileError):
        sketch.save("memory://a.json")
    with pytest.raises(FileError):
        write_probs("memory://p.npz", [ProbRows(np.array([[0.5, 0.5]]))])
    with pytest.raises(FileError):
        Remote("memory://a").open("wb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attemper", "sketch", "memory://none.npz", "-o", "memory://a.json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "only read" in " ".join(capsys.readouterr().err.split())


def test_tokens_from_afar(memory):
    rng = np.random.default_rng(0)
    logits, ids = rng.normal(size=(4, 5, 6)), rng.integers(0, 6, (4, 5))
    np.savez_compressed(buffer := io.BytesIO(), logits=logits, input_ids=ids)
    memory.pipe("/a.npz", buffer.getvalue())
    scores = open_scores("memory://a.npz", labels_key="input_ids", next_token=True).load()
    np.testing.assert_array_equal(scores.labels, ids[:, 1:].reshape(-1))
    np.testing.assert_array_equal(scores.values, logits[:, :-1].reshape(-1, 6))
    with pytest.raises(InputError):
        open_scores("memory://a.npz")


class Ranges(BaseHTTPRequestHandler):
    """Serve parts of the files of a folder, as every store of objects does."""

    folder: Path

    def do_GET(self):
        path = self.folder / self.path.partition("?")[0].strip("/")
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        if told := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(told[1]), min(int(told[2] or last), last)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[first : last + 1])

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """Return the address of a server for the files of ``tmp_path``."""
    pytest.importorskip("aiohttp", reason="fsspec needs it for http")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Ranges,), {"folder": tmp_path}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_of_a_web_server(server, tmp_path, form, data, save):
    told = save(tmp_path, form, *data[:2])
    moved = {n: f"{server}/{v.name}?sig=1" if n in ("paths", "labels") else v for n, v in told.items()}
    np.testing.assert_array_equal(open_scores(**moved).load().values, open_scores(**told).load().values)
    with pytest.raises(FileError):
        open_scores(f"{server}/none.npz")


def test_a_server_that_is_not_there():
    pytest.importorskip("aiohttp", reason="fsspec needs it for http")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{port.getsockname()[1]}/a.npz"
    with pytest.raises(FileError):
        open_scores(address)
