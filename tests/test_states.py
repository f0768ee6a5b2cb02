"""Every document that we save comes back as it was; a damaged one is one FileError.

A new kind of document is a line of DOCUMENTS: how to make one, and how to read it.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import attemper
from attemper import _json
from attemper.calibrators.base import METHODS
from attemper.data.reading import ReadOptions
from attemper.errors import FileError
from attemper.monitoring import MonitorReport
from attemper.sketches import Sketch

RNG = np.random.default_rng(0)
N, K = 240, 3
H = 3 * RNG.normal(size=(N, K))
Y = (H / 2 + RNG.gumbel(size=H.shape)).argmax(axis=1)
SITE = np.where(np.arange(N) % 3, "north", "south")
VAL = {**{f"logit_{name}": H[:, k] for k, name in enumerate("abc")}, "label": np.array(list("abc"))[Y]}


def calibrator(method):
    return lambda: attemper.fit(H, Y, method=method)


def monitor(folder):
    path = folder / "state.json"
    attemper.monitor(attemper.fit(H, Y), (H, Y), state=path, reference=(H, Y))
    return MonitorReport.load(path)


BUILT_IN = [name for name, cls in METHODS.items() if cls.__module__.startswith("attemper.")]
DOCUMENTS = {
    **{name: (lambda _, name=name: attemper.fit(H, Y, method=name), attemper.load) for name in BUILT_IN},
    "frame": (lambda _: attemper.fit(VAL), attemper.load),
    "grouped": (lambda _: attemper.fit(H, Y, groups=SITE), attemper.load),
    "multilabel": (lambda _: attemper.fit(H, np.eye(K)[Y], multi_label=True), attemper.load),
    "priors": (lambda _: attemper.fit(H, Y).with_priors([0.2, 0.3, 0.5]), attemper.load),
    "rule": (lambda _: attemper.decide((H, Y), max_miss=0.3).calibrator, attemper.load),
    "sets": (lambda _: attemper.decide((H, Y), coverage=0.8).calibrator, attemper.load),
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
        groups = {"groups": SITE} if name == "grouped" else {}
        np.testing.assert_array_equal(again.predict_proba(H, **groups), document.predict_proba(H, **groups))
        assert type(again) is type(document)
        np.testing.assert_array_equal(again.classes_, document.classes_)


def damages(text):
    """Yield what may become of a file: cut, emptied, of another kind or version, fields lost or of another type."""
    document = json.loads(text)
    yield from ("", "{", text[: len(text) // 2], "[]", "null", '"text"', "\ufeff" + text[:-5])
    for change in ({"attemper": "else"}, {"attemper": None}, {"attemper": [1]}, {"version": 99}, {"version": "1"}):
        yield json.dumps(document | change)
    for field, value in document.items():
        if value is not None:  # fields that may be left out may be None
            yield json.dumps(document | {field: ["wrong"] if isinstance(value, dict | str) else {"wrong": "type"}})
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield json.dumps(document | {field: "many"})


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
        labels=None, columns=("logit_a", "logit_b", "logit_c"), input="logits", classes=("a", "b", "c")
    )
