"""The distributions, built once, and an environment that holds the wheel and what it requires, and nothing else.

No network: the packages that the wheel requires are linked from where the tests run.
"""

from __future__ import annotations

import subprocess
import sys
import venv

import pytest

from environments import ROOT, Built, Environment, build, installed, once

# As from an index: of a path pip would remember where it was.
FROM_INDEX = ("--no-index", "--no-deps", "--find-links")


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    with once(tmp_path_factory, "built") as (folder, empty):
        if empty:
            build(ROOT, folder)
    return Built(folder)


@pytest.fixture(scope="session")
def clean(built, tmp_path_factory):
    with once(tmp_path_factory, "clean") as (folder, empty):
        environment = Environment(folder)
        if empty:
            venv.create(folder, symlinks=True)
            for package in installed(built.metadata.requires_dist).values():
                for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
                    (environment.packages / top).symlink_to(package.locate_file(top))
            pip = [sys.executable, "-m", "pip", "--python", environment.python, "--disable-pip-version-check"]
            subprocess.run([*pip, "install", "--quiet", *FROM_INDEX, built.folder, "attemper"], check=True)
            subprocess.run([*pip, "check"], check=True)
    return environment
