"""A study is a list of jobs, each of which gives rows of numbers; what is finished is kept and not done again.

Jobs run in processes of one thread each, so that a row does not depend on how many there are. Each finished job is one
line of a journal. A run that was killed, at any moment, is begun again by the same command: it reads the journal, drops
a last line that was cut, and goes on with what is missing. Rows of other code, data, seeds or library versions are not
taken over: the first line of the journal tells of which they are.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import scipy
import sklearn
from threadpoolctl import threadpool_limits

import attemper
from attemper.documents import atomic
from attemper.errors import AttemperError, FileError
from attemper.reproduce import networks

__all__ = ["Job", "Row", "Settings", "Study", "rows_of", "versions"]

Row = dict[str, Any]  # of text and numbers; None where there is none

FORMAT = 1


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
    journal = Journal(folder / f"{study.name}.jsonl", fingerprint(study, jobs, settings))
    done = journal.begin({job.key for job in jobs})
    todo = [job for job in jobs if job.key not in done]
    tick(len(done), len(jobs), todo[0].key if todo else "")
    with journal:
        for job, rows in _worked(study.run, todo, workers):
            done[job.key] = journal.add(job.key, rows)
            tick(len(done), len(jobs), job.key)
    journal.end([(job.key, done[job.key]) for job in jobs])
    return [row for job in jobs for row in done[job.key]]


class Journal:
    """Rows of finished jobs: one line of JSON each, after a first line that tells what they are of."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self.head = json.dumps(head, sort_keys=True)

    def begin(self, keys: set[str]) -> dict[str, list[Row]]:
        """Return what is already there, and leave a file that ends with a whole line."""
        done: dict[str, list[Row]] = {}
        lines = self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else [""]
        if lines[0] == self.head:
            for line in lines[1:]:
                with suppress(
                    ValueError, TypeError, KeyError
                ):  # the line that was being written when the run was killed
                    entry = json.loads(line)
                    if entry["job"] in keys:
                        done[entry["job"]] = entry["rows"]
        self.end(list(done.items()))
        return done

    def __enter__(self) -> Journal:
        self.stream = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def add(self, key: str, rows: list[Row]) -> list[Row]:
        """Write a finished job down; return its rows as they will be read."""
        line = _line(key, rows)
        self.stream.write(line)
        self.stream.flush()
        again: list[Row] = json.loads(line)["rows"]
        return again

    def end(self, entries: Sequence[tuple[str, list[Row]]]) -> None:
        """Write the file anew, in this order."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path.parent}: cannot be made: {error.strerror or error}") from None
        with atomic(self.path) as stream:
            stream.write((self.head + "\n").encode())
            for key, rows in entries:
                stream.write(_line(key, rows).encode())


def _line(key: str, rows: list[Row]) -> str:
    return json.dumps({"job": key, "rows": rows}) + "\n"


def fingerprint(study: Study, jobs: Sequence[Job], settings: Settings) -> dict[str, Any]:
    """Tell what rows depend on: code, data, settings, libraries."""
    source = hashlib.sha256()
    package = Path(attemper.__file__).parent
    for path in sorted(package.rglob("*.py")):
        source.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    needed = sorted({name for job in jobs for name in job.needs})
    return {
        "format": FORMAT,
        "study": study.name,
        "settings": asdict(settings),
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
    # Fresh processes: forking one that has threads (of the progress bar, of BLAS) may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=multiprocessing.get_context("spawn"), initializer=_prepare
    )
    try:
        waiting = {pool.submit(_done, run, job): job for job in jobs}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield waiting.pop(future), future.result()
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        if waiting:  # an error or an interrupt: nobody wants what is still being computed
            for process in processes:
                process.terminate()
        pool.shutdown(wait=True)


def _done(run: Callable[..., list[Row]], job: Job) -> list[Row]:
    try:
        return run(*job.arguments)
    except AttemperError as error:
        raise type(error)(f"{job.key}: {error}") from error


def _prepare() -> None:
    """Make a worker process one of one thread, which ends when the process that began it is gone."""
    os.environ["ATTEMPER_THREADS"] = "1"
    threadpool_limits(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
