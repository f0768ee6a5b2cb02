"""Where charts put things, and what is taken for what."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.errors import InputError
from attemper.metrics.predictions import Predictions
from attemper.report.card import card_of
from attemper.report.charts import SHARES, bar, coinciding, line, log_ticks, nice_ticks, panels
from attemper.report.classes import group_classes
from attemper.report.confusion import confusion, taken_for


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_lie_in_the_frame(x, y):
    assert SHARES.left <= SHARES.at_x(x) <= SHARES.right
    assert SHARES.top <= SHARES.at_y(y) <= SHARES.bottom
    assert (SHARES.at_y(y) <= SHARES.at_y(x)) or y <= x


def test_ticks_are_what_people_expect():
    assert [label for _, label in SHARES.x_ticks] == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
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
    with pytest.raises(InputError, match=r"card=\{…\}: sites: expected text, a number or a list of these"):
        card_of({"sites": {"a": 1}})
    with pytest.raises(InputError, match="30000 characters; at most 20000"):
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
    with pytest.raises(InputError, match=r"^card=\{…\}: .*" + re.escape(message)):
        card_of(card)
