"""Soft labels: expectations over the label, exactly as rows that are repeated and weighted."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import attemper
import attemper.cli
from attemper import InputError, Scores, Sketch, TemperatureScaling, compare, label_shares, metrics
from attemper.calibrators import METHODS
from attemper.fitting import fit_source
from attemper.io import open_scores

from data import draw

N, K = 240, 4
H, Y = draw(N, K)
RNG = np.random.default_rng(5)
VOTES = np.where(RNG.random((N, 5)) < 0.7, Y[:, None], RNG.integers(K, size=(N, 5)))
VOTES[RNG.random((N, 5)) < 0.2] = -1
VOTES[:, 0] = Y
SHARES = label_shares(VOTES, K)
ROW, COLUMN = np.nonzero(SHARES)
WEIGHT = SHARES[ROW, COLUMN]
PROBS = np.exp(H / 3) / np.exp(H / 3).sum(axis=1, keepdims=True)


def test_shares_of_votes():
    for i in range(N):
        votes = [v for v in VOTES[i] if v >= 0]
        np.testing.assert_allclose(SHARES[i], [votes.count(k) / len(votes) for k in range(K)])
    names = np.array(["a", "b", "c", "d", None], dtype=object)[VOTES]
    np.testing.assert_array_equal(label_shares(names, classes=["a", "b", "c", "d"]), SHARES)
    np.testing.assert_array_equal(label_shares(np.where(VOTES < 0, np.nan, VOTES), K), SHARES)
    np.testing.assert_array_equal(label_shares(torch.as_tensor(VOTES), K), SHARES)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_fit_is_that_of_repeated_rows(method):
    parameters = {"l2": 0.01, "prior_mean": "temperature"} if method in ("vector", "matrix") else {}
    calibrator = METHODS[method](**parameters)
    soft = clone(calibrator).fit(H, SHARES)
    repeated = clone(calibrator).fit(H[ROW], COLUMN, sample_weight=WEIGHT)
    np.testing.assert_array_equal(soft.predict_proba(H), repeated.predict_proba(H))
    assert soft.fit_report_.n_samples == N
    hard = clone(calibrator).fit(H, np.eye(K)[Y])
    np.testing.assert_array_equal(hard.predict_proba(H), clone(calibrator).fit(H, Y).predict_proba(H))


def test_sketches_and_streams():
    soft, repeated = Sketch.of(H, SHARES), Sketch.of(H[ROW], COLUMN, sample_weight=WEIGHT)
    assert soft.n_samples == N
    np.testing.assert_array_equal(soft.nll, repeated.nll)
    for name, table in repeated.tables.items():
        np.testing.assert_array_equal(soft.tables[name], table)
    stream = TemperatureScaling().partial_fit(H[:100], SHARES[:100]).partial_fit(H[100:], SHARES[100:])
    assert stream.temperature_ == pytest.approx(TemperatureScaling().fit(H, SHARES).temperature_, rel=1e-7)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 20), k=st.integers(2, 5))
def test_the_best_temperature_minimises_the_expected_loss(seed, n, k):
    rng = np.random.default_rng(seed)
    h, q = 4 * rng.normal(size=(n, k)), rng.dirichlet(np.ones(k), n)
    scores = Scores.from_logits(h, q, sample_weight=rng.random(n) + 0.1)

    def expected(beta):
        logs = beta * h - np.log(np.exp(beta * h).sum(axis=1, keepdims=True))
        w = np.bincount(scores.image, scores.weights)
        return -(w * (q * logs).sum(axis=1)).sum()

    for beta in (0.3, 1.0, 2.0):
        np.testing.assert_allclose(scores.backend.nll(beta)[0], expected(beta), rtol=1e-9, atol=1e-9)


def test_metrics_are_expectations():
    q, p, rows = SHARES, PROBS, np.arange(N)
    best = p.argmax(axis=1)
    oracle = {
        "nll": -(q * np.log(p)).sum(axis=1).mean(),
        "brier": sum(q[:, k] * ((p - np.eye(K)[k]) ** 2).sum(axis=1) for k in range(K)).mean(),
        "accuracy": q[rows, best].mean(),
    }
    bins = np.minimum((p.max(axis=1) * 15).astype(int), 14)
    oracle["ece"] = sum(abs((p.max(axis=1) - q[rows, best])[bins == b].sum()) for b in range(15)) / N
    for name, value in oracle.items():
        assert getattr(metrics, name)(q, p) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "aurc", "brier", "classwise_ece", "ece", "mmce", "nll", "smooth_ece"])
def test_every_metric_is_that_of_repeated_rows_with_their_sample_as_cluster(name):
    metric = getattr(metrics, name)
    options = {"confidence_level": 0.9, "n_resamples": 30}
    expected = metric(COLUMN, PROBS[ROW], sample_weight=WEIGHT, clusters=ROW, **options)
    assert repr(metric(SHARES, PROBS, **options)) == repr(expected)
    assert repr(metric(Scores.from_probs(PROBS, SHARES), **options)) == repr(expected)
    assert metric(np.eye(K)[Y], PROBS) == metric(Y, PROBS)
    patients = np.arange(N) // 3
    by_patient = metric(COLUMN, PROBS[ROW], sample_weight=WEIGHT, clusters=patients[ROW], **options)
    assert repr(metric(SHARES, PROBS, clusters=patients, **options)) == repr(by_patient)


def test_one_column_with_soft_labels():
    z = H[:, 0]
    q = np.column_stack([1 - SHARES[:, 0], SHARES[:, 0]])
    both = np.column_stack([np.zeros_like(z), z])
    assert TemperatureScaling().fit(z, q).temperature_ == TemperatureScaling().fit(both, q).temperature_
    p = 1 / (1 + np.exp(-z))
    assert metrics.nll(q, p) == pytest.approx(-(q[:, 1] * np.log(p) + q[:, 0] * np.log(1 - p)).mean())


def test_tensors_and_names():
    expected = TemperatureScaling().fit(H, SHARES).temperature_
    assert TemperatureScaling().fit(torch.as_tensor(H), torch.as_tensor(SHARES)).temperature_ == expected
    named = TemperatureScaling(classes=list("abcd")).fit(H, SHARES)
    assert named.temperature_ == expected
    assert set(named.predict(H)) <= set("abcd")


def test_comparing_divides_by_samples():
    val, test = Scores.from_logits(H[:120], SHARES[:120]), Scores.from_logits(H[120:], SHARES[120:])
    found = compare(val, test, methods=["ts"], cv=2)
    assert {row.method for row in found.rows} >= {"ts"}


@pytest.mark.parametrize(
    "labels",
    [
        SHARES * 0.9,
        np.where(np.arange(K) == 0, -0.25, SHARES),
        VOTES,
        VOTES[:, :4],
        (SHARES * 60).round(),
        (SHARES > 0).astype(int),
        np.zeros((N, K)),
        SHARES[:, :3],
        SHARES[:-1],
        np.array(list("abcde"))[VOTES],
        np.where(np.arange(K) == 0, np.nan, SHARES),
    ],
)
def test_matrices_that_are_no_soft_labels(labels):
    for function in (lambda: TemperatureScaling().fit(H, labels), lambda: metrics.nll(labels, PROBS)):
        with pytest.raises(InputError):
            function()


@pytest.mark.parametrize("form", ["npz", "npy", "safetensors"])
def test_files(tmp_path, form, monkeypatch):
    from data import save

    how = save(tmp_path, form, H, SHARES)
    expected = TemperatureScaling().fit(H, SHARES)
    assert fit_source(TemperatureScaling(), open_scores(**how)).temperature_ == expected.temperature_
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 4096)
    pieces = open_scores(**how).load()
    assert pieces.n_samples == N
    np.testing.assert_array_equal(pieces.image, ROW)
    assert TemperatureScaling().fit(pieces).temperature_ == pytest.approx(expected.temperature_, rel=1e-12)
    np.savez(tmp_path / "votes.npz", logits=H, labels=VOTES)
    with pytest.raises(InputError):
        open_scores(tmp_path / "votes.npz").load()


def test_what_counts_cases_refuses_soft_labels():
    val, test = Scores.from_logits(H[:120], SHARES[:120]), Scores.from_logits(H[120:], SHARES[120:])
    for function in (
        lambda: attemper.report.write_report("report.html", val, test),
        lambda: attemper.drift.DriftTest(2.0).update(test),
        lambda: attemper.decisions.policy_for_miss(PROBS, SHARES, 0.2),
    ):
        with pytest.raises(InputError):
            function()
