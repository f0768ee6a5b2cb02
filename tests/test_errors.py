"""One family of errors, and the way to an optional package."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

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
    assert str(error.value).startswith(f"{module} is needed to draw and is not installed")
    assert "pip install not_there (" in str(error.value)  # a clone has no attemper[plots] that pip could find
    assert '"plots"' in str(error.value)
    with pytest.raises(MissingExtraError, match=r"not_there.* is needed and is not installed"):
        require(module, extra="plots")


def test_a_package_that_is_blocked_counts_as_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install pyarrow .*parquet"):
        require("pyarrow", extra="parquet")


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import its_own_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_own_dependency") as error:
        require("broken_package", extra="plots")
    assert not isinstance(error.value, AttemperError)


AVOIDED = re.compile(r"\b(tells?|told|says?|said|speaks?|mend(ed)?|judged?|besides|whom|sure|came)\b", re.IGNORECASE)


def texts(path):
    """Return every string of a module that is not a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)}
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [text for text in found if isinstance(text, str) and text not in docs]


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
MODULES = sorted(Path(errors.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: "/".join(p.parts[-2:]))
def test_messages_have_the_words_of_the_field(path):
    assert not [text for text in texts(path) if " " in text and AVOIDED.search(text)]
