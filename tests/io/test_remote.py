"""Remote files: every format at an address, patterns, and errors that name the address."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys

import fsspec
import numpy as np
import pytest

import attemper
from attemper import Sketch, TemperatureScaling
from attemper._paths import Remote, as_path, expand_paths, local
from attemper.cli import main
from attemper.errors import FileError, MissingExtraError
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


def test_names_and_endings():
    assert (as_path("s3://b/x.NPZ").suffix, as_path("https://h/a.npz?X-Sig=a.b/c").suffix) == (".NPZ", ".npz")
    assert as_path("https://h/a.npz?X-Sig=a.b/c").name == "a.npz"
    assert [str(f) for f in expand_paths("https://h/a.npz?sig=1")] == ["https://h/a.npz?sig=1"]
    assert as_path("file:///tmp/a.npz") == as_path("/tmp/a.npz") == local("file:///tmp/a.npz")
    assert pickle.loads(pickle.dumps(Remote("s3://b/x"))) == Remote("s3://b/x")


@pytest.mark.parametrize(
    "url",
    ["memory://none.npz", "nowhere://a.npz", "memory://folder.npz", "memory://a.txt", "memory://text.npz"],
)
def test_errors_name_the_address(memory, url):
    memory.pipe({"/folder.npz/a.npz": b"x", "/text.npz": b"no archive"})
    with pytest.raises(FileError) as found:
        open_scores(url)
    assert url.removeprefix("memory://") in str(found.value)


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
    assert "memory://a.json" in capsys.readouterr().err
