"""`attemper fit` and `attemper sketch` over many files, as their users meet them."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import Sketch
from attemper.cli import main

from data import draw

PATIENCE = 600  # seconds: machines are shared


@pytest.fixture
def run(capsys, monkeypatch, tmp_path, shards):
    """Run a command in the folder of the shards; return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return (end.value.code or 0, *capsys.readouterr())

    return command


@pytest.mark.slow
def test_workers_write_the_same_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, told in (("a", ""), ("b", "--workers 2"), ("c", "--engine threads"), ("d", "--engine serial")):
        code, out, err = run(f"fit s*.npz --method ats {told} -o {name}.json --json")
        assert (code, err) == (0, "")
        assert json.loads(out)["n_shards"] == 5
        if name != "b":  # processes take seconds to start
            code, out, err = run(f"sketch s*.npz {told} -o {name}.sketch.json --json")
            assert (code, err) == (0, "")
            assert json.loads(out)["n_shards"] == 5
            assert Path(f"{name}.sketch.json").read_bytes() == Path("a.sketch.json").read_bytes()
        assert Path(f"{name}.json").read_bytes() == Path("a.json").read_bytes()
    assert not list(tmp_path.glob("*.shards"))


def test_a_command_goes_on_where_it_failed(run, shards, tmp_path):
    whole = shards[3].read_bytes()
    shards[3].write_bytes(whole[:300])
    for command in ("fit s*.npz", "sketch s*.npz"):
        code, out, err = run(f"{command} -o m.json")
        assert (code, out) == (2, "")
        assert "s3.npz: cannot be read" in err
        assert "3 of 5 shards are finished and cached in m.json.shards. Use --resume" in err
        assert len(list(Path("m.json.shards").iterdir())) == 3
        assert not Path("m.json").exists()
        shards[3].write_bytes(whole)
        (tmp_path / "m.json.shards" / "mine.txt").write_text("not for attemper to remove")
        code, out, err = run(f"{command} -o m.json --resume")
        assert (code, err) == (0, "")
        assert [path.name for path in Path("m.json.shards").iterdir()] == ["mine.txt"]
        Path("m.json").unlink()
        (tmp_path / "m.json.shards" / "mine.txt").unlink()
        shards[3].write_bytes(whole[:300])


def test_retries_make_a_lost_worker_good(run, deadly, deadly_shards):
    code, _, err = run("fit s0.npz s1.npz deadly.npz s3.npz s4.npz --workers 2 --retries 1")
    assert (code, err) == (0, "")
    assert attemper.load("attemper.json").fit_report_.n_samples == 300


def test_small_sketches_are_not_written_unless_told(run):
    code, _, err = run("sketch s0.npz -o small.json")
    assert code == 2
    assert "a sketch of 60 samples, fewer than 100" in err
    assert "--allow-small" in err
    assert not Path("small.json").exists()
    assert run("sketch s0.npz -o small.json --allow-small")[0] == 0
    assert "fewer than 301" in run("sketch s*.npz -o all.json --min-samples 301")[2]
    assert not list(Path().glob("all.json*"))
    assert run("sketch s*.npz -o all.json --min-samples 300")[0] == 0
    assert "at least 100" in run("sketch s0.npz -o x.json --min-samples 10")[2]
    assert "contradict" in run("sketch s0.npz -o x.json --min-samples 200 --allow-small")[2]


@pytest.mark.parametrize(
    "line, why",
    [
        ("fit s*.npz --method matrix --workers 2", "--workers: matrix cannot be fitted from sketches"),
        ("fit s*.npz --method isotonic --resume", "--resume: isotonic cannot"),
        ("fit s*.npz --scheduler tcp://127.0.0.1:1", "only Dask and Ray have one"),
        ("fit s*.npz --workers 0", "--workers 0: expected a whole number, at least 1"),
        ("fit s*.npz --retries -1", "--retries -1"),
        ("fit a.sketch.json --workers 2", "--workers is for files of logits"),
        ("merge a.sketch.json b.sketch.json -o a.sketch.json", "is one of the inputs, which would be overwritten"),
    ],
)
def test_what_cannot_be_is_one_message(run, line, why):
    for name in "ab":
        Sketch.of(*draw()).save(f"{name}.sketch.json")
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("attemper: ")
    assert why in err


def works(pid):
    """Tell whether this is a worker process that lives; of a dead one no command line is left."""
    try:
        return b"popen_loky" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_an_interrupt_kills_the_workers_and_keeps_what_is_finished(tmp_path):
    h, y = draw(20_000, 50)
    np.savez(tmp_path / "b00.npz", logits=h, labels=y)
    for i in range(1, 30):
        (tmp_path / f"b{i:02d}.npz").hardlink_to(tmp_path / "b00.npz")
    kept = tmp_path / "m.json.shards"
    # A background job of a shell ignores the signal, and so do its children unless they set a handler of their own.
    program = """
        import signal
        from attemper.cli import main
        if __name__ == "__main__":
            signal.signal(signal.SIGINT, signal.default_int_handler)
            main()
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "program.py", "sketch", "b*.npz", "-o", "m.json", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(kept.glob("*.json")):
            time.sleep(0.05)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = [pid for pid in children.read_text().split() if works(pid)] if children.exists() else []
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "shards are finished and cached in m.json.shards" in err
    assert "Traceback" not in err
    end = time.monotonic() + PATIENCE
    while any(map(works, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(works, workers))
    assert all(Sketch.load(path).n_samples == 20_000 for path in kept.glob("*.json"))
    assert not (tmp_path / "m.json").exists()
