"""Studies are lists of jobs, each of which returns rows. Finished jobs are lines of a journal, so a run can resume."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import scipy
import sklearn
from threadpoolctl import threadpool_limits

import attemper
from attemper import datasets

__all__ = ["Job", "Row", "Study", "rows_of", "workers"]

Row = dict[str, Any]  # of text and numbers
Job = tuple[Any, ...]  # arguments of a study's function

DIGITS = 6  # of a number in a row: machines differ in later ones


class Study(NamedTuple):
    """Jobs for a number of repeats, the function that runs one, and the files that are made of all rows."""

    name: str
    repeats: int
    jobs: Callable[[int], list[Job]]  # long ones first, so that no process waits in the end
    run: Callable[..., list[Row]]  # called with the job and the seed
    files: Callable[[Sequence[Row]], dict[str, Any]]  # text or figure by the name of the file


def workers(n: int) -> ProcessPoolExecutor:
    """Return processes of one thread each, so that rows do not depend on their number."""
    os.environ["ATTEMPER_THREADS"] = "1"
    return ProcessPoolExecutor(n, get_context("spawn"), initializer=threadpool_limits, initargs=(1,))


def rows_of(study: Study, folder: Path, pool: Executor, *, seed: int, repeats: int) -> list[Row]:
    """Run the jobs of a study that are not in the journal yet; return the rows of all, in the order of the jobs."""
    jobs = study.jobs(repeats)
    path = folder / ".journal" / f"{study.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"study": study.name, "seed": seed, "made from": _fingerprint()})
    done = _read(path, head)
    futures = {pool.submit(study.run, *job, seed): _key(job) for job in jobs if _key(job) not in done}
    with path.open("a" if done else "w", encoding="utf-8") as stream:
        stream.write("" if done else head)
        for i, future in enumerate(as_completed(futures), 1):
            key = futures[future]
            done[key] = [{name: _rounded(value) for name, value in row.items()} for row in future.result()]
            stream.write("\n" + json.dumps([key, done[key]]))
            stream.flush()
            print(f"\r{study.name}: {i} of {len(futures)} jobs", end=" ", file=sys.stderr, flush=True)
    return [row for job in jobs for row in done[_key(job)]]


def _read(path: Path, head: str) -> dict[str, list[Row]]:
    """Return the finished jobs of a journal; none if it is of other code, data or settings."""
    first, *lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
    done = {}
    for line in lines if first == head else []:
        with suppress(ValueError):  # a line that was cut when the run was killed
            key, done[key] = json.loads(line)
    return done


@cache
def _fingerprint() -> str:
    """Hash of code, data and versions."""
    digest = hashlib.sha256(" ".join(m.__version__ for m in (numpy, scipy, sklearn)).encode())
    code = [path for package in (attemper.__file__, __file__) for path in Path(package).parent.rglob("*.py")]
    for path in sorted(code) + [datasets.path_of(name) for name in datasets.names()]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _key(job: Job) -> str:
    return " ".join(map(str, job))


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
