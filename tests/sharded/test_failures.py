"""What becomes of the work when workers die, disks are full, or somebody interrupts: errors, retries, what is kept."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import fsspec
import numpy as np
import pytest

from attemper import (
    AttemperError,
    FileError,
    InputError,
    Sketch,
)
from attemper.io import open_scores
from attemper.sharded import merge_sketches, sketch_sharded

from data import draw
from sharding import Shuffled, break_shard, clusters, same

# Losses


def test_a_lost_process_is_an_error_that_names_the_shard(deadly, deadly_shards, tmp_path):
    with pytest.raises(AttemperError) as caught:
        sketch_sharded(deadly_shards, workers=2, cache_dir=tmp_path / "kept")
    kept = len(list((tmp_path / "kept").iterdir()))
    assert kept >= 1
    assert f"{kept} of 5 shards are finished and cached in {tmp_path / 'kept'}" in str(caught.value)


def test_a_lost_process_is_made_good_by_retries(deadly, deadly_shards):
    Path(f"{deadly_shards[2]}.armed2").touch()
    found = sketch_sharded(deadly_shards, workers=2, retries=2)
    assert not list(deadly_shards[2].parent.glob("*.armed?"))
    assert same(found, sketch_sharded(deadly_shards))


def test_a_given_executor_that_breaks(deadly, deadly_shards):
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(AttemperError),
    ):
        sketch_sharded(deadly_shards, engine=pool, retries=5)


@clusters
def test_dask_makes_a_lost_worker_good_by_itself(dask_client, deadly_shards):
    found = sketch_sharded(deadly_shards, engine=dask_client, workers=2)
    assert not list(deadly_shards[2].parent.glob("*.armed?"))
    assert same(found, sketch_sharded(deadly_shards))


@clusters
def test_ray_makes_a_lost_worker_good_by_itself(ray_cluster, deadly_shards):
    found = sketch_sharded(deadly_shards, engine="ray")
    assert not list(deadly_shards[2].parent.glob("*.armed?"))
    assert same(found, sketch_sharded(deadly_shards))


class Flaky(ThreadPoolExecutor):
    """Returns an error the first few times, as the work itself does."""

    def __init__(self, failures, error):
        super().__init__(1)
        self.failures, self.error, self.calls = failures, error, 0

    def submit(self, fn, /, *args, **kwargs):
        self.calls += 1
        if self.calls <= self.failures:
            future = Future()
            future.set_result(self.error)
            return future
        return super().submit(fn, *args, **kwargs)


def test_errors_of_the_operating_system_are_tried_again_as_often_as_told(shards):
    stale = OSError(116, "Stale file handle")
    assert same(sketch_sharded(shards, engine=Flaky(2, stale), retries=2), sketch_sharded(shards))
    with pytest.raises(FileError):
        sketch_sharded(shards, engine=Flaky(99, stale), retries=2)
    with pytest.raises(FileError):
        sketch_sharded(shards, engine=Flaky(99, stale))


def test_work_that_the_engine_gives_up_is_no_hang(shards):
    class Gone(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(AttemperError):
        sketch_sharded(shards, engine=Gone(1), retries=3)


def test_errors_of_the_program_are_not_hidden(shards):
    calls = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError) as caught:
        patch.setattr("attemper.sharded.shards.open_scores", lambda *args: calls.append(args) or 1 / 0)
        sketch_sharded(shards, engine="threads", workers=1, retries=9)
    assert len(calls) == 1
    assert re.search(r"while working on .*s0\.npz", caught.value.__notes__[0])


# What is kept


def test_finished_shards_are_not_read_again(tmp_path, shards):
    expected = sketch_sharded(shards)
    whole = shards[3].read_bytes()
    break_shard("vocabulary", shards[3])
    keep = tmp_path / "kept"
    with pytest.raises(InputError):
        sketch_sharded(shards, cache_dir=keep)
    shards[3].write_bytes(whole)
    opened = []
    with pytest.MonkeyPatch.context() as patch:

        def watched(path, spec):
            opened.append(path)
            return open_scores(path, spec)

        patch.setattr("attemper.sharded.shards.open_scores", watched)
        found = sketch_sharded(shards, cache_dir=keep, resume=True)
    assert opened == [str(shards[3]), str(shards[4])]
    assert same(found, expected)
    # Each is a sketch like any other.
    assert same(merge_sketches(keep / "*.sketch.json"), expected)


def test_what_changed_is_made_again(tmp_path, shards):
    keep = tmp_path / "kept"
    sketch_sharded(shards, cache_dir=keep)
    count = len(list(keep.iterdir()))
    h, y = draw(61, 4, seed=77)
    np.savez(shards[1], logits=h, labels=y)
    (next(keep.glob("000002-*"))).write_text("{}")  # damaged
    found = sketch_sharded(shards, cache_dir=keep, resume=True)
    assert found.n_samples == 301
    assert same(found, sketch_sharded(shards))
    other = sketch_sharded(shards, cache_dir=keep, resume=True, t_range=(0.1, 5))
    assert other.t_range == (0.1, 5)
    assert len(list(keep.iterdir())) == 2 * count + 1


def test_other_shards_in_between_are_found(tmp_path, shards):
    keep = tmp_path / "kept"
    sketch_sharded(shards[1:], cache_dir=keep)
    for path in shards[1:]:
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)  # unreadable now, though size and time are the same
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert sketch_sharded(shards, cache_dir=keep, resume=True).n_samples == 300


def test_shards_in_memory_cannot_be_kept(tmp_path):
    with pytest.raises(InputError):
        sketch_sharded([draw(), draw()], cache_dir=tmp_path / "kept")


def test_a_full_disk_leaves_what_was_kept(tmp_path, shards, monkeypatch):
    keep = tmp_path / "kept"
    left = [2]
    real = json.dump

    def dump(*args, **told):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(*args, **told)

    monkeypatch.setattr("attemper._json.json.dump", dump)
    with pytest.raises(FileError):
        sketch_sharded(shards, cache_dir=keep)
    monkeypatch.undo()
    assert [Sketch.load(path).n_samples for path in keep.iterdir()] == [60, 60]
    assert sketch_sharded(shards, cache_dir=keep, resume=True).n_samples == 300


def test_an_interrupt_says_what_is_kept(tmp_path, shards):
    def interrupt(done, of):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        sketch_sharded(shards, cache_dir=tmp_path / "kept", progress=interrupt)
    assert "2 of 5 shards are finished" in caught.value.__notes__[0]


def test_an_executor_that_is_shut_takes_no_work(shards):
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(AttemperError):
        sketch_sharded(shards, engine=executor)


def test_after_an_error_nothing_more_is_begun(shards):
    class Counting(ThreadPoolExecutor):
        begun = 0

        def submit(self, fn, /, *args, **kwargs):
            def counted(*args):
                Counting.begun += 1
                return fn(*args)

            return super().submit(counted, *args, **kwargs)

    shards[0].write_bytes(b"no archive")
    with Counting(1) as executor, pytest.raises(FileError):
        sketch_sharded(shards, engine=executor, workers=5)
    assert Counting.begun < len(shards)


def lives(pid):
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_workers_do_not_outlive_the_process_that_started_them(shards, tmp_path):
    # They sleep over their shard, and the process that waits for them is killed.
    program = """
