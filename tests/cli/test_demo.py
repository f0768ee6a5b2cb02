"""The demo: files that are all of the recommended method, and none that was there before."""

import json

import numpy as np
import pytest

import attemper
from attemper import MissingExtraError
from attemper.calibrators import METHODS
from attemper.io import open_scores

pytestmark = pytest.mark.slow


def test_demo_writes_what_it_says(good, bad, tmp_path):
    found = json.loads(good("demo", "-q", "-o", "here/there", "--json"))
    assert found["folder"] == "here/there"
    assert [row["method"] for row in found["rows"]] == ["none", *METHODS]
    folder = tmp_path / "here/there"
    assert sorted(found["files"]) == sorted(path.name for path in folder.iterdir())
    assert (folder / "reliability.png").read_bytes().startswith(b"\x89PNG")
    test = open_scores(folder / "test.npz").load()
    written = open_scores(
        folder / "probabilities.csv", input="probs", classes=np.load(folder / "test.npz")["class_names"]
    )
    calibrator = attemper.load(folder / "attemper.json")
    assert calibrator.method == found["recommended"]
    np.testing.assert_array_equal(written.load().values.astype(np.float32), calibrator.predict_proba(test))
    bad("demo", "-o", "here/there")
    (tmp_path / "test.npz").write_bytes(b"mine")
    bad("demo", "-o", ".")
    assert (tmp_path / "test.npz").read_bytes() == b"mine"


def test_demo_without_extras_goes_on(cli, monkeypatch):
    def missing(name, **_):
        raise MissingExtraError(f"{name} is needed")

    monkeypatch.setattr("attemper.plots.require", missing)
    monkeypatch.setattr("attemper.report.page.require", missing)
    code, out, err = cli("demo", "-o", "here")
    assert (code, len(err.splitlines())) == (0, 2)
    assert "attemper.json" in out
    assert "reliability.png" not in out
    assert "here/report.html" not in out
