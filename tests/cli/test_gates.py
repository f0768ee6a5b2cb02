"""`--fail-if` and `--junit`: conditions, exit codes, and XML as CI servers read it."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from attemper import TemperatureScaling
from attemper.cli.gates import Condition
from attemper.errors import InputError

from commands import strict_json


def figures(good, *args):
    return strict_json(good("evaluate", "val.npz", *args, "--json"))["rows"]


def test_exit_codes_of_evaluate(cli, good, val, fitted):
    before, after = (row["metrics"]["ece"] for row in figures(good, "--map", "m.json"))
    between = (before["value"] + after["value"]) / 2
    assert after["value"] < between < before["value"]
    line = ("evaluate", "val.npz", "--map", "m.json", "-qq")
    assert cli(*line, "--fail-if", f"ece>{between}").code == 0  # that of the map
    code, out, err = cli(*line, "--fail-if", f"none:ece > {between}")
    assert code == 3
    assert "accuracy" in out  # the result is printed all the same
    assert err == f"failed: none:ece > {between}: none:ece = {before['value']:.6g} is > {between:g}\n"
    assert cli("evaluate", "val.npz", "--fail-if", f"ece>{between}").code == 3
    assert cli(*line, "--fail-if", f"ts:ece.high<{after['high'] + 1}", "--fail-if", "accuracy<0").code == 3
    assert cli(*line, "--fail-if", f"ece.low>{after['low']}", "--fail-if", "ece.p_value<=0").code == 0


def test_conditions_in_json(cli, val):
    code, out, _ = cli("evaluate", "val.npz", "--fail-if", "nll.high>0.1", "--fail-if", "brier>9", "--json")
    first, second = strict_json(out)["fail_if"]
    assert code == 3
    assert (first["figure"], first["part"], first["bound"], first["passed"]) == ("nll", "high", 0.1, False)
    assert (second["condition"], second["passed"], second["reason"]) == ("brier>9", True, None)


@pytest.mark.parametrize(
    "condition, message",
    [
        ("ece", "expected a figure, one of <, <=, >, >=, and a number"),
        ("ece>x", "expected a figure"),
        ("ece>nan", "expected a figure"),
        ("ece=0.1", "expected a figure"),
        ("ece.middle>1", ".middle is not one of .value, .low, .high"),
        ("luck>1", "there is no 'luck'; use one of accuracy, nll"),
        ("vector:ece>1", "there is no 'vector'; before the colon use one of none"),
    ],
)
def test_what_is_no_condition(bad, val, condition, message):
    assert message in bad("evaluate", "val.npz", "--fail-if", condition)


def test_a_figure_that_is_not_there_is_an_error_and_no_pass(cli, val):
    code, _, err = cli("evaluate", "val.npz", "--fail-if", "mce.low>0.5", "--junit", "r.xml")
    assert code == 2
    assert "no interval for a maximum" in err
    suite = ElementTree.parse("r.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    assert suite[0][0].tag == "error"


def test_compare(cli, val, unseen):
    line = ("compare", "val.npz", "test.npz", "--methods", "ts,vector", "--cv", "2")
    assert cli(*line, "--fail-if", "nll>5", "--fail-if", "vector:ece.low>0.9", "--fail-if", "cv_nll>9").code == 0
    code, out, _ = cli(*line, "--fail-if", "none:nll<5", "--fail-if", "changed>1", "--json")
    assert (code, [each["passed"] for each in strict_json(out)["fail_if"]]) == (3, [False, True])


def test_drift(cli, val, fitted, tmp_path):
    h, _ = val
    assert cli("drift", "m.json", "val.npz", "-qq", "--fail-if", "p_value<0.0001", "--junit", "a.xml").code == 0
    assert cli("drift", "m.json", "val.npz", "-qq", "--fail-if", "p_value<2").code == 3
    np.savez("odd.npz", logits=np.tile(h, (5, 1)), labels=np.random.default_rng(0).integers(0, 4, 1000))
    assert cli("drift", "m.json", "odd.npz", "-qq", "--junit", "b.xml").code == 1
    found = [ElementTree.parse(name).getroot()[0] for name in ("a.xml", "b.xml")]
    assert [suite.get("failures") for suite in found] == ["0", "1"]
    assert [[case.get("name") for case in suite] for suite in found] == [
        ["no alarm", "p_value >= 0.0001"],
        ["no alarm"],
    ]


# What Jenkins' junit-10.xsd allows, which GitHub's and GitLab's readers take too.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "disabled", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id"},
    "testcase": {"name", "assertions", "time", "classname", "status"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "failure": set(),
    "error": set(),
    "system-out": set(),
}


def test_junit_is_valid(cli, val, fitted):
    name = 'odd <&\x1b">.npz'
    np.savez(name, logits=val[0], labels=val[1])
    line = ("evaluate", name, "--junit", "r.xml", "--fail-if", "ece>0.0001", "--fail-if", "nll>9", "-qq")
    assert cli(*line).code == 3
    root = ElementTree.parse("r.xml").getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert element.tag not in ("testsuite", "testcase") or element.get("name")
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    assert float(suite.get("time")) >= 0
    assert [case.get("name") for case in suite] == ["ece <= 0.0001", "nll <= 9"]
    assert suite[0][0].tag == "failure"
    assert "is > 0.0001" in suite[0][0].get("message")


def test_junit_is_no_input_and_needs_its_folder(bad, val):
    assert "is one of the inputs" in bad("evaluate", "val.npz", "--junit", "val.npz")
    assert "the folder none does not exist" in bad("evaluate", "val.npz", "--junit", "none/r.xml")


@pytest.mark.parametrize("sign, passes", [("<", [1, 0, 0]), ("<=", [1, 1, 0]), (">", [0, 0, 1]), (">=", [0, 1, 1])])
def test_signs(sign, passes):
    for value, holds in zip((0.1, 0.2, 0.3), passes):
        assert Condition.parse(f"x{sign}0.2").check({"x": value}).passed is not bool(holds)
    with pytest.raises(InputError):
        Condition.parse(f"y{sign}0.2").check({"x": 1.0})


def test_conditions_of_a_project(cli, good, val, tmp_path):
    TemperatureScaling().fit(*val).save("m.json")
    (tmp_path / "attemper.toml").write_text('[evaluate]\nfail-if = ["nll>9", "accuracy<0.99"]\njunit = "r.xml"\n')
    assert cli("evaluate", "val.npz", "-qq").code == 3
    assert (tmp_path / "r.xml").exists()


def test_nan_does_not_pass():
    found = Condition.parse("ece>0.05").check({"ece": {"value": float("nan"), "low": None, "high": None}})
    assert found.passed is None
