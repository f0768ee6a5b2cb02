"""`import attemper` is light, its names are few, and verbs stay functions whatever was imported."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

import attemper

HEAVY = ("numpy", "sklearn", "pyarrow", "pandas", "torch", "matplotlib", "onnx", "cyclopts", "scipy")
VERBS = ("apply", "check", "compare", "decide", "evaluate", "fit", "load", "monitor", "read", "sketch")
RNG = np.random.default_rng(0)
H = 3 * RNG.normal(size=(300, 3))
Y = (H / 2 + RNG.gumbel(size=H.shape)).argmax(axis=1)


def loaded(code):
    code += "; import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return {name for name in HEAVY if name in found}


def test_import_is_light():
    assert loaded("import attemper") == set()


def test_help_loads_no_numbers():
    code = (
        "from attemper.cli import main\ntry: main(['--help'])\nexcept SystemExit as e: assert e.code == 0\nimport sys"
    )
    assert loaded(code) == {"cyclopts"}


@pytest.mark.slow
def test_a_fit_needs_no_extra():
    code = "import attemper; attemper.fit([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]], [0, 1, 1], method='ts')"
    assert loaded(code) & {"torch", "matplotlib", "onnx", "cyclopts"} == set()  # scikit-learn loads pandas itself


def test_names():
    public = [name for name in attemper.__all__ if not name.endswith(("Error", "Warning"))]
    assert len(public) <= 50
    assert len(set(attemper.__all__)) == len(attemper.__all__)
    assert all(getattr(attemper, name) is not None for name in attemper.__all__)
    assert {*attemper.__all__, *attemper.MODULES} == {*dir(attemper)}
    with pytest.raises(AttributeError):
        attemper.nothing  # noqa: B018
    from attemper import (  # noqa: F401
        CalibratedClassifier,
        GroupedCalibrator,
        MultiLabelCalibrator,
        StructuredScaling,
        TemperatureScaling,
        metrics,
        plots,
    )


def test_verbs_are_functions_after_every_submodule_was_imported(tmp_path):
    for module in pkgutil.walk_packages(attemper.__path__, "attemper."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # triton
                importlib.import_module(module.name)
    assert all(inspect.isfunction(getattr(attemper, name)) for name in VERBS)
    path = tmp_path / "net.attemper.json"
    for _ in range(2):
        cal = attemper.fit(H, Y, method="ts")
        cal.save(path)
        assert attemper.load(path).temperature_ == cal.temperature_
        assert attemper.read(H, Y).n_samples == attemper.sketch(H, Y).n_samples == len(Y)
        assert attemper.check(H, Y)
        assert len(attemper.apply(cal, H)["confidence"]) == len(Y)
        assert attemper.evaluate((H, Y), cal, metrics="nll")["nll"].value == pytest.approx(cal.report_.nll)
        assert attemper.compare((H, Y), methods=["ts"], cv=0).chosen == "ts"
        assert attemper.decide((H, Y), budget=0.2, method="ts").reached
        assert attemper.monitor(cal, (H, Y)).alarm is False
