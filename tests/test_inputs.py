"""What input files hold is never guessed: labels, columns, and what a map was fitted on."""

import json
import sys

import numpy as np
import pytest

from attemper import AttemperWarning, Scores, load
from attemper.cli import main
from attemper.comparison import compare
from attemper.data.overlap import same_samples, shared_rows

from data import draw, softmax

NAMES = ["cat", "dog", "eel", "fox"]


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["attemper", *(word for arg in args for word in str(arg).split())])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def good(cli):
    def run(*args):
        code, out, err = cli(*args)
        assert code == 0, err
        return json.loads(out) if "--json" in " ".join(map(str, args)) else out

    return run


@pytest.fixture
def bad(cli):
    def run(*args):
        code, out, err = cli(*args)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        return err.splitlines()[-1]

    return run


def save_csv(path, values, labels, names, *, prefix="logit_", extra=()):
    """Write a table; ``extra`` are (name, column) that come first."""
    heads = [name for name, _ in extra]
    rows = zip(*(column for _, column in extra), labels, *np.asarray(values).T)
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join([*heads, "label", *(prefix + name for name in names)]), *lines]) + "\n")


@pytest.fixture
def sets(tmp_path):
    """VAL and TEST, with labels as numbers."""
    val, test = draw(300, 4, seed=1), draw(250, 4, seed=2)
    for name, (h, y) in (("val", val), ("test", test)):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y)
        np.savez(tmp_path / f"{name}-probs.npz", probs=softmax(h), labels=y)
    return val, test


# What a map takes from its fit


@pytest.mark.parametrize("command", ["evaluate --map m.json", "apply m.json -o out.npz", "drift m.json"])
def test_a_map_of_probabilities_takes_probabilities(good, bad, sets, command):
    good("fit val-probs.npz --probs --method ts -o m.json")
    good(command, "test-probs.npz") if "drift" not in command else None
    assert "m.json" in bad(command, "test.npz --logits-key logits")
    assert "m.json" in bad(command, "test.npz")  # which holds no array of that name


@pytest.mark.parametrize("prefix", ["", "logit_", "Score of "])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_go_by_name(good, sets, tmp_path, prefix, form):
    _, (h, y) = sets
    good("fit val.npz --method vector -o m.json --classes", ",".join(NAMES))
    order = [3, 1, 0, 2]
    names = [prefix + NAMES[k] for k in order]
    if form == "csv":
        save_csv(tmp_path / "new.csv", h[:, order], np.array(NAMES)[y], names, prefix="")
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {name: h[:, k] for name, k in zip(names, order)}
        pq.write_table(pa.table({"label": np.array(NAMES)[y].tolist(), **columns}), tmp_path / "new.parquet")
    a = good(f"evaluate new.{form} --map m.json --json --confidence-level 0.5")
    b = good("evaluate test.npz --map m.json --json --confidence-level 0.5")
    assert a.pop("columns") == {f"new.{form}": [prefix + name for name in NAMES]}
    assert a["rows"][1]["metrics"]["accuracy"] == b["rows"][1]["metrics"]["accuracy"]
    good(f"apply m.json new.{form} -o a.npz --labels-key label")
    good("apply m.json test.npz -o b.npz --labels-key labels")
    with np.load(tmp_path / "a.npz") as one, np.load(tmp_path / "b.npz") as other:
        np.testing.assert_allclose(one["probs"], other["probs"], rtol=1e-12)
        np.testing.assert_array_equal(one["labels"], other["labels"])


def test_tables_whose_columns_stand_in_another_order(good, bad, sets, tmp_path):
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "val.csv", h, y, NAMES)
    save_csv(tmp_path / "test.csv", h2[:, ::-1], y2, NAMES[::-1])
    for command in ("compare --methods ts", "refer --budget 0.2", "report --methods ts"):
        bad(command, "val.csv test.csv")
    good("compare --methods ts val.csv test.csv --classes", ",".join(NAMES))


# Samples that were seen before


@pytest.mark.usefixtures("sets")
def test_one_file_twice_is_refused(bad, tmp_path):
    for command in ("compare --methods ts", "report --methods ts", "refer --budget 0.2"):
        bad(command, "test.npz test.npz")
        (tmp_path / "copy.npz").write_bytes((tmp_path / "test.npz").read_bytes())
        bad(command, "test.npz copy.npz")