import os, time
from attemper.sharded.engines import _processes
executor = _processes(2)
futures = [executor.submit(os.getpid), executor.submit(time.sleep, 600)]
print(futures[0].result(), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 600
    while lives(worker) and time.monotonic() < end:
        time.sleep(0.1)
    if lives(worker):
        os.kill(worker, signal.SIGKILL)
        pytest.fail("a worker was still there after 600 s")


def test_the_lowest_number_is_taken_for_the_right_one(tmp_path):
    for i, k in enumerate((3, 4)):
        h, y = draw(30, k)
        np.savez(tmp_path / f"s{i}.npz", logits=h, labels=y)
    for order in ([0, 1], [1, 0]):
        with pytest.raises(InputError):
            sketch_sharded(tmp_path / "*.npz", engine=Shuffled(order))


def test_what_lies_in_this_process_is_not_sent_to_others():
    with pytest.raises(InputError):
        sketch_sharded(["memory://a/0.npz", "memory://a/1.npz"], workers=2)


def test_a_remote_file_that_changed_is_read_again(tmp_path):
    memory = fsspec.filesystem("memory")
    paths = [f"memory://shards{tmp_path.name}/{i}.npz" for i in range(3)]

    def write(path, seed):
        buffer = io.BytesIO()
        h, y = draw(40, 3, seed=seed)
        np.savez(buffer, logits=h, labels=y)
        memory.pipe(path, buffer.getvalue())

    for seed, path in enumerate(paths):
        write(path, seed)
    sketch_sharded(paths, cache_dir=tmp_path / "kept")
    write(paths[1], 9)
    again = sketch_sharded(paths, cache_dir=tmp_path / "kept", resume=True)
    np.testing.assert_array_equal(again.nll, sketch_sharded(paths).nll)
    assert len(list((tmp_path / "kept").iterdir())) == 4  # one of them made anew
