"""Pictures: drawn on the Axes given, nothing global changed, the same bytes for the same data."""

from __future__ import annotations

import re
import sys
import warnings
from collections import namedtuple

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from matplotlib import colors
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    FileError,
    InputError,
    InputTypeError,
    MissingExtraError,
    NotFittedError,
    Scores,
    Sketch,
    TemperatureScaling,
    metrics,
    planning,
    plots,
)
from attemper.calibrators import METHODS
from attemper.calibrators.explanations import shortest_interval
from attemper.comparison import Comparison, Row, compare
from attemper.maps import ScaleMap
from attemper.metrics import Estimate
from attemper.plots import joint, styles

from data import cases, draw

RiskCoverage = namedtuple("RiskCoverage", "threshold coverage risk")

ODD = ["$\\frac{$", "a_b^c$x$", "_hidden", "x" * 200, "new\nline", "100 % & <b>", "\\alpha", "{}", "Größe θ"]


@pytest.fixture
def case():
    h, y = draw(300, 4)
    return Scores.from_logits(h, y), TemperatureScaling().fit(h, y)


@pytest.fixture(scope="module")
def fitted():
    """Everything that can be drawn, of one small data set with wrong labels."""
    h, y = draw(300, 4)
    y = np.where(np.arange(300) % 5, y, (y + np.arange(300)) % 4)
    p = ScaleMap(1.0).apply(h)
    return {
        "h": h,
        "y": y,
        "p": p,
        "table": metrics.reliability(y, p),
        "corp": metrics.corp_reliability(y, p, n_resamples=20),
        "ats": AttendedTemperatureScaling().fit(h, y),
        "bayes": BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, y),
        "sketch": Sketch.of(h, y),
        "curve": metrics.referral_curve(y, p),
        "plan": planning.labels_for_metric(h, y, metric="nll", width=0.2),
        "rows": compare(Scores.from_logits(h[::2], y[::2]), Scores.from_logits(h[1::2], y[1::2]), ["ts", "vector"]),
        "groups": metrics.by_group(y, p, groups=np.arange(len(y)) % 3, n_resamples=20),
    }


def risk_of(curve):
    return RiskCoverage(curve.threshold, 1 - curve.referred, curve.error_rate_decided)


DRAWN = {
    "reliability": lambda ax, f, title="": plots.plot_reliability(f["table"], title=title, ece=0.1, ax=ax),
    "corp": lambda ax, f, title="": plots.plot_reliability(f["corp"], title=title, ece=0.1, ax=ax),
    "confidence": lambda ax, f, title="": plots.plot_confidence(f["y"], f["p"], title=title, ax=ax),
    "referral": lambda ax, f, title="": plots.plot_referral({"ts": f["curve"]}, title=title, chosen=0.5, ax=ax),
    "risk": lambda ax, f, title="": plots.plot_risk_coverage(
        {"ts": risk_of(f["curve"])}, title=title, chosen=0.5, ax=ax
    ),
    "temperature": lambda ax, f, title="": plots.plot_temperature(f["h"], f["y"], title=title, chosen={"ts": 2}, ax=ax),
    "theta": lambda ax, f, title="": plots.plot_theta(f["ats"], title=title, ax=ax),
    "posterior": lambda ax, f, title="": plots.plot_posterior(f["bayes"], title=title, ax=ax),
    "joint": lambda ax, f, title="": plots.plot_posterior(f["bayes"], f["sketch"], title=title, ax=ax),
    "comparison": lambda ax, f, title="": plots.plot_comparison(f["rows"], title=title, ax=ax),
    "groups": lambda ax, f, title="": plots.plot_groups(f["groups"], title=title, ax=ax),
    "plan": lambda ax, f, title="": plots.plot_plan(f["plan"], title=title, ax=ax),
}
every = pytest.mark.parametrize("what", list(DRAWN))


def line_of(ax, label):
    [line] = [line for line in ax.lines if line.get_label() == label]
    return line


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def written(ax):
    """Return what is written on the Axes, beside lines and in a legend."""
    return [text.get_text() for text in ax.texts] + ([] if ax.get_legend() is None else words(ax))


def gaps_of(ax):
    return bars_of(ax, styles.LEVEL)


def twin_of(ax):
    [other] = [each for each in ax.figure.axes if each is not ax]
    return other


# What all of them keep to


@every
def test_it_is_drawn_on_the_axes_given_and_nothing_else_changes(what, fitted):
    from matplotlib import pyplot

    settings = dict(mpl.rcParams)
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    before = [len(other.get_children()), other.get_xlim(), other.get_ylim(), other.get_xlabel()]
    assert DRAWN[what](ax, fitted, "a title") is ax
    figure.canvas.draw()
    assert [len(other.get_children()), other.get_xlim(), other.get_ylim(), other.get_xlabel()] == before
    assert dict(mpl.rcParams) == settings
    assert pyplot.get_fignums() == []
    assert ax.get_title() == "a title"
    assert ax.get_xlabel()


@every
def test_letters_are_large_enough_to_read(what, fitted):
    [ax] = plots.new_axes()
    DRAWN[what](ax, fitted, "a title")
    ax.figure.canvas.draw()
    ticks = [tick for each in ax.figure.axes for tick in (*each.get_xticklabels(), *each.get_yticklabels())]
    texts = [*ax.figure.findobj(mpl.text.Text), *ticks]
    sizes = [text.get_fontsize() for text in texts if text.get_text()]
    assert len(sizes) > 10
    assert min(sizes) >= 6


@every
@pytest.mark.parametrize("wrong", [Figure(), 3])
def test_axes_are_needed(what, wrong, fitted):
    with pytest.raises(InputTypeError):
        DRAWN[what](wrong, fitted)


@every
def test_without_axes_there_are_new_ones(what, fitted):
    from matplotlib import pyplot

    ax = DRAWN[what](None, fitted, "a title")
    assert isinstance(ax, mpl.axes.Axes)
    assert ax.get_title() == "a title"
    assert pyplot.get_fignums() == []  # no notebook


@every
def test_sizes_that_a_user_has_set_stay(what, fitted):
    ax = Figure().subplots()
    ax.xaxis.label.set_fontsize(17)
    ax.title.set_fontsize(18)
    DRAWN[what](ax, fitted, "a title")
    assert (ax.xaxis.label.get_fontsize(), ax.title.get_fontsize()) == (17, 18)


@every
@pytest.mark.parametrize("title", ODD)
def test_any_title_is_shown_as_it_is(what, title, fitted):
    ax = Figure().subplots()
    DRAWN[what](ax, fitted, title)
    ax.figure.canvas.draw()
    assert ax.title.get_text().replace("\\$", "$") == title
    assert mpl.cbook.is_math_text(ax.title.get_text()) in (False, title)


