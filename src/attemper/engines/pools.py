"""Workers of every kind with one face: hand a shard over, get a `concurrent.futures.Future`.

Threads, processes and Dask's client are executors already; Ray gives futures too. So an engine is a few lines
here, and the loop in `run` knows none of them.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from numbers import Integral
from typing import Any
from urllib.parse import urlsplit

from attemper.engines.shards import Shard, sketch_shard
from attemper.errors import AttemperError, InputError, require, setting

__all__ = ["ENGINES", "Pool", "open_pool", "open_workers"]

ENGINES = ("serial", "threads", "processes", "dask", "ray")
"""Names that `fit_sharded` takes as ``engine``."""
CONNECT_SECONDS = 5.0
# A shard in a queue is a few hundred bytes: enough of them that no cluster waits.
IN_FLIGHT = 4096


class Pool:
    """Works shards off in this thread, one after the other; base of the other pools.

    Attributes
    ----------
    limit : how many shards are handed over at a time
    lost : the exceptions that tell of a worker that died
    remote : whether workers may stand in another folder or on another machine
    apart : whether they are other processes, which see nothing of this one's memory
    """

    limit = 1
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)
    remote = False
    apart = False
    hint = ""

    def submit(self, shard: Shard) -> Future[Any]:
        """Hand a shard over."""
        future: Future[Any] = Future()
        try:
            future.set_result(sketch_shard(shard))
        except Exception as error:
            future.set_exception(error)
        return future

    def renew(self) -> bool:
        """Replace workers after a loss; False if that is not for us to do."""
        return True

    def close(self, *, at_once: bool) -> None:
        """Let workers go; ``at_once`` when what they do is of no use any more."""


class Given(Pool):
    """An executor of the caller's, which is left as it is."""

    def __init__(self, executor: Executor, workers: int | None) -> None:
        self.executor = executor
        self.limit = workers or getattr(executor, "_max_workers", None) or IN_FLIGHT
        self.out: set[Future[Any]] = set()

    def submit(self, shard: Shard) -> Future[Any]:
        """Hand a shard over."""
        try:
            future = self.executor.submit(sketch_shard, shard)
        except BrokenExecutor:
            raise
        except RuntimeError as error:
            raise AttemperError(f"{shard.path}: the executor takes no work: {error}; give one that is open") from None
        self.out.add(future)
        future.add_done_callback(self.out.discard)
        return future

    def close(self, *, at_once: bool) -> None:
        """Take back what is not begun; the executor stays open."""
        for future in list(self.out) if at_once else ():
            future.cancel()

    def renew(self) -> bool:
        """Say that a broken executor stays broken."""
        return False


class Threads(Given):
    """Threads of this process: for storage that is slow, since NumPy lets go of the lock for part of the time only."""

    def __init__(self, workers: int) -> None:
        super().__init__(ThreadPoolExecutor(workers), workers)

    def close(self, *, at_once: bool) -> None:
        """Start no more shards; those begun go on to their end."""
        self.executor.shutdown(wait=not at_once, cancel_futures=True)


class Processes(Given):
    """Processes of this machine. No more shards than workers are out, so that a loss names the right ones."""

    apart = True
    hint = " In a script, the call must stand under `if __name__ == '__main__':`."
    executor: ProcessPoolExecutor

    def __init__(self, workers: int) -> None:
        super().__init__(self._start(workers), workers)

    @staticmethod
    def _start(workers: int) -> ProcessPoolExecutor:
        # Not by fork: a copy of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        threads = max(1, _cores() // workers)
        return ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(threads,))

    def renew(self) -> bool:
        """Start other processes."""
        self.close(at_once=True)
        self.executor = self._start(self.limit)
        return True

    def close(self, *, at_once: bool) -> None:
        """Wait for the processes to end, or kill them: an interrupt need not wait for half a shard."""
        processes = list((self.executor._processes or {}).values()) if at_once else []
        results: Any = self.executor._result_queue
        self.executor.shutdown(wait=not at_once, cancel_futures=True)
        for process in processes:
            process.kill()
        if processes and results is not None:
            # One that is killed while it sends leaves half a result, and its reader would wait for the rest for ever.
            results._writer.close()


