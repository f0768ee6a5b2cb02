import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from attemper.errors import AttemperError, InputError, InputTypeError
from attemper.metrics import accuracy, aurc, brier, ece, evaluate, nll, reliability
from attemper.scores import Scores

METRICS = [nll, brier, accuracy]


def draw(n, k, seed=0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, k)) * 2
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    return p, rng.integers(k, size=n), rng.uniform(0.1, 3, size=n)


def oracle(name, p, y, w):
    total = 0.0
    for row, label, weight in zip(p, y, w):
        if name == "nll":
            loss = -math.log(row[label]) if row[label] > 0 else math.inf
        elif name == "brier":
            loss = sum((value - (k == label)) ** 2 for k, value in enumerate(row))
        else:
            loss = float(max(range(len(row)), key=lambda k: row[k]) == label)
        total += weight * loss
    return total / sum(w)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [2, 3, 10])
def test_is_the_obvious_loop(metric, k):
    p, y, w = draw(50, k)
    assert metric(p, y, sample_weight=w) == pytest.approx(oracle(metric.__name__, p, y, w), rel=1e-13)
    assert metric(p, y) == pytest.approx(oracle(metric.__name__, p, y, np.ones(50)), rel=1e-13)


def test_agrees_with_scikit_learn():
    p, y, w = draw(400, 7)
    assert nll(p, y, sample_weight=w) == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-12)
    by_class = [brier_score_loss(y == k, p[:, k], sample_weight=w) for k in range(7)]
    assert brier(p, y, sample_weight=w) == pytest.approx(sum(by_class), rel=1e-12)
    assert accuracy(p, y, sample_weight=w) == pytest.approx(
        accuracy_score(y, p.argmax(axis=1), sample_weight=w), rel=1e-12
    )


def test_brier_of_two_classes_is_twice_the_binary_score():
    p, y, _ = draw(100, 2)
    assert brier(p, y) == pytest.approx(2 * brier_score_loss(y, p[:, 1]), rel=1e-12)


@settings(deadline=None)
@given(n=st.integers(1, 30), k=st.integers(2, 6), seed=st.integers(0, 1000))
def test_properties(n, k, seed):
    p, y, _ = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    samples, classes = rng.permutation(n), rng.permutation(k)
    repeats = rng.integers(0, 3, size=n)
    repeats[0] = 2
    for metric in METRICS:
        value = metric(p, y)
        assert 0 <= value <= {"nll": math.inf, "brier": 2, "accuracy": 1}[metric.__name__]
        assert metric(p[samples], y[samples]) == pytest.approx(value)
        assert metric(p[:, classes], np.argsort(classes)[y]) == pytest.approx(value)
        assert metric(p, y, sample_weight=repeats) == pytest.approx(
            metric(np.repeat(p, repeats, axis=0), np.repeat(y, repeats))
        )


def test_perfect_and_hopeless():
    sure = np.eye(3)
    assert (nll(sure, [0, 1, 2]), brier(sure, [0, 1, 2]), accuracy(sure, [0, 1, 2])) == (0, 0, 1)
    assert math.copysign(1, nll(sure, [0, 1, 2])) == 1  # not −0.0
    assert (nll(sure, [1, 2, 0]), brier(sure, [1, 2, 0]), accuracy(sure, [1, 2, 0])) == (math.inf, 2, 0)


def test_nll_is_infinite_only_if_the_impossible_sample_counts():
    p, y = [[1.0, 0.0], [0.5, 0.5]], [1, 0]
    assert nll(p, y) == math.inf
    assert nll(p, y, sample_weight=[0, 1]) == pytest.approx(math.log(2))
    for found in (nll(p * 20, y * 20, interval=0.9), nll([[1.0, 0.0]] + [[0.5, 0.5]] * 39, [1] * 40, interval=0.9)):
        assert found.value == math.inf
        assert math.isnan(found.low)
        assert "probability 0" in found.note


def test_nll_of_log_probabilities_does_not_underflow():
    h = np.array([[0.0, -2000.0], [0.0, -1500.0]])
    assert nll(h, [1, 0], log_probs=True) == 1000
    p, y, w = draw(50, 4)
    assert nll(np.log(p), y, log_probs=True, sample_weight=w) == pytest.approx(nll(p, y, sample_weight=w))
    assert nll([[-np.inf, 0.0]], [0], log_probs=True) == math.inf
    assert evaluate(h, [1, 0], log_probs=True)["nll"] == 1000


def test_accuracy_gives_ties_to_the_first_class():
    assert accuracy([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], [0, 0, 1]) == pytest.approx(2 / 3)


