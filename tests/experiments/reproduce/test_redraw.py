"""The committed pictures and texts are what the committed numbers give."""

import re
from importlib.metadata import version
from pathlib import Path

import matplotlib as mpl
import pytest

from experiments.reproduce import PAGES
from experiments.reproduce.redraw import DRAWN, page_of, redraw

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


def without_ids(svg):
    """Drop names of clipping paths and markers, which are hashes of every digit of a number."""
    return re.sub(rb"\b[pm][0-9a-f]{10}\b", b"", svg)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_committed_pages_are_what_the_numbers_give(name):
    page, about = page_of(RESULTS, name)
    shown = page.shown(name, about)
    assert shown[f"{name}.md"] == (RESULTS / f"{name}.md").read_bytes(), "run python -m experiments.reproduce.redraw"
    if f"matplotlib=={version('matplotlib')}\n" not in (ROOT / "constraints.txt").read_text():
        pytest.skip("another matplotlib than that of the committed pictures")
    assert without_ids(shown[f"{name}.svg"]) == without_ids((RESULTS / f"{name}.svg").read_bytes())


def test_all_pages_with_a_picture_are_known():
    drawn = {path.stem for path in RESULTS.glob("*.svg")}
    assert drawn == set(DRAWN) <= set(PAGES)


def test_numbers_are_left_alone(tmp_path):
    for path in RESULTS.glob("figure2.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    written = redraw(tmp_path, ["figure2"])
    assert [path.name for path in written] == ["figure2.md", "figure2.svg", "figure2.png"]
    for name in ("figure2.csv", "figure2.json"):
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_have_text_that_can_be_edited_and_lettered_panels(name):
    svg = (RESULTS / f"{name}.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>(?:<tspan[^>]*>)?([^<]*)<", svg)
    assert len(texts) > 5  # and formulas
    assert {"a", "b"} <= set(texts)


def test_no_line_is_behind_the_numbers_of_the_examples():
    page, _ = page_of(RESULTS, "examples")
    for ax in page.figures["examples"].axes:
        assert not any(line.get_visible() for line in (*ax.get_xgridlines(), *ax.get_ygridlines()))
        numbers = [text for text in ax.texts if re.fullmatch(r"\d\.\d\d", text.get_text())]
        short = [c for c in ax.collections if isinstance(c, mpl.collections.LineCollection)]
        assert numbers
        assert short
        ax.figure.canvas.draw()
        ends = [ax.transData.transform(segment)[:, 1] for c in short for segment in c.get_segments()]
        for text in numbers:
            box = text.get_window_extent()
            assert not any(min(y) < box.y1 - 1 and max(y) > box.y0 + 1 for y in ends)