@pytest.mark.parametrize("name", ODD)
def test_any_name_is_shown_and_none_breaks_the_picture(name, fitted):
    axes = plots.new_axes(4)
    plots.plot_referral({name: fitted["curve"]}, chosen={name: 0.5}, ax=axes[0])
    plots.plot_risk_coverage({name: risk_of(fitted["curve"])}, ax=axes[1])
    plots.plot_temperature(fitted["h"], fitted["y"], chosen={name: 1.5}, ax=axes[2])
    plots.plot_comparison([Row(name, metrics={"nll": 0.5})], ax=axes[3])
    axes[0].figure.canvas.draw()
    shown = styles.plain(name)
    assert len(shown) < 60
    assert "t = 0.5" in written(axes[0])
    assert shown in written(axes[0])
    assert shown in written(axes[1])
    assert f"{shown}: T = 1.5" in written(axes[2])
    assert [tick.get_text() for tick in axes[3].get_yticklabels()] == [shown]


def test_names_that_differ_only_at_the_end_stay_apart():
    assert styles.plain("x" * 100 + "a") != styles.plain("x" * 100 + "b")


# Files


@every
@pytest.mark.parametrize("ending", ["svg", *(pytest.param(e, marks=pytest.mark.slow) for e in ("png", "pdf"))])
def test_the_same_data_are_the_same_bytes(what, ending, fitted, tmp_path):
    settings = dict(mpl.rcParams)
    for name in "ab":
        [ax] = plots.new_axes()
        DRAWN[what](ax, fitted)
        plots.save(tmp_path / f"{name}.{ending}", ax.figure if name == "a" else ax, dpi=60)
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert first == second
    assert b"atplotlib v" not in first  # nor do they tell the version of matplotlib
    assert b"Software" not in first
    assert dict(mpl.rcParams) == settings


def test_axes_on_a_part_of_a_figure_are_saved_with_the_whole(fitted, tmp_path):
    figure = Figure()
    left, _ = figure.subfigures(1, 2)
    DRAWN["theta"](left.subplots(), fitted)
    plots.save(tmp_path / "a.png", left.axes[0], dpi=50)
    plots.save(tmp_path / "b.png", figure, dpi=50)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "PNG"])
def test_the_picture_is_written_whole(case, tmp_path, ending):
    settings = dict(mpl.rcParams)
    plots.save_before_and_after(tmp_path / f"a.{ending}", *case)
    assert dict(mpl.rcParams) == settings
    start = (tmp_path / f"a.{ending}").read_bytes()[:5]
    assert start.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending.lower()])
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{ending}"]


def test_before_and_after_without_bins(case, tmp_path):
    plots.save_before_and_after(tmp_path / "bins.svg", *case)
    plots.save_before_and_after(tmp_path / "corp.svg", *case, n_bins=None)
    assert (tmp_path / "bins.svg").read_bytes() != (tmp_path / "corp.svg").read_bytes()
    with pytest.raises(InputError):
        plots.save_before_and_after(tmp_path / "a.svg", *case, n_bins="smooth")


def test_pyplot_is_left_alone(case, tmp_path):
    from matplotlib import pyplot

    plots.save_before_and_after(tmp_path / "a.png", *case)
    assert pyplot.get_fignums() == []


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
        with pytest.raises(FileError):
            plots.save_before_and_after(tmp_path / name, scores, calibrator)
    with pytest.raises(FileError):
        plots.save_before_and_after(tmp_path / "none" / "a.png", scores, calibrator)
    with pytest.raises(InputError):
        plots.save_before_and_after(tmp_path / "a.png", Scores.from_logits(scores.values), calibrator)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_way_to_get_it_is_told(case, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw_it in (lambda: plots.save_before_and_after(tmp_path / "a.png", *case), plots.new_axes):
        with pytest.raises(MissingExtraError):
            draw_it()


def test_panels_are_lettered():
    assert [ax.get_title(loc="left") for ax in plots.new_axes(2, 2)] == ["a", "b", "c", "d"]
    assert {ax.get_title(loc="left") for ax in [*plots.new_axes(), *plots.new_axes(2, letters=False)]} == {""}
    many = plots.new_axes(9, 3)
    assert [ax.get_title(loc="left") for ax in many[25:]] == ["z", "aa"]
    left, _ = plots.new_axes(2, width=7.2)
    FigureCanvasAgg(left.figure).draw()
    box = left._left_title.get_window_extent()
    assert box.y0 >= left.bbox.y1  # above
    assert box.x1 <= left.bbox.x0  # and to the left
    assert left._left_title.get_fontweight() == "bold"


def test_text_of_files_can_be_edited(fitted, tmp_path):
    for what in DRAWN:
        ax = DRAWN[what](None, fitted, "a title, to be changed")
        plots.save(tmp_path / "a.svg", ax)
        svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
        texts = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
        assert "a title, to be changed" in texts
        missing = [text.get_text() for text in ax.texts if text.get_text() and text.get_text() not in texts]
        assert missing == [], what
        families = set(re.findall(r"font-family: ([^;\"]*)", svg)) | set(re.findall(r"font: [^;\"']*('[^;\"]*)", svg))
        assert families
        assert all(family.endswith("sans-serif") for family in families)


def test_new_axes_are_of_the_size_asked_for():
    axes = plots.new_axes(3, 2, width=7.2, height=2)
    assert len(axes) == 6
    assert axes[0].figure.get_size_inches().tolist() == [7.2, 4]
    for wrong in ({"columns": 0}, {"rows": -1}, {"width": 0}, {"height": np.nan}):
        with pytest.raises(InputError):
            plots.new_axes(**wrong)


# Nothing lies on anything else

SIZES = {"one column": (1, 3.5), "two columns": (2, 7.2)}


def boxes_of(figure):
    """Return all text that is drawn, with its box on paper."""
    found = {}
    draw_text = mpl.text.Text.draw

    def recorded(text, renderer, *more):
        draw_text(text, renderer, *more)
        if text.get_visible() and text.get_text().strip():
            found[text] = (text.get_text(), mpl.text.Text.get_window_extent(text, renderer))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpl.text.Text, "draw", recorded)
        FigureCanvasAgg(figure).draw()
    return list(found.values())


def overlapping(boxes):
    """Return pairs of texts that share more than a hair."""
    return [
        (a, b)
        for i, (a, one) in enumerate(boxes)
        for b, other in boxes[i + 1 :]
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]


def test_overlaps_are_found():
    [ax] = plots.new_axes()
    ax.text(0.5, 0.5, "one")
    ax.text(0.51, 0.5, "two")
    assert overlapping(boxes_of(ax.figure)) == [("one", "two")]


@every
@pytest.mark.parametrize("size", SIZES)
def test_no_text_lies_on_another_or_is_cut(what, size, fitted):
    columns, width = SIZES[size]
    axes = plots.new_axes(columns, width=width, height=3.6)
    for ax in axes:
        DRAWN[what](ax, fitted, "a title")
    boxes = boxes_of(axes[0].figure)
    assert overlapping(boxes) == []
    edge = axes[0].figure.bbox
    cut = [text for text, box in boxes if box.x0 < edge.x0 - 1 or box.x1 > edge.x1 + 1 or box.y1 > edge.y1 + 1]
    assert cut == []


@every
def test_nothing_is_hatched(what, fitted):
    ax = DRAWN[what](None, fitted)
    assert not [patch for patch in ax.patches if patch.get_hatch()]


