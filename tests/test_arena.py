"""The benchmarks that others run on files of their own: CalArena's adaptor, the arena, the families of logits."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.metrics import brier_score_loss, log_loss

from attemper.calibrators import METHODS

pytestmark = pytest.mark.filterwarnings("ignore")  # what a fit advises is not the question here
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
    """Import a benchmark; its folder stays on the path no longer than that, since it has a coverage.py."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def calarena():
    return load("calarena")


@pytest.fixture(scope="module")
def arena():
    return load("arena")


@pytest.fixture(scope="module")
def families():
    return load("families")


def predictions(n, n_classes, seed, scale=2.0):
    """Over-confident logits, and labels drawn from them at T = 2."""
    rng = np.random.default_rng(seed)
    logits = 2 * scale * rng.normal(size=(n, n_classes))
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


# CalArena


def binary(n=400, seed=0):
    """Draw probabilities of the second class in single precision, some of them exactly 0 and 1, and labels."""
    logits, y = predictions(n, 2, seed)
    p = softmax(logits, axis=1)[:, 1].astype(np.float32)
    p[:3], p[3:6] = 0, 1
    return p, y.astype(np.int32)


def of_its_layout(write):
    """Call write(key, array) for two experiments of two classes."""
    for model in ("RandomForest", "XGBoost"):
        for part, seed in (("cal", 1), ("test", 2)):
            p, y = binary(300, seed + len(model))
            write(f"credit/{model}/probas_{part}", p)
            write(f"credit/{model}/labels_{part}", y)


@pytest.mark.parametrize("method", ["ts", "bayes", "structured", "beta", "isotonic"])
def test_calarena_gets_two_columns_from_one(calarena, method):
    p, y = binary()
    answers = []
    for given in (p, p[:, None], calarena.columns(p)):
        fitted = calarena.CUSTOM_CALIBRATORS[f"attemper-{method}"]()
        fitted.fit(given, y)
        answers.append(fitted.predict_proba(given))
    assert answers[0].shape == (len(p), 2)
    assert np.isfinite(answers[0]).all()
    np.testing.assert_allclose(answers[0].sum(axis=1), 1, atol=1e-9)
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_calarena_passes_the_method_what_it_would_get_by_hand(calarena):
    logits, y = predictions(300, 4, 0)
    p = softmax(logits, axis=1).astype(np.float32)
    by_hand = METHODS["ts"](input="probs").fit(np.float64(p) / np.float64(p).sum(axis=1, keepdims=True), y)
    adapted = calarena.AttemperCalibrator("ts").fit(p, y)
    np.testing.assert_allclose(adapted.predict_proba(p), by_hand.predict_proba(p), atol=1e-3)


def test_calarena_keeps_small_probabilities_and_raises_zeros(calarena):
    logits, y = predictions(300, 4, 0, scale=10)
    network = softmax(logits, axis=1)
    assert calarena.AttemperCalibrator("ts").fit(network, y).least_ == pytest.approx(max(network.min(), 1e-15))
    forest = np.round(network, 2)
    assert calarena.AttemperCalibrator("ts").fit(forest, y).least_ == 1e-6


def test_calarena_has_every_method_and_a_fresh_object_each_time(calarena):
    assert set(calarena.CUSTOM_CALIBRATORS) == {f"attemper-{name}" for name in METHODS}
    make = calarena.CUSTOM_CALIBRATORS["attemper-ts"]
    assert make() is not make()


def check_results(calarena, file, folder):
    calarena.main([str(file), "--calibrators", "ts,structured", "--results", str(folder)])
    for method in ("ts", "structured"):
        name = f"attemper-{method}"
        with (folder / file.stem / f"{name}.csv").open(newline="") as f:
            lines = list(csv.DictReader(f))
        assert [(line["dataset"], line["model"]) for line in lines] == [
            ("credit", m) for m in ("RandomForest", "XGBoost")
        ]
        assert set(lines[0]) == {"dataset", "model", "cal_size", "test_size"} | {
            f"{name}_{score}" for score in ("logloss", "brier", "accuracy", "time")
        }
    p_cal, y_cal = binary(300, 1 + len("XGBoost"))
    p_test, y_test = binary(300, 2 + len("XGBoost"))
    q = calarena.AttemperCalibrator("structured").fit(p_cal, y_cal).predict_proba(p_test)
    assert float(lines[1]["attemper-structured_logloss"]) == pytest.approx(log_loss(y_test, q))
    assert float(lines[1]["attemper-structured_brier"]) == pytest.approx(2 * brier_score_loss(y_test, q[:, 1]))


