"""Files of labels that do not exclude each other: fit, apply, evaluate, refer."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from attemper import MultiLabelCalibrator, load
from attemper.decisions import LabelPolicies
from attemper.metrics import label_metrics

from commands import strict_json

NAMES = ["Edema", "Fracture", "Hernia"]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(n, 3)) - [0, 1, 3]
    y = (truth + rng.logistic(size=truth.shape) > 0).astype(float)
    y[rng.random(y.shape) < 0.2] = np.nan
    return 2 * truth + 1, y


def columns_of(s, y):
    found = {"Path": [f"p{i}.jpg" for i in range(len(s))]}
    found |= {f"logit_{name}": s[:, k].tolist() for k, name in enumerate(NAMES)}
    return found | {f"label_{name}": [None if v != v else v for v in y[:, k]] for k, name in enumerate(NAMES)}


def write_csv(path, columns):
    with Path(path).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(["" if v is None else v for v in row] for row in zip(*columns.values()))


@pytest.fixture
def files(cli):
    """Write the same data in every format, into the folder that commands run in."""
    data = {name: draw(300, seed) for seed, name in enumerate(("val", "test", "more"))}
    for name, (s, y) in data.items():
        np.savez(f"{name}.npz", logits=s, labels=y, label_names=np.array(NAMES))
        save_file({"logits": s, "labels": y}, f"{name}.safetensors")
        columns = columns_of(s, y)
        write_csv(f"{name}.csv", columns)
        pq.write_table(pa.table(columns), f"{name}.parquet")
    return data


def test_every_format_gives_the_same_map(good, files):
    expected = MultiLabelCalibrator(label_names=NAMES).fit(*files["val"])
    for suffix in ("npz", "csv", "parquet", "safetensors"):
        good("fit", f"val.{suffix}", "--multi-label", "-o", "m.json")
        found = load("m.json")
        assert found.label_names_.tolist() == (NAMES if suffix != "safetensors" else ["0", "1", "2"])
        np.testing.assert_allclose(found.map_.a, expected.map_.a, rtol=1e-9)
    good("fit", "val.csv", "more.csv", "--multi-label", "-o", "m.json")
    assert load("m.json").fit_report_.n_samples > 500
    good("fit", "val.safetensors", "--multi-label", "--classes", ",".join(NAMES), "--method", "platt", "-o", "m.json")
    assert load("m.json").label_names_.tolist() == NAMES
    assert load("m.json").method_name == "platt"


def test_labels_in_a_file_of_their_own(good, files):
    """As CheXpert has them: one column for each finding, without a prefix, in any order."""
    s, y = files["val"]
    good("fit", "val.npz", "--multi-label", "-o", "expected.json")
    named = {name: ["" if v != v else v for v in y[:, k]] for k, name in enumerate(NAMES)}
    write_csv("labels.csv", {"Path": range(len(s)), **{name: named[name] for name in NAMES[::-1]}})
    np.savez("scores.npz", logits=s, label_names=np.array(NAMES))
    np.save("labels.npy", y)
    for labels in ("labels.csv", "labels.npy"):
        good("fit", "scores.npz", "--labels", labels, "--multi-label", "-o", "m.json")
        np.testing.assert_array_equal(load("m.json").map_.a, load("expected.json").map_.a)


def test_apply(good, files):
    good("fit", "val.npz", "--multi-label", "-o", "m.json")
    s, _ = files["test"]
    expected = load("m.json").predict_proba(s)
    for suffix in ("npz", "csv"):
        good("apply", "m.json", f"test.{suffix}", "-o", "p.npz")
        np.testing.assert_allclose(np.load("p.npz")["probs"], expected, rtol=1e-6)
    good("apply", "m.json", "test.csv", "-o", "p.csv")
    with Path("p.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [f"prob_{name}" for name in NAMES]
    assert float(rows[5]["prob_Hernia"]) == pytest.approx(expected[5, 2], rel=1e-9)


def test_evaluate(cli, good, files):
    good("fit", "val.npz", "--multi-label", "-o", "m.json")
    s, y = files["test"]
    assert "micro" in good("evaluate", "test.npz", "--map", "m.json")
    found = strict_json(good("evaluate", "test.csv", "--map", "m.json", "--json"))
    expected = label_metrics(y, load("m.json").predict_proba(s), label_names=NAMES)
    assert found["rows"][1]["metrics"]["micro_nll"]["value"] == pytest.approx(expected.micro.nll)
    assert [row["label"] for row in found["rows"][1]["labels"]] == NAMES
    assert found["rows"][0]["method"] == "none"
    good("evaluate", "test.npz", "--multi-label")
    assert cli("evaluate", "test.npz", "--map", "m.json", "--fail-if", "macro_nll>0").code == 1


def test_refer(good, bad, files):
    good("fit", "val.npz", "--multi-label", "-o", "m.json")
    line = ("refer", "more.npz", "test.npz", "--map", "m.json")
    good(*line, "--max-miss", "0.1", "-o", "p.json")
    assert LabelPolicies.load("p.json").label_names == tuple(NAMES)
    found = strict_json(good(*line, "--budget", "0.2", "--json"))
    assert [row["label"] for row in found["labels"]] == NAMES
    good(*line, "--cost-refer", "1", "--cost-miss", "10")
    bad(*line, "--max-miss", "Edema=0.1")
    for option in (["--confidence-level", "0.9"], ["--predict-least-cost"], ["--noisy"], ["--method", "ts"]):
        bad(*line, "--budget", "0.2", *option)


def test_json(good, files):
    found = strict_json(good("fit", "val.npz", "more.npz", "--multi-label", "-o", "m.json", "--json"))
    assert [row["name"] for row in found["labels"]] == NAMES
    assert (found["method"], found["n_shards"], found["n_classes"]) == ("multilabel pooled", 2, 3)
    assert found["nll"] < found["nll_none"]
    assert strict_json(good("apply", "m.json", "test.npz", "-o", "p.npz", "--json"))["n_samples"] == 300
    assert strict_json(good("fit", "*e*.npz", "--multi-label", "-o", "m.json", "--json"))["n_shards"] == 2


def test_uncertain_entries(good, bad, files):
    s, y = files["val"]
    y[0, 0] = -1
    write_csv("chexpert.csv", columns_of(s, y))
    bad("fit", "chexpert.csv", "--multi-label")
    known = {}
    for how in ("unknown", "positive", "0.5"):
        good("fit", "chexpert.csv", "--multi-label", "--uncertain", how, "-o", "m.json")
        known[how] = load("m.json").labels_[0].n_known
        good("evaluate", "chexpert.csv", "--multi-label", "--uncertain", how)
    assert known["unknown"] == known["positive"] - 1 == known["0.5"] - 1
    bad("evaluate", "val.npz", "--uncertain", "unknown")


def test_probabilities(good, files):
    s, y = files["val"]
    p = 1 / (1 + np.exp(-s))
    np.savez("probs.npz", probs=p, labels=y)
    good("fit", "probs.npz", "--multi-label", "--probs", "-o", "m.json")
    np.testing.assert_allclose(
        load("m.json").predict_proba(p), MultiLabelCalibrator().fit(s, y).predict_proba(s), rtol=1e-6
    )
    good("apply", "m.json", "probs.npz", "-o", "out.npz")


def test_what_is_refused(bad, good, files):
    good("fit", "val.npz", "--multi-label", "-o", "m.json")
    np.savez("two.npz", logits=np.zeros((3, 2)), labels=np.zeros((3, 2)))
    write_csv("half.csv", {"logit_a": [1.0, 2.0], "logit_b": [2.0, 1.0], "label_a": [1, 0]})
    for line in (
        "fit val.npz -o x.json",
        "drift m.json test.npz",
        "fit half.csv --multi-label",
        "apply m.json half.csv -o p.csv",
        "apply m.json two.npz -o p.npz",
        "apply m.json test.npz -o p.npz --positive",
        "evaluate test.npz --map m.json --metrics nonsense",
        "fit val.npz --multi-label --noisy",
        "fit val.npz --multi-label --workers 2",
        "fit val.npz --multi-label -p l2=1",
    ):
        bad(*line.split())
