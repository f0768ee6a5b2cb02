"""`import attemper` is light, verbs stay functions whatever was imported, and the wheel has every file."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

import attemper
from conftest import draw

HEAVY = ("numpy", "sklearn", "pyarrow", "pandas", "torch", "matplotlib", "onnx", "cyclopts", "scipy")
VERBS = ("apply", "check", "compare", "decide", "evaluate", "fit", "load", "monitor", "read", "sketch")


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
    (H, Y), more = draw(300, 3), tuple(draw(300, 3, seed=1))
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
        assert attemper.evaluate(more, cal, metrics="nll")["nll"].value > 0
        assert attemper.compare((H, Y), methods=["ts"], cv=0).chosen == "ts"
        assert attemper.decide((H, Y), budget=0.2, method="ts").reached
        assert attemper.monitor(cal, more).alarm is False


@pytest.mark.slow
def test_the_wheel_has_every_file(tmp_path):
    root = Path(__file__).parents[1]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", tmp_path]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, root], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if name.startswith("attemper/")}
        scripts = [name for name in packed.namelist() if name.endswith("entry_points.txt")]
    files = {path.relative_to(root / "src").as_posix() for path in (root / "src" / "attemper").rglob("*.*")}
    assert names == {name for name in files if "__pycache__" not in name}
    assert names >= {"attemper/py.typed", "attemper/report/templates/report.html"}
    assert len(scripts) == 1
