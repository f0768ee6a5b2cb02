"""Tables as they are: the same columns in any library and any file give the same bits as NumPy."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attemper import InputError, InputTypeError, Scores, TemperatureScaling, load
from attemper.data.columns import ColumnQuery, RowNumbers, choose_columns, header_classes
from attemper.fitting import fit_source
from attemper.io import InputSpec, open_scores, reading

from data import cases

NAMES = ["cat", "dog", "eel"]


class Dataset:
    """What a dataset of Hugging Face can do, and no more; ``order`` is what select or shuffle made."""

    def __init__(self, columns, order=None, names=None):
        self.table, self.names = pa.table(columns), names or {}
        self.order = range(len(self.table)) if order is None else order
        self.column_names = self.table.column_names
        self.features = {name: Feature(self.names.get(name)) for name in self.column_names}

    def __len__(self):
        return len(self.order)

    def select_columns(self, names):
        return Dataset(self.table.select(names), self.order)

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def __getitem__(self, part):
        return self.table.take(list(self.order))[part]


class Feature:
    def __init__(self, names):
        if names is not None:
            self.names, self.int2str = names, names.__getitem__


class Stream:
    """Anything that exports an Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def structured(columns):
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    kinds = [(name, "O" if a.dtype.kind == "U" else a.dtype) for name, a in arrays.items()]
    made = np.empty(len(next(iter(arrays.values()))), dtype=kinds)
    for name, array in arrays.items():
        made[name] = array
    return made


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
    "structured": structured,
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
    columns = dict(zip(NAMES, h.T.copy()))
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


def test_a_dataset_that_was_shuffled_and_has_class_names(data):
    h, y = data
    order = np.random.default_rng(0).permutation(len(h))
    columns = dict(zip(NAMES, h.T.copy()))
    shuffled = Dataset(columns | {"label": y}, order, {"label": NAMES})
    same(Scores.from_table(shuffled, "label"), h[order], y[order])
    # Names win over position: label 0 is the first name, wherever its column stands.
    other = Dataset({name: columns[name] for name in ("eel", "cat", "dog")} | {"label": y}, None, {"label": NAMES})
    scores = Scores.from_table(other, "label")
    same(scores, h[:, [2, 0, 1]], np.array([1, 2, 0])[y])
    assert scores.classes == ("eel", "cat", "dog")
    same(Scores.from_table(other, "label", classes=NAMES), h, y)


def test_headers_that_are_numbers_are_names(library, data):
    h, y = data
    frame = library(dict(zip(["1", "2", "3"], h.T.copy())) | {"answer": y + 1})
    scores = Scores.from_table(frame, "answer")
    same(scores, h, y)
    assert scores.classes == ("1", "2", "3")
    same(Scores.from_table(frame, "answer", columns=[1, 2, 3]), h, y)
    same(Scores.from_table(frame, "answer", columns=["3", "1", "2"]), h[:, [2, 0, 1]], np.array([1, 2, 0])[y])
    numbers = library(dict(zip(["1", "2", "3"], h.T.copy())) | {"answer": y})
    with pytest.raises(InputError):
        Scores.from_table(numbers, "answer")
    same(Scores.from_table(numbers, "answer", labels_are="numbers"), h, y)
    plain = pd.DataFrame(h)  # columns 0, 1, 2
    same(Scores.from_table(plain.assign(answer=y), "answer"), h, y)


@given(cases(max_classes=5), st.permutations(range(5)), st.sampled_from(["pandas", "polars", "arrow", "dict"]))
@settings(max_examples=40, deadline=None)
def test_names_win_over_position(case, order, kind):
    h, y = case[:2]
    k = h.shape[1]
    names = list("abcde"[:k])
    order = [i for i in order if i < k]
    frame = LIBRARIES[kind]({names[i]: h[:, i].copy() for i in order} | {"y": [names[i] for i in y]})
    same(Scores.from_table(frame, "y", columns=names), h, y)
    found = Scores.from_table(frame, "y")
    np.testing.assert_array_equal(found.values, h[:, order])
    assert [found.columns[i] for i in found.labels] == [names[i] for i in y]


def test_scikit_learn_style(data):
    h, y = data
    columns = table_of(h, y)
    expected = TemperatureScaling(classes=NAMES).fit(h, columns["answer"])
    for kind in ("pandas", "polars", "arrow"):
        frame = LIBRARIES[kind](columns)
        X = frame.select(NAMES) if kind == "arrow" else frame[NAMES]
        found = TemperatureScaling(classes=NAMES).fit(X, frame["answer"])
        assert found.temperature_ == expected.temperature_
        np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(h))


# What is refused


def refused(match, frame, labels="answer", **told):
    with pytest.raises(InputError):
        Scores.from_table(frame, labels, **told)


def test_an_id_is_never_a_class(library, data):
    h, y = data
    columns = table_of(h, y)
    del columns["text"]
    refused(r"column 'id' holds whole numbers that only ascend.*columns=\['cat', 'dog', 'eel'\]", library(columns))
    prefixed = table_of(h, y, prefix="z_")
    del prefixed["text"]
    refused(r"column 'id' .*columns='z_'", library(prefixed))
    for name in ("index", "Unnamed: 0", "row_id"):
        beside = {name: np.arange(len(h)) % 7, **columns}
        del beside["id"]
        refused(rf"column {name!r} holds whole numbers alone", library(beside))


