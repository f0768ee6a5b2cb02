"""No content of a file makes anything but an AttemperError escape."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attemper.errors import AttemperError
from attemper.files import open_scores

QUIET = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(path: Path, labels: Path | None, weights_key: str | None = None) -> None:
    """Read once as logits and once as probabilities; either may fail, in our own way."""
    for told in ({}, {"probs": True, "logits_key": "logits"}):
        try:
            for piece in open_scores(path, labels=labels, weights_key=weights_key, **told):
                assert piece.values.shape == (len(piece), piece.n_classes)
                assert piece.labels.shape == (len(piece),)
        except AttemperError as error:
            assert str(error)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def original(folder, form, save):
    """A good file, its bytes, and the file of labels where there is one."""
    rng = np.random.default_rng(0)
    weights = None if form == "npy" else rng.uniform(size=5)
    told = save(folder, form, rng.normal(size=(5, 3)).astype("f2"), rng.integers(0, 3, 5), weights)
    return told["paths"], told["paths"].read_bytes(), told.get("labels"), None if form == "npy" else "w"


@QUIET
@given(content=st.binary(max_size=300), keep=st.integers(0, 16))
def test_random_bytes(original, content, keep):
    path, good, *rest = original
    path.write_bytes(good[:keep] + content)
    read(path, *rest)


@QUIET
@given(part=st.floats(0, 1))
def test_truncated_files(original, part):
    path, good, *rest = original
    path.write_bytes(good[: int(part * len(good))])
    read(path, *rest)


@settings(QUIET, max_examples=150)
@given(data=st.data())
def test_flipped_bytes(original, data):
    path, good, *rest = original
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    read(path, *rest)


@QUIET
@given(place=st.floats(0, 1), insert=st.binary(min_size=1, max_size=20), remove=st.integers(0, 20))
def test_shifted_bytes(original, place, insert, remove):
    path, good, *rest = original
    at = int(place * len(good))
    path.write_bytes(good[:at] + insert + good[at + remove :])
    read(path, *rest)


@QUIET
@given(st.text(alphabet='label,0123456789.eE+-naif_"\n\r\0 é', max_size=200))
def test_csv_like_text(folder, content):
    path = folder / "text.csv"
    path.write_bytes(b"label,a,b\n" + content.encode())
    read(path, None)
