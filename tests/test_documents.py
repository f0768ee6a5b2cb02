"""Documents are written whole or not at all, and read without trust."""

from __future__ import annotations

import copy
import json
import os
import stat
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from typing_extensions import TypeAliasType

import attemper
from attemper import (
    AttemperError,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    EnsembleTemperatureScaling,
    FileError,
    InputError,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    _json,
)
from attemper._json import Fields, Formerly, atomic, from_fields, read_document, to_fields, write_document
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
    with pytest.raises(FileError), atomic(tmp_path / "a\0b"):
        pass
    with pytest.raises(FileError), atomic(tmp_path / ("a" * 300)):
        pass
    with pytest.raises(FileError), atomic(path, "w") as stream:
        stream.write("\ud800")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_a_plain_open(tmp_path, mask):
    before = os.umask(mask)
    try:
        with atomic(tmp_path / "atomic", "w"):
            pass
        (tmp_path / "plain").touch()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")]
    assert modes[0] == modes[1] == 0o666 & ~mask


def test_the_same_content_is_the_same_bytes(tmp_path):
    for name in "ab":
        write_document(tmp_path / name, "thing", {"x": [0.1, 1e-300], "name": "θ"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    back = read_document(tmp_path / "a", "other", "thing")
    assert (back.items("x"), back.text("name")) == ([0.1, 1e-300], "θ")


def test_numbers_that_are_none_are_not_written(tmp_path):
    with pytest.raises(ValueError):
        write_document(tmp_path / "a", "thing", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


# Read without trust


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "the file is empty"),
        (b'{"attemper": "thing", "schema"', "not valid JSON, perhaps truncated"),
        (b"\xff\xfe\x00", "not a JSON document, but binary data"),
        (b"PK\x03\x04\x80", "not a JSON document, but binary data"),
        (b'{"attemper": "thing", "schema": NaN}', "NaN is not allowed"),
        (b'{"attemper": "thing", "schema": 1, "x": [Infinity]}', "Infinity is not allowed"),
        (b'{"attemper": "thing", "schema": 1, "x": -Infinity}', "-Infinity is not allowed"),
        (b'{"a":' * 200_000, "not valid JSON"),
        (b"[" * 200_000 + b"]" * 200_000, "not valid JSON"),
        (b'{"attemper": "thing", "schema": ' + b"1" * 10_000 + b"}", "'schema' is 1111.*…; expected a finite number"),
        (b'{"attemper": "thing", "schema": 1, "x": {"y": [1, 1e400]}}', "'y' is 1e400; expected a finite number"),
        (b'{"attemper": "thing", "schema": 1, "x": -1' + b"0" * 400 + b"}", "'x' is -1000.*; expected a finite number"),
        (b"[1e999]", "there is 1e999; expected a finite number"),
        (b"[]", "JSON, but not a document of attemper"),
        (b'"attemper"', "JSON, but not a document of attemper"),
        (b"{}", "JSON, but not a document of attemper"),
        (b'{"attemper": 3, "schema": 1}', "the field 'attemper' is 3; expected text"),
        (b'{"attemper": "thing"}', "the field 'schema' is missing"),
        (b'{"attemper": "thing", "schema": "1"}', "the field 'schema' is '1'; expected a whole number"),
        (b'{"attemper": "thing", "schema": true}', "the field 'schema' is True; expected a whole number"),
        (b'{"attemper": "thing", "schema": 1.0}', r"the field 'schema' is 1\.0; expected a whole number"),
        (b'{"attemper": "thing", "schema": 1, "schema": 2}', "schema version 2, .* pip install -U attemper"),
        (b'{"attemper": "thing", "schema": 0}', "schema version 0 never existed"),
        (b'{"attemper": "other", "schema": 1}', "holds a other; expected a thing or a sketch"),
    ],
)
def test_every_kind_of_damage_is_told(tmp_path, content, why):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_document(path, "thing", "sketch")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError):
        read_document(tmp_path / "none", "thing")
    with pytest.raises(FileError):
        read_document(tmp_path, "thing")
    with pytest.raises(FileError):
        read_document(tmp_path / "a\0b", "thing")


