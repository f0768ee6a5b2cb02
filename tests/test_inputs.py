"""What input files hold is never guessed: labels, columns, and what a map was fitted on."""

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from attemper import AttemperWarning, Scores, TemperatureScaling, fit_source, load
from attemper.cli import main
from attemper.comparison import compare
from attemper.data.columns import column_order
from attemper.data.overlap import same_samples, shared_rows
from attemper.errors import FileError, InputError
from attemper.io import open_scores

from data import draw

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


def save_csv(path, values, labels, names, *, prefix="", extra=()):
    """Write a table; ``extra`` are (name, column) that come first."""
    heads = [name for name, _ in extra]
    rows = zip(*(column for _, column in extra), labels, *np.asarray(values).T)
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join([*heads, "label", *(prefix + name for name in names)]), *lines]) + "\n")


def softmax(h):
    p = np.exp(h - h.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.fixture
def sets(tmp_path):
    """VAL and TEST, with labels as numbers."""
    val, test = draw(300, 4, seed=1), draw(250, 4, seed=2)
    for name, (h, y) in (("val", val), ("test", test)):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y)
        np.savez(tmp_path / f"{name}-probs.npz", probs=softmax(h), labels=y)
    return val, test


# What labels are


def test_labels_are_the_same_in_every_command(good, tmp_path, sets):
    (h, y), _ = sets
    np.savez(tmp_path / "named.npz", logits=h, labels=np.array(NAMES)[y])
    found = [
        good("fit --json --method ts -o m.json --classes", ",".join(names), file)["temperature"]
        for file, names in (("val.npz", NAMES), ("named.npz", NAMES), ("val.npz", ["0", "1", "2", "3"]))
    ]
    assert found == [found[0]] * 3


def test_errors_in_python_name_no_flag(tmp_path, sets):
    (h, y), _ = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES)
    with pytest.raises(InputError) as few:
        open_scores(tmp_path / "a.csv", classes=["a", "b"])
    with pytest.raises(InputError) as numbers:
        open_scores(tmp_path / "val.npz", classes=["1", "2", "3", "4"]).load()
    for error in (few, numbers):
        assert "--" not in str(error.value)


def test_numbers_as_names_are_names(tmp_path):
    h, y = draw(50, 3, seed=0)
    np.savez(tmp_path / "a.npz", logits=h, labels=10 * (y + 1))
    assert open_scores(tmp_path / "a.npz", classes=[10, 20, 30]).load().labels.tolist() == y.tolist()


# What a map takes from its fit


@pytest.mark.parametrize("command", ["evaluate --map m.json", "apply m.json -o out.npz", "drift m.json"])
def test_a_map_of_probabilities_takes_probabilities(good, bad, sets, command):
    good("fit val-probs.npz --probs --method ts -o m.json")
    good(command, "test-probs.npz") if "drift" not in command else None
    message = bad(command, "test.npz --logits-key logits")
    assert "m.json was fitted on probabilities" in message
    assert "between 0 and 1" in message
    assert "m.json was fitted on probabilities" in bad(command, "test.npz")  # which holds no array of that name


@pytest.mark.parametrize("command", ["evaluate --map m.json", "apply m.json -o out.npz", "drift m.json"])
def test_options_do_not_contradict_the_map(good, bad, sets, command):
    good("fit val.npz --method ts -o m.json")
    assert "m.json was fitted on logits" in bad(command, "test-probs.npz --probs")
    assert "m.json was fitted on logits" in bad(command, "test.npz --zeros-as 1e-8")
    good("fit val-probs.npz --probs --zeros-as 1e-8 --method ts -o m.json")
    assert "m.json was fitted with 1e-08" in bad(command, "test-probs.npz --zeros-as 1e-6")


