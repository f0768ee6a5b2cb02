"""Plots: the data drawn are those of the metrics, on the Axes given, and nothing global changes."""

from __future__ import annotations

import sys
from collections import namedtuple

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import attemper
from attemper import (
    BayesianTemperatureScaling,
    FileError,
    InputError,
    InputTypeError,
    MissingExtraError,
    NotFittedError,
    Scores,
    TemperatureScaling,
    metrics,
    plots,
)
from attemper.comparison import Comparison, Row, compare
from attemper.maps import ScaleMap
from attemper.metrics import Estimate

from data import draw

RiskCoverage = namedtuple("RiskCoverage", "threshold coverage risk")


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
        "bayes": BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, y),
        "curve": metrics.referral_curve(y, p),
        "rows": compare(Scores.from_logits(h[::2], y[::2]), Scores.from_logits(h[1::2], y[1::2]), ["ts", "vector"]),
        "groups": metrics.by_group(y, p, groups=np.arange(len(y)) % 3, n_resamples=20),
    }


DRAWN = {
    "reliability": lambda f, **how: plots.plot_reliability(f["table"], ece=0.1, **how),
    "corp": lambda f, **how: plots.plot_reliability(f["corp"], **how),
    "referral": lambda f, **how: plots.plot_referral({"ts": f["curve"]}, chosen=0.5, **how),
    "risk": lambda f, **how: plots.plot_risk_coverage(f["y"], {"ts": f["p"]}, chosen=0.5, **how),
    "temperature": lambda f, **how: plots.plot_temperature(f["h"], f["y"], chosen={"ts": 2}, **how),
    "posterior": lambda f, **how: plots.plot_posterior(f["bayes"], **how),
    "comparison": lambda f, **how: plots.plot_comparison(f["rows"], **how),
    "groups": lambda f, **how: plots.plot_groups(f["groups"], **how),
}
every = pytest.mark.parametrize("what", list(DRAWN))


def line_of(ax, label):
    [line] = [line for line in ax.lines if line.get_label() == label]
    return line


def bars_of(ax, label):
    [bars] = [bars for bars in ax.containers if bars.get_label() == label]
    return list(bars)


def same(one, other):
    """Assert that two plots show the same numbers."""
    for a, b in zip(one.lines, other.lines, strict=True):
        np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), rtol=1e-6, atol=1e-9)
    for a, b in zip(one.patches, other.patches, strict=True):
        np.testing.assert_allclose(a.get_bbox().get_points(), b.get_bbox().get_points(), atol=1e-6)


@every
def test_it_is_drawn_on_the_axes_given_and_nothing_else_changes(what, fitted):
    from matplotlib import pyplot

    settings = dict(mpl.rcParams)
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    before = [len(other.get_children()), other.get_xlim(), other.get_ylim(), other.get_xlabel()]
    assert DRAWN[what](fitted, ax=ax, title="a $title$") is ax
    figure.canvas.draw()
    assert [len(other.get_children()), other.get_xlim(), other.get_ylim(), other.get_xlabel()] == before
    assert isinstance(DRAWN[what](fitted), mpl.axes.Axes)
    assert dict(mpl.rcParams) == settings
    assert pyplot.get_fignums() == []
    assert ax.get_title() == r"a \$title\$"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "PNG"])
def test_before_and_after_is_written_whole(ending, fitted, tmp_path):
    scores = Scores.from_logits(fitted["h"], fitted["y"])
    plots.save_before_and_after(tmp_path / f"a.{ending}", scores, fitted["bayes"], n_bins=None)
    start = (tmp_path / f"a.{ending}").read_bytes()[:5]
    assert start.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending.lower()])
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{ending}"]
    for name in ("a.bmp", "none/a.png"):
        with pytest.raises(FileError):
            plots.save_before_and_after(tmp_path / name, scores, fitted["bayes"])


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        plots.new_axes()


# Reliability


