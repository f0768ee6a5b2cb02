"""Figure 2: membership in M_k against the double loop of Eq. (7), and what is drawn of it."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.reproduce import figure2, pages, reproduce
from experiments.reproduce.journal import Settings

from oracles import softmax

RESULTS = Path(__file__).parents[3] / "docs" / "results"
ROWS = figure2.run(0)


def looped(h, y, theta):
    """Eq. (7), sample by sample and class by class."""
    n, n_classes = np.shape(h)
    return [[y[i] == k or softmax(h[i], 1.0)[k] >= theta for k in range(n_classes)] for i in range(n)]


@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(2, 5)), elements=st.integers(-8, 8).map(float)),
    st.sampled_from([0.0008, 0.01, 0.07, 0.3, 0.6]),
    st.randoms(use_true_random=False),
)
def test_membership_is_that_of_the_double_loop(h, theta, random):
    """Also where logits tie: whole numbers do so often, and none of the values of θ is a probability of theirs."""
    y = np.array([random.randrange(h.shape[1]) for _ in h])
    assert figure2.subsets(h, y, theta).tolist() == looped(h, y, theta)


def drawn():
    page = figure2.figure2(ROWS, Settings())
    return page, page.figures["figure2"]


def test_the_toy_is_a_real_classifier_and_its_subsets_are_those_of_the_loop():
    weights = np.array([[r["w_x"], r["w_y"], r["bias"]] for r in ROWS if r["what"] == "classifier"])
    samples = [r for r in ROWS if r["what"] == "sample"]
    x = np.array([[r["x"], r["y"], 1.0] for r in samples])
    y = np.array([r["label"] - 1 for r in samples])
    h = x @ weights.T
    assert [r["predicted"] - 1 for r in samples] == h.argmax(axis=1).tolist()
    member = [[bool(r[f"in_M_{k}"]) for k in figure2.CLASSES] for r in samples]
    assert member == looped(h, y, figure2.THETA)
    p = np.array([softmax(row, 1.0) for row in h])
    assert np.log(p[np.arange(len(y)), y]).mean() > -0.5  # far from the −log 3 of a guess


def test_each_panel_shows_each_sample_once_and_counts_those_inside():
    page, figure = drawn()
    samples = [r for r in ROWS if r["what"] == "sample"]
    assert len(figure.axes) == 3
    for ax, k in zip(figure.axes, figure2.CLASSES):
        lines = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
        for label in figure2.CLASSES:
            for inside, word in ((1, "in"), (0, "out")):
                expected = [[r["x"], r["y"]] for r in samples if (r["label"], r[f"in_M_{k}"]) == (label, inside)]
                assert lines[f"label {label}, {word}"] == expected
        assert lines[f"label {k}, out"] == []  # a sample is always in the subset of its own label
        n = sum(r[f"in_M_{k}"] for r in samples)
        assert ax.get_title() == f"$M_{k}$: {n} of {len(samples)} samples"
        counts = page.summary["counts"][f"M_{k}"]
        assert counts["with label k"] + counts["with another label"] == n
        assert counts["predicted as k among these"] == sum(r["predicted"] == k != r["label"] for r in samples)
        (low, high), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert all(low < r["x"] < high and bottom < r["y"] < top for r in samples)


def test_shapes_and_fills_differ_without_colour():
    _, figure = drawn()
    for ax, k in zip(figure.axes, figure2.CLASSES):
        faces = {line.get_label(): (line.get_marker(), line.get_markerfacecolor()) for line in ax.lines}
        assert {marker for marker, _ in faces.values()} == {"o", "s", "^"}
        for label in figure2.CLASSES:
            assert faces[f"label {label}, out"][1] == "none"
            assert (faces[f"label {label}, in"][1] == "black") == (label != k)
    (legend,) = figure.legends
    assert "boundary of class $k$" in [text.get_text() for text in legend.get_texts()]


def test_the_committed_page_is_that_of_seed_0():
    with (RESULTS / "figure2.csv").open(newline="") as stream:
        committed = list(csv.DictReader(stream))
    assert len(committed) == len(ROWS)
    for ours, line in zip(ROWS, committed):
        for key, value in ours.items():
            assert line[key] == value if isinstance(value, str) else float(line[key]) == pytest.approx(value, rel=1e-3)


@pytest.mark.slow
def test_the_page_is_written_whole_and_the_same_each_time(tmp_path):
    for folder in ("a", "b"):
        files = reproduce(["figure2"], tmp_path / folder, workers=1)
    names = {path.name for path in files}
    assert names == {*(f"figure2.{form}" for form in ("md", "csv", "json", "svg", "png")), "README.md"}
    for path in files:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
    assert pages.filled("figure2", drawn()[0].tables) in (tmp_path / "a" / "figure2.md").read_text()