def test_refer_takes_the_same_from_the_map(good, bad, sets, tmp_path):
    good("fit val-probs.npz --probs --method ts -o m.json")
    h, y = draw(300, 4, seed=5)
    np.savez(tmp_path / "more-probs.npz", probs=softmax(h), labels=y)
    assert good("refer more-probs.npz test-probs.npz --map m.json --budget 0.2 --json")["method"] == "ts"
    message = bad("refer val.npz test.npz --logits-key logits --map m.json --budget 0.2")
    assert "m.json was fitted on probabilities" in message
    good("fit val.npz --method ts -o m.json --classes", ",".join(NAMES))
    assert "'fox'" in bad("refer more-probs.npz test.npz --map m.json --budget 0.2 --classes fox,cat,dog,eel")
    assert "m.json was fitted on logits" in bad("refer more-probs.npz test.npz --map m.json --budget 0.2 --probs")


def test_evaluate_with_other_classes_than_the_map(good, bad, sets):
    good("fit val.npz --method ts -o m.json --classes", ",".join(NAMES))
    message = bad("evaluate test.npz --map m.json --classes dog,cat,eel,fox")
    assert "--classes 'dog', 'cat', 'eel', 'fox'" in message
    assert "m.json was fitted for 'cat', 'dog'" in message
    good("evaluate test.npz --map m.json --classes", ",".join(NAMES))


@pytest.mark.parametrize("prefix", ["", "logit_", "Score of "])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_go_by_name(good, sets, tmp_path, prefix, form):
    _, (h, y) = sets
    good("fit val.npz --method vector -o m.json --classes", ",".join(NAMES))
    order = [3, 1, 0, 2]
    names = [prefix + NAMES[k] for k in order]
    if form == "csv":
        save_csv(tmp_path / "new.csv", h[:, order], np.array(NAMES)[y], names)
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


def test_columns_that_go_by_name_in_part(good, bad, sets, tmp_path):
    _, (h, y) = sets
    good("fit val.npz --method ts -o m.json --classes", ",".join(NAMES))
    save_csv(tmp_path / "new.csv", h, y, ["cat", "dog", "emu", "fox"], prefix="logit_")
    message = bad("evaluate new.csv --map m.json")
    assert "'logit_cat' has the name of a class, 'logit_emu' does not" in message


def test_names_that_a_file_brings_along_in_another_order(good, bad, sets, tmp_path):
    _, (h, y) = sets
    good("fit val.npz --method ts -o m.json --classes", ",".join(NAMES))
    np.savez(tmp_path / "new.npz", logits=h, labels=y, class_names=np.array(NAMES[::-1]))
    assert "its class_names are 'fox'" in bad("evaluate new.npz --map m.json")
    assert "its class_names are 'fox'" in bad("compare --methods ts val.npz new.npz --classes", ",".join(NAMES))


def test_names_that_a_file_brings_along_are_used_by_every_command(good, sets, tmp_path):
    for name, (h, y) in zip(("named_val", "named_test"), sets):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, class_names=np.array(NAMES))
    assert NAMES[1] in good("check named_val.npz")
    for files in ("named_val.npz", "named_val.npz named_test.npz", "named_val.npz named_test.npz --workers 2"):
        good("fit --method ts -o m.json", files)
        assert json.loads((tmp_path / "m.json").read_text())["classes"] == list(NAMES)
    good("apply m.json named_test.npz -o p.csv")
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == ",".join(["prediction", *(f"prob_{n}" for n in NAMES)])
    h, y = sets[0]
    np.savez(tmp_path / "options.npz", logits=h, labels=y % 2, class_names=np.array(NAMES))
    good("fit --method ts -o two.json options.npz --columns 1,2")
    assert json.loads((tmp_path / "two.json").read_text())["classes"] == list(NAMES[1:3])


@pytest.mark.parametrize("names, message", [(NAMES[::-1], "'fox'"), (["a", *NAMES[1:]], "'a'")])
@pytest.mark.parametrize("workers", ["", "--workers 2"])
def test_names_of_files_that_do_not_agree(bad, sets, tmp_path, names, message, workers):
    for name, (h, y), own in zip(("one", "other"), sets, (NAMES, names)):
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, class_names=np.array(own))
    assert message in bad("fit --method ts -o m.json one.npz other.npz", workers)
    with pytest.raises(InputError):
        open_scores([tmp_path / "one.npz", tmp_path / "other.npz"])


