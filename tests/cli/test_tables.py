"""Tables on the command line: columns by name, another name for the labels, what was taken is reported."""

from __future__ import annotations

import json

import numpy as np
import pytest

NAMES = ["A", "B", "C", "D"]


@pytest.fixture
def answers(tmp_path):
    rng = np.random.default_rng(0)
    h = 2 * rng.normal(size=(80, 4))
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)

    def write(stem, order):
        rows = [
            {"id": i, "question": f"q, {i}"} | {NAMES[k]: h[i, k] for k in order} | {"answer": NAMES[y[i]]}
            for i in range(80)
        ]
        lines = [",".join(rows[0]), *(",".join(json.dumps(v) for v in row.values()) for row in rows)]
        (tmp_path / f"{stem}.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("val", (0, 1, 2, 3))
    write("turned", (2, 3, 0, 1))
    return h, y


def test_columns_and_labels_by_name(cli, good, bad, answers):
    told = ("--columns", "A,B,C,D", "--labels-key", "answer")
    found = []
    for name in ("val.csv", "val.jsonl", "turned.csv", "turned.jsonl"):
        printed = json.loads(good("fit", name, *told, "--method", "ts", "-o", f"{name}.json", "--json"))
        assert printed["columns"] == {name: NAMES}
        found.append(printed["temperature"])
        done = cli("fit", name, *told, "--method", "ts", "-o", f"{name}.json")
        assert done.err.startswith(f"{name}: ")
    assert len(set(found)) == 1
    assert json.loads(good("evaluate", "val.csv", *told, "--json")) is not None
    bad("fit", "val.csv", "--columns", "A,B,C,D", "--labels-key", "anwser")  # codespell:ignore
    bad("fit", "val.csv", "--columns", "A,,B")


def test_a_map_knows_the_names(good, answers, tmp_path):
    good("fit", "val.csv", "--columns", "A,B,C,D", "--labels-key", "answer", "--method", "vector", "-o", "m.json")
    for name in ("val", "turned"):  # names win over position
        good("apply", "m.json", f"{name}.jsonl", "-o", f"{name}.out.jsonl")
    one, other = ((tmp_path / f"{name}.out.jsonl").read_text() for name in ("val", "turned"))
    assert one == other
    assert json.loads(one.splitlines()[0])["prediction"] in NAMES


def test_several_files_are_named_alike(good, answers, tmp_path):
    told = ("--columns", "A,B,C,D", "--labels-key", "answer")
    good("fit", "val.csv", "val.jsonl", *told, "--method", "ts", "-o", "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["classes"] == NAMES


def test_val_and_test_may_have_another_order(good, tmp_path):
    rng = np.random.default_rng(0)
    for stem, order in (("val", NAMES), ("test", NAMES), ("turned", NAMES[::-1])):
        if stem != "turned":
            h = 2 * rng.normal(size=(150, 4))
            y = (h + rng.gumbel(size=h.shape)).argmax(axis=1)
        rows = [",".join([*(str(h[i, NAMES.index(name)]) for name in order), NAMES[y[i]]]) for i in range(150)]
        (tmp_path / f"{stem}.csv").write_text(
            "\n".join([",".join([*(f"logit_{name}" for name in order), "answer"]), *rows]) + "\n"
        )
    told = ("--labels-key", "answer", "--classes", "A,B,C,D", "--methods", "ts,vector", "--cv", "0", "--json")
    one, other = (json.loads(good("compare", "val.csv", name, *told)) for name in ("test.csv", "turned.csv"))
    for first, second in zip(one["rows"], other["rows"]):
        assert first["metrics"]["nll"]["value"] == pytest.approx(second["metrics"]["nll"]["value"])
