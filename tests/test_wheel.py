"""The wheel holds what the package needs, and works by itself."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT], check=True)
    [path] = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", folder / "site", path], check=True)
    return path


def run(wheel, tmp_path, *words):
    """Run Python where the installed wheel is the only attemper."""
    env = os.environ | {"PYTHONPATH": str(wheel.parent / "site")}
    return subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True)


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "attemper/py.typed" in names
    assert any(name.endswith(".npz") for name in names)
    assert all(name.startswith("attemper") for name in names)


def test_the_installed_command_line_works(wheel, tmp_path):
    where = run(wheel, tmp_path, "-c", "import attemper; print(attemper.__file__)").stdout
    assert where.startswith(str(wheel.parent))
    done = run(wheel, tmp_path, "-m", "attemper", "demo", "--output", "demo")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "report.html").exists()


def test_without_an_extra_the_error_names_it(wheel, tmp_path):
    hide = "import sys; sys.modules['matplotlib'] = None; import attemper"
    done = run(wheel, tmp_path, "-c", f"{hide}; attemper.plots.plot_reliability([0, 1], [0.2, 0.7])")
    assert done.returncode == 1
    assert "MissingExtraError" in done.stderr
    assert "attemper[plots]" in done.stderr