def awkward():
    """Return labels and probabilities that have spoilt pictures."""
    rng = np.random.default_rng(0)
    many, few = rng.dirichlet(np.full(100, 0.05), 400), rng.dirichlet(np.ones(4), 30)
    good = rng.dirichlet([40, 1, 1], 2000)
    return {
        "two classes": (rng.integers(0, 2, 300), rng.dirichlet(np.ones(2), 300)),
        "a hundred classes": (np.where(np.arange(400) % 3, many.argmax(axis=1), 0), many),
        "thirty samples": (rng.integers(0, 4, 30), few),
        "99.9 % right": (np.where(np.arange(2000) % 1000, good.argmax(axis=1), 2), good),
        "all equal": (np.arange(60) % 3, np.full((60, 3), 1 / 3)),
        "two samples": (np.array([0, 1]), np.array([[0.7, 0.3], [0.6, 0.4]])),
    }


@pytest.mark.parametrize("name", awkward())
@pytest.mark.parametrize(
    "draw_it", [plots.plot_reliability, plots.plot_confidence, plots.plot_referral, plots.plot_risk_coverage]
)
def test_awkward_data_leave_the_text_apart(draw_it, name):
    y, p = awkward()[name]
    flat = p**0.4 / (p**0.4).sum(axis=1, keepdims=True)
    if draw_it in (plots.plot_referral, plots.plot_risk_coverage):
        ax = draw_it(y, {"none": p, "ts": flat}, chosen={"ts": 0.6})
    else:
        ax = draw_it(y, p)
    assert overlapping(boxes_of(ax.figure)) == []


def test_numbers_of_samples_stand_below_all_intervals(fitted):
    ax = plots.plot_reliability(fitted["table"])
    ax.figure.canvas.draw()
    floor = ax.transData.transform((0, 0))[1]
    numbers = [text for text in ax.texts if text.get_rotation() == 90]
    assert len(numbers) == (fitted["table"].weight > 0).sum()
    assert all(text.get_window_extent().y1 < floor for text in numbers)


@pytest.mark.parametrize("draw_it", [plots.plot_referral, plots.plot_risk_coverage])
def test_curves_that_fall_together_are_drawn_once_and_named_all(draw_it):
    rng = np.random.default_rng(0)
    c = np.linspace(0.51, 0.99, 2000)
    right = rng.random(2000) < c
    i = 1000 + int(np.flatnonzero(right[1000:-1] != right[1001:])[0])
    near = c.copy()
    near[[i, i + 1]] = near[[i + 1, i]]  # a right prediction and a wrong one change places
    found = {"ts": c, "ats": c.copy(), "bayes": near, "other": rng.permutation(c)}
    y, probs = (~right).astype(int), {name: np.column_stack([c, 1 - c]) for name, c in found.items()}
    ax = draw_it(y, probs)
    drawn = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert len(drawn) == 2
    np.testing.assert_array_equal(drawn[0].get_xdata(), draw_it(y, probs["ts"]).lines[-1].get_xdata())
    assert {"ts = ats ≈ bayes", "other"} <= set(written(ax))


def test_many_curves_have_a_legend(fitted):
    rng = np.random.default_rng(0)
    curves = {f"net {i}": rng.dirichlet(np.ones(4), 300) for i in range(7)}
    ax = plots.plot_referral(fitted["y"], curves)
    assert words(ax) == ["chance", *curves]
    assert overlapping(boxes_of(ax.figure)) == []


def test_a_label_stands_beside_its_line(fitted):
    ax = plots.plot_temperature(fitted["h"], fitted["y"])
    ax.figure.canvas.draw()
    lines = {"NLL": ax.lines[0], "ECE": twin_of(ax).lines[0]}
    for each in (ax, twin_of(ax)):
        for text in each.texts:
            centre = np.mean(text.get_window_extent().get_points(), axis=0)
            gaps = {
                name: np.hypot(*(line.get_transform().transform(line.get_xydata()) - centre).T).min()
                for name, line in lines.items()
            }
            assert min(gaps, key=gaps.get) == text.get_text()


def test_one_method_far_away_does_not_ruin_the_scale():
    rows = [Row(name, metrics={"nll": 0.5 + i / 100}) for i, name in enumerate(("none", "ts", "ats", "bayes"))]
    ax = plots.plot_comparison([*rows, Row("matrix", metrics={"nll": 33.0})])
    assert ax.get_xlim()[1] < 0.6
    assert [text.get_text() for text in ax.texts] == ["33"]
    assert [line.get_marker() for line in ax.lines][-1] == ">"
    alone = plots.plot_comparison([rows[0], Row("matrix", metrics={"nll": 33.0})])
    assert alone.get_xlim()[1] > 33  # with two rows nobody knows which one is odd


def test_methods_that_are_close_do_not_collapse_beside_an_uncalibrated_one():
    """The intervals of four calibrated methods take a quarter of the scale that the uncalibrated one would set."""
    close = {name: Estimate(0.67 + i / 1000, 0.63, 0.71) for i, name in enumerate(("ts", "ats", "bayes", "ets"))}
    rows = [Row("none", metrics={"nll": Estimate(0.89, 0.83, 0.96)})]
    rows += [Row(name, metrics={"nll": value}) for name, value in close.items()]
    ax = plots.plot_comparison(Comparison(tuple(rows), "bayes", "Use bayes."))
    assert ax.get_xlim()[1] < 0.75
    assert [text.get_text() for text in ax.texts] == ["0.89"]
    seen = [line for line in ax.lines if line.get_marker() == "o"]
    assert [colors.same_color(line.get_color(), styles.BLUE) for line in seen] == [False, False, False, True, False]
    bold = [tick.get_text() for tick in ax.get_yticklabels() if tick.get_fontweight() == "bold"]
    assert bold == ["bayes"]
    lowest = plots.plot_comparison(rows)  # without a recommendation
    assert [tick.get_text() for tick in lowest.get_yticklabels() if tick.get_fontweight() == "bold"] == ["ts"]


def test_a_group_of_few_samples_does_not_ruin_the_scale():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.9, 1, 9005)
    right = rng.random(len(c)) < c
    found = metrics.by_group(right, c, groups=np.where(np.arange(len(c)) < 5, "few", rng.integers(0, 4, len(c))))
    ax = plots.plot_groups(found)
    assert found["few"].gap.high > 2 * ax.get_xlim()[1]
    assert ">" in [line.get_marker() for line in ax.lines]
    values = [row.gap.value for row in found.by_group]
    assert ax.get_xlim()[0] < min(values)
    assert ax.get_xlim()[1] > max(values)  # every value is shown
    long = metrics.by_group(
        right, c, groups=np.repeat(["a class whose name is as long as a line " * 2, "b"], [5, 9000])
    )
    assert overlapping(boxes_of(plots.plot_groups(long).figure)) == []


