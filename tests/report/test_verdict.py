"""The verdict: its sentences for every case, and its numbers beside obvious ones."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.comparison import compare
from attemper.data.scores import Scores
from attemper.metrics.intervals import around_share
from attemper.report import render, summarise
from attemper.report.verdict import SMALL, focus_of, worst_bin


def drawn(n, n_classes, stretch=1.0, seed=0, scale=2.0, **more):
    """Labels that are as likely as softmax(z) has it; the network reports stretch · z."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(n, n_classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Scores.from_logits(stretch * z, y, **more)


def found(val, test, methods=("ts",), **settings):
    return summarise(val, test, methods=list(methods), **settings)


def softmax(h):
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("stretch", "lead", "after"),
    [
        (3.0, "The network is over-confident:", "too high|no error of the mean confidence is detectable"),
        (0.3, "The network is under-confident:", "too low|no error of the mean confidence is detectable"),
    ],
)
def test_confidence_that_is_off(stretch, lead, after):
    val, test = drawn(1000, 4, stretch), drawn(3000, 4, stretch, seed=1)
    summary = found(val, test)
    first, second, *_ = summary["sentences"]["verdict"]
    p = softmax(test.values)
    top, is_right = p.max(axis=1), p.argmax(axis=1) == test.labels
    mean, accuracy = (f"{100 * values.mean():.0f} %" for values in (top, is_right))
    assert first.startswith(
        f"{lead} its mean confidence is {mean}, and of 3\u202f000 predictions {accuracy} are right ("
    )
    confidence, right, low, high = map(
        float,
        re.search(
            r"where it is ([\d.]+) % confident: there it is right ([\d.]+) % .*\(([\d.]+) to ([\d.]+)\)", first
        ).groups(),
    )
    assert (confidence > right) == (stretch > 1)
    assert low <= right <= high
    assert not low <= confidence <= high
    # The group of predictions that the sentence is of, found the slow way.
    place = np.minimum((15 * top).astype(int), 14)
    groups = [place == k for k in range(15) if (place == k).sum() > 20]
    alike = [rows for rows in groups if abs(100 * top[rows].mean() - confidence) < 0.51]
    assert any(abs(100 * is_right[rows].mean() - right) < 0.51 for rows in alike)
    assert second.startswith("After calibration (temperature scaling, fitted on 1\u202f000 validation samples) ")
    assert re.search(after, second)
    assert "changes" not in second  # temperature scaling changes no prediction


def test_confidence_that_is_right():
    summary = found(drawn(500, 4), drawn(2000, 4, seed=2))
    first, *_ = summary["sentences"]["verdict"]
    assert first.startswith("No error of the network's confidence is detectable: its mean confidence is ")
    test = drawn(2000, 4, seed=2)
    p = softmax(test.values)
    assert f"its mean confidence is {100 * p.max(axis=1).mean():.0f} %" in first
    assert f"of 2\u202f000 predictions {100 * (p.argmax(axis=1) == test.labels).mean():.0f} % are right (" in first


def test_right_on_average_but_not_everywhere():
    rng = np.random.default_rng(0)

    def mixed(n):
        high = rng.random(n) < 0.5
        confidence = np.where(high, 0.95, 0.6)
        right = rng.random(n) < np.where(high, 0.8, 0.75)
        h = np.zeros((n, 2))
        h[:, 0] = np.log(confidence / (1 - confidence)) + 1e-6 * rng.normal(size=n)
        return Scores.from_logits(h, (~right).astype(int))

    first = found(mixed(1000), mixed(4000))["sentences"]["verdict"][0]
    assert first.startswith("The network's confidence is right on average, but not everywhere: its mean confidence is ")
    assert "It is furthest off where it is " in first


def test_a_small_error_is_called_small():
    """Of very many samples a small error is detectable; it is no over-confidence that a clinician would notice."""
    rng = np.random.default_rng(0)

    def nearly(n):
        confidence = rng.uniform(0.5, 0.99, size=n)
        right = rng.random(n) < confidence - 0.008
        h = np.stack([np.log(confidence / (1 - confidence)), np.zeros(n)], axis=1)
        return Scores.from_logits(h, (~right).astype(int))

    first = found(nearly(300), nearly(60_000))["sentences"]["verdict"][0]
    assert re.match(r"The network's confidence is nearly right: its mean confidence is \d\d\.\d %, and", first)


def test_without_a_recommendation_nothing_changes():
    val, test = drawn(500, 3), drawn(1000, 3, seed=1)
    one = compare(val, test, ["ts"])
    from dataclasses import replace

    summary = summarise(val, test, comparison=replace(one, recommended="none"))
    assert summary["sentences"]["verdict"][1] == "No calibration is recommended, so the confidence stays as it is."
    page = render(summary)
    assert "After calibration" not in page.partition('<section id="classes"')[0].partition("<main")[2]