def test_rows_that_are_in_both_sets():
    (h, y), (h2, y2) = draw(400, 4, seed=1), draw(300, 4, seed=2)
    val, test = Scores.from_logits(h, y), Scores.from_logits(h2, y2)
    assert shared_rows(val, test) == 0
    mixed = Scores.from_logits(np.concatenate([h2, h[:30].astype(np.float32)[::-1]]), np.concatenate([y2, y[:30]]))
    single = Scores.from_logits(h.astype(np.float32), y)
    assert shared_rows(single, mixed) == 30
    with pytest.warns(AttemperWarning):
        compare(single, mixed, ["ts"], confidence_level=None)
    assert same_samples(val, Scores.from_logits(h, (y + 1) % 4))
    assert same_samples(val, Scores.from_logits(h[::-1], y[::-1]))
    assert not same_samples(single, mixed)
    assert shared_rows(val, Scores.from_probs(softmax(h), y)) == 0


def in_precision(values, precision):
    if precision == "bfloat16":
        return pytest.importorskip("torch").tensor(values).bfloat16()
    return values.astype(precision)


@pytest.mark.parametrize("precision", ["float64", "float32", "float16", "bfloat16"])
def test_rows_in_another_precision(precision):
    (h, y), (h2, y2) = draw(400, 4, seed=1), draw(300, 4, seed=2)
    h, h2 = (np.where(a > 3, 0.0, a) for a in (h, h2))  # zeros of either sign
    val, both = Scores.from_logits(h, y), np.concatenate([h2, -0.0 + h[:30]])
    test = Scores.from_logits(in_precision(both, precision), np.concatenate([y2, y[:30]]))
    assert shared_rows(val, test) == shared_rows(test, val) == 30
    assert not same_samples(val, test)
    copy = Scores.from_logits(in_precision(h, precision), y)
    assert same_samples(val, copy)
    assert same_samples(copy, val)
    if precision == "float32":
        assert same_samples(val, Scores.from_logits(copy.values.astype(np.float64), y))  # in double precision again
    p = softmax(8 * h).astype("float32" if precision == "bfloat16" else precision)  # some are subnormal
    best = h.argmax(axis=1)
    assert same_samples(Scores.from_probs(softmax(8 * h), best), Scores.from_probs(p, best))


def test_rounding_makes_twins_that_are_not_shared_rows():
    rng = np.random.default_rng(0)
    p = 0.25 + 0.01 * rng.random((4000, 1))  # 41 different numbers in half precision
    rows, y = np.concatenate([p, 1 - p], axis=1), (rng.random(4000) > p[:, 0]).astype(int)
    val, test = Scores.from_probs(rows[:2000], y[:2000]), Scores.from_probs(rows[2000:].astype(np.float16), y[2000:])
    assert shared_rows(val, test) == shared_rows(test, val) == 0
    assert not same_samples(val, test)


def test_rows_that_are_equal_by_chance_are_not_shared():
    rng = np.random.default_rng(0)
    p = np.round(0.01 + 0.98 * rng.random((3000, 1)), 2)  # two decimals: a hundred different rows
    y = rng.integers(2, size=3000)
    rows = np.concatenate([p, 1 - p], axis=1)
    assert shared_rows(Scores.from_probs(rows[:1000], y[:1000]), Scores.from_probs(rows[1000:], y[1000:])) == 0
    hot = np.eye(3)[rng.integers(3, size=60)]  # saturated
    assert shared_rows(Scores.from_probs(hot[:30]), Scores.from_probs(hot[30:])) == 0


# Which columns are logits


def test_a_map_takes_the_columns_of_its_fit_wherever_they_stand(good, bad, sets, tmp_path):
    """With labels that are numbers too: the headers are kept in the map."""
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES)
    save_csv(tmp_path / "b.csv", h2, y2, NAMES)
    save_csv(tmp_path / "reversed.csv", h2[:, ::-1], y2, NAMES[::-1])
    save_csv(tmp_path / "extra.csv", np.c_[h2, 50 + y2], y2, [*NAMES, "age"])
    for method, how in (("vector", ""), ("bayes", "--workers 2")):
        good("fit --method", method, "-o m.json a.csv", how)
        assert json.loads((tmp_path / "m.json").read_text())["columns"] == [f"logit_{name}" for name in NAMES]
        found = []
        for name in ("b", "reversed", "extra"):
            good("apply m.json -o", f"{name}.probs.csv", f"{name}.csv")
            found.append((tmp_path / f"{name}.probs.csv").read_text())
        assert found[0] == found[1] == found[2]
    loaded = load(tmp_path / "m.json")
    assert loaded.feature_names_in_.tolist() == [f"logit_{name}" for name in NAMES]
    loaded.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["columns"] == [f"logit_{name}" for name in NAMES]