def test_the_first_samples_decided_do_not_ruin_the_scale():
    coverage = np.linspace(0.001, 1, 1000)
    risk = np.where(coverage < 0.04, 1.0, 0.1 * coverage)
    ax = plots.plot_risk_coverage(RiskCoverage(1 - coverage, coverage, risk))
    assert 10 < ax.get_ylim()[1] < 12
    shown = ax.lines[0].get_xydata()
    assert shown[np.isfinite(shown[:, 1]), 0].min() == pytest.approx(2)  # 20 of 1000 samples
    assert ax.get_ylabel() == "error rate of decided predictions, %"
    few = plots.plot_risk_coverage(RiskCoverage(1 - coverage[::100], coverage[::100], risk[::100]), chosen=0.999)
    assert np.isnan(few.lines[0].get_ydata()).sum() == 1
    assert "t = 0.999" in written(few)  # a threshold in use is shown in any case


def test_the_walls_of_the_nll_do_not_hide_its_minimum(fitted):
    ax = plots.plot_temperature(50 * fitted["h"], fitted["y"], t_range=(0.5, 500))
    nll = ax.lines[0].get_ydata()
    assert ax.get_ylim()[1] < nll.max() / 3
    assert ax.get_ylim()[0] < nll.min()


def test_temperatures_that_fall_together_have_one_mark(fitted):
    ax = plots.plot_temperature(fitted["h"], fitted["y"], chosen={"none": 1, "ts": 2.0, "ats": 2.01, "bayes": 2.0})
    assert {"uncalibrated: T = 1", "ts, ats, bayes: T = 2–2.01"} <= set(written(ax))
    assert overlapping(boxes_of(ax.figure)) == []


def test_areas_differ_in_grey():
    light = [np.dot(colors.to_rgb(color), [0.2126, 0.7152, 0.0722]) for color in (styles.RIGHT, styles.AMISS)]
    assert abs(light[0] - light[1]) > 0.15


# Styles


def test_every_method_has_a_look_of_its_own():
    own = [name for name, method in METHODS.items() if METHODS.package_of(method) is None]  # not those of other tests
    looks = [styles.method_style(name) for name in ("none", *own)]
    assert len({style.marker for style in looks}) == len(looks)  # without colour
    assert len({style.linestyle for style in looks}) == len(looks)
    assert len({style.hatch for style in looks}) == len(looks)
    assert all(colors.is_color_like(style.color) for style in looks)


def test_other_names_have_what_the_methods_leave():
    found = styles.styled(["a", "bayes", "b", "c", "ts"])
    assert found["bayes"] == styles.method_style("bayes")
    assert len(set(found.values())) == 5
    many = styles.styled(str(i) for i in range(30))
    assert len(many) == 30
    assert len({many[str(i)] for i in range(8)}) == 8


# The data drawn are the data given


def bars_of(ax, color):
    return [p for p in ax.patches if p.get_fill() and colors.to_hex(p.get_facecolor()) == color.lower()]


def test_the_diagram_draws_the_table(case):
    scores, _ = case
    table = metrics.reliability(scores.labels, ScaleMap(1.0).apply(scores.logits))
    [ax] = plots.new_axes(height=3.6)
    plots.plot_reliability(table, title="before", ece=Estimate(0.1234, 0.1, 0.15), ax=ax)
    filled = table.weight > 0
    bars = bars_of(ax, styles.BAR)
    np.testing.assert_allclose([bar.get_height() for bar in bars], table.accuracy[filled])  # of the whole accuracy
    np.testing.assert_allclose([bar.get_x() for bar in bars], table.edges[:-1][filled])
    tops = [gap.get_y() + gap.get_height() for gap in gaps_of(ax)]
    np.testing.assert_allclose(tops, table.confidence[filled])
    assert {gap.get_alpha() for gap in gaps_of(ax)} == {styles.GAP_OPACITY}  # the bar below is seen
    [levels] = [lines for lines in ax.collections if lines.get_label() == "mean confidence"]
    np.testing.assert_allclose(np.array(levels.get_segments())[:, 0, 1], table.confidence[filled])
    [whiskers] = [lines for lines in ax.collections if lines.get_label() == "95 % interval"]
    ends = np.array(whiskers.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.column_stack([table.low[filled], table.high[filled]]))
    numbers = [text.get_text() for text in ax.texts]
    assert numbers == ["n", *(f"{n:.0f}" for n in table.weight[filled]), "ECE 12.3 % (95 % interval 10.0–15.0)"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("confidence", "accuracy", "before")
    assert words(ax) == ["accuracy", "mean confidence", "gap", "95 % interval", "calibrated"]
    assert ax.get_xlim() == (0, 1)
    assert ax.spines["left"].get_bounds() == (0, 1)


def test_a_bar_shows_the_whole_accuracy_above_the_confidence():
    ax = plots.plot_reliability([0] * 50, [[0.7, 0.3]] * 50)
    [bar], [gap] = bars_of(ax, styles.BAR), gaps_of(ax)
    assert bar.get_height() == 1
    np.testing.assert_allclose(sorted(gap.get_bbox().intervaly), [0.7, 1])
    assert gap.get_zorder() > bar.get_zorder()


def test_the_level_of_intervals_is_named(fitted):
    ax = plots.plot_reliability(fitted["y"], fitted["p"], confidence_level=0.9, ece=Estimate(0.1, 0.05, 0.15))
    assert "90 % interval" in words(ax)
    assert "ECE 10.0 % (90 % interval 5.0–15.0)" in [text.get_text() for text in ax.texts]
    binary = plots.plot_reliability(fitted["y"], fitted["p"], kind="full")
    assert words(binary)[:2] == ["observed frequency", "mean predicted probability"]


def test_the_diagram_has_the_colours_of_the_report():
    from importlib.resources import files

    css = (files("attemper.report") / "static" / "report.css").read_text()
    bar, level = (re.search(rf"--{name}: (#\w+);", css)[1] for name in ("bar", "dot"))  # the first: on white
    opacity = {name: float(re.search(rf"\.{name} {{ .*fill-opacity: ([\d.]+)", css)[1]) for name in ("bar", "gap")}
    light = 1 - opacity["bar"] * (1 - np.array(colors.to_rgb(bar)))
    np.testing.assert_allclose(colors.to_rgb(styles.BAR), light, atol=1 / 255)
    assert (styles.LEVEL.lower(), styles.GAP_OPACITY) == (level, opacity["gap"])


def test_the_diagram_draws_the_curve_without_bins(fitted):
    curve = metrics.corp_reliability(fitted["y"], fitted["p"], n_resamples=20)
    parts = metrics.decompose(fitted["y"], fitted["p"], kind="top", confidence_level=0.95, n_resamples=20)
    [ax] = plots.new_axes()
    plots.plot_reliability(curve, ece=0.1, parts=parts, ax=ax)
    drawn = line_of(ax, "isotonic regression")
    np.testing.assert_array_equal(drawn.get_xydata(), np.column_stack([curve.confidence, curve.accuracy]))
    [band] = ax.collections
    assert words(ax) == ["isotonic regression", "band if calibrated", "calibrated"]
    assert band.get_label() == "band if calibrated"
    ends = band.get_paths()[0].get_extents()
    np.testing.assert_allclose([ends.ymin, ends.ymax], [curve.low.min(), curve.high.max()])
    lines = [text.get_text() for text in ax.texts]
    assert [line.split()[0] for line in lines] == ["ECE", "MCB", "DSC", "UNC"]
    assert f"{parts.miscalibration.value:.4f} (95 % interval {parts.miscalibration.low:.4f}–" in lines[1]
    bars = bars_of(ax, colors.to_hex(styles.GREY))
    assert max(bar.get_height() for bar in bars) == pytest.approx(0.9 * 0.12)
    assert {bar.get_y() for bar in bars} == {-0.12}  # below the diagram
    [ax] = plots.new_axes()
    around = metrics.corp_reliability([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], band="confidence", n_resamples=5)
    plots.plot_reliability(around, counts=False, parts=metrics.decompose([0], [[0.9, 0.1]]), ax=ax)
    assert not ax.patches
    assert line_of(ax, "isotonic regression").get_marker() == "o"  # few points
    assert ax.collections[0].get_label() == "confidence band"
    assert ax.texts[0].get_text() == "MCB 0.0200"


def test_numbers_of_samples_are_left_out_on_request_and_where_there_is_no_room(fitted):
    [ax] = plots.new_axes()
    plots.plot_reliability(fitted["table"], counts=False, ece=False, ax=ax)
    assert not ax.texts
    narrow = metrics.reliability(fitted["y"], fitted["p"], n_bins=20, strategy="quantile")
    plots.plot_reliability(narrow, ax=ax)
    assert 1 < len(ax.texts) < 20


def test_one_call_draws_what_the_table_draws(fitted):
    y, p = fitted["y"], fitted["p"]
    scores = Scores.from_logits(fitted["h"], y)
    for options in ({}, {"n_bins": 5, "strategy": "quantile"}, {"kind": "full"}):
        table = metrics.reliability(y, p, **options)
        drawn = [plots.plot_reliability(table), plots.plot_reliability(y, p, **options)]
        drawn.append(plots.plot_reliability(scores, **options))
        for ax in drawn:
            bars = [(bar.get_x(), bar.get_height()) for bar in bars_of(ax, styles.BAR)]
            expected = np.stack([table.edges[:-1], table.accuracy], axis=1)[table.weight > 0]
            np.testing.assert_allclose(bars, expected, rtol=1e-6)
        if "kind" not in options:
            assert f"ECE {100 * metrics.ece(y, p, **options):.1f} %" in [text.get_text() for text in drawn[1].texts]
    assert plots.plot_reliability(y, p, kind="full").get_xlabel() == "predicted probability"
    assert not plots.plot_reliability(y, p, ece=False, counts=False).texts
    without = plots.plot_reliability(y, p, n_bins=None, n_resamples=20)
    np.testing.assert_array_equal(line_of(without, "isotonic regression").get_xdata(), fitted["corp"].confidence)
    with pytest.raises(InputError):
        plots.plot_reliability(fitted["table"], p)


def test_plots_take_what_metrics_take():
    """One column with the name of its class, images with the classes along an axis, soft labels."""
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = np.where(rng.random(200) < p, "yes", "no")
    two, numbers = np.column_stack([1 - p, p]), (y == "yes").astype(int)
    for draw_it in (plots.plot_reliability, plots.plot_confidence, plots.plot_referral, plots.plot_risk_coverage):
        same(draw_it(y, p, classes=["no", "yes"]), draw_it(numbers, two))
    one = plots.plot_temperature(np.log(p / (1 - p)), y, classes=["no", "yes"])
    same(one, plots.plot_temperature(np.log(two), numbers))
    images = rng.dirichlet(np.ones(3), (4, 5, 6))
    truth = rng.integers(0, 3, (4, 5, 6))
    truth[:, 0] = 255
    counted = truth != 255
    drawn = plots.plot_reliability(truth, np.moveaxis(images, -1, 1), axis=1, ignore_index=255)
    assert len(bars_of(drawn, styles.BAR)) == len(
        bars_of(plots.plot_reliability(truth[counted], images[counted]), styles.BAR)
    )
    soft = np.eye(3)[truth[counted]]
    same(plots.plot_reliability(soft, images[counted]), plots.plot_reliability(truth[counted], images[counted]))


def same(one, other):
    """Assert that two pictures show the same numbers."""
    for a, b in zip(one.lines, other.lines, strict=True):
        np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), atol=1e-9)
    for a, b in zip(one.patches, other.patches, strict=True):
        np.testing.assert_allclose(a.get_bbox().get_points(), b.get_bbox().get_points(), atol=1e-9)


