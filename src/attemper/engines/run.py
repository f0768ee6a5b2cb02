"""One data set on its way through a pool: shards are handed out, sketches taken in and added, losses made good."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from attemper.engines.kept import Kept
from attemper.engines.pools import Pool
from attemper.engines.shards import Shard, Sketched
from attemper.engines.tree import Tree
from attemper.errors import AttemperError, AttemperWarning, FileError, InputError, names_flags, setting, warn
from attemper.files import check_alike
from attemper.sketch import Sketch

__all__ = ["Progress", "Run"]

Progress = Callable[[int, int], object]


class Run:
    """The work on one data set: what is out, what has come back, how often a shard was tried."""

    def __init__(
        self, shards: list[Shard], pool: Pool, retries: int, kept: Kept | None, progress: Progress | None
    ) -> None:
        self.shards, self.pool, self.retries, self.kept, self.progress = shards, pool, retries, kept, progress
        inside = next((s.path for s in shards if pool.apart and s.path.startswith("memory://")), None)
        if inside is not None:
            raise InputError(f"{inside}: lies in the memory of this process, which workers do not see; use threads")
        self.tree: Tree[Sketch] = Tree(len(shards))
        self.done = 0
        self.first: dict[str, tuple[int, Sketched]] = {}  # the first shard, and the first with names of columns
        self.age = 0  # how many times the workers were replaced
        self.flying: set[int] = set()
        self.warned: set[type[AttemperWarning]] = set()  # each kind of warning is issued once
        self.tries: Counter[int] = Counter()
        self.arrivals: SimpleQueue[tuple[int, int, Future[Any]]] = SimpleQueue()

    def total(self) -> Sketch:
        """Work every shard off; return the sketch of all."""
        waiting = deque(range(len(self.shards)))
        if self.kept is not None:
            waiting = deque(i for i in waiting if not self._take_kept(i))
        while waiting or self.flying:
            while waiting and len(self.flying) < self.pool.limit:
                self._launch(waiting.popleft())
            number, age, future = self.arrivals.get()
            error = CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                self._recover(number, age, error)
                continue
            self.flying.discard(number)
            self._take(number, future.result(), new=True)
        if self.tree.total is None:
            raise InputError(f"{self.shards[0].path}: no rows, nor in any other shard; there is nothing to fit")
        if not self.tree.total.weight:
            raise InputError(f"{self.shards[0].path}: all weights are zero, so there is nothing to fit")
        return self.tree.total

    def _launch(self, number: int) -> None:
        self.flying.add(number)
        shard, age = self.shards[number], self.age
        if self.pool.remote and shard.item is None:  # another worker's folder may be another
            shard = replace(shard, path=_absolute(shard.path), labels=shard.labels and _absolute(shard.labels))
        try:
            future = self.pool.submit(shard)
        except BrokenExecutor as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda done: self.arrivals.put((number, age, done)))

    def _take_kept(self, number: int) -> bool:
        assert self.kept is not None
        found = self.kept.load(number)
        if found is not None:
            self._take(number, found, new=False)
        return found is not None

    def _take(self, number: int, came: Sketched | AttemperError | None, *, new: bool) -> None:
        if isinstance(came, AttemperError):
            raise came
        if came is not None:
            for warning in came.warnings:
                if type(warning) not in self.warned:
                    self.warned.add(type(warning))
                    warn(str(warning), type(warning))
            self._compare("any", number, came)
            if came.columns is not None:
                self._compare("table", number, came)
            if new and self.kept is not None:
                self.kept.save(number, came)
        self.tree.add(number, None if came is None else came.sketch)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, len(self.shards))

    def _compare(self, kind: str, number: int, came: Sketched) -> None:
        """Hold a shard against the one with the lowest number so far, which an error takes for the right one."""
        lowest, first = self.first.get(kind, (number, came))
        if number < lowest:
            lowest, first, came = number, came, first
        check_alike([first, came])
        self.first[kind] = lowest, first

    def _recover(self, number: int, age: int, error: BaseException) -> None:
        """Try a shard again, or say what became of it."""
        path = self.shards[number].path
        lost = isinstance(error, self.pool.lost)
        if not lost and not isinstance(error, OSError | CancelledError):
            error.add_note(f"while working on {path}")
            raise error
        self.tries[number] += 1
        if self.tries[number] > self.retries or isinstance(error, CancelledError):
            raise self._failure(number, error) from error
        if lost and age == self.age and isinstance(error, BrokenExecutor):
            if not self.pool.renew():
                raise AttemperError(
                    f"{path}: a worker died at it, which broke the executor that was given; give a fresh one"
                ) from error
            self.age += 1
        self._launch(number)

    def _failure(self, number: int, error: BaseException) -> AttemperError:
        path, more = self.shards[number].path, max(2, 2 * self.retries)
        again = f" ({self.tries[number]} times)" if self.retries else ""
        if isinstance(error, OSError):
            return FileError(f"{path}: {error.strerror or error}{again}")
        if isinstance(error, CancelledError):
            return AttemperError(f"{path}: the engine gave it up; is its scheduler still there?")
        # Where few are out at a time, they are those that the lost worker may have been at.
        paths = [self.shards[i].path for i in sorted(self.flying)] if self.pool.limit < 64 else [path]
        return AttemperError(
            f"{' or '.join(paths)}: a worker died at it{again}: killed, out of memory, or its machine is gone. Try "
            f"such shards again with {setting('retries', more)}.{'' if self.done or names_flags() else self.pool.hint}"
        )


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (links are not followed)