def test_calarena_reads_an_npz_of_its_layout(calarena, tmp_path):
    arrays = {}
    of_its_layout(arrays.__setitem__)
    np.savez(tmp_path / "tabrepo-binary.npz", **arrays)
    check_results(calarena, tmp_path / "tabrepo-binary.npz", tmp_path / "results")


# The arena


def arena_file(folder, name, n_classes, seed):
    """Write a data set with the predictions of two classifiers, as logits and as probabilities with zeros."""
    arrays = {"small": np.arange(0, 400, 2)}
    for part, s in (("val", seed), ("test", seed + 1)):
        logits, y = predictions(400, n_classes, s)
        p = softmax(logits, axis=1)
        p[p < 1e-4] = 0
        arrays |= {f"lr/p_{part}": logits.astype("f4"), f"rf/p_{part}": p.astype("f4"), f"y_{part}": y}
    np.savez(folder / f"{name}.npz", **arrays, **{"lr/kind": "logits", "rf/kind": "probs"})


@pytest.fixture(scope="module")
def arena_lines(arena, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    arena_file(folder, "two", 2, 0)
    arena_file(folder, "five", 5, 2)
    names = [arena.BASE, "ts", "ats", "platt"]
    wanted = [(size, name) for size in arena.SIZES for name in names]
    jobs = [(path, model, wanted) for path in sorted(folder.glob("*.npz")) for model in arena.models_of(path)]
    lines = [line for job in jobs for line in arena.one_job(job)]
    return [{field: str(line.get(field, "")) for field in arena.FIELDS} for line in lines]


def test_arena_fits_every_calibrator_to_every_classifier(arena, arena_lines):
    assert len(arena_lines) == 2 * 2 * 2 * 4
    assert not any(line["failed"] for line in arena_lines)
    blocks = [arena.Block(arena_lines, two, size) for two in (True, False) for size in arena.SIZES]
    for block in blocks:
        assert list(block.set_names) == (["two"] * 2 if "Two" in block.title else ["five"] * 2)
        assert set(block.models) == {"lr", "rf"}
        gain = dict(zip(block.names, block.change["logloss"].mean(axis=0), strict=True))
        assert gain[arena.BASE] == 0
        assert gain["ts"] < -0.02
    page = arena.page(blocks)
    for title in ("Two classes, all rows", "Two classes, 200 rows", "More classes, all rows", "More classes, 200 rows"):
        assert f"## {title}" in page
    assert "| calibrator | lr | rf |" in page


def test_arena_counts_an_error_as_uncalibrated(arena, monkeypatch):
    def broken():
        raise RuntimeError("no")

    monkeypatch.setitem(arena.PEERS, "broken", (broken, "any"))
    p, y = np.full((10, 2), 0.5), np.arange(10) % 2
    line = arena.one_fit("broken", p, y, p, y)
    assert line["failed"] == "RuntimeError('no')"
    assert line["logloss"] == pytest.approx(np.log(2))
    assert line["brier"] == pytest.approx(0.25)


def test_arena_scores_are_those_of_scikit_learn(arena):
    logits, y = predictions(200, 4, 0)
    p = softmax(logits, axis=1)
    assert arena.scores(p, y)["logloss"] == pytest.approx(log_loss(y, p))
    assert arena.scores(p, y)["brier"] == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(axis=1).mean())


def test_win_share_is_the_share_of_the_others_beaten(arena):
    loss = np.array([[0.1, 0.2, 0.3, 0.2], [1.0, 1.0, 1.0, 1.0]])
    slow = np.zeros_like(loss)
    for e, row in enumerate(loss):
        for i, own in enumerate(row):
            others = [other for j, other in enumerate(row) if j != i]
            slow[e, i] = np.mean([1.0 if own < other else 0.5 if own == other else 0.0 for other in others])
    np.testing.assert_allclose(arena.win_shares(loss), slow)


