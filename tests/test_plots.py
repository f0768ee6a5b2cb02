"""What is drawn equals the metrics, on the Axes that were passed; nothing global changes."""

from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from sklearn.calibration import CalibrationDisplay

import attemper
from attemper import metrics, plots
from attemper.calibrators import BayesianTemperatureScaling, TemperatureScaling
from attemper.comparison import compare_scores
from attemper.data.scores import Scores
from attemper.errors import InputError, NotFittedError
from conftest import draw

DATA = draw(600, 4)
LOGITS, LABELS, PROBS = DATA.h, DATA.y, DATA.p
SOFTER = np.sqrt(PROBS) / np.sqrt(PROBS).sum(axis=1, keepdims=True)
RISK, EVENT = PROBS[:, 1], LABELS == 1
GROUPS = np.repeat(["a", "b", "c"], 200)
BAYES = BayesianTemperatureScaling().fit(LOGITS, LABELS)
COMPARISON = compare_scores(
    Scores.of(LOGITS[:300], LABELS[:300]), Scores.of(LOGITS[300:], LABELS[300:]), methods=["ts", "bayes", "vector"]
)
GROUPED = metrics.evaluate(LABELS, PROBS, by=GROUPS)

DRAWINGS = {
    "bars": lambda ax: plots.plot_reliability(LABELS, PROBS, ax=ax),
    "risk": lambda ax: plots.plot_reliability(EVENT, RISK, ax=ax),
    "points": lambda ax: plots.plot_reliability(LABELS, {"raw": PROBS, "calibrated": SOFTER}, ax=ax),
    "corp": lambda ax: plots.plot_reliability(LABELS, PROBS, n_bins=None, ax=ax),
    "referral": lambda ax: plots.plot_referral(LABELS, PROBS, threshold=0.7, ax=ax),
    "risk_coverage": lambda ax: plots.plot_risk_coverage(LABELS, {"a": PROBS, "b": SOFTER}, ax=ax),
    "posterior": lambda ax: plots.plot_posterior(BAYES, ax=ax),
    "comparison": lambda ax: plots.plot_comparison(COMPARISON, ax=ax),
    "groups": lambda ax: plots.plot_groups(GROUPED, ax=ax),
}


def axes():
    return Figure().subplots()


def line(ax, label):
    [found] = [each for each in ax.lines if str(each.get_label()).startswith(label)]
    return found.get_xydata()


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_draws_on_the_axes_given_and_changes_nothing_global(draw):
    ax, before = axes(), dict(mpl.rcParams)
    assert draw(ax) is ax
    assert dict(mpl.rcParams) == before
    ax.figure.canvas.draw()


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_without_axes_pyplot_makes_one_figure(draw):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    before = pyplot.get_fignums()
    ax = draw(None)
    [number] = set(pyplot.get_fignums()) - set(before)
    assert ax.figure.number == number
    pyplot.close(ax.figure)


def test_as_large_as_the_display_of_sklearn():
    ours, theirs = axes(), axes()
    plots.plot_reliability(EVENT, {"raw": RISK, "calibrated": RISK**0.5}, ax=ours)
    CalibrationDisplay.from_predictions(EVENT, RISK, ax=theirs)
    for ax in (ours, theirs):
        ax.figure.canvas.draw()
    assert ours.get_window_extent().bounds == theirs.get_window_extent().bounds


@pytest.mark.parametrize("labels, probs", [(LABELS, PROBS), (EVENT, RISK)], ids=["confidence", "risk"])
def test_bars_are_the_table(labels, probs):
    ax, table = axes(), metrics.reliability(labels, probs)
    plots.plot_reliability(labels, probs, ax=ax)
    filled = table.weight > 0
    bars = ax.patches[: filled.sum()]
    np.testing.assert_allclose([bar.get_height() for bar in bars], table.accuracy[filled])
    np.testing.assert_allclose([bar.get_x() for bar in bars], table.edges[:-1][filled])
    [means] = ax.collections
    np.testing.assert_allclose([s[0, 1] for s in means.get_segments()], table.confidence[filled])
    expected = np.stack([table.low, table.high], axis=1)[filled]
    np.testing.assert_allclose(intervals(ax, "#222222"), expected)
    assert [text.get_text() for text in ax.texts] == [f"{n:.0f}" for n in table.weight[filled]]


