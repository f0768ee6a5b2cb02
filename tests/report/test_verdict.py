"""The verdict: which finding it is, and the class and the group of predictions that it is about."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import Scores
from attemper.comparison import compare
from attemper.metrics.intervals import around_share
from attemper.report import summarise
from attemper.report.verdict import SMALL, about, focus_of, worst_bin


def drawn(n, n_classes, stretch=1.0, seed=0, scale=2.0, **more):
    """Labels that are as likely as softmax(z) has it; the network reports stretch · z."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(n, n_classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Scores.from_logits(stretch * z, y, **more)


def found(val, test, methods=("ts",), **settings):
    return summarise(val, test, methods=list(methods), **settings)


def binary(n, confidence, accuracy, seed):
    rng = np.random.default_rng(seed)
    h = np.stack([np.log(confidence / (1 - confidence)), np.zeros(n)], axis=1)
    return Scores.from_logits(h + 1e-6 * rng.normal(size=h.shape), (rng.random(n) >= accuracy).astype(int))


def mixed(n, seed):
    high = np.random.default_rng(seed).random(n) < 0.5
    return binary(n, np.where(high, 0.95, 0.6), np.where(high, 0.8, 0.75), seed)


def nearly(n, seed):
    confidence = np.random.default_rng(seed).uniform(0.5, 0.99, size=n)
    return binary(n, confidence, confidence - 0.008, seed)


@pytest.mark.parametrize(
    ("kind", "val", "test"),
    [
        ("over", drawn(1000, 4, 3.0), drawn(3000, 4, 3.0, seed=1)),
        ("under", drawn(1000, 4, 0.3), drawn(3000, 4, 0.3, seed=1)),
        ("fine", drawn(500, 4), drawn(2000, 4, seed=2)),
        ("mixed", mixed(1000, 0), mixed(4000, 1)),
        ("near", nearly(300, 0), nearly(60_000, 1)),  # small errors are called small, however many samples show them
        ("unknown", drawn(300, 3, 3.0), drawn(300, 3, 3.0, seed=1, clusters=np.arange(300) // 299)),
    ],
)
def test_what_the_confidence_is(kind, val, test):
    summary = found(val, test)
    is_about, place = about(summary)
    assert is_about == kind
    assert (place is not None) == (kind in ("over", "under", "mixed"))
    assert all(len(finding) == 2 for finding in summary["verdict"])
    if place is not None:
        _, confidence, accuracy, low, high = summary["reliability"]["none"]["bins"][place]
        assert low <= accuracy <= high
        assert not low <= confidence <= high
        assert kind == "mixed" or (confidence > accuracy) == (kind == "over")


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0.05, 1), st.floats(0, 1)), min_size=15, max_size=15))
def test_the_worst_group_is_beyond_chance(cells):
    bins = [[float(n), c, round(n * a) / n, 0, 1] if n else [0.0] for n, c, a in cells]
    place = worst_bin(bins, 0.95, 1.0)
    large = [b for b in bins if b[0] >= max(20, sum(b[0] for b in bins) / 20)]
    if place is None:
        for n, confidence, right, *_ in large:
            low, high = around_share(right, n, 1 - 0.05 / len(large))[1:]
            assert low - 1e-9 <= confidence <= high + 1e-9 or abs(confidence - right) < SMALL
    else:
        n, confidence, right, *_ = bins[place]
        low, high = around_share(right, n, 1 - 0.05 / len(large))[1:]
        assert not low <= confidence <= high
        assert abs(confidence - right) >= SMALL
        for sign in (1, -1):
            other = worst_bin(bins, 0.95, 1.0, sign)
            assert other is None or sign * (bins[other][1] - bins[other][2]) >= 0


def test_the_class_with_most_misses_and_its_numbers():
    val, test = drawn(800, 5, 2.0), drawn(2000, 5, 2.0, seed=1)
    summary = found(val, test, classes=list("abcde"))
    prediction = test.values.argmax(axis=1)
    missed = [((test.labels == k) & (prediction != k)).sum() for k in range(5)]
    k = int(np.argmax(missed))
    row = summary["classes"][summary["focus"]]
    assert (row["name"], row["n"]) == ("abcde"[k], (test.labels == k).sum())
    assert row["found"] == pytest.approx(list(around_share(1 - missed[k] / row["n"], row["n"], 0.95)))
    taken = np.bincount(prediction[(test.labels == k) & (prediction != k)], minlength=5)
    assert row["taken_for"] == ["abcde"[taken.argmax()], taken.max()]
    lead, text = summary["verdict"][2]
    assert f"{100 * row['found'][0]:.0f} %" in lead
    assert f"{row['n'] - missed[k]:.0f} of {row['n']:.0f}" in text
    for name in "abc":
        chosen = found(val, test, classes=list("abcde"), focus=name)
        assert chosen["classes"][chosen["focus"]]["name"] == name


def test_a_group_of_rare_classes_is_no_focus():
    rows = [{"n": 10, "found": [0.5]}, {"n": 1000, "found": [0.1]}]
    assert focus_of(rows, others=5) == 0
    assert focus_of(rows, others=0) == 1
    assert focus_of([{"n": 0, "found": None}], others=0) is None


def sure(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return Scores.from_logits(4 * np.eye(3)[labels] + 0.1 * rng.normal(size=(n, 3)), labels)


@pytest.mark.parametrize(
    ("val", "test", "chosen"),
    [
        (sure(100, 0), sure(200, 1), False),  # no errors at all
        (sure(100, 0), drawn(200, 3, seed=1), False),  # none to choose a threshold by
        (drawn(30, 3, scale=3.0), drawn(2000, 3, seed=1, scale=3.0), False),  # few
        (drawn(300, 3), drawn(300, 3, seed=1), True),
    ],
)
def test_a_threshold_is_suggested_where_there_are_errors(val, test, chosen):
    summary = found(val, test)
    assert (summary["referral"]["start"] is not None) == chosen
    assert len(summary["verdict"]) == 4


def test_without_a_recommendation_and_with_changed_predictions():
    val, test = drawn(500, 3), drawn(1000, 3, seed=1)
    none = summarise(val, test, comparison=replace(compare(val, test, ["ts"]), recommended="none"))
    assert list(none["reliability"]) == ["none"]
    biased = [Scores.from_logits(s.values + np.array([2.0, 0, 0]), s.labels) for s in (drawn(2000, 3), test)]
    summary = found(*biased, ["vector"])
    assert summary["recommended"] == "vector"
    assert f"{100 * summary['rows'][1]['changed']:.1f} %" in summary["verdict"][1][1]
