import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from attemper.errors import InputError
from attemper.metrics import accuracy, brier, ece, evaluate, nll

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
    assert metric(y, p, sample_weight=w) == pytest.approx(oracle(metric.__name__, p, y, w), rel=1e-13)
    assert metric(y, p) == pytest.approx(oracle(metric.__name__, p, y, np.ones(50)), rel=1e-13)


def test_agrees_with_scikit_learn():
    p, y, w = draw(400, 7)
    assert nll(y, p, sample_weight=w) == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-12)
    by_class = [brier_score_loss(y == k, p[:, k], sample_weight=w) for k in range(7)]
    assert brier(y, p, sample_weight=w) == pytest.approx(sum(by_class), rel=1e-12)
    assert accuracy(y, p, sample_weight=w) == pytest.approx(
        accuracy_score(y, p.argmax(axis=1), sample_weight=w), rel=1e-12
    )


@settings(deadline=None)
@given(n=st.integers(1, 30), k=st.integers(2, 6), seed=st.integers(0, 1000))
def test_properties(n, k, seed):
    p, y, _ = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    samples, classes = rng.permutation(n), rng.permutation(k)
    repeats = rng.integers(0, 3, size=n)
    repeats[0] = 2
    for metric in METRICS:
        value = metric(y, p)
        assert 0 <= value <= {"nll": math.inf, "brier": 2, "accuracy": 1}[metric.__name__]
        assert metric(y[samples], p[samples]) == pytest.approx(value)
        assert metric(np.argsort(classes)[y], p[:, classes]) == pytest.approx(value)
        assert metric(y, p, sample_weight=repeats) == pytest.approx(
            metric(np.repeat(y, repeats), np.repeat(p, repeats, axis=0))
        )


def test_perfect_and_hopeless():
    sure = np.eye(3)
    assert (nll([0, 1, 2], sure), brier([0, 1, 2], sure), accuracy([0, 1, 2], sure)) == (0, 0, 1)
    assert math.copysign(1, nll([0, 1, 2], sure)) == 1  # not −0.0
    assert (nll([1, 2, 0], sure), brier([1, 2, 0], sure), accuracy([1, 2, 0], sure)) == (math.inf, 2, 0)


def test_nll_is_infinite_only_if_the_impossible_sample_counts():
    p, y = [[1.0, 0.0], [0.5, 0.5]], [1, 0]
    assert nll(y, p) == math.inf
    assert nll(y, p, sample_weight=[0, 1]) == pytest.approx(math.log(2))
    for found in (
        nll(y * 20, p * 20, confidence_level=0.9),
        nll([1] * 40, [[1.0, 0.0]] + [[0.5, 0.5]] * 39, confidence_level=0.9),
    ):
        assert found.value == math.inf
        assert math.isnan(found.low)


def test_nll_of_log_probabilities_does_not_underflow():
    h = np.array([[0.0, -2000.0], [0.0, -1500.0]])
    assert nll([1, 0], h, input="log_probs") == 1000
    p, y, w = draw(50, 4)
    assert nll(y, np.log(p), input="log_probs", sample_weight=w) == pytest.approx(nll(y, p, sample_weight=w))
    assert nll([0], [[-np.inf, 0.0]], input="log_probs") == math.inf
    assert evaluate([1, 0], h, input="log_probs")["nll"] == 1000


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("k", [2, 100, 1000])
def test_half_precision_is_accepted(dtype, k):
    p, y, _ = draw(50, k)
    for metric in METRICS:
        assert metric(y, p.astype(dtype)) == pytest.approx(metric(y, p), rel=2e-2)
    assert nll(y, np.log(p).astype(dtype), input="log_probs") == pytest.approx(nll(y, p), rel=1e-2)
    sure = np.where(np.eye(k) > 0, dtype(1 + 5e-4), dtype(0))  # a rounding above 1 is no loss below 0
    assert nll(np.arange(k), sure) >= 0


def test_torch():
    torch = pytest.importorskip("torch")
    p, y, w = draw(30, 4)
    for metric in [*METRICS, ece]:
        tensors = torch.from_numpy(y), torch.from_numpy(p).requires_grad_()
        assert metric(*tensors, sample_weight=torch.from_numpy(w)) == metric(y, p, sample_weight=w)
        coarse = torch.from_numpy(p).to(torch.bfloat16)
        assert metric(y, coarse) == pytest.approx(metric(y, coarse.double().numpy()))


def test_every_metric_takes_logits_and_log_probabilities():
    rng = np.random.default_rng(0)
    h, y = 3 * rng.normal(size=(80, 4)), rng.integers(4, size=80)
    log_p = log_softmax(h, axis=1)
    expected = evaluate(y, np.exp(log_p))
    assert evaluate(y, log_p, input="log_probs") == pytest.approx(expected)
    assert evaluate(y, h, input="logits") == pytest.approx(expected)
    assert nll([0, 1], [[0.0, -np.inf], [-1000.0, 0.0]], input="logits") == 0
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError):
            nll([0, 1], [[0.0, 1.0], [bad, 0.0]], input="logits")
    with pytest.raises(InputError):
        nll(y, h, input="odds")
