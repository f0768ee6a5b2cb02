"""Tables as they are: the same columns in any library and any file give the same bits as NumPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import InputError, InputTypeError, Scores, TemperatureScaling, load

from data import cases

NAMES = ["cat", "dog", "eel"]


class Dataset:
    """What a dataset of Hugging Face can do, and no more; ``order`` is what select or shuffle made."""

    def __init__(self, columns, order=None):
        self.table = pa.table(columns)
        self.order = range(len(self.table)) if order is None else order
        self.column_names = self.table.column_names

    def __len__(self):
        return len(self.order)

    def select_columns(self, names):
        return Dataset(self.table.select(names), self.order)

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def __getitem__(self, part):
        return self.table.take(list(self.order))[part]


class Stream:
    """Anything that exports an Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


LIBRARIES = {
    "dict": dict,
    "pandas": pd.DataFrame,
    "pandas-arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "batch": lambda columns: pa.table(columns).combine_chunks().to_batches()[0],
    "chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 3), pa.table(columns).slice(3)]),
    "stream": lambda columns: Stream(pa.table(columns)),
    "dataset": Dataset,
}


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    h, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    h[np.arange(60), y] += 1
    return h, y


def table_of(h, y, order=(0, 1, 2), prefix=""):
    """One column per class in some order, with text and an id before them."""
    return {
        "id": np.arange(100, 100 + len(h)),
        "text": [f"sample {i}" for i in range(len(h))],
        **{prefix + NAMES[k]: np.ascontiguousarray(h[:, k]) for k in order},
        "answer": [NAMES[k] for k in y],
    }


def same(scores, h, y, weights=None):
    np.testing.assert_array_equal(scores.values, h)
    assert scores.values.dtype == h.dtype
    np.testing.assert_array_equal(scores.labels, y)
    np.testing.assert_array_equal(scores.weights, weights)


# In memory


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_every_library_gives_the_bits_of_numpy(library, data, dtype, order):
    h, y = data[0].astype(dtype), data[1]
    frame = library(table_of(h, y, order))
    for told in ({"columns": NAMES}, {"classes": NAMES}, {"columns": NAMES, "classes": NAMES}):
        scores = Scores.from_table(frame, "answer", **told)
        same(scores, h, y)
        assert scores.columns == tuple(NAMES)
        assert scores.classes == tuple(NAMES)
    expected = TemperatureScaling().fit(h, y)
    found = TemperatureScaling().fit(scores)
    assert found.temperature_ == expected.temperature_
    np.testing.assert_array_equal(found.predict_proba(scores), expected.predict_proba(h))


def test_every_way_to_pick_columns(library, data):
    h, y = data
    weights = np.linspace(0.5, 2, len(h))
    frame = library(table_of(h, y, (1, 0, 2), prefix="z_") | {"w": weights})
    turned = Scores.from_table(frame, "answer", columns="z_", sample_weight="w")
    same(turned, h[:, [1, 0, 2]], np.array([1, 0, 2])[y], weights)
    same(Scores.from_table(frame, "answer", classes=NAMES, sample_weight="w"), h, y, weights)
    same(Scores.from_table(frame, "answer", columns=["z_cat", "z_dog", "z_eel"], sample_weight="w"), h, y, weights)
    without = Scores.from_table(frame, columns=["z_dog", "z_cat"])
    assert not hasattr(without, "y")
    np.testing.assert_array_equal(without.values, h[:, [1, 0]])


def test_labels_may_be_column_numbers_or_an_array(library, data):
    h, y = data
    columns = {f"logit_{name}": column for name, column in zip(NAMES, h.T.copy())}
    same(Scores.from_table(library(columns | {"label": y}), "label"), h, y)
    assert Scores.from_table(library(columns | {"label": y}), "label").classes is None
    same(Scores.from_table(library(columns), y), h, y)
    same(Scores.from_table(library(columns | {"label": y}), "label", classes=NAMES), h, y)
    same(Scores.from_table(library(columns | {"label": y.astype(float)}), "label"), h, y)


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "arrow", "batch", "dataset", "stream"])
def test_a_column_of_lists(kind, data):
    h, y = data
    frame = LIBRARIES[kind]({"question": ["?"] * len(h), "logits": h.tolist(), "label": y})
    scores = Scores.from_table(frame, "label")
    same(scores, h, y)
    assert scores.columns is None
    same(Scores.from_table(frame, "label", columns="logits"), h, y)
    probs = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    frame = LIBRARIES[kind]({"p": list(probs), "label": y})
    same(Scores.from_table(frame, "label", columns="p", input="probs"), probs, y)