@pytest.mark.parametrize(
    ("draw_it", "compute"),
    [
        (plots.plot_referral, metrics.referral_curve),
        (plots.plot_risk_coverage, metrics.risk_coverage_curve),
    ],
)
def test_one_call_draws_the_curves(draw_it, compute, fitted):
    y, p, after = fitted["y"], fitted["p"], fitted["bayes"].predict_proba(fitted["h"])
    curves = {"none": compute(y, p), "bayes": compute(y, after)}
    one, two = draw_it(curves), draw_it(y, {"none": p, "bayes": after})
    assert {"uncalibrated", "bayes"} <= set(written(one)) or "uncalibrated ≈ bayes" in written(one)
    assert written(one) == written(two)
    for a, b in zip(one.lines, two.lines, strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())
    weights = np.arange(len(y)) + 1.0
    alone = draw_it(y, p, sample_weight=weights)
    expected = draw_it(compute(y, p, sample_weight=weights))
    np.testing.assert_array_equal(alone.lines[-1].get_xydata(), expected.lines[-1].get_xydata())
    assert set(written(alone)) <= {"chance"}  # the only line needs no name
    assert "t = 0.5" in written(draw_it(y, p, chosen=0.5))
    with pytest.raises(InputError):
        draw_it(curves, p)


def test_bins_without_samples_stay_empty():
    table = metrics.reliability([0, 0], np.array([[0.9, 0.1], [0.05, 0.95]]))
    ax = Figure().subplots()
    plots.plot_reliability(table, ax=ax)
    assert len(gaps_of(ax)) == (table.weight > 0).sum() < 3


def test_a_table_for_each_class_is_refused(fitted):
    table = metrics.reliability(fitted["y"], fitted["p"], kind="classwise")
    with pytest.raises(InputError):
        plots.plot_reliability(table, ax=Figure().subplots())


def test_before_and_after_stand_side_by_side(fitted):
    y, p, after = fitted["y"], fitted["p"], fitted["bayes"].predict_proba(fitted["h"])
    axes = plots.plot_before_after(y, p, after, titles=("a", "b"))
    assert [ax.get_title() for ax in axes] == ["a", "b"]
    errors = [100 * metrics.ece(y, probs) for probs in (p, after)]
    assert [ax.texts[-1].get_text() for ax in axes] == [f"ECE {error:.1f} %" for error in errors]
    assert words(axes[0]) == ["accuracy", "mean confidence", "gap", "95 % interval", "calibrated"]
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]
    table = metrics.reliability(y, after)
    np.testing.assert_allclose(
        [bar.get_height() for bar in bars_of(axes[1], styles.BAR)], table.accuracy[table.weight > 0]
    )
    own = plots.new_axes(2, width=7.2)
    without = plots.plot_before_after(y, p, after, ece=(0.1, False), counts=False, n_bins=None, axes=own)
    assert list(without) == own
    assert [[text.get_text() for text in ax.texts] for ax in own] == [["ECE 10.0 %"], []]
    assert line_of(own[1], "isotonic regression")
    with pytest.raises(InputError):
        plots.plot_before_after(y, p, after, axes=own[:1])


