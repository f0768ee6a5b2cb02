"""`import attemper` is light, and gives what it promises."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import attemper

HEAVY = {"torch", "matplotlib", "onnx", "dask", "ray", "fsspec", "jinja2", "jax", "pandas", "pyarrow", "safetensors"}
COMMAND_LINE = {"click", "rich", "attemper.cli", "attemper.io", "attemper.plots", "attemper.comparison"}


def imported_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_imported():
    # scikit-learn imports pandas where it is installed, and pandas imports pyarrow: those are not ours.
    found = imported_by("import attemper") - imported_by("import sklearn.base, sklearn.utils.validation")
    assert "attemper.sketch" in found
    assert not found & (HEAVY | COMMAND_LINE)


def test_public_names_exist():
    assert sorted(attemper.__all__) == attemper.__all__
    assert all(getattr(attemper, name) is not None for name in attemper.__all__)
    assert {"load", "Scores", "Sketch", "AttemperError", "BayesianTemperatureScaling"} <= set(attemper.__all__)
    for module in (attemper.metrics, attemper.datasets):
        assert all(hasattr(module, name) for name in module.__all__)
    assert attemper.__version__.count(".") == 2


def test_types_and_the_demo_come_with_the_package():
    package = resources.files("attemper")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("bundled", f"{attemper.datasets.DEMO}.npz").is_file()


def test_subpackages_load_when_asked_for():
    program = "import attemper; attemper.io.InputSpec; attemper.compare; attemper.tokens"
    assert "attemper.io" in imported_by(program)


def test_a_star_hides_no_other_module():
    """``from attemper import *`` after ``import io, torch`` leaves those what they are."""
    assert not {"io", "torch"} & set(attemper.__all__)
