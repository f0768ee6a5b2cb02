"""Studies: what is finished is kept, and a run that was killed ends in the same bytes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attemper import InputError
from attemper.reproduce import journal
from attemper.reproduce.journal import Job, Settings, Study, rows_of

NAME = "resnet200-skin-lesionsplit-s0"


def square(x: int, folder: str) -> list[dict]:
    with Path(folder, "calls.txt").open("a") as f:  # seen across processes
        f.write(f"{x}\n")
    if x == 13:
        raise InputError("thirteen is not a number")
    return [{"x": x, "square": x * x / 3, "none": None}]


def study(folder, n=6, name="squares"):
    return Study(name, lambda settings: [Job(f"job {i}", (i, str(folder)), (NAME,)) for i in range(n)], square)


def calls(folder):
    path = folder / "calls.txt"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def run(folder, n=6, settings=None, workers=1, **more):
    return rows_of(study(folder, n), settings or Settings(), folder / "j", workers=workers, **more)


def test_rows_come_in_the_order_of_the_jobs_with_any_number_of_workers(tmp_path):
    rows = run(tmp_path)
    assert [row["x"] for row in rows] == list(range(6))
    assert rows[2] == {"x": 2, "square": 4 / 3, "none": None}
    text = (tmp_path / "j" / "squares.jsonl").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, workers=3) == rows
    assert (other / "j" / "squares.jsonl").read_bytes() == text


def test_nothing_is_done_twice(tmp_path):
    rows = run(tmp_path)
    assert run(tmp_path) == rows
    assert calls(tmp_path) == list(range(6))
    assert len(run(tmp_path, n=8)) == 8  # more of the same
    assert calls(tmp_path) == list(range(8))


@pytest.mark.parametrize("cut", [2, 5, 40])
def test_a_line_that_was_cut_is_done_again(tmp_path, cut):
    rows = run(tmp_path)
    path = tmp_path / "j" / "squares.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert run(tmp_path) == rows
    assert path.read_bytes() == whole
    assert calls(tmp_path) == [0, 1, 2, 3, 4, 5, 5]


def test_a_journal_at_every_length_ends_in_the_same_bytes(tmp_path):
    rows = run(tmp_path)
    path = tmp_path / "j" / "squares.jsonl"
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        assert run(tmp_path) == rows
        assert path.read_bytes() == whole


@pytest.mark.parametrize("change", ["settings", "source", "versions", "data"])
def test_rows_of_something_else_are_not_taken_over(tmp_path, monkeypatch, change):
    run(tmp_path)
    settings = Settings(seed=1) if change == "settings" else Settings()
    if change == "source":
        monkeypatch.setattr(journal.hashlib, "sha256", journal.hashlib.sha1)
    elif change == "versions":
        monkeypatch.setattr(journal, "versions", lambda: {"numpy": "0"})
    elif change == "data":
        monkeypatch.setattr(journal.networks, "digest", lambda name: "other")
    run(tmp_path, settings=settings)
    assert calls(tmp_path) == sorted([*range(6), *range(6)])


def test_a_failure_names_the_job_and_keeps_the_others(tmp_path):
    for workers in (1, 2):
        with pytest.raises(InputError, match="job 13: thirteen is not a number"):
            run(tmp_path, n=20, workers=workers)
    lines = (tmp_path / "j" / "squares.jsonl").read_text().splitlines()
    done = [json.loads(line)["job"] for line in lines[1:]]
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


def test_killed_and_begun_again_the_command_ends_in_the_same_bytes(tmp_path):
    """The whole way: processes of the command line, SIGKILL in the middle, the same command again."""

    def command(folder):
        options = ["reproduce", "table4", "referral", "--repeats", "2", "--workers", "2", "-o", str(folder)]
        return [sys.executable, "-m", "attemper", *options]

    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    path = tmp_path / "killed" / ".journal" / "skin.jsonl"
    running = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and not (path.exists() and path.read_text().count("\n") >= 2):
        time.sleep(0.02)
    workers = children(running.pid)
    running.kill()
    running.wait()
    assert running.returncode == -9, "it was over before it could be killed"
    done = path.read_text().count("\n") - 1
    assert 0 < done < 6
    (tmp_path / "killed" / ".table4.md.x.part").write_text("half a page")
    again = subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True, text=True)
    assert "wrote" in again.stdout
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    end = time.time() + 20
    while any(map(alive, workers)) and time.time() < end:
        time.sleep(0.1)
    assert not any(map(alive, workers)), "worker processes outlive the command"
