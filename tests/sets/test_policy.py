"""Policies of prediction sets: what they take, what they promise, their files, and how they fare."""

import json

import numpy as np
import pytest

from attemper import Scores
from attemper.decisions import PredictionSets, SetPolicy, prediction_sets, set_outcome
from attemper.decisions.sets import order_of
from attemper.errors import AttemperWarning, InputError
from attemper.metrics.intervals import proportion

from data import draw, softmax


@pytest.fixture(scope="module")
def samples():
    h, y = draw(600, 5, scale=2.0, t=1.5)
    return softmax(h), y


@pytest.fixture(scope="module")
def groups():
    return np.array(["north", "south", "east"])[np.arange(600) % 3]


OPTIONS = [
    {},
    {"score": "aps"},
    {"score": "raps"},
    {"score": "raps", "penalty": 0.1, "k_reg": 2, "by": "class"},
    {"score": "aps", "randomized": True, "allow_empty": True},
    {"by": "class", "classes": list("abcde"), "confidence_level": 0.9},
    {"coverage": 0.999},
]


@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_file_gives_back_the_policy(samples, options, tmp_path):
    p, y = samples
    policy = prediction_sets(p, y, **{"coverage": 0.9, **options})
    policy.save(tmp_path / "sets.json")
    again = SetPolicy.load(tmp_path / "sets.json")
    assert again == policy
    np.testing.assert_array_equal(again.sets(p).mask, policy.sets(p).mask)
    for text in (policy.rule(), policy.promise(), policy.law(), repr(policy), policy._repr_html_()):
        assert "\n" not in text
    assert len(policy.to_pandas()) == len(policy.thresholds)


def test_by_group_is_one_policy_for_each(samples, groups):
    p, y = samples
    policy = prediction_sets(p, y, 0.9, score="aps", by="group", groups=groups)
    assert policy.groups == ("east", "north", "south")
    for name, threshold in zip(policy.groups, policy.thresholds):
        own = groups == name
        alone = prediction_sets(p[own], y[own], 0.9, score="aps")
        assert alone.thresholds == (threshold,)
        assert alone.thresholds == policy.for_group(name).thresholds
        np.testing.assert_array_equal(policy.sets(p, groups=groups).mask[own], alone.sets(p[own]).mask)
    scores = Scores.from_probs(p, y, groups=groups)
    assert prediction_sets(scores, y, 0.9, score="aps", by="group").thresholds == policy.thresholds
    np.testing.assert_array_equal(policy.sets(scores).mask, policy.sets(p, groups=groups).mask)


def test_a_group_that_is_not_known_gets_every_class(samples, groups):
    p, y = samples
    policy = prediction_sets(p, y, 0.9, by="group", groups=groups)
    with pytest.warns(AttemperWarning):
        sets = policy.sets(p[:4], groups=["north", "west", "west", "south"])
    assert sets.sizes.tolist()[1:3] == [5, 5]
    with pytest.raises(InputError):
        policy.sets(p)
    with pytest.raises(InputError):
        policy.sets(p, groups=groups[:5])
    with pytest.raises(InputError):
        policy.sets(p[:2], groups=["north", ""])


def test_weights_are_counts(samples):
    p, y = samples
    w = np.arange(600) % 3
    for options in ({}, {"score": "aps"}, {"by": "class"}, {"score": "raps", "penalty": 0.1, "k_reg": 1}):
        repeated = prediction_sets(np.repeat(p, w, axis=0), np.repeat(y, w), 0.9, **options)
        weighted = prediction_sets(p, y, 0.9, sample_weight=w, **options)
        assert weighted == repeated
    with pytest.raises(InputError):
        prediction_sets(p, y, 0.9, sample_weight=w + 0.5)


def test_a_cluster_counts_once(samples):
    p, y = samples
    clusters = np.arange(600) // 4
    policy = prediction_sets(p, y, 0.9, clusters=clusters)
    assert policy.n_units == (150,)
    assert policy == prediction_sets(p, y, 0.9, clusters=clusters)
    assert len({prediction_sets(p, y, 0.9, clusters=clusters, seed=s).thresholds for s in range(5)}) > 1
    whole = np.repeat(np.arange(150), 4)  # clusters whose samples are all the same
    assert (
        prediction_sets(p[whole], y[whole], 0.9, clusters=whole).thresholds
        == prediction_sets(p[:150], y[:150], 0.9).thresholds
    )
    by_class = prediction_sets(p, y, 0.9, clusters=clusters, by="class")
    assert by_class.n_units == tuple(len(np.unique(clusters[y == k])) for k in range(5))


def test_samples_of_a_cluster_alike_cover_as_often_as_asked():
    """Five samples of each case with the same score: as many cases are needed as without clusters."""
    rng = np.random.default_rng(0)
    covered = {True: [], False: []}
    for _ in range(400):
        s = np.repeat(rng.random(30), 5)
        p, y = np.column_stack([1 - s, s]), np.zeros(150, dtype=int)
        for by_case in covered:
            policy = prediction_sets(p, y, 0.95, clusters=np.repeat(np.arange(30), 5) if by_case else None)
            covered[by_case].append(policy.thresholds[0])  # which is the coverage: scores are uniform
    assert 0.96 < np.mean(covered[True]) < 0.975  # 30/31
    assert np.mean(covered[False]) < 0.943  # 29/31


