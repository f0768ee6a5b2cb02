"""Studies: what is finished is kept, and a run that was killed ends in the same bytes."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attemper import AttemperError, FileError, InputError
from experiments.reproduce import journal
from experiments.reproduce.journal import Job, Settings, Study, rows_of

NAME = "resnet200-skin-lesionsplit-s0"
ROOT = Path(__file__).parents[3]


def square(x: int, folder: str) -> list[dict]:
    with Path(folder, "calls.txt").open("a") as f:  # seen across processes
        f.write(f"{x}\n")
    if x == 13:
        raise InputError("thirteen is not a number")
    if x == 113:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"x": x, "square": x * x / 4, "none": None}]


def study(folder, n=6, name="squares"):
    return Study(name, lambda settings: [Job(f"job {i}", (i, str(folder)), (NAME,)) for i in range(n)], square)


def calls(folder):
    path = folder / "calls.txt"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def run(folder, n=6, settings=None, workers=1, **more):
    return rows_of(study(folder, n), settings or Settings(), folder / "j", workers=workers, **more)


@pytest.mark.slow
def test_rows_come_in_the_order_of_the_jobs_with_any_number_of_workers(tmp_path):
    rows = run(tmp_path)
    assert [row["x"] for row in rows] == list(range(6))
    assert rows[2] == {"x": 2, "square": 1.0, "none": None}
    text = (tmp_path / "j" / "squares-0.jsonl").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, workers=3) == rows
    assert (other / "j" / "squares-0.jsonl").read_bytes() == text


def test_nothing_is_done_twice(tmp_path):
    rows = run(tmp_path)
    assert run(tmp_path) == rows
    assert calls(tmp_path) == list(range(6))
    assert len(run(tmp_path, n=8)) == 8  # more of the same
    assert calls(tmp_path) == list(range(8))
    assert run(tmp_path) == rows  # fewer: what more there was is kept
    assert len(run(tmp_path, n=8)) == 8
    assert calls(tmp_path) == list(range(8))


@pytest.mark.parametrize("cut", [2, 5, 40])
def test_a_line_that_was_cut_is_done_again(tmp_path, cut):
    rows = run(tmp_path)
    path = tmp_path / "j" / "squares-0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert run(tmp_path) == rows
    assert path.read_bytes() == whole
    assert calls(tmp_path) == [0, 1, 2, 3, 4, 5, 5]


def test_a_journal_at_every_length_ends_in_the_same_bytes(tmp_path):
    rows = run(tmp_path)
    path = tmp_path / "j" / "squares-0.jsonl"
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        assert run(tmp_path) == rows
        assert path.read_bytes() == whole


def damaged(lines):
    """Yield journals whose last job is not what was written."""
    *good, last = lines
    key = last.partition(b" ")[2]
    yield [*good, last[:20] + last[21:]]  # a character is missing
    yield [*good, last.replace(b"5", b"7")]  # another number
    yield [*good, b"\xff\xfe\x00 junk"]
    yield [*good, b'{"job": "job 5", "rows": "foo"}']
    yield [*good, b'["job 5", []]', key]
    yield [*good, b""]


def test_damaged_lines_are_done_again(tmp_path):
    rows = run(tmp_path)
    path = tmp_path / "j" / "squares-0.jsonl"
    whole = path.read_bytes()
    for lines in damaged(whole.rstrip(b"\n").split(b"\n")):
        path.write_bytes(b"\n".join(lines))
        assert run(tmp_path) == rows
        assert path.read_bytes() == whole
    path.write_bytes(b"\xff\xfe")
    assert run(tmp_path) == rows


def test_a_journal_that_cannot_be_read_or_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "j" / "squares-0.jsonl").mkdir(parents=True)
    with pytest.raises(FileError):
        run(tmp_path)
    (tmp_path / "j" / "squares-0.jsonl").rmdir()

    class Full(io.StringIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal.Journal, "__enter__", lambda self: setattr(self, "stream", Full()) or self)
    with pytest.raises(FileError):
        run(tmp_path)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told(tmp_path):
    jobs = [Job(f"job {i}", (i, str(tmp_path)), (NAME,)) for i in (0, 1, 113)]
    with pytest.raises(AttemperError):
        rows_of(Study("killed", lambda _: jobs, square), Settings(), tmp_path, workers=2)


def test_the_fingerprint_is_of_every_file_of_the_package(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    files = [tmp_path / "__init__.py", tmp_path / "kernels" / "nll.py"]
    for file in files:
        file.write_text("a")
    monkeypatch.setattr(journal.attemper, "__file__", str(files[0]))
    seen = [journal.fingerprint(study(tmp_path), [], Settings())["source"]]
    for file in files:
        file.write_text("b")
        seen.append(journal.fingerprint(study(tmp_path), [], Settings())["source"])
    assert len(set(seen)) == 3


@pytest.mark.parametrize("change", ["seed", "versions", "data"])
def test_rows_of_something_else_are_not_taken_over(tmp_path, monkeypatch, change):
    run(tmp_path)
    settings = Settings(seed=1) if change == "seed" else Settings()
    if change == "versions":
        monkeypatch.setattr(journal, "versions", lambda: {"numpy": "0"})
    elif change == "data":
        monkeypatch.setattr(journal.networks, "digest", lambda name: "other")
    run(tmp_path, settings=settings)
    assert calls(tmp_path) == sorted([*range(6), *range(6)])
    if change == "seed":  # which has a journal of its own
        run(tmp_path)
        assert len(calls(tmp_path)) == 12


@pytest.mark.slow
# A thread of loky's may look for a job that was cancelled while the pool shuts down; the pool is over then anyway.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_names_the_job_and_keeps_the_others(tmp_path):
    for workers in (1, 2):
        with pytest.raises(InputError):
            run(tmp_path, n=20, workers=workers)
    lines = (tmp_path / "j" / "squares-0.jsonl").read_text().splitlines()
    done = [json.loads(line.partition(" ")[2])[0] for line in lines[1:]]
    assert "job 13" not in done
    assert {f"job {i}" for i in range(13)} <= set(done)


def test_progress_is_told(tmp_path):
    seen = []
    run(tmp_path, n=3, tick=lambda done, total, job: seen.append((done, total, job)))
    assert seen == [(0, 3, "job 0"), (1, 3, "job 0"), (2, 3, "job 1"), (3, 3, "job 2")]
    seen.clear()
    run(tmp_path, n=3, tick=lambda done, total, job: seen.append((done, total, job)))
    assert seen == [(3, 3, "")]


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in out.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(folder):
    options = ["table4", "referral", "--repeats", "2", "--workers", "2", "-o", str(folder)]
    return [sys.executable, "-m", "experiments.reproduce", *options]


def begun(folder):
    """Start the command, and wait until some jobs are done; return it and its worker processes."""
    path = folder / ".journal" / "skin-0.jsonl"
    running = subprocess.Popen(command(folder), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not (path.exists() and path.read_text().count("\n") >= 2):
        time.sleep(0.02)
    return running, children(running.pid)


def gone(workers):
    end = time.monotonic() + 600
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(map(alive, workers))


@pytest.mark.slow
def test_interrupted_or_killed_and_begun_again_the_command_ends_in_the_same_bytes(tmp_path):
    """The whole way: processes of the command line, signals in the middle, the same command again."""
    for how, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        running, workers = begun(tmp_path / "stopped")
        running.send_signal(how)
        _, err = running.communicate(timeout=600)
        assert running.returncode == code, "it was over before it could be stopped"
        assert gone(workers), "worker processes outlive the command"
        if code == 130:
            assert "what is finished is kept: the same command goes on from here" in err
            assert "Traceback" not in err
    done = (tmp_path / "stopped" / ".journal" / "skin-0.jsonl").read_text().count("\n") - 1
    assert 0 < done < 6
    (tmp_path / "stopped" / ".table4.md.x.part").write_text("half a page")
    for folder in ("stopped", "whole"):
        subprocess.run(command(tmp_path / folder), cwd=ROOT, check=True, capture_output=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_numbers_have_six_digits_from_the_first(tmp_path):
    """A page is made of what its CSV holds: machines differ in later digits."""
    with journal.Journal(tmp_path / "study.jsonl", {}) as stream:
        assert stream.add("job", [{"nll": 1 / 3, "n": 7, "t": None, "word": "x"}]) == [
            {"nll": 0.333333, "n": 7, "t": None, "word": "x"}
        ]