def test_tables_whose_columns_stand_in_another_order(good, bad, sets, tmp_path):
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "val.csv", h, y, NAMES)
    save_csv(tmp_path / "test.csv", h2[:, ::-1], y2, NAMES[::-1])
    for command in ("compare --methods ts", "refer --budget 0.2", "report --methods ts"):
        assert "expected the same order" in bad(command, "val.csv test.csv")
    good("compare --methods ts val.csv test.csv --classes", ",".join(NAMES))


@pytest.mark.parametrize(
    ("columns", "classes", "expected"),
    [
        (["a", "b", "c"], ["a", "b", "c"], [0, 1, 2]),
        (["p_b_x", "p_a_x"], ["a", "b"], [1, 0]),
        (["Dog", "Cat"], ["cat", "dog"], [1, 0]),
        (["logit_cow", "logit_cat"], ["cat", "cow"], [1, 0]),
        (["logit_0", "logit_1", "logit_2"], ["1", "2", "3"], None),
        (["logit_1", "logit_10", "logit_11"], ["cat", "dog", "eel"], None),
        (["x", "y"], ["cat", "dog"], None),
        (["ab", "a"], ["a", "ab"], [1, 0]),
    ],
)
def test_columns_named_after_classes(columns, classes, expected):
    assert column_order(columns, classes) == expected


# Samples that were seen before


def test_one_file_twice_is_refused(bad, sets, tmp_path):
    for command in ("compare --methods ts", "report --methods ts", "refer --budget 0.2"):
        bad(command, "test.npz test.npz")
        (tmp_path / "copy.npz").write_bytes((tmp_path / "test.npz").read_bytes())
        bad(command, "test.npz copy.npz")


def test_the_file_of_the_fit(cli, good, sets, tmp_path):
    good("fit val.npz --method ts -o m.json")
    (tmp_path / "copy.npz").write_bytes((tmp_path / "val.npz").read_bytes())
    for command in ("evaluate --map m.json", "drift m.json"):
        code, _, err = cli(command, "copy.npz")
        assert code == 0
        assert err.startswith("warning: copy.npz: m.json was fitted on this file")
        assert "fitted on this file" not in cli(command, "test.npz")[2]


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


@pytest.mark.parametrize("change", ["float32", "permuted", "nearly"])
def test_a_copy_of_the_validation_set_is_refused(bad, cli, sets, tmp_path, change):
    (h, y), (h2, y2) = sets
    if change == "float32":
        h = h.astype(np.float32)
    else:
        order = np.random.default_rng(0).permutation(len(y))
        h, y = h[order], y[order]
    if change == "nearly":
        h[0], y[0] = h2[0], y2[0]
    np.savez(tmp_path / "copy.npz", logits=h, labels=y)
    for command in ("compare --methods ts", "report --methods ts", "refer --budget 0.2"):
        assert "VAL and TEST are the same samples" in bad(command, "val.npz copy.npz")
    np.savez(
        tmp_path / "half.npz", logits=np.concatenate([h[:100], h2[:100]]), labels=np.concatenate([y[:100], y2[:100]])
    )
    code, _, err = cli("compare --methods ts val.npz half.npz")
    assert code == 0
    assert "of 200 test samples" in err


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


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("sample_id", np.arange(300)),
        ("nr", np.arange(1000, 1300)),
        ("visit", np.repeat(np.arange(30), 10)),
        ("patient_id", np.random.default_rng(0).permutation(300)),
        ("Index", np.random.default_rng(0).permutation(300)),
        ("target", np.arange(300) % 4),
        ("case", np.random.default_rng(0).permutation(300)),
        ("patient", 100_000 + np.random.default_rng(0).permutation(300)),
        ("nr", np.arange(300)[::-1]),
    ],
)
def test_a_column_of_ids_is_no_class(good, bad, sets, tmp_path, name, ids, form):
    (h, y), _ = sets
    if form == "csv":
        save_csv(tmp_path / "a.csv", h, y, NAMES, extra=[(name, ids)])
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {"label": y, name: ids, **dict(zip(NAMES, h.T))}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=7)
    for command in ("evaluate", "fit --method ts -o m.json", "fit --method vector -o m.json", "sketch -o s.json"):
        message = bad(command, f"a.{form}")
        assert f"column {name!r}" in message
        assert f"--columns {','.join(NAMES)}" in message
    assert not (tmp_path / "m.json").exists()


