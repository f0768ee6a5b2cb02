"""Whoever does the work, the answer is the same to the last bit, and so are the errors."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import (
    AttemperError,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    FileError,
    InputError,
    MatrixScaling,
    Scores,
    TemperatureScaling,
)
from attemper.io import open_scores
from attemper.sharded import engines, fit_sharded, sketch_sharded

from data import draw, save
from sharding import CLUSTERS, Shuffled, break_shard, clusters, same

PLAIN = ["serial", "threads"]


@given(st.permutations(range(5)))
def test_the_order_of_completion_changes_no_bit(order):
    shards = [draw(20, 3, seed=i) for i in range(5)]
    assert same(sketch_sharded(shards, engine=Shuffled(order), n_nodes=8), sketch_sharded(shards, n_nodes=8))


@pytest.mark.parametrize(
    "engine",
    [
        "threads",
        pytest.param("processes", marks=pytest.mark.slow),
        "executor",
        *(pytest.param(e, marks=CLUSTERS) for e in ("dask", "scheduler", "ray")),
    ],
)
def test_every_engine_gives_the_same_bits(engine, shards, request, monkeypatch):
    told = {"engine": engine, "workers": 2}
    if engine == "executor":
        told = {"engine": ThreadPoolExecutor(3)}
    elif engine == "dask":
        told = {"engine": request.getfixturevalue("dask_client")}
    elif engine == "scheduler":
        monkeypatch.setattr(engines, "CONNECT_SECONDS", 600.0)
        address = request.getfixturevalue("dask_client").scheduler.address
        told = {"engine": "dask", "scheduler": address}
    elif engine == "ray":
        request.getfixturevalue("ray_cluster")
    seen = []
    found = fit_sharded(
        BayesianTemperatureScaling(labels="noisy"), shards, **told, progress=lambda *now: seen.append(now)
    )
    expected = fit_sharded(BayesianTemperatureScaling(labels="noisy"), shards)
    assert found.temperature_ == expected.temperature_
    assert found.noise_rate_ == expected.noise_rate_
    assert seen == [(i, 5) for i in range(1, 6)]


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(t_range=(0.1, 9)),
        AttendedTemperatureScaling(theta=0.02, loss="reference"),
        AttendedTemperatureScaling(theta_grid=[0.01, 0.03]),
        BayesianTemperatureScaling(),
    ],
)
def test_shards_are_fitted_as_the_whole(calibrator, shards):
    whole = open_scores(shards).load()
    t = fit_sharded(calibrator, str(shards[0].parent / "s*.npz"), engine="threads").temperature_
    assert t == pytest.approx(calibrator.fit(whole).temperature_, rel=1e-7)


def test_shards_in_memory(shards):
    expected = sketch_sharded(shards)
    arrays = [draw(60, 4, seed=i) for i in range(5)]
    scores = [Scores.from_logits(h, y) for h, y in arrays]
    for given_ in (arrays, scores, iter(arrays)):
        found = sketch_sharded(given_, engine="threads", workers=2)
        assert same(found, expected)
    weighted = sketch_sharded([(h, y, np.full(60, 2.0)) for h, y in arrays])
    np.testing.assert_allclose(weighted.nll, 2 * expected.nll, rtol=1e-12)
    p = [np.exp(h) / np.exp(h).sum(axis=1, keepdims=True) for h, _ in arrays]
    named = TemperatureScaling(input="probs", classes=list("abcd"))
    fit_sharded(named, [(p_i, np.array(list("abcd"))[y]) for p_i, (_, y) in zip(p, arrays)])
    logits = TemperatureScaling(t_range=expected.t_range).fit_sketch(expected)
    assert named.temperature_ == pytest.approx(logits.temperature_, rel=1e-9)


def test_labels_in_files_of_their_own(tmp_path, shards):
    for i in range(5):
        save(tmp_path, "npy", *draw(60, 4, seed=i), stem=f"h{i}")
    labels = str(tmp_path / "h?_labels.npy")
    assert same(sketch_sharded(str(tmp_path / "h?.npy"), labels=labels, workers=1), sketch_sharded(shards))


def test_a_shard_without_weight_is_no_error_but_all_are(tmp_path):
    h, y = draw(50, 4)
    for name, w in (("a", np.zeros(50)), ("b", np.ones(50))):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, w=w)
    found = sketch_sharded([tmp_path / "a.npz", tmp_path / "b.npz"], weights_key="w")
    assert (found.n_samples, found.weight) == (100, 50)
    with pytest.raises(InputError):
        sketch_sharded([tmp_path / "a.npz"], weights_key="w")


BROKEN = [
    ("corrupt", FileError, r"s3\.npz: cannot be read as"),
    ("no bytes", FileError, r"s3\.npz: the file is empty \(0 bytes\)"),
    ("no rows", InputError, r"s3\.npz: no rows"),
    ("classes", InputError, r"s3\.npz: expected 4 classes, as .*s\d\.npz has, got 8"),
    ("vocabulary", InputError, r"s3\.npz: labels: row 7 has label 4"),
    ("absent", FileError, r"s3\.npz: there is no such file"),
]


@pytest.mark.parametrize(
    "engine, kind, error, why",
    [
        *((engine, *case) for engine in ("serial", "threads") for case in BROKEN),
        *(pytest.param("dask", *case, marks=CLUSTERS) for case in BROKEN),
        *(pytest.param("ray", *case, marks=CLUSTERS) for case in BROKEN[::3]),
    ],
)
def test_a_bad_shard_is_named(kind, error, why, engine, shards, request):
    told = {"engine": engine}
    if engine == "dask":
        told = {"engine": request.getfixturevalue("dask_client"), "workers": 2}
    elif engine == "ray":
        request.getfixturevalue("ray_cluster")
    break_shard(kind, shards[3])
    with pytest.raises(error) as caught:
        sketch_sharded(shards, **told, retries=2)
    assert type(caught.value) is error


@pytest.mark.slow
def test_processes_send_back_the_same_error(shards):
    break_shard("vocabulary", shards[3])
    with pytest.raises(InputError):
        sketch_sharded(shards, workers=2)


def test_other_columns_are_told_by_name(tmp_path):
    h, y = draw(30, 3)
    for name, columns in (("a", "cat,dog,cow"), ("b", "cat,dog,cow"), ("c", "cat,fox,cow")):
        save(tmp_path, "csv", h, y, stem=name)
        text = (tmp_path / f"{name}.csv").read_text().replace("logit_0,logit_1,logit_2", columns)
        (tmp_path / f"{name}.csv").write_text(text)
    np.savez(tmp_path / "0.npz", logits=h, labels=y)  # has no names
    for given_ in ("[abc].csv", "*"):
        with pytest.raises(InputError):
            sketch_sharded(str(tmp_path / given_))


@pytest.mark.parametrize(
    "told, why",
    [
        ({"engine": "spark"}, "engine='spark': expected one of serial, threads"),
        ({"engine": object()}, "expected one of serial"),
        ({"engine": "serial", "workers": 2}, "a serial engine has one"),
        ({"workers": 0}, "workers=0"),
        ({"retries": -1}, "retries=-1"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "only Dask and Ray"),
        ({"engine": "dask", "scheduler": "tcp://127.0.0.1:1", "workers": 2}, "has its own workers"),
        ({"resume": True}, "cache_dir="),
        ({"zeros_as": 1e-3, "input": "logits"}, "only probabilities take zeros_as"),
    ],
)
def test_what_makes_no_sense_is_told_at_once(told, why, shards):
    with pytest.raises(InputError):
        sketch_sharded(shards, **told)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no.such.host.invalid:1", "tcp://host:port"])
def test_an_absent_scheduler(shards, address, monkeypatch):
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 0.5)
    with pytest.raises(InputError):
        sketch_sharded(shards, engine="dask", scheduler=address)


@pytest.mark.slow
def test_a_server_that_is_no_scheduler(shards, monkeypatch):
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer():
            with suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError):
            sketch_sharded(shards, engine="dask", scheduler=f"tcp://127.0.0.1:{port}")


NO_WORKER = """
import os, signal, sys
if any("spawn_main" in word for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@clusters
@pytest.mark.slow
def test_dask_workers_that_die_at_their_start_are_one_message(tmp_path, shards, monkeypatch, capfd):
    pytest.importorskip("distributed")
    (tmp_path / "sitecustomize.py").write_text(NO_WORKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(AttemperError):
        sketch_sharded(shards, engine="dask", workers=1)
    assert "Traceback" not in capfd.readouterr().err


def test_workers_are_opened_once_for_all_passes(shards, monkeypatch):
    opened = []
    real = engines._engine
    monkeypatch.setattr(engines, "_engine", lambda *args: opened.append(args[0]) or real(*args))
    drawn = (draw(60, 4, seed=i) for i in range(5))
    parts = [(scale * h, y) for scale, (h, y) in zip([1, 1e4, 1, 1, 1], drawn)]  # on two scales: a pass for each
    assert fit_sharded(TemperatureScaling(), parts, engine="threads", workers=2).fit_report_.n_iter > 1
    assert opened == ["threads"]


@clusters
def test_an_absent_ray_cluster(shards):
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        with pytest.raises(InputError):
            sketch_sharded(shards, engine="ray", scheduler="ray://127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(InputError):
            sketch_sharded(shards, engine="ray", scheduler="ray://127.0.0.1:1")


@pytest.mark.parametrize("given_", [[], [np.ones((3, 2))], [draw(), "a.npz"], Scores.from_logits(*draw())])
def test_what_is_no_list_of_shards(given_):
    with pytest.raises(InputError):
        sketch_sharded(given_)


def test_methods_that_need_all_logits_say_so(shards):
    with pytest.raises(InputError):
        fit_sharded(MatrixScaling(), shards)
    with pytest.raises(InputError):
        fit_sharded(TemperatureScaling(), shards, input="probs")
