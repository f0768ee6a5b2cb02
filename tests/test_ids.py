"""Ids of groups and clusters: what they may be, and that they stay with their rows."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import Scores
from attemper.data.ids import as_ids, join_ids
from attemper.errors import AttemperError, InputError
from attemper.io import open_scores
from attemper.metrics.predictions import Predictions

N = 7
LOGITS = np.random.default_rng(0).normal(size=(N, 3))
LABELS = np.arange(N) % 3
SITES = ["b", "a", "b", "c", "a", "a", "b"]
PATIENTS = [3, 1, 3, 10, 2, 1, 3]


@pytest.mark.parametrize("make", [Scores.from_logits, Scores.from_probs])
def test_ids_stay_with_their_rows(make):
    values = LOGITS if make is Scores.from_logits else np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    scores = make(values, LABELS, groups=SITES, clusters=PATIENTS)
    assert scores.groups.tolist() == SITES
    assert scores.clusters.tolist() == PATIENTS
    some = scores._some(slice(2, 5))
    assert some.groups.tolist() == SITES[2:5]
    assert some.clusters.tolist() == PATIENTS[2:5]
    sampled = scores.sample(4)
    assert sampled.groups.tolist() == SITES[::2]
    assert sampled.clusters.tolist() == PATIENTS[::2]
    assert scores.weighted(np.ones(N)).groups.tolist() == SITES
    assert make(values, groups=SITES).groups.tolist() == SITES


def test_rows_to_ignore_take_their_ids_along():
    labels = LABELS.copy()
    labels[[1, 4]] = -1
    scores = Scores.from_logits(LOGITS, labels, groups=SITES, clusters=PATIENTS, ignore_index=-1)
    keep = [0, 2, 3, 5, 6]
    assert scores.groups.tolist() == [SITES[i] for i in keep]
    assert scores.clusters.tolist() == [PATIENTS[i] for i in keep]


def test_soft_labels_repeat_ids():
    soft = np.eye(3)[LABELS]
    soft[0] = [0.5, 0.5, 0]
    soft[3] = [0.2, 0.3, 0.5]
    scores = Scores.from_logits(LOGITS, soft, groups=SITES, clusters=PATIENTS)
    of = [0, 0, 1, 2, 3, 3, 3, 4, 5, 6]
    assert scores.groups.tolist() == [SITES[i] for i in of]
    assert scores.clusters.tolist() == [PATIENTS[i] for i in of]
    p = Predictions.of(scores)
    assert p.groups.tolist() == [SITES[i] for i in of]
    assert len(set(p.clusters)) == len(set(PATIENTS))
    assert Scores.from_logits(LOGITS, soft).clusters.tolist() == of


def test_images_have_one_id_each_or_one_for_each_pixel():
    images = np.random.default_rng(1).normal(size=(3, 2, 2, 2))
    labels = np.array([[[0, 1], [1, 0]], [[0, 255], [1, 1]], [[1, 1], [0, 0]]])
    settings = {"axis": 1, "ignore_index": 255}
    scores = Scores.from_logits(images, labels, clusters=["x", "y", "x"], groups=labels % 2, **settings)
    assert scores.clusters.tolist() == ["x"] * 4 + ["y"] * 3 + ["x"] * 4
    assert scores.groups.tolist() == labels[labels != 255].tolist()
    assert scores.images.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    with pytest.raises(InputError):
        Scores.from_logits(images, labels, clusters=["x", "y"], **settings)


def test_predictions_take_ids_of_scores():
    scores = Scores.from_logits(LOGITS, LABELS, groups=SITES, clusters=PATIENTS)
    p = Predictions.of(scores)
    assert p.groups.tolist() == SITES
    assert p.clusters.tolist() == np.unique(PATIENTS, return_inverse=True)[1].tolist()
    assert Predictions.of(scores, clusters=SITES).clusters.tolist() == np.unique(SITES, return_inverse=True)[1].tolist()
    kept = p.rows(np.array(SITES) == "a")
    assert kept.groups.tolist() == ["a"] * 3


ids = st.one_of(
    st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=9),
    st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=9),
)


@given(ids)
def test_ids_are_as_given(given_ids):
    found = as_ids(given_ids, len(given_ids))
    assert found.dtype.kind in "iU"
    # NumPy's text drops trailing NULs, as everywhere.
    assert list(map(str, found.tolist())) == [str(i).rstrip("\0") for i in given_ids]


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=2),
    st.complex_numbers(),     st.lists(st.integers(), max_size=2), st.dates(), st.just(np.datetime64("NaT")),
)  # fmt: skip


@given(st.lists(junk, min_size=1, max_size=4))
def test_odd_ids_are_an_error_that_names_the_row(entries):
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    try:
        found = as_ids(array, len(entries), "groups")
    except InputError as error:
        assert "row" in str(error)
        assert "groups" in str(error)
    else:
        assert found.dtype.kind in "iU"
        assert len(found) == len(entries)


@pytest.mark.parametrize(
    "bad, words",
    [
        ([1.0, float("nan")] + [1.0] * 5, "row 1 is NaN"),
        (["a", None] + ["b"] * 5, "row 1 is None"),
        (["a", " "] + ["b"] * 5, "row 1 is empty"),
        ([1, 2.5, 1, 1, 1, 1, 1], "row 1 is 2.5"),
        (["a", 2, 1, 1, 1, 1, 1], None),
        (np.array(["a", 2, 1, 1, 1, 1, 1], dtype=object), "numbers and text together"),
        (np.array([b"a"] * 7), "row 0 is"),
        (np.array(["2020-01-01"] * 7, dtype="M8[D]"), "row 0 is"),
        (np.ma.masked_array([1] * 7, [0, 0, 0, 1, 0, 0, 0]), "row 3"),
        ("site", "from_table"),
        ([[1, 2]] * 7, "shape"),
        ([1] * 6, r"shape \(7,\); got shape \(6,\)"),
    ],
)
def test_bad_ids_are_refused(bad, words):
    for what in ("groups", "clusters"):
        if words is None:  # a list of both is text to NumPy
            assert Scores.from_logits(LOGITS, **{what: bad}) is not None
            continue
        with pytest.raises(InputError):
            Scores.from_logits(LOGITS, LABELS, **{what: bad})


def test_ids_of_pieces_with_numbers_and_text_become_text():
    assert join_ids([np.array([1, 2]), np.array(["x"])]).tolist() == ["1", "2", "x"]


def _write(path, groups, clusters, extra=None):
    columns = {f"c{k}": LOGITS[:, k] for k in range(3)}
    table = {"site": groups, **columns, "label": LABELS, "patient": clusters}
    suffix = path.suffix
    if suffix == ".npz":
        np.savez(path, logits=LOGITS, labels=LABELS, site=np.array(groups), patient=np.array(clusters))
    elif suffix == ".safetensors":
        from safetensors.numpy import save_file

        arrays = {"logits": LOGITS, "labels": LABELS, "patient": np.array(clusters)}
        save_file(arrays, path)
    elif suffix == ".jsonl":
        rows = [{name: np.array(column)[i].item() for name, column in table.items()} for i in range(N)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(table)
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)


@pytest.mark.parametrize("suffix", ["npz", "csv", "jsonl", "parquet"])
def test_ids_in_files(tmp_path, suffix, monkeypatch):
    _write(path := tmp_path / f"val.{suffix}", SITES, PATIENTS)
    options = {"groups_key": "site", "clusters_key": "patient"}
    files = open_scores(path, **options)
    if files.columns is not None:
        assert files.columns == ("c0", "c1", "c2")
    scores = files.load()
    np.testing.assert_array_equal(scores.logits, LOGITS)
    assert scores.groups.tolist() == SITES
    assert list(map(str, scores.clusters)) == list(map(str, PATIENTS))
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 60)  # a few rows at a time
    pieces = list(open_scores(path, **options))
    assert len(pieces) > 2
    assert [g for piece in pieces for g in piece.groups] == SITES
    shutil.copy(path, again := tmp_path / f"again.{suffix}")
    loaded = open_scores([path, again], **options).load()
    assert loaded.groups.tolist() == SITES * 2
    with pytest.raises(AttemperError):
        open_scores(path, groups_key="nowhere")


def test_ids_of_tensors_are_numbers(tmp_path):
    _write(path := tmp_path / "val.safetensors", SITES, PATIENTS)
    assert open_scores(path, clusters_key="patient").load().clusters.tolist() == PATIENTS


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_missing_id_in_a_table_names_file_and_row(tmp_path, suffix):
    _write(path := tmp_path / f"val.{suffix}", ["b", "a", "b", "", "a", "a", "b"], PATIENTS)
    with pytest.raises(InputError):
        open_scores(path, groups_key="site", clusters_key="patient").load()


@pytest.mark.parametrize("name", ["patients.txt", "patients.npy"])
@pytest.mark.parametrize("suffix", ["npz", "npy", "csv"])
def test_ids_in_a_file_of_their_own(tmp_path, name, suffix):
    own = tmp_path / name
    if name.endswith("txt"):
        own.write_text("".join(f"{p}\n" for p in PATIENTS + PATIENTS))
    else:
        np.save(own, PATIENTS + PATIENTS)
    path, options = tmp_path / f"val.{suffix}", {"clusters_key": str(own)}
    if suffix == "npy":
        np.save(path, LOGITS)
        np.save(tmp_path / "labels.npy", LABELS)
        with pytest.raises(AttemperError):
            open_scores(path, labels=str(tmp_path / "labels.npy"), clusters_key="patient")
    elif suffix == "csv":
        np.savetxt(
            path, np.column_stack([LABELS, LOGITS]), delimiter=",", header="label,a,b,c", comments="", fmt="%.17g"
        )
    else:
        np.savez(path, logits=LOGITS, labels=LABELS)
    copies = [path, *(shutil.copy(path, tmp_path / f"{k}.{suffix}") for k in range(2))]
    if suffix == "npy":
        for k in range(2):
            shutil.copy(tmp_path / "labels.npy", tmp_path / f"labels{k}.npy")
        own_labels = [str(tmp_path / f"labels{k}.npy") for k in ("", 0, 1)]
        options["labels"] = own_labels[:2]
    scores = open_scores(copies[:2], **options).load()
    assert list(map(int, scores.clusters)) == PATIENTS * 2
    single = dict(options, labels=options["labels"][0]) if suffix == "npy" else options
    with pytest.raises(InputError):
        open_scores(path, **single).load()
    with pytest.raises(InputError):
        three = dict(options, labels=own_labels) if suffix == "npy" else options
        open_scores(copies, **three).load()
    with pytest.raises(AttemperError):
        open_scores(path, **dict(single, clusters_key="nowhere.txt")).load()


def test_ids_of_images_and_sequences_in_files(tmp_path):
    rng = np.random.default_rng(2)
    images, labels = rng.normal(size=(3, 2, 2, 2)), rng.integers(0, 2, (3, 2, 2))
    np.savez(tmp_path / "images.npz", logits=images, labels=labels, patient=["x", "y", "x"], pixel=labels)
    scores = open_scores(tmp_path / "images.npz", axis=1, clusters_key="patient", groups_key="pixel").load()
    assert scores.clusters.tolist() == ["x"] * 4 + ["y"] * 4 + ["x"] * 4
    assert scores.groups.tolist() == labels.reshape(-1).tolist()
    tokens, ids = rng.normal(size=(2, 4, 3)), np.array([[0, 1, -100, 2], [1, -100, 2, 0]])
    np.savez(tmp_path / "tokens.npz", logits=tokens, labels=ids, text=["a", "b"], place=np.tile(np.arange(4), (2, 1)))
    found = open_scores(tmp_path / "tokens.npz", ignore_index=-100, clusters_key="text", groups_key="place").load()
    assert found.clusters.tolist() == ["a"] * 3 + ["b"] * 3
    assert found.groups.tolist() == [0, 1, 3, 0, 2, 3]


def test_tables_in_memory():
    table = {
        "patient_id": PATIENTS,
        "a": LOGITS[:, 0],
        "b": LOGITS[:, 1],
        "c": LOGITS[:, 2],
        "label": LABELS,
        "s": SITES,
    }
    scores = Scores.from_table(table, "label", groups="s", clusters="patient_id")
    assert scores.columns == ("a", "b", "c")
    assert scores.groups.tolist() == SITES
    assert scores.clusters.tolist() == PATIENTS
    with pytest.raises(InputError):
        Scores.from_table(table, "label", groups="q", clusters="patient_id")
    with pytest.raises(InputError):
        Scores.from_table(table, "label", groups="s", columns=["a", "s"])
    bad = dict(table, s=["x", None] + ["y"] * 5)
    with pytest.raises(InputError):
        Scores.from_table(bad, "label", groups="s", clusters="patient_id")