def test_fixed_size_lists(data):
    h, y = data[0].astype(np.float32), data[1]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(h.reshape(-1)), 3)
    same(Scores.from_table(pa.table({"logits": lists, "label": y}), "label"), h, y)
    frame = pl.DataFrame({"logits": pl.Series(h, dtype=pl.Array(pl.Float32, 3)), "label": y})
    same(Scores.from_table(frame, "label"), h, y)


@given(cases(max_classes=5), st.permutations(range(5)), st.sampled_from(["pandas", "polars", "arrow", "dict"]))
@settings(max_examples=40, deadline=None)
def test_names_win_over_position(case, order, kind):
    h, y = case[:2]
    k = h.shape[1]
    names = list("abcde"[:k])
    order = [i for i in order if i < k]
    frame = LIBRARIES[kind]({f"logit_{names[i]}": h[:, i].copy() for i in order} | {"y": [names[i] for i in y]})
    same(Scores.from_table(frame, "y", classes=names), h, y)
    found = Scores.from_table(frame, "y")
    np.testing.assert_array_equal(found.values, h[:, order])
    assert [found.classes[i] for i in found.labels] == [names[i] for i in y]


# What is refused


def refused(frame, labels="answer", **told):
    with pytest.raises(InputError):
        Scores.from_table(frame, labels, **told)


def test_columns_are_not_guessed(library, data):
    frame = library(table_of(*data))
    refused(frame)
    refused(frame, "anwser", columns=NAMES)
    refused(frame, columns=["cat", "dogs"])
    refused(frame, columns=["cat", "text"])
    refused(frame, columns=["cat", "answer"])
    refused(frame, columns=NAMES, sample_weight="w")
    refused(frame, columns="p_")
    refused(frame, classes=["a", "b", "c"])
    refused(frame, "text", columns=NAMES)


def test_missing_entries(data):
    h, y = data
    holes = [None if i == 4 else float(v) for i, v in enumerate(h[:, 0])]
    labels = [None if i == 2 else NAMES[k] for i, k in enumerate(y)]
    for kind in ("dict", "pandas", "polars", "arrow", "dataset"):
        refused(LIBRARIES[kind]({"cat": holes, "dog": h[:, 1], "answer": y % 2}), columns=["cat", "dog"])
        if kind != "pandas":
            refused(LIBRARIES[kind](dict(zip(NAMES, h.T.copy())) | {"answer": labels}), columns=NAMES)


def test_what_is_no_table(data):
    h = data[0]
    for frame in (h, "val.csv", pl.LazyFrame({"a": [1.0]}), {"train": pa.table({"a": [1.0]})}, 3):
        with pytest.raises(InputTypeError):
            Scores.from_table(frame, "answer")
    refused(pd.DataFrame(h[:, :2], columns=["a", "a"]), None, columns=["a", "a"])
    refused({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}, None, columns=["a", "b"])
    refused({"logits": [[1.0, 2.0], [1.0]]}, None)
    refused({"logits": [[1.0, 2.0], None]}, None)


def test_a_fit_knows_the_columns(tmp_path, data):
    h, y = data
    scores = Scores.from_table(table_of(h, y), "answer", columns=NAMES)
    fitted = TemperatureScaling().fit(scores)
    assert list(fitted.feature_names_in_) == NAMES
    assert list(fitted.classes_) == NAMES
    assert fitted.predict(scores)[0] in NAMES
    fitted.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json").classes == NAMES
    turned = Scores.from_table(table_of(h, y), "answer", columns=NAMES[::-1])
    with pytest.raises(InputError):
        fitted.predict_proba(turned)