def test_text_is_never_a_class(library, data):
    h, y = data
    columns = table_of(h, y)
    del columns["id"]
    refused(r"column 'text' holds text, not numbers.*columns=\['cat', 'dog', 'eel'\]", library(columns))


def test_errors_name_the_column_that_was_meant(library, data):
    frame = library(table_of(*data))
    refused(r"no column 'anwser'; there are 'id'.* Did you mean 'answer'\? Use labels", frame, "anwser")
    refused(r"table: columns: there is no column 'dogs'.*Did you mean 'dog'\?", frame, columns=["cat", "dogs"])
    refused(r"no column 'w'; .*sample_weight", frame, columns=NAMES, sample_weight="w")
    refused(r"no column that begins with 'p_'", frame, columns="p_")
    refused(r"'answer' holds the labels", frame, columns=["cat", "answer"])
    refused(r"no column 7: the columns of logits are", frame, columns=[0, 7])
    refused(r"labels: row 0 is .*not among", frame, "text", columns=NAMES, classes=["a", "b", "c"])
    refused(r"'sample 0', not a column number nor the name of one of the columns 'cat'", frame, "text", columns=NAMES)


def test_missing_entries(data):
    h, y = data
    holes = [None if i == 4 else float(v) for i, v in enumerate(h[:, 0])]
    columns = {"cat": holes, "dog": h[:, 1], "answer": y % 2}
    for kind in ("dict", "pandas", "polars", "arrow", "dataset"):
        refused("row 4, column 0 is NaN", LIBRARIES[kind](columns))
    labels = [None if i == 2 else NAMES[k] for i, k in enumerate(y)]
    for kind in ("dict", "polars", "arrow", "dataset"):
        refused(
            "'answer': row 2 is null|row 2 is 'nan'|row 2 is nan",
            LIBRARIES[kind](dict(zip(NAMES, h.T.copy())) | {"answer": labels}),
        )


def test_what_is_no_table(data):
    h = data[0]
    for frame, _match in [
        (h, "from_logits"),
        ("val.csv", "open_scores"),
        (pl.LazyFrame({"a": [1.0]}), "collect"),
        ({"train": pa.table({"a": [1.0]})}, r"such as \['train'\]"),
        (3, "expected a DataFrame"),
    ]:
        with pytest.raises(InputTypeError):
            Scores.from_table(frame, "answer")
    refused("two columns are named 'a'", pd.DataFrame(h[:, :2], columns=["a", "a"]), None)
    refused("column 'b' has 2 rows", {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}, None)
    refused("row 1 holds 1 numbers, but row 0 holds 2", {"logits": [[1.0, 2.0], [1.0]]}, None)
    refused("row 1 is null", {"logits": [[1.0, 2.0], None]}, None)


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


# Files


def write(path, columns):
    if path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            writer.writerows(zip(*(np.asarray(c).tolist() for c in columns.values())))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()))
        path.write_text("".join(json.dumps(dict(zip(columns, row))) + "\n" for row in rows))
    return path


@pytest.fixture(params=["csv", "parquet", "jsonl"])
def form(request):
    return request.param


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_columns_by_name_in_files(tmp_path, data, form, order):
    h, y = data
    path = write(tmp_path / f"a.{form}", table_of(h, y, order))
    for told in ({"columns": NAMES}, {"classes": NAMES}, {"columns": tuple(NAMES), "classes": NAMES}):
        files = open_scores(path, labels_column="answer", **told)
        assert files.columns == tuple(NAMES)
        scores = files.load()
        same(scores, h, y)
        assert scores.columns == tuple(NAMES)
        assert scores.classes == tuple(NAMES)
    two = open_scores(path, need_labels=False, columns=["eel", "cat"]).load()
    np.testing.assert_array_equal(two.values, h[:, [2, 0]])


def test_headers_are_classes_in_files(tmp_path, data, form):
    h, y = data
    columns = table_of(h, y, prefix="logit_")
    del columns["id"], columns["text"]
    path = write(tmp_path / f"a.{form}", columns)
    files = open_scores(path, labels_key="answer")
    assert files.spec.classes == tuple(NAMES)
    same(files.load(), h, y)
    ts = fit_source(TemperatureScaling(), path, labels_key="answer")
    assert list(ts.classes_) == NAMES
    ts.save(tmp_path / "m.json")
    assert load(tmp_path / "m.json").classes == NAMES
    both = fit_source(TemperatureScaling(), [path, write(tmp_path / f"b.{form}", columns)], labels_key="answer")
    assert list(both.classes_) == NAMES
    assert both.temperature_ == pytest.approx(ts.temperature_)