def test_the_diagram_draws_the_table(fitted):
    table = fitted["table"]
    ax = plots.plot_reliability(table, ece=Estimate(0.1234, 0.1, 0.15))
    filled = table.weight > 0
    bars = bars_of(ax, "accuracy")
    np.testing.assert_allclose([bar.get_height() for bar in bars], table.accuracy[filled])
    np.testing.assert_allclose([bar.get_x() for bar in bars], table.edges[:-1][filled])
    tops = [gap.get_y() + gap.get_height() for gap in bars_of(ax, "gap")]
    np.testing.assert_allclose(tops, table.confidence[filled])
    [levels] = [lines for lines in ax.collections if lines.get_label() == "mean confidence"]
    np.testing.assert_allclose(np.array(levels.get_segments())[:, 0, 1], table.confidence[filled])
    [whiskers] = [lines for lines in ax.collections if lines.get_label() == "95 % interval"]
    ends = np.array(whiskers.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.column_stack([table.low[filled], table.high[filled]]))
    assert [text.get_text() for text in ax.texts] == [f"{n:.0f}" for n in table.weight[filled]]
    assert ax.get_legend().get_title().get_text() == "ECE 12.3 % (95 % interval 10.0–15.0)"


def test_the_diagram_draws_the_curve_without_bins(fitted):
    curve = fitted["corp"]
    parts = metrics.decompose(fitted["y"], fitted["p"], kind="top")
    ax = plots.plot_reliability(curve, parts=parts)
    drawn = line_of(ax, "isotonic regression").get_xydata()
    np.testing.assert_array_equal(drawn, np.column_stack([curve.confidence, curve.accuracy]))
    [band] = ax.collections
    ends = band.get_paths()[0].get_extents()
    np.testing.assert_allclose([ends.ymin, ends.ymax], [curve.low.min(), curve.high.max()])
    assert f"MCB {parts.miscalibration:.4f}" in ax.get_legend().get_title().get_text()
    assert {bar.get_y() for bar in ax.patches} == {-0.12}  # the histogram is below the diagram


def test_one_call_draws_what_the_table_draws(fitted):
    y, p = fitted["y"], fitted["p"]
    scores = Scores.from_logits(fitted["h"], y)
    for options in ({}, {"n_bins": 5, "strategy": "quantile"}, {"kind": "full"}):
        table = plots.plot_reliability(metrics.reliability(y, p, **options))
        for ax in (plots.plot_reliability(y, p, **options), plots.plot_reliability(scores, **options)):
            same(table, ax)
    ax = plots.plot_reliability(y, p)
    assert ax.get_legend().get_title().get_text() == f"ECE {100 * metrics.ece(y, p):.1f} %"
    without = plots.plot_reliability(y, p, n_bins=None, n_resamples=20)
    np.testing.assert_array_equal(line_of(without, "isotonic regression").get_xdata(), fitted["corp"].confidence)
    with pytest.raises(InputError):
        plots.plot_reliability(fitted["table"], p)
    with pytest.raises(InputError):
        plots.plot_reliability(metrics.reliability(y, p, kind="classwise"))


def test_before_and_after(fitted):
    y, p, after = fitted["y"], fitted["p"], fitted["bayes"].predict_proba(fitted["h"])
    for ax, probs in zip(plots.plot_before_after(y, p, after), (p, after), strict=True):
        same(ax, plots.plot_reliability(y, probs))
    own = plots.new_axes(2, width=7.2)
    assert plots.plot_before_after(y, p, after, ece=(0.1, False), counts=False, axes=own) == own
    with pytest.raises(InputError):
        plots.plot_before_after(y, p, after, axes=own[:1])


# Curves


