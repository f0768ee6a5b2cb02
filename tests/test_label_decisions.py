"""Thresholds and referral of labels that do not exclude each other."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import f1_score

from attemper import FileError, InputError
from attemper.decisions import LabelPolicies, label_policies, label_thresholds, policy_for_budget, policy_for_miss


def draw(n=2000, seed=0, labels=3):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.3, 0.5, size=(n, labels))
    y = (rng.random(p.shape) < p).astype(float)
    y[rng.random(y.shape) < 0.1] = np.nan
    return y, p


def known(y, p, k):
    some = ~np.isnan(y[:, k])
    return y[some, k].astype(int), p[some, k]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), by=st.sampled_from(["f1", "youden"]))
def test_no_other_threshold_is_better(seed, by):
    y, p = draw(60, seed, 2)
    p = p.round(1)  # with ties
    found = label_thresholds(y, p, by)
    for k in range(2):
        truth, own = known(y, p, k)
        if truth.min() == truth.max():
            assert found.thresholds[k] == 0.5
            continue

        def score(t, truth=truth, own=own):
            said = (own >= t).astype(int)
            if by == "f1":
                return f1_score(truth, said, zero_division=0)
            return said[truth == 1].mean() - said[truth == 0].mean()

        best = max(score(t) for t in np.unique(own))
        assert score(found.thresholds[k]) == pytest.approx(best)
        assert "expect less" in found.rationale[k]


def test_costs():
    y, p = draw()
    assert label_thresholds(None, p, "cost", cost_false_negative=9).thresholds == (0.1, 0.1, 0.1)
    truth, own = known(y, p, 0)
    costs = {t: ((own >= t) & (truth == 0)).sum() + 9 * ((own < t) & (truth == 1)).sum() for t in (0.02, 0.1, 0.5)}
    assert min(costs, key=costs.get) == 0.1
    with pytest.raises(InputError):
        label_thresholds(None, p, "f1")


def test_sensitivity_on_these_samples():
    y, p = draw()
    found = label_thresholds(y, p, "sensitivity", sensitivity=0.9)
    for k in range(3):
        truth, own = known(y, p, k)
        positives = own[truth == 1]
        assert (positives >= found.thresholds[k]).mean() >= 0.9
        higher = np.sort(positives)[int((positives < found.thresholds[k]).sum()) + 1]
        assert (positives >= higher).mean() < 0.9


def test_a_guaranteed_sensitivity_holds():
    """In at most 10 % of the draws is the true sensitivity below what is guaranteed, for any of the labels."""
    new = np.random.default_rng(99)
    p_new = new.beta(0.3, 0.5, size=(200_000, 3))
    y_new = new.random(p_new.shape) < p_new
    failed = 0
    for seed in range(200):
        y, p = draw(400, seed)
        found = label_thresholds(y, p, "sensitivity", sensitivity=0.9, confidence_level=0.9)
        failed += any((p_new[y_new[:, k], k] >= t).mean() < 0.9 for k, t in enumerate(found.thresholds))
    assert failed <= binom.ppf(0.999, 200, 0.1)
    alone = label_thresholds(y, p, "sensitivity", sensitivity=0.9, confidence_level=0.9, simultaneous=False)
    assert all(a >= b for a, b in zip(alone.thresholds, found.thresholds))


def test_too_few_positives():
    y, p = draw(20)
    found = label_thresholds(y, p, "sensitivity", sensitivity=0.99, confidence_level=0.95)
    assert found.thresholds == (0.0, 0.0, 0.0)
    assert "needs" in found.rationale[0]
    none = label_thresholds(0 * np.nan_to_num(y), p, "sensitivity")
    assert none.thresholds == (0.0, 0.0, 0.0)
    assert "0.5, as no known entry is positive" in label_thresholds(0 * np.nan_to_num(y), p, "f1").rationale


@pytest.mark.parametrize("simultaneous", [True, False])
def test_policies_are_those_of_two_classes(simultaneous):
    y, p = draw()
    found = label_policies(p, y, max_miss=0.1, confidence_level=0.9, simultaneous=simultaneous)
    level = 1 - 0.1 / 3 if simultaneous else 0.9
    for k in range(3):
        truth, own = known(y, p, k)
        expected = policy_for_miss(np.column_stack([1 - own, own]), truth, 0.1, confidence_level=level)
        assert found.policies[k].threshold == expected.threshold
    decisions = found.refer_or_decide(p)
    assert decisions.refer.shape == p.shape
    np.testing.assert_array_equal(decisions.prediction, p > 0.5)
    np.testing.assert_allclose(decisions.confidence, np.maximum(p, 1 - p))
    assert found.promise().startswith("with confidence 0.9 at most 0.1 of")
    assert ("all labels at once" in found.promise()) == simultaneous
    outcomes = found.outcomes(*draw(seed=5))
    assert list(outcomes) == ["0", "1", "2"]
    assert all(outcome.all.miss_rate.value < 0.12 for outcome in outcomes.values())


def test_budget_and_cost():
    y, p = draw()
    by_budget = label_policies(p, budget=0.2, label_names=["a", "b", "c"])
    assert by_budget.policies[1].threshold == policy_for_budget(np.column_stack([1 - p[:, 1], p[:, 1]]), 0.2).threshold
    assert by_budget.refer_or_decide(p).refer.mean(axis=0) == pytest.approx([0.2] * 3, abs=0.01)
    assert by_budget.promise() == "nothing is guaranteed"
    by_cost = label_policies(p, y, cost_refer=1, cost_miss=[5, 50])
    assert by_cost.policies[0].cost_miss == (5, 50)
    table = by_budget.to_pandas()
    assert table["label"].tolist() == ["a", "b", "c"]


def test_files(tmp_path):
    y, p = draw()
    found = label_policies(p, y, max_miss=0.1, label_names=["a", "b", "c"])
    found.save(tmp_path / "policies.json")
    assert LabelPolicies.load(tmp_path / "policies.json") == found
    content = json.loads((tmp_path / "policies.json").read_text())
    for change in ({"policies": content["policies"][:2]}, {"label_names": 3}, {"policies": [{"threshold": 3}] * 3}):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(FileError):
            LabelPolicies.load(tmp_path / "bad.json")


def test_labels_without_entries_are_referred():
    y, p = draw()
    y[:, 1] = np.nan
    found = label_policies(p, y, max_miss=0.1)
    assert not found.policies[1].reached
    assert found.refer_or_decide(p).refer[:, 1].all()
    assert list(found.outcomes(y, p)) == ["0", "2"]


def test_what_is_refused():
    y, p = draw(50)
    with pytest.raises(InputError):
        label_policies(p, y)
    with pytest.raises(InputError):
        label_policies(p, y, max_miss=0.1, budget=0.1)
    with pytest.raises(InputError):
        label_policies(p, max_miss=0.1)
    with pytest.raises(InputError):
        label_policies(p, budget=0.1).refer_or_decide(p[:, :2])
