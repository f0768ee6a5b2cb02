"""`--fail-if`: conditions and exit codes."""

import numpy as np
import pytest

from attemper.cli.gates import Condition
from attemper.errors import InputError

from commands import strict_json


def test_exit_codes_of_evaluate(cli, good, fitted):
    rows = strict_json(good("evaluate", "val.npz", "--map", "m.json", "--json"))["rows"]
    before, after = (row["metrics"]["ece"] for row in rows)
    between = (before["value"] + after["value"]) / 2
    assert after["value"] < between < before["value"]
    line = ("evaluate", "val.npz", "--map", "m.json")
    assert cli(*line, "--fail-if", f"ece>{between}").code == 0  # that of the map
    code, out, err = cli(*line, "--fail-if", f"none:ece > {between}")
    assert code == 1
    assert "accuracy" in out  # the result is printed all the same
    assert err.startswith("failed: ")
    assert cli("evaluate", "val.npz", "--fail-if", f"ece>{between}").code == 1
    assert cli(*line, "--fail-if", f"ts:ece.high<{after['high'] + 1}", "--fail-if", "accuracy<0").code == 1
    assert cli(*line, "--fail-if", f"ece.low>{after['low']}", "--fail-if", "ece.p_value<=0").code == 0


def test_conditions_in_json(cli, val):
    code, out, _ = cli("evaluate", "val.npz", "--fail-if", "nll.high>0.1", "--fail-if", "brier>9", "--json")
    first, second = strict_json(out)["fail_if"]
    assert code == 1
    assert (first["figure"], first["part"], first["bound"], first["passed"]) == ("nll", "high", 0.1, False)
    assert (second["condition"], second["passed"], second["reason"]) == ("brier>9", True, None)


@pytest.mark.parametrize("text", ["ece", "ece>x", "ece>nan", "ece=0.1", "ece.middle>1", "luck>1", "vector:ece>1"])
def test_what_is_no_condition(bad, val, text):
    bad("evaluate", "val.npz", "--fail-if", text)


def test_a_figure_that_is_not_there_is_an_error_and_no_pass(cli, val):
    assert cli("evaluate", "val.npz", "--fail-if", "mce.low>0.5").code == 2
    found = Condition.parse("ece>0.05").check({"ece": {"value": float("nan"), "low": None, "high": None}})
    assert found.passed is None


def test_compare_and_drift(cli, val, unseen, fitted):
    line = ("compare", "val.npz", "test.npz", "--methods", "ts,vector", "--cv", "2")
    assert cli(*line, "--fail-if", "nll>5", "--fail-if", "vector:ece.low>0.9", "--fail-if", "cv_nll>9").code == 0
    code, out, _ = cli(*line, "--fail-if", "none:nll<5", "--fail-if", "changed>1", "--json")
    assert (code, [each["passed"] for each in strict_json(out)["fail_if"]]) == (1, [False, True])
    assert cli("drift", "m.json", "val.npz", "--fail-if", "p_value<0.0001").code == 0
    assert cli("drift", "m.json", "val.npz", "--fail-if", "p_value<2").code == 1
    np.savez("odd.npz", logits=np.tile(val[0], (5, 1)), labels=np.random.default_rng(0).integers(0, 4, 1000))
    assert cli("drift", "m.json", "odd.npz", "--fail-if", "p_value>2").code == 1


@pytest.mark.parametrize("sign, holds", [("<", [1, 0, 0]), ("<=", [1, 1, 0]), (">", [0, 0, 1]), (">=", [0, 1, 1])])
def test_signs(sign, holds):
    for value, hold in zip((0.1, 0.2, 0.3), holds):
        assert Condition.parse(f"x{sign}0.2").check({"x": value}).passed is not bool(hold)
    with pytest.raises(InputError):
        Condition.parse(f"y{sign}0.2").check({"x": 1.0})
