"""Provenance is kept where it was asked for, goes round, and is read without trust."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from sklearn.base import clone

import attemper
from attemper import TemperatureScaling
from attemper.calibrators import Provenance

from data import draw


@pytest.fixture
def fitted():
    return TemperatureScaling().fit(*draw(100, 3))


def test_nothing_is_written_unasked(fitted, tmp_path):
    fitted.save(tmp_path / "m.json")
    assert "provenance" not in json.loads((tmp_path / "m.json").read_text())
    assert not hasattr(attemper.load(tmp_path / "m.json"), "provenance_")


def test_it_goes_round_and_ends_with_the_next_fit(fitted, tmp_path):
    np.savez(tmp_path / "val.npz", logits=draw(100, 3)[0])
    told = Provenance.now(tmp_path / "val.npz")
    assert told.files[0].sha256 == hashlib.sha256((tmp_path / "val.npz").read_bytes()).hexdigest()
    assert told.files[0].name == "val.npz"
    fitted.save(tmp_path / "m.json", provenance=told)
    back = attemper.load(tmp_path / "m.json")
    assert back.provenance_ == told
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "m.json").read_bytes()
    assert not hasattr(back.fit(*draw(50, 3)), "provenance_")
    assert not hasattr(clone(back), "provenance_")
    assert Provenance.now().files == ()
