"""Input that is not what it is taken for: a warning wherever it comes in, none for what is right."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from attemper import (
    AttemperWarning,
    ChanceAccuracyWarning,
    ProbabilitiesAsLogitsWarning,
    Scores,
    Sketch,
    StructuredScaling,
    TemperatureScaling,
    datasets,
)
from attemper.data.plausibility import warn_of_chance
from attemper.errors import collected_warnings
from attemper.io import open_scores
from attemper.sharded import fit_sharded

from data import draw, softmax

H, Y = draw(400, 5)
P = softmax(H)
TS = TemperatureScaling().fit(H, Y)


def test_probabilities_passed_as_logits():
    shards = [(P[:200], Y[:200]), (P[200:], Y[200:])]
    for use in (
        lambda: TemperatureScaling().fit(P, Y),
        lambda: StructuredScaling().fit(P, Y),
        lambda: TemperatureScaling().partial_fit(P, Y),
        lambda: fit_sharded(TemperatureScaling(), shards),
        lambda: Scores.from_logits(P),
        lambda: Sketch.of(P, Y),
        lambda: TS.predict_proba(P),
        lambda: TS.predict_proba(P[:1]),
        lambda: TS.predict_log_proba(P),
        lambda: TS.predict(P),
    ):
        with pytest.warns(ProbabilitiesAsLogitsWarning) as found:
            use()
        assert found[0].filename == __file__  # the line that passed them, not one of attemper


@pytest.mark.parametrize(
    "convert",
    [
        lambda p: p.astype(np.float32),
        lambda p: p.astype(np.float16),
        lambda p: p.round(3),
        lambda p: torch.from_numpy(p),
        lambda p: torch.softmax(torch.from_numpy(np.log(p)).to(torch.bfloat16), dim=1),
        lambda p: p[:1].astype(np.float16),
    ],
)
def test_they_are_known_in_every_type(convert):
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        Scores.from_logits(convert(P))


@pytest.mark.parametrize(
    "logits",
    [
        H,
        np.log(P),
        np.log(P)[:1],
        np.abs(H),
        P[:, :4],
        P - 1e-3,
        np.tile([[0.0, 0.995]], (1, 1)),  # one score z of two classes, as it is served
        np.where(np.arange(400)[:, None] == 399, H, P),
        np.where(P < 0.1, -np.inf, P),
        np.eye(3),
        [[1, 0, 0]],
        [[0, 1]],
    ],
)
def test_logits_bring_no_warning(logits):
    Scores.from_logits(logits)


def imbalanced(n=1000, seed=0):
    """Logits of a good classifier where 95 % of the samples are of one class."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.05).astype(int)
    z = 3 * y - 3 + rng.normal(size=n)
    return np.column_stack([np.zeros(n), z]), y


def test_labels_that_do_not_belong_to_the_rows_or_columns():
    data = datasets.load()
    h, y = data.val_logits, data.val_labels
    shuffled = np.random.default_rng(0).permutation(y)
    for logits, labels in (
        (h, shuffled),
        (h.astype(np.float16), shuffled),
        (torch.from_numpy(h), shuffled),
        (np.roll(h, 1, axis=1), y),
        (-H[:40], Y[:40]),
        (imbalanced()[0][:, ::-1], imbalanced()[1]),
        (H, np.roll(Y, 1)),
    ):
        for use in (Scores.from_logits, Sketch.of):
            with pytest.warns(ChanceAccuracyWarning):
                use(logits, labels)
    with pytest.warns(ChanceAccuracyWarning):
        Scores.from_probs(softmax(h), shuffled)


def silent(logits, labels, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttemperWarning)
        return Scores.from_logits(logits, labels, **more)


def test_accuracy_above_chance_brings_no_warning():
    data = datasets.load()
    silent(data.val_logits, data.val_labels)
    silent(H, Y)
    silent(*imbalanced())
    h, y = imbalanced()
    silent(h - np.array([0, 10]), y)  # every prediction is of the frequent class
    silent(
        h + np.array([0, 2.5]), y
    )  # accuracy far below the share of that class, as of a network trained on weighted classes
    silent(np.zeros((300, 3)), np.arange(300) % 3)  # no logit is the largest
    silent(H, H.argmax(axis=1))
    silent(H, np.zeros(400, dtype=int))  # labels of one class
    silent(H[:10], np.roll(Y[:10], 1))  # too few to tell
    silent(H, Y, sample_weight=np.where(np.arange(400) < 200, 1.0, 0.0))


@pytest.mark.parametrize("n, accuracy", [(20, 0.6), (100, 0.6), (1000, 0.58), (20_000, 0.53)])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_weak_classifiers_are_seldom_suspected(n, accuracy, share):
    """Two classes, one of them with this share, and predictions that are right more often than by chance."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(500):
        y = (rng.random(n) < share).astype(int)
        by_chance = (rng.random(n) < share).astype(int)
        excess = 2 * accuracy - 1  # of the samples are known, the others guessed
        predicted = np.where(rng.random(n) < excess, y, by_chance)
        with collected_warnings() as found:
            labels, predictions = (np.bincount(k, minlength=2).astype(float) for k in (y, predicted))
            warn_of_chance(float((y == predicted).mean()), labels, predictions, n)
        alarms += len(found)
    assert alarms <= 2


def test_a_weight_counts_as_that_many_samples():
    h, y = -H[:40], Y[:40]
    with pytest.warns(ChanceAccuracyWarning) as by_weight:
        Scores.from_logits(h, y, sample_weight=np.where(np.arange(40) < 20, 2.0, 1.0))
    with pytest.warns(ChanceAccuracyWarning) as repeated:
        Scores.from_logits(np.concatenate([h[:20], h]), np.concatenate([y[:20], y]))
    assert str(by_weight[0].message) == str(repeated[0].message)


def test_a_sketch_warns_when_it_is_loaded(tmp_path):
    with pytest.warns(ChanceAccuracyWarning):
        Sketch.of(H, np.roll(Y, 1)).save(tmp_path / "bad.json")
    with pytest.warns(ChanceAccuracyWarning):
        Sketch.load(tmp_path / "bad.json")
    Sketch.of(H, Y).save(tmp_path / "good.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttemperWarning)
        Sketch.load(tmp_path / "good.json")


def test_files_are_named_and_each_kind_of_warning_is_issued_once(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", logits=P, labels=np.roll(Y, 1))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        open_scores(str(tmp_path / "*.npz")).load()
    assert [w.category for w in found] == [ProbabilitiesAsLogitsWarning, ChanceAccuracyWarning]
    assert all("a.npz: " in str(w.message) for w in found)
