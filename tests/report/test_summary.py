"""The numbers of a report are those of attemper.metrics, and they stay few."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.calibrators import METHODS
from attemper.comparison import Row, compare
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.maps import ScaleMap
from attemper.metrics import evaluate, referral_area, referral_curve, reliability
from attemper.metrics.predictions import Predictions
from attemper.report import methods, summarise
from attemper.report.classes import group_classes
from attemper.report.gallery import choose
from attemper.report.numbers import count, fixed, share
from attemper.report.referrals import THRESHOLDS, counts, first_threshold, scale_of
from attemper.report.temperatures import grid, table_of, tables

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
    return Predictions.of(scores.labels, log_p, input="log_probs").without_probs()


def estimated(p, level=0.95, seed=0):
    """Estimates of a method that `compare` had no time to resample."""
    return methods.estimates(Row("ts", metrics=dict.fromkeys(MEASURES, 0.0)), p, level, seed)


@pytest.fixture(scope="module")
def weighted():
    h, y = drawn(500, 5)
    w = np.random.default_rng(1).integers(0, 4, size=500).astype(float)
    return Scores.from_logits(h, y, sample_weight=w)


# The temperature slider


def test_each_temperature_has_the_metrics_of_its_probabilities(summary, skin):
    _, test, _ = skin
    temperature = summary["temperature"]
    assert len(temperature["values"]) >= 61
    for i in [*range(0, len(temperature["values"]), 6), *temperature["marks"].values()]:
        probs = ScaleMap(1 / temperature["values"][i]).apply(test.values.astype(np.float64))
        expected, state = evaluate(test.labels, probs), temperature["states"][i]
        for name in ("accuracy", "nll", "ece"):
            assert state[name] == pytest.approx(expected[name], rel=1e-10)
        bins = reliability(test.labels, probs)
        assert [b[0] for b in state["bins"]] == bins.weight.tolist()
        for j, column in enumerate((bins.confidence, bins.accuracy, bins.low, bins.high), 1):
            found = [b[j] if b[0] > 0 else np.nan for b in state["bins"]]
            np.testing.assert_allclose(found, column, rtol=1e-9, atol=1e-12)


def test_the_slider_holds_one_and_every_fitted_temperature(summary, skin):
    temperature = summary["temperature"]
    fitted = METHODS["ts"]().fit(skin[0]).temperature_
    assert temperature["values"][temperature["marks"]["none"]] == 1
    assert temperature["values"][temperature["marks"]["ts"]] == pytest.approx(fitted, rel=1e-12)
    assert set(temperature["methods"]) == {"bayes"}


@given(st.lists(st.floats(1e-3, 1e4), max_size=4))
def test_the_grid_ascends_and_holds_what_is_marked(fitted):
    t = grid(fitted)
    assert (np.diff(t) > 0).all()
    assert {1.0, *fitted} <= set(t.tolist())
    assert len(t) <= 61 + 1 + len(fitted)


def test_weights_count_as_repeats(weighted):
    w = weighted.weights.astype(int)
    repeated = Scores.from_logits(np.repeat(weighted.values, w, axis=0), np.repeat(weighted.labels, w))
    one, other = (tables(scores, {"ts": 2.0}, 0.95)["states"] for scores in (weighted, repeated))
    for a, b in zip(one, other):
        bins = list(zip(a.pop("bins"), b.pop("bins")))
        np.testing.assert_allclose(*(np.hstack([pair[i][:3] for pair in bins]) for i in (0, 1)), rtol=1e-9)
        # Limits know that samples of unequal weight are fewer than repeats.
        assert all(x[3] <= y[3] + 1e-12 and x[4] >= y[4] - 1e-12 for x, y in bins if x[0] > 0)
        assert a == pytest.approx(b)


def test_a_method_has_a_table_of_its_own(weighted):
    state = table_of(predicted(weighted, 0.5).weighted(weighted.weights), 0.95)
    expected = tables(weighted, {"ts": 2.0}, 0.95)
    like = expected["states"][expected["marks"]["ts"]]
    assert state["ece"] == pytest.approx(like["ece"])
    np.testing.assert_allclose(np.hstack(state["bins"]), np.hstack(like["bins"]), rtol=1e-9)


def test_of_very_large_data_a_sample_is_taken_and_told(monkeypatch):
    monkeypatch.setattr("attemper.report.temperatures.MOST_EXPONENTIALS", 1e4)
    h, y = drawn(5000, 3)
    assert tables(Scores.from_logits(h, y), {}, 0.95)["n"] == 1000


# Metrics and intervals


def test_estimates_are_those_of_evaluate(weighted):
    found = estimated(predicted(weighted, 0.7).weighted(weighted.weights), 0.9, 3)
    log_p = ScaleMap(0.7).log_apply(weighted.values)
    told = {"sample_weight": weighted.weights, "confidence_level": 0.9, "seed": 3}
    expected = evaluate(weighted.labels, log_p, input="log_probs", **told)
    for name in MEASURES:
        assert found[name] == pytest.approx(expected[name], rel=1e-9)


def test_intervals_from_a_part_are_like_those_from_all(monkeypatch):
    h, y = drawn(4000, 3)
    scores = Scores.from_logits(h, y)
    p = predicted(scores, 0.7)
    whole = estimated(p)
    monkeypatch.setattr(methods, "MOST_RESAMPLED", 1000)
    part = estimated(p)
    for name in ("accuracy", "nll", "brier"):
        assert part[name].value == whole[name].value
        assert part[name].high - part[name].low == pytest.approx(whole[name].high - whole[name].low, rel=0.15)


def test_an_infinite_loss_stays_infinite():
    p = predicted(Scores.from_logits(*drawn(50, 3)))
    p.log_likelihood[3] = -np.inf
    assert estimated(p)["nll"].value == np.inf


def test_rows_are_those_of_compare(summary, skin):
    val, test, _ = skin
    expected = compare(val, test, ["ts", "ats", "bayes", "vector"])
    assert [row["method"] for row in summary["rows"]] == ["none", "ts", "ats", "bayes", "vector"]
    assert (summary["recommended"], summary["reason"]) == (expected.recommended, expected.reason)
    for found, row in zip(summary["rows"], expected.rows):
        for name in MEASURES[1:]:
            assert found["metrics"][name] == list(row.metrics[name])
        assert found["chance"] == [row.metrics["ece"].chance, row.metrics["ece"].p_value]
        value, low, high = row.metrics["accuracy"]
        assert found["metrics"]["accuracy"] == [value, low, high]
        assert found["metrics"]["accuracy"] == pytest.approx(share(round(value * len(test)), len(test), 0.95))


def test_accuracy_has_an_interval_even_where_all_are_right_or_all_wrong():
    (h, y), (h2, _) = drawn(60, 3), drawn(80, 3, 1)
    val = Scores.from_logits(h, y)
    answers = h2.argmax(axis=1)
    for labels, expected in ((answers, [1, 0.954, 1]), ((answers + 1) % 3, [0, 0, 0.046])):
        found = summarise(val, Scores.from_logits(h2, labels), methods=["ts"])
        assert found["rows"][0]["metrics"]["accuracy"] == pytest.approx(expected, abs=1e-3)


def test_the_unit_of_weights_does_not_matter():
    (h, y), (h2, y2) = drawn(60, 3), drawn(80, 3, 1)
    w = np.random.default_rng(0).random(80)
    val = Scores.from_logits(h, y)
    tests = (Scores.from_logits(h2, y2, sample_weight=c * w) for c in (1, 100))
    one, other = (summarise(val, test, methods=["ts"])["rows"][1]["metrics"]["accuracy"] for test in tests)
    assert one == pytest.approx(other)


def test_large_data_get_their_intervals_faster(monkeypatch):
    monkeypatch.setattr(methods, "QUICK", (0, 0))
    monkeypatch.setattr(methods, "LARGE", 0)
    val, test = (Scores.from_logits(*drawn(300, 4, seed)) for seed in (0, 1))
    found = summarise(val, test)
    assert [row["method"] for row in found["rows"]] == ["none", "ts", "ats", "bayes"]
    assert found["left_out"]
    expected = evaluate(test.labels, ScaleMap(1.0).log_apply(test.values), input="log_probs", confidence_level=0.95)
    for name in MEASURES[1:]:
        assert found["rows"][0]["metrics"][name] == pytest.approx(list(expected[name]), rel=1e-9)


# The threshold slider


def test_counts_are_those_of_the_referral_curve(summary, skin):
    val, test, names = skin
    h = test.values.astype(np.float64)
    thresholds = summary["referral"]["thresholds"]
    for method, found in zip(summary["referral"]["methods"], summary["referral"]["counts"]):
        probs = (ScaleMap(1.0) if method == "none" else METHODS[method]().fit(val).map_).apply(h)
        curve = referral_curve(test.labels, probs, thresholds=thresholds)
        right, wrong = (np.array(found[key]) for key in ("right", "wrong"))
        n_right, n_wrong = right[0, -1], wrong[0, -1]
        assert n_right + n_wrong == len(test)
        np.testing.assert_allclose(1 - right[0] / n_right, curve.correct_decided, atol=1e-12)
        np.testing.assert_allclose(wrong[0] / n_wrong, curve.errors_referred, atol=1e-12)
        confidence, answer = probs.max(axis=1), probs.argmax(axis=1)
        for k in range(len(names)):
            for i in (0, 50, 76, 100, 200, len(thresholds) - 1):
                low = (confidence <= thresholds[i]) & (test.labels == k)
                assert right[1 + k, i] == (low & (answer == k)).sum()
                assert wrong[1 + k, i] == (low & (answer != k)).sum()


def test_a_confidence_that_is_the_threshold_is_referred():
    p = predicted(Scores.from_logits([[0.0, 0.0], [0.0, 0.0], [800.0, 0.0]], [0, 1, 0]))
    found = counts(p, np.ones(3), np.zeros(3, dtype=int), 1)
    assert [found["right"][0][place] for place in (49, 50, 99, 100)] == [0, 1, 1, 2]
    assert [found["wrong"][0][place] for place in (49, 50, 99, 100)] == [0, 1, 1, 1]


def test_the_first_threshold_is_the_lowest_that_catches_enough():
    p = predicted(Scores.from_logits(*drawn(400, 3)))
    w = np.ones(400)
    for catch in (0.1, 0.5, 0.8, 1.0):
        place = first_threshold(p, w, catch)
        caught = [((p.confidence <= t) & ~p.right).sum() for t in THRESHOLDS]
        assert caught[place] >= catch * caught[-1]
        assert place == 0 or caught[place - 1] < catch * caught[-1]
    for n_wrong, enough in ((0, False), (19, False), (20, True)):
        h = np.array([[2.0, 0.0], [0.0, 2.1]] * 20)
        wrong = np.arange(40) < n_wrong
        p = predicted(Scores.from_logits(h, np.where(wrong, h.argmin(axis=1), h.argmax(axis=1))))
        assert (first_threshold(p, np.ones(40), 0.8) is not None) == enough


def test_the_scale_has_thresholds_where_the_confidences_are():
    rng = np.random.default_rng(0)
    sure, unsure = 1 - 1e-3 * rng.random(5000), 0.3 + 0.01 * rng.random(5000)
    t = scale_of(sure, unsure)
    assert len(t) <= 301
    assert (np.diff(t) > 0).all()
    assert set(THRESHOLDS) <= set(t)
    assert (t == t.round(4)).all()
    assert ((t > 0.999) & (t < 1)).sum() >= 5
    assert ((t > 0.3) & (t < 0.31)).sum() >= 50


def test_the_start_is_chosen_on_the_validation_set():
    (h, y), (h2, y2) = drawn(400, 3), drawn(400, 3, 1)
    val = Scores.from_logits(h, y)
    one, other = (summarise(val, test, methods=["ts"]) for test in (Scores.from_logits(h2, y2), scaled(h2, y2)))
    for found in (one, other):
        referral = found["referral"]
        method = found["recommended"]
        probs = (ScaleMap(1.0) if method == "none" else METHODS[method]().fit(val).map_).apply(h)
        wrong = probs.argmax(axis=1) != y
        caught = [((probs.max(axis=1) <= t) & wrong).sum() for t in referral["thresholds"]]
        assert referral["start"] == np.argmax(np.array(caught) >= 0.8 * wrong.sum())
    # On the second test set another threshold would catch so many.
    wrong = other["referral"]["counts"][other["referral"]["first_method"]]["wrong"][0]
    assert other["referral"]["start"] != np.argmax(np.array(wrong) >= 0.8 * wrong[-1])


def scaled(h, y):
    return Scores.from_logits(3 * h, y)


def test_the_area_is_that_of_the_metrics(weighted):
    log_p = ScaleMap(0.7).log_apply(weighted.values)
    expected = referral_area(
        weighted.labels, log_p, input="log_probs", sample_weight=weighted.weights, confidence_level=0.95
    )
    assert estimated(predicted(weighted, 0.7).weighted(weighted.weights))["area"] == pytest.approx(expected)


# Classes, examples, numbers


def test_classes_with_few_missed_samples_share_a_row():
    labels = np.repeat(np.arange(30), np.arange(30))
    names = [f"c{k}" for k in range(30)]
    missed = predicted(Scores.from_logits(2 * np.eye(30)[(labels + 1) % 30], labels))
    groups = group_classes(names, missed, np.ones(len(labels)))
    assert "c3" in group_classes(names, missed, np.ones(len(labels)), "c3").names
    found = predicted(Scores.from_logits(2 * np.eye(30)[np.where(labels < 25, (labels + 1) % 30, labels)], labels))
    assert group_classes(names, found, np.ones(len(labels))).names[:2] == ("c24", "c23")
    assert len(groups) == 21
    assert groups.names[0] == "c29"
    assert groups.names[-1] == "all others (10 classes)"
    assert (groups.of_class[:10] == 20).all()
    p = predicted(Scores.from_logits(2 * np.eye(30)[labels], labels))
    found = counts(p, np.ones(len(labels)), groups.of_class[labels], len(groups))
    assert [row[-1] for row in found["right"]] == [435, *range(29, 9, -1), 45]


def test_examples_take_classes_in_turn_and_those_with_an_image_first():
    labels = np.array([0] * 50 + [1] * 3 + [2])
    everything = np.ones(54, dtype=bool)
    rows = choose(everything, labels, np.zeros(54, dtype=bool), 0)
    assert sorted(labels[rows]) == [0, 0, 0, 1, 1, 2] or sorted(labels[rows]) == [0, 0, 1, 1, 1, 2]
    there = np.zeros(54, dtype=bool)
    there[[4, 52]] = True
    assert set(choose(everything, labels, there, 0)[:2]) == {4, 52}
    assert choose(~everything, labels, there, 0) == []


def test_examples_are_what_their_group_says(summary, skin):
    _, test, names = skin
    probs = ScaleMap(1.0).apply(test.values.astype(np.float64))
    right, wrong, unsure = summary["gallery"]["groups"]
    assert [len(group["examples"]) for group in (right, wrong, unsure)] == [6, 6, 6]
    for group, is_right in ((right, True), (wrong, False)):
        for example in group["examples"]:
            row = example["row"]
            assert probs[row].max() >= 0.9
            assert example["right"] == is_right == (probs[row].argmax() == test.labels[row])
            assert example["label"] == names[test.labels[row]]
            assert example["prediction"] == names[probs[row].argmax()]
            assert example["confidence"][0]["confidence"] == pytest.approx(probs[row].max())


def test_sure_and_wrong_is_what_the_network_itself_said():
    """Vector scaling turns these answers round; what was sure and wrong before it stays in the group."""
    rng = np.random.default_rng(0)
    h, h2 = 4 * rng.normal(size=(2, 400, 2))
    val, test = (Scores.from_logits(logits, logits.argmin(axis=1)) for logits in (h, h2))
    found = summarise(val, test, methods=["vector"])
    assert found["recommended"] == "vector"
    probs = ScaleMap(1.0).apply(h2)
    right, wrong, _ = found["gallery"]["groups"]
    assert right["n"] == 0
    assert wrong["n"] == (probs.max(axis=1) >= 0.9).sum() > 100
    for example in wrong["examples"]:
        assert example["prediction"] == f"class {probs[example['row']].argmax()}" != example["label"]
        assert example["confidence"][0]["confidence"] == pytest.approx(probs[example["row"]].max())


@given(st.floats(-1e9, 1e9), st.integers(0, 6))
def test_fixed_is_as_near_as_digits_allow(value, digits):
    assert abs(float(fixed(value, digits)) - value) <= 0.5 * 10.0**-digits * (1 + 1e-6) + 1e-6 * (abs(value) > 1e8)


@given(st.integers(0, 10**12))
def test_counts_are_grouped_by_thousands(n):
    assert count(n) == f"{n:,}".replace(",", "\u202f")


# Size, and data at the edge


@pytest.mark.parametrize(
    ("n", "n_classes"),
    [(100, 2), (100, 7), (3, 2), *(pytest.param(*size, marks=pytest.mark.slow) for size in ((100, 1000), (30_000, 2)))],
)
def test_a_summary_is_small_and_plain(n, n_classes):
    val, test = Scores.from_logits(*drawn(min(n, 300), n_classes)), Scores.from_logits(*drawn(n, n_classes, 1))
    found = summarise(val, test, methods=["ts", "bayes"])
    assert len(json.dumps(found, allow_nan=False)) < 700_000


def test_no_error_at_all_is_said():
    h, y = np.array([[3.0, 0.0], [0.0, 3.1], [2.0, -1.0], [1.0, 2.0]] * 5), [0, 1] * 10
    found = summarise(Scores.from_logits(h, y), Scores.from_logits(1.5 * h, y), methods=["bayes"])
    (sentence,) = found["sentences"]["referral"]
    assert "none of the 20 predictions on the test set is wrong" in sentence
    assert "network" not in sentence
    assert found["rows"][0]["area"] is None
    assert found["referral"]["labels"][found["referral"]["start"]] == "50 %"


def test_every_answer_wrong_is_said_of_the_answers_it_is_true_of():
    """Vector scaling learns from labels that are always the other class, so its answers are not the network's."""
    rng = np.random.default_rng(0)
    h, h2 = rng.normal(size=(2, 300, 2))
    val, test = (Scores.from_logits(logits, logits.argmin(axis=1)) for logits in (h, h2))
    found = summarise(val, test, methods=["ts"])
    assert found["rows"][0]["metrics"]["accuracy"][0] == 0
    first, _, third, _ = found["sentences"]["referral"]
    assert "300 of 300 predictions on the test set are wrong" in first
    assert "of the 300 errors" in third
    found = summarise(val, test, methods=["vector"])
    assert found["recommended"] == "vector"
    first = found["sentences"]["referral"][0]
    n_wrong = found["referral"]["counts"][found["referral"]["first_method"]]["wrong"][0][-1]
    assert n_wrong < 10
    assert first.startswith("After vector scaling, which changes ")
    assert f"{n_wrong} of 300 predictions" in first or (n_wrong == 0 and "none of the 300 predictions" in first)
    assert not any("network" in sentence for sentence in found["sentences"]["referral"])


