"""The experiments: the authors' optimiser, the journal, committed numbers, the data card, a network in training."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from attemper import datasets
from conftest import draw
from experiments.reproduce import claims, consistency, networks, paper, published, table4
from experiments.reproduce.journal import Study, rows_of
from experiments.reproduce.networks import Samples
from experiments.reproduce.pages import read_csv, write_csv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"

needs_data = pytest.mark.skipif(len(datasets.names()) < 2, reason="needs the logits of data/")


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("start", [1.5, 3.0])
def test_the_authors_optimiser_is_that_of_torch(start, clear):
    torch = pytest.importorskip("torch")
    data = draw(300)
    h, y = torch.tensor(5 * data.h), torch.tensor(data.y)
    t = torch.tensor([start], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([t], lr=0.01, max_iter=50)

    def closure():
        if clear:
            optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(h / t, y)
        loss.backward()
        return loss

    optimizer.step(closure)
    found = published.lbfgs(published.mean_nll(Samples(5 * data.h, data.y)), start, clear=clear)
    assert found == pytest.approx(t.item(), rel=1e-9)


def test_slope_of_the_attended_loss_is_its_derivative():
    data = draw(200)
    loss = published.attended_loss(Samples(3 * data.h, data.y), 0.02)
    for t in (0.7, 2.0):
        assert loss(t)[1] == pytest.approx((loss(t + 1e-5)[0] - loss(t - 1e-5)[0]) / 2e-5, rel=1e-6)


def test_a_run_that_was_killed_resumes(tmp_path):
    ran = []

    def run(name, repeat, seed):
        ran.append(repeat)
        return [{"name": name, "repeat": repeat, "value": 1 / 3 + seed, "nothing": None}]

    study = Study("some", 3, lambda repeats: [("a b", i) for i in range(repeats)], run, lambda rows: {})
    with ThreadPoolExecutor(1) as pool:
        rows = rows_of(study, tmp_path, pool, seed=0, repeats=2)
        journal = tmp_path / ".journal" / "some.jsonl"
        journal.write_text(journal.read_text()[:-5])  # cut in the last line
        again = rows_of(study, tmp_path, pool, seed=0, repeats=3)
        rows_of(study, tmp_path, pool, seed=1, repeats=1)
    assert again[:2] == rows
    assert rows[0]["value"] == 0.333333
    assert len(ran) == 5  # two, the one that was cut and a new one, and one of another seed
    assert 2 in ran[2:4]
    write_csv(tmp_path / "some.csv", again)
    assert read_csv(tmp_path / "some.csv") == again


@needs_data
def test_every_row_of_the_paper_has_a_network():
    assert set(networks.ROWS.values()) == set(paper.TABLE_1) == set(paper.TABLE_2)
    assert len(paper.TABLE_1) == 14
    assert set(networks.ROWS) | set(networks.SKIN) <= set(datasets.names())
    assert len({networks.label(name) for name in networks.names()}) == len(networks.names())


@needs_data
def test_committed_numbers_are_those_of_the_code():
    name = "resnet200-skin-randomsplit-s0"
    cases = [
        (table4.STUDY, ("network", "repeat", "method")),
        (consistency.STUDY, ("network", "repeat", "method", "theta")),
    ]
    for study, key in cases:
        committed = {tuple(r[k] for k in key): r for r in read_csv(RESULTS / f"{study.name}.csv")}
        for row in study.run(name, 0, 0):
            if row["method"] in ("ts", "ats"):
                assert row["temperature"] == pytest.approx(
                    committed[tuple(row[k] for k in key)]["temperature"], rel=5e-6
                )


def test_every_claim_has_a_number():
    assert set(claims.numbers(RESULTS)) == set(range(1, 22)) - {9}  # which is one of `make bench`


@pytest.mark.slow
def test_a_network_is_trained(tmp_path):
    pytest.importorskip("torch")
    from experiments.zoo.__main__ import main

    path = main(["--dataset", "digits", "--epochs", "6", "--batch", "32", "--lr", "0.05", "--dropout", "0.5",
                 "--variant", "dropout", "--out", str(tmp_path)])  # fmt: skip
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    assert path.name == "lenet5-digits-dropout-s0.npz"
    assert json.loads(str(arrays["config"]))["test"]["accuracy"] > 0.9
    assert arrays["logits"].shape == arrays["mc_mean_probs"].shape == (400, 10)
    assert (arrays["val_logits"].argmax(axis=1) == arrays["val_labels"]).mean() > 0.9
    assert arrays["mc_mean_probs"].sum(axis=1) == pytest.approx(1, abs=1e-4)