def test_ids_beside_columns_with_a_prefix(good, sets, tmp_path):
    (h, y), _ = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES, prefix="z_", extra=[("sample_id", np.arange(300))])
    assert good("evaluate a.csv --logits-key z_ --json")["columns"] == {"a.csv": [f"z_{name}" for name in NAMES]}


def test_the_advice_about_a_column_of_ids_can_be_followed(good, bad, sets, tmp_path):
    (h, y), _ = sets
    ids = [("case", np.random.default_rng(0).permutation(300))]
    save_csv(tmp_path / "a.csv", h, y, NAMES, prefix="z_", extra=ids)
    assert "--logits-key z_" in bad("evaluate a.csv")
    good("evaluate a.csv --logits-key z_")
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.csv").load()
    save_csv(tmp_path / "b.csv", h, y, NAMES, extra=ids)  # no prefix in common
    message = bad("evaluate b.csv")
    assert "Remove the column" in message
    assert "--columns cat,dog,eel,fox" in message
    good("evaluate b.csv --columns cat,dog,eel,fox")
    assert open_scores(tmp_path / "b.csv", classes=["case", *NAMES]).load().n_classes == 5


def test_whole_numbers_that_differ_may_be_logits(tmp_path):
    rng = np.random.default_rng(0)
    h, y = np.column_stack([rng.permutation(30) for _ in range(3)]), rng.integers(3, size=30)
    save_csv(tmp_path / "a.csv", h, y, ["a", "b", "c"])
    assert len(open_scores(tmp_path / "a.csv").load()) == 30
    masked = h.astype(float)
    masked[y != 0, 0] = -np.inf  # no fraction
    save_csv(tmp_path / "a.csv", masked, y, ["a", "b", "c"])
    assert len(open_scores(tmp_path / "a.csv").load()) == 30
    few = np.column_stack([[3, 1, 2], [0.5, 1.5, 2.5]])
    save_csv(tmp_path / "a.csv", few, [0, 1, 0], ["a", "b"])
    assert len(open_scores(tmp_path / "a.csv").load()) == 3


def test_whole_numbers_may_be_logits(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,cat,dog\n0,1,5\n1,2,4\n0,3,9\n")  # ascends by accident
    assert len(open_scores(path).load()) == 3
    rng = np.random.default_rng(0)
    save_csv(path, rng.integers(-9, 9, size=(100, 3)), rng.integers(3, size=100), ["a", "b", "c"])
    assert len(open_scores(path).load()) == 100
    h = np.sort(rng.normal(size=(100, 2)), axis=0)  # sorted by their logits
    save_csv(path, h, rng.integers(2, size=100), ["en", "id"])  # English and Indonesian
    assert len(open_scores(path).load()) == 100
    save_csv(path, np.column_stack([np.zeros(100), h]), rng.integers(3, size=100), ["never", "b", "c"])
    assert len(open_scores(path).load()) == 100
    save_csv(path, np.column_stack([np.arange(100) - 50, h]), rng.integers(3, size=100), ["z0", "z1", "z2"])
    assert len(open_scores(path, logits_key="z").load()) == 100  # chosen by name


def test_columns_are_reported(cli, good, sets, tmp_path):
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "val.csv", h, y, NAMES)
    save_csv(tmp_path / "test.csv", h2, y2, NAMES)
    good("fit val.csv --method ts -o m.json")
    for command in (
        *("fit val.csv --method ts -o f.json", "fit val.csv --method vector -o f.json", "sketch val.csv -o s.json"),
        *("evaluate val.csv", "apply m.json val.csv -o out.npz", "drift m.json val.csv", "check val.csv"),
        *("compare val.csv test.csv --methods ts", "refer val.csv test.csv --budget 0.2"),
        *("report val.csv test.csv --methods ts", "fit val.csv test.csv --method ts -o f.json"),
    ):
        code, _, err = cli(command)
        assert code == 0
        assert "val.csv: logits are the columns 'cat', 'dog', 'eel', 'fox'" in err
        assert good(command, "--json")["columns"]["val.csv"] == NAMES


