"""The numbers of a report are those of attemper.metrics."""

import numpy as np
import pytest

from attemper import Scores
from attemper.calibrators import METHODS
from attemper.comparison import Row, compare
from attemper.errors import InputError
from attemper.maps import ScaleMap
from attemper.metrics import by_group, evaluate, referral_area, referral_curve, reliability
from attemper.metrics.predictions import Predictions
from attemper.report import methods, summarise
from attemper.report.classes import group_classes
from attemper.report.groups import MOST
from attemper.report.numbers import share
from attemper.report.referrals import EVEN, counts, first_threshold
from report.conftest import GROUPS, grouped

MEASURES = ("accuracy", "nll", "brier", "ece")


def drawn(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    h = 3 * rng.normal(size=(n, n_classes))
    h[np.arange(n), y] += 3
    return h, y


def predicted(scores, beta=1.0):
    """Predictions of all samples, as `compare` keeps them."""
    log_p = ScaleMap(beta).log_apply(scores.values)
    return Predictions.of(scores.labels, log_p, scores.weights, input="log_probs").without_probs()


@pytest.fixture(scope="module")
def maps(skin):
    return {"none": ScaleMap(1.0), "bayes": METHODS["bayes"]().fit(skin[0]).map_}


def test_the_diagrams_have_the_bins_of_reliability(summary, skin, maps):
    _, test, _ = skin
    assert summary["recommended"] == "bayes"
    for method, found in summary["reliability"].items():
        probs = maps[method].apply(test.values.astype(np.float64))
        bins, expected = reliability(test.labels, probs), evaluate(test.labels, probs)
        assert found["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-10)
        assert [cell[0] for cell in found["bins"]] == bins.weight.tolist()
        for j, column in enumerate((bins.confidence, bins.accuracy, bins.low, bins.high), 1):
            cells = [cell[j] if cell[0] > 0 else np.nan for cell in found["bins"]]
            np.testing.assert_allclose(cells, column, rtol=1e-9, atol=1e-12)


def test_rows_are_those_of_compare(summary, skin):
    val, test, _ = skin
    expected = compare(val, test, ["ts", "ats", "bayes", "vector"])
    assert [row["method"] for row in summary["rows"]] == ["none", "ts", "ats", "bayes", "vector"]
    assert summary["recommended"] == expected.recommended
    for found, row in zip(summary["rows"], expected.rows):
        for name in MEASURES:
            assert found["metrics"][name] == list(row.metrics[name])
        assert found["chance"] == [row.metrics["ece"].chance, row.metrics["ece"].p_value]
        value = row.metrics["accuracy"].value
        assert found["metrics"]["accuracy"] == pytest.approx(share(round(value * len(test)), len(test), 0.95))


def test_methods_that_compare_did_not_resample_have_the_intervals_of_evaluate():
    h, y = drawn(500, 5)
    w = np.random.default_rng(1).integers(0, 4, size=500).astype(float)
    weighted = Scores.from_logits(h, y, sample_weight=w)
    found = methods.estimates(Row("ts", metrics=dict.fromkeys(MEASURES, 0.0)), predicted(weighted, 0.7), 0.9, 3)
    log_p = ScaleMap(0.7).log_apply(weighted.values)
    how = {"sample_weight": weighted.weights, "confidence_level": 0.9, "seed": 3, "input": "log_probs"}
    expected = evaluate(weighted.labels, log_p, **how)
    for name in MEASURES:
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    assert found["area"] == pytest.approx(referral_area(weighted.labels, log_p, **how))


def test_of_large_data_the_fast_methods_are_compared(monkeypatch):
    monkeypatch.setattr(methods, "QUICK", (0, 0))
    monkeypatch.setattr(methods, "LARGE", 0)
    val, test = (Scores.from_logits(*drawn(300, 4, seed)) for seed in (0, 1))
    found = summarise(val, test)
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "ats", "bayes"]
    assert found["left_out"]
    expected = evaluate(test.labels, ScaleMap(1.0).log_apply(test.values), input="log_probs", confidence_level=0.95)
    for name in MEASURES[1:]:
        assert found["rows"][0]["metrics"][name] == pytest.approx(list(expected[name]), rel=1e-9)


# Referral


def test_counts_are_those_of_the_referral_curve(summary, skin, maps):
    _, test, names = skin
    found, thresholds = summary["referral"], np.array(summary["referral"]["thresholds"])
    probs = maps["bayes"].apply(test.values.astype(np.float64))
    curve = referral_curve(test.labels, probs, thresholds=thresholds)
    right, wrong = (np.array(found[key]) for key in ("right", "wrong"))
    assert right[0, -1] + wrong[0, -1] == len(test)
    np.testing.assert_allclose(1 - right[0] / right[0, -1], curve.correct_decided, atol=1e-12)
    np.testing.assert_allclose(wrong[0] / wrong[0, -1], curve.errors_referred, atol=1e-12)
    confidence, prediction = probs.max(axis=1), probs.argmax(axis=1)
    for k in range(len(names)):
        for i in found["shown"]:
            low = (confidence <= thresholds[i]) & (test.labels == k)
            assert right[1 + k, i] == (low & (prediction == k)).sum()
            assert wrong[1 + k, i] == (low & (prediction != k)).sum()
    assert found["start"] in found["shown"]
    assert 10 <= len(found["shown"]) <= 12


def test_a_confidence_that_is_the_threshold_is_referred():
    p = predicted(Scores.from_logits([[0.0, 0.0], [0.0, 0.0], [800.0, 0.0]], [0, 1, 0]))
    found = counts(p, np.ones(3), np.zeros(3, dtype=int), 1)
    assert [found["right"][0][place] for place in (49, 50, 99, 100)] == [0, 1, 1, 2]
    assert [found["wrong"][0][place] for place in (49, 50, 99, 100)] == [0, 1, 1, 1]


def test_the_first_threshold_is_the_lowest_that_catches_enough():
    p = predicted(Scores.from_logits(*drawn(400, 3)))
    for catch in (0.1, 0.5, 0.8, 1.0):
        place = first_threshold(p, catch)
        caught = [((p.confidence <= t) & ~p.right).sum() for t in EVEN]
        assert caught[place] >= catch * caught[-1]
        assert place == 0 or caught[place - 1] < catch * caught[-1]
    for n_wrong, enough in ((0, False), (19, False), (20, True)):
        h = np.array([[2.0, 0.0], [0.0, 2.1]] * 20)
        labels = np.where(np.arange(40) < n_wrong, h.argmin(axis=1), h.argmax(axis=1))
        assert (first_threshold(predicted(Scores.from_logits(h, labels)), 0.8) is not None) == enough


def test_the_threshold_is_chosen_on_the_validation_set():
    (h, y), (h2, y2) = drawn(400, 3), drawn(400, 3, 1)
    val, test = Scores.from_logits(h, y), Scores.from_logits(3 * h2, y2)
    referral = summarise(val, test, methods=["ts"])["referral"]
    probs = METHODS["ts"]().fit(val).map_.apply(h)
    wrong = probs.argmax(axis=1) != y
    caught = np.array([((probs.max(axis=1) <= t) & wrong).sum() for t in referral["thresholds"]])
    assert referral["start"] == np.argmax(caught >= 0.8 * wrong.sum())
    on_test = np.array(referral["wrong"][0])
    assert referral["start"] != np.argmax(on_test >= 0.8 * on_test[-1])


def test_clusters_widen_the_intervals_of_referrals():
    rng = np.random.default_rng(0)
    h, case = 3 * rng.normal(size=(200, 3)), np.repeat(np.arange(200), 3)
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    val = Scores.from_logits(h + 1e-3 * rng.normal(size=h.shape), y)
    plain, alike = (Scores.from_logits(h[case] + 0.01, y[case], clusters=c) for c in (None, case))
    one, other = (summarise(val, test, methods=["ts"]) for test in (plain, alike))
    assert one["scale"] == 1
    assert other["scale"] == pytest.approx(1 / 3, rel=0.02)  # three alike are worth one
    assert one["referral"] == other["referral"]
    assert other["clusters"]["n_clusters"] == 200


# Classes, groups, card


def test_classes_with_few_missed_samples_share_a_row():
    labels = np.repeat(np.arange(30), np.arange(30))
    names = [f"c{k}" for k in range(30)]
    missed = predicted(Scores.from_logits(2 * np.eye(30)[(labels + 1) % 30], labels))
    groups = group_classes(names, missed, np.ones(len(labels)))
    assert "c3" in group_classes(names, missed, np.ones(len(labels)), "c3").names
    assert len(groups) == 21
    assert groups.names[0] == "c29"
    assert (groups.of_class[:10] == 20).all()
    p = predicted(Scores.from_logits(2 * np.eye(30)[labels], labels))
    found = counts(p, np.ones(len(labels)), groups.of_class[labels], len(groups))
    assert [row[-1] for row in found["right"]] == [435, *range(29, 9, -1), 45]


def test_groups_have_the_numbers_of_by_group(by_site):
    summary, test = by_site
    before, section = by_group(test), summary["groups"]
    assert [entry["method"] for entry in summary["by_group"]] == ["none", "ts"]
    assert [row["name"] for row in section["rows"]] == sorted(GROUPS)
    for row in section["rows"]:
        assert row["before"] == pytest.approx(list(before[row["name"]].gap))
        assert row["n"] == before[row["name"]].n
        assert row["gap"][0] == pytest.approx(row["confidence"] - row["accuracy"][0])
    names = np.array([f"g{i:03}" for i in range(MOST + 10)])
    many = summarise(grouped(300, 0, names, 3), grouped(600, 1, names, 3), methods=["ts"])["groups"]
    assert (len(many["rows"]), many["n"], many["clusters"]) == (MOST, MOST + 10, True)


# Data at the edge


def test_the_same_samples_twice_are_refused():
    (h, y), (_, y2) = drawn(50, 3), drawn(50, 3, 1)
    for labels in (y, y2):
        with pytest.raises(InputError):
            summarise(Scores.from_logits(h, y), Scores.from_logits(h.copy(), labels), methods=["ts"])


@pytest.mark.parametrize(
    "options",
    [
        {"classes": ["a", "b"]},
        {"catch": 0.0},
        {"confidence_level": 2},
        {"methods": ["nothing"]},
        {"focus": "nothing"},
        {"descriptions": {"nothing": "a"}},
    ],
)
def test_bad_input_is_refused(skin, options):
    val, test, _ = skin
    with pytest.raises(InputError):
        summarise(val, test, **options)
    with pytest.raises(InputError):
        summarise(val, Scores.from_logits(test.values))