def test_the_histogram_counts_right_and_wrong_answers(fitted):
    ax = Figure().subplots()
    p, y = fitted["p"], fitted["y"]
    plots.plot_confidence(y, p, n_bins=10, ax=ax)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.arange(11) / 10
    for of, bars in ((right, bars_of(ax, styles.RIGHT)), (~right, bars_of(ax, styles.AMISS))):
        counts = np.histogram(confidence[of], edges)[0]
        found = dict.fromkeys(range(10), 0.0) | {round(10 * bar.get_x()): bar.get_height() for bar in bars}
        np.testing.assert_allclose(list(found.values()), 100 * counts / len(y), atol=1e-9)
    assert [line.get_xdata()[0] for line in ax.lines] == pytest.approx([confidence.mean(), right.mean()])
    assert f"accuracy {100 * right.mean():.1f} %" in written(ax)


def test_the_histogram_counts_weights_as_repeats(fitted):
    one, two = Figure().subplots(1, 2)
    rows = np.repeat(np.arange(300), 1 + np.arange(300) % 3)
    plots.plot_confidence(fitted["y"], fitted["p"], sample_weight=1 + np.arange(300) % 3, ax=one)
    plots.plot_confidence(fitted["y"][rows], fitted["p"][rows], ax=two)
    np.testing.assert_allclose([p.get_height() for p in one.patches], [p.get_height() for p in two.patches])


def test_curves_are_drawn_as_they_are(fitted):
    one, two = Figure().subplots(1, 2)
    curve = fitted["curve"]
    at = curve.threshold.searchsorted(0.7, side="right") - 1
    plots.plot_referral({"mine": curve}, thresholds=np.arange(21) / 20, chosen={"mine": 0.7}, ax=one)
    plots.plot_risk_coverage({"none": risk_of(curve)}, chosen=0.7, ax=two)
    for ax, label, x, y in (
        (one, "mine", curve.correct_decided, curve.errors_referred),
        (two, "uncalibrated", 1 - curve.referred, curve.error_rate_decided),
    ):
        line = line_of(ax, label)
        drawn = np.isfinite(line.get_ydata()) | (ax is one)
        np.testing.assert_allclose(line.get_xdata(), 100 * x)
        np.testing.assert_allclose(line.get_ydata()[drawn], 100 * y[drawn])
        assert drawn[x >= 0.05].all()
        circle = ax.lines[-1]
        assert (*circle.get_xdata(), *circle.get_ydata()) == pytest.approx((100 * x[at], 100 * y[at]))
        assert "t = 0.7" in written(ax)
    paper = metrics.referral_curve(fitted["y"], fitted["p"], thresholds="paper")
    marked = line_of(one, "mine").get_markevery()
    np.testing.assert_allclose(
        np.unique(curve.errors_referred[marked]), np.unique(paper.errors_referred)
    )  # thresholds that refer the same samples are one point
    assert line_of(one, "mine").get_marker() == "o"


def test_curves_that_make_no_sense_are_refused(fitted):
    ax = Figure().subplots()
    for wrong in ({}, {"ts": fitted["p"]}):
        with pytest.raises(InputError):
            plots.plot_referral(wrong, ax=ax)
    with pytest.raises(InputError):
        plots.plot_referral([fitted["curve"]], ax=ax)
    with pytest.raises(InputError):
        plots.plot_referral({"a": fitted["curve"]}, chosen={"b": 0.5}, ax=ax)
    for t in (-0.1, 1.5, np.nan):
        with pytest.raises(InputError):
            plots.plot_risk_coverage({"a": risk_of(fitted["curve"])}, chosen=t, ax=ax)
    assert not ax.lines


@pytest.mark.parametrize("apart", [False, True])
def test_nll_and_ece_are_those_of_the_metrics(fitted, apart):
    h, y = fitted["h"], fitted["y"]
    ax, *more = Figure().subplots(1, 2) if apart else [Figure().subplots()]
    plots.plot_temperature(h, y, t_range=(0.5, 4), chosen={"ts": 6.0}, ece_ax=more[0] if apart else None, ax=ax)
    other = twin_of(ax)
    for axis, label, value in (
        (ax, "NLL", lambda p: metrics.nll(y, p)),
        (other, "ECE, %", lambda p: 100 * metrics.ece(y, p)),
    ):
        line = line_of(axis, label)
        t = line.get_xdata()
        assert (t[0], t[-1]) == pytest.approx((0.5, 6))  # as far as what was chosen
        for i in (0, 40, 80):
            assert line.get_ydata()[i] == pytest.approx(value(ScaleMap(1 / t[i]).apply(h)))
        assert (axis.get_xscale(), axis.get_xlim()) == ("log", pytest.approx((0.5, 6)))
    mark = line_of(ax, "ts: T = 6")
    assert mark.get_ydata()[0] == pytest.approx(metrics.nll(y, ScaleMap(1 / 6).apply(h)))
    assert "ts: T = 6" in written(ax)
    assert ("NLL" in written(ax)) != apart  # Axes of its own have its name already


def test_scores_bring_weights_and_masks(fitted):
    h, y = fitted["h"].copy(), fitted["y"]
    h[:100, 3] = np.where(y[:100] == 3, h[:100, 3], -np.inf)
    one, two = Figure().subplots(1, 2)
    w = 1.0 + np.arange(300) % 2
    plots.plot_temperature(Scores.from_logits(h, y, sample_weight=w), ax=one)
    rows = np.repeat(np.arange(300), w.astype(int))
    plots.plot_temperature(h[rows], y[rows], ax=two)
    np.testing.assert_allclose(one.lines[0].get_ydata(), two.lines[0].get_ydata())


@pytest.mark.parametrize("what", ["temperature", "theta"])
def test_each_scale_has_the_colour_of_its_line(what, fitted):
    ax = DRAWN[what](None, fitted)
    shades = []
    for each, side in ((ax, "left"), (twin_of(ax), "right")):
        line, name = colors.to_rgb(each.lines[0].get_color()), colors.to_rgb(each.yaxis.label.get_color())
        np.testing.assert_allclose(name, 0.65 * np.array(line))  # darker, to be read
        assert colors.same_color(each.spines[side].get_edgecolor(), name)
        assert all(colors.same_color(tick.get_color(), name) for tick in each.get_yticklabels())
        shades.append(name)
    assert shades[0] != shades[1]
    assert not twin_of(ax).spines["left"].get_visible()
    known = [styles.method_style(name) for name in ("ts", "ats")]
    for line in (ax.lines[0], twin_of(ax).lines[0]):
        assert not any(colors.same_color(line.get_color(), style.color) for style in known)


