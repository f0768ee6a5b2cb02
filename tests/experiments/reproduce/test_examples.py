"""Figures 1 and 6: which examples are chosen, what is drawn of them, and photographs from a folder."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attemper import FileError, InputError
from attemper.cli import main
from experiments.reproduce import PAGES, example_panels, examples, paper, reproduce
from experiments.reproduce.__main__ import reproduce as command
from experiments.reproduce.example_images import IMAGES
from experiments.reproduce.journal import Settings
from experiments.reproduce.skin import DRAWN, NETWORKS

from oracles import softmax

RESULTS = Path(__file__).parents[3] / "docs" / "results"
TEXTS = ("network", "what", "group", "image", "label", "predicted")


def committed():
    """Return the rows of the study as the committed page has them."""
    with (RESULTS / "examples.csv").open(newline="") as stream:
        lines = [line for line in csv.DictReader(stream) if line["network"] != "paper"]
    return [{k: v if k in TEXTS else float(v) if v else None for k, v in line.items()} for line in lines]


ROWS = [row | {"samples": int(row["samples"])} if row["samples"] else row for row in committed()]


@pytest.fixture(scope="module")
def page():
    return examples.examples(ROWS, Settings())


def photograph(path, color=(200, 120, 90)):
    Image.new("RGB", (200, 150), color).save(path)


def test_the_papers_twelve_examples():
    assert len(paper.EXAMPLES) == 12
    for figure in (1, 6):
        of = [e for e in paper.EXAMPLES if e.figure == figure]
        assert [e.label == e.predicted for e in of] == [True] * 3 + [False] * 3
        assert {e.label for e in of} | {e.predicted for e in of} <= set(paper.LESIONS)
    assert [e.calibrated for e in paper.EXAMPLES[:6]] == [0.98, 0.99, 0.98, 0.54, 0.46, 0.48]
    assert [(e.none, e.ats, e.ts) for e in paper.EXAMPLES[6:]] == [
        (0.99, 0.92, 0.58),
        (0.99, 0.93, 0.58),
        (0.99, 0.92, 0.58),
        (0.92, 0.65, 0.41),
        (0.93, 0.68, 0.43),
        (0.87, 0.65, 0.45),
    ]


def test_the_pool_is_a_list_of_images():
    assert len(IMAGES) == len(set(IMAGES)) == 274
    assert list(IMAGES) == sorted(IMAGES)
    assert all(len(image) == 12 and image.startswith("ISIC_00") for image in IMAGES)


def naive_choice(images, right, predicted, confidence):
    """Pick one by one: the best that is left, of a class that the group does not have yet."""
    keys = {
        examples.RIGHT: (True, lambda i: -confidence[i]),
        examples.PAPERS: (False, lambda i: abs(confidence[i] - 0.9)),
        examples.CONFIDENT: (False, lambda i: -confidence[i]),
    }
    used, found = set(), {}
    for group, (want, key) in keys.items():
        found[group] = []
        while len(found[group]) < 3:
            seen = {predicted[i] for i in found[group]}
            left = [i for i in range(len(images)) if images[i] in IMAGES and right[i] == want and i not in used]
            left = [i for i in left if predicted[i] not in seen]
            if not left:
                break
            found[group].append(min(left, key=lambda i: (key(i), images[i])))
            used.add(found[group][-1])
    return found


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_examples_are_chosen_by_their_rule(seed, n):
    rng = np.random.default_rng(seed)
    images = rng.permutation([*IMAGES[:80], *(f"other_{i}" for i in range(20))])[:n]
    right, predicted = rng.random(n) < 0.5, rng.integers(0, 4, n)
    confidence = np.round(rng.random(n), 1)  # with many ties
    assert examples._chosen(images, right, predicted, confidence) == naive_choice(images, right, predicted, confidence)


@pytest.mark.slow
def test_the_committed_examples_come_out_again():
    again = [row for name in NETWORKS.values() for row in examples.run(name, 0)]
    assert len(again) == len(ROWS) == 2 * (9 + 2)
    for ours, line in zip(again, ROWS):
        for key, value in ours.items():
            assert line[key] == (pytest.approx(value, abs=2e-3) if isinstance(value, float) else value), (key, ours)


def test_each_group_has_three_predicted_as_different_classes_of_the_pool():
    for name in NETWORKS.values():
        for group in (examples.RIGHT, examples.PAPERS, examples.CONFIDENT):
            of = [r for r in ROWS if (r["network"], r["what"], r["group"]) == (name, "example", group)]
            assert len(of) == len({r["predicted"] for r in of}) == 3
            assert {r["image"] for r in of} <= set(IMAGES)
            assert all((r["label"] == r["predicted"]) == group.startswith("right") for r in of)


@given(
    st.lists(st.floats(-3, 3).map(lambda x: round(x, 3)), min_size=2, max_size=7),
    st.floats(0.5, 8),
    st.floats(0.5, 8),
)
def test_a_confidence_stays_within_its_bounds(h, t_from, t_to):
    before, after = (max(softmax(h, t)) for t in (t_from, t_to))
    low, high = examples.reachable(before, t_from, t_to, len(h))
    assert low - 1e-6 <= after <= high + 1e-6


def test_the_bounds_are_reached():
    alike, one = [2.0, 0.0, 0.0], [2.0, 0.0, -60.0]
    for h, end in ((alike, 0), (one, 1)):
        bounds = examples.reachable(max(softmax(h, 1.0)), 1.0, 3.0, 3)
        assert max(softmax([*h], 3.0)) == pytest.approx(bounds[end], abs=1e-6)


def test_the_papers_figure_6_and_table_4_do_not_agree(page):
    """What the page says in words: every printed TS confidence lies below its bounds, rounded or not."""
    allowed = page.summary["ts_that_ats_allows"]
    assert len(allowed) == 6
    for (low, high), example in zip(allowed, paper.EXAMPLES[6:]):
        assert example.ts + 0.01 < low < high < example.ats


def test_the_gap_of_ts_and_ats_is_the_same_on_the_whole_test_part(page):
    whole = {name: gap for name, gap in page.summary["gaps"].items() if "whole" in name}
    assert len(whole) == 2
    for gap in whole.values():
        assert gap["ts"] == pytest.approx(gap["ats"], abs=0.01)
        assert gap["ts"] > gap["none"]
    papers = page.summary["gaps"]["the paper's six, Figure 6"]
    assert papers == pytest.approx({"none": 0.99 - 2.72 / 3, "ts": 0.58 - 0.43, "ats": 2.77 / 3 - 0.66})


def test_the_figure_shows_every_confidence(page):
    figure = page.figures["examples"]
    assert [ax.get_title() for ax in figure.axes] == [
        "the paper",
        "ours, images divided at random",
        "ours, lesions kept apart",
    ]
    for ax, name in zip(figure.axes[1:], NETWORKS.values()):
        for method in ("none", "ts", "ats"):
            expected = [r[f"confidence_{method}"] for r in ROWS if r["network"] == name]
            found = [line.get_xdata()[0] for line in ax.lines if line.get_label() == method]
            assert found == pytest.approx(expected)
            texts = [text.get_text() for text in ax.texts]
            assert all(f"{value:.2f}" in texts for value in expected)
    first = figure.axes[0]
    marked = {m: [line.get_xdata()[0] for line in first.lines if line.get_label() == m] for m in example_panels.MARKS}
    assert marked["none"] == [e.none for e in paper.EXAMPLES]
    assert marked["calibrated"] == [e.calibrated for e in paper.EXAMPLES[:6]]
    assert (marked["ts"], marked["ats"]) == ([e.ts for e in paper.EXAMPLES[6:]], [e.ats for e in paper.EXAMPLES[6:]])
    low, high = first.get_xlim()
    for ax in figure.axes:
        assert all(low < x < high for line in ax.lines for x in line.get_xdata())


def test_the_page_has_our_numbers_and_the_papers(page):
    assert "| Melanoma → Bowen | Figure 1 | 0.91 | 0.54 | – | – |" in page.tables["paper"]
    assert "| Bowen → Benign keratosis | Figure 6 | 0.87 | – | 0.45 | 0.65 |" in page.tables["paper"]
    for word in NETWORKS:
        assert len(page.tables[word].splitlines()) == 2 + 9
    assert len([row for row in page.rows if row["network"] == "paper"]) == 12
    assert all(f"confidence_{m}" in ROWS[0] for m in DRAWN)


def test_photographs_that_are_there_are_drawn(tmp_path):
    shown = [r["image"] for r in ROWS if r["what"] == "example" and r["network"] == NETWORKS["random"]][:2]
    for image in shown:
        photograph(tmp_path / f"{image}.jpg")
    (tmp_path / "other.jpg").write_bytes(b"no image")
    (figure,) = examples.photographs(ROWS, tmp_path).values()
    boxes = [[a for a in ax.artists if hasattr(a, "offsetbox")] for ax in figure.axes]
    assert [len(found) for found in boxes][:2] == [0, 2]
    for box in boxes[1]:
        assert box.offsetbox.get_data().shape == (150, 200, 3)
    plain = examples.examples(ROWS, Settings()).figures["examples"]
    for ax, other in zip(figure.axes, plain.axes):  # the same examples, with or without photographs
        assert [text.get_text() for text in ax.texts] == [text.get_text() for text in other.texts]


def test_a_folder_without_them_is_refused(tmp_path):
    wanted = next(r["image"] for r in ROWS if r["what"] == "example")
    with pytest.raises(FileError):
        examples.photographs(ROWS, tmp_path)
    (tmp_path / f"{wanted}.jpg").write_bytes(b"no image")
    with pytest.raises(FileError):
        examples.photographs(ROWS, tmp_path)


def test_photographs_are_refused_before_any_work(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    with pytest.raises(InputError):
        reproduce(["table4"], tmp_path / "out", images=images)
    with pytest.raises(FileError):
        reproduce(["examples"], tmp_path / "out", images=tmp_path / "none")
    with pytest.raises(InputError):
        reproduce(["examples"], RESULTS, images=images)
    assert list(tmp_path.iterdir()) == [images]


def test_the_command_names_its_own_options(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce", "examples", "-o", str(RESULTS), "--images", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main(command, "python -m experiments.reproduce")
    assert end.value.code == 2
    assert "Use --output with another folder, or leave out --images." in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_the_page_is_written_whole_and_photographs_change_none_of_it(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for image in IMAGES[:200]:
        photograph(images / f"{image}.jpg")
    plain = reproduce(["examples"], tmp_path / "plain", workers=1)
    assert {path.name for path in plain} == {
        *(f"examples.{f}" for f in ("md", "csv", "json", "svg", "png")),
        "README.md",
    }
    written = [
        {path.name: path.read_bytes() for path in reproduce(["examples"], tmp_path / "with", workers=1, images=images)}
        for _ in range(2)
    ]
    assert written[0] == written[1]
    assert set(written[0]) - {path.name for path in plain} == {"examples_photographs.svg", "examples_photographs.png"}
    for path in plain:
        assert path.read_bytes() == written[0][path.name]


def test_photographs_belong_to_the_page_of_examples_alone():
    assert [name for name, source in PAGES.items() if source.photographs is not None] == ["examples"]
