"""Shards in files, clusters of two workers, and files that kill who opens them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from data import draw

PATIENCE = 600  # seconds: machines are shared

# Python runs a module of this name at its start, in every worker of every engine.
DEADLY = """
import os, signal, sys

def hook(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].endswith("deadly.npz"):
        for armed in (args[0] + ".armed1", args[0] + ".armed2"):
            if os.path.exists(armed):
                os.remove(armed)
                os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""


@pytest.fixture(scope="session")
def deadly(tmp_path_factory):
    """Let processes that start from here on be killed by opening deadly.npz while deadly.npz.armed1 or 2 is there."""
    folder = tmp_path_factory.mktemp("deadly")
    (folder / "sitecustomize.py").write_text(DEADLY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        yield


def write_shards(folder: Path, n: int = 5, rows: int = 60) -> list[Path]:
    paths = []
    for i in range(n):
        h, y = draw(rows, 4, seed=i)
        paths.append(folder / f"s{i}.npz")
        np.savez(paths[-1], logits=h, labels=y)
    return paths


@pytest.fixture
def shards(tmp_path):
    """Return five files of one data set."""
    return write_shards(tmp_path)


@pytest.fixture
def deadly_shards(tmp_path, shards):
    """Return a data set whose third file kills its first worker."""
    path = tmp_path / "deadly.npz"
    shards[2].rename(path)
    Path(f"{path}.armed1").touch()
    return [*shards[:2], path, *shards[3:]]


def started(start):
    """Start a cluster; once more where a busy machine was too slow for it."""
    try:
        return start()
    except Exception:
        return start()


@pytest.fixture(scope="session")
def dask_client(deadly):
    """Start two worker processes, the only ones of Dask; tests that use them are in the group "clusters"."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    timeouts = {f"distributed.comm.timeouts.{what}": f"{PATIENCE}s" for what in ("connect", "tcp")}
    with dask.config.set({**timeouts, "distributed.scheduler.worker-ttl": None}):
        cluster = started(
            lambda: distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        )
        with cluster, distributed.Client(cluster, timeout=PATIENCE, set_as_default=False) as client:
            yield client


@pytest.fixture(scope="session")
def ray_cluster(deadly):
    """Start Ray with two workers, the only one; no request leaves the machine."""
    ray = pytest.importorskip("ray")

    def start():
        try:
            ray.init(address="local", num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
        except BaseException:
            ray.shutdown()
            raise

    from ray._private import services

    real, give_up = services.get_node, time.monotonic() + PATIENCE

    def get_node(*args):  # Ray itself asks for 30 seconds
        while True:
            try:
                return real(*args)
            except RuntimeError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_gcs_server_port_wait_time_s", str(PATIENCE))
        with pytest.MonkeyPatch.context() as starting:
            starting.setattr(services, "get_node", get_node)
            started(start)
        yield
        ray.shutdown()
