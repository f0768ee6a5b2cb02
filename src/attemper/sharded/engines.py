"""Where shards are worked on: each engine is a `concurrent.futures.Executor`.

Processes are those of joblib's loky, clusters are Dask's or Ray's, which try the shard of a lost worker again by
themselves. What `sketch_shard` meets it returns; so an exception that an executor raises means a lost worker.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple

from joblib.externals.loky import ProcessPoolExecutor, cpu_count

from attemper._checks import whole
from attemper.errors import AttemperError, InputError, require
from attemper.sharded.shards import Outcome, Shard, sketch_shard

__all__ = ["ENGINES", "Engine", "Lost", "open_engine"]

ENGINES = ("serial", "threads", "processes", "dask", "ray")
"""Names that `fit_sharded` takes as ``engine``."""
CONNECT_SECONDS = 10.0
# A shard in a queue is a few hundred bytes: enough of them that no cluster waits.
IN_FLIGHT = 4096


class Lost(NamedTuple):
    """A shard that the engine lost: its worker died, or the engine takes no more work."""

    reason: str
    among: tuple[int, ...]  # the shards that the lost worker may have been at


class Engine:
    """An executor, how many shards it is given at a time, and whether its workers are other processes."""

    def __init__(self, start: Callable[[], Executor], limit: int, *, apart: bool, owned: bool = True) -> None:
        self.start, self.limit, self.apart, self.owned = start, limit, apart, owned
        self.executor = start()
        self.left: list[Future[Outcome]] = []  # in flight when an error ended the work

    def outcomes(self, shards: Iterable[tuple[int, Shard]]) -> Generator[tuple[int, Outcome | Lost], None, None]:
        """Yield the number of each shard with what became of it, in the order of completion."""
        arrived: SimpleQueue[Future[Outcome]] = SimpleQueue()
        in_flight: dict[Future[Outcome], int] = {}
        todo = iter(shards)
        try:
            while True:
                for number, shard in islice(todo, self.limit - len(in_flight)):
                    future = self._submit(shard)
                    in_flight[future] = number
                    future.add_done_callback(arrived.put)
                if not in_flight:
                    return
                future = arrived.get()
                error = CancelledError() if future.cancelled() else future.exception()
                if isinstance(error, BrokenExecutor):  # any shard in flight may have broken it
                    finished = {f: f.result() for f in in_flight if _has_result(f)}
                    lost = Lost(str(error), tuple(sorted(n for f, n in in_flight.items() if f not in finished)))
                    if self.owned:
                        self.close(at_once=True)
                        self.executor = self.start()
                    found = [(n, finished.get(f, lost)) for f, n in in_flight.items()]
                    in_flight, arrived = {}, SimpleQueue()
                    yield from found
                else:
                    number = in_flight.pop(future)
                    yield number, future.result() if error is None else Lost(repr(error), (number,))
        finally:
            self.left = list(in_flight)

    def _submit(self, shard: Shard) -> Future[Outcome]:
        try:
            return self.executor.submit(sketch_shard, shard)
        except RuntimeError as error:  # broken, or shut
            future: Future[Outcome] = Future()
            future.set_exception(error)
            return future

    def close(self, *, at_once: bool) -> None:
        """Let workers go; ``at_once`` when what they do is of no use any more."""
        if not self.owned:
            for future in self.left:
                future.cancel()
        elif not isinstance(self.executor, ProcessPoolExecutor):
            self.executor.shutdown(wait=not at_once)
        else:
            # Its manager fails if it is to kill workers while a shard is cancelled, or waits to be handed to them.
            while at_once and not all(future.running() or future.done() for future in self.left):
                time.sleep(0.01)
            self.executor.shutdown(kill_workers=at_once)


def _has_result(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class Serial(Executor):
    """Works in this thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do the work at once."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class RayExecutor(Executor):
    """Tasks on a Ray cluster, the one that this process is connected to or another."""

    def __init__(self, scheduler: str | None, workers: int | None) -> None:
        self.ray = ray = require("ray", extra="ray", why=f"for engine={'ray'!r}")
        self.remote = functools.cache(ray.remote)
        self.references: dict[Future[Any], Any] = {}
        self.owned = not ray.is_initialized()
        if not self.owned and scheduler is not None:
            raise InputError(f"scheduler {scheduler}: this process is connected to Ray already; leave it out")
        if not self.owned:
            return
        local: dict[str, Any] = {}
        if scheduler is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what runs here is no one else's business
            local = {"num_cpus": workers or cpu_count(), "include_dashboard": False}
        try:
            with _quiet("ray", logging.ERROR):  # it greets in the tone of a warning
                ray.init(address=scheduler or "local", configure_logging=False, log_to_driver=False, **local)
        except Exception as error:  # its own limits of time are plain exceptions
            raise InputError(f"scheduler {scheduler or 'of this machine'}: cannot connect to Ray: {error}") from None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task."""
        reference = self.remote(fn).remote(*args, **kwargs)
        future: Future[Any] = reference.future()
        self.references[future] = reference
        future.add_done_callback(lambda done: self.references.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        """Cancel what is not done; end Ray if it was started here."""
        for reference in list(self.references.values()):
            self.ray.cancel(reference, force=True)
        if self.owned:
            self.ray.shutdown()


@contextlib.contextmanager
def open_engine(engine: Any, *, workers: int | None = None, scheduler: str | None = None) -> Iterator[Engine]:
    """Open an engine for as long as it is needed; one that is open already stays open."""
    if isinstance(engine, Engine):
        yield engine
        return
    workers = None if workers is None else whole("workers", workers)
    if scheduler is not None and engine not in ("dask", "ray"):
        raise InputError(f"scheduler={scheduler!r}: only Dask and Ray have one; add engine={'dask'!r}", param="engine")
    if scheduler is not None and workers is not None:
        raise InputError(
            f"workers={workers!r}: the cluster at {scheduler} has its own workers; leave one of both out",
            param="workers",
        )
    with contextlib.ExitStack() as stack:
        opened = _engine(engine, workers, scheduler, stack)
        try:
            yield opened
        except BaseException:
            with contextlib.suppress(Exception):  # an engine that cannot even be closed must not hide what happened
                opened.close(at_once=True)
            raise
        opened.close(at_once=False)


def _engine(engine: Any, workers: int | None, scheduler: str | None, stack: contextlib.ExitStack) -> Engine:
    if isinstance(engine, Executor):
        limit = workers or getattr(engine, "_max_workers", None) or IN_FLIGHT
        return Engine(lambda: engine, limit, apart=not isinstance(engine, ThreadPoolExecutor), owned=False)
    if hasattr(engine, "get_executor"):
        return Engine(lambda: engine.get_executor(pure=False), workers or IN_FLIGHT, apart=True)
    if engine is None:
        engine = "processes" if (workers or 1) > 1 else "serial"
    if engine == "serial" and (workers or 1) > 1:
        raise InputError(f"workers={workers!r}: a serial engine has one; use engine={'processes'!r}", param="engine")
    count = workers or cpu_count()
    if engine == "serial":
        return Engine(Serial, 1, apart=False)
    if engine == "threads":
        return Engine(lambda: ThreadPoolExecutor(count), count, apart=False)
    if engine == "processes":
        # No more shards than workers are in flight, so that a loss names the right ones.
        return Engine(lambda: _processes(count), count, apart=True)
    if engine == "dask":
        client = stack.enter_context(_dask_client(scheduler, count))
        return Engine(lambda: client.get_executor(pure=False), IN_FLIGHT, apart=True)
    if engine == "ray":
        return Engine(lambda: RayExecutor(scheduler, workers), IN_FLIGHT, apart=True)
    raise InputError(
        f"engine={engine!r}: expected one of {', '.join(ENGINES)}, a concurrent.futures.Executor or a Dask client"
    )


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, initializer=_begin_worker, initargs=(os.getpid(),), env=_share_of_cores(count))


def _dask_client(scheduler: str | None, count: int) -> Any:
    """Connect to a scheduler, or start workers on this machine."""
    distributed = require("distributed", extra="dask", why=f"for engine={'dask'!r}")
    local: dict[str, Any] = {"timeout": CONNECT_SECONDS}
    if scheduler is None:  # no fixed port: another cluster may run already
        local = {"n_workers": count, "threads_per_worker": 1, "processes": True, "env": _share_of_cores(count)}
        local["dashboard_address"] = "127.0.0.1:0"
    try:
        with _quiet("distributed", logging.CRITICAL):
            return distributed.Client(scheduler, set_as_default=False, **local)
    except Exception as error:  # whatever a worker that is killed, or another server, makes Dask run into
        if scheduler is not None:
            raise InputError(f"scheduler {scheduler}: cannot connect to a Dask scheduler: {error}") from None
        raise AttemperError(
            f"engine 'dask': could not start {count} workers on this machine ({error}); they were killed or ran out of "
            f"memory. Use fewer: workers={1!r}, or engine={'processes'!r}."
        ) from None


def _share_of_cores(workers: int) -> dict[str, str]:
    return {"ATTEMPER_THREADS": str(max(1, cpu_count() // workers))}


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the process that started this one, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextlib.contextmanager
def _quiet(name: str, level: int) -> Iterator[None]:
    """Let a library log nothing below this level."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)