def test_too_few_samples_put_every_class_into_the_set(samples):
    p, y = samples
    with pytest.warns(AttemperWarning):
        policy = prediction_sets(p[:18], y[:18], 0.95)
    assert policy.thresholds == (None,)
    assert policy.sets(p).mask.all()
    assert policy.coverage_range == ((1.0, 1.0),)
    assert prediction_sets(p[:19], y[:19], 0.95).thresholds != (None,)
    with pytest.warns(AttemperWarning):
        prediction_sets(p[:58], y[:58], 0.95, confidence_level=0.95)


def test_sets_are_decided_listed_or_referred():
    mask = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=bool)
    p = np.array([[0.7, 0.1, 0.1, 0.1], [0.3, 0.6, 0.1, 0.0], [0.25] * 4, [0.4, 0.3, 0.2, 0.1]])
    sets = PredictionSets(mask, p, 2, ("a", "b", "c", "d"))
    assert sets.action.tolist() == ["decide", "list", "refer", "refer"]
    assert sets.sizes.tolist() == [1, 2, 4, 0]
    assert sets.prediction.tolist() == [0, 1, 0, -1]
    assert sets.lists() == [["a"], ["b", "a"], ["a", "b", "c", "d"], []]
    assert sets.to_pandas()["set"].tolist() == ["a", "b, a", "a, b, c, d", ""]
    assert len(sets) == 4
    assert "\n" not in repr(sets)


def test_random_shares_depend_on_the_seed_and_continue(samples):
    p, y = samples
    policy = prediction_sets(p, y, 0.9, score="aps", randomized=True)
    assert policy == prediction_sets(p, y, 0.9, score="aps", randomized=True)
    first = policy.sets(p).mask
    np.testing.assert_array_equal(policy.sets(p).mask, first)
    assert (policy.sets(p, seed=1).mask != first).any()
    rng = np.random.default_rng([0, 2])
    parts = [policy.sets(part, seed=rng).mask for part in (p[:250], p[250:])]
    np.testing.assert_array_equal(np.concatenate(parts), first)


def test_outcomes_are_shares_with_clopper_pearson_intervals(samples, groups):
    p, y = samples
    policy = prediction_sets(p[:300], y[:300], 0.8, max_size=2, classes=list("abcde"))
    found = set_outcome(policy, p[300:], y[300:], groups=groups[300:])
    sets = policy.sets(p[300:])
    held = sets.mask[np.arange(300), y[300:]]
    assert tuple(found.all.coverage) == pytest.approx(tuple(proportion(held.sum(), 300, 0.95)))
    assert found.all.mean_size == pytest.approx(sets.sizes.mean())
    assert found.all.decided + found.all.listed + found.all.referred == found.all.n == 300
    assert found.all.listed == (sets.sizes == 2).sum()
    for k, row in enumerate(found.by_class):
        own = y[300:] == k
        assert (row.name, row.n) == ("abcde"[k], own.sum())
        assert tuple(row.coverage) == pytest.approx(tuple(proportion(held[own].sum(), own.sum(), 0.95)))
    assert [row.name for row in found.by_group] == ["east", "north", "south"]
    assert {int(row.name): row.n for row in found.by_size} == dict(
        zip(*map(list, np.unique(sets.sizes, return_counts=True)))
    )
    assert len(found.to_pandas()) == 1 + 5 + 3 + len(found.by_size)
    assert found.to_dict()["coverage"]["value"] == found.all.coverage.value
    json.dumps(found.to_dict(), allow_nan=False)
    assert "\n" not in repr(found)


def test_outcomes_of_clusters_are_less_certain(samples):
    p, y = samples
    policy = prediction_sets(p[:300], y[:300], 0.8)
    rows = np.repeat(np.arange(300, 600), 3)
    plain = set_outcome(policy, p[rows], y[rows])
    clustered = set_outcome(policy, p[rows], y[rows], clusters=rows)
    once = set_outcome(policy, p[300:], y[300:])
    assert clustered.n_clusters == 300
    widths = [found.all.coverage.high - found.all.coverage.low for found in (plain, once, clustered)]
    assert widths[0] < 0.7 * widths[2]
    assert widths[2] == pytest.approx(widths[1], rel=0.03)
    assert clustered.all.coverage.value == once.all.coverage.value


def test_the_range_is_that_of_the_beta_law(samples):
    p, y = samples
    policy = prediction_sets(p[:99], y[:99], 0.9)
    assert order_of(99, 0.9) == 90
    (low, high) = policy.coverage_range[0]
    draws = np.random.default_rng(0).beta(90, 10, size=200_000)
    assert np.quantile(draws, [0.05, 0.95]) == pytest.approx([low, high], abs=0.002)