def test_zero_weights_leave_samples_out():
    p, y, w = draw(20, 3)
    w[::2] = 0
    for metric in METRICS:
        options = {"interval": 0.9, "n_resamples": 50}
        left = metric(p, y, sample_weight=w, **options)
        assert left == metric(p[1::2], y[1::2], sample_weight=w[1::2], **options)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("k", [2, 100, 1000])
def test_half_precision_is_accepted(dtype, k):
    p, y, _ = draw(50, k)
    for metric in METRICS:
        assert metric(p.astype(dtype), y) == pytest.approx(metric(p, y), rel=2e-2)
    assert nll(np.log(p).astype(dtype), y, log_probs=True) == pytest.approx(nll(p, y), rel=1e-2)
    sure = np.where(np.eye(k) > 0, dtype(1 + 5e-4), dtype(0))  # a rounding above 1 is no loss below 0
    assert nll(sure, np.arange(k)) >= 0


def test_two_decimals_are_accepted():
    assert nll([[0.33, 0.33, 0.33]], [0]) == pytest.approx(-math.log(0.33))


def test_torch():
    torch = pytest.importorskip("torch")
    p, y, w = draw(30, 4)
    for metric in [*METRICS, ece]:
        tensors = torch.from_numpy(p).requires_grad_(), torch.from_numpy(y)
        assert metric(*tensors, sample_weight=torch.from_numpy(w)) == metric(p, y, sample_weight=w)
        coarse = torch.from_numpy(p).to(torch.bfloat16)
        assert metric(coarse, y) == pytest.approx(metric(coarse.double().numpy(), y))


def test_array_api():
    xp = pytest.importorskip("array_api_strict")
    p, y, w = draw(30, 4)
    for metric in [*METRICS, ece]:
        assert metric(xp.asarray(p), xp.asarray(y), sample_weight=xp.asarray(w)) == metric(p, y, sample_weight=w)


def with_value(value, row=70, column=1):
    p = np.full((100, 1000), 1e-3)  # of several chunks
    p[row, column] = value
    return p


@pytest.mark.parametrize(
    "probs, labels, options, message",
    [
        (
            with_value(np.nan),
            np.zeros(100),
            {},
            "probabilities: row 70, column 1 is nan; they lie between 0 and 1",
        ),
        (with_value(-0.1), np.zeros(100), {}, "row 70, column 1 is -0.1"),
        (with_value(1.1), np.zeros(100), {}, r"row 70, column 1 is 1\.1.*softmax"),
        (with_value(0.9), np.zeros(100), {}, r"row 70 sums to 1\.899; expected 1"),
        ([[0.5, 0.4]], [0], {}, r"row 0 sums to 0\.9; expected 1"),
        (np.full((3, 2), 0.5), [0, 1], {}, "2 labels for 3 rows"),
        (np.full((1, 2), 0.5), [2], {}, "row 0 has label 2"),
        (np.full((0, 2), 0.5), [], {}, "0 sample"),
        (np.full((2, 1), 1.0), [0, 0], {}, "a minimum of 2 is required"),
        (np.full(2, 0.5), [0, 0], {}, "2D"),
        (np.full((2, 2), 0.5), [0, 0], {"sample_weight": [1]}, "sample_weight.shape"),
        (np.full((2, 2), 0.5), [0, 0], {"sample_weight": [1, -1]}, "row 1 is -1"),
        (np.full((2, 2), 0.5), [0, 0], {"sample_weight": [0, 0]}, "all weights are zero"),
        (
            [[-0.7, 0.3]],
            [0],
            {"log_probs": True},
            r"log-probabilities: row 0, column 1 is 0\.3; they are at most 0",
        ),
        ([[-0.7, np.nan]], [0], {"log_probs": True}, "row 0, column 1 is nan"),
        ([[-0.7, -2.0]], [0], {"log_probs": True}, r"row 0 sums to 0\.63.* after exp"),
    ],
)
def test_errors(probs, labels, options, message):
    with pytest.raises(InputError, match=message):
        nll(probs, labels, **options)
    with pytest.raises(InputError, match=message):
        evaluate(probs, labels, **options)


def test_what_is_no_array_is_an_error():
    with pytest.raises(InputTypeError):
        nll([[object(), 1]], [0])
    with pytest.raises(AttemperError):
        nll([[0.5, 0.5]], None)


@pytest.mark.parametrize("metric", [nll, ece, evaluate, reliability, aurc])
def test_scores_are_no_probabilities(metric):
    for scores in (Scores.from_logits([[2.0, 0.0]], [0]), Scores.from_probs([[0.9, 0.1]], [0])):
        with pytest.raises(InputTypeError, match=r"got a Scores.*predict_proba\(scores\) and scores\.labels"):
            metric(scores, scores.labels)
        with pytest.raises(InputTypeError, match=r"got a Scores.*predict_proba\(scores\) and scores\.labels"):
            metric(scores)
