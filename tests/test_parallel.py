"""Many files: one sketch each, added in order, with the same bits whoever does the work."""

from __future__ import annotations

import gc

import joblib
import numpy as np
import pytest

import attemper
from attemper.errors import AttemperWarning
from attemper.parallel import sketch_files
from attemper.sketches import Sketch
from conftest import draw


@pytest.fixture
def shards(tmp_path):
    data = draw(900, 4)
    paths = [str(tmp_path / f"{i}.npz") for i in range(6)]
    for path, part in zip(paths, np.array_split(np.arange(900), 6)):
        np.savez(path, logits=data.h[part], labels=data.y[part])
    return data, paths


def bits(sketch):
    return {name: table.tobytes() for name, table in sketch.tables.items()} | {"nll": sketch.nll.tobytes()}


def test_the_sum_is_that_of_the_rows(shards):
    data, paths = shards
    made, whole = sketch_files(paths), Sketch.of(attemper.read(data.h, data.y))
    np.testing.assert_allclose(made.nll, whole.nll, rtol=1e-12)
    assert made.n_samples == 900
    expected = attemper.TemperatureScaling().fit(data.h, data.y).temperature_
    assert attemper.fit(made, method="ts").temperature_ == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_workers_of_joblib(shards, backend):
    _, paths = shards
    with joblib.parallel_config(backend=backend, n_jobs=2):
        made = sketch_files(paths)
    assert bits(made) == bits(sketch_files(paths, n_jobs=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_dask(shards):
    from distributed import Client, LocalCluster

    _, paths = shards
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster), joblib.parallel_config(backend="dask"):
        made = sketch_files(paths)
        cal = attemper.fit(paths, method="ts", n_jobs=-1)
    assert bits(made) == bits(sketch_files(paths))
    assert cal.temperature_ == attemper.fit(paths, method="ts").temperature_


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_ray(shards):
    import ray
    from ray.util.joblib import register_ray

    _, paths = shards
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=2):
            made = sketch_files(paths)
    finally:
        ray.shutdown()
        gc.collect()  # what it left open is reported here, where warnings are ignored
    assert bits(made) == bits(sketch_files(paths))


def test_warnings_of_workers_are_shown_once(tmp_path):
    data = draw(200, 4)
    p = data.p
    paths = [str(tmp_path / f"{i}.npz") for i in range(4)]
    for path in paths:
        np.savez(path, logits=p, labels=data.y)
    with pytest.warns(AttemperWarning) as seen:
        sketch_files(paths)
    assert len([w for w in seen if issubclass(w.category, AttemperWarning)]) == 1


def test_files_and_pieces_in_which_nothing_counts_are_left_out(shards, tmp_path, monkeypatch):
    data, paths = shards
    np.savez(nothing := str(tmp_path / "a.npz"), logits=data.h, labels=np.full(900, 255))
    made = sketch_files([nothing, *paths], ignore_index=255)
    assert bits(made) == bits(sketch_files(paths))
    monkeypatch.setattr("attemper.verbs.IN_MEMORY", 0)
    cal = attemper.fit([nothing, *paths], method="ts", ignore_index=255)
    assert cal.temperature_ == attemper.fit(made, method="ts").temperature_
    with pytest.raises(attemper.InputError) as error:
        sketch_files([nothing], ignore_index=255)
    assert error.value.param == "data"
    for path, w in zip(paths, (np.ones(150), *[np.zeros(150)] * 5)):
        with np.load(path) as z:
            np.savez(path, **z, w=w)
    weighted = sketch_files(paths, sample_weight="w")
    np.testing.assert_allclose(weighted.nll, sketch_files(paths[:1]).nll, rtol=1e-12)