@pytest.mark.parametrize(
    ("draw_it", "compute"),
    [(plots.plot_referral, metrics.referral_curve), (plots.plot_risk_coverage, metrics.risk_coverage_curve)],
)
def test_one_call_draws_the_curves(draw_it, compute, fitted):
    y, p, after = fitted["y"], fitted["p"], fitted["bayes"].predict_proba(fitted["h"])
    curves = {"none": compute(y, p), "bayes": compute(y, after)}
    same(draw_it(curves), draw_it(y, {"none": p, "bayes": after}))
    weights = np.arange(len(y)) + 1.0
    same(draw_it(y, p, sample_weight=weights), draw_it(compute(y, p, sample_weight=weights)))
    for wrong in ({}, {"ts": p}):
        with pytest.raises(InputError):
            draw_it(wrong)
    for options in ({"probs": p}, {"chosen": {"other": 0.5}}, {"chosen": 1.5}):
        with pytest.raises(InputError):
            draw_it(curves, **options)


def test_curves_are_drawn_as_they_are(fitted):
    curve = fitted["curve"]
    at = curve.threshold.searchsorted(0.7, side="right") - 1
    risk = RiskCoverage(curve.threshold, 1 - curve.referred, curve.error_rate_decided)
    one = plots.plot_referral({"mine": curve}, thresholds=np.arange(21) / 20, chosen={"mine": 0.7})
    two = plots.plot_risk_coverage({"none": risk}, chosen=0.7)
    for ax, label, x, y in (
        (one, "mine", curve.correct_decided, curve.errors_referred),
        (two, "uncalibrated", risk.coverage, risk.risk),
    ):
        line = line_of(ax, label)
        drawn = np.isfinite(line.get_ydata()) | (ax is one)
        np.testing.assert_allclose(line.get_xdata(), 100 * x)
        np.testing.assert_allclose(line.get_ydata()[drawn], 100 * y[drawn])
        assert drawn[x >= 0.05].all()
        circle = line_of(ax, "t = 0.7")
        assert (*circle.get_xdata(), *circle.get_ydata()) == pytest.approx((100 * x[at], 100 * y[at]))
    paper = metrics.referral_curve(fitted["y"], fitted["p"], thresholds="paper")
    marked = line_of(one, "mine").get_markevery()
    np.testing.assert_allclose(np.unique(curve.errors_referred[marked]), np.unique(paper.errors_referred))


# Temperatures


def test_nll_and_ece_are_those_of_the_metrics(fitted):
    h, y = fitted["h"], fitted["y"]
    ax = plots.plot_temperature(h, y, t_range=(0.5, 4), chosen={"ts": 6.0})
    [other] = [each for each in ax.figure.axes if each is not ax]
    for axis, label, value in (
        (ax, "NLL", lambda p: metrics.nll(y, p)),
        (other, "ECE, %", lambda p: 100 * metrics.ece(y, p)),
    ):
        t, found = line_of(axis, label).get_data()
        assert (t[0], t[-1]) == pytest.approx((0.5, 6))  # as far as what was chosen
        for i in (0, 40, 80):
            assert found[i] == pytest.approx(value(ScaleMap(1 / t[i]).apply(h)))
    assert line_of(ax, "ts: T = 6").get_xdata()[0] == 6
    with pytest.raises(InputError):
        plots.plot_temperature(Scores.from_logits(h, y), y)
    with pytest.raises(InputError):
        plots.plot_temperature(h, y, chosen={"ts": -1})


def test_scores_bring_weights_and_masks(fitted):
    h, y = fitted["h"].copy(), fitted["y"]
    h[:100, 3] = np.where(y[:100] == 3, h[:100, 3], -np.inf)
    w = 1.0 + np.arange(300) % 2
    rows = np.repeat(np.arange(300), w.astype(int))
    same(plots.plot_temperature(Scores.from_logits(h, y, sample_weight=w)), plots.plot_temperature(h[rows], y[rows]))


def test_the_posterior_of_t_is_that_of_the_fit(fitted, tmp_path):
    bayes = fitted["bayes"]
    ax = plots.plot_posterior(bayes)
    t, density = ax.lines[0].get_data()
    assert np.trapezoid(density, t) == pytest.approx(1, abs=0.01)
    [area] = ax.collections
    assert area.get_datalim(ax.transData).intervalx == pytest.approx(bayes.temperature_interval_)
    assert ax.lines[1].get_xdata()[0] == bayes.temperature_
    bayes.save(tmp_path / "a.json")
    same(ax, plots.plot_posterior(attemper.load(tmp_path / "a.json")))
    with pytest.raises(NotFittedError):
        plots.plot_posterior(BayesianTemperatureScaling())
    with pytest.raises(InputTypeError):
        plots.plot_posterior(TemperatureScaling())


