"""One family of errors, and the way to an optional package."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.exceptions

from attemper import errors
from attemper.errors import AttemperError, AttemperWarning, MissingExtraError, require


def test_every_error_is_of_the_family():
    found = [e for name in errors.__all__ if isinstance(e := getattr(errors, name), type) and issubclass(e, Exception)]
    assert len(found) == 12
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
    assert module in str(error.value)
    assert "attemper[plots]" in str(error.value)
    with pytest.raises(MissingExtraError):
        require(module, extra="plots")


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import its_own_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as error:
        require("broken_package", extra="plots")
    assert not isinstance(error.value, AttemperError)