def test_two_lines_of_a_plan_are_named_with_their_quantities(fitted):
    plan = planning.labels_for_certificate(fitted["h"], fitted["y"], max_miss=0.4, decided_share=0.3, n_simulations=20)
    ax = plots.plot_plan(plan)
    assert ax.get_ylabel() == "probability or share, %"
    assert {"probability of a certificate", "share of predictions decided"} <= set(written(ax))


def test_temperatures_that_make_no_sense_are_refused(fitted):
    ax = Figure().subplots()
    h, y = fitted["h"], fitted["y"]
    for t in (0, -1, np.inf, np.nan, None, "2"):
        with pytest.raises(InputError):
            plots.plot_temperature(h, y, chosen={"ts": t}, ax=ax)
    with pytest.raises(InputError):
        plots.plot_temperature(h, y, chosen=2.0, ax=ax)
    with pytest.raises(InputError):
        plots.plot_temperature(h, ax=ax)
    with pytest.raises(InputError):
        plots.plot_temperature(Scores.from_logits(h, y), y, ax=ax)
    with pytest.raises(InputError):
        plots.plot_temperature(h, y, t_range=(2, 1), ax=ax)
    assert not ax.lines


@pytest.mark.parametrize("t_range", [(0.3, 5), (1.21, 1.24), (1e-3, 1e3), (0.01, 1e8)])
def test_some_temperatures_are_written_on_the_axis(t_range, fitted):
    [ax] = plots.new_axes()
    plots.plot_temperature(fitted["h"], fitted["y"], t_range=t_range, ax=ax)
    ax.figure.canvas.draw()
    shown = [float(tick.get_text()) for tick in ax.get_xticklabels() if tick.get_text()]
    assert 2 <= len(shown) <= 12


@pytest.mark.parametrize("theta", [None, 0.03])
def test_the_theta_path_is_drawn_as_it_is(fitted, theta):
    ats = AttendedTemperatureScaling(theta=theta).fit(fitted["h"], fitted["y"])
    ax = Figure().subplots()
    plots.plot_theta(ats, ax=ax)
    other = twin_of(ax)
    np.testing.assert_array_equal(line_of(ax, "T(θ)").get_xydata().T, [ats.path_.theta, ats.path_.temperature])
    np.testing.assert_array_equal(other.lines[0].get_xydata().T, [ats.path_.theta, ats.path_.nll])
    chosen = f"chosen: θ = {ats.theta_:.3g}, T = {ats.temperature_:.3g}"
    assert line_of(ax, chosen).get_xydata().tolist() == [[ats.theta_, ats.temperature_]]
    assert chosen in written(ax)


def test_the_posterior_of_t_is_that_of_the_fit(fitted):
    bayes = fitted["bayes"]
    ax = Figure().subplots()
    plots.plot_posterior(bayes, ax=ax)
    t, density = ax.lines[0].get_data()
    assert np.trapezoid(density, t) == pytest.approx(1, abs=0.01)
    [area] = ax.collections
    assert area.get_datalim(ax.transData).intervalx == pytest.approx(bayes.temperature_interval_)
    assert ax.lines[1].get_xdata()[0] == bayes.temperature_


@pytest.mark.parametrize("noise", [0, 3, 5])
def test_the_joint_posterior_has_the_marginals_of_the_fit(noise):
    h, y = draw(300, 4)
    if noise:
        y = np.where(np.arange(300) % noise, y, (y + np.arange(300)) % 4)
    bayes = BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, y)
    t, rate, weight, area = joint.joint(bayes, Sketch.of(h, y))
    assert weight.sum() == pytest.approx(1)
    assert weight.shape == area.shape == (len(t), len(rate))
    of_t, of_rate = weight.sum(axis=1), weight.sum(axis=0)
    assert of_rate @ rate == pytest.approx(bayes.noise_rate_, abs=0.003)
    for marginal, at, middle, interval in (
        (of_t, t, bayes.temperature_, bayes.temperature_interval_),
        (of_rate, rate, None, bayes.noise_interval_),
    ):
        reached = np.cumsum(marginal) - marginal / 2
        if middle is None:  # the shortest interval of a rate
            low, high = shortest_interval(np.append(0.0, at), np.append(0.0, reached), 0.95)
            assert (low, high) == pytest.approx(interval, abs=0.02)
            continue
        low, median, high = np.interp([0.025, 0.5, 0.975], reached, at)
        assert (low, high) == pytest.approx(interval, rel=0.02, abs=0.01)  # the grid of the fit is coarser
        assert median == pytest.approx(middle, rel=0.005)


def test_the_regions_hold_what_they_say(fitted):
    bayes = fitted["bayes"]
    ax = Figure().subplots()
    plots.plot_posterior(bayes, fitted["sketch"], ax=ax)
    t, rate, weight, _ = joint.joint(bayes, fitted["sketch"])
    points = np.stack(np.meshgrid(t, 100 * rate, indexing="ij"), axis=-1).reshape(-1, 2)
    outline = ax.collections[1]
    held = [weight.ravel()[path.contains_points(points)].sum() for path in outline.get_paths()]
    assert held == pytest.approx([0.95, 0.5], abs=0.01)
    assert "95 % of it" in words(ax)


def test_what_has_no_joint_posterior_is_told(fitted):
    h, y, sketch = fitted["h"], fitted["y"], fitted["sketch"]
    ax = Figure().subplots()
    clean = BayesianTemperatureScaling().fit(h, y)
    with pytest.raises(InputError):
        plots.plot_posterior(clean, sketch, ax=ax)
    auto = BayesianTemperatureScaling(labels="noisy")
    with pytest.raises(InputError):
        plots.plot_posterior(auto.fit(h, y), sketch, ax=ax)
    plots.plot_posterior(auto.fit_sketch(sketch), sketch, ax=ax)
    for other in (Sketch.of(h[:200], y[:200]), Sketch.of(h, y, t_range=(2, 20))):
        with pytest.raises(InputError):
            plots.plot_posterior(fitted["bayes"], other, ax=ax)
    with pytest.raises(InputError):
        plots.plot_posterior(fitted["bayes"], Sketch.of(h, y, parts=["uniform"]), ax=ax)
    with pytest.raises(InputTypeError):
        plots.plot_posterior(fitted["bayes"], h, ax=ax)


def test_calibrators_are_fitted_and_of_the_kind_that_has_it(fitted):
    ax = Figure().subplots()
    for draw_it, kind in (
        (plots.plot_theta, AttendedTemperatureScaling),
        (plots.plot_posterior, BayesianTemperatureScaling),
    ):
        with pytest.raises(NotFittedError):
            draw_it(kind(), ax=ax)
        with pytest.raises(InputTypeError):
            draw_it(TemperatureScaling(), ax=ax)
    assert not ax.lines


def test_a_calibrator_from_a_file_is_drawn_too(fitted, tmp_path):
    import attemper

    for name, draw_it in (("ats", plots.plot_theta), ("bayes", plots.plot_posterior)):
        fitted[name].save(tmp_path / "a.json")
        one, two = Figure().subplots(1, 2)
        draw_it(fitted[name], ax=one)
        draw_it(attemper.load(tmp_path / "a.json"), ax=two)
        for a, b in zip(one.lines, two.lines):
            np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())