def test_a_method_that_changes_predictions_reports_it():
    rng = np.random.default_rng(0)

    def biased(n):
        z = 2 * rng.normal(size=(n, 3))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        return Scores.from_logits(z + np.array([2.0, 0, 0]), y)

    val, test = biased(2000), biased(2000)
    summary = found(val, test, ["vector"])
    assert summary["recommended"] == "vector"
    row = summary["rows"][1]
    assert f"This changes {100 * row['changed']:.1f} % of the predictions." in summary["sentences"]["verdict"][1]
    assert "After calibration it finds" in summary["sentences"]["verdict"][2]


def test_the_class_with_most_misses_and_what_becomes_of_it():
    val, test = drawn(800, 5, 2.0), drawn(2000, 5, 2.0, seed=1)
    names = ["a", "b", "c", "d", "e"]
    summary = found(val, test, classes=names, descriptions={"c": "the third"})
    p = softmax(test.values)
    guess = p.argmax(axis=1)
    missed = [((test.labels == k) & (guess != k)).sum() for k in range(5)]
    k = int(np.argmax(missed))
    n, n_found = int((test.labels == k).sum()), int(((test.labels == k) & (guess == k)).sum())
    _, _, third, fourth = summary["sentences"]["verdict"]
    shown = f"{names[k]} (the third)" if k == 2 else names[k]
    assert third.startswith(f"It finds {100 * n_found / n:.0f} % of {shown}: {n_found} of {n} samples (")
    low, high = (f"{100 * v:.0f}" for v in around_share(n_found / n, n, 0.95)[1:])
    assert f"({low} to {high})" in third
    taken = np.bincount(guess[(test.labels == k) & (guess != k)], minlength=5)
    assert f"{taken.max()} are taken for {names[taken.argmax()]}" in third
    # Referral, by the confidence of the calibrated network.
    t = summary["rows"][1]["temperature"]
    threshold = float(re.search(r"threshold of ([\d.]+) %,", fourth)[1]) / 100
    low = softmax(test.values / t).max(axis=1) <= threshold
    wrong = guess != test.labels
    assert f", {100 * low.mean():.0f} % of cases are referred (" in fourth
    assert f"{(low & wrong).sum()} of the {wrong.sum()} errors are among them" in fourth
    assert f"{100 * (wrong & ~low).sum() / (~low).sum():.0f} % are wrong (" in fourth
    assert f"; {((test.labels == k) & wrong & ~low).sum()} of {n} samples of {shown} are still missed." in fourth


def test_the_focus_can_be_chosen():
    val, test = drawn(300, 3, 2.0), drawn(600, 3, 2.0, seed=1)
    for name in "abc":
        summary = found(val, test, classes=["a", "b", "c"], focus=name)
        assert re.match(f"It finds [0-9.]+ % of {name}:", summary["sentences"]["verdict"][2])
        assert f"{name} are still missed" in summary["sentences"]["verdict"][3]


def test_two_classes_have_both():
    summary = found(drawn(400, 2, 2.0), drawn(800, 2, 2.0, seed=1), classes=["benign", "malignant"], focus="malignant")
    third = summary["sentences"]["verdict"][2]
    assert re.match(r"It finds \d+ % of malignant: \d+ of \d+ samples", third)
    assert re.search(r"Of benign it finds \d+ %, \d+ of \d+ samples \(\d+ to \d+\)\.", third)


def test_many_classes():
    summary = found(drawn(600, 30, 2.0), drawn(900, 30, 2.0, seed=1))
    assert re.match(r"It finds \d+ % of class \d+: ", summary["sentences"]["verdict"][2])
    assert summary["confusion"]["matrix"] is None
    page = render(summary)
    assert "most frequent confusions" in page
    assert "Confusion matrix" not in page


def test_no_errors_and_no_threshold():
    rng = np.random.default_rng(0)
    y, y2 = rng.integers(3, size=100), rng.integers(3, size=200)
    sure = lambda labels: Scores.from_logits(4 * np.eye(3)[labels] + 0.1 * rng.normal(size=(len(labels), 3)), labels)  # noqa: E731
    _, _, third, fourth = found(sure(y), sure(y2))["sentences"]["verdict"]
    assert third == "All 200 predictions are right: there is no error to learn from."
    assert fourth == "No referral is needed on these samples: no prediction on the test set is wrong."
    # Errors on the test set alone: nothing to choose a threshold by.
    labels = y2.copy()
    labels[:20] = (labels[:20] + 1) % 3
    test = Scores.from_logits(4 * np.eye(3)[y2] + 0.1 * rng.normal(size=(200, 3)), labels)
    fourth = found(sure(y), test)["sentences"]["verdict"][3]
    assert fourth == (
        "There is no suggested threshold for referral: no prediction on the validation set is wrong, and at least 20 "
        "are needed to choose one."
    )


