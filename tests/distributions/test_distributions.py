"""What is in the wheel and in the sdist, and that building them again gives the same bytes."""

from __future__ import annotations

import io
import json
import os
import pickletools
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from packaging.specifiers import SpecifierSet
from pathspec import GitIgnoreSpec
from trove_classifiers import classifiers

from environments import ROOT, Built, build

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def contents(built):
    with zipfile.ZipFile(built.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_is_small_and_holds_the_package_alone(built):
    assert built.wheel.name.endswith("-py3-none-any.whl")
    assert built.wheel.stat().st_size < 3e6
    ours = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*") if p.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    inside = contents(built)
    assert ours == {name for name in inside if ".dist-info/" not in name}
    assert {"attemper/py.typed", "attemper/bundled/resnet200-skin-lesionsplit-s0.npz"} <= ours


def test_the_metadata_are_what_the_standard_says(built):
    told = built.metadata
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told.license_expression == "BSD-3-Clause"
    assert told.requires_python == SpecifierSet(">=3.11")
    assert sorted(told.provides_extra) == sorted(declared["optional-dependencies"])
    assert set(told.classifiers) <= classifiers
    assert {f"Programming Language :: Python :: {version}" for version in PYTHONS} <= set(told.classifiers)
    inside = contents(built)
    info = next(name for name in inside if name.endswith("/METADATA")).removesuffix("METADATA")
    assert inside[f"{info}entry_points.txt"].decode().split("\n")[1] == "attemper = attemper.cli:main"
    licences = [inside[f"{info}licenses/{name}"].decode() for name in told.license_files]
    assert any("Redistribution and use in source and binary forms" in text for text in licences)


def test_the_readme_of_the_index_leads_to_the_repository(built):
    told, source = built.metadata, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    targets = re.findall(r"\]\(([^)]+)\)", told.description)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text()))
    assert all(target.startswith(("https://", "#")) for target in targets)
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", told.description):
        assert picture.startswith(source.replace("github.com", "raw.githubusercontent.com") + "/main/docs/images/")
        assert (ROOT / picture.partition("/main/")[2]).is_file()


def test_nothing_in_the_wheel_runs_when_it_is_read_or_points_to_this_machine(built):
    for name, data in contents(built).items():
        assert not name.startswith("/")
        assert ".." not in Path(name).parts
        assert not is_pickle(data), name
        for path in (ROOT, Path.home()):
            assert len(path.parts) < 3 or f"{path}/".encode() not in data, name
        if name.endswith(".npz"):
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                assert all(archive[key].dtype != object for key in archive.files)
                json.loads(str(archive["config"]))


def is_pickle(data):
    try:
        return sum(1 for _ in pickletools.genops(data)) > 1
    except Exception:
        return False


def test_a_pickle_would_be_seen():
    import pickle

    assert is_pickle(pickle.dumps({"a": np.ones(3)}))


def test_the_sdist_is_the_whole_repository(built):
    ignored = GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())
    here = set()
    for folder, folders, files in os.walk(ROOT):
        within = Path(folder).relative_to(ROOT)
        folders[:] = [f for f in folders if not f.startswith(".") and not ignored.match_file(f"{within / f}/")]
        here |= {(within / file).as_posix() for file in files}
    here = {name for name in here if not ignored.match_file(name)} - {"PKG-INFO"}
    here = {name for name in here if not name.startswith(".") or name == ".gitignore"}  # no files of services
    with tarfile.open(built.sdist) as archive:
        top = built.sdist.name.removesuffix(".tar.gz")
        inside = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    assert inside == here | {"PKG-INFO"}
    for needed in ("data/README.md", "tests/conftest.py", "benchmarks/sets.py", "Makefile", "constraints.txt"):
        assert needed in inside


@pytest.fixture(scope="module")
def rebuilt(built, tmp_path_factory):
    """What the unpacked sdist gives, in another place and at another time."""
    folder = tmp_path_factory.mktemp("rebuilt")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    for path in tree.rglob("*"):
        os.utime(path, (1e9, 1e9))
    build(tree, folder / "dist")
    return Built(folder / "dist")


def test_the_sdist_gives_the_same_bytes_as_the_repository(built, rebuilt):
    assert rebuilt.wheel.read_bytes() == built.wheel.read_bytes()
    assert rebuilt.sdist.read_bytes() == built.sdist.read_bytes()