# Methods and groups, one below the other


def test_methods_stand_one_below_the_other():
    rows = (
        Row("none", metrics={"nll": Estimate(0.8, 0.7, 0.9), "accuracy": 0.5}),
        Row("isotonic", metrics={"nll": np.inf, "accuracy": 0.6}),
        Row("matrix", failure="too many"),
        Row("bayes", metrics={"nll": 0.6, "accuracy": 0.7}),
    )
    compared = Comparison(rows, "bayes", "Use bayes.", confidence_set=("bayes",))
    ax = plots.plot_comparison(compared)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["uncalibrated", "isotonic", "matrix", "bayes"]
    drawn = [(*line.get_xdata(), *line.get_ydata()) for line in ax.lines[:4]]
    assert drawn == [(0.7, 0.9, 0, 0), (0.8, 0), (0.6, 0.6, 3, 3), (0.6, 3)]
    assert ax.lines[4].get_xdata()[0] == 0.6  # the best
    assert [line.get_markerfacecolor() == "white" for line in (ax.lines[1], ax.lines[3])] == [True, False]
    assert plots.plot_comparison(rows, metric="accuracy").lines[-1].get_xdata()[0] == 0.7
    for wrong in ({"rows": rows, "metric": "f1"}, {"rows": []}):
        with pytest.raises(InputError):
            plots.plot_comparison(**wrong)
    plots.plot_comparison([Row("ts", failure="no")]).figure.canvas.draw()


def grouped(n_groups, n=30, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 1, n_groups * n)
    right = rng.random(len(c)) < np.where(np.arange(len(c)) < n, 0.3, c)  # the first one is overconfident
    return metrics.by_group(right, c, groups=np.repeat(np.arange(n_groups), n), n_resamples=20)


def test_groups_have_their_gaps_and_those_beyond_chance_are_filled():
    found = grouped(4)
    ax = plots.plot_groups(found)
    markers = [line for line in ax.lines if line.get_marker() in ("o", "D")]
    values = [line.get_xdata()[0] for line in markers]
    assert values == [*(row.gap.value for row in found.by_group), found.all.gap.value]
    hollow = [line.get_markerfacecolor() == "white" for line in markers]
    assert hollow == [False, True, True, True, False]
    spans = [tuple(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 1]
    assert spans[0] == found[0].gap[1:]
    plots.plot_groups(grouped(3, n=2), metric="ece_debiased").figure.canvas.draw()
    assert len(plots.plot_groups(grouped(100, n=10)).get_yticks()) == 41
    with pytest.raises(InputTypeError):
        plots.plot_groups({})
    with pytest.raises(InputError):
        plots.plot_groups(found, metric="f1")


# Any data, any array


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.filterwarnings("ignore::attemper.errors.AttemperWarning")
def test_one_sample_can_be_drawn(label):
    scores = Scores.from_logits([[2.0, 0.5]], [label])
    for ax in (
        plots.plot_reliability(scores),
        plots.plot_risk_coverage(scores),
        plots.plot_temperature(scores),
        plots.plot_posterior(BayesianTemperatureScaling().fit(scores)),
    ):
        ax.figure.canvas.draw()


def test_torch_tensors_are_drawn_as_arrays_are(fitted):
    h, y = torch.tensor(fitted["h"], requires_grad=True), torch.tensor(fitted["y"])
    same(plots.plot_temperature(fitted["h"], fitted["y"]), plots.plot_temperature(h, y))
    for draw_it in (plots.plot_reliability, plots.plot_referral, plots.plot_risk_coverage):
        same(draw_it(fitted["y"], fitted["p"]), draw_it(y, torch.softmax(h, 1)))
