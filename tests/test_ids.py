"""Ids of groups and clusters: what they may be, and that they stay with their rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import Scores
from attemper.data.ids import as_ids, join_ids
from attemper.errors import InputError
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
    assert scores.image.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    with pytest.raises(InputError):
        Scores.from_logits(images, labels, clusters=["x", "y"], **settings)


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


def test_ids_of_images_in_files(tmp_path):
    rng = np.random.default_rng(2)
    images, labels = rng.normal(size=(3, 2, 2, 2)), rng.integers(0, 2, (3, 2, 2))
    np.savez(tmp_path / "images.npz", logits=images, labels=labels, patient=["x", "y", "x"], pixel=labels)
    scores = open_scores(tmp_path / "images.npz", axis=1, clusters_key="patient", groups_key="pixel").load()
    assert scores.clusters.tolist() == ["x"] * 4 + ["y"] * 4 + ["x"] * 4
    assert scores.groups.tolist() == labels.reshape(-1).tolist()


def test_tables_in_memory():
    table = {
        "patient_id": PATIENTS,
        "logit_a": LOGITS[:, 0],
        "logit_b": LOGITS[:, 1],
        "logit_c": LOGITS[:, 2],
        "label": LABELS,
        "s": SITES,
    }
    scores = Scores.from_table(table, "label", groups="s", clusters="patient_id")
    assert scores.columns == ("logit_a", "logit_b", "logit_c")
    assert scores.groups.tolist() == SITES
    assert scores.clusters.tolist() == PATIENTS
    with pytest.raises(InputError):
        Scores.from_table(table, "label", groups="q", clusters="patient_id")
    with pytest.raises(InputError):
        Scores.from_table(table, "label", groups="s", columns=["logit_a", "s"])
    bad = dict(table, s=["x", None] + ["y"] * 5)
    with pytest.raises(InputError):
        Scores.from_table(bad, "label", groups="s", clusters="patient_id")
