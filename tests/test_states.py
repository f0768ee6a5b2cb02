"""Every document that we save comes back as it was; a damaged one is one FileError.

A new kind of document is a line of DOCUMENTS: how to make one, and how to read it.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import attemper
from attemper import _json
from attemper.calibrators.base import METHODS
from attemper.data.reading import ReadOptions
from attemper.decisions import PredictionSets, Promise, Referral
from attemper.errors import FileError
from attemper.monitoring import MonitorReport
from attemper.sketches import Sketch
from conftest import draw

N, K = 240, 3
DATA = draw(N, K)
H, Y = DATA.h, DATA.y
SITE = np.where(np.arange(N) % 3, "north", "south")
BY_CLASS = Promise("miss", (0.1, 1.0, 0.2), 0.95, "class", "patient")
BY_GROUP = Promise("coverage", (0.9,), None, "group")
CONFUSED = draw(2000, 6)
MOVED = (CONFUSED.y == 0) & (np.arange(2000) % 2 == 0)
VAL = {**{f"logit_{name}": H[:, k] for k, name in enumerate("abc")}, "label": np.array(list("abc"))[Y]}


def ruled(rule):
    cal = attemper.TemperatureScaling().fit(*draw(60, rule.n_classes))
    cal.rule_ = rule
    return cal


def monitor(folder):
    path = folder / "state.json"
    attemper.monitor(attemper.fit(H, Y), tuple(draw(N, K, seed=1)), state=path, reference=(H, Y))
    return MonitorReport.load(path)


BUILT_IN = [name for name, cls in METHODS.items() if cls.__module__.startswith("attemper.")]
DOCUMENTS = {
    **{name: (lambda _, name=name: attemper.fit(H, Y, method=name), attemper.load) for name in BUILT_IN},
    "two classes": (lambda _: attemper.fit(*draw(2000, 2, bias=0.5), method="structured"), attemper.load),
    "unknown noise": (lambda _: attemper.fit(*draw(N, K, noise=0.2), noise="unknown"), attemper.load),
    "confusions": (
        lambda _: attemper.fit(2 * CONFUSED.h, np.where(MOVED, 1, CONFUSED.y), noise="unknown"),
        attemper.load,
    ),
    "frame": (lambda _: attemper.fit(VAL), attemper.load),
    "probabilities": (lambda _: attemper.fit(DATA.p.round(3), Y, input="probs"), attemper.load),
    "images": (lambda _: attemper.fit(H.reshape(2, 10, 12, K), Y.reshape(2, 10, 12), axis=-1), attemper.load),
    "grouped": (lambda _: attemper.fit(H, Y, groups=SITE), attemper.load),
    "grouped priors": (lambda _: attemper.fit(H, Y, groups=SITE).with_priors([0.2, 0.3, 0.5]), attemper.load),
    "multilabel": (lambda _: attemper.fit(H, np.eye(K)[Y], multi_label=True), attemper.load),
    "priors": (lambda _: attemper.fit(H, Y).with_priors([0.2, 0.3, 0.5]), attemper.load),
    "rule": (lambda _: attemper.decide((H, Y), max_miss=0.3).calibrator, attemper.load),
    "rule by class": (lambda _: ruled(Referral(3, 0.75, promise=BY_CLASS, n_cases=(30, 40))), attemper.load),
    "rule of costs": (lambda _: ruled(Referral(2, None, 1.0, (5.0, 50.0))), attemper.load),
    "sets": (lambda _: attemper.decide((H, Y), coverage=0.8).calibrator, attemper.load),
    "sets by group": (
        lambda _: ruled(PredictionSets(3, "aps", (0.5, np.inf), BY_GROUP, (9, 2), ("a", "b"))),
        attemper.load,
    ),
    "sketch": (lambda _: attemper.sketch(H, Y), Sketch.load),
    "monitor": (monitor, MonitorReport.load),
}


def content(value):
    return _json.plain(value) if is_dataclass(value) else value.to_dict()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Make every document once."""
    made = {}

    def path_of(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            document = DOCUMENTS[name][0](folder)
            document.save(folder / "document.json")
            made[name] = folder / "document.json", document
        return made[name]

    return path_of


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
def test_round_trip(name, saved, tmp_path):
    path, document = saved(name)
    again = DOCUMENTS[name][1](path)
    assert json.dumps(content(again)) == json.dumps(content(document))
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    if hasattr(document, "predict_proba"):
        groups = {"groups": SITE} if name.startswith("grouped") else {}
        x = draw(N, document.n_features_in_)
        x = x.h if document.map_.input == "logits" else x.p
        np.testing.assert_array_equal(again.predict_proba(x, **groups), document.predict_proba(x, **groups))
        assert (type(again), str(again)) == (type(document), str(document))
        np.testing.assert_array_equal(again.classes_, document.classes_)
        assert getattr(again, "rule_", None) == getattr(document, "rule_", None)
        assert getattr(again, "read_", None) == getattr(document, "read_", ReadOptions())


def damages(text):
    """Yield what may become of a file: cut, emptied, of another kind or version, fields lost or of another type."""
    document = json.loads(text)
    yield from ("", "{", text[: len(text) // 2], "[]", "null", '"text"', "\ufeff" + text[:-5])
    for change in ({"attemper": "else"}, {"attemper": None}, {"attemper": [1]}, {"version": 99}, {"version": "1"}):
        yield json.dumps(document | change)
    for place, value in places(document):
        for wrong in ["many", {"wrong": "type"}] if isinstance(value, int | float | list) else [["wrong"]]:
            damaged = json.loads(text)
            holder = damaged
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = wrong
            yield json.dumps(damaged)


def places(value, place=()):
    """Yield where a document has what: its fields, and those of its map, rule and whatever has a type."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if inner is None or isinstance(inner, bool):  # fields that may be left out may be None
            continue
        yield (*place, key), inner
        if key in ("map", "stages", "rule", "promise", "groups", "report") or (place and place[-1] == "stages"):
            yield from places(inner, (*place, key))


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
def test_a_damaged_document_is_one_error(name, saved, tmp_path):
    text = saved(name)[0].read_text()
    for damaged in damages(text):
        (tmp_path / "damaged.json").write_text(damaged)
        with pytest.raises(FileError):
            DOCUMENTS[name][1](tmp_path / "damaged.json")
    for field in json.loads(text):  # one that is lost has its default, or is missed
        less = {key: value for key, value in json.loads(text).items() if key != field}
        (tmp_path / "damaged.json").write_text(json.dumps(less))
        with suppress(FileError):
            DOCUMENTS[name][1](tmp_path / "damaged.json")


@dataclass(frozen=True)
class Example:
    numbers: NDArray[np.float64]
    labels: NDArray[np.int64]
    value: float
    pair: tuple[float, float | None] = (0.0, None)
    named: dict[str, float] | None = None


def test_infinity_and_nan_are_kept(tmp_path):
    example = Example(
        np.array([[1.0, np.inf], [-np.inf, np.nan]]), np.array([3, -1]), np.inf, (np.nan, None), {"a": 1e-300}
    )
    _json.save(tmp_path / "a.json", "example", example)
    again = _json.load(tmp_path / "a.json", {"example": Example})
    for field in fields(Example):
        np.testing.assert_equal(getattr(again, field.name), getattr(example, field.name))
    assert again.labels.dtype == np.int64
    assert b"NaN" not in (tmp_path / "a.json").read_bytes()  # JSON has no such number


def test_a_wrong_number_names_its_place():
    for bad in (
        {"numbers": [["x"]]},
        {"numbers": [[1], [1, 2]]},
        {"labels": [0.5, "a"]},
        {"pair": [1.0]},
        {"value": None},
    ):
        whole = {"numbers": [1.0], "labels": [1], "value": 1.0} | bad
        with pytest.raises(FileError) as error:
            _json.typed(whole, Example, "here.json")
        assert "here.json" in str(error.value)
        assert f"$.{next(iter(bad))}" in str(error.value)


def test_writing_is_all_or_nothing(tmp_path):
    _json.save(tmp_path / "a.json", "example", {"x": 1})
    before = (tmp_path / "a.json").read_bytes()
    with pytest.raises(RuntimeError), _json.atomic(tmp_path / "a.json") as stream:
        stream.write(b"half")
        raise RuntimeError
    with pytest.raises(TypeError):
        _json.save(tmp_path / "a.json", "example", {"x": object()})
    assert (tmp_path / "a.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_reading_options_travel_in_the_calibrators_file(tmp_path):
    attemper.fit(VAL, method="ts").save(tmp_path / "net.json")
    assert attemper.load(tmp_path / "net.json").read_ == ReadOptions(
        labels=None, columns=None, input="logits", classes=("a", "b", "c")
    )


def test_files_have_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        _json.save(tmp_path / "a.json", "example", {"x": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640


def test_infinity_in_the_values_of_a_method_is_kept(tmp_path):
    data = draw(300, 3)
    cal = attemper.TemperatureScaling().fit(data.h, data.y)
    cal.limits_ = (1.0, float("inf"))
    cal.save(tmp_path / "a.json")
    np.testing.assert_array_equal(2 * attemper.load(tmp_path / "a.json").limits_, [2.0, float("inf")])