def test_few_validation_errors_suggest_no_threshold():
    summary = found(drawn(30, 3, scale=3.0), drawn(2000, 3, seed=1, scale=3.0))
    n = summary["referral"]["n_val_errors"]
    assert 0 < n < 20
    why = f"only {n} validation predictions are wrong, and at least 20 are needed to choose one."
    assert summary["sentences"]["verdict"][3] == f"There is no suggested threshold for referral: {why}"
    assert summary["sentences"]["referral"][1] == f"The threshold slider starts at 50 %, which is no suggestion: {why}"
    assert "was chosen on the samples that fitted the map" not in render(summary)


@pytest.mark.parametrize("clusters", [None, np.arange(3000) // 3])
def test_a_group_of_predictions_has_one_interval_on_the_page(clusters):
    val, test = drawn(1000, 4, 3.0), drawn(3000, 4, 3.0, seed=1, clusters=clusters)
    summary = found(val, test)
    temperature = summary["temperature"]
    for method, sentence in zip(("none", "ts"), summary["sentences"]["verdict"]):
        bins = temperature["states"][temperature["marks"][method]]["bins"]
        shown = re.search(r"here it is (\d+) % confident[:,].* right (\d+) % of the time \((\d+) to (\d+)\)", sentence)
        cells = [[f"{100 * v:.0f}" for v in b[1:]] for b in bins if b[0] > 0]
        assert list(shown.groups()) in cells
    confidence, *limits = re.search(
        r"mean (\d+) %\): (\d+) % .*interval (\d+) to (\d+)\)", summary["sentences"]["confidence"][-1]
    ).groups()
    start = temperature["states"][temperature["marks"]["none"]]["bins"]
    assert [confidence, *limits] in [[f"{100 * v:.0f}" for v in b[1:]] for b in start if b[0] > 0]
    assert f"It is furthest off where it is {confidence} % confident: there it is right {limits[0]} %" in " ".join(
        summary["sentences"]["verdict"]
    )


def test_a_threshold_that_refers_everything():
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(200, 3))
    val, test = (Scores.from_logits(z, z.argmin(axis=1)) for z in (h[:100], h[100:]))
    summary = found(val, test, catch=1.0)
    fourth = summary["sentences"]["verdict"][3]
    assert "100 % of cases are referred" in fourth or re.search(r"[\d.]+ % of cases are referred", fourth)
    if summary["referral"]["labels"][summary["referral"]["start"]] == "1.00":
        assert fourth.endswith("so nothing is decided without a specialist.")


def test_too_few_cases_for_a_verdict():
    val, test = drawn(300, 3, 3.0), drawn(300, 3, 3.0, seed=1, clusters=np.arange(300) // 299)
    first, second, *_ = found(val, test)["sentences"]["verdict"]
    assert first.startswith("There are too few independent cases for a verdict on the confidence: its mean confidence")
    assert "(" not in first
    assert "points too" in second


def test_clusters_widen_the_intervals_of_the_verdict():
    val, one = drawn(500, 3, 3.0), drawn(500, 3, 3.0, seed=1)
    case = np.repeat(np.arange(500), 4)
    wide, narrow = (
        found(val, Scores.from_logits(one.values[case] + 0.01, one.labels[case], clusters=c))["verdict"]
        for c in (case, None)
    )

    def limits(text):
        low, high = re.search(r"(\d+) to (\d+)\)", text).groups()
        return int(high) - int(low)

    for lead in (0, 2, 3):
        assert limits(wide[lead][1]) > limits(narrow[lead][1])
    # The group of predictions that is furthest off has the wider interval too, in both sentences about it.
    for lead in (0, 1):
        groups = [text[lead][1].partition("here it is ")[2] for text in (wide, narrow)]
        assert limits(groups[0]) > limits(groups[1])


def test_few_samples_give_a_page():
    for n_classes in (2, 3):
        summary = found(drawn(12, n_classes, 2.0), drawn(9, n_classes, 2.0, seed=1))
        assert len(summary["sentences"]["verdict"]) >= 3
        assert "In short" in render(summary)


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


def test_a_group_of_rare_classes_is_no_focus():
    rows = [{"n": 10, "found": [0.5]}, {"n": 1000, "found": [0.1]}]
    assert focus_of(rows, others=5) == 0
    assert focus_of(rows, others=0) == 1
    assert focus_of([{"n": 0, "found": None}], others=0) is None