def test_huge_files_are_not_taken_in(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_document(path, "thing", {})
    size = path.stat().st_size
    monkeypatch.setattr(_json, "MAX_BYTES", size)
    read_document(path, "thing")
    monkeypatch.setattr(_json, "MAX_BYTES", size - 1)
    with pytest.raises(FileError):
        read_document(path, "thing")
    with pytest.raises(FileError):
        read_document("/dev/zero", "thing")


# Fields


FIELDS = Fields(
    {
        "text": "θ",
        "yes": True,
        "int": 3,
        "float": 2.5,
        "big": 10**400,
        "null": None,
        "object": {"inner": 1},
        "list": [1, 2.5],
        "matrix": [[1, 2], [3, 4]],
        "ragged": [[1], [2, 3]],
        "words": ["1", "2"],
        "flags": [True, False],
        "vast": [10**400],
        "infinite": [1e999],
        "long": "x" * 1000,
    },
    "here",
)


def test_fields_of_the_right_type():
    assert FIELDS.text("text") == "θ"
    assert FIELDS.boolean("yes") is True
    assert FIELDS.integer("int") == 3
    assert (FIELDS.number("int"), FIELDS.number("float")) == (3.0, 2.5)
    assert FIELDS.fields("object").integer("inner") == 1
    assert FIELDS.items("list") == [1, 2.5]
    assert FIELDS.array("matrix", (-1, 2)).tolist() == [[1, 2], [3, 4]]
    assert FIELDS.array("list").dtype == np.float64
    assert "text" in FIELDS
    assert "nothing" not in FIELDS


@pytest.mark.parametrize(
    "accessor, key, why",
    [
        ("text", "nothing", "the field 'nothing' is missing"),
        ("text", "int", "'int' is 3; expected text"),
        ("boolean", "int", "'int' is 3; expected true or false"),
        ("integer", "yes", "'yes' is True; expected a whole number"),
        ("integer", "float", r"'float' is 2\.5; expected a whole number"),
        ("integer", "big", r"'big' is 1000.*…, beyond any sensible number"),
        ("number", "yes", "'yes' is True; expected a number"),
        ("number", "null", "'null' is None; expected a number"),
        ("number", "big", r"'big' is 1000.*…; expected a finite number"),
        ("number", "long", r"'long' is 'x{56}…; expected a number"),
        ("fields", "list", r"'list' is \[1, 2\.5\]; expected an object"),
        ("items", "object", "expected a list"),
        ("array", "int", "'int' is 3; expected a list of numbers"),
        ("array", "ragged", "'ragged' is not an array of numbers"),
        ("array", "words", "'words' holds something that is not a finite number"),
        ("array", "flags", "'flags' holds something that is not a finite number"),
        ("array", "vast", "'vast' is not an array of numbers"),
        ("array", "infinite", "'infinite' holds something that is not a finite number"),
    ],
)
def test_fields_of_the_wrong_type(accessor, key, why):
    with pytest.raises(FileError):
        getattr(FIELDS, accessor)(key)


def test_arrays_of_the_wrong_shape():
    with pytest.raises(FileError):
        FIELDS.array("matrix", (2, 3))
    with pytest.raises(FileError):
        FIELDS.array("list", (-1, 2))


def test_nested_fields_say_where():
    with pytest.raises(FileError):
        FIELDS.fields("object").text("x")


# Fitted calibrators, damaged

LOGITS = draw(20, 3)[0]


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


def check(path):
    """Whatever loads can predict, tell about itself and be saved; whatever does not is told."""
    try:
        loaded = attemper.load(path)
    except AttemperError as error:
        assert str(error)
        return
    h = LOGITS if loaded.n_features_in_ == 3 else np.zeros((2, min(loaded.n_features_in_, 1000)))
    if loaded.input == "probs":
        h = np.full(h.shape, 1 / h.shape[1])
    if h.shape[1] == loaded.n_features_in_:
        p = loaded.predict_proba(h)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
        assert len(loaded.predict(h)) == len(h)
    assert loaded.describe()
    json.dumps(loaded.summary())
    try:
        loaded.save(path)
    except AttemperError as error:
        assert "UTF-8" in str(error)  # half a character in a name


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 10**9, 10**18, 10**400, -(10**400), 1e-320, 1e308, -1e308, 0.5]),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["ts", "ats", "bayes", "scale", "mixture", "probs", "noisy", "low", "\ud800"]),
    st.lists(st.one_of(st.floats(), st.integers(-2, 2), st.text(max_size=2), st.none()), max_size=4),
    st.dictionaries(st.sampled_from(["type", "beta", "weights", "x"]), st.floats(), max_size=2),
    st.sampled_from([[[[[1.0]]]], [{}], {"a": {"b": []}}, [0.5] * 20_000]),
)


