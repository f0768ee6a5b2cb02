"""Every command's --json is what its schema says, and no number is text."""

import jsonschema
import numpy as np
import pytest

import attemper
from attemper.cli.commands import cli as group
from attemper.cli.schemas import SCHEMAS, schema_of
from attemper.comparison import CrossValidated

from commands import strict_json


@pytest.fixture
def validated(cli):
    """Run a command with --json, and check what it prints against its schema."""

    def run(*args, code=0):
        done = cli(*args, "--json")
        assert done.code == code, done.err
        found = strict_json(done.out)
        jsonschema.Draft202012Validator(schema_of(args[0])).validate(found)
        return found

    return run


def test_there_is_a_schema_for_each_command(good):
    assert set(SCHEMAS) == set(group.commands)
    for command in SCHEMAS:
        schema = strict_json(good("schema", command))
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"] == f"attemper {command} --json"


def test_fit_apply_and_sketches(validated, val):
    for method in ("ts", "bayes", "structured", "isotonic"):
        validated("fit", "val.npz", "--method", method, "-o", "m.json")
        validated("inspect", "m.json")
    validated("fit", "val.npz", "--noisy", "-o", "m.json")
    validated("apply", "m.json", "val.npz", "-o", "p.npz")
    validated("sketch", "val.npz", "-o", "a.sketch.json")
    validated("merge", "a.sketch.json", "-o", "b.sketch.json")
    validated("inspect", "b.sketch.json")
    validated("methods")
    validated("schema", "fit")


def test_evaluate_and_compare(validated, val, unseen, fitted):
    found = validated("evaluate", "test.npz", "--map", "m.json", "--fail-if", "nll>100")
    assert [row["method"] for row in found["rows"]] == ["none", "ts"]
    found = validated("compare", "val.npz", "test.npz", "--methods", "ts,bayes", "--fail-if", "nll>100")
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "bayes"]
    validated("compare", "val.npz", "test.npz", "--methods", "ts", "--noisy")


def test_report(validated, val, unseen):
    found = validated("report", "val.npz", "test.npz", "--methods", "ts")
    compared = validated("compare", "val.npz", "test.npz", "--methods", "ts")
    for row, other in zip(found["rows"], compared["rows"]):
        assert row["method"] == other["method"]
        assert row["cv"] == other["cv"]
        assert row["metrics"]["nll"]["value"] == pytest.approx(other["metrics"]["nll"]["value"])
        assert row["metrics"]["ece"]["p_value"] == other["metrics"]["ece"]["p_value"]


def test_refer_and_drift(validated, val, unseen, fitted):
    files = ("val.npz", "test.npz")
    validated("refer", *files, "--max-miss", "0.2", "-o", "policy.json")
    validated("inspect", "policy.json")
    validated("refer", *files, "--max-miss", "0.2", "--per-class")
    validated("refer", *files, "--max-miss", "0=0.3")
    validated("refer", *files, "--budget", "0.1")
    validated("refer", *files, "--cost-refer", "1", "--cost-miss", "0=1,1=2,2=3,3=4", "--predict-least-cost")
    validated("drift", "m.json", "test.npz", "--state", "state.json", "--fail-if", "p_value<0")
    validated("inspect", "state.json")
    validated("drift", "m.json", "test.npz", "--reference", "val.npz")


def test_check(validated, val):
    validated("check", "val.npz")
    h, y = val
    np.savez("odd.npz", logits=np.where(h > 8, np.nan, h), labels=y + 2)
    validated("check", "odd.npz", code=2)
    np.savez("alone.npz", logits=h)
    validated("check", "alone.npz")


def test_export(validated, fitted):
    pytest.importorskip("onnx")
    validated("export", "m.json", "-o", "map.onnx")
    validated("inspect", "map.onnx")


@pytest.mark.slow
def test_demo(validated):
    found = validated("demo")
    assert found["rows"][0]["method"] == "none"


def test_numbers_that_json_cannot_hold_are_null_and_listed(validated, val, unseen, monkeypatch):
    from attemper.cli import compare as command

    original = command.compare

    def infinite(*args, **more):
        found = original(*args, **more)
        rows = [
            attemper.comparison.Row(**{**vars(found.rows[0]), "cv": CrossValidated(float("inf"), float("nan"), 0.1)})
        ]
        return attemper.comparison.Comparison(**{**vars(found), "rows": (*rows, *found.rows[1:])})

    monkeypatch.setattr(command, "compare", infinite)
    found = validated("compare", "val.npz", "test.npz", "--methods", "ts")
    assert found["rows"][0]["cv"] == {"nll": None, "above": None, "standard_error": 0.1}
    assert found["non_finite"] == {"/rows/0/cv/nll": "infinity", "/rows/0/cv/above": "nan"}


def test_a_wrong_output_would_be_found(val):
    """The schemas are strict: a key more, a key less or a text for a number is an error."""
    good = {"n_samples": 3, "output": "p.npz"}
    validator = jsonschema.Draft202012Validator(schema_of("apply"))
    assert validator.is_valid(good)
    for bad in ({**good, "rows": 3}, {"output": "p.npz"}, {**good, "n_samples": "3"}):
        assert not validator.is_valid(bad)