def intervals(ax, color):
    """Ends of the vertical lines of a colour."""
    drawn = [each.get_xydata() for each in ax.lines if each.get_color() == color]
    return np.array([points[[0, -1], 1] for points in drawn if np.ptp(points[:, 0]) == 0 and len(points) > 1])


def test_counts_are_left_out():
    ax = plots.plot_reliability(LABELS, PROBS, counts=False, ax=axes())
    assert ax.get_ylim()[0] == 0
    assert len(ax.texts) == 0


def test_the_strip_below_a_curve_has_the_weights():
    ax, w = axes(), np.where(RISK > 0.5, 9.0, 1.0)
    plots.plot_reliability(EVENT, RISK, n_bins=None, sample_weight=w, ax=ax)
    [strip] = [each for each in ax.patches if isinstance(each, StepPatch)]
    heights, edges, foot = strip.get_data()
    share = np.histogram(RISK, edges, weights=w)[0]
    np.testing.assert_allclose((heights - foot) / (heights - foot).max(), share / share.max(), atol=1e-12)


def test_several_are_overlaid():
    ax, arrays = axes(), {"raw": PROBS, "calibrated": SOFTER}
    plots.plot_reliability(LABELS, arrays, n_bins=10, clusters=np.arange(600) // 2, ax=ax)
    for (name, probs), color in zip(arrays.items(), ("#7F7F7F", "#0072B2")):
        table = metrics.reliability(LABELS, probs, n_bins=10, clusters=np.arange(600) // 2)
        filled = table.weight > 0
        [points] = [each for each in ax.lines if each.get_label().startswith(name)]
        np.testing.assert_allclose(points.get_xydata(), np.stack([table.confidence, table.accuracy], axis=1)[filled])
        ends = np.stack([table.low, table.high], axis=1)[filled]
        np.testing.assert_allclose(intervals(ax, color), ends, atol=1e-12)
        assert f"{metrics.ece(LABELS, probs, n_bins=10):.3f}" in points.get_label()


@pytest.mark.parametrize("low", [0.02, 0.98], ids=["risks too low", "risks too high"])
def test_the_legend_hides_no_interval(low):
    risk, ax = np.linspace(0.01, 0.99, 300), Figure(figsize=(5, 5)).subplots()
    plots.plot_reliability(np.arange(300) % 20 >= 20 * low, risk, ax=ax)
    ax.figure.canvas.draw()
    box, inverse = ax.get_legend().get_window_extent(), ax.transData.inverted()
    (x0, y0), (x1, y1) = inverse.transform(box.get_points())
    table = metrics.reliability(np.arange(300) % 20 >= 20 * low, risk)
    middle = (table.edges[:-1] + table.edges[1:]) / 2
    assert not ((middle > x0) & (middle < x1) & (table.high > y0) & (table.low < y1)).any()
    assert y0 >= 0  # nor the counts


@pytest.mark.parametrize("kind", ["top", "binary"])
def test_corp_curve_is_the_regression(kind):
    two = np.stack([1 - RISK, RISK], axis=1)
    ax, table = axes(), metrics.corp_reliability(EVENT, RISK if kind == "binary" else two)
    plots.plot_reliability(EVENT, two, n_bins=None, kind=kind, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.stack([table.confidence, table.accuracy], axis=1))


@pytest.mark.parametrize("threshold", [0.7, float(np.median(PROBS.max(axis=1)[:599]))])  # the second is a confidence
def test_referral_curve_and_its_threshold(threshold):
    ax, curve = axes(), metrics.referral_curve(LABELS, PROBS)
    plots.plot_referral(LABELS, {"ts": PROBS}, threshold=threshold, ax=ax)
    np.testing.assert_allclose(line(ax, "ts"), np.stack([curve.correct_decided, curve.errors_referred], axis=1))
    at = metrics.referral_curve(LABELS, PROBS, thresholds=[threshold])
    np.testing.assert_allclose(line(ax, "threshold"), [[at.correct_decided[0], at.errors_referred[0]]])


def test_risk_coverage_leaves_out_too_few_samples():
    ax, curve = axes(), metrics.risk_coverage_curve(LABELS, PROBS)
    plots.plot_risk_coverage(LABELS, {"a": PROBS}, ax=ax)
    x, y = line(ax, "a").T
    np.testing.assert_allclose(x, curve.coverage)
    shown = np.isfinite(y)
    np.testing.assert_allclose(y[shown], curve.risk[shown])
    assert shown[curve.coverage >= 20 / 600].all()
    assert not shown[curve.coverage < 20 / 600].any()


def test_risk_coverage_counts_samples_not_confidences():
    confidence = np.where(np.arange(5000) < 200, 0.99, 0.6)  # 200 are tied at 4 %
    ax = plots.plot_risk_coverage(np.arange(5000) % 3 == 0, {"a": np.stack([confidence, 1 - confidence], 1)}, ax=axes())
    assert np.isfinite(line(ax, "a")).all()
    assert line(ax, "a")[-1, 0] == 0.04


def test_posterior_density():
    ax, posterior = axes(), BAYES.posterior_
    plots.plot_posterior(BAYES, ax=ax)
    x, y = ax.lines[0].get_xydata().T
    np.testing.assert_allclose(x, posterior.temperature)
    np.testing.assert_allclose(y * np.gradient(x), posterior.weight)
    assert ax.lines[1].get_xdata()[0] == BAYES.temperature_
    shaded = ax.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose([shaded.x0, shaded.x1], BAYES.temperature_interval_)


def markers(ax):
    return [x.get_xdata()[0] for x in ax.lines if x.get_marker() in "oD" and len(x.get_xdata()) == 1]


@pytest.mark.parametrize("metric", ["nll", "ece"])
def test_comparison_has_a_row_for_each_method(metric):
    ax = plots.plot_comparison(COMPARISON, metric=metric, ax=axes())
    np.testing.assert_allclose(markers(ax), [row.test[metric].value for row in COMPARISON.rows])
    assert len(ax.get_yticklabels()) == len(COMPARISON.rows)


def test_comparison_without_test_data_is_of_held_out_samples():
    found = compare_scores(Scores.of(LOGITS[:300], LABELS[:300]), methods=["ts", "bayes"])
    np.testing.assert_allclose(markers(plots.plot_comparison(found, ax=axes())), [row.nll.value for row in found.rows])


def test_groups_are_below_each_other_and_all_come_last():
    ax = plots.plot_groups(GROUPED, ax=axes())
    expected = [*(part["gap"].value for part in GROUPED.parts.values()), GROUPED["gap"].value]
    np.testing.assert_allclose(markers(ax), expected)


def test_groups_of_both_evaluations_are_drawn():
    before = attemper.evaluate((LOGITS, LABELS), by=GROUPS)
    np.testing.assert_allclose(*(markers(plots.plot_groups(each, ax=axes())) for each in (before, before.before)))
    after = attemper.evaluate((LOGITS, LABELS), TemperatureScaling().fit(2 * LOGITS, LABELS), by=GROUPS)
    np.testing.assert_allclose(*(markers(plots.plot_groups(each, ax=axes())) for each in (after, after.after)))


def test_of_many_groups_the_farthest_are_drawn():
    many = metrics.evaluate(LABELS, PROBS, by=np.arange(600) % 50)
    assert len(markers(plots.plot_groups(many, ax=axes()))) == plots.MOST_GROUPS + 1


def test_the_scale_of_a_gap_has_0():
    ax = plots.plot_groups(metrics.evaluate(LABELS == 9, 0.3 + 0.1 * RISK, by=GROUPS), ax=axes())
    assert ax.get_xlim()[0] <= 0 <= ax.get_xlim()[1]


def test_the_legend_has_lines_first_and_chance_last():
    ax = plots.plot_referral(LABELS, {"a": PROBS, "b": SOFTER}, threshold={"a": 0.7, "b": 0.6}, ax=axes())
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert (shown[:2], len(shown), shown[-1]) == (["a", "b"], 5, "chance")


REFUSALS = {
    "kind": lambda: plots.plot_reliability(LABELS, PROBS, kind="classwise", ax=axes()),
    "probs": lambda: plots.plot_reliability(LABELS, {}, ax=axes()),
    "metric": lambda: plots.plot_comparison(COMPARISON, metric="nonsense", ax=axes()),
    "evaluation": lambda: plots.plot_groups(metrics.evaluate(LABELS, PROBS, ["nll"]), ax=axes()),
    "calibrator": lambda: plots.plot_posterior(TemperatureScaling().fit(LOGITS, LABELS), ax=axes()),
    "ax": lambda: plots.plot_reliability(LABELS, PROBS, ax=np.array([axes()])),
}


@pytest.mark.parametrize("param", REFUSALS)
def test_refuses(param):
    with pytest.raises(InputError) as error:
        REFUSALS[param]()
    assert error.value.param == param


def test_refuses_what_is_not_fitted():
    with pytest.raises(NotFittedError):
        plots.plot_posterior(BayesianTemperatureScaling(), ax=axes())


def test_a_group_far_from_all_is_drawn():
    group = np.arange(2000) % 50
    data = draw(2000, 4)
    labels = np.where(group == 7, (data.h.argmax(axis=1) + 1) % 4, data.h.argmax(axis=1))
    found = metrics.evaluate(labels, data.p, ["accuracy"], by=group)
    ax = plots.plot_groups(found, metric="accuracy", ax=axes())
    assert len(markers(ax)) == plots.MOST_GROUPS + 1
    assert min(markers(ax)) == found.parts[7]["accuracy"].value == 0


WEIGHED = {"sample_weight": DATA.w / 400}  # no counts: bins have less than 1
CURVES = {
    "referral": (plots.plot_referral, metrics.referral_curve, ("correct_decided", "errors_referred")),
    "risk": (plots.plot_risk_coverage, metrics.risk_coverage_curve, ("coverage", "risk")),
    "corp": (partial(plots.plot_reliability, n_bins=None), metrics.corp_reliability, ("confidence", "accuracy")),
    "points": (plots.plot_reliability, metrics.reliability, ("confidence", "accuracy")),
}


@pytest.mark.parametrize("name", CURVES)
def test_each_line_has_the_numbers_of_its_own_array_with_weights(name):
    plot, of, columns = CURVES[name]
    ax, arrays = axes(), {"raw": PROBS, "ts": SOFTER, "b": PROBS**2 / (PROBS**2).sum(axis=1, keepdims=True)}
    plot(LABELS, arrays, ax=ax, **WEIGHED)
    colors = []
    for label, probs in arrays.items():
        table = of(LABELS, probs, **WEIGHED)
        expected = np.stack([getattr(table, column) for column in columns], axis=1)
        points = line(ax, label)
        shown = np.isfinite(points).all(axis=1) if name == "risk" else np.ones(len(points), bool)
        expected = expected[table.weight > 0] if name == "points" else expected
        np.testing.assert_allclose(points[shown], expected[shown])
        colors += [each.get_color() for each in ax.lines if str(each.get_label()).startswith(label)]
    assert len(set(colors)) == 3
    assert colors[0] == plots.GREY


def test_strips_bands_and_bins_have_the_weights_and_clusters():
    options, ax = {"clusters": np.arange(600) // 3, **WEIGHED}, axes()
    arrays = {"raw": PROBS, "ts": SOFTER}
    plots.plot_reliability(LABELS, arrays, n_bins=8, ax=ax, **options)
    tables = [metrics.reliability(LABELS, p, n_bins=8, **options) for p in arrays.values()]
    strips = [each.get_data() for each in ax.patches if isinstance(each, StepPatch)]
    highest = max(table.weight.max() for table in tables)
    for (heights, edges, foot), table in zip(strips, tables, strict=True):
        np.testing.assert_allclose((heights - foot) / (0.9 * -foot), table.weight / highest, atol=1e-12)
        np.testing.assert_allclose(edges, table.edges)
    ax = plots.plot_reliability(LABELS, PROBS, n_bins=None, confidence_level=0.8, ax=axes(), **options)
    table = metrics.corp_reliability(LABELS, PROBS, confidence_level=0.8, **options)
    band = ax.collections[0].get_paths()[0].vertices
    for x, low, high in zip(table.band_confidence[1:-1:40], table.low[1:-1:40], table.high[1:-1:40]):
        at = band[np.isclose(band[:, 0], x), 1]
        assert (at.min(), at.max()) == pytest.approx((low, high))
    ax = plots.plot_reliability(
        LABELS, PROBS, n_bins=6, confidence_level=0.8, strategy="quantile", ax=axes(), **options
    )
    table = metrics.reliability(LABELS, PROBS, n_bins=6, confidence_level=0.8, strategy="quantile", **options)
    np.testing.assert_allclose(intervals(ax, "#222222"), np.stack([table.low, table.high], axis=1)[table.weight > 0])
    assert [bar.get_width() for bar in ax.patches[:6]] == pytest.approx(np.diff(table.edges).tolist())
    assert f"{metrics.ece(LABELS, PROBS, n_bins=6, strategy='quantile', **WEIGHED):.3f}" in str(
        ax.collections[0].get_label()
    )


def forest(ax):
    """Interval, marker, and whether it is filled, by row."""
    spans = {each.get_ydata()[0]: tuple(each.get_xdata()) for each in ax.lines if len(set(each.get_ydata())) == 1
             and len(each.get_xdata()) == 2}  # fmt: skip
    dots = {each.get_ydata()[0]: each for each in ax.lines if each.get_marker() in "oD" and len(each.get_xdata()) == 1}
    return {y: (dot.get_xdata()[0], *spans.get(y, ()), dot.get_markerfacecolor() != "white") for y, dot in dots.items()}


def test_rows_of_a_forest_have_their_intervals_and_fill():
    rows = COMPARISON.rows
    for metric in ("nll", "accuracy"):
        ax = plots.plot_comparison(COMPARISON, metric=metric, ax=axes())
        best = COMPARISON.test_can_be_best if metric == "nll" else [row.method for row in rows]
        for y, (value, low, high, filled) in forest(ax).items():
            found = rows[y].test[metric]
            assert (value, low, high) == (found.value, found.low, found.high)
            assert filled == (rows[y].method in best)
        values = [row.test[metric].value for row in rows]
        dotted = [each.get_xdata()[0] for each in ax.lines if each.get_linestyle() == ":"]
        assert dotted == [max(values) if metric == "accuracy" else min(values)]
    off = metrics.evaluate(LABELS, PROBS, by=np.where(PROBS.argmax(axis=1) == LABELS, GROUPS, "wrong"))
    ax = plots.plot_groups(off, ax=axes())
    for (value, low, high, filled), part in zip(forest(ax).values(), off.parts.values()):
        assert (value, low, high) == (part["gap"].value, part["gap"].low, part["gap"].high)
        assert filled == (low > 0 or high < 0)
