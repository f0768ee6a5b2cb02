"""A study is a list of jobs, each of which gives rows of numbers; what is finished is kept and not done again.

Jobs run in processes of one thread each, so that a row does not depend on how many there are. Each finished job is one
line of a journal. A run that was killed, at any moment, is begun again by the same command: it reads the journal, drops
a last line that was cut, and goes on with what is missing. Rows of other code, data, seeds or library versions are not
taken over: the first line of the journal tells of which they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import scipy
import sklearn
from joblib.externals.loky import ProcessPoolExecutor
from threadpoolctl import threadpool_limits

import attemper
from attemper.errors import AttemperError, FileError
from experiments.files import atomic
from experiments.reproduce import networks

__all__ = ["Job", "Row", "Settings", "Study", "rows_of", "versions"]

Row = dict[str, Any]  # of text and numbers; None where there is none

FORMAT = 3
DIGITS = 6  # of a number in a journal, so in every table, file and picture: machines differ in later ones


@dataclass(frozen=True)
class Settings:
    """What numbers depend on beside code and data."""

    seed: int = 0
    repeats: int = 20


class Job(NamedTuple):
    """One call of a study's function, which takes seconds at most."""

    key: str
    arguments: tuple[Any, ...]
    needs: tuple[str, ...]  # names of networks


@dataclass(frozen=True)
class Study:
    """Jobs, and the function that does one; it must be importable by name."""

    name: str
    jobs: Callable[[Settings], list[Job]]
    run: Callable[..., list[Row]]


def rows_of(
    study: Study,
    settings: Settings,
    folder: Path,
    *,
    workers: int = 2,
    tick: Callable[[int, int, str], None] = lambda done, total, key: None,
) -> list[Row]:
    """Do all jobs of a study that are not done yet; return the rows of all, in the order of the jobs."""
    jobs = study.jobs(settings)
    journal = Journal(folder / f"{study.name}-{settings.seed}.jsonl", fingerprint(study, jobs, settings))
    done = journal.begin()
    finished = sum(job.key in done for job in jobs)
    todo = [job for job in jobs if job.key not in done]
    tick(finished, len(jobs), todo[0].key if todo else "")
    with journal:
        for count, (job, rows) in enumerate(_worked(study.run, todo, workers), finished + 1):
            done[job.key] = journal.add(job.key, rows)
            tick(count, len(jobs), job.key)
    ours = {job.key: done[job.key] for job in jobs}
    journal.end(ours | done)  # what more there was, of a run with more repeats, is kept
    return [row for job in jobs for row in done[job.key]]


class Journal:
    """Rows of finished jobs: one line of JSON each, after a first line that tells what they are of."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self.head = json.dumps(head, sort_keys=True)

    def begin(self) -> dict[str, list[Row]]:
        """Return what is already there, and leave a file that ends with a whole line."""
        with _telling(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            head, *lines = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        entries = [_entry(line) for line in lines] if head == self.head.encode() else []
        done = dict(entry for entry in entries if entry is not None)
        self.end(done)
        return done

    def __enter__(self) -> Journal:
        with _telling(self.path):
            self.stream = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def add(self, key: str, rows: list[Row]) -> list[Row]:
        """Write a finished job down; return its rows as they will be read."""
        line = _line(key, rows)
        with _telling(self.path):
            self.stream.write(line)
            self.stream.flush()
        _, again = json.loads(line.partition(" ")[2])
        return list(again)

    def end(self, entries: Mapping[str, list[Row]]) -> None:
        """Write the file anew, in this order."""
        with atomic(self.path) as stream:
            stream.write((self.head + "\n").encode())
            for key, rows in entries.items():
                stream.write(_line(key, rows).encode())


def _line(key: str, rows: list[Row]) -> str:
    content = json.dumps([key, [{name: _rounded(value) for name, value in row.items()} for row in rows]])
    return f"{hashlib.sha256(content.encode()).hexdigest()[:16]} {content}\n"


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _entry(line: bytes) -> tuple[str, list[Row]] | None:
    """Read a line; None for one that was cut when the run was killed, or damaged since."""
    digest, _, content = line.partition(b" ")
    if digest.decode(errors="replace") != hashlib.sha256(content).hexdigest()[:16]:
        return None
    key, rows = json.loads(content)
    return key, rows


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Tell what the system says as an error of ours."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}; what is finished is kept") from None


def fingerprint(study: Study, jobs: Sequence[Job], settings: Settings) -> dict[str, Any]:
    """Tell what rows depend on: code, data, settings, libraries."""
    source = hashlib.sha256()
    for package in (Path(attemper.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            source.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    needed = sorted({name for job in jobs for name in job.needs})
    return {
        "format": FORMAT,
        "study": study.name,
        "seed": settings.seed,
        "source": source.hexdigest(),
        "data": {name: networks.digest(name) for name in needed},
        "versions": versions(),
        "machine": platform.machine(),
    }


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {m.__name__: m.__version__ for m in (attemper, numpy, scipy, sklearn)}


def _worked(run: Callable[..., list[Row]], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, list[Row]]]:
    """Run the jobs; give each with its rows as it is done."""
    if workers == 1 or len(jobs) < 2:
        with threadpool_limits(1):
            for job in jobs:
                yield job, _done(run, job)
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), initializer=_prepare, initargs=(os.getpid(),))
    waiting = {}
    try:
        waiting = {pool.submit(_done, run, job): job for job in jobs}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield waiting[future], future.result()
                del waiting[future]
    except BrokenExecutor:
        raise AttemperError(
            "a worker process was killed, perhaps for want of memory; what is finished is kept, and the same command "
            "goes on from there (in less memory with --workers 1)"
        ) from None
    finally:
        # After an error or an interrupt nobody wants what is still being computed.
        pool.shutdown(kill_workers=bool(waiting))


def _done(run: Callable[..., list[Row]], job: Job) -> list[Row]:
    try:
        return run(*job.arguments)
    except AttemperError as error:
        raise type(error)(f"{job.key}: {error}") from error


def _prepare(parent: int) -> None:
    """Make a worker process one of one thread, which leaves Ctrl-C to the process that began it and ends with it."""
    os.environ["ATTEMPER_THREADS"] = "1"
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