@given(data=st.data())
def test_damaged_fields_are_told_or_harmless(documents_of_calibrators, data):
    path, texts = documents_of_calibrators
    document = json.loads(data.draw(st.sampled_from(texts)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = document
        while True:  # walk down to some field
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[key]
            if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
                place = inner
            else:
                break
        action = data.draw(st.sampled_from(["replace", "replace", "delete", "double"]))
        if action == "delete":
            del place[key]
        elif action == "double" and isinstance(place, list):
            place.append(copy.deepcopy(inner))
        else:
            place[key] = copy.deepcopy(data.draw(JUNK))
        if not document:
            break
    path.write_text(json.dumps(document))
    check(path)


@given(data=st.data())
def test_damaged_text_is_told_or_harmless(documents_of_calibrators, data):
    path, texts = documents_of_calibrators
    text = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(text)))
    stop = start + data.draw(st.integers(0, 5))
    middle = data.draw(st.text(alphabet='{}[]",:0123456789.eE+-truefalsnul\\ θ', max_size=5))
    path.write_text(text[:start] + middle + text[stop:], encoding="utf-8")
    check(path)


@pytest.mark.parametrize("depth", [10, 60, 200, 500, 900, 990, 5000])
@pytest.mark.parametrize("key", ["attemper", "schema", "map", "classes", "fitted", "n_classes", "input"])
def test_deep_nesting_anywhere_is_told(documents_of_calibrators, depth, key):
    path, texts = documents_of_calibrators
    document = json.loads(texts[0])
    document[key] = "DEEP"
    path.write_text(json.dumps(document).replace('"DEEP"', "[" * depth + "1" + "]" * depth))
    with pytest.raises(FileError):
        attemper.load(path)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"method": "magic"}, "the method 'magic' is unknown"),
        ({"n_classes": 10**9}, "1000000000 classes"),
        ({"n_classes": 1}, "1 classes"),
        ({"input": "guess"}, "expected 'logits' or 'probs'"),
        ({"classes": ["a", "b"]}, "must hold 3 names"),
        ({"classes": ["a", "b", None]}, "must hold 3 names"),
        ({"classes": ["a", "b", "a"]}, "'a' twice"),
        ({"map": {"type": "scale", "beta": 10**400}}, "expected a finite number"),
        ({"map": {"type": "mixture", "weights": [1e-9] * 10**5, "betas": [1.0] * 10**5, "floor": 0}}, "mixture of"),
        ({"attemper": "sketch"}, "holds a sketch; expected a calibrator"),
    ],
)
def test_documents_that_make_no_sense(documents_of_calibrators, change, why):
    path, texts = documents_of_calibrators
    path.write_text(json.dumps(json.loads(texts[0]) | change))
    with pytest.raises(FileError):
        attemper.load(path)


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        AttendedTemperatureScaling(),
        BayesianTemperatureScaling(),
        EnsembleTemperatureScaling(),
        StructuredScaling(),
    ],
    ids=lambda calibrator: calibrator.method,
)
def test_a_temperature_that_is_not_the_maps_is_told(tmp_path, calibrator):
    path = tmp_path / "a.json"
    clone(calibrator).fit(*draw(200, 3)).save(path)
    document = json.loads(path.read_text())
    holder = document["fitted"].get("bayes", document["fitted"])
    attemper.load(path)
    t = holder["temperature"]
    for factor in (1 / 3, 3):
        holder["temperature"] = factor * t
        path.write_text(json.dumps(document))
        with pytest.raises(FileError):
            attemper.load(path)
    holder["temperature"] = t
    document["map"] = {"type": "scale", "beta": 17.0}
    path.write_text(json.dumps(document))
    with pytest.raises(FileError):
        attemper.load(path)


