"""`constraints.txt` pins all that the tests install, `constraints-oldest.txt` what `pyproject.toml` says is enough."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from environments import ROOT, installed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = (ROOT / "src").rglob("*.py")


def pins(name):
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(r.name): r.specifier for r in requirements}


def declared(*extras):
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return [Requirement(line) for line in lines]


def test_every_package_of_the_tests_is_pinned_to_one_version():
    pinned = pins("constraints.txt")
    for name, specifier in pinned.items():
        assert re.fullmatch(r"==[^*+]+", str(specifier)), name  # no build of one's own, such as 2.13.0+cpu
    needed = installed(declared("docs", "plots", "report", "torch", "parquet", "test"))
    missing = sorted(set(needed) - set(pinned))
    assert not missing, f"constraints.txt does not pin {', '.join(missing)}: `make lock` does"


def test_any_other_torch_would_pull_gigabytes():
    assert str(pins("constraints.txt")["torch"]) == "==2.13.0"


@pytest.mark.parametrize("extra", [None, *sorted(set(EXTRAS) - {"docs", "test", "torch"})])
def test_the_oldest_versions_that_are_tested_are_those_that_are_promised(extra):
    oldest = pins("constraints-oldest.txt")
    for requirement in declared(extra) if extra else declared():
        (promised,) = [s.version for s in requirement.specifier if s.operator == ">="]
        (tested,) = oldest[canonicalize_name(requirement.name)]
        assert tested.operator == "=="
        assert Version(tested.version) == Version(promised), requirement.name


def test_extras_that_errors_name_are_declared():
    named = {extra for path in SOURCES for extra in re.findall(r'require\([^)]*extra="(\w+)"', path.read_text())}
    assert named - {"none"} == set(EXTRAS) - {"docs", "test"}
