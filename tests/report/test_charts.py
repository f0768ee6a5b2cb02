"""Where charts put things, and what is taken for what."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.errors import InputError
from attemper.metrics.predictions import Predictions
from attemper.report.card import card_of
from attemper.report.charts import (
    FEW,
    SHARES,
    WIDTH,
    bar,
    coinciding,
    curve,
    forest,
    line,
    log_ticks,
    nice_ticks,
    panels,
    reliability_frame,
    short,
    signed,
)
from attemper.report.classes import group_classes
from attemper.report.confusion import confusion, taken_for
from attemper.report.referrals import counts, whole_curve


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_lie_in_the_frame(x, y):
    assert SHARES.left <= SHARES.at_x(x) <= SHARES.right
    assert SHARES.top <= SHARES.at_y(y) <= SHARES.bottom
    assert (SHARES.at_y(y) <= SHARES.at_y(x)) or y <= x


def test_ticks_are_what_people_expect():
    assert [label for _, label in SHARES.x_ticks] == [f"{share}\u00a0%" for share in (0, 20, 40, 60, 80, 100)]
    assert SHARES.x_ticks == SHARES.y_ticks


@given(st.floats(1e-6, 1e6))
def test_round_ticks_reach_the_highest(highest):
    ticks = nice_ticks(highest)
    values = [value for value, _ in ticks]
    assert 3 <= len(ticks) <= 6
    assert values[0] == 0
    assert values[-1] >= highest * (1 - 1e-6)
    assert np.ptp(np.diff(values)) <= 1e-9 * highest
    assert len({label for _, label in ticks}) == len(ticks)


@given(st.floats(1e-3, 1), st.floats(1.5, 1e4))
def test_ticks_of_temperatures_lie_within(low, high):
    ticks = log_ticks(low, high)
    assert 1 <= len(ticks) <= 9
    assert all(math.log(low) - 1e-6 <= value <= math.log(high) + 1e-6 for value, _ in ticks)
    assert all(math.exp(value) == pytest.approx(float(label), rel=1e-3) for value, label in ticks)


@given(st.integers(0, 14), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3))
def test_a_bar_holds_its_whisker_and_lies_in_the_frame(place, confidence, right, half):
    b = bar(place, 15, [10.0, confidence, right, max(0, right - half), min(1, right + half)])
    assert SHARES.left <= b["x"] <= b["x"] + b["width"] <= SHARES.right
    assert b["right"] + b["height"] == pytest.approx(SHARES.bottom)
    assert b["gap"] == min(b["right"], b["confidence"])
    assert b["gap"] + b["gap_height"] == pytest.approx(max(b["right"], b["confidence"]))
    assert bar(place, 15, [0.0]) is None


@given(st.integers(7, 14), st.floats(0.5, 1), st.floats(0, 1))
def test_with_two_classes_the_axis_begins_at_a_half(place, confidence, right):
    frame = reliability_frame(2)
    assert [label for _, label in frame.x_ticks] == [f"{share}\u00a0%" for share in range(50, 101, 10)]
    assert frame.at_x(0.5) == SHARES.left
    b = bar(place, 15, [100.0, confidence, right, right, right], frame)
    assert frame.left <= b["x"] < b["x"] + b["width"] <= frame.right
    assert b["x"] < b["middle"] < b["x"] + b["width"]
    assert reliability_frame(3) == SHARES


def test_a_bar_has_its_number_and_is_paler_where_that_is_small():
    cell = [0.9, 0.8, 0.7, 0.9]
    found = [bar(12, 15, [n, *cell]) for n in (1.0, FEW - 1.0, float(FEW), 2004.0)]
    assert [(b["n"], b["few"]) for b in found] == [("1", True), ("19", True), ("20", False), ("2.0k", False)]


@given(st.floats(1e-3, 1e9 - 1e6))
def test_numbers_below_bars_are_short_and_right(n):
    text = short(n)
    assert len(text) <= 4
    assert "1000" not in text
    unit = {"k": 1e3, "M": 1e6}.get(text[-1], 1)
    assert float(text.rstrip("kM")) * unit == pytest.approx(n, rel=0.06, abs=0.051)


@given(st.floats(-100, 100), st.integers(0, 4))
def test_a_sign_is_a_minus_or_a_plus_and_zero_has_none(value, digits):
    text = signed(value, digits)
    assert "-" not in text
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.51 * 10.0**-digits)
    assert (text[0] in "+−") == (float(text.replace("−", "-")) != 0)


def test_an_infinite_loss_leaves_a_gap_in_the_line():
    states = [{"nll": None, "ece": 0.1}, {"nll": 0.5, "ece": 0.05}, {"nll": 90.0, "ece": 0.2}]
    nll, ece = panels({"values": [0.5, 1.0, 2.0], "states": states})
    assert len(nll["points"].split()) == 1  # 90 is far above
    assert [place is None for place in nll["places"]] == [True, False, True]
    assert len(ece["points"].split()) == 3
    nll, _ = panels({"values": [0.5, 1.0], "states": [{"nll": None, "ece": 0.0}] * 2})
    assert nll["points"] == ""


@given(st.integers(0, 2**32 - 1))
def test_curves_that_coincide_are_close_and_others_are_not(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.random(20))
    base = [(float(a), float(1 - a**2)) for a in x]
    near = [(a, b + 0.004) for a, b in base]
    far = [(a, b * 0.5) for a, b in base]
    assert coinciding([base, far, near, base]) == [[0, 2, 3], [1]]
    assert line(base, SHARES).count(",") <= 20


def referred(z, y, scale):
    """Return predictions of two classes from one logit, at some temperature."""
    log_p = -np.logaddexp(0, np.stack([z, -z], axis=1) * scale)
    return Predictions.of(y, log_p, input="log_probs")


@pytest.mark.parametrize("n", [30, 1500])
def test_methods_that_rank_alike_have_one_curve_whatever_the_thresholds(n):
    rng = np.random.default_rng(n)
    z = 4 * rng.normal(size=n)
    y = (z + rng.logistic(size=n) * 2 > 0).astype(int)
    found = [counts(referred(z, y, scale), np.ones(n), y, 2) for scale in (1.0, 0.4, 5.0)]
    assert coinciding([one["curve"] for one in found]) == [[0, 1, 2]]
    at_thresholds = [curve(one) for one in found]
    assert len({tuple(points) for points in at_thresholds}) == 3  # the thresholds meet them in different places


def test_a_curve_of_few_samples_has_steps_and_no_diagonal():
    rng = np.random.default_rng(0)
    z = rng.normal(size=30)
    y = (z + rng.logistic(size=30) > 0).astype(int)
    points = np.array(whole_curve(referred(z, y, 1.0), np.ones(30)))
    assert points[0].tolist() == [1, 0]
    assert points[-1].tolist() == [0, 1]
    steps = np.diff(points, axis=0)
    assert (steps != 0).sum(axis=1).tolist() == [1] * 30  # one sample after the other
    tied = np.array(whole_curve(referred(np.sign(z), y, 1.0), np.ones(30)))
    assert tied.tolist() == [[1, 0], [0, 1]]  # no order among them


def test_a_curve_of_many_samples_has_few_points():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=20_000)
    y = (z + rng.logistic(size=len(z)) > 0).astype(int)
    p = referred(z, y, 1.0)
    points = np.array(whole_curve(p, np.ones(len(z))))
    assert len(points) <= 404
    assert np.abs(np.diff(points, axis=0)).max() < 0.006
    threshold = np.median(p.confidence)
    low = p.confidence <= threshold
    x, y = 1 - (low & p.right).sum() / p.right.sum(), (low & ~p.right).sum() / (~p.right).sum()
    assert np.hypot(*(points - [x, y]).T).min() < 0.01


def gaps_of(*rows):
    """Return what a section by group has: name, samples, gap and half of the interval of each."""
    found = [{"name": str(i), "n": n, "gap": [gap, gap - half, gap + half]} for i, (n, gap, half) in enumerate(rows)]
    return {"rows": found, "all": {"name": "all", "n": sum(row[0] for row in rows), "gap": [0.01]}, "calibrated": False}


def test_a_small_group_does_not_set_the_scale_of_all():
    drawn = forest(gaps_of((900, 0.03, 0.04), (700, -0.02, 0.05), (28, 0.02, 0.5)))
    *large, small, everybody = [each["gap"] for each in drawn["marks"]]
    for mark in large:
        assert not mark["left"]
        assert not mark["right"]
        assert mark["line"][1] - mark["line"][0] > 0.2 * WIDTH
    assert small["left"]
    assert small["right"]
    assert drawn["cut"]
    assert small["value"] is not None
    assert everybody["line"] == []
    assert [label for _, label in drawn["ticks"]] == ["−10", "0", "+10"]
    assert {label: x for x, label in drawn["ticks"]}["0"] == drawn["zero"]
    far = forest(gaps_of((900, 0.03, 0.04), (28, 0.6, 0.2)))["marks"][1]["gap"]
    assert far["value"] is None
    assert far["right"]
    assert not far["left"]


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(-0.9, 0.9), st.floats(0, 0.5)), min_size=1, max_size=20))
def test_all_of_a_forest_lies_in_its_picture(rows):
    drawn = forest(gaps_of(*rows))
    places = [x for x, _ in drawn["ticks"]] + [drawn["zero"]]
    for each in drawn["marks"]:
        mark = each["gap"]
        places += [*mark["line"], *([] if mark["value"] is None else [mark["value"]])]
        assert mark["value"] is not None or mark["left"] or mark["right"]
    assert all(0 <= x <= WIDTH for x in places)
    assert 1 <= len(drawn["ticks"]) <= 6
    assert len({label for _, label in drawn["ticks"]}) == len(drawn["ticks"])


def test_the_matrix_counts_and_so_does_the_list():
    rng = np.random.default_rng(0)
    for n_classes in (3, 20):
        y, w = rng.integers(n_classes, size=500), rng.integers(0, 3, size=500).astype(float)
        h = rng.normal(size=(500, n_classes))
        names = [f"c{k}" for k in range(n_classes)]
        p = Predictions.of(y, np.exp(h) / np.exp(h).sum(axis=1, keepdims=True))
        guess = h.argmax(axis=1)
        found = confusion(names, p, w)
        pairs = {}
        for label, predicted, weight in zip(y, guess, w):
            pairs[label, predicted] = pairs.get((label, predicted), 0) + weight
        if n_classes == 3:
            assert found["matrix"] == [[pairs.get((i, j), 0) for j in range(3)] for i in range(3)]
        else:
            wrong = sorted((v for (i, j), v in pairs.items() if i != j), reverse=True)
            assert [weight for *_, weight in found["pairs"]] == wrong[:15]
            for label, predicted, weight in found["pairs"]:
                assert pairs[int(label[1:]), int(predicted[1:])] == weight
        groups = group_classes(names, y, w)
        for k, other in enumerate(taken_for(groups, names, p, w)):
            own = {j: v for (i, j), v in pairs.items() if i == k and j != k}
            assert other[1] == max(own.values()) == own[int(other[0][1:])]


def test_a_class_without_errors_is_taken_for_nothing():
    p = Predictions.of([0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    groups = group_classes(["a", "b"], np.array([0, 1, 1]), np.ones(3))
    assert taken_for(groups, ["a", "b"], p, np.ones(3)) == [None, ["a", 1.0]]


def test_cards_are_text():
    assert card_of(None) == card_of({"empty": "", "nothing": None}) == []
    assert card_of({"n": 3, "training_data": ["a", 1]}) == [["Training data", "a, 1"], ["N", "3"]]
    with pytest.raises(InputError):
        card_of({"sites": {"a": 1}})
    with pytest.raises(InputError):
        card_of({"long": "x" * 30_000})


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ({"": "net"}, "expected a name for each text, such as \"model\"; got '': 'net'"),
        ({"_": "net"}, "expected a name for each text"),
        ({"intended_use": "a", "Intended use": "b"}, "'intended_use' and 'Intended use' are the same name"),
        ({"sites": [{"a": 1}]}, "sites: expected text, a number or a list of these; got a table of 1. Use a name for"),
        ({"sites": {"a", "b"}}, "sites: expected text, a number or a list of these; got a set"),
        ("net 2", 'expected names and texts such as {"model": "resnet200"}, got a str'),
    ],
)
def test_a_card_that_cannot_be_shown_names_the_entry(card, message):
    with pytest.raises(InputError):
        card_of(card)
