"""What is drawn is what the numbers are: means, bars, arrows where something leaves a panel, labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from experiments.reproduce import figures, noise, pages, skin
from experiments.reproduce.figures import NESTED, TITLES
from experiments.reproduce.networks import about

METHODS = ("none", "ts", "ats", "bayes", "structured")
NETWORKS = ("lenet5-mnist-s0", "vgg16-cifar10-s0")


def panel(low, high, scale="linear"):
    ax = Figure().subplots()
    ax.set(xlim=(0, 10), yscale=scale, ylim=(low, high))
    return ax


def arrows(ax):
    """Edges (0 or 1) and places of the arrows of a panel."""
    return [(text.xy[1], text.xy[0]) for text in ax.texts if getattr(text, "arrow_patch", None)]


def words(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def curves(ax):
    return {container.get_label(): container[0] for container in ax.containers}


def test_bars_are_standard_deviations():
    ax = panel(0, 5)
    values = [np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.9])]
    figures._line(ax, "ts", [1, 2], values)
    (_, _, (bars,)) = ax.containers[0]
    for (low, high), v in zip(bars.get_segments(), values):
        assert high[1] == pytest.approx(v.mean() + v.std(ddof=1))
        assert low[1] == pytest.approx(v.mean() - v.std(ddof=1))
    assert arrows(ax) == []


def test_a_bar_that_leaves_the_panel_ends_in_an_arrow():
    ax = panel(0.1, 5, "log")
    figures._line(ax, "ats", [1, 2], [np.array([0.2, 2.0]), np.array([1.0, 1.1])])
    (_, _, (bars,)) = ax.containers[0]
    assert bars.get_segments()[0][0][1] == pytest.approx(0.1)  # not at a logarithm of what is below zero
    assert arrows(ax) == [(0, 1)]
    ax = panel(0.1, 6, "log")
    figures._line(ax, "ats", [3], [np.array([1.0, 9.0])])
    assert arrows(ax) == [(0, 3), (1, 3)]
    assert words(ax) == ["to 10.66"]  # the upper end of the bar


def test_a_curve_that_leaves_the_panel_is_marked_where_it_does():
    ax = panel(0, 2)
    figures._line(ax, "ts", [0, 1, 2, 3], [np.array([m, m]) for m in (0.0, 1.0, 5.0, 7.25)])
    assert arrows(ax) == [(1, pytest.approx(1.25))]
    assert words(ax) == ["to 7.25"]
    figures._line(ax, "bayes", [0, 1], [np.array([3.0, 3.0]), np.array([3.0, 3.0])])
    assert arrows(ax)[1] == (1, 0)
    heights = [text.xyann[1] for text in ax.texts if text.get_text()]
    assert heights[1] <= heights[0] - 8  # one below the other


@given(st.lists(st.floats(0.125, 100), min_size=2, max_size=6), st.floats(0.25, 90))
def test_nothing_leaves_a_panel_unmarked(means, top):
    ax = panel(0, top)
    figures._line(ax, "ts", range(len(means)), [np.array([m]) for m in means])
    found = arrows(ax)
    assert len(found) == (max(means) > top)
    for edge, x in found:
        assert edge == 1
        first = next(i for i, m in enumerate(means) if m > top)
        assert first - 1 <= x <= first


def noise_values(factor=1.0):
    rng = np.random.default_rng(0)
    kinds = ("uniform", "annotators")
    values = {}
    for name in NETWORKS:
        for i, method in enumerate(METHODS):
            for kind, share in (("none", 0.0), *((k, s) for k in kinds for s in (0.1, 0.5))):
                rise = factor if method == "ts" else 1.0
                values[name, kind, share, method] = 0.3 + 0.1 * i + rise * share + rng.normal(0, 0.01, 30)
    return values, kinds


def test_the_noise_figure_has_a_panel_for_each_kind_and_network():
    values, kinds = noise_values()
    figure = figures.against_noise(values, NETWORKS, kinds, (0.1, 0.5), METHODS)
    assert [ax.get_title() for ax in figure.axes] == [*(about(n).label for n in NETWORKS), "", ""]
    assert [words(ax) for ax in figure.axes] == [[], ["uniform"], [], ["annotators"]]
    for ax, (kind, name) in zip(figure.axes, ((k, n) for k in kinds for n in NETWORKS)):
        assert set(curves(ax)) == {TITLES[m] for m in METHODS[1:]}
        for method in METHODS[1:]:
            x, y = curves(ax)[TITLES[method]].get_data()
            assert list(x) == [0, 10, 50]
            cells = [("none", 0.0), (kind, 0.1), (kind, 0.5)]
            assert y == pytest.approx([values[name, *cell, method].mean() for cell in cells])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [TITLES[m] for m in METHODS]


def test_what_runs_away_in_the_noise_figure_is_marked():
    values, kinds = noise_values(30.0)
    figure = figures.against_noise(values, NETWORKS, kinds, (0.1, 0.5), METHODS)
    for ax, (kind, name) in zip(figure.axes, ((k, n) for k in kinds for n in NETWORKS)):
        assert arrows(ax)[0][0] == 1
        assert f"to {values[name, kind, 0.5, 'ts'].mean():.2f}" in words(ax)


def test_curves_that_coincide_are_all_seen():
    """What lies above is thinner, and has the smaller marker."""
    above = sorted((style for m, style in NESTED.items() if m != "none"), key=lambda style: style["zorder"])
    for key in ("linewidth", "markersize"):
        sizes = [style[key] for style in above]
        assert sizes == sorted(set(sizes), reverse=True)
    assert set(NESTED) == set(METHODS)


@pytest.mark.parametrize("wide", [False, True])
def test_the_size_figure(wide):
    values = {
        (name, n, method): np.array([0.3, 0.32, 0.34]) * (20 if wide and (method, n) == ("ts", 10) else 1)
        for name in NETWORKS
        for n in (10, 100, 2000)
        for method in METHODS
    }
    figure = figures.against_size(values, NETWORKS, METHODS)
    assert figure.axes[0].get_ylabel() == "test NLL, log scale"
    for ax in figure.axes:
        assert words(ax) == arrows(ax) == []
        x, y = curves(ax)["ATS"].get_data()
        assert list(x) == [10, 100, 2000]
        assert y == pytest.approx([0.32] * 3)


def test_panels_of_a_row_have_one_kind_of_scale():
    """One network has a method that runs away, the other has not."""
    values = {
        (name, n, method): np.array([1.0, 1.05, 1.1]) * (20 if (name, method, n) == (NETWORKS[0], "ts", 10) else 1)
        for name in NETWORKS
        for n in (10, 100)
        for method in METHODS
    }
    figure = figures.against_size(values, NETWORKS, METHODS)
    assert {ax.get_yscale() for ax in figure.axes} == {"log"}
    figure.canvas.draw()
    for ax in figure.axes:
        low, high = ax.get_ylim()
        numbers = [tick.get_text() for tick in ax.get_yticklabels(which="both") if tick.get_text()]
        assert sum(low <= float(number) <= high for number in numbers) >= 2
        assert len({len(number.partition(".")[2]) for number in numbers}) == 1 or ax is figure.axes[0]


def test_no_marker_is_cut_at_the_upper_edge():
    rng = np.random.default_rng(0)
    for _ in range(50):
        shown = [np.array([mean]) for mean in rng.uniform(0, 2, 12)]
        low, top = figures._limits(shown, shown[:4])
        means = np.array([v.mean() for v in shown])
        assert not (np.abs(means - top) < 0.99 * figures.CLEAR * (top - low) / 1.2).any()
        assert top > max(v.mean() for v in shown[:4])


def test_arrows_are_named_in_the_legend():
    values, kinds = noise_values(30.0)
    for of, named in ((values, True), (noise_values()[0], False)):
        figure = figures.against_noise(of, NETWORKS, kinds, (0.1, 0.5), METHODS)
        (legend,) = figure.legends
        assert ("beyond the axis, to this value" in [text.get_text() for text in legend.get_texts()]) == named


def test_panels_are_lettered():
    figure, _ = figures.panels(2, 3, 1.0)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [*"abcdef"]
    assert figures.panels(1, 1, 1.0)[1][0][0].get_title(loc="left") == ""


def referral_rows():
    rows = []
    for name in skin.NETWORKS.values():
        for i, method in enumerate(skin.DRAWN):
            case = {"network": name, "method": method}
            for measure, value in (("area_paper", 0.8 + 0.01 * i), ("area", 0.9)):
                rows.append({**case, "what": "interval", "measure": measure, "value": value})
            for what, n in (("curve, 21", 21), ("curve", 101)):
                t = np.linspace(0, 1, n)
                power = 2 if method == "none" else 3
                rows += [
                    {**case, "what": what, "correct_decided": 1 - a**power, "errors_referred": a} for a in t.tolist()
                ]
    return rows


def test_the_referral_figure_has_21_thresholds_and_the_areas():
    figure = figures.referral(referral_rows(), list(skin.NETWORKS.values()), skin.DRAWN)
    for ax in figure.axes:
        drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
        assert list(drawn) == [
            "21 thresholds, uncalibrated: 0.800",
            "21 thresholds, TS = ATS = Bayesian: 0.810–0.830",
            "all thresholds, uncalibrated: 0.900",
            "all thresholds, TS = ATS = Bayesian: 0.900",
        ]
        assert [len(points) for points in drawn.values()] == [21, 21, 101, 101]
        assert max(line.get_markersize() for line in ax.lines if line.get_marker() != "None") <= 4
        points = drawn["21 thresholds, TS = ATS = Bayesian: 0.810–0.830"]
        assert points[0].tolist() == [100, 0]  # at threshold 0 all is decided
        assert points[-1].tolist() == [0, 100]
        assert (ax.get_xlabel(), ax.get_xlim()) == ("right predictions that are decided, %", (0, 100))
    assert figure.axes[0].get_ylabel() == "wrong predictions that are referred, %"


@pytest.mark.slow
def test_pictures_are_the_same_bytes_each_time():
    values, kinds = noise_values(30.0)
    for form in ("svg", "png"):
        one, two = (
            pages.drawn(figures.against_noise(values, NETWORKS, kinds, (0.1, 0.5), METHODS), form) for _ in range(2)
        )
        assert one == two


def test_the_figures_have_a_style_for_every_method_of_their_studies():
    assert set(noise.METHODS) <= set(NESTED)
