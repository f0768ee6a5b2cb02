"""One family of errors, and the way to an optional package."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import sklearn.exceptions
from packaging.requirements import Requirement

from attemper import errors
from attemper.errors import AttemperError, AttemperWarning, MissingExtraError, require


def test_every_error_is_of_the_family():
    found = [e for name in errors.__all__ if isinstance(e := getattr(errors, name), type) and issubclass(e, Exception)]
    assert len(found) == 13
    for error in found:
        assert issubclass(error, Warning if "Warning" in error.__name__ else AttemperError)
    assert issubclass(AttemperError, ValueError)
    assert issubclass(errors.NotFittedError, sklearn.exceptions.NotFittedError)
    assert issubclass(errors.InputTypeError, TypeError)
    assert issubclass(MissingExtraError, ImportError)
    assert issubclass(errors.EdgeWarning, AttemperWarning)


def test_what_is_there_is_given():
    assert require("numpy", extra="none") is np
    assert require("numpy.linalg", extra="none") is np.linalg


@pytest.mark.parametrize("module", ["not_there", "not_there.inside"])
def test_what_is_missing_is_told_with_the_way_to_get_it(module):
    with pytest.raises(MissingExtraError) as error:
        require(module, extra="plots", why="to draw")
    assert str(error.value).startswith(f"{module} is needed to draw and is not installed. Use: pip install ")
    assert str(error.value).endswith('[plots]"')
    with pytest.raises(MissingExtraError):
        require(module, extra="plots")


def test_a_package_that_is_blocked_counts_as_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError):
        require("pyarrow", extra="parquet")


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import its_own_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as error:
        require("broken_package", extra="plots")
    assert not isinstance(error.value, AttemperError)


# What pip writes into direct_url.json, and the command that installs from there with the extra "plots".
ORIGINS = {
    "an index": (None, '"attemper[plots]"'),
    "a clone": ({"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}, '-e "/home/me/my clone[plots]"'),
    "a folder": ({"url": "file:///home/me/clone", "dir_info": {}}, '"attemper[plots] @ file:///home/me/clone"'),
    "a wheel": ({"url": "file:///a.whl", "archive_info": {}}, '"attemper[plots] @ file:///a.whl"'),
    "git": (
        {"url": "https://host/a.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
        '"attemper[plots] @ git+https://host/a.git@ab12"',
    ),
}


@pytest.mark.parametrize("origin, command", ORIGINS.values(), ids=ORIGINS)
def test_the_command_of_an_extra_installs_from_where_attemper_came(tmp_path, monkeypatch, origin, command):
    info = tmp_path / "attemper-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: attemper\nVersion: 0.2.0\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError) as error:
        require("not_there", extra="plots")
    assert str(error.value).endswith(f"Use: pip install {command}")
    *flags, target = shlex.split(command)
    assert flags == ["-e"] or Requirement(target).extras == {"plots"}


def test_without_metadata_the_command_is_that_of_an_index(monkeypatch):
    monkeypatch.setattr("importlib.metadata.distribution", _not_installed)
    with pytest.raises(MissingExtraError):
        require("not_there", extra="plots")


def _not_installed(name):
    raise PackageNotFoundError(name)