def test_ids_do_not_enter_a_map_by_python_either(tmp_path):
    h, y = draw(300, 4, seed=1)
    save_csv(tmp_path / "a.csv", h, y, NAMES, extra=[("sample_id", np.arange(300))])
    with pytest.raises(ValueError):
        TemperatureScaling().fit(open_scores(tmp_path / "a.csv").load())


def test_a_map_takes_the_columns_of_its_fit_wherever_they_stand(good, bad, sets, tmp_path):
    """With labels that are numbers too: the headers are kept in the map."""
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES)
    save_csv(tmp_path / "b.csv", h2, y2, NAMES)
    save_csv(tmp_path / "reversed.csv", h2[:, ::-1], y2, NAMES[::-1])
    save_csv(tmp_path / "extra.csv", np.c_[h2, 50 + y2], y2, [*NAMES, "age"])
    for method, how in (("vector", ""), ("bayes", "--workers 2")):
        good("fit --method", method, "-o m.json a.csv", how)
        assert json.loads((tmp_path / "m.json").read_text())["columns"] == NAMES
        found = []
        for name in ("b", "reversed", "extra"):
            good("apply m.json -o", f"{name}.probs.csv", f"{name}.csv")
            found.append((tmp_path / f"{name}.probs.csv").read_text())
        assert found[0] == found[1] == found[2]
    loaded = load(tmp_path / "m.json")
    assert loaded.feature_names_in_.tolist() == NAMES
    loaded.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["columns"] == NAMES


def test_a_test_set_that_contradicts_the_guarantee_is_reported(cli, tmp_path):
    h, y = draw(2000, 3, seed=0)
    right = h.argmax(axis=1) == y
    np.savez(tmp_path / "easy.npz", logits=h[right], labels=y[right])
    np.savez(tmp_path / "all.npz", logits=h, labels=y)
    _, _, err = cli("refer easy.npz all.npz --method ts --max-miss 0.05")
    assert "TEST contradicts the guarantee of at most 5.0%" in err
    _, _, err = cli("refer all.npz", "easy.npz --method ts --max-miss 0.05")
    assert "contradicts" not in err


@pytest.mark.parametrize("extension", ["csv", "jsonl", "parquet", "npz"])
@pytest.mark.parametrize("ids", [[f"=case {i}" for i in range(250)], list(range(900, 1150))])
def test_ids_are_copied_to_the_output(good, bad, sets, tmp_path, extension, ids):
    h, y = sets[1]
    np.savez(tmp_path / "new.npz", logits=h, labels=y, case=np.array(ids))
    good("fit val.npz --method ts -o m.json")
    good("apply m.json new.npz --ids case -o", f"out.{extension}")
    path = tmp_path / f"out.{extension}"
    if extension == "npz":
        found = np.load(path)["case"].tolist()
    elif extension == "parquet":
        found = pq.read_table(path)["case"].to_pylist()
    elif extension == "jsonl":
        found = [json.loads(line)["case"] for line in path.read_text().splitlines()]
    else:
        head, *lines = path.read_text().splitlines()
        assert head.startswith("case,prediction,prob_0")
        found = [line.partition(",")[0] for line in lines]
        found = [name.removeprefix("'") for name in found] if isinstance(ids[0], str) else list(map(int, found))
    assert found == ids
    message = bad("apply m.json new.npz --ids nothing -o out.csv")
    assert "Use --ids" in message
    assert "ids" in bad("apply m.json new.npz --ids case -o out.npy")
    (tmp_path / "names.txt").write_text("\n".join(map(str, ids)) + "\n")
    good("apply m.json test.npz --ids names.txt -o again.csv")
    assert (tmp_path / "again.csv").read_text().startswith("id,prediction")