def test_methods_stand_one_below_the_other():
    ax = Figure().subplots()
    rows = (
        Row("none", metrics={"nll": Estimate(0.8, 0.7, 0.9), "accuracy": 0.5}),
        Row("isotonic", metrics={"nll": np.inf, "accuracy": 0.6}),
        Row("matrix", failure="too many"),
        Row("bayes", metrics={"nll": 0.6, "accuracy": 0.7}),
    )
    plots.plot_comparison(Comparison(rows, "bayes", "Use bayes."), ax=ax)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["uncalibrated", "isotonic", "matrix", "bayes"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in ax.lines[:4]] == [
        (0.7, 0.9, 0, 0),
        (0.8, 0),
        (0.6, 0.6, 3, 3),
        (0.6, 3),
    ]
    assert ax.lines[4].get_xdata()[0] == 0.6  # the best
    assert [(text.get_text(), text.get_position()[1]) for text in ax.texts] == [("infinite", 1), ("no result", 2)]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # from top to bottom
    plots.plot_comparison(
        Comparison(rows, "bayes", "Use bayes.", confidence_set=("bayes",)), ax=(marked := Figure().subplots())
    )
    assert [line.get_markerfacecolor() == "white" for line in marked.lines if line.get_marker() != "None"] == [
        True,
        False,
    ]
    plots.plot_comparison(rows, metric="accuracy", ax=(other := Figure().subplots()))
    assert other.lines[-1].get_xdata()[0] == 0.7
    with pytest.raises(InputError):
        plots.plot_comparison(rows, metric="f1", ax=ax)
    with pytest.raises(InputError):
        plots.plot_comparison([], ax=ax)


def test_methods_that_all_failed_are_still_a_picture():
    [ax] = plots.new_axes()
    plots.plot_comparison([Row("ts", failure="no"), Row("ats", failure="no")], ax=ax)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["no result"] * 2


# Any data, any array


@pytest.mark.slow
@given(cases(max_rows=6, max_classes=4))
@settings(max_examples=15)
@pytest.mark.filterwarnings("ignore::attemper.errors.AttemperWarning")
def test_small_and_one_sided_data_can_be_drawn(case):
    h, y = case
    p = ScaleMap(1.0).apply(h)
    axes = plots.new_axes(2, 3)
    plots.plot_reliability(metrics.reliability(y, p), ax=axes[0])
    plots.plot_confidence(y, p, ax=axes[1])
    plots.plot_temperature(h, y, ax=axes[2])
    plots.plot_theta(AttendedTemperatureScaling().fit(h, y), ax=axes[3])
    bayes = BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, y)
    plots.plot_posterior(bayes, ax=axes[4])
    plots.plot_posterior(bayes, Sketch.of(h, y), ax=axes[5])
    axes[0].figure.canvas.draw()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.filterwarnings("ignore::attemper.errors.AttemperWarning")
def test_one_sample_of_two_classes_can_be_drawn(label, tmp_path):
    scores = Scores.from_logits([[2.0, 0.5]], [label])
    plots.save_before_and_after(tmp_path / "a.png", scores, BayesianTemperatureScaling().fit(scores))
    axes = plots.new_axes(2)
    plots.plot_temperature(scores, ax=axes[0])
    plots.plot_risk_coverage({"a": RiskCoverage(np.zeros(1), np.ones(1), np.full(1, float(label)))}, ax=axes[1])
    axes[0].figure.canvas.draw()


def test_torch_tensors_are_drawn_as_arrays_are(fitted):
    h, y = torch.tensor(fitted["h"], requires_grad=True), torch.tensor(fitted["y"])
    p = torch.softmax(h, 1)
    for draw_it, one, other in (
        (plots.plot_confidence, (fitted["y"], fitted["p"]), (y, p)),
        (plots.plot_temperature, (fitted["h"], fitted["y"]), (h, y)),
        (plots.plot_reliability, (fitted["table"],), (metrics.reliability(y, p),)),
    ):
        first, second = Figure().subplots(1, 2)
        draw_it(*one, ax=first)
        draw_it(*other, ax=second)
        for a, b in zip(first.lines, second.lines):
            np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), rtol=1e-6)
        for a, b in zip(first.patches, second.patches):
            np.testing.assert_allclose(a.get_bbox().get_points(), b.get_bbox().get_points(), atol=1e-6)
    curve = RiskCoverage(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5]), torch.tensor([0.2, 0.1]))
    ax = Figure().subplots()
    plots.plot_risk_coverage({"torch": curve}, chosen=0.5, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [20, 10])


@pytest.mark.slow
def test_a_notebook_shows_what_is_drawn(tmp_path):
    """A real kernel of Jupyter: the picture is below the cell, wherever in the cell it was drawn."""
    import nbclient
    import nbformat

    cell = """
import numpy as np
import attemper
from attemper import plots
rng = np.random.default_rng(0)
p = rng.dirichlet(np.ones(3), 200)
plots.plot_reliability(p.argmax(axis=1), p)
try:
    plots.plot_reliability([0], p)
except attemper.InputError:
    done = True
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own packages
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    kinds = [set(output.get("data", ())) for output in notebook.cells[0].outputs]
    assert sum("image/png" in kind for kind in kinds) == 1


# Groups


def grouped(n_groups, n=30, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 1, n_groups * n)
    right = rng.random(len(c)) < np.where(np.arange(len(c)) < n, 0.3, c)  # the first one is overconfident
    return metrics.by_group(right, c, groups=np.repeat(np.arange(n_groups), n), n_resamples=20)


def test_groups_have_their_gaps_and_those_beyond_chance_are_filled():
    found = grouped(4)
    [ax] = plots.new_axes()
    plots.plot_groups(found, ax=ax)
    markers = [line for line in ax.lines if line.get_marker() in ("o", "D")]
    assert [line.get_xdata()[0] for line in markers] == [
        *(row.gap.value for row in found.by_group),
        found.all.gap.value,
    ]
    hollow = [line.get_markerfacecolor() == "white" for line in markers]
    assert hollow == [False, True, True, True, False]
    spans = [tuple(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 1]
    assert spans[0] == found[0].gap[1:]
    assert [text.get_text() for text in ax.get_yticklabels()][-1] == "all (120)"


def test_groups_by_other_metrics_and_without_values():
    found = grouped(3, n=2)
    ax = plots.plot_groups(found, metric="ece_debiased")
    assert any(text.get_text() == "no value" for text in ax.texts) or len(ax.lines) > 1
    assert ax.get_xlabel() == "calibration error, debiased"
    assert plots.plot_groups(found, metric="accuracy").get_xlabel() == "accuracy"


def test_of_many_groups_the_farthest_are_drawn():
    ax = plots.plot_groups(grouped(100, n=10))
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert len(labels) == 41
    assert labels[0] == "0 (10)"


def test_groups_that_are_none():
    with pytest.raises(InputTypeError):
        plots.plot_groups({})
    with pytest.raises(InputError):
        plots.plot_groups(grouped(2), metric="f1")