# Families of logits


@pytest.mark.parametrize(
    ("name", "family"),
    [("cifar10_garg--L1", "cifar10"), ("cifar10_verified--vgg", "cifar10"), ("llm_bluq--a--b", "llm_bluq"), ("x", "x")],
)
def test_family_of_a_set(families, name, family):
    assert families.family_tables.family_of(name) == family


def test_labels_depend_on_set_row_and_draw_alone(families, tmp_path):
    h, y = predictions(500, 4, 0)
    rows, path = np.arange(100, 350), tmp_path / "some--set.npz"
    for row, wrong in (("clean50", 0), ("uniform0-50", 0), ("pairs20-50", 10), ("uniform30-200", None)):
        taken, labels = families.draw_labels(path, row, 0, h, y, rows)
        again = families.draw_labels(path, row, 0, h, y, rows)
        np.testing.assert_array_equal(taken, again[0])
        np.testing.assert_array_equal(labels, again[1])
        assert set(taken) <= set(rows)
        assert len(set(taken)) == families.parse_row(row)[2]
        assert wrong is None or (labels != y[taken]).sum() == wrong
        assert not np.array_equal(taken, families.draw_labels(path, row, 1, h, y, rows)[0])
    assert families.draw_labels(path, "clean251", 0, h, y, rows) is None


def test_best_temperature_is_that_of_a_fine_grid(families):
    h, y = predictions(400, 4, 1)
    grid = np.geomspace(1, 4, 701)
    losses = [-np.mean(log_softmax(h / t, axis=1)[np.arange(400), y]) for t in grid]
    t, loss = families.best_temperature(h, y)
    assert t == pytest.approx(grid[np.argmin(losses)], rel=2e-3)
    assert loss == pytest.approx(min(losses), abs=1e-6)


def test_a_job_of_families_has_a_line_for_each_fit(families, tmp_path):
    h, y = predictions(600, 3, 2)
    path = tmp_path / "some--set.npz"
    np.savez(path, logits=h, labels=y)
    wanted = [(row, method) for row in ("clean50", "uniform30-200", "clean1000") for method in ("ts", "vector")]
    lines = families.one_job((path, 0, wanted))
    assert [(line["row"], line["method"]) for line in lines] == wanted[:4]  # half of the set has 300 labels
    for line in lines:
        assert "failed" not in line
        assert line["family"] == "some"
    assert 0 <= lines[0]["excess"] < 0.1


def test_tables_of_families_have_every_mean_by_family(families, tmp_path):
    """Sets of two families with known excess: `a` is best on one, `b` on the others."""
    lines = ["set,family,row,draw,method,nll,best_nll,excess,cpu_s,t_held,noise_held,failed"]
    for name, excess in (("x--1", 0.1), ("x--2", 0.3), ("y--1", -0.2), ("z--1", -0.4)):
        for method, value in (("ts", 0.0), ("a", excess), ("b", -excess)):
            lines += [f"{name},,clean20,{draw},{method},1,1,{value + draw},0.001,1,," for draw in (0, 1)]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    tables = families.family_tables
    cases = tables.gather(tmp_path / "runs.csv")
    table = tables.Table(cases, ["clean20", "clean50"])
    assert table.rows == ["clean20"]
    assert table.mean("clean20", "a", "x") == pytest.approx(0.7)  # the draws add 0 and 1
    assert table.mean("clean20", "a") == pytest.approx(0.45)
    page = tables.page(cases, ["clean20"], choose=["a", "b"])
    assert "| x | 2 | 0.5000 | 0.7000 | 0.3000 |" in page
    assert "| mean of families | 3 | 0.5000 | 0.3667 | 0.6333 |" in page
    assert "| x | a | 0.7000 | b | 0.3000 |" in page  # a is best on y and z, b on x
    assert "| clean20 | +0.300 (x--2) | +0.400 (z--1) |" in page