def test_columns_in_another_order_and_labels_that_are_numbers(good, bad, sets, tmp_path):
    """Labels may count the columns of their file, or those of the fit: which, is not guessed."""
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES)
    save_csv(tmp_path / "reversed.csv", h2[:, ::-1], y2, NAMES[::-1])
    save_csv(tmp_path / "named.csv", h2[:, ::-1], np.array(NAMES)[y2], NAMES[::-1])
    save_csv(tmp_path / "ordered.csv", h2, y2, NAMES)
    good("fit --method ts -o m.json a.csv")
    assert "Use names as labels" in bad("evaluate reversed.csv --map m.json")
    good("apply m.json reversed.csv -o p.csv")
    good("fit --method ts -o named.json named.csv")
    found = [
        good("evaluate --json --map", *pair)["rows"][-1]["metrics"]["nll"]["value"]
        for pair in (("m.json", "ordered.csv"), ("m.json", "ordered.csv --classes", ",".join(NAMES)))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("columns", [["dog", "cat", "eel", "owl"], ["p_dog", "p_cat", "p_eel", "p_fox"]])
def test_columns_of_other_names_than_those_of_the_fit(good, bad, sets, tmp_path, columns):
    (h, y), (h2, y2) = sets
    save_csv(tmp_path / "a.csv", h, y, NAMES)
    save_csv(tmp_path / "other.csv", h2, y2, columns)
    save_csv(tmp_path / "numbers.csv", h2, y2, ["p0", "p1", "p2", "p3"])
    good("fit --method ts -o m.json a.csv")
    message = bad("apply m.json other.csv -o p.csv")
    assert "expected the columns 'cat', 'dog', 'eel', 'fox', those of the fit" in message
    good("apply m.json other.csv -o p.csv --columns", ",".join(columns))
    good("apply m.json numbers.csv -o p.csv")


@pytest.mark.parametrize("name", ["label", "prediction", "probs", "prob_0"])
@pytest.mark.parametrize("extension", ["csv", "jsonl", "parquet", "npz"])
def test_ids_do_not_hide_another_column(good, bad, sets, tmp_path, name, extension):
    h, _ = sets[1]
    np.savez(tmp_path / "new.npz", logits=h, **{name: np.arange(len(h))})
    good("fit val.npz --method ts -o m.json")
    assert f"{name!r} is the name of another column" in bad("apply m.json new.npz --ids", name, f"-o out.{extension}")
    assert not (tmp_path / f"out.{extension}").exists()


@pytest.mark.parametrize(
    "names, why",
    [
        (np.array(NAMES, dtype=object), "class_names"),
        (np.array([*NAMES, "background"]), "5 names for 4 classes"),
        (np.array([NAMES]), "class_names"),
        (np.array(["cat", "cat", "eel", "fox"]), "twice"),
    ],
)
def test_class_names_that_cannot_be_used_are_left_out(cli, sets, tmp_path, names, why):
    h, y = sets[0]
    np.savez(tmp_path / "odd.npz", logits=h, labels=y, class_names=names)
    for more in ("", "--classes a,b,c,d"):
        code, _, err = cli("fit odd.npz --method ts -o m.json", more)
        assert code == 0
        assert ("its array 'class_names' is not used" in err) == (not more)
        assert why in err or more


def test_labels_of_a_score_are_as_those_of_the_fit(sets, tmp_path):
    h, y = sets[0]
    for names, expected in ((NAMES, NAMES), (list("0123"), [0, 1, 2, 3])):
        np.savez(tmp_path / "named.npz", logits=h, labels=y, class_names=np.array(names))
        found = fit_source(TemperatureScaling(), tmp_path / "named.npz")
        assert found.classes_.tolist() == expected
        accuracy = (h.argmax(axis=1) == y).mean()
        assert found.score(h, y) == pytest.approx(accuracy)
        assert found.score(h, np.array(expected)[y]) == pytest.approx(accuracy)


@pytest.mark.parametrize("columns", [["a"], ["a", "a", "b"], [1, 2, 3], "abc"])
def test_columns_of_a_damaged_map(good, tmp_path, columns):
    h, y = draw(100, 3, seed=0)
    save_csv(tmp_path / "a.csv", h, y, list("abc"))
    good("fit --method ts -o m.json a.csv")
    document = json.loads((tmp_path / "m.json").read_text())
    (tmp_path / "m.json").write_text(json.dumps(document | {"columns": columns}))
    with pytest.raises(FileError):
        load(tmp_path / "m.json")
