"""Many shards: the same bits for any number of workers, the same fit as of all rows, and errors that name the shard."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest

from attemper import (
    AttemperError,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    FileError,
    InputError,
    MatrixScaling,
    Scores,
    Sketch,
    TemperatureScaling,
)
from attemper.cli import main
from attemper.io import open_scores
from attemper.sharded import fit_sharded, merge_sketches, sketch_sharded

from data import draw, save


@pytest.fixture
def shards(tmp_path):
    """Return five files of one data set."""
    for i in range(5):
        h, y = draw(60, 4, seed=i)
        np.savez(tmp_path / f"s{i}.npz", logits=h, labels=y)
    return sorted(tmp_path.glob("s?.npz"))


@pytest.fixture
def run(capsys, monkeypatch, tmp_path, shards):
    """Run a command in the folder of the shards; return its exit code and stdout."""
    monkeypatch.chdir(tmp_path)

    def command(line):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, capsys.readouterr().out

    return command


def same(a, b):
    return a.to_dict() == b.to_dict()


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_workers_change_no_bit(backend, shards):
    expected = fit_sharded(BayesianTemperatureScaling(labels="noisy"), shards)
    seen = []
    with joblib.parallel_config(backend=backend):
        found = fit_sharded(
            BayesianTemperatureScaling(labels="noisy"), shards, workers=2, progress=lambda *now: seen.append(now)
        )
    assert (found.temperature_, found.noise_rate_) == (expected.temperature_, expected.noise_rate_)
    assert seen[-1] == (5, 5)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_bits(shards):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        found = sketch_sharded(shards)
    assert same(found, sketch_sharded(shards))


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
    t = fit_sharded(calibrator, str(shards[0].parent / "s*.npz")).temperature_
    assert t == pytest.approx(calibrator.fit(whole).temperature_, rel=1e-7)


def test_shards_in_memory(shards):
    expected = sketch_sharded(shards)
    arrays = [draw(60, 4, seed=i) for i in range(5)]
    scores = [Scores.from_logits(h, y) for h, y in arrays]
    for given in (arrays, scores, iter(arrays)):
        assert same(sketch_sharded(given), expected)
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
    found = sketch_sharded(str(tmp_path / "h?.npy"), labels=str(tmp_path / "h?_labels.npy"))
    assert same(found, sketch_sharded(shards))


def test_a_shard_without_weight_is_no_error_but_all_are(tmp_path):
    h, y = draw(50, 4)
    for name, w in (("a", np.zeros(50)), ("b", np.ones(50))):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, w=w)
    found = sketch_sharded([tmp_path / "a.npz", tmp_path / "b.npz"], weights_key="w")
    assert (found.n_samples, found.weight) == (100, 50)
    with pytest.raises(InputError):
        sketch_sharded([tmp_path / "a.npz"], weights_key="w")


@pytest.mark.parametrize(
    "kind, error",
    [("damaged", FileError), ("absent", FileError), ("empty", InputError), ("classes", InputError)],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_shard_is_an_error(kind, error, workers, shards):
    h, y = draw(60, 4, seed=9)
    if kind == "damaged":
        shards[3].write_bytes(shards[3].read_bytes()[:500])
    elif kind == "absent":
        shards[3].unlink()
    elif kind == "empty":
        np.savez(shards[3], logits=h[:0], labels=y[:0])
    else:
        np.savez(shards[3], logits=np.c_[h, h], labels=y)
    with joblib.parallel_config(backend="threading"), pytest.raises(error):
        sketch_sharded(shards, workers=workers)


def test_other_columns_are_an_error(tmp_path):
    h, y = draw(30, 3)
    for name, columns in (("a", "cat,dog,cow"), ("b", "cat,fox,cow")):
        save(tmp_path, "csv", h, y, stem=name)
        text = (tmp_path / f"{name}.csv").read_text().replace("logit_0,logit_1,logit_2", columns)
        (tmp_path / f"{name}.csv").write_text(text)
    np.savez(tmp_path / "0.npz", logits=h, labels=y)  # has no names
    for given in ("[ab].csv", "*"):
        with pytest.raises(InputError):
            sketch_sharded(str(tmp_path / given))


@pytest.mark.parametrize("given", [[], [np.ones((3, 2))], [draw(), "a.npz"], Scores.from_logits(*draw())])
def test_what_is_no_list_of_shards(given):
    with pytest.raises((AttemperError, TypeError)):
        sketch_sharded(given)


def test_what_cannot_be_fitted_on_shards(shards):
    with pytest.raises(InputError):
        fit_sharded(MatrixScaling(), shards)
    with pytest.raises(InputError):
        fit_sharded(TemperatureScaling(), shards, input="probs")
    with pytest.raises(InputError):
        fit_sharded(TemperatureScaling(), shards, workers=0)


def test_merged_sketches_are_their_sum(tmp_path):
    parts = [Sketch.of(*draw(50, 3, seed=i)) for i in range(7)]
    found = merge_sketches(parts)
    assert found.n_samples == 350
    np.testing.assert_allclose(found.nll, sum(part.nll for part in parts), rtol=1e-13)
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.sketch.json")
    assert same(merge_sketches(str(tmp_path / "*.sketch.json")), found)
    with pytest.raises(InputError):
        merge_sketches([parts[0], Sketch.of(*draw(), thetas=[0.1])])
    with pytest.raises(InputError):
        merge_sketches([parts[0], tmp_path / "0.sketch.json"])


# Commands


@pytest.mark.slow
def test_workers_write_the_same_bytes(run, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, options in (("a", ""), ("b", "--workers 2")):
        code, out = run(f"fit s*.npz --method ats {options} -o {name}.json --json")
        assert code == 0
        assert json.loads(out)["n_shards"] == 5
    assert Path("b.json").read_bytes() == Path("a.json").read_bytes()


def test_small_sketches_are_not_written_unless_told(run):
    assert run("sketch s0.npz -o small.json")[0] == 2
    assert not Path("small.json").exists()
    assert run("sketch s0.npz -o small.json --allow-small")[0] == 0
    assert run("sketch s*.npz -o all.json")[0] == 0
    assert Sketch.load("all.json").n_samples == 300