@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1e400", "NaN", "Infinity"])
@pytest.mark.parametrize("calibrator", [BayesianTemperatureScaling(), VectorScaling()], ids=str)
def test_parameters_beyond_all_numbers_are_told(tmp_path, calibrator, value):
    path = tmp_path / "a.json"
    clone(calibrator).fit(*draw(200, 3)).save(path)
    document = json.loads(path.read_text())
    for name in document["params"]:
        damaged = document | {"params": document["params"] | {name: "DAMAGE"}}
        path.write_text(json.dumps(damaged).replace('"DAMAGE"', value))
        with pytest.raises(FileError):
            attemper.load(path)


@pytest.mark.parametrize("column", [-1, 3, 0.5, 1e300])
def test_columns_of_confusions_that_do_not_exist_are_told(tmp_path, column):
    path = tmp_path / "a.json"
    BayesianTemperatureScaling(labels="noisy", noise="classwise").fit(*draw(200, 3)).save(path)
    text = path.read_text()
    assert text.count('"columns":[[0,') == 1
    path.write_text(text.replace('"columns":[[0,', f'"columns":[[{column!r},'))
    with pytest.raises(FileError):
        attemper.load(path)


@pytest.mark.parametrize("names", [[1.5, float("nan"), 2.5], [1 + 1j, 2, 3]])
def test_names_that_json_cannot_hold_are_not_saved(tmp_path, names):
    h, y = draw(60, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = TemperatureScaling(classes=names).fit(h[y != 1], np.array(names)[y[y != 1]])
    with pytest.raises(InputError):
        fitted.save(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_itself_is_told(tmp_path):
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    with pytest.raises(FileError):
        write_document(tmp_path / "a.json", "thing", {})
    with pytest.raises(FileError):
        read_document(tmp_path / "a.json", "thing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(FileError):
        read_document(tmp_path / "a.json", "thing")


def test_links_modes_and_pipes_are_respected(tmp_path):
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    with atomic(link, "w") as stream:
        stream.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    with pytest.raises(FileError), atomic(pipe, "w") as stream:
        stream.write("x")
    assert pipe.is_fifo()


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
    new: Annotated[float, Formerly("old")] = 2.0

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
    "change, why",
    [
        ({"yes": 1}, "'yes' is 1; expected true or false"),
        ({"count": -1}, "count=-1"),
        ({"count": None}, "'count' is None"),
        ({"values": [1, "x"]}, "'values' is not an array of numbers"),
        ({"columns": [0.5]}, "'columns' holds something that is not a whole number"),
        ({"columns": [1e300]}, "'columns' holds something that is not a whole number"),
        ({"pair": [1, 2, 3]}, r"'pair' has shape \(3,\); expected \(2,\)"),
        ({"bound": "x"}, "'bound' is 'x'; expected a number"),
        ({"bound": [None]}, "'bound' is not an array|'bound' holds something"),
        ({"kind": "middle"}, "'kind' is 'middle'; expected 'low' or 'high'"),
        ({"inner": [{"name": "a"}, 3]}, r"'inner\[1\]' is 3; expected an object"),
        ({"inner": [{"name": "a", "size": True}]}, r"inner\[0\]: the field 'size' is True"),
        ({"by_name": {"a": "b"}}, "by_name: the field 'a' is 'b'; expected a number"),
    ],
)
def test_what_is_not_of_its_annotation_is_told(change, why):
    with pytest.raises(FileError):
        from_fields(Outer, Fields(to_fields(OUTER) | change, "here"))


def test_an_alias_of_an_array_is_read_as_the_array():
    """NDArray is an alias, made by a ``type`` statement, from numpy 2.5 on."""
    of = TypeVar("of", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[of]], type_params=(of,))
    fields = Fields({"x": [1, 2]}, "a.json")
    assert fields.read("x", alias[np.float64]).dtype == np.float64
    assert fields.read("x", alias[np.int64] | None).dtype == np.int64
