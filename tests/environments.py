"""Distributions of a tree, and environments that hold some packages and nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def installed(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """Find what these requirements mean here, and what those packages require in turn."""
    found: dict[str, Distribution] = {}
    seen, todo = set(), [(r.name, extra) for r in requirements if applies(r, "") for extra in ("", *r.extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        package = found.setdefault(canonicalize_name(name), distribution(name))
        for requirement in map(Requirement, package.requires or ()):
            if applies(requirement, extra):
                todo += [(requirement.name, more) for more in ("", *requirement.extras)]
    return found


def applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def build(source: Path, folder: Path) -> None:
    """Build the wheel and the sdist of a tree into a folder."""
    told = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(command, cwd=source, env=told, check=True, capture_output=True)


@dataclass(frozen=True)
class Built:
    folder: Path

    @property
    def wheel(self) -> Path:
        return next(self.folder.glob("*.whl"))

    @property
    def sdist(self) -> Path:
        return next(self.folder.glob("*.tar.gz"))

    @property
    def metadata(self) -> Metadata:
        with zipfile.ZipFile(self.wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            return Metadata.from_email(archive.read(name))  # raises if a field is not what the standard says


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        told = {"base": str(self.folder), "platbase": str(self.folder)}
        return Path(sysconfig.get_path("purelib", "venv", told))

    def run(self, *command: Any, cwd: Path, program: str = "python") -> subprocess.CompletedProcess[str]:
        """Run a program of this environment, with nothing told to it from outside."""
        told = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ATTEMPER", "VIRTUAL_ENV"))}
        told |= {"COLUMNS": "200"}
        return subprocess.run(
            [self.folder / "bin" / program, *command], cwd=cwd, env=told, capture_output=True, text=True
        )


@contextmanager
def once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """Give a folder that all workers of pytest-xdist share, and whether it is still to be filled."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        yield folder, not done.exists()
        done.touch()