def test_headers_that_are_numbers_in_files(tmp_path, data, form):
    h, y = data
    columns = dict(zip(["10", "20", "30"], h.T.copy())) | {"answer": 10 * (y + 1)}
    path = write(tmp_path / f"a.{form}", columns)
    same(open_scores(path, labels_column="answer").load(), h, y)
    same(
        open_scores(path, labels_column="answer", columns=[30, 10, 20]).load(), h[:, [2, 0, 1]], np.array([1, 2, 0])[y]
    )
    with pytest.raises(InputError):
        open_scores(path, labels_column="answer", columns=[10, 2])
    path = write(tmp_path / f"b.{form}", columns | {"answer": y})
    with pytest.raises(InputError):
        open_scores(path, labels_column="answer").load()
    same(open_scores(path, labels_column="answer", labels_are="numbers").load(), h, y)


def test_errors_in_files(tmp_path, data, form):
    path = write(tmp_path / f"a.{form}", table_of(*data))

    def fails(match, **told):
        with pytest.raises(InputError):
            open_scores(path, **told).load()

    fails(rf"a\.{form}: there is no column 'anwser'.*Did you mean 'answer'\? Use labels_key", labels_key="anwser")
    fails(r"no column 'dogs'.*Did you mean 'dog'\?", labels_key="answer", columns=["cat", "dogs"])
    fails("column 'text'", labels_key="answer")
    fails("holds the labels", labels_key="answer", columns=["cat", "answer"])
    fails("got 'cat' twice", labels_key="answer", columns=["cat", "cat"])
    fails("needs token ids", labels_key="answer", columns=["cat", "dog"], labels_are="tokens")
    fails("got labels_key='a' and labels_column='b'", labels_key="a", labels_column="b")
    fails("not among the 2 classes", labels_key="answer", columns=["cat", "dog"])


def test_names_are_for_tables(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(3), labels=[0, 1, 2])
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.npz", columns=["A", "B"])


def test_a_table_and_an_array_are_one_data_set(tmp_path, data):
    h, y = data
    write(tmp_path / "a.csv", {"label": y % 2} | {f"z{k}": h[:, k] for k in range(3)})
    np.savez(tmp_path / "b.npz", logits=h, labels=y % 2)
    scores = open_scores([tmp_path / "a.csv", tmp_path / "b.npz"], columns=[2, 0]).load()
    np.testing.assert_array_equal(scores.values, np.concatenate([h, h])[:, [2, 0]])


def test_row_numbers_are_recognised_in_any_block(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    wide = {f"c{k}x": rng.integers(-9, 9, 40) for k in range(30)}
    path = write(tmp_path / "a.csv", {"label": np.zeros(40, int), "nr": np.arange(40), **wide})
    monkeypatch.setattr(reading, "BLOCK_BYTES", 8 * 31 * 4)  # four rows
    with pytest.raises(InputError):
        open_scores(path).load()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_blocks_find_row_numbers_where_the_whole_does(sizes, seed):
    """Columns that only ascend are found whatever the blocks; others, of fractions, never are."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    ascending = np.cumsum(rng.integers(0, 2, n)).astype(float)
    values = np.column_stack([rng.normal(size=n), ascending])
    expected = (np.diff(ascending) > 0).sum() + 1 >= 10
    watch, found = RowNumbers("a", ["x", "y"], ColumnQuery()), False
    try:
        for part in np.split(values, np.cumsum(sizes)[:-1]):
            watch.check(part)
    except InputError as error:
        found = "'y'" in str(error)
    # All different whole numbers are another reason, which one block must show.
    assert found or not expected


def test_spec_has_another_name_for_the_labels():
    spec = InputSpec(labels_column="answer")
    assert spec == InputSpec(labels_key="answer")
    assert InputSpec.from_dict(spec.to_dict()) == spec
    assert spec.updated(columns=["A", "B"]).labels_key == "answer"
    assert spec.updated(labels_column="y").labels_key == "y"
    assert InputSpec.from_dict(InputSpec(columns=["A", 3]).to_dict()).columns == ("A", 3)


def test_choosing():
    names = ["id", "prob_cat", "cat", "prob_dog", "label"]
    query = ColumnQuery("label", classes=("cat", "dog"))
    assert choose_columns("a", names, query).logits == ("prob_cat", "prob_dog")
    assert choose_columns("a", [*names, "dog"], query).logits == ("cat", "dog")
    assert header_classes(["0", "1"], 1) is None
    assert header_classes(["cat", "dog"], "fox") is None
    assert header_classes(["a1", "a2"], "2") is None


@pytest.mark.parametrize("name", ["weight", "sample_weight", "Weights"])
def test_weights_are_no_class_though_they_have_decimals(data, name, tmp_path):
    h, y = data
    table = {NAMES[k]: h[:, k] for k in range(3)} | {name: np.linspace(0.5, 1.5, 60), "answer": [NAMES[k] for k in y]}
    with pytest.raises(InputError):
        Scores.from_table(table, labels="answer")
    found = Scores.from_table(table, labels="answer", sample_weight=name)
    assert found.columns == tuple(NAMES)
    pd.DataFrame(table).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError):
        open_scores(tmp_path / "a.csv", labels_key="answer").load()
    named = open_scores(tmp_path / "a.csv", labels_key="answer", classes=[*NAMES, name])  # all are classes
    assert named.load().n_classes == 4
