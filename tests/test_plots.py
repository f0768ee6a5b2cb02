"""Pictures: drawn on the Axes given, nothing global changed, the same bytes for the same data."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import colors
from matplotlib.figure import Figure

from attemper import FileError, InputError, MissingExtraError, Scores, TemperatureScaling, metrics, plots
from attemper.maps import ScaleMap

from data import draw


@pytest.fixture
def case():
    h, y = draw(300, 4)
    return Scores.from_logits(h, y), TemperatureScaling().fit(h, y)


def test_the_diagram_draws_the_table(case):
    scores, _ = case
    table = metrics.reliability(ScaleMap(1.0).apply(scores.logits), scores.labels)
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    assert plots.reliability_diagram(ax, table, title="before") is ax
    filled = table.weight > 0
    bars = [p for p in ax.patches if colors.to_hex(p.get_facecolor()) == plots.BAR.lower()]
    np.testing.assert_allclose([bar.get_height() for bar in bars], table.accuracy[filled])
    np.testing.assert_allclose([bar.get_x() for bar in bars], table.edges[:-1][filled])
    gaps = [p for p in ax.patches if p.get_hatch()]
    tops = [gap.get_y() + gap.get_height() for gap in gaps]
    np.testing.assert_allclose(tops, table.confidence[filled])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("confidence", "accuracy", "before")
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))
    assert not other.patches  # nothing is drawn beside the Axes given
    assert not other.lines


def test_bins_without_samples_stay_empty():
    table = metrics.reliability(np.array([[0.9, 0.1], [0.05, 0.95]]), [0, 0])
    ax = Figure().subplots()
    plots.reliability_diagram(ax, table)
    assert len([p for p in ax.patches if p.get_hatch()]) == (table.weight > 0).sum() < 3


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "PNG"])
def test_the_picture_is_written_whole(case, tmp_path, ending):
    settings = dict(mpl.rcParams)
    plots.save_before_and_after(tmp_path / f"a.{ending}", *case)
    assert dict(mpl.rcParams) == settings
    start = (tmp_path / f"a.{ending}").read_bytes()[:5]
    assert start.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending.lower()])
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{ending}"]


def test_pyplot_is_left_alone(case, tmp_path):
    from matplotlib import pyplot

    plots.save_before_and_after(tmp_path / "a.png", *case)
    assert pyplot.get_fignums() == []


def test_the_same_data_are_the_same_bytes(case, tmp_path):
    for name in "ab":
        plots.save_before_and_after(tmp_path / f"{name}.png", *case)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in (tmp_path / "a.png").read_bytes()  # nor do they tell the version of matplotlib


def test_an_interrupt_leaves_the_old_picture(case, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", interrupt)
    with pytest.raises(KeyboardInterrupt):
        plots.save_before_and_after(path, *case)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_drawn_is_told(case, tmp_path):
    scores, calibrator = case
    for name in ("a.bmp", "a", "a.json"):
        with pytest.raises(
            FileError, match=rf"{name}: the ending says the format; expected one of \.png, \.svg, \.pdf"
        ):
            plots.save_before_and_after(tmp_path / name, scores, calibrator)
    with pytest.raises(FileError, match=r"none.a\.png: cannot be written there"):
        plots.save_before_and_after(tmp_path / "none" / "a.png", scores, calibrator)
    with pytest.raises(InputError, match="labels"):
        plots.save_before_and_after(tmp_path / "a.png", Scores.from_logits(scores.values), calibrator)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_way_to_get_it_is_told(case, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r'matplotlib is needed to draw .*: pip install "attemper\[plots\]"'):
        plots.save_before_and_after(tmp_path / "a.png", *case)
