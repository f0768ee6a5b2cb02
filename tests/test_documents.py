"""Documents are written whole or not at all, and read without trust."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

import attemper
from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    FileError,
    InputError,
    TemperatureScaling,
)
from attemper._json import Fields, atomic, from_fields, read_document, to_fields, write_document
from attemper._typing import Floats, Labels

from data import draw

# Written atomically


@pytest.mark.parametrize("mode, old, new", [("wb", b"old", b"new"), ("w", "alt", "neu: θ")])
def test_a_file_appears_whole(tmp_path, mode, old, new):
    path = tmp_path / "a.txt"
    read = path.read_bytes if mode == "wb" else lambda: path.read_text(encoding="utf-8")
    with atomic(path, mode) as stream:
        stream.write(old)
        assert not path.exists()
    with atomic(path, mode) as stream:
        stream.write(new)
        stream.flush()
        assert read() == old
    assert read() == new
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, ZeroDivisionError, InputError])
def test_an_interrupt_half_way_leaves_the_old_file(tmp_path, interruption):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(interruption), atomic(path, "w") as stream:
        stream.write("half of the ne")
        stream.flush()
        raise interruption
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_system_refuses_is_told_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(FileError), atomic(path):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(FileError),
        atomic(tmp_path / "none" / "a.txt"),
    ):
        pass
    with pytest.raises(FileError), atomic(tmp_path):
        pass
    with pytest.raises(FileError), atomic(tmp_path / ("a" * 300)):
        pass
    with pytest.raises(FileError), atomic(path, "w") as stream:
        stream.write("\ud800")
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_are_not_written(tmp_path):
    with pytest.raises(ValueError):
        write_document(tmp_path / "a", "thing", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


# Read without trust


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"attemper": "thing", "schema"',
        b"\xff\xfe\x00",
        b'{"attemper": "thing", "schema": 1, "x": [Infinity]}',
        b"[" * 200_000 + b"]" * 200_000,
        b"[]",
        b"{}",
        b'{"attemper": 3, "schema": 1}',
        b'{"attemper": "thing"}',
        b'{"attemper": "thing", "schema": true}',
        b'{"attemper": "thing", "schema": 2}',
        b'{"attemper": "thing", "schema": 0}',
        b'{"attemper": "other", "schema": 1}',
    ],
)
def test_damaged_documents_are_refused(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_document(path, "thing", "sketch")


# Fitted calibrators, damaged


@cache
def originals():
    h, y = draw(80, 3)
    recipes = [
        TemperatureScaling(classes=["a", "b", "c"]),
        AttendedTemperatureScaling(theta=0.02),
        BayesianTemperatureScaling(labels="noisy"),
    ]
    return [recipe.fit(h, y if recipe.classes is None else np.array(recipe.classes)[y]) for recipe in recipes]


@pytest.fixture(scope="module")
def documents_of_calibrators(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.json"
    texts = []
    for calibrator in originals():
        calibrator.save(path)
        texts.append(path.read_text())
    return path, texts


@pytest.mark.parametrize(
    "change",
    [
        {"method": "magic"},
        {"n_classes": 10**9},
        {"n_classes": 1},
        {"input": "guess"},
        {"classes": ["a", "b", "a"]},
        {"map": {"type": "scale", "beta": 10**400}},
        {"map": {"type": "mixture", "weights": [1e-9] * 10**5, "betas": [1.0] * 10**5, "floor": 0}},
        {"attemper": "sketch"},
    ],
)
def test_documents_that_make_no_sense(documents_of_calibrators, change):
    path, texts = documents_of_calibrators
    path.write_text(json.dumps(json.loads(texts[0]) | change))
    with pytest.raises(FileError):
        attemper.load(path)


# The codec of dataclasses


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True, eq=False)
class Outer:
    yes: bool
    count: int
    values: Floats
    columns: Labels
    pair: tuple[float, float]
    bound: float | tuple[float, ...] | None
    kind: Literal["low", "high"] | None
    inner: tuple[Inner, ...]
    by_name: dict[str, float]
    new: float = 2.0

    def __post_init__(self):
        if self.count < 0:
            raise InputError(f"count={self.count}: expected a whole number, at least 0")


class Path3(NamedTuple):
    theta: Floats
    outer: Outer | None = None


OUTER = Outer(
    yes=True,
    count=3,
    values=np.array([[0.5, 1e-300]]),
    columns=np.array([0, 7]),
    pair=(1.0, 2.5),
    bound=(0.1, 1.0),
    kind="low",
    inner=(Inner("a"), Inner("b", 4)),
    by_name={"θ": 0.25},
)


def test_dataclasses_come_back_as_they_were():
    plain = to_fields(Path3(np.array([0.1]), OUTER))
    back = from_fields(Path3, Fields(json.loads(json.dumps(plain)), "here"))
    assert to_fields(back) == plain
    assert back.outer.columns.dtype == np.int64
    assert back.outer.inner == OUTER.inner
    assert back.outer.bound == OUTER.bound
    assert from_fields(Path3, Fields({"theta": []}, "here")).outer is None


@pytest.mark.parametrize(
    "change",
    [
        {"yes": 1},
        {"count": -1},
        {"count": None},
        {"values": [1, "x"]},
        {"columns": [0.5]},
        {"columns": [1e300]},
        {"pair": [1, 2, 3]},
        {"bound": "x"},
        {"bound": [None]},
        {"kind": "middle"},
        {"inner": [{"name": "a"}, 3]},
        {"inner": [{"name": "a", "size": True}]},
        {"by_name": {"a": "b"}},
    ],
)
def test_what_is_not_of_its_annotation_is_refused(change):
    with pytest.raises(FileError):
        from_fields(Outer, Fields(to_fields(OUTER) | change, "here"))


def test_an_alias_of_an_array_is_read_as_the_array():
    """NDArray is an alias, made by a ``type`` statement, from numpy 2.5 on."""
    of = TypeVar("of", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[of]], type_params=(of,))
    fields = Fields({"x": [1, 2]}, "a.json")
    assert fields.read("x", alias[np.float64]).dtype == np.float64
    assert fields.read("x", alias[np.int64] | None).dtype == np.int64