class Dask(Given):
    """Workers of a Dask cluster, which hands the shards of a lost worker to others by itself."""

    remote = apart = True

    def __init__(self, client: Any, owned: tuple[Any, ...], workers: int | None) -> None:
        super().__init__(client.get_executor(pure=False), workers or IN_FLIGHT)
        distributed = require("distributed", extra="dask")
        self.lost = (BrokenExecutor, distributed.scheduler.KilledWorker)
        self.owned = owned

    @classmethod
    def start(cls, scheduler: str | None, workers: int | None) -> Dask:
        """Connect to a scheduler, or start workers on this machine."""
        distributed = require("distributed", extra="dask", why=f"for {setting('engine', 'dask')}")
        if scheduler is not None:
            plain = "://" not in scheduler or scheduler.startswith("tcp://")
            _check_answers(scheduler, "tcp://127.0.0.1:8786", _greets_as_dask if plain else None)
            try:
                client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
            except Exception as error:  # whatever an answer that is none makes Dask run into
                raise InputError(f"scheduler {scheduler}: no Dask scheduler answers there: {error}") from None
            return cls(client, (client,), None)
        count = workers or _cores()
        env = {"ATTEMPER_THREADS": str(max(1, _cores() // count))}
        with _quiet("distributed", logging.CRITICAL), contextlib.ExitStack() as owned:
            try:
                # No fixed port: another cluster may run already.
                cluster = owned.enter_context(
                    distributed.LocalCluster(
                        n_workers=count,
                        threads_per_worker=1,
                        dashboard_address="127.0.0.1:0",
                        processes=True,
                        env=env,
                    )
                )
                client = distributed.Client(cluster, set_as_default=False)
            except Exception as error:  # whatever a worker that is killed makes Dask run into
                raise AttemperError(
                    f"engine 'dask': {count} workers could not be started on this machine ({error}); they were killed "
                    "or ran out of memory. Use fewer of them (--workers 1, workers=1), or --engine processes "
                    "(engine='processes')."
                ) from None
            owned.pop_all()
        return cls(client, (client, cluster), None)

    def close(self, *, at_once: bool) -> None:
        """Take back what is not done, and leave the cluster, or end it if it is ours."""
        super().close(at_once=at_once)
        self.executor.shutdown(wait=False)
        for thing in self.owned:
            thing.close()


class Ray(Pool):
    """Tasks on a Ray cluster, which runs the task of a lost worker again by itself."""

    remote = apart = True
    limit = IN_FLIGHT

    def __init__(self, scheduler: str | None, workers: int | None, retries: int) -> None:
        self.ray = ray = require("ray", extra="ray", why=f"for {setting('engine', 'ray')}")
        errors = ray.exceptions
        self.lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        self.owned = not ray.is_initialized()
        if self.owned:
            self._start(scheduler, workers)
        elif scheduler is not None:
            raise InputError(f"scheduler {scheduler}: this process is connected to Ray already; leave it out")
        # Three times is what Ray and Dask do unless told otherwise.
        self.task = ray.remote(sketch_shard).options(max_retries=max(3, retries), retry_exceptions=False)
        self.out: dict[Future[Any], Any] = {}

    def _start(self, scheduler: str | None, workers: int | None) -> None:
        if scheduler is not None and scheduler != "auto":
            _check_answers(scheduler, "ray://127.0.0.1:10001", _greets_as_ray)
        if scheduler is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what runs here is no one else's business
        local = {"num_cpus": workers or _cores(), "include_dashboard": False} if scheduler is None else {}
        try:
            with _quiet("ray", logging.ERROR):  # it greets in the tone of a warning
                self.ray.init(address=scheduler or "local", configure_logging=False, log_to_driver=False, **local)
        except Exception as error:  # its own limits of time are plain exceptions
            raise InputError(f"scheduler {scheduler or 'of this machine'}: Ray cannot be reached: {error}") from None

    def submit(self, shard: Shard) -> Future[Any]:
        """Hand a shard over."""
        reference = self.task.remote(shard)
        future: Future[Any] = reference.future()
        self.out[future] = reference
        future.add_done_callback(lambda done: self.out.pop(done, None))
        return future

    def close(self, *, at_once: bool) -> None:
        """Take back what is not done; end Ray if it is ours."""
        for reference in list(self.out.values()):
            self.ray.cancel(reference, force=True)
        if self.owned:
            self.ray.shutdown()


def open_pool(engine: Any, *, workers: int | None, scheduler: str | None, retries: int) -> Pool:
    """Make the pool that was asked for."""
    if workers is not None and not (_is_whole(workers) and workers >= 1):
        raise InputError(f"{setting('workers', workers)}: expected a whole number, 1 or more")
    if not (_is_whole(retries) and retries >= 0):
        raise InputError(f"{setting('retries', retries)}: expected a whole number, 0 or more")
    if scheduler is not None and engine not in ("dask", "ray"):
        raise InputError(
            f"{setting('scheduler', scheduler)}: only Dask and Ray have one; add {setting('engine', 'dask')}"
        )
    if scheduler is not None and workers is not None:
        raise InputError(
            f"{setting('workers', workers)}: the cluster at {scheduler} has its own workers; leave one of both out"
        )
    if isinstance(engine, Executor):
        return Given(engine, workers)
    if hasattr(engine, "get_executor"):
        return Dask(engine, (), workers)
    if engine is None:
        engine = "processes" if (workers or 1) > 1 else "serial"
    if engine == "serial":
        if (workers or 1) > 1:
            raise InputError(
                f"{setting('workers', workers)}: a serial engine has one; use {setting('engine', 'processes')}"
            )
        return Pool()
    if engine == "threads":
        return Threads(workers or _cores())
    if engine == "processes":
        return Processes(workers or _cores())
    if engine == "dask":
        return Dask.start(scheduler, workers)
    if engine == "ray":
        return Ray(scheduler, workers, retries)
    raise InputError(
        f"engine={engine!r}: expected one of {', '.join(ENGINES)}, a concurrent.futures.Executor or a Dask client"
    )


@contextlib.contextmanager
def open_workers(
    engine: Any, *, workers: int | None = None, scheduler: str | None = None, retries: int = 0
) -> Iterator[Pool]:
    """Open a pool for as long as it is needed; one that is open already stays open."""
    if isinstance(engine, Pool):
        yield engine
        return
    pool = open_pool(engine, workers=workers, scheduler=scheduler, retries=retries)
    try:
        yield pool
    except BaseException:
        with contextlib.suppress(Exception):  # an engine that cannot even be closed must not hide what happened
            pool.close(at_once=True)
        raise
    pool.close(at_once=False)


def _begin_worker(threads: int) -> None:
    """Share the cores out; leave Ctrl-C to the process that started this one, and do not outlive it."""
    os.environ["ATTEMPER_THREADS"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _greets_as_dask(greeting: bytes) -> bool:
    """Tell a Dask scheduler: it speaks first, with the length of its greeting in eight bytes."""
    return 0 < int.from_bytes(greeting[:8], "little") < 1 << 20


def _greets_as_ray(greeting: bytes) -> bool:
    """Tell Ray: it speaks gRPC, whose first frame from the server is of type 4, its settings."""
    return len(greeting) == 9 and greeting[3] == 4


def _check_answers(address: str, example: str, greets: Callable[[bytes], bool] | None) -> None:
    """Say within seconds that nothing answers, or something else: cluster clients wait for minutes, or for ever."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise InputError(f"scheduler {address!r}: not an address; expected one such as {example}")
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            greeting = b"" if greets is None else connection.recv(9, socket.MSG_WAITALL)
    except TimeoutError:
        raise InputError(f"scheduler {address}: no answer within {CONNECT_SECONDS:g} s; is this its address?") from None
    except OSError as error:
        raise InputError(
            f"scheduler {address}: nothing answers there ({error.strerror or error}); is it running, and is this "
            "its address?"
        ) from None
    if greets is not None and not greets(greeting):
        raise InputError(f"scheduler {address}: something else answers there; is this its address?")