def test_the_same_samples_twice_are_refused():
    (h, y), (h2, y2) = drawn(50, 3), drawn(50, 3, 1)
    val = Scores.from_logits(h, y)
    with pytest.raises(InputError):
        summarise(val, Scores.from_logits(h.copy(), y.copy()), methods=["ts"])
    files = [{"name": "a.npz", "role": role, "bytes": 1, "sha256": "0"} for role in ("validation", "test")]
    with pytest.raises(InputError):
        summarise(val, Scores.from_logits(h, y2), methods=["ts"], files=files)
    # One file may hold both sets.
    summarise(val, Scores.from_logits(h2, y2), methods=["ts"], files=files)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"classes": ["a", "b"]}, "2 class names for 7 columns"),
        ({"ids": ["a"]}, "1 image names for 3205 test samples"),
        ({"catch": 0.0}, "catch=0.0"),
        ({"confidence_level": 2}, "confidence_level=2"),
        ({"methods": ["nothing"]}, "method 'nothing' is unknown"),
    ],
)
def test_bad_input_is_told(skin, told, message):
    val, test, _ = skin
    with pytest.raises(InputError):
        summarise(val, test, **told)


def test_data_without_labels_are_told(skin):
    with pytest.raises(InputError):
        summarise(skin[0], Scores.from_logits([[1.0, 2.0]]))


def test_arrays_are_not_scores():
    pair = np.eye(3), np.arange(3)
    with pytest.raises(InputError):
        summarise(pair, pair)


def test_clusters_widen_the_intervals_of_referrals():
    rng = np.random.default_rng(0)
    h, case = 3 * rng.normal(size=(200, 3)), np.repeat(np.arange(200), 3)
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    val = Scores.from_logits(h + 1e-3 * rng.normal(size=h.shape), y)
    plain, alike = (Scores.from_logits(h[case] + 0.01, y[case], clusters=c) for c in (None, case))
    one, other = (summarise(val, test, methods=["ts"])["referral"] for test in (plain, alike))
    assert one["scale"] == 1
    assert other["scale"] == pytest.approx(1 / 3, rel=0.02)  # three alike are worth one
    assert one["counts"] == other["counts"]
